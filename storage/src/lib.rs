//! Durability: vote journal, blocks and certificates, authenticated state.

pub mod database;
pub mod disk;
pub mod journal;
pub mod logs;
pub mod store;
pub mod tree;
