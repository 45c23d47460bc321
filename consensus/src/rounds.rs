//! One view of any protocol: its proposal, its votes and its timers. What a protocol decides about them is in
//! [`crate::protocol`].

pub(crate) mod accept;
pub(crate) mod flaw;
pub(crate) mod idle;
pub(crate) mod leaders;
pub(crate) mod pacemaker;
pub(crate) mod proposals;
pub(crate) mod round;
pub(crate) mod voting;
