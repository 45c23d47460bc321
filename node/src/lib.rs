//! A Byzantine-fault-tolerant blockchain node, assembled from the crates below it.

pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod evidence;
pub mod executor;
pub mod genesis;
pub mod ingest;
pub mod inlet;
pub mod keys;
pub mod ledger;
pub mod localnet;
pub mod machine;
mod marker;
pub mod mempool;
pub mod metrics;
pub mod misbehave;
pub mod node;
pub mod offenders;
pub mod outlet;
mod pool;
pub mod replica;
pub mod rpc;
pub mod serve;
pub mod validate;
mod vitals;
