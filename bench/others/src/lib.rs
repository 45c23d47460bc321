//! Other systems under the same load that Quorate is measured with.
//!
//! Each [`System`] is a small adapter: it installs a pinned release of the system's own program,
//! writes its configuration, starts its validators as processes on the loopback interface, loads
//! them, and reports the same [`Figures`] for each. A system's [`Description`] says what it
//! verifies, executes, persists and syncs; the numbers mean little without it.
//!
//! # The load
//!
//! An open loop: transaction k is due k / rate seconds after the start, whatever the responses do.
//! Its latency counts from when it was *due* until the generator knows that it is in a final block.
//! So a system that falls behind is charged for the queue in front of it. A transaction that was
//! due in the measured time and was not final when the drain ended counts in the percentiles with
//! the time it had waited until then, and in [`Figures::unfinished_percent`].
//!
//! # What is measured
//!
//! CPU and memory come from the kernel's accounting of the processes (`/proc`), over the measured
//! time alone. Each process runs in its own process group and is killed when the run ends, however
//! it ends. Its output goes to a file in the run's folder.

mod accounts;
mod book;
mod cometbft;
mod install;
mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

pub use cometbft::CometBft;

/// The most validators in one run: CometBFT's default limit of incoming peers.
pub const MAX_VALIDATORS: usize = 40;
/// The most transactions in one run, warm-up and drain included.
pub const MAX_TRANSACTIONS: u64 = 20_000_000;
/// The shortest transaction in bytes: a unique number and some payload.
pub const MIN_TRANSACTION_BYTES: usize = 24;
/// The longest transaction in bytes.
pub const MAX_TRANSACTION_BYTES: usize = 65_536;

/// The load on a system, and its duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Number of validators, 1 to [`MAX_VALIDATORS`].
    pub validators: usize,
    /// Transactions per second.
    pub rate: f64,
    /// Length of each transaction in bytes.
    pub transaction_bytes: usize,
    /// Time under load before measuring starts.
    pub warm_up: Duration,
    /// The measured time.
    pub measure: Duration,
    /// Time to wait for transactions that are not final yet, still under load.
    pub drain: Duration,
}

impl Load {
    /// The maximal duration of the load.
    pub fn lasts(&self) -> Duration {
        self.warm_up + self.measure + self.drain
    }

    /// The maximal number of transactions.
    pub fn transactions(&self) -> u64 {
        (self.lasts().as_secs_f64() * self.rate).ceil() as u64
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn check(&self) -> Result<()> {
        ensure!(
            (1..=MAX_VALIDATORS).contains(&self.validators),
            "{} validators: 1 to {MAX_VALIDATORS} can be run",
            self.validators
        );
        ensure!(
            self.rate.is_finite() && self.rate > 0.0,
            "a rate of {} transactions/s: it must be above 0",
            self.rate
        );
        ensure!(
            (MIN_TRANSACTION_BYTES..=MAX_TRANSACTION_BYTES).contains(&self.transaction_bytes),
            "transactions of {} bytes: {MIN_TRANSACTION_BYTES} to {MAX_TRANSACTION_BYTES} can be sent",
            self.transaction_bytes
        );
        ensure!(
            self.measure >= Duration::from_secs(1),
            "measuring for {:?}: at least 1 s is needed",
            self.measure
        );
        ensure!(
            self.transactions() <= MAX_TRANSACTIONS,
            "{} transactions in one run: at most {MAX_TRANSACTIONS} can be followed",
            self.transactions()
        );
        Ok(())
    }
}

/// Results of one run. A figure that the system does not report is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Transactions per second that were sent in the measured time.
    pub offered_per_s: f64,
    /// Transactions per second that became final in the measured time.
    pub goodput_per_s: f64,
    /// The percentage of the transactions due in the measured time that did not become final.
    pub unfinished_percent: f64,
    /// Measured time divided by the number of blocks that became final in it, in milliseconds.
    pub block_ms: f64,
    /// Mean number of transactions in a block.
    pub transactions_per_block: f64,
    /// Median latency in milliseconds.
    pub latency_p50_ms: f64,
    /// 99th percentile of the latency in milliseconds.
    pub latency_p99_ms: f64,
    /// CPU time of a validator per block, in milliseconds.
    pub cpu_ms_per_block_and_node: f64,
    /// Resident memory of the largest validator, in MiB.
    pub memory_mib_max: f64,
}

/// What a system is and does, in sentences for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// A short name, as given on the command line.
    pub name: &'static str,
    /// The pinned release.
    pub version: &'static str,
    /// The protocol, and its number of steps.
    pub consensus: &'static str,
    /// Which signatures a validator verifies, and when.
    pub verifies: &'static str,
    /// How a final transaction is executed.
    pub executes: &'static str,
    /// What is written to disk, and what is synced.
    pub persists: &'static str,
    /// How a validator that was offline catches up.
    pub syncs: &'static str,
    /// From which event to which latency counts.
    pub latency_means: &'static str,
    /// The settings that differ from the defaults.
    pub settings: &'static str,
    /// What limits the comparability of the figures.
    pub caveats: &'static str,
}

/// A system that can be loaded.
pub trait System: Sync {
    fn describe(&self) -> Description;

    /// Installs the pinned release below `cache`, if it is not there yet, and returns the path of
    /// its program. The first time takes minutes and needs the network.
    ///
    /// # Errors
    /// If the compiler is missing or fails.
    fn install(&self, cache: &Path) -> Result<PathBuf>;

    /// Runs the system once under `load` and stops it. Logs and data go to `folder`, which is
    /// created and should be empty. Where ports can be chosen, two for each validator are used,
    /// from `base_port` on.
    ///
    /// # Errors
    /// If the system is not installed, does not start in time, exits by itself, or nothing becomes
    /// final.
    fn run(&self, cache: &Path, folder: &Path, base_port: u16, load: &Load) -> Result<Figures>;
}

/// All systems, in the order of the table.
pub const SYSTEMS: [&dyn System; 2] = [&CometBft { quick: false }, &CometBft { quick: true }];

/// The system of this name.
pub fn named(name: &str) -> Option<&'static dyn System> {
    SYSTEMS
        .into_iter()
        .find(|system| system.describe().name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn load() -> Load {
        Load {
            validators: 4,
            rate: 200.0,
            transaction_bytes: 161,
            warm_up: Duration::from_secs(2),
            measure: Duration::from_secs(10),
            drain: Duration::from_secs(3),
        }
    }

    #[test]
    fn a_load_lasts_until_its_drain_ends() {
        assert_eq!(load().transactions(), 3_000);
        assert_eq!(load().lasts(), Duration::from_secs(15));
        load().check().expect("it is within the limits");
    }

    #[test]
    fn loads_outside_the_limits_are_refused_by_name() {
        type Change = fn(&mut Load);
        let wrong: [(Change, &str); 7] = [
            (|l| l.validators = 0, "validators"),
            (|l| l.validators = 41, "validators"),
            (|l| l.rate = 0.0, "rate"),
            (|l| l.rate = f64::NAN, "rate"),
            (|l| l.transaction_bytes = 23, "bytes"),
            (|l| l.measure = Duration::from_millis(999), "1 s"),
            (|l| l.rate = 1e9, "followed"),
        ];
        for (change, word) in wrong {
            let mut load = load();
            change(&mut load);
            let error = load.check().expect_err("it is outside");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn systems_are_found_by_the_name_they_describe() {
        for system in SYSTEMS {
            let name = system.describe().name;
            let found = named(name).expect("it is in the list");
            assert_eq!(found.describe(), system.describe(), "names are unique");
        }
        assert!(named("fabric").is_none());
    }
}
