//! Payloads of a chain that only orders (see [`crate::execution::OrderOnly`]): bytes that mean nothing to the chain.
//!
//! A validator collects its clients' payloads in *bundles*. It stores each, sends it to the others, and orders it
//! by a transaction that names it: a transfer of nothing to [`PAYLOADS`], whose memo is a [`BundleRef`]. The
//! transaction's nonce numbers its author's bundles. Blocks hold only these transactions, so that each payload is
//! sent once to each validator, ahead of the block, and stored once.

use crate::{
    ChainId, Memo, Transaction, Transfer,
    codec::read_version,
    limits::{MAX_BUNDLE_BYTES, MAX_PAYLOAD_BYTES},
};
use bytes::{BufMut, Bytes, BytesMut};
use commonware_codec::{
    Buf, Copying, DecodeExt as _, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{Digest, Identity, SecretKey, sha256};

/// Where transactions go that order payloads. It is a text, so nobody has its key.
pub const PAYLOADS: Identity = Identity(*b"quorate/payloads/in/order/000001");

/// Version byte of an encoded [`BundleRef`].
const REFERENCE_VERSION: u8 = 1;

/// A payload's length, ahead of it.
const LENGTH_BYTES: usize = 4;

/// What names a bundle: the memo of the transaction that orders it.
///
/// Encoded in 41 bytes: version 1, digest 32, bytes 4, count 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleRef {
    /// SHA-256 of the bundle's bytes.
    pub digest: Digest,
    /// How many bytes it has.
    pub bytes: u32,
    /// How many payloads it has.
    pub count: u32,
}

/// Payloads that are ordered together: for each its length in four bytes, and the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    bytes: Bytes,
    count: u32,
}

/// Why bytes are no bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("there is no payload in it")]
    Empty,
    #[error("it has {0} bytes, and at most {MAX_BUNDLE_BYTES} are taken")]
    TooLarge(usize),
    #[error("payload {index} has {bytes} bytes: 1 to {MAX_PAYLOAD_BYTES} are taken")]
    Payload {
        /// Its place, from 0.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    #[error("it ends within payload {0}")]
    CutOff(usize),
}

impl Bundle {
    /// Reads payloads, each with its length ahead of it.
    ///
    /// # Errors
    ///
    /// If there is none, or a length is out of range or goes beyond the end.
    pub fn read(bytes: Bytes) -> Result<Self, BundleError> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge(bytes.len()));
        }
        let (mut left, mut index) = (&bytes[..], 0);
        while !left.is_empty() {
            let (length, rest) = (left.split_first_chunk()).ok_or(BundleError::CutOff(index))?;
            let length = u32::from_be_bytes(*length) as usize;
            if !(1..=MAX_PAYLOAD_BYTES).contains(&length) {
                let bytes = length;
                return Err(BundleError::Payload { index, bytes });
            }
            left = rest.get(length..).ok_or(BundleError::CutOff(index))?;
            index += 1;
        }
        match u32::try_from(index) {
            Ok(count) if count > 0 => Ok(Self { bytes, count }),
            _ => Err(BundleError::Empty),
        }
    }

    /// A bundle of these payloads.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn of(payloads: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Self, BundleError> {
        let mut bytes = BytesMut::new();
        for (index, payload) in payloads.into_iter().enumerate() {
            let payload = payload.as_ref();
            let length = payload.len();
            if !(1..=MAX_PAYLOAD_BYTES).contains(&length) {
                let bytes = length;
                return Err(BundleError::Payload { index, bytes });
            }
            bytes.put_u32(u32::try_from(length).expect("checked"));
            bytes.put_slice(payload);
        }
        Self::read(bytes.freeze())
    }

    /// One of several. The caller sees to it that they are not too large together.
    pub fn joined(parts: &[Self]) -> Self {
        if let [one] = parts {
            return one.clone();
        }
        let mut bytes = BytesMut::with_capacity(parts.iter().map(|part| part.bytes.len()).sum());
        parts.iter().for_each(|part| bytes.put_slice(&part.bytes));
        Self {
            bytes: bytes.freeze(),
            count: parts.iter().map(|part| part.count).sum(),
        }
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of payloads.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn payloads(&self) -> impl Iterator<Item = Bytes> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let length = self.bytes.get(at..)?.first_chunk()?;
            let begin = at + LENGTH_BYTES;
            at = begin + u32::from_be_bytes(*length) as usize;
            Some(self.bytes.slice(begin..at))
        })
    }

    /// What names it.
    pub fn reference(&self) -> BundleRef {
        BundleRef {
            digest: sha256(&[&self.bytes]),
            bytes: u32::try_from(self.bytes.len()).expect("bundles are short"),
            count: self.count,
        }
    }
}

impl BundleRef {
    /// The transaction by which a validator orders the bundle, as its bundle of this number.
    pub fn order(&self, chain: &ChainId, author: &SecretKey, number: u64) -> Transaction {
        let mut memo = Vec::with_capacity(Self::SIZE);
        self.write(&mut memo);
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: author.identity(),
            nonce: number,
            to: PAYLOADS,
            amount: 0,
            fee: 0,
            memo: Memo::new(memo).expect("a reference is shorter than a memo may be"),
        };
        transfer.sign(chain, author)
    }

    /// What a transfer orders, if it is one that orders payloads.
    pub fn of(transfer: &Transfer) -> Option<Self> {
        let moves = transfer.amount > 0 || transfer.fee > 0;
        if transfer.to != PAYLOADS || moves {
            return None;
        }
        Self::decode(Copying(transfer.memo.as_bytes())).ok()
    }
}

impl FixedSize for BundleRef {
    const SIZE: usize = 1 + Digest::SIZE + 4 + 4;
}

impl Write for BundleRef {
    fn write(&self, buffer: &mut impl BufMut) {
        REFERENCE_VERSION.write(buffer);
        self.digest.write(buffer);
        self.bytes.write(buffer);
        self.count.write(buffer);
    }
}

impl Read for BundleRef {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, REFERENCE_VERSION, "bundle reference")?;
        let read = Self {
            digest: Digest::read(buffer)?,
            bytes: u32::read(buffer)?,
            count: u32::read(buffer)?,
        };
        let length = read.bytes as usize;
        let least = u64::from(read.count) * (LENGTH_BYTES as u64 + 1);
        match length <= MAX_BUNDLE_BYTES && read.count > 0 && least <= length as u64 {
            true => Ok(read),
            false => Err(Error::InvalidLength(length)),
        }
    }
}

/// A bundle with the transaction that orders it, as validators send and store it.
///
/// Encoded as the transaction, a length of 4 bytes, and the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedBundle {
    transaction: Transaction,
    bundle: Bundle,
    reference: BundleRef,
}

/// Why a transaction does not order a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transaction does not order these payloads")]
pub struct NotItsBundle;

impl OrderedBundle {
    /// # Errors
    ///
    /// If the transaction orders something else. Its signature is not looked at.
    pub fn new(transaction: Transaction, bundle: Bundle) -> Result<Self, NotItsBundle> {
        let reference = BundleRef::of(transaction.transfer()).ok_or(NotItsBundle)?;
        match reference == bundle.reference() {
            true => Ok(Self {
                transaction,
                bundle,
                reference,
            }),
            false => Err(NotItsBundle),
        }
    }

    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    pub fn reference(&self) -> &BundleRef {
        &self.reference
    }
}

impl EncodeSize for OrderedBundle {
    fn encode_size(&self) -> usize {
        self.transaction.encode_size() + 4 + self.bundle.bytes.len()
    }
}

impl Write for OrderedBundle {
    fn write(&self, buffer: &mut impl BufMut) {
        self.transaction.write(buffer);
        self.reference.bytes.write(buffer);
        buffer.put_slice(&self.bundle.bytes);
    }
}

impl Read for OrderedBundle {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let transaction = Transaction::read(buffer)?;
        let length = u32::read(buffer)? as usize;
        if length > MAX_BUNDLE_BYTES {
            return Err(Error::InvalidLength(length));
        }
        if buffer.remaining() < length {
            return Err(Error::EndOfBuffer);
        }
        let bundle = Bundle::read(buffer.copy_to_bytes(length))
            .map_err(|_| Error::Invalid("bundle", "not a list of payloads"))?;
        Self::new(transaction, bundle)
            .map_err(|_| Error::Invalid("bundle", "not what its transaction orders"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::Encode as _;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_bytes(&[seed; 32])
    }

    #[test]
    fn payloads_come_out_as_they_went_in() {
        let payloads = [&b"a"[..], b"second", &[7; 1_000]];
        let bundle = Bundle::of(payloads).expect("small");
        assert_eq!(bundle.count(), 3);
        assert_eq!(bundle.payloads().collect::<Vec<_>>(), payloads);
        let read = Bundle::read(bundle.bytes().clone()).expect("the same");
        assert_eq!(read, bundle);
        let both = Bundle::joined(&[bundle.clone(), Bundle::of(["z"]).expect("small")]);
        assert_eq!(Bundle::read(both.bytes().clone()).expect("whole"), both);
        assert_eq!(both.payloads().last().expect("four"), "z");
    }

    #[test]
    fn what_is_no_list_of_payloads_is_refused() {
        let read = |bytes: &[u8]| Bundle::read(Bytes::copy_from_slice(bytes));
        assert_eq!(read(&[]), Err(BundleError::Empty));
        assert_eq!(read(&[0, 0, 1]), Err(BundleError::CutOff(0)));
        assert_eq!(read(&[0, 0, 0, 2, 9]), Err(BundleError::CutOff(0)));
        let empty = BundleError::Payload { index: 1, bytes: 0 };
        assert_eq!(read(&[0, 0, 0, 1, 9, 0, 0, 0, 0]), Err(empty));
        let large = MAX_PAYLOAD_BYTES + 1;
        let error = BundleError::Payload {
            index: 0,
            bytes: large,
        };
        assert_eq!(Bundle::of([vec![1; large]]), Err(error));
        let many = vec![vec![1; MAX_PAYLOAD_BYTES]; MAX_BUNDLE_BYTES / MAX_PAYLOAD_BYTES + 1];
        assert!(matches!(Bundle::of(many), Err(BundleError::TooLarge(_))));
    }

    #[test]
    fn a_transaction_orders_the_bundle_that_it_names() {
        let (chain, author) = (ChainId(sha256(&[b"chain"])), key(1));
        let bundle = Bundle::of(["one", "two"]).expect("small");
        let transaction = bundle.reference().order(&chain, &author, 7);
        assert_eq!(
            BundleRef::of(transaction.transfer()),
            Some(bundle.reference())
        );
        let ordered = OrderedBundle::new(transaction.clone(), bundle).expect("its own");
        let encoded = ordered.encode();
        assert_eq!(encoded.len(), ordered.encode_size());
        assert_eq!(
            OrderedBundle::decode(encoded.clone()).expect("whole"),
            ordered
        );
        for cut in 0..encoded.len() {
            assert!(OrderedBundle::decode(encoded.slice(..cut)).is_err());
        }
        let mut other = encoded.to_vec();
        *other.last_mut().expect("not empty") ^= 1;
        assert!(OrderedBundle::decode(Bytes::from(other)).is_err());
        let others = Bundle::of(["one", "too"]).expect("small");
        assert_eq!(OrderedBundle::new(transaction, others), Err(NotItsBundle));
    }

    #[test]
    fn a_transfer_that_moves_something_or_says_something_else_orders_nothing() {
        let chain = ChainId(sha256(&[b"chain"]));
        let reference = Bundle::of(["one"]).expect("small").reference();
        let good = reference.order(&chain, &key(1), 0).transfer().clone();
        let longer = [good.memo.as_bytes(), &[0]].concat();
        let of = |transfer: Transfer| BundleRef::of(&transfer);
        assert_eq!(of(good.clone()), Some(reference));
        assert_eq!(
            of(Transfer {
                amount: 1,
                ..good.clone()
            }),
            None
        );
        assert_eq!(
            of(Transfer {
                fee: 1,
                ..good.clone()
            }),
            None
        );
        let to = key(2).identity();
        assert_eq!(of(Transfer { to, ..good.clone() }), None);
        let memo = Memo::new(longer).expect("short");
        assert_eq!(
            of(Transfer {
                memo,
                ..good.clone()
            }),
            None
        );
        let memo = Memo::NONE;
        assert_eq!(of(Transfer { memo, ..good }), None);
    }
}
