//! A network of real processes, for tests. They wait for conditions, with limits far above what
//! anything takes.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod chain;
pub mod promises;

use quorate_crypto::SecretKey;
use quorate_load::{Load, LoadConfig, LoadReport};
use quorate_node::localnet::{Network, Settings, prepare, setup};
use quorate_storage::store::{Store, TransactionPlace};
use quorate_types::genesis::DEFAULT_LIMITS;
use quorate_types::{
    Digest, EpochLength, Height, Identity,
    genesis::{ApplicationKind, Genesis, Protocol},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle};

pub const PATIENCE: Duration = Duration::from_secs(25);
pub const BINARY: &str = env!("CARGO_BIN_EXE_quorate");
pub const LAB: &str = env!("CARGO_BIN_EXE_quorate-lab");
pub const ACCOUNTS: u32 = 50;

/// Of these, those that [`Net::load`] uses; the others are for clients of the tests' own.
pub const LOAD_ACCOUNTS: usize = 40;

/// Somebody to pay who has nothing.
pub fn payee() -> Identity {
    SecretKey::from_bytes(&[7; 32]).identity()
}

/// A network in a folder of its own.
pub struct Net {
    pub network: Network,
    pub directory: tempfile::TempDir,
    pub genesis: Genesis,
    pub settings: Settings,
}

pub struct Running {
    pub stop: watch::Sender<bool>,
    pub load: JoinHandle<LoadReport>,
}

impl Running {
    pub async fn stop(self) -> LoadReport {
        self.stop.send(true).unwrap();
        self.load.await.unwrap()
    }
}

/// Ports that nobody uses at the moment. Each test of this process gets others. All lie below those
/// that Linux gives to outgoing connections (from 32,768 on): one of these could take the port of a
/// validator while it is killed.
pub fn free_base_port(validators: usize) -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 11_000 + (std::process::id() % 170) as u16 * 64;
    for _ in 0..300 {
        let base = start + NEXT.fetch_add(1, Ordering::Relaxed) * 32;
        let last = base + 3 * validators as u16 + 1;
        if (base..last).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
    panic!("no free ports");
}

impl Net {
    pub async fn start(name: &str, validators: usize) -> Self {
        Self::start_with(name, validators, "bls-threshold", 100).await
    }

    pub async fn start_with(
        name: &str,
        validators: usize,
        scheme: &str,
        epoch_blocks: u64,
    ) -> Self {
        Self::start_changed(name, validators, |settings| {
            settings.scheme = scheme.to_owned();
            settings.epoch_blocks = EpochLength::new(epoch_blocks).unwrap();
        })
        .await
    }

    /// The same with other settings.
    pub async fn start_changed(
        name: &str,
        validators: usize,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            name: name.to_owned(),
            validators,
            protocol: Protocol::Simplex,
            application: ApplicationKind::Ledger,
            scheme: "bls-threshold".to_owned(),
            epoch_blocks: EpochLength::new(100).unwrap(),
            retention_blocks: None,
            retention_seconds: None,
            block_interval_ms: 0,
            idle_interval_ms: 0,
            block_limits: DEFAULT_LIMITS,
            accounts: ACCOUNTS,
            base_port: free_base_port(validators),
            followers: 0,
            registry: false,
            spares: 0,
            seats: 7,
        };
        change(&mut settings);
        let path = directory.path().join("net");
        prepare(&path, &settings).unwrap();
        let mut network = Network::start(Path::new(BINARY), &path, &settings).unwrap();
        network.wait_until_up().await.unwrap();
        let text = std::fs::read_to_string(path.join("genesis.json")).unwrap();
        Self {
            network,
            directory,
            genesis: Genesis::from_json(&text).unwrap(),
            settings,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("net")
    }

    pub fn accounts(&self) -> Vec<SecretKey> {
        setup::load_accounts(&self.path(), ACCOUNTS).unwrap()
    }

    pub fn load(&self, rate: f64) -> Running {
        let load = Load::new(LoadConfig {
            urls: self.network.urls(),
            chain: self.genesis.chain_id(),
            accounts: self.accounts().drain(..LOAD_ACCOUNTS).collect(),
            rate,
        })
        .unwrap();
        let (stop, stopped) = watch::channel(false);
        Running {
            stop,
            load: tokio::spawn(load.run(stopped)),
        }
    }

    pub async fn height(&self, place: usize) -> u64 {
        let status = self.network.client(place).status().await;
        status.map_or(0, |status| status.executed_height.0)
    }

    /// Waits until a validator has executed a height.
    pub async fn reach(&mut self, place: usize, height: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.height(place).await < height {
            if Instant::now() > deadline {
                panic!(
                    "validator {place} stays below {height}:\n{}",
                    self.describe().await
                );
            }
            let dead = self.network.newly_dead();
            assert!(
                dead.is_empty(),
                "{dead:?}: {}",
                self.network.log_tail(dead[0].0)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Where everybody is, for the message of a failed test.
    pub async fn describe(&self) -> String {
        let mut lines = Vec::new();
        for place in 0..self.network.size() {
            let client = self.network.client(place);
            match client.status().await {
                Ok(status) => lines.push(format!(
                    "{place}: view {} final {} executed {} mempool {} blocked {:?} connected {:?}",
                    status.view,
                    status.finalized_height,
                    status.executed_height,
                    status.mempool_transactions,
                    status.blocked,
                    status
                        .peers
                        .iter()
                        .map(|peer| (peer.validator, peer.connected))
                        .collect::<Vec<_>>(),
                )),
                Err(error) => lines.push(format!("{place}: {error}")),
            }
            let operator = self.network.operator(place);
            let metrics = operator.metrics().await.unwrap_or_default();
            let telling = metrics.lines().filter(|line| {
                line.contains("dropped") || line.contains("unsent") || line.contains("nullify")
            });
            lines.extend(
                telling
                    .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
                    .map(|line| format!("   {line}")),
            );
        }
        lines.join("\n")
    }

    /// Waits until the chain has grown by some blocks, as a validator sees it.
    pub async fn grow(&mut self, place: usize, blocks: u64) {
        let height = self.height(place).await;
        self.reach(place, height + blocks).await;
    }

    /// Waits until no mempool holds anything: nothing is left behind. What has piled up on a busy machine
    /// may take long, so patience begins anew whenever less waits than ever before.
    pub async fn until_nothing_waits(&self) {
        let mut least = usize::MAX;
        let mut deadline = Instant::now() + PATIENCE;
        while least > 0 {
            let mut waiting = 0;
            for place in 0..self.network.size() {
                let status = self.network.client(place).status().await;
                waiting += status.map_or(1, |status| status.mempool_transactions);
            }
            if waiting < least {
                (least, deadline) = (waiting, Instant::now() + PATIENCE);
            }
            assert!(
                Instant::now() < deadline,
                "mempools are empty: never\n{}",
                self.describe().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops everything and checks what the databases hold.
    pub async fn stop_and_check(self) {
        self.stop_and_check_but(&[]).await;
    }

    /// Stops everything and hands over the folder, which is removed when it is dropped.
    pub fn stop_and_keep(mut self) -> tempfile::TempDir {
        let killed = self.network.stop();
        assert!(killed.is_empty(), "{killed:?} did not stop in time");
        self.directory
    }

    /// The same without the databases of those who did not behave. Who runs has executed a block before:
    /// on a busy machine a test may end before its last validator has begun.
    pub async fn stop_and_check_but(mut self, others: &[usize]) {
        for place in self.network.running() {
            if !others.contains(&place) {
                self.reach(place, 1).await;
            }
        }
        let killed = self.network.stop();
        assert!(killed.is_empty(), "{killed:?} did not stop in time");
        let places = (0..self.network.size()).filter(|place| !others.contains(place));
        check_databases(&self.path(), &self.genesis, places);
    }

    pub fn cli(&self, arguments: &[&str]) -> Output {
        Command::new(BINARY).args(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail, and returns what it complains about.
    pub fn fail(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn config(&self, place: usize) -> String {
        let config = self
            .path()
            .join(format!("validator-{place}/validator.toml"));
        config.to_str().unwrap().to_owned()
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self).await {
            assert!(
                Instant::now() < deadline,
                "{what}: never\n{}",
                self.describe().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// All validators hold the same blocks and the same state at every height; no transaction was
/// applied twice; no money was made or lost.
pub fn check_databases(path: &Path, genesis: &Genesis, places: impl Iterator<Item = usize>) {
    let mut blocks: BTreeMap<Height, (Digest, Digest)> = BTreeMap::new();
    let supply = genesis.supply();
    let is_external = genesis
        .registry
        .is_some_and(|rules| rules.external.is_some());
    for place in places {
        let database = path.join(format!("validator-{place}")).join("data/db");
        let (store, _tree) = Store::open(&database, genesis).unwrap();
        let tip = store.tip().height;
        assert!(tip > Height(0), "validator {place} holds no block");
        let mut held_once = BTreeSet::new();
        let mut owners: BTreeSet<Identity> = BTreeSet::new();
        let mut height = Height(1);
        while height <= tip {
            let block = store.block(height).unwrap().expect("no gap").block;
            owners.extend(block.transactions().iter().map(|t| t.transfer().to));
            let root = store.root(height).unwrap().expect("every height has one");
            let held = blocks.entry(height).or_insert((block.id(), root));
            assert_eq!(
                *held,
                (block.id(), root),
                "height {height}, validator {place}"
            );
            let receipts = store.receipts(height).unwrap().expect("no gap");
            for (index, receipt) in (0..).zip(receipts) {
                let id = receipt.transaction;
                assert!(held_once.insert(id), "{id} stands in two blocks");
                assert!(receipt.outcome.used_nonce(), "{id} is {}", receipt.outcome);
                let place = store.transaction(&id).unwrap();
                assert_eq!(place, Some(TransactionPlace { height, index }));
            }
            height = height.next();
        }
        owners.extend(genesis.accounts.iter().map(|a| a.identity));
        owners.extend(genesis.validators.iter().map(|v| v.identity));
        let total: u64 = owners
            .iter()
            .map(|owner| {
                let account = store.account(owner).unwrap().unwrap_or_default();
                let staked = account.bond.filter(|_| !is_external);
                account.balance + staked.map_or(0, |bond| bond.total())
            })
            .sum();
        assert_eq!(total, supply, "validator {place}");
    }
}
