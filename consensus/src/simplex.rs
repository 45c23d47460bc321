//! What is particular to threshold simplex: when a block is proposed, voted for and given up. The rest of
//! the crate (slots, the one check, certificates, penalties, blocks, fetching, epochs, recovery) would
//! serve another protocol as well.

pub(crate) mod accept;
pub(crate) mod flaw;
pub(crate) mod idle;
pub(crate) mod leaders;
pub(crate) mod pacemaker;
pub(crate) mod proposals;
pub(crate) mod round;
pub(crate) mod voting;
