//! Experiments, peers side by side, reports.

pub mod chaos;
pub mod engines;
pub mod experiment;
pub mod orders;
pub mod others;
mod ours;
pub mod page;
mod paired;
mod report;
pub mod signatures;
pub mod state;
pub mod suite;
pub mod transfer;
pub mod verify;
pub mod wan;
