//! Faults on purpose, for chaos tests with real processes.
//!
//! They cannot be on by accident: the flag is refused unless the chain's name begins with
//! [`CHAOS_PREFIX`], and the name is part of what the chain's id is the hash of. A validator of a
//! real chain can never be told to misbehave.

use quorate_consensus::Outbound;
use quorate_crypto::{
    bls::{HashedMessage, VoteSecret},
    sha256,
};
use quorate_types::{ChainId, Message, Subject, Vote, VoteKind, genesis::Genesis};
use std::{
    str::FromStr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// What a chain's name begins with if its validators may misbehave on purpose.
pub const CHAOS_PREFIX: &str = "chaos";

/// A fault on purpose, from a moment on: `garbage-votes`, or `garbage-votes@` and milliseconds since
/// 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misbehaviour {
    /// What is wrong.
    pub fault: Fault,
    /// From when on, in milliseconds since 1970.
    pub from_ms: u64,
}

/// What is wrong with a validator's votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every vote carries a signature of something else: a valid point, but an invalid vote.
    GarbageVotes,
    /// With every vote for a block goes a second, valid one for another block.
    Equivocate,
}

/// A flag that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MisbehaviourError {
    /// There is no such fault.
    #[error(
        "unknown misbehaviour {name:?}; known: garbage-votes, equivocate, each with @ and \
         milliseconds since 1970 if it begins later"
    )]
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

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, from) = text.split_once('@').unwrap_or((text, "0"));
        let fault = match name {
            "garbage-votes" => Some(Fault::GarbageVotes),
            "equivocate" => Some(Fault::Equivocate),
            _ => None,
        };
        match (fault, from.parse()) {
            (Some(fault), Ok(from_ms)) => Ok(Self { fault, from_ms }),
            _ => Err(MisbehaviourError::Unknown {
                name: text.to_owned(),
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
        only_chaos(genesis).map(|()| self)
    }
}

/// Allows what is there for chaos tests alone.
///
/// # Errors
///
/// If the chain is a real one.
pub fn only_chaos(genesis: &Genesis) -> Result<(), MisbehaviourError> {
    match genesis.name.starts_with(CHAOS_PREFIX) {
        true => Ok(()),
        false => Err(MisbehaviourError::RealChain {
            name: genesis.name.clone(),
        }),
    }
}

/// Spoils votes on their way out.
pub struct Spoiler {
    pub(crate) kind: Misbehaviour,
    pub(crate) chain: ChainId,
    pub(crate) secret: Arc<VoteSecret>,
}

impl Spoiler {
    pub(crate) fn spoil(&self, votes: &mut Vec<Outbound>) {
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        if now_ms < u128::from(self.kind.from_ms) {
            return;
        }
        match self.kind.fault {
            Fault::GarbageVotes => {
                for outbound in votes {
                    if let Message::Vote(vote) = &mut outbound.message {
                        let other = HashedMessage::new(&vote.subject.view.0.to_be_bytes());
                        vote.signature = self.secret.sign(&other);
                    }
                }
            }
            Fault::Equivocate => {
                let second = |outbound: &Outbound| {
                    let Message::Vote(vote) = &outbound.message else {
                        return None;
                    };
                    Some(Outbound {
                        to: outbound.to,
                        message: Message::Vote(self.contradict(*vote)?),
                    })
                };
                let seconds: Vec<Outbound> = votes.iter().filter_map(second).collect();
                votes.extend(seconds);
            }
        }
    }

    /// A valid vote of the same kind for another block; none for a nullify.
    fn contradict(&self, vote: Vote) -> Option<Vote> {
        if vote.subject.kind == VoteKind::Nullify {
            return None;
        }
        let subject = Subject {
            payload: sha256(&[b"another block", &vote.subject.payload.0]),
            ..vote.subject
        };
        let message = HashedMessage::new(&subject.signed_bytes(&self.chain));
        Some(Vote {
            subject,
            signature: self.secret.sign(&message),
            ..vote
        })
    }
}
