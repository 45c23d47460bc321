//! A whole network on this machine: real processes, real TCP, real databases.
//!
//! [`setup`] creates the files, [`processes`] runs the validators, [`explorer`] runs an explorer,
//! and [`figures`] reads their metrics. `quorate localnet` combines them.

pub mod curve;
pub mod explorer;
pub mod figures;
pub mod processes;
pub mod setup;

pub use curve::Curve;
pub use explorer::ExplorerProcess;
pub use figures::{Figures, Sample};
pub use processes::{Network, check_ports};
pub use setup::{Settings, SetupError, prepare};
