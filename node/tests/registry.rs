//! A set of validators that changes, in real processes, by the commands of docs/REGISTRY.md: two validators
//! come, two leave, while transfers are paid.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{BINARY, free_base_port};
use quorate_api::{
    BlocksJson, RegistryJson, RpcClient, StatusJson, from_hex,
    verdict::{Health, VerdictJson},
};
use quorate_types::{Epoch, Handover, Height, Identity, ValidatorSet, genesis::Genesis};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

const STAKE: u64 = 1_000_000;
/// Short epochs, and longer ones where there must be time to pass shares on.
const EPOCH_BLOCKS: [(&str, &str); 2] = [("bls-aggregate", "40"), ("bls-threshold", "320")];
const PATIENCE: Duration = Duration::from_secs(120);

struct Chain {
    folder: tempfile::TempDir,
    base: u16,
    /// The chain's id.
    id: String,
    /// Whether the validators share a vote key.
    shares: bool,
    processes: BTreeMap<usize, Child>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Chain {
    /// Four validators with a registry, and blocks as fast as they come.
    fn start(shares: bool) -> Self {
        Self::start_with(shares, 4, "20ms")
    }

    fn start_with(shares: bool, validators: usize, block_interval: &str) -> Self {
        let (scheme, epoch) = EPOCH_BLOCKS[usize::from(shares)];
        let mut chain = Self {
            shares,
            folder: tempfile::tempdir().unwrap(),
            base: free_base_port(validators + 4),
            id: String::new(),
            processes: BTreeMap::new(),
        };
        let out = chain.path("net");
        let (base, stake) = (chain.base.to_string(), STAKE.to_string());
        chain.quorate(&[
            "testnet",
            "--out",
            out.to_str().unwrap(),
            "--plain",
            "--scheme",
            scheme,
            "--base-port",
            &base,
            "--validators",
            &validators.to_string(),
            "--stake",
            &stake,
            "--epoch-blocks",
            epoch,
            "--max-validators",
            "10",
            "--unbond-epochs",
            "1",
        ]);
        chain.id = genesis(&chain.path("net/genesis.json"))
            .chain_id()
            .to_string();
        for place in 0..validators {
            let file = chain.validator(place).join("validator.toml");
            let text = quick(&fs::read_to_string(&file).unwrap());
            fs::write(
                &file,
                text.replace("\"20ms\"", &format!("\"{block_interval}\"")),
            )
            .unwrap();
            chain.run(place);
        }
        chain
    }

    fn kill(&mut self, place: usize) {
        let mut process = self.processes.remove(&place).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn validator(&self, place: usize) -> PathBuf {
        self.path("net").join(format!("validator-{place}"))
    }

    fn address(&self, place: usize) -> String {
        format!("127.0.0.1:{}", usize::from(self.base) + 2 * place)
    }

    fn url(&self, place: usize) -> String {
        format!(
            "http://127.0.0.1:{}",
            usize::from(self.base) + 2 * place + 1
        )
    }

    fn try_quorate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    fn quorate(&self, arguments: &[&str]) -> String {
        let output = self.try_quorate(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&mut self, place: usize) {
        let folder = self.validator(place);
        let log = File::options()
            .append(true)
            .create(true)
            .open(folder.join("node.log"))
            .unwrap();
        let child = Command::new(BINARY)
            .args(["run", "--allow-plain-keys", "--config"])
            .arg(folder.join("validator.toml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.insert(place, child.unwrap());
    }

    fn identity(&self, place: usize) -> Identity {
        let key = self.validator(place).join("identity.key");
        let shown = self.quorate(&["keys", "show", key.to_str().unwrap()]);
        shown
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .unwrap()
    }

    /// Pays an account, by way of a validator.
    fn pay(&self, by: usize, to: Identity, amount: u64) {
        let (to, amount) = (to.to_string(), amount.to_string());
        let paid = self.quorate(&[
            "tx",
            "transfer",
            "--key",
            "net/account/identity.key",
            "--chain-id",
            &self.id,
            "--to",
            &to,
            "--amount",
            &amount,
            "--wait",
            "--rpc",
            &self.url(by),
        ]);
        assert!(paid.contains("applied"), "{paid}");
    }

    /// An operation of a validator's account, by way of another validator.
    fn operate(&self, by: usize, place: usize, operation: &[&str]) -> String {
        let key = self.validator(place).join("identity.key");
        let url = self.url(by);
        let mut arguments = vec!["registry"];
        arguments.extend(operation);
        arguments.extend([
            "--key",
            key.to_str().unwrap(),
            "--chain-id",
            &self.id,
            "--rpc",
            &url,
        ]);
        self.quorate(&arguments)
    }

    /// A new validator, by the steps of docs/REGISTRY.md. It knows two of the others.
    fn join(&mut self, by: usize, place: usize) {
        self.bond(by, place);
        self.run(place);
    }

    /// The same, up to where its machine would be started.
    fn bond(&mut self, by: usize, place: usize) {
        let folder = self.validator(place);
        let peers = [1, 3].map(|peer| format!("{peer}@{}", self.address(peer)));
        self.quorate(&[
            "init",
            "--genesis",
            "net/genesis.json",
            "--peer",
            &peers[0],
            &peers[1],
            "--address",
            &self.address(place),
            "--plain",
            "--out",
            folder.to_str().unwrap(),
        ]);
        let file = folder.join("validator.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, quick(&text)).unwrap();
        self.quorate(&["config", "check", file.to_str().unwrap()]);
        self.pay(by, self.identity(place), STAKE + 100_000);
        let (stake, name, address) = (STAKE.to_string(), format!("v{place}"), self.address(place));
        let key = folder.join("vote.key");
        let vote_key = ["--vote-key", key.to_str().unwrap()];
        let mut bond = vec![
            "bond",
            "--stake",
            &stake,
            "--address",
            &address,
            "--name",
            &name,
        ];
        bond.extend(vote_key.iter().filter(|_| !self.shares));
        let foreseen = self.operate(by, place, &[&bond[..], &["--dry-run"]].concat());
        assert!(
            foreseen.contains(&self.identity(place).to_string()),
            "{foreseen}"
        );
        let bonded = self.operate(by, place, &[&bond[..], &["--wait"]].concat());
        assert!(bonded.contains("applied"), "{bonded}");
    }

    fn client(&self, place: usize) -> RpcClient {
        RpcClient::new(&self.url(place)).unwrap()
    }

    async fn status(&self, place: usize) -> Option<StatusJson> {
        self.client(place).status().await.ok()
    }

    async fn registry(&self, place: usize) -> Option<RegistryJson> {
        self.client(place).registry().await.ok()
    }

    async fn wait_for(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            assert!(started.elapsed() < PATIENCE, "{what}: {}", self.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until these are the validators, and all of them vote.
    async fn wait_for_set(&self, seen_by: usize, places: &[usize]) {
        let mut wanted: Vec<Identity> = places.iter().map(|place| self.identity(*place)).collect();
        wanted.sort_unstable();
        self.wait_for(&format!("validators {places:?}"), async || {
            let Some(registry) = self.registry(seen_by).await else {
                return false;
            };
            let mut acting: Vec<_> = registry
                .acting
                .iter()
                .map(|member| member.identity)
                .collect();
            acting.sort_unstable();
            acting == wanted
        })
        .await;
        self.wait_for(&format!("votes of {places:?}"), async || {
            let status = self.status(seen_by).await;
            let verdict = status.and_then(|status| status.verdict);
            verdict.is_some_and(|verdict| verdict.voters == places.len())
        })
        .await;
    }

    fn logs(&self) -> String {
        let tails = self.processes.keys().map(|place| {
            let log =
                fs::read_to_string(self.validator(*place).join("node.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            format!(
                "\nvalidator {place}:\n{}",
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        });
        tails.collect()
    }

    /// Who knows only the genesis file's validators verifies blocks of later ones, by what a node serves.
    fn is_verified_from_outside(&self, by: usize, height: Height) {
        let (url, newest) = (self.url(by), height.to_string());
        let block = |which: &str, trust: &str| {
            self.try_quorate(&["block", which, "--verify", "--trust", trust, "--rpc", &url])
        };
        for which in ["5", &newest] {
            let shown = block(which, "net/trust.json");
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            assert!(text.contains("a quorum finalised"), "{which}: {shown:?}");
        }
        let account = self.identity(4).to_string();
        let shown = self.quorate(&[
            "account",
            &account,
            "--trust",
            "net/trust.json",
            "--rpc",
            &url,
        ]);
        assert!(shown.contains("verified"), "{shown}");
        fs::copy(self.path("net/trust.json"), self.path("moved.json")).unwrap();
        let moved = self.quorate(&["trust", "update", "moved.json", "--rpc", &url]);
        assert!(moved.contains("(it was 0)"), "{moved}");
        assert!(block(&newest, "moved.json").status.success());
        let old = block("5", "moved.json");
        let error = String::from_utf8_lossy(&old.stderr).into_owned();
        assert!(!old.status.success(), "block 5 is of before");
        assert!(error.contains("later validators"), "{error}");
    }

    /// A node that has lost its data gets the state from a file, and goes on from there.
    fn starts_from_a_file(&mut self, place: usize, of: usize) {
        let mut process = self.processes.remove(&place).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        fs::remove_dir_all(self.validator(place).join("data")).unwrap();
        let config = |place| self.validator(place).join("validator.toml");
        let (from, to) = (config(of), config(place));
        self.quorate(&[
            "snapshot",
            "export",
            "--config",
            from.to_str().unwrap(),
            "s.snapshot",
        ]);
        self.quorate(&[
            "snapshot",
            "import",
            "--config",
            to.to_str().unwrap(),
            "--allow-plain-keys",
            "s.snapshot",
        ]);
        self.run(place);
    }

    /// The ids of all blocks up to a height.
    async fn ids(&self, place: usize, up_to: Height) -> Vec<String> {
        let mut ids = Vec::new();
        while (ids.len() as u64) < up_to.0 {
            let next = ids.len() as u64 + 1;
            let blocks: BlocksJson = self
                .client(place)
                .blocks(Height(next), 100, Duration::ZERO)
                .await
                .unwrap();
            ids.extend(blocks.blocks.iter().map(|block| block.id.to_string()));
        }
        ids.truncate(up_to.0 as usize);
        ids
    }

    /// The validators since the genesis file's, by a node's handovers. Their certificates differ from node to
    /// node: each names the quorum that it has heard.
    async fn sets(&self, place: usize) -> Vec<ValidatorSet> {
        let handovers = self.client(place).all_handovers(Epoch(0)).await.unwrap();
        handovers
            .iter()
            .map(|text| from_hex::<Handover>("a handover", text).unwrap().set)
            .collect()
    }

    async fn balance(&self, place: usize, of: Identity) -> u64 {
        self.client(place)
            .account(&of, false)
            .await
            .unwrap()
            .balance
    }
}

/// Blocks as fast as they come, and no port for metrics.
fn quick(text: &str) -> String {
    let text = text.replace("# idle_interval = \"1s\"", "idle_interval = \"0ms\"");
    let text = text.replace(
        "# min_block_interval = \"0ms\"",
        "min_block_interval = \"20ms\"",
    );
    let admin = text.find("[admin]").unwrap();
    let after = text[admin..].find("listen").unwrap() + admin;
    let end = text[after..].find('\n').unwrap() + after;
    format!("{}{}", &text[..admin], &text[end..])
}

fn genesis(path: &Path) -> Genesis {
    Genesis::from_json(&fs::read_to_string(path).unwrap()).unwrap()
}

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

    chain.join(1, 4);
    chain.join(2, 5);
    pay(&chain, 0);
    chain.wait_for_set(1, &[0, 1, 2, 3, 4, 5]).await;
    pay(&chain, 4);

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
}

/// Seven validators, three seats whose machines never start, and an old copy of a data directory: each node says
/// within seconds that the chain stands still, goes on saying so while it looks for newer blocks, and names what
/// helps. That is one machine of the three.
#[tokio::test(flavor = "multi_thread")]
async fn seats_without_machines_and_an_old_journal_halt_the_chain_and_all_say_what_helps() {
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
    let started = Instant::now();
    let mut named = BTreeMap::new();
    let mut looked = 0;
    // Twice as long as a node waits before it looks for newer blocks.
    while started.elapsed() < Duration::from_secs(32) {
        for place in 0..7 {
            let Some(verdict) = verdict(&chain, place).await else {
                continue;
            };
            let is_new = started.elapsed() < Duration::from_secs(4);
            // With a new link a node waits as long as a block usually takes before it says so again.
            assert!(
                verdict.state == Health::Halted || is_new,
                "{place} after {:?}: {verdict:?}",
                started.elapsed()
            );
            looked += usize::from(verdict.summary.contains("looks for newer blocks"));
            let remedy = verdict.remedy.unwrap_or_default();
            if remedy.contains("bring back one of them with its journal: validators 7 (") {
                *named.entry(place).or_insert(0) += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("remedy named by each, so often: {named:?}; looking for newer blocks: {looked}");
    assert_eq!(named.len(), 7, "{named:?}");
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
}
