//! One validator, without HTTP and without what an operator sees: from frames and transactions that
//! come in to blocks that are final and executed.
//!
//! [`machine::Machine`] puts the parts together. A vote comes in by [`inlet`], is counted by
//! [`replica`], which owns the consensus engine and the journal, and leaves by [`outlet`]. A
//! transaction waits in [`mempool`], stands in a block that [`validate`] has checked, and is executed
//! by [`executor`].

pub mod accounts;
pub mod across;
mod asked;
pub mod between;
pub mod clock;
pub mod conduct;
pub mod directory;
pub mod evidence;
pub mod executor;
pub mod follow;
pub mod follower;
pub mod forecast;
pub mod ingest;
pub mod inlet;
pub mod keeper;
pub mod ledger;
pub mod live;
pub mod lookup;
pub mod machine;
pub mod mempool;
pub mod metrics;
pub mod offenders;
pub mod outlet;
pub mod payloads;
pub mod registry;
pub mod replica;
pub mod reports;
pub mod resharing;
pub mod roles;
pub mod serve;
pub mod snapshots;
pub mod sync;
#[cfg(test)]
mod testing;
mod turns;
pub mod validate;
mod voting;
