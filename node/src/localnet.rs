//! A whole network on this machine: real processes, real TCP, real databases.
//!
//! [`setup`] makes the files, [`processes`] runs the validators, [`explorer`] an explorer, [`figures`] reads their metrics,
//! and `quorate localnet` puts these together.

pub mod curve;
pub mod explorer;
pub mod figures;
pub mod processes;
pub mod setup;

pub use curve::Curve;
pub use explorer::ExplorerProcess;
pub use figures::{Figures, Sample};
pub use processes::Network;
pub use setup::{Settings, SetupError, prepare};
