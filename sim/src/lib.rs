//! A deterministic simulator: the real consensus machine of every validator, driven in virtual time
//! from one seed, over a simulated network and a simulated journal. The same seed gives the same
//! trace. It never ships.
//!
//! Messages go through the real codec and are delayed, reordered, lost, and cut off by partitions.
//! A crash loses what was not synced, but for a random prefix, and everything in memory; a restart
//! recovers from what was durable. Checkers run at every step (see [`Violation`]).

mod host;
mod world;

pub use host::Behaviour;
pub use world::{Fault, Report, Scenario, Simulation, Violation};
