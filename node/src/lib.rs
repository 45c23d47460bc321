//! A Byzantine-fault-tolerant blockchain node, assembled from the crates below it.

pub mod check;
pub mod cli;
mod clock;
pub mod config;
pub mod control;
pub mod evidence;
pub mod executor;
pub mod genesis;
mod ingest;
mod inlet;
pub mod keys;
pub mod ledger;
pub mod localnet;
mod marker;
pub mod mempool;
pub mod metrics;
pub mod misbehave;
pub mod node;
pub mod offenders;
mod outlet;
mod pool;
mod replica;
pub mod rpc;
mod serve;
mod validate;
