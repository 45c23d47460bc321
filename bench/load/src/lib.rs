//! The load generator and the RPC client.
