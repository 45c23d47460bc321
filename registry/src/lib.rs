//! Reads a registry of validators that is kept outside the chain.
//!
//! A [`Reader`] reads its sources at an interval and keeps the last reading that is good. What it reads is not
//! believed by anybody but its own validator, which reports it; only what a quorum reports takes effect (see
//! `quorate_types::registry`). So a source can do no harm beyond its validator, and here are only rules that keep
//! an honest operator's mistake from becoming a report:
//!
//! - *A reading is good as a whole or not at all.* One entry that is malformed, doubled or not proven spoils it:
//!   an entry that was left out would be read as a validator that has left. A contract, where anybody can put an entry,
//!   is the exception ([`Reading::left_out`]).
//! - *At least four entries suffice for a seat*, or none counts: an empty or truncated list removes nobody.
//! - *A new reading counts once it was read twice in a row.* A file that is being written, and a source that
//!   flaps, say something else the next time.
//! - *Of several sources a stated number must say the same*, or nothing is read.
//! - *What was read last and was good stays*, however long the sources say nothing.
//!
//! Limits: [`MAX_SOURCE_BYTES`] for what a source says, checked while it is read; [`MAX_ENTRIES`]; a time-out for
//! each reading. A source that is still busy with one is not asked again.

mod evm;
mod reader;
mod reading;
mod source;

pub use alloy_primitives::Address;
pub use evm::abi::bond_call;
pub use reader::{Reader, SourceView, View};
pub use reading::{Flaw, Format, MAX_ENTRIES, MAX_SOURCE_BYTES, Reading, Terms, to_toml};
pub use source::{SourceConfig, SourceError};
