//! The ceremony that makes the genesis of a `bls-threshold` chain without a dealer whom all must trust.
//!
//! Each operator runs one process with the same [`Plan`] and its own identity key. The processes share a group key
//! by joint-Feldman dealing ([`quorate_crypto::bls::Dealing`]) and end with the same genesis file; each has its own
//! share, which nobody else has seen.
//!
//! # Protocol
//!
//! All messages are public. Each is signed with its participant's identity key over the digest of the plan, so a
//! message of another ceremony is none of this one. A participant signs one message of each [`Step`]. The next step
//! begins for a process when it has all n messages of the one before.
//!
//! 1. *Announcement*: a key that the others seal values with. All n of them and the plan make the [`Round`]'s context.
//! 2. *Dealing*: a random polynomial as points, each participant's value sealed. Everybody checks the points; each
//!    opens its own values.
//! 3. *Acceptance*: the id of the chain that the dealings make, and a signature with the new share. Before it is
//!    signed, the share is on disk.
//! 4. *Done*: the files are on disk, and the seed is erased.
//!
//! A [`Fault`] ends the ceremony for all: two different messages of one step; a message that no honest participant
//! signs; a [`Complaint`](quorate_crypto::bls::Complaint) that shows a wrong value in a seal. Each is proven to
//! everybody by signed messages, names one participant, and is passed on like the messages. The remedy is another
//! plan without that participant. There is no going on without it: then the last to deal could choose among keys.
//!
//! Processes poll each other ([`exchange`]) and pass on what they have seen. So two different messages of one step
//! meet at an honest process as soon as two honest ones talk that have seen one each.
//!
//! # Crashes
//!
//! A random seed is on disk before the first message. The opening secret and the polynomial follow from it and from
//! the context. Before a message is shown to anybody, it is on disk together with the messages that it depends on
//! ([`folder`]). So a process that is killed at any moment goes on where it was, and never signs two different messages of
//! one step. If its folder is lost, the others still show its earlier messages, and it refuses to sign others.
//!
//! # What is guaranteed
//!
//! - Nobody knows the group key, nor another's share, unless a quorum of participants collude: what each deals is
//!   random to the others as long as one of them keeps its polynomial secret, and one honest participant is enough.
//! - Each process verifies everything itself. Whoever ends with a chain id ends with the same as all others, and
//!   has seen each participant sign with its share. The transcript shows that to anybody, later and offline.
//! - Whoever listens, or changes what is sent, learns nothing and can only delay: values are sealed and messages are
//!   signed, so plain HTTP is enough.
//!
//! # What is not
//!
//! - One participant that is silent stops the ceremony. It is named.
//! - The last to deal can choose among several keys by going away and having the ceremony repeated (Gennaro et al.,
//!   section 3). This does no harm to signatures, and each attempt is seen by all.
//! - Whoever reads a participant's seed file and its passphrase, while the file is there, can compute that
//!   participant's share from public messages. Erasing a file does not reach copies, snapshots of the file system and
//!   worn blocks of a flash disk.
//! - That plan and identities are the right ones: operators compare the plan's digest over a channel they trust.

pub mod board;
pub mod exchange;
pub mod folder;
pub mod message;
pub mod plan;
pub mod run;
pub mod session;
pub mod transcript;

pub use board::{Board, Fault, Offence, Received, Verdict};
pub use message::{Body, Kind, Message, Step};
pub use plan::{Plan, PlanError};
pub use transcript::Transcript;

#[cfg(doc)]
use quorate_crypto::bls::Round;
