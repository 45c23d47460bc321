//! The read side of a chain: follows validators over their HTTP interface, believes nothing that
//! does not verify with the chain's trust file, keeps an index of its own, and serves people and
//! programs (`docs/EXPLORER.md`).
//!
//! ```text
//! validators ──/v1/chain────────▶ follow ─▶ verify ─▶ index (RocksDB) ─▶ api ─▶ REST, page
//!            ──/v1/certificates─▶ observe ─▶ verify ─▶ hub (ring) ─────▶ api ─▶ SSE, WebSocket
//!            ◀─/v1/transactions── api                genesis file ─▶ check ─▶ index (outcomes, sums)
//! ```
//!
//! `follow` reads one validator at a time, and another one when that delivers nothing; `observe` hears that one's
//! certificates, and asks all of them for evidence and for whom they block. `begin` finds the oldest blocks that any
//! of them delivers; `check` executes the blocks from the genesis accounts and replaces outcomes that a validator
//! told otherwise.
//!
//! *Architecture invariants*: whatever an upstream says passes [`verify`] before the index or the hub
//! sees it; what does not verify by its nature (a transaction's outcome, who blocks whom) is named as
//! somebody's word in the interface. Nothing that a client does makes another one wait, except by
//! the bounds on what runs at a time. All durations are by this process's monotonic clock.

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
