//! The load generator.
//!
//! [`Load`] makes an open loop (transfers are due at fixed times, whatever becomes of them) or a
//! closed one (clients that wait for their own). `docs/LOAD.md` tells how to use it and what its
//! figures mean.

mod core;
mod fund;
mod generator;
mod latencies;
pub mod payloads;
mod report;
mod schedule;
mod senders;
pub mod targets;

pub use crate::core::{Pace, Shape};
pub use fund::{FundError, derive_accounts, fund};
pub use generator::{Load, LoadConfig, LoadCounters, LoadPlan, OnRow};
pub use latencies::{Latencies, LatencySummary, NoHistogram};
pub use quorate_api::RpcClient as Client;
pub use report::{LoadReport, MAX_NAMED, Row, StepReport};
pub use schedule::{MAX_RATE, MAX_STEPS, Step};
