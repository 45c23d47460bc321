//! CometBFT with its built-in key-value store, one process for each validator.
//!
//! What is written here of CometBFT was read in the sources of the pinned release.
//!
//! # What it does
//!
//! - *Verifies*: the ed25519 signature of each vote, one by one as it comes (`types/vote_set.go`), and
//!   once more the last block's commit with each block, as one batch (`types/validation.go`).
//! - *Executes*: `persistent_kvstore` looks that a transaction has one `=`, writes key and value to its
//!   database, and has the number of transactions as its state hash: no signatures, no accounts, no
//!   authenticated state. It tells eight attributes of each transaction, of which six
//!   are indexed.
//! - *Persists*: the write-ahead log is synced before an own proposal or vote is handled, and the
//!   signer's state before its signature is used. Once a block is decided, the block, its results, the
//!   state and the index are written to goleveldb, each synced. The key-value store's own writes are not
//!   synced; blocks are replayed to it after a crash.
//! - *Syncs*: block sync fetches and verifies blocks, state sync fetches the application's snapshots.
//!   The key-value store makes none.
//!
//! # Settings that differ from the shipped ones
//!
//! - `consensus.timeout_commit = "0s"` and `skip_timeout_commit = true`: no pause between blocks.
//! - `proxy_app = "persistent_kvstore"`, in the validator's own process.
//! - `consensus.peer_gossip_sleep_duration = "5ms"` in `cometbft-quick` alone; shipped is 100 ms. So long
//!   the threads that pass on proposals and votes sleep when they have nothing to pass on, several times
//!   in each block. 5 ms is what its own tests take. The two together tell how much of a block's time is
//!   waiting and how much is work.
//! - Addresses and `persistent_peers`; `addr_book_strict = false` and `allow_duplicate_ip = true`, which
//!   its `testnet` command sets so that several nodes share an address.
//!
//! All else is as shipped; what matters here: `timeout_propose` 3 s, `flush_throttle_timeout` 10 ms,
//! empty blocks, a mempool of 5,000 transactions that is checked again after each block, the `kv`
//! indexer, `goleveldb`, log level `info`.
//!
//! # How it is loaded
//!
//! `drive` sends by `broadcast_tx_sync`, to all validators in turn over connections that stay open. At
//! most 200 transactions wait for one validator's answer; further ones are sent later, and their latency
//! counts from when they were due all the same. It asks the first validator for the next block every
//! 5 ms until it is there. So that validator serves up to 200 questions a second, and latency is up to
//! 5 ms too long. A block is there once it is decided and stored; it is executed right after.

mod config;
mod drive;
mod rpc;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tokio::runtime;

use crate::install::Release;
use crate::process::{Process, finish};
use crate::{Description, Figures, Load, System};

/// How long making keys and genesis may take.
const TESTNET_LIMIT: Duration = Duration::from_secs(60);

const RELEASE: Release = Release {
    name: "cometbft",
    module: "github.com/cometbft/cometbft",
    version: "v0.40.0",
    package: "cmd/cometbft",
    program: "cometbft",
    go: "1.25.0",
};

/// CometBFT; see the module's head for what it does and how it is run.
#[derive(Clone, Copy, Debug)]
pub struct CometBft {
    /// Whether its threads hardly sleep between looking for something to pass on.
    pub quick: bool,
}

impl System for CometBft {
    fn describe(&self) -> Description {
        Description {
            name: match self.quick {
                false => "cometbft",
                true => "cometbft-quick",
            },
            version: RELEASE.version,
            consensus: "Tendermint: propose, prevote, precommit; a block is final at once; the \
                        proposer changes with each block",
            verifies: "each vote's ed25519 signature by itself as it comes; the last block's commit \
                       again with each block, as a batch; no signatures of transactions",
            executes: "its built-in key-value store: one key and value of each transaction; the state \
                       hash is the number of transactions",
            persists: "write-ahead log synced before own messages, signer state before a signature is \
                       used; block, results, state and index synced for each block; key-value store \
                       written without syncing",
            syncs: "block sync and state sync; the key-value store makes no snapshots",
            latency_means: "from when a transaction was due until the generator finds it in a decided, \
                            stored block of the first validator; executed right after",
            settings: match self.quick {
                false => {
                    "timeout_commit 0, skip_timeout_commit, persistent_kvstore; else as shipped"
                }
                true => {
                    "timeout_commit 0, skip_timeout_commit, peer_gossip_sleep_duration 5 ms, \
                     persistent_kvstore; else as shipped"
                }
            },
            caveats: "the first validator also answers the generator's questions for blocks; each \
                      transaction is indexed, as shipped",
        }
    }

    fn install(&self, cache: &Path) -> Result<PathBuf> {
        RELEASE.install(cache)
    }

    fn run(&self, cache: &Path, folder: &Path, base_port: u16, load: &Load) -> Result<Figures> {
        load.check()?;
        let program = RELEASE.installed(cache)?;
        let mut nodes = Nodes::start(&program, folder, base_port, load.validators, self.quick)?;
        // A thread of its own, since the caller may be a runtime's thread, which cannot wait.
        thread::scope(|scope| {
            let driven = scope.spawn(|| -> Result<Figures> {
                runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .context("cannot start the generator's runtime")?
                    .block_on(drive::drive(&mut nodes, load))
            });
            driven
                .join()
                .map_err(|_| anyhow!("the generator panicked"))?
        })
    }
}

/// The validators' processes, and where each listens.
#[derive(Debug)]
struct Nodes {
    processes: Vec<Process>,
    urls: Vec<String>,
}

impl Nodes {
    fn start(
        program: &Path,
        folder: &Path,
        base_port: u16,
        validators: usize,
        quick: bool,
    ) -> Result<Self> {
        let ports = Ports::new(base_port, validators)?;
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let homes = folder.join("nodes");
        ensure!(
            !homes.exists(),
            "{} is there already: each run needs a folder of its own",
            homes.display()
        );
        finish(
            "testnet",
            folder,
            testnet(program, &homes, validators),
            TESTNET_LIMIT,
        )
        .context("cannot make keys and genesis")?;
        let home = |index: usize| homes.join(format!("node{index}"));
        for index in 0..validators {
            config::adapt(
                &home(index).join("config/config.toml"),
                index,
                &ports,
                quick,
            )?;
        }
        let processes = (0..validators)
            .map(|index| {
                let mut command = Command::new(program);
                command.args(["start", "--home"]).arg(home(index));
                Process::start(&format!("{}-{index}", RELEASE.name), folder, command)
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            processes,
            urls: (0..validators).map(|index| ports.url(index)).collect(),
        })
    }

    /// That all of them still run.
    fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }
}

/// The command that makes keys, genesis and shipped configuration for all.
fn testnet(program: &Path, homes: &Path, validators: usize) -> Command {
    let mut command = Command::new(program);
    command
        .args(["testnet", "--v", &validators.to_string(), "--o"])
        .arg(homes);
    // Names of its own would be looked up; these are replaced together with the ports.
    for _ in 0..validators {
        command.args(["--hostname", "127.0.0.1"]);
    }
    command
}

/// Which ports the validators listen on: two each, RPC first.
#[derive(Clone, Copy, Debug)]
struct Ports {
    base: u16,
}

impl Ports {
    fn new(base: u16, validators: usize) -> Result<Self> {
        ensure!(
            base > 0 && usize::from(base) + 2 * validators <= usize::from(u16::MAX),
            "{validators} validators need {} ports from {base} on: too few are left",
            2 * validators
        );
        Ok(Self { base })
    }

    fn rpc(self, index: usize) -> usize {
        usize::from(self.base) + 2 * index
    }

    fn p2p(self, index: usize) -> usize {
        self.rpc(index) + 1
    }

    fn url(self, index: usize) -> String {
        format!("http://127.0.0.1:{}", self.rpc(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_validator_has_two_ports_of_its_own() {
        let ports = Ports::new(30_000, 3).expect("there is room");
        let all: Vec<usize> = (0..3).flat_map(|i| [ports.rpc(i), ports.p2p(i)]).collect();
        assert_eq!(all, [30_000, 30_001, 30_002, 30_003, 30_004, 30_005]);
        assert_eq!(ports.url(1), "http://127.0.0.1:30002");
    }

    #[test]
    fn too_few_ports_are_an_error() {
        assert!(Ports::new(65_500, 17).is_ok());
        let error = Ports::new(65_500, 18).expect_err("36 do not fit");
        assert!(error.to_string().contains("too few"), "{error}");
        assert!(Ports::new(0, 1).is_err());
    }

    #[test]
    fn a_program_that_makes_no_keys_is_an_error_with_its_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Nodes::start(Path::new("/bin/false"), folder.path(), 30_000, 1, false)
            .expect_err("it does nothing");
        let error = format!("{error:#}");
        assert!(error.contains("keys and genesis"), "{error}");
        assert!(
            error.contains("testnet ended by itself (status 1)"),
            "{error}"
        );
    }

    #[test]
    fn the_data_of_another_run_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("nodes")).expect("it is ours");
        let error = Nodes::start(Path::new("/bin/true"), folder.path(), 30_000, 1, false)
            .expect_err("a run was there");
        assert!(error.to_string().contains("there already"), "{error}");
    }

    #[test]
    fn a_run_without_the_program_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = crate::tests::load();
        let error = CometBft { quick: true }
            .run(folder.path(), folder.path(), 30_000, &load)
            .expect_err("nothing is installed");
        assert!(error.to_string().contains("not installed"), "{error}");
    }
}
