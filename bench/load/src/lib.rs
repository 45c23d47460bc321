//! The RPC client and the load generator.

pub mod api;
mod client;
mod generator;

pub use client::{ClientError, RpcClient};
pub use generator::{Load, LoadConfig, LoadCounters, LoadReport};
