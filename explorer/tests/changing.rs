//! On a chain with a registry the explorer executes the blocks, and so computes who validates.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    TestBlock, TestChain, explorer::Running, fake::Fake, registry::EPOCH_BLOCKS,
    registry::FIRST_STAKE, secret,
};
use quorate_crypto::bls::SchemeKind;
use quorate_types::{
    Digest, Epoch, Failure, Identity, Operation, Outcome, Subject, View, VoteKind,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

const NEWCOMER: u8 = 30;
const SECOND: u8 = 31;
const WATCHER: u8 = 20;

/// What is sent in the block at a height, and what becomes of it.
type Plan = BTreeMap<u64, (u8, u64, Operation, Outcome)>;

fn applied(from: u8, amount: u64, operation: Operation) -> (u8, u64, Operation, Outcome) {
    (from, amount, operation, Outcome::Applied)
}

fn refused(
    from: u8,
    amount: u64,
    operation: Operation,
    why: Failure,
) -> (u8, u64, Operation, Outcome) {
    (from, amount, operation, Outcome::Failed(why))
}

/// Epoch 0 has the heights 1 to 16. The newcomer bonds in it and validates from epoch 2 on, the second one from epoch 3
/// on. In epoch 2 validator 101 unbonds and 104 is slashed. One of five may leave at a border: 101 is gone in epoch 3, and
/// 104 in epochs 4 and 5.
fn plan(chain: &mut TestChain) -> Plan {
    let (vote_key, possession) = chain.vote_key(NEWCOMER, 90);
    let address = "192.0.2.7:26600".parse().unwrap();
    let bond = Operation::Bond {
        vote_key,
        possession,
        address,
        name: "<b>new".parse().unwrap(),
    };
    let (vote_key, possession) = chain.vote_key(SECOND, 92);
    let second = Operation::Bond {
        vote_key,
        possession,
        address: "192.0.2.8:26600".parse().unwrap(),
        name: "second".parse().unwrap(),
    };
    let (rotated, possession) = chain.vote_key(102, 91);
    let rotate = Operation::RotateKey {
        vote_key: rotated,
        possession,
    };
    let describe = Operation::Describe {
        address: "198.51.100.1:1".parse().unwrap(),
        name: "three".parse().unwrap(),
    };
    BTreeMap::from([
        (2, applied(NEWCOMER, 21_000, bond.clone())),
        (3, refused(NEWCOMER, 5_000, bond, Failure::AlreadyBonded)),
        (
            4,
            refused(WATCHER, 0, Operation::Withdraw, Failure::NotBonded),
        ),
        (5, applied(NEWCOMER, 1_000, Operation::AddStake)),
        (20, applied(102, 0, rotate)),
        (21, applied(SECOND, 21_500, second)),
        (
            34,
            applied(101, 0, Operation::Unbond { stake: FIRST_STAKE }),
        ),
        (
            35,
            refused(101, 0, Operation::Withdraw, Failure::NothingToWithdraw),
        ),
        (36, applied(103, 0, describe)),
        // Unbonded in epoch 2, held for two epochs.
        (66, applied(101, 0, Operation::Withdraw)),
    ])
}

/// A chain of so many blocks.
fn chain(blocks: u64) -> TestChain {
    let mut chain = TestChain::registered();
    let plan = plan(&mut chain);
    grow(&mut chain, &plan, blocks);
    chain
}

fn grow(chain: &mut TestChain, plan: &Plan, blocks: u64) {
    for _ in 0..blocks {
        let height = chain.blocks.len() as u64 + 1;
        let mut transactions = Vec::new();
        let mut expected = Vec::new();
        let nonce = |chain: &TestChain, from: u8| {
            let sender = secret(from).identity();
            let sent = chain.blocks.iter().flat_map(|one| one.block.transactions());
            sent.filter(|one| one.transfer().sender == sender).count() as u64
        };
        if let Some((from, amount, operation, outcome)) = plan.get(&height) {
            transactions.push(chain.operation(*from, nonce(chain, *from), *amount, operation));
            expected.push(*outcome);
        }
        // A validator accuses another one: the votes are of an earlier block of epoch 2.
        if height == 40 {
            let epoch = Epoch(2);
            let vote = |payload| Subject {
                epoch,
                view: View(3),
                kind: VoteKind::Notarize,
                payload: Digest([payload; 32]),
            };
            let place = chain.validators_of(2);
            let accused = secret(104).identity();
            let place = place.iter().position(|one| *one == accused).unwrap();
            let evidence = chain.guilt(2, place as u32, [vote(1), vote(2)]);
            let accuse = Operation::Accuse {
                validator: accused,
                evidence: Box::new(evidence),
            };
            transactions.push(chain.operation(WATCHER, nonce(chain, WATCHER), 0, &accuse));
            expected.push(Outcome::Applied);
        }
        let transfer = chain.transfer(25, nonce(chain, 25), 99, 1);
        transactions.push(transfer);
        expected.push(Outcome::Applied);
        // Some blocks have no finalization of their own; the last one of an epoch needs one.
        let certified = height % 5 != 2 || height.is_multiple_of(EPOCH_BLOCKS);
        chain.extend(transactions, u64::from(height % 7 == 5), certified);
        assert_eq!(chain.blocks.last().unwrap().outcomes, expected, "{height}");
    }
}

async fn checked(explorer: &Running, height: u64) {
    explorer
        .until(&format!("outcomes checked to {height}"), async |e| {
            let outcomes = e.client.status().await.unwrap().outcomes;
            assert_eq!(outcomes.state, "executed");
            outcomes.checked_to.0 >= height
        })
        .await;
}

fn hex(seed: u8) -> String {
    named(&secret(seed).identity())
}

fn named(identity: &Identity) -> String {
    format!("0x{identity}")
}

fn identities(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["identity"].as_str().unwrap().to_owned())
        .collect()
}

/// With a trust file that was moved forward, blocks from before it cannot be verified, and nobody lies.
#[tokio::test]
async fn history_begins_with_the_validators_of_the_trust_file() {
    let chain = Arc::new(Mutex::new(chain(100)));
    let (trust, first) = {
        let chain = chain.lock().unwrap();
        let handover = &chain.handovers()[1];
        let trust = chain.trust.with(&handover.set);
        (trust, handover.header.height.next())
    };
    assert!(first.0 > 20, "{first}");
    let fake = Fake::new(&chain);
    let folder = tempfile::tempdir().unwrap();
    let urls = [fake.serve().await];
    let explorer = Running::start(&trust, folder.path(), &urls).await;
    explorer.reach(100).await;
    let status = explorer.client.status().await.unwrap();
    assert_eq!(status.oldest.map(|oldest| oldest.0), Some(first.0));
    let states = status.upstreams.iter().map(|one| one.state.as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["following"]);
    explorer.stop().await;
}

#[tokio::test]
async fn outcomes_of_operations_are_checked_over_changes_of_the_validators() {
    let chain = Arc::new(Mutex::new(chain(100)));
    assert_eq!(chain.lock().unwrap().handovers().len(), 4);
    // Tells every outcome as applied, and the slashing and the bond as refused.
    let lie = |range: &mut Vec<TestBlock>| {
        for block in range {
            block.outcomes.fill(Outcome::Applied);
            if [2, 40].contains(&block.block.height().0) {
                block.outcomes[0] = Outcome::Failed(Failure::BadOperation);
            }
        }
    };
    let fake = Fake::liar(&chain, Box::new(lie));
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&chain, folder.path(), &fake).await;
    explorer.reach(100).await;
    checked(&explorer, 99).await;
    let status = explorer.client.status().await.unwrap();
    // Heights 2, 3, 4, 35 and 40.
    assert_eq!(status.outcomes.corrected.0, 5);
    // Stakes are part of the supply.
    let supply = (1..40).sum::<u64>() * 1_000 + 4 * (FIRST_STAKE + 500);
    assert_eq!(status.totals.supply.unwrap().0, supply);
    for height in 1..=99_u64 {
        let page = explorer
            .json(&format!("/v1/blocks/{height}/transactions"))
            .await;
        let real = chain.lock().unwrap().blocks[height as usize - 1]
            .outcomes
            .clone();
        for (shown, real) in page["data"].as_array().unwrap().iter().zip(real) {
            assert_eq!(shown["outcome"], real.name(), "height {height}");
            assert_eq!(shown["outcome_checked"], true, "height {height}");
        }
    }
    // Operations are told in words.
    let page = explorer.json("/v1/blocks/2/transactions").await;
    let bond = &page["data"][0]["operation"];
    assert_eq!(bond["kind"], "bond");
    assert_eq!(bond["name"], "<b>new");
    assert_eq!(bond["address"], "192.0.2.7:26600");
    assert!(page["data"][1].get("operation").is_none());
    let page = explorer.json("/v1/blocks/40/transactions").await;
    let accuse = &page["data"][0]["operation"];
    assert_eq!(accuse["kind"], "accuse");
    assert_eq!(accuse["validator"], hex(104));
    let page = explorer.json("/v1/blocks/34/transactions").await;
    let unbond = &page["data"][0]["operation"];
    assert_eq!(*unbond, json!({"kind": "unbond", "stake": "20000"}));

    let registry = explorer.json("/v1/registry").await;
    assert_eq!(registry["executed_height"], "100");
    assert_eq!(registry["epoch"], "6");
    assert_eq!(registry["fixing_height"], "104");
    assert_eq!(registry["last_height"], "112");
    assert_eq!(registry["rules"]["slashing"]["percent"], 10);
    assert_eq!(registry["coming"], Value::Null);
    // By stake; 101 has withdrawn everything.
    let mut bonds: Vec<_> = chain.lock().unwrap().bonds().into_values().collect();
    bonds.sort_by_key(|bond| (std::cmp::Reverse(bond.stake), bond.identity));
    let expected: Vec<String> = bonds.iter().map(|one| named(&one.identity)).collect();
    assert_eq!(identities(&registry["bonds"]), expected);
    assert_eq!(expected.len(), 5);
    let shown = registry["bonds"].as_array().unwrap();
    let bond = |seed: u8, name: &str| {
        let found = shown.iter().find(|one| one["identity"] == hex(seed));
        found.unwrap()[name].clone()
    };
    assert_eq!(bond(NEWCOMER, "stake"), "22000");
    assert_eq!(bond(NEWCOMER, "since"), "1");
    assert_eq!(bond(NEWCOMER, "jailed"), false);
    assert_eq!(bond(103, "name"), "three");
    // Slashed by a tenth in epoch 2, and jailed to the end of epoch 4.
    assert_eq!(bond(104, "stake"), "18000");
    assert_eq!(bond(104, "since"), "5");
    assert_eq!(bond(104, "jailed"), false);
    let acting = chain.lock().unwrap().validators_of(6);
    let acting: Vec<String> = acting.iter().map(named).collect();
    assert_eq!(acting, [102, 103, NEWCOMER, SECOND, 104].map(hex));
    assert_eq!(identities(&registry["acting"]), acting);
    explorer.stop().await;
}

#[tokio::test]
async fn an_index_without_checks_catches_up_and_each_restart_continues() {
    let whole = Arc::new(Mutex::new(chain(0)));
    let fake = Fake::new(&whole);
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&mut whole.lock().unwrap());
    grow(&mut whole.lock().unwrap(), &plan, 30);
    let trust = whole.lock().unwrap().trust.clone();
    let unchecked = Running::start(&trust, folder.path(), &[fake.serve().await]).await;
    unchecked.reach(30).await;
    assert_eq!(
        unchecked.client.status().await.unwrap().outcomes.state,
        "told"
    );
    let refused = unchecked.json("/v1/registry").await;
    assert_eq!(refused["code"], "not_executed");
    unchecked.stop().await;
    // To the middle of an epoch, over it, to the last block of one, over it, and so on.
    for to in [39, 40, 41, 48, 49, 56, 64, 66, 88, 98] {
        let more = to - whole.lock().unwrap().blocks.len() as u64;
        grow(&mut whole.lock().unwrap(), &plan, more);
        let explorer = Running::checking(&whole, folder.path(), &fake).await;
        explorer.reach(to).await;
        checked(&explorer, to - 1).await;
        let registry = explorer.json("/v1/registry").await;
        assert_eq!(registry["executed_height"], to.to_string());
        let epoch = to / EPOCH_BLOCKS;
        assert_eq!(registry["epoch"], epoch.to_string());
        let of = |epoch: u64| -> Vec<String> {
            let set = whole.lock().unwrap().validators_of(epoch);
            set.iter().map(named).collect()
        };
        assert_eq!(identities(&registry["acting"]), of(epoch), "after {to}");
        match to % EPOCH_BLOCKS >= EPOCH_BLOCKS / 2 {
            true => assert_eq!(identities(&registry["coming"]), of(epoch + 1), "after {to}"),
            false => assert_eq!(registry["coming"], Value::Null, "after {to}"),
        }
        let bonds = registry["bonds"].as_array().unwrap().iter();
        let slashed = bonds.clone().find(|one| one["identity"] == hex(104));
        let jailed = (40..80).contains(&to);
        assert_eq!(slashed.unwrap()["jailed"], jailed, "after {to}");
        assert_eq!(bonds.len(), whole.lock().unwrap().bonds().len());
        explorer.stop().await;
    }
}

#[tokio::test]
async fn an_index_of_several_sets_catches_up_before_handovers_are_known() {
    let whole = Arc::new(Mutex::new(chain(70)));
    let trust = whole.lock().unwrap().trust.clone();
    let fake = Fake::new(&whole);
    let folder = tempfile::tempdir().unwrap();
    let unchecked = Running::start(&trust, folder.path(), &[fake.serve().await]).await;
    unchecked.reach(70).await;
    unchecked.stop().await;
    // Nobody tells anything.
    fake.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    let explorer = Running::checking(&whole, folder.path(), &fake).await;
    checked(&explorer, 69).await;
    let registry = explorer.json("/v1/registry").await;
    let acting = whole.lock().unwrap().validators_of(4);
    let acting: Vec<String> = acting.iter().map(named).collect();
    assert_eq!(identities(&registry["acting"]), acting);
    explorer.stop().await;
}

#[tokio::test]
async fn a_wrong_root_after_a_border_ends_checking_and_is_told() {
    let whole = Arc::new(Mutex::new(chain(0)));
    let plan = plan(&mut whole.lock().unwrap());
    grow(&mut whole.lock().unwrap(), &plan, 50);
    whole.lock().unwrap().forget_state();
    grow(&mut whole.lock().unwrap(), &plan, 5);
    let fake = Fake::new(&whole);
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&whole, folder.path(), &fake).await;
    explorer.reach(55).await;
    explorer
        .until("the other state is noticed", async |e| {
            e.client.status().await.unwrap().outcomes.state == "diverged"
        })
        .await;
    let outcomes = explorer.client.status().await.unwrap().outcomes;
    assert_eq!(outcomes.diverged_at.unwrap().0, 51);
    assert_eq!(outcomes.diverged_by.unwrap(), "state_root");
    assert_eq!(outcomes.checked_to.0, 49);
    assert_eq!(explorer.json("/v1/registry").await["code"], "diverged");
    let metrics = explorer.get("/metrics").await.text().await.unwrap();
    assert!(
        metrics.contains("\nquorate_explorer_diverged 1"),
        "{metrics}"
    );
    explorer.stop().await;
}

#[tokio::test]
async fn an_account_is_shown_with_its_bond() {
    let whole = Arc::new(Mutex::new(chain(40)));
    let fake = Fake::new(&whole);
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&whole, folder.path(), &fake).await;
    explorer.reach(40).await;
    // The newest header names the state before its own block.
    whole.lock().unwrap().extend(Vec::new(), 0, true);
    let path = format!("/v1/accounts/{}", secret(NEWCOMER).identity());
    let account = explorer.json(&path).await;
    assert_eq!(account["bond"]["stake"], "22000", "{account}");
    assert_eq!(account["bond"]["name"], "<b>new");
    assert_eq!(
        (&account["bond"]["since"], &account["jailed"]),
        (&json!("1"), &json!(false))
    );
    // Slashed in epoch 2, in which the chain still is.
    let path = format!("/v1/accounts/{}", secret(104).identity());
    let account = explorer.json(&path).await;
    assert_eq!(
        (&account["bond"]["since"], &account["jailed"]),
        (&json!("5"), &json!(true))
    );
    let path = format!("/v1/accounts/{}", secret(WATCHER).identity());
    let account = explorer.json(&path).await;
    assert_eq!(
        (&account["bond"], &account["jailed"]),
        (&Value::Null, &Value::Null)
    );
    explorer.stop().await;
}

#[tokio::test]
async fn a_chain_without_a_registry_says_so() {
    let mut plain = TestChain::executed(SchemeKind::BlsThreshold, 4, 1);
    plain.extend(Vec::new(), 0, true);
    let plain = Arc::new(Mutex::new(plain));
    let fake = Fake::new(&plain);
    let folder = tempfile::tempdir().unwrap();
    let explorer = Running::checking(&plain, folder.path(), &fake).await;
    explorer.reach(1).await;
    assert_eq!(explorer.json("/v1/registry").await["code"], "no_registry");
    explorer.stop().await;
}
