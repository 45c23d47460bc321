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
    Block, ChainId, ChunkAnswer, Frame, Message, Subject, Vote, VoteKind, genesis::Genesis,
    limits::MAX_FRAME_MESSAGES,
};
use std::{
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
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
    /// Its votes are right, and what it answers during state sync is not.
    Sync(SyncLie),
}

/// What is wrong with its answers to a validator that fetches the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncLie {
    /// It offers a state with a finalization that nobody has signed.
    Offer,
    /// It goes on offering the first state that it has ever offered.
    Stale,
    /// One bit of each part is flipped.
    Garbage,
    /// It sends the part that was requested before.
    Swapped,
    /// It says that each part has too many accounts.
    TooMany,
    /// It says that it does not have what it has offered.
    Absent,
    /// It sends no part.
    Silent,
    /// It sends another block than the requested one.
    Block,
}

impl SyncLie {
    const ALL: [(&str, Self); 8] = [
        ("sync-offer", Self::Offer),
        ("sync-stale", Self::Stale),
        ("sync-garbage", Self::Garbage),
        ("sync-swapped", Self::Swapped),
        ("sync-too-many", Self::TooMany),
        ("sync-absent", Self::Absent),
        ("sync-silent", Self::Silent),
        ("sync-block", Self::Block),
    ];
}

/// A flag that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MisbehaviourError {
    /// There is no such fault.
    #[error(
        "unknown misbehaviour {name:?}; known: garbage-votes, equivocate, sync-offer, \
         sync-stale, sync-garbage, sync-swapped, sync-too-many, sync-absent, sync-silent, sync-block, \
         each with @ and milliseconds since 1970 if it begins later"
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
            _ => {
                let lie = SyncLie::ALL.iter().find(|(known, _)| *known == name);
                lie.map(|(_, lie)| Fault::Sync(*lie))
            }
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
    pub(crate) before: Arc<Mutex<Before>>,
}

/// What it has answered before.
#[derive(Default)]
pub(crate) struct Before {
    offer: Option<Message>,
    part: Option<ChunkAnswer>,
    block: Option<Arc<Block>>,
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
        let its_own = match self.kind.fault {
            Fault::Sync(_) => Lane::Fetch,
            Fault::GarbageVotes | Fault::Equivocate => Lane::Votes,
        };
        let decoded = (lane == its_own && self.has_begun()).then(|| Frame::decode(frame.clone()));
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
            Fault::Sync(lie) => {
                let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
                messages.retain_mut(|message| before.spoil(lie, message));
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

impl Before {
    /// Spoils an answer. Returns whether it is sent at all.
    fn spoil(&mut self, lie: SyncLie, message: &mut Message) -> bool {
        match (message, lie) {
            (Message::SnapshotReply(Some(proof)), SyncLie::Offer) => {
                proof.finalization.subject.view = proof.finalization.subject.view.next();
            }
            (message @ Message::SnapshotReply(Some(_)), SyncLie::Stale) => {
                *message = self.offer.get_or_insert_with(|| message.clone()).clone();
            }
            (Message::ChunkReply { .. }, SyncLie::Silent) => return false,
            (Message::ChunkReply { answer, .. }, _) => self.spoil_part(lie, answer),
            (Message::BlockReply(block), SyncLie::Block) => {
                let other = self.block.replace(block.clone());
                // The first one is withheld.
                let Some(other) = other else { return false };
                *block = other;
            }
            _ => {}
        }
        true
    }

    fn spoil_part(&mut self, lie: SyncLie, answer: &mut ChunkAnswer) {
        match (lie, &mut *answer) {
            (SyncLie::TooMany, _) => *answer = ChunkAnswer::TooMany,
            (SyncLie::Absent, _) => *answer = ChunkAnswer::Absent,
            (SyncLie::Swapped, _) => {
                let this = answer.clone();
                *answer = self.part.replace(this).unwrap_or(ChunkAnswer::Absent);
            }
            (SyncLie::Garbage, ChunkAnswer::Chunk(bytes)) => {
                let mut spoiled = bytes.to_vec();
                let middle = spoiled.len() / 2;
                if let Some(byte) = spoiled.get_mut(middle) {
                    *byte ^= 1;
                }
                *bytes = spoiled.into();
            }
            _ => {}
        }
    }
}
