//! Faults on purpose: what leaves for the other validators is changed on its way to the links.

use bytes::Bytes;
use commonware_codec::{DecodeExt as _, Encode as _};
use quorate_crypto::{
    bls::{HashedMessage, VoteSecret},
    sha256,
};
use quorate_machine::outlet::Wire;
use quorate_p2p::Lane;
use quorate_types::{
    ChainId, Frame, Message, Subject, Vote, VoteKind, genesis::Genesis, limits::MAX_FRAME_MESSAGES,
};
use std::{
    str::FromStr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// What a chain's name begins with if its validators may misbehave on purpose.
pub(crate) const CHAOS_PREFIX: &str = "chaos";

/// A fault on purpose, from a moment on: `garbage-votes`, or `garbage-votes@` and milliseconds since
/// 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misbehaviour {
    /// What is wrong.
    pub(crate) fault: Fault,
    /// From when on, in milliseconds since 1970.
    pub(crate) from_ms: u64,
}

/// What is wrong with a validator's votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every vote carries a signature of something else: a valid point, but an invalid vote.
    GarbageVotes,
    /// With every vote for a block goes a second, valid one for another block.
    Equivocate,
}

/// A flag that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MisbehaviourError {
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

/// Allows what is there for chaos tests alone.
///
/// # Errors
///
/// If the chain is a real one.
pub(crate) fn only_chaos(genesis: &Genesis) -> Result<(), MisbehaviourError> {
    match genesis.name.starts_with(CHAOS_PREFIX) {
        true => Ok(()),
        false => Err(MisbehaviourError::RealChain {
            name: genesis.name.clone(),
        }),
    }
}

/// Spoils votes on their way out.
#[derive(Clone)]
pub(crate) struct Spoiler {
    pub(crate) kind: Misbehaviour,
    pub(crate) chain: ChainId,
    pub(crate) secret: Arc<VoteSecret>,
}

impl Spoiler {
    /// Spoils what is sent over these links from now on. Frames that other validators carry on are
    /// left as they are.
    pub(crate) fn wrap(self, wire: Wire) -> Wire {
        Arc::new(move |lane, to, frame| {
            for spoiled in self.frames(lane, frame) {
                wire(lane, to, spoiled);
            }
        })
    }

    fn frames(&self, lane: Lane, frame: Bytes) -> Vec<Bytes> {
        let decoded =
            (lane == Lane::Votes && self.has_begun()).then(|| Frame::decode(frame.clone()));
        let Some(Ok(Frame(mut messages))) = decoded else {
            return vec![frame];
        };
        self.spoil(&mut messages);
        let frames = messages.chunks(MAX_FRAME_MESSAGES);
        frames.map(|part| Frame(part.to_vec()).encode()).collect()
    }

    fn has_begun(&self) -> bool {
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        now_ms >= u128::from(self.kind.from_ms)
    }

    fn spoil(&self, messages: &mut Vec<Message>) {
        match self.kind.fault {
            Fault::GarbageVotes => {
                for message in messages {
                    if let Message::Vote(vote) = message {
                        let other = HashedMessage::new(&vote.subject.view.0.to_be_bytes());
                        vote.signature = self.secret.sign(&other);
                    }
                }
            }
            Fault::Equivocate => {
                let second = |message: &Message| match message {
                    Message::Vote(vote) => self.contradict(*vote).map(Message::Vote),
                    _ => None,
                };
                let seconds: Vec<Message> = messages.iter().filter_map(second).collect();
                messages.extend(seconds);
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
