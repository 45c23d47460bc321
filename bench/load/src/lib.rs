//! The RPC client and the load generator.

pub mod api;
