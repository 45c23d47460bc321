//! Durability: vote journal, blocks and certificates, authenticated state.
//!
//! What is found on disk at the start is synced before anything builds on it, in the journal and in
//! the database. A killed process leaves data in the page cache that a power cut would still take.

pub mod bundles;
pub mod database;
pub mod disk;
pub mod execution;
pub mod journal;
pub mod logs;
pub mod store;
pub mod tree;
