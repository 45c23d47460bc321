//! A Byzantine-fault-tolerant blockchain node, assembled from the lower-level crates.

mod accusing;
pub mod ceremony;
pub mod check;
pub mod cli;
pub mod config;
pub mod control;
mod descriptors;
mod external;
pub mod genesis;
mod guard;
pub mod keys;
pub mod localnet;
mod marker;
mod moved;
pub mod node;
mod own_account;
mod owner;
mod pool;
mod priority;
pub mod reload;
mod resharing;
pub mod rpc;
pub mod saving;
mod snapshot_file;
mod space;
mod sync_log;
mod vitals;
