//! A deterministic simulator: real validators (consensus machine, slots, journal, mempool, executor,
//! store, block fetching), driven single-threaded in virtual time from one seed, over a simulated
//! network, disks and clocks. The same seed gives the same trace, to the byte. It never ships.
//!
//! The simulator runs the node's own code: `quorate_machine` assembles a validator from interfaces
//! for files, rows, clocks and links. Threads are one way to drive its parts, virtual time is
//! another. The simulator does not cover RocksDB, sockets and threads; `node/tests` and
//! `storage/tests` do.
//!
//! Planted mistakes (`sim/mistakes`) are patches to a copy of the source tree. The code has no
//! switches for them, so the code under review is the code that runs. A test checks that every
//! patch applies; `make mistakes` shows that each mistake is detected.

mod adversary;
mod borders;
mod certified;
mod checker;
mod clock;
mod coverage;
mod crypto;
mod disk;
mod host;
mod lies;
mod network;
mod pacemaker;
mod parents;
mod payloads;
mod resharing;
mod runner;
mod scenario;
pub mod script;
mod shrink;
mod stock;
pub mod svg;
mod swarm;
pub mod sweep;
mod trace;
pub mod twins;
mod world;

pub use adversary::Attack;
pub use borders::{BorderReport, BorderScenario, run_borders};
pub use clock::ClockFault;
pub use coverage::Coverage;
pub use crypto::Cryptography;
pub use disk::Mishap;
pub use network::{Latency, Links, MAPS, Map, UNITED_STATES, WORLD};
pub use resharing::{ResharingReport, ResharingScenario, ResharingViolation, run_resharing};
pub use runner::{Failure, Outcome, StateSyncs, run_many, run_one};
pub use scenario::{Costs, Fault, Scenario, timing_for};
pub use shrink::shrink;
pub use swarm::{swarm, swarm_with_sync, with_payloads, with_protocol};
pub use trace::{Line, What};
pub use world::{
    BlockTimes, Checked, Report, Simulation, StateSyncTimes, Timeline, TransferTimes, Violation,
};
