//! A whole network on this machine: real processes, real TCP, real databases.
//!
//! [`setup`] creates the files, [`processes`] runs the validators, [`explorer`] runs an explorer,
//! and [`figures`] reads their metrics. On a chain with a registry, [`changes`] changes the validators, by
//! the script of [`show`] or at random ([`storm`]), and [`chronicle`] records what all machines say.
//! `quorate localnet` combines them.

pub mod changes;
pub mod chronicle;
pub mod curve;
pub mod explorer;
pub mod figures;
pub mod processes;
pub mod setup;
pub mod show;
pub mod storm;

pub use changes::Changes;
pub use chronicle::{EpochRow, Watcher};
pub use curve::Curve;
pub use explorer::ExplorerProcess;
pub use figures::{Figures, LOOK_INTERVAL, Pauses, Sample, Tally};
pub use processes::{Network, check_ports};
pub use setup::{Settings, SetupError, prepare};
