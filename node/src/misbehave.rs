//! Faults on purpose, for chaos tests with real processes.
//!
//! They cannot be on by accident: the flag is refused unless the chain's name begins with
//! [`CHAOS_PREFIX`], and the name is part of what the chain's id is the hash of. A validator of a
//! real chain can never be told to misbehave.

use quorate_consensus::Outbound;
use quorate_crypto::bls::{HashedMessage, VoteSecret};
use quorate_types::{Message, genesis::Genesis};
use std::{str::FromStr, sync::Arc};

/// What a chain's name begins with if its validators may misbehave on purpose.
pub const CHAOS_PREFIX: &str = "chaos";

/// A fault on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Every vote carries a signature of something else: a valid point, but an invalid vote.
    GarbageVotes,
}

/// A flag that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MisbehaviourError {
    /// There is no such fault.
    #[error("unknown misbehaviour {name:?}; known: garbage-votes")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The chain is a real one.
    #[error(
        "misbehaviour is refused on the chain {name:?}: only chains whose name begins with \
         \"{CHAOS_PREFIX}\" are for chaos tests"
    )]
    RealChain {
        /// The chain's name.
        name: String,
    },
}

impl FromStr for Misbehaviour {
    type Err = MisbehaviourError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "garbage-votes" => Ok(Self::GarbageVotes),
            _ => Err(MisbehaviourError::Unknown {
                name: name.to_owned(),
            }),
        }
    }
}

impl Misbehaviour {
    /// Allows the fault on chaos chains only.
    ///
    /// # Errors
    ///
    /// If the chain is any other.
    pub fn check(self, genesis: &Genesis) -> Result<Self, MisbehaviourError> {
        if genesis.name.starts_with(CHAOS_PREFIX) {
            Ok(self)
        } else {
            Err(MisbehaviourError::RealChain {
                name: genesis.name.clone(),
            })
        }
    }
}

/// Spoils votes on their way out.
pub(crate) struct Spoiler {
    pub(crate) kind: Misbehaviour,
    pub(crate) secret: Arc<VoteSecret>,
}

impl Spoiler {
    pub(crate) fn spoil(&self, votes: &mut [Outbound]) {
        let Misbehaviour::GarbageVotes = self.kind;
        for outbound in votes {
            if let Message::Vote(vote) = &mut outbound.message {
                let other = HashedMessage::new(&vote.subject.view.0.to_be_bytes());
                vote.signature = self.secret.sign(&other);
            }
        }
    }
}
