//! The messages of a ceremony, and their encoding.
//!
//! A message is encoded as a tag, its participant's number (four bytes, big-endian), a signature, and the body, whose
//! length follows from the tag and the number of participants. The signature covers the digest of the plan, the tag, the number and
//! the body, within [`NAMESPACE`].

use super::Plan;
use bytes::BufMut as _;
use commonware_codec::{Copying, EncodeFixed as _, FixedSize as _, ReadExt as _, Write as _};
use quorate_crypto::{
    Digest, IdentitySignature, SecretKey,
    bls::{Complaint, Dealing, HashedMessage, OpeningKey, PartialSignature},
    sha256,
};
use quorate_types::ChainId;
use std::fmt;

/// Namespace of the participants' signatures.
pub const NAMESPACE: &[u8] = b"quorate/ceremony/1";

/// What a signature with a new share covers begins so; votes begin otherwise.
const ACCEPTANCE_DOMAIN: &[u8] = b"quorate/ceremony-acceptance/1";

/// Bytes before the body: tag, participant, signature.
const HEAD_BYTES: usize = 1 + 4 + 64;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Step(Step),
    /// Tag 4. Not one of each step: who complains has ended its ceremony.
    Complaint,
}

/// Each participant signs one message of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Tag 0.
    Announcement,
    /// Tag 1.
    Dealing,
    /// Tag 2.
    Acceptance,
    /// Tag 3.
    Done,
}

/// A message, whose signature is not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its author, by its number in the plan.
    pub participant: u32,
    pub body: Body,
    pub signature: IdentitySignature,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// What values for the author are sealed with.
    Announcement(OpeningKey),
    /// The author's dealing in the round with this context.
    Dealing { context: Digest, dealing: Dealing },
    /// The chain that the dealings make, and a signature with the author's share, see [`acceptance`].
    Acceptance {
        chain: ChainId,
        share: PartialSignature,
    },
    /// The author's files are on disk.
    Done(ChainId),
    /// What a dealer has sealed for the author is not its value.
    Complaint {
        context: Digest,
        dealer: u32,
        complaint: Complaint,
    },
}

impl Step {
    pub const ALL: [Self; 4] = [
        Self::Announcement,
        Self::Dealing,
        Self::Acceptance,
        Self::Done,
    ];

    /// The step with this number.
    pub fn of(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }

    /// Its message, with an article.
    pub fn what(self) -> &'static str {
        match self {
            Self::Announcement => "an announcement",
            Self::Dealing => "a dealing",
            Self::Acceptance => "an acceptance",
            Self::Done => "word that it is done",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Announcement => "announcements",
            Self::Dealing => "dealings",
            Self::Acceptance => "acceptances",
            Self::Done => "done",
        })
    }
}

impl Kind {
    fn tag(self) -> u8 {
        match self {
            Self::Step(step) => step as u8,
            Self::Complaint => 4,
        }
    }

    fn of(tag: u8) -> Option<Self> {
        match tag {
            4 => Some(Self::Complaint),
            tag => Step::of(usize::from(tag)).map(Self::Step),
        }
    }

    /// How many bytes its body has.
    fn body_bytes(self, participants: usize) -> usize {
        match self {
            Self::Step(Step::Announcement) => OpeningKey::SIZE,
            Self::Step(Step::Dealing) => 32 + Dealing::size(participants),
            Self::Step(Step::Acceptance) => 32 + PartialSignature::SIZE,
            Self::Step(Step::Done) => 32,
            Self::Complaint => 32 + 4 + Complaint::SIZE,
        }
    }
}

/// The most bytes of an encoded message in a ceremony of this many.
pub fn max_message_bytes(participants: usize) -> usize {
    let bytes = |step| HEAD_BYTES + Kind::Step(step).body_bytes(participants);
    let complaint = HEAD_BYTES + Kind::Complaint.body_bytes(participants);
    Step::ALL.map(bytes).into_iter().fold(complaint, usize::max)
}

/// What a participant signs with its new share.
pub fn acceptance(plan: &Digest, chain: &ChainId, participant: u32) -> HashedMessage {
    let mut bytes = ACCEPTANCE_DOMAIN.to_vec();
    bytes.put_slice(&plan.0);
    chain.write(&mut bytes);
    bytes.put_u32(participant);
    HashedMessage::new(&bytes)
}

impl Body {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Announcement(_) => Kind::Step(Step::Announcement),
            Self::Dealing { .. } => Kind::Step(Step::Dealing),
            Self::Acceptance { .. } => Kind::Step(Step::Acceptance),
            Self::Done(_) => Kind::Step(Step::Done),
            Self::Complaint { .. } => Kind::Complaint,
        }
    }

    fn write(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Announcement(key) => key.write(buffer),
            Self::Dealing { context, dealing } => {
                buffer.put_slice(&context.0);
                dealing.write(buffer);
            }
            Self::Acceptance { chain, share } => {
                chain.write(buffer);
                share.write(buffer);
            }
            Self::Done(chain) => chain.write(buffer),
            Self::Complaint {
                context,
                dealer,
                complaint,
            } => {
                buffer.put_slice(&context.0);
                buffer.put_u32(*dealer);
                complaint.write(buffer);
            }
        }
    }

    fn read(kind: Kind, participants: usize, bytes: &[u8]) -> Option<Self> {
        let buffer = &mut Copying(bytes);
        Some(match kind {
            Kind::Step(Step::Announcement) => Self::Announcement(OpeningKey::read(buffer).ok()?),
            Kind::Step(Step::Dealing) => Self::Dealing {
                context: Digest::read(buffer).ok()?,
                dealing: Dealing::read_for(participants, buffer).ok()?,
            },
            Kind::Step(Step::Acceptance) => Self::Acceptance {
                chain: ChainId(Digest::read(buffer).ok()?),
                share: PartialSignature::read(buffer).ok()?,
            },
            Kind::Step(Step::Done) => Self::Done(ChainId(Digest::read(buffer).ok()?)),
            Kind::Complaint => Self::Complaint {
                context: Digest::read(buffer).ok()?,
                dealer: u32::read(buffer).ok()?,
                complaint: Complaint::read(buffer).ok()?,
            },
        })
    }
}

impl Message {
    /// Makes and signs a message.
    pub fn sign(plan: &Digest, participant: u32, body: Body, identity: &SecretKey) -> Self {
        let signature = identity.sign(NAMESPACE, &signed_bytes(plan, participant, &body));
        Self {
            participant,
            body,
            signature,
        }
    }

    pub fn kind(&self) -> Kind {
        self.body.kind()
    }

    /// Its step; `None` for a complaint.
    pub fn step(&self) -> Option<Step> {
        match self.kind() {
            Kind::Step(step) => Some(step),
            Kind::Complaint => None,
        }
    }

    /// Names its content. Two signatures over the same content do not make two messages.
    pub fn id(&self, plan: &Digest) -> Digest {
        let content = signed_bytes(plan, self.participant, &self.body);
        sha256(&[b"quorate/ceremony-message/1", &content])
    }

    /// Whether it is its participant's, for this plan.
    pub fn is_signed(&self, plan: &Plan, digest: &Digest) -> bool {
        let Some(author) = plan.participants.get(self.participant as usize) else {
            return false;
        };
        let content = signed_bytes(digest, self.participant, &self.body);
        author.identity.verify(NAMESPACE, &content, &self.signature)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind().tag()];
        bytes.put_u32(self.participant);
        let signature: [u8; 64] = self.signature.encode_fixed();
        bytes.put_slice(&signature);
        self.body.write(&mut bytes);
        bytes
    }

    /// Reads a message of a ceremony of this many participants; `None` if it is none.
    pub fn decode(bytes: &[u8], participants: usize) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
        let head = &mut Copying(head);
        let kind = Kind::of(u8::read(head).ok()?)?;
        let participant = u32::read(head).ok()?;
        let signature = IdentitySignature::read(head).ok()?;
        if body.len() != kind.body_bytes(participants) || participant as usize >= participants {
            return None;
        }
        Some(Self {
            participant,
            body: Body::read(kind, participants, body)?,
            signature,
        })
    }
}

fn signed_bytes(plan: &Digest, participant: u32, body: &Body) -> Vec<u8> {
    let mut bytes = plan.0.to_vec();
    bytes.put_u8(body.kind().tag());
    bytes.put_u32(participant);
    body.write(&mut bytes);
    bytes
}
