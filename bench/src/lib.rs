//! Experiments, peers side by side, reports.

pub mod state;
