//! The block that validators agree on: a header and bytes that nobody executes.

use bytes::{BufMut, Bytes};
use commonware_codec::{
    Buf, Encode as _, EncodeSize, Error, FixedSize as _, MaxEncodeSize as _, RangeCfg, Read,
    ReadExt as _, Write, varint::UInt,
};
use commonware_consensus::{
    BoundedBlock, CertifiableBlock, Heightable,
    simplex::types::Context as SimplexContext,
    types::{Epoch, Height, Round, View},
};
use commonware_cryptography::{
    Digest as _, Digested, Digestible, Hasher as _, Sha256, ed25519::PublicKey, sha256::Digest,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What consensus tells the leader of a view: the round, the leader and the parent (view, digest).
pub(crate) type Context = SimplexContext<Digest, PublicKey>;

/// A block. Its digest covers every field, and its parent is the one in the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The context in which it was proposed. `Deferred` (see [`crate::node`]) checks it against
    /// the proposal before the vote.
    pub(crate) context: Context,
    pub(crate) height: Height,
    /// When the leader built it, in µs since the epoch. All processes share the machine's clock.
    pub(crate) timestamp_us: u64,
    pub(crate) payload: Bytes,
}

impl Block {
    /// The block of height zero, the same in all processes.
    pub(crate) fn genesis(leader: PublicKey) -> Digested<Self> {
        Self {
            context: Context {
                round: Round::new(Epoch::zero(), View::zero()),
                leader,
                parent: (View::zero(), Digest::EMPTY),
            },
            height: Height::zero(),
            timestamp_us: 0,
            payload: Bytes::new(),
        }
        .seal()
    }

    /// Pairs the block with its digest, which is computed once.
    pub(crate) fn seal(self) -> Digested<Self> {
        let digest = self.digest();
        Digested::precomputed(self, digest)
    }
}

impl Write for Block {
    fn write(&self, buf: &mut impl BufMut) {
        self.context.write(buf);
        self.height.write(buf);
        self.timestamp_us.write(buf);
        self.payload.write(buf);
    }
}

impl EncodeSize for Block {
    fn encode_size(&self) -> usize {
        self.context.encode_size()
            + self.height.encode_size()
            + u64::SIZE
            + self.payload.encode_size()
    }
}

impl Read for Block {
    /// The longest payload.
    type Cfg = usize;

    fn read_cfg(buf: &mut impl Buf, longest: &usize) -> Result<Self, Error> {
        Ok(Self {
            context: Context::read(buf)?,
            height: Height::read(buf)?,
            timestamp_us: u64::read(buf)?,
            payload: Bytes::read_cfg(buf, &RangeCfg::from(0..=*longest))?,
        })
    }
}

impl Digestible for Block {
    type Digest = Digest;

    fn digest(&self) -> Digest {
        Sha256::hash(&[
            &self.context.encode(),
            &self.height.get().to_be_bytes(),
            &self.timestamp_us.to_be_bytes(),
            &self.payload,
        ])
    }
}

impl Heightable for Block {
    fn height(&self) -> Height {
        self.height
    }
}

impl commonware_consensus::Block for Block {
    fn parent(&self) -> Digest {
        self.context.parent.1
    }
}

impl CertifiableBlock for Block {
    type Context = Context;

    fn context(&self) -> Context {
        self.context.clone()
    }
}

impl BoundedBlock for Block {
    fn max_encode_size(longest: &usize) -> usize {
        Context::MAX_ENCODE_SIZE
            + Height::MAX_ENCODE_SIZE
            + u64::SIZE
            + UInt::<u32>::MAX_ENCODE_SIZE
            + longest
    }
}

/// Payloads that do not compress and differ from height to height, made once so that leaders spend
/// no time on them. They are windows into random bytes twice as long.
#[derive(Clone)]
pub(crate) struct Payloads {
    bytes: Bytes,
    length: usize,
}

impl Payloads {
    pub(crate) fn new(length: usize) -> Self {
        let mut bytes = vec![0; length * 2];
        ChaCha8Rng::seed_from_u64(0).fill_bytes(&mut bytes);
        Self {
            bytes: bytes.into(),
            length,
        }
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn at(&self, height: Height) -> Bytes {
        // A remainder by a usize fits into one.
        let start = (height.get() % (self.length.max(1) as u64)) as usize;
        self.bytes.slice(start..start + self.length)
    }
}
