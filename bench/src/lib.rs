//! Experiments, peers side by side, reports.

pub mod chaos;
pub mod engines;
mod paired;
mod picture;
mod report;
pub mod state;
pub mod verify;
pub mod wan;
