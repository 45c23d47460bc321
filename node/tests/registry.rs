//! A set of validators that changes, in real processes, by the commands of docs/REGISTRY.md: two validators
//! come, two leave, while transfers are paid.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::chain::{Chain, EPOCH_BLOCKS, PATIENCE, STAKE, genesis};
use quorate_api::verdict::{Health, VerdictJson};
use quorate_types::{Epoch, Height, ValidatorSet};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread")]
async fn validators_come_and_leave_while_the_chain_goes_on() {
    let mut chain = Chain::start(false);
    chain.wait_for_set(0, &[0, 1, 2, 3]).await;
    let payee = common::payee();
    let mut paid = 0;
    let mut pay = |chain: &Chain, by: usize| {
        chain.pay(by, payee, 7);
        paid += 7;
    };

    // It waits for nonces before it, over the borders that follow.
    let to = payee.to_string();
    let strand = [
        "tx",
        "transfer",
        "--key",
        "net/account/identity.key",
        "--chain-id",
        &chain.id,
        "--to",
        &to,
        "--amount",
        "1",
        "--nonce",
        "500",
        "--rpc",
        &chain.url(1),
    ];
    chain.quorate(&strand);

    chain.join(1, 4);
    chain.join(2, 5);
    pay(&chain, 0);
    chain.wait_for_set(1, &[0, 1, 2, 3, 4, 5]).await;
    pay(&chain, 4);
    // Over borders the mempool goes on as it is: read from the disk, a full one would stop the chain for seconds.
    assert!(chain.status(1).await.unwrap().mempool_transactions >= 1);
    let log = fs::read_to_string(chain.validator(1).join("node.log")).unwrap();
    assert!(log.matches("has a seat in this epoch").count() > 1, "{log}");
    assert!(!log.contains("kept wait again"), "{log}");

    // Two of the first leave. At most one may at each border.
    for place in [0, 2] {
        chain.pay(5, chain.identity(place), 1_000);
        let unbonded = chain.operate(
            5,
            place,
            &["unbond", "--stake", &STAKE.to_string(), "--wait"],
        );
        assert!(unbonded.contains("applied"), "{unbonded}");
    }
    chain.wait_for_set(1, &[1, 3, 4, 5]).await;
    pay(&chain, 5);

    // They follow now, and get their stake back.
    let height = chain.status(1).await.unwrap().finalized_height;
    chain
        .wait_for("the left ones to follow", async || {
            let heights = [chain.status(0).await, chain.status(2).await];
            heights.iter().all(|status| {
                status
                    .as_ref()
                    .is_some_and(|status| status.finalized_height > height)
            })
        })
        .await;
    let withdrawn = chain.operate(0, 0, &["withdraw", "--wait"]);
    assert!(withdrawn.contains("applied"), "{withdrawn}");
    assert!(chain.balance(1, chain.identity(0)).await >= STAKE);

    // Without them the chain goes on; with a crash of one of the four as well.
    for place in [0, 2, 4] {
        chain.processes.get_mut(&place).unwrap().kill().unwrap();
        chain.processes.get_mut(&place).unwrap().wait().unwrap();
    }
    pay(&chain, 3);
    let height = chain.status(1).await.unwrap().finalized_height;
    chain.run(4);
    chain
        .wait_for("the killed one to be back", async || {
            let status = chain.status(4).await;
            status.is_some_and(|status| status.executed_height > height)
        })
        .await;
    chain.wait_for_set(4, &[1, 3, 4, 5]).await;
    pay(&chain, 4);

    // One that was away for some epochs finds the way back.
    chain.run(2);
    let height = chain.status(1).await.unwrap().finalized_height;
    chain
        .wait_for("the absent one to follow", async || {
            let status = chain.status(2).await;
            status.is_some_and(|status| status.executed_height > height)
        })
        .await;

    // Everybody has the same chain, from the first block on, and every payment.
    let first = chain.ids(1, height).await;
    for place in [2, 3, 4, 5] {
        assert_eq!(chain.ids(place, height).await, first, "validator {place}");
        assert_eq!(chain.balance(place, payee).await, paid, "validator {place}");
    }
    chain.is_verified_from_outside(3, height);
    chain.starts_from_a_file(2, 4);
    let height = chain.status(1).await.unwrap().finalized_height;
    chain
        .wait_for("the one without data to follow", async || {
            let status = chain.status(2).await;
            status.is_some_and(|status| status.executed_height > height)
        })
        .await;
    assert_eq!(chain.balance(2, payee).await, paid);
    let known = chain.sets(1).await;
    assert!(!known.is_empty());
    assert_eq!(chain.sets(2).await, known);
}

/// The same where the validators share a key: a newcomer gets a share, one that has lost its own gets another, one
/// leaves, and the key of the genesis file verifies all of it.
#[tokio::test(flavor = "multi_thread")]
async fn shares_are_passed_on_to_who_comes_and_the_key_stays() {
    let mut chain = Chain::start(true);
    chain.wait_for_set(0, &[0, 1, 2, 3]).await;
    let payee = common::payee();
    chain.pay(0, payee, 7);
    chain.join(1, 4);
    chain.wait_for_set(1, &[0, 1, 2, 3, 4]).await;
    chain.pay(4, payee, 7);

    // Without its share a validator follows until it gets a new one.
    let mut process = chain.processes.remove(&2).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    fs::remove_file(chain.validator(2).join("vote.key.shares.age")).unwrap();
    chain.pay(3, payee, 7);
    chain.run(2);
    chain.wait_for_set(2, &[0, 1, 2, 3, 4]).await;

    chain.pay(3, chain.identity(0), 1_000);
    let stake = STAKE.to_string();
    let unbonded = chain.operate(3, 0, &["unbond", "--stake", &stake, "--wait"]);
    assert!(unbonded.contains("applied"), "{unbonded}");
    chain.wait_for_set(1, &[1, 2, 3, 4]).await;
    chain.pay(2, payee, 7);

    // Whoever has the genesis file's key needs nothing else to verify blocks of all epochs.
    let sets = chain.sets(1).await;
    let group_key = genesis(&chain.path("net/genesis.json"))
        .shared_key()
        .unwrap();
    assert!(group_key.is_some() && sets.len() > 2);
    assert!(sets.iter().all(|set| set.group_key() == group_key));
    let keys: std::collections::BTreeSet<_> = (sets.iter().flat_map(ValidatorSet::members))
        .map(|member| member.vote_key)
        .collect();
    let seats: usize = sets.iter().map(|set| set.members().len()).sum();
    assert_eq!(keys.len(), seats, "no share counts in two epochs");
    let height = chain.status(1).await.unwrap().finalized_height;
    for which in ["5".to_owned(), height.to_string()] {
        let url = chain.url(3);
        let verify = [
            "block",
            &which,
            "--verify",
            "--trust",
            "net/trust.json",
            "--rpc",
            &url,
        ];
        let shown = chain.quorate(&verify);
        assert!(shown.contains("a quorum finalised"), "{shown}");
    }
    let first = chain.ids(1, height).await;
    for place in [2, 3, 4] {
        chain
            .wait_for("all blocks", async || {
                let status = chain.status(place).await;
                status.is_some_and(|status| status.executed_height >= height)
            })
            .await;
        assert_eq!(chain.ids(place, height).await, first, "validator {place}");
        assert_eq!(chain.balance(place, payee).await, 28, "validator {place}");
    }

    // With the state from a file instead of its data, a validator votes on with the share that it has.
    chain.starts_from_a_file(2, 4);
    chain.wait_for_set(2, &[1, 2, 3, 4]).await;
    assert_eq!(chain.balance(2, payee).await, 28);
}

/// Who is missing holds up the passing on, epoch after epoch: the validators stay, the chain and all links last, everybody
/// says so, and it is over once the missing one is back.
#[tokio::test(flavor = "multi_thread")]
async fn the_validators_stay_while_shares_are_not_passed_on_and_no_link_is_lost() {
    let mut chain = Chain::start_as(true, 4, "20ms", &["--epoch-blocks", "96"]);
    chain.wait_for_set(0, &[0, 1, 2, 3]).await;
    let without = async |chain: &Chain, place| {
        let registry = chain.registry(place).await?;
        let resharing = registry.resharing?;
        Some((registry.epoch, resharing.kept_epochs))
    };
    chain
        .wait_for(
            "shares are passed on",
            async || matches!(without(&chain, 0).await, Some((epoch, 0)) if epoch > Epoch(0)),
        )
        .await;
    let acting = async |chain: &Chain| {
        let registry = chain.registry(0).await.unwrap();
        registry.acting
    };
    chain.kill(3);
    chain
        .wait_for("three epochs without new shares", async || {
            without(&chain, 0)
                .await
                .is_some_and(|(_, epochs)| epochs >= 3)
        })
        .await;
    let before = acting(&chain).await;
    let (epoch, _) = without(&chain, 0).await.unwrap();
    let shown = chain.quorate(&["registry", "list", "--rpc", &chain.url(0)]);
    assert!(
        shown.contains("have announced themselves: 3 of 4; not: "),
        "{shown}"
    );
    chain
        .wait_for("two more epochs", async || {
            without(&chain, 0)
                .await
                .is_some_and(|(now, _)| now.0 > epoch.0 + 1)
        })
        .await;
    assert_eq!(
        acting(&chain).await,
        before,
        "the same validators with the same shares"
    );
    for place in 0..3 {
        let peers = chain.client(place).peers().await.unwrap();
        let linked = peers
            .peers
            .iter()
            .filter(|peer| peer.peer.connected)
            .count();
        assert_eq!(linked, 2, "validator {place}");
    }
    chain.pay(1, common::payee(), 7);

    chain.run(3);
    chain
        .wait_for("shares are passed on again", async || {
            without(&chain, 3)
                .await
                .is_some_and(|(now, epochs)| epochs == 0 && now > epoch)
        })
        .await;
    // From the next border on they count.
    chain
        .wait_for("new shares", async || acting(&chain).await != before)
        .await;
    chain.wait_for_set(3, &[0, 1, 2, 3]).await;
}

/// Evidence needs no operator: validators bring it before the chain themselves, in turns, and once.
#[tokio::test(flavor = "multi_thread")]
async fn an_equivocator_is_accused_by_the_others_and_punished_once() {
    for shares in [false, true] {
        let slashing = [
            "--slash-percent",
            "5",
            "--jail-epochs",
            "10",
            "--name",
            "chaos-slashing",
            // Votes of an earlier epoch are punished after all have had their turns.
            "--unbond-epochs",
            "30",
        ];
        let mut chain = Chain::start_as(shares, 4, "50ms", &slashing);
        chain.wait_for_set(0, &[0, 1, 2, 3]).await;
        let guilty = chain.identity(3);
        let bond = async |chain: &Chain| {
            let registry = chain.registry(0).await?;
            registry
                .bonds
                .into_iter()
                .find(|one| one.identity == guilty)
        };
        assert_eq!(bond(&chain).await.unwrap().stake, STAKE);
        // Whoever accuses pays for it.
        for place in 0..3 {
            chain.pay(0, chain.identity(place), 10_000);
        }
        chain.kill(3);
        chain.misbehave(3, "equivocate");
        chain
            .wait_for("the equivocator is punished", async || {
                bond(&chain).await.is_some_and(|bond| bond.stake < STAKE)
            })
            .await;
        chain.kill(3);
        // All have had their turns.
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(bond(&chain).await.unwrap().stake, STAKE / 100 * 95);
        let said = |place: usize| {
            let log = fs::read_to_string(chain.validator(place).join("node.log")).unwrap();
            log.matches("accuses a validator").count()
        };
        let accusations: usize = (0..3).map(said).sum();
        assert!((1..=2).contains(&accusations), "{accusations} accusations");
    }
}

/// Seven validators, three seats whose machines never start, and an old copy of a data directory: each node says
/// within seconds that the chain stands still, goes on saying so while it looks for newer blocks, and names what
/// helps. That is one machine of the three.
#[tokio::test(flavor = "multi_thread")]
async fn seats_without_machines_and_an_old_journal_halt_the_chain_and_all_say_what_helps() {
    for _ in 0..5 {
        if halts_with_an_old_journal().await {
            return;
        }
    }
    panic!("the chain went on with an old journal, five times");
}

/// Returns false if the chain goes on with the old journal: the others had settled all that it lacks before they were
/// asked about it.
async fn halts_with_an_old_journal() -> bool {
    let mut chain = Chain::start_with(false, 7, "100ms");
    chain.wait_for_set(0, &[0, 1, 2, 3, 4, 5, 6]).await;
    chain.kill(6);
    let (data, old) = (chain.validator(6).join("data"), chain.path("old"));
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
        assert!(copied.unwrap().success());
    };
    copy(&data, &old);
    chain.run(6);
    for place in 7..10 {
        chain.bond(0, place);
    }
    let seats = async |place| chain.registry(place).await.map(|one| one.acting.len());
    chain
        .wait_for("ten seats", async || seats(0).await == Some(10))
        .await;
    // With ten seats the seven are a quorum, and none of them can be spared.
    let verdict = async |place| chain.status(place).await.and_then(|status| status.verdict);
    chain
        .wait_for("seven votes", async || {
            let verdict: Option<VerdictJson> = verdict(0).await;
            verdict.is_some_and(|one| one.voters == 7 && one.quorum == 7)
        })
        .await;
    // An old copy is told from the newest journal by votes that the others saw in this epoch. Each block takes all
    // seven. Near its end the epoch may be over with the votes that are on their way.
    let epoch: u64 = EPOCH_BLOCKS[0].1.parse().unwrap();
    let height = chain.status(0).await.unwrap().finalized_height;
    chain
        .wait_for(
            "blocks of the seven, in the first half of an epoch",
            async || {
                let status = chain.status(0).await;
                status.is_some_and(|one| {
                    let height_now = one.finalized_height.0;
                    height_now > height.0 + 4 && (4..epoch / 2).contains(&(height_now % epoch))
                })
            },
        )
        .await;

    let halted_at = Instant::now();
    chain.kill(6);
    let verdict = async |chain: &Chain, place| chain.status(place).await?.verdict;
    let mut told = BTreeMap::new();
    while told.len() < 6 {
        for place in 0..6 {
            let state = verdict(&chain, place).await.map(|one| one.state);
            if state == Some(Health::Halted) {
                told.entry(place).or_insert_with(|| halted_at.elapsed());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(halted_at.elapsed() < PATIENCE, "{told:?}");
    }
    println!("halted, as told by each: {told:?}");

    fs::remove_dir_all(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    chain.run(6);
    chain
        .wait_for("the old copy's node", async || {
            verdict(&chain, 6).await.is_some()
        })
        .await;
    let started = Instant::now();
    let mut named = BTreeMap::new();
    let mut others = BTreeMap::new();
    let mut looked = 0;
    // Votes that were cast before the halt can still make a block final once all are linked again.
    let mut newest = (Height(0), started);
    // Twice as long as a node waits before it looks for newer blocks.
    while started.elapsed() < Duration::from_secs(32) {
        for place in 0..7 {
            let Some(status) = chain.status(place).await else {
                continue;
            };
            if status.finalized_height > newest.0 {
                newest = (status.finalized_height, Instant::now());
            }
            let Some(verdict) = status.verdict else {
                continue;
            };
            let is_new = newest.1.elapsed() < Duration::from_secs(4);
            // With a new link a node waits as long as a block usually takes before it says so again.
            assert!(
                verdict.state == Health::Halted || is_new,
                "{place} after {:?}: {verdict:?}: {}",
                started.elapsed(),
                chain.logs()
            );
            looked += usize::from(verdict.summary.contains("looks for newer blocks"));
            let remedy = verdict.remedy.unwrap_or_default();
            if remedy.contains("bring back one of them with its journal: validators 7 (") {
                *named.entry(place).or_insert(0) += 1;
            } else {
                others.insert(place, (verdict.summary, remedy));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("remedy named by each, so often: {named:?}; looking for newer blocks: {looked}");
    if named.is_empty() {
        return false;
    }
    assert_eq!(named.len(), 7, "{named:?}; {others:?}: {}", chain.logs());
    assert!(looked > 0, "nobody has looked for newer blocks");

    let height = chain.status(0).await.unwrap().finalized_height;
    chain.run(7);
    chain
        .wait_for("blocks, with one of the three", async || {
            let status = chain.status(0).await;
            status.is_some_and(|one| one.finalized_height.0 > height.0 + 20)
        })
        .await;
    let log = fs::read_to_string(chain.validator(6).join("node.log")).unwrap();
    assert!(log.contains("the journal is an old copy"), "{log}");
    true
}
