//! Experiments, peers side by side, reports.

mod paired;
mod report;
pub mod state;
pub mod verify;
pub mod wan;
