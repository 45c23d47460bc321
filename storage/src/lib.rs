//! Durability: vote journal, blocks and certificates, authenticated state.

pub mod tree;
