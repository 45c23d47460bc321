//! The read side of a chain: follows validators over their HTTP interface, verifies everything with
//! the chain's trust file, keeps its own index, and serves people and programs
//! (`docs/EXPLORER.md`).
//!
//! ```text
//! validators ──/v1/chain────────▶ follow ─▶ verify ─▶ index (RocksDB) ─▶ api ─▶ REST, page
//!            ──/v1/certificates─▶ observe ─▶ verify ─▶ hub (ring) ─────▶ api ─▶ SSE, WebSocket
//!            ◀─/v1/transactions── api                genesis file ─▶ check ─▶ index (outcomes, sums)
//! ```
//!
//! `follow` reads one validator at a time, and switches to another when that one delivers nothing.
//! `observe` reads that validator's certificates, and asks all of them for evidence and for the
//! validators that they block. `begin` finds the oldest blocks that any of them delivers. `check`
//! executes the blocks from the genesis accounts and replaces outcomes that a validator reported
//! wrongly.
//!
//! *Architecture invariants*: everything from an upstream passes [`verify`] before it reaches the
//! index or the hub; what cannot be verified (a transaction's outcome, who blocks whom) is marked
//! in the interface as a validator's claim. Nothing that a client does delays another one, except
//! through the limits on concurrency. All durations are measured with this process's monotonic
//! clock.

mod answers;
pub mod api;
mod begin;
mod check;
pub mod client;
mod follow;
pub mod hub;
pub mod index;
pub mod metrics;
pub mod observe;
mod run;
pub mod shapes;
mod task;
pub mod upstream;
pub mod verify;

pub use run::{Config, Explorer, RunError};
