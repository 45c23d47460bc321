//! Snapshots of the state that peers serve, and the requests for their parts.
//!
//! A state is certified by a *later* header that names its height and root. So a snapshot is
//! described by the headers from its own block to a block with a finalization: they lead from the
//! one signature to the root, and to the block that the receiver continues on.

use crate::{
    Certificate, ChainId, Header, Height, Span, ValidatorSet,
    codec::{list_size, read_list, read_option, write_list, write_option},
    handover::{read_bytes, write_bytes},
    limits::{MAX_ACCOUNT_PROOF_BYTES, MAX_CHUNK_BYTES, MAX_SNAPSHOT_HEADERS},
};
use bytes::{BufMut, Bytes};
use commonware_codec::{Buf, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::Digest;

/// What certifies a snapshot. Nothing is checked by decoding it: see [`SnapshotProof::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotProof {
    /// The header of the block after which the state was taken, and its descendants up to the one
    /// that the finalization is about; at most [`MAX_SNAPSHOT_HEADERS`].
    pub headers: Vec<Header>,
    /// The finalization of the last block.
    pub finalization: Certificate,
    /// On a chain with a registry: what the state says about the validators.
    pub registry: Option<SnapshotRegistry>,
}

/// What a snapshot's state says about the validators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRegistry {
    /// The proof of the account [`crate::REGISTRY`] in the state, encoded.
    pub proof: Bytes,
    /// The validators of the next epoch, if the state fixes them and they are not those of this one.
    pub next: Option<ValidatorSet>,
}

/// What a checked [`SnapshotProof`] says, provided that its finalization is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSubject {
    /// The block after which the state was taken.
    pub height: Height,
    /// Its id.
    pub id: Digest,
    /// The root of the state.
    pub root: Digest,
}

/// Why a [`SnapshotProof`] proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFlaw {
    /// Another chain's.
    #[error("a header is of another chain")]
    OtherChain,
    /// On a chain with a registry.
    #[error("a header is of another epoch than its height says")]
    OtherEpoch,
    /// Each header must name the one before as its parent.
    #[error("the headers are not a chain")]
    NoChain,
    /// The certificate must finalize the last header.
    #[error("the certificate does not finalize the last header")]
    NotFinal,
    /// A header must name the state after the first block.
    #[error("no header names the state")]
    Unnamed,
    /// On a chain with a registry, the state says who validates next.
    #[error("it does not prove the next validators")]
    Registry,
}

impl SnapshotProof {
    /// Checks everything but the finalization's signature.
    ///
    /// # Errors
    ///
    /// [`SnapshotFlaw`].
    pub fn check(&self, chain: &ChainId) -> Result<SnapshotSubject, SnapshotFlaw> {
        let mut parent: Option<(Digest, Height)> = None;
        for header in &self.headers {
            if header.chain != *chain {
                return Err(SnapshotFlaw::OtherChain);
            }
            if parent
                .is_some_and(|(id, height)| header.parent != id || header.height != height.next())
            {
                return Err(SnapshotFlaw::NoChain);
            }
            parent = Some((header.id(), header.height));
        }
        let (Some(first), Some(last)) = (self.headers.first(), self.headers.last()) else {
            return Err(SnapshotFlaw::NoChain);
        };
        if !self.finalization.finalizes(last) {
            return Err(SnapshotFlaw::NotFinal);
        }
        let mut later = self.headers.iter().skip(1);
        let named = later.find(|header| header.executed_height == first.height);
        let root = named.ok_or(SnapshotFlaw::Unnamed)?.state_root;
        Ok(SnapshotSubject {
            height: first.height,
            id: first.id(),
            root,
        })
    }
}

impl EncodeSize for SnapshotProof {
    fn encode_size(&self) -> usize {
        let registry = self.registry.as_ref().map_or(0, EncodeSize::encode_size);
        list_size(&self.headers) + self.finalization.encode_size() + 1 + registry
    }
}

impl Write for SnapshotProof {
    fn write(&self, buffer: &mut impl BufMut) {
        write_list(&self.headers, buffer);
        self.finalization.write(buffer);
        write_option(self.registry.as_ref(), buffer);
    }
}

impl Read for SnapshotProof {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            headers: read_list(buffer, MAX_SNAPSHOT_HEADERS)?,
            finalization: Certificate::read(buffer)?,
            registry: read_option(buffer)?,
        })
    }
}

impl EncodeSize for SnapshotRegistry {
    fn encode_size(&self) -> usize {
        let next = self.next.as_ref().map_or(0, EncodeSize::encode_size);
        u32::SIZE + self.proof.len() + 1 + next
    }
}

impl Write for SnapshotRegistry {
    fn write(&self, buffer: &mut impl BufMut) {
        write_bytes(&self.proof, buffer);
        write_option(self.next.as_ref(), buffer);
    }
}

impl Read for SnapshotRegistry {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            proof: read_bytes(buffer, MAX_ACCOUNT_PROOF_BYTES)?,
            next: read_option(buffer)?,
        })
    }
}

/// A part of a snapshot, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// The snapshot's height.
    pub height: Height,
    /// The part of the key space.
    pub span: Span,
    /// The height at which the requester has this part already: only later changes are wanted; 0
    /// for everything.
    pub since: Height,
}

impl EncodeSize for ChunkRequest {
    fn encode_size(&self) -> usize {
        2 * Height::SIZE + self.span.encode_size()
    }
}

impl Write for ChunkRequest {
    fn write(&self, buffer: &mut impl BufMut) {
        self.height.write(buffer);
        self.span.write(buffer);
        self.since.write(buffer);
    }
}

impl Read for ChunkRequest {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            height: Height::read(buffer)?,
            span: Span::read(buffer)?,
            since: Height::read(buffer)?,
        })
    }
}

/// The answer to a [`ChunkRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkAnswer {
    /// A chunk, encoded: at most [`MAX_CHUNK_BYTES`].
    Chunk(Bytes),
    /// The span holds too much for one chunk; request parts of it.
    TooMany,
    /// The snapshot is not there, or no longer.
    Absent,
}

impl EncodeSize for ChunkAnswer {
    fn encode_size(&self) -> usize {
        1 + match self {
            Self::Chunk(bytes) => 4 + bytes.len(),
            Self::TooMany | Self::Absent => 0,
        }
    }
}

impl Write for ChunkAnswer {
    fn write(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Chunk(bytes) => {
                buffer.put_u8(0);
                write_bytes(bytes, buffer);
            }
            Self::TooMany => buffer.put_u8(1),
            Self::Absent => buffer.put_u8(2),
        }
    }
}

impl Read for ChunkAnswer {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        match u8::read(buffer)? {
            0 => Ok(Self::Chunk(read_bytes(buffer, MAX_CHUNK_BYTES)?)),
            1 => Ok(Self::TooMany),
            2 => Ok(Self::Absent),
            other => Err(Error::InvalidEnum(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Subject, View, VoteKind};
    use quorate_crypto::bls::Proof;

    const CHAIN: ChainId = ChainId(Digest([1; 32]));

    fn proof() -> SnapshotProof {
        let mut headers: Vec<Header> = Vec::new();
        for height in 5..9 {
            let parent = headers.last().map_or(Digest::ZERO, Header::id);
            headers.push(Header {
                chain: CHAIN,
                epoch: Epoch(0),
                view: View(height),
                height: Height(height),
                parent,
                parent_view: View(height - 1),
                timestamp_ms: height,
                executed_height: Height(height - 2),
                state_root: Digest([height as u8 - 2; 32]),
                body_root: Header::body_root_of(&[]),
            });
        }
        let last = headers.last().expect("there are four");
        let finalization = Certificate {
            subject: Subject {
                epoch: Epoch(0),
                view: View(8),
                kind: VoteKind::Finalize,
                payload: last.id(),
            },
            proof: Proof::Threshold([0xc0; 48]),
        };
        SnapshotProof {
            headers,
            finalization,
            registry: None,
        }
    }

    #[test]
    fn a_proof_leads_from_the_finalization_to_the_state() {
        let proof = proof();
        let subject = proof.check(&CHAIN).expect("it holds");
        assert_eq!(subject.height, Height(5));
        assert_eq!(subject.root, Digest([5; 32]));
        assert_eq!(subject.id, proof.headers[1].parent);
    }

    #[test]
    fn nothing_else_is_taken_for_a_proof() {
        let refused = |change: &dyn Fn(&mut SnapshotProof), flaw| {
            let mut changed = proof();
            change(&mut changed);
            assert_eq!(changed.check(&CHAIN), Err(flaw));
        };
        refused(&|proof| proof.headers.clear(), SnapshotFlaw::NoChain);
        refused(
            &|proof| proof.headers.retain(|header| header.height != Height(6)),
            SnapshotFlaw::NoChain,
        );
        refused(
            &|proof| proof.headers[2].state_root = Digest([9; 32]),
            SnapshotFlaw::NoChain,
        );
        refused(
            &|proof| proof.headers[0].state_root = Digest([9; 32]),
            SnapshotFlaw::NoChain,
        );
        refused(&|proof| proof.headers.truncate(3), SnapshotFlaw::NotFinal);
        refused(
            &|proof| proof.headers[3].state_root = Digest([9; 32]),
            SnapshotFlaw::NotFinal,
        );
        refused(
            &|proof| proof.finalization.subject.kind = VoteKind::Notarize,
            SnapshotFlaw::NotFinal,
        );
        refused(
            &|proof| proof.finalization.subject.epoch = Epoch(1),
            SnapshotFlaw::NotFinal,
        );
        refused(
            &|proof| drop(proof.headers.drain(..2)),
            SnapshotFlaw::Unnamed,
        );
        let other = ChainId(Digest([2; 32]));
        assert_eq!(proof().check(&other), Err(SnapshotFlaw::OtherChain));
    }
}
