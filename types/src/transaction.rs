//! Transactions: signed transfers from one account to another.
//!
//! A memo makes a transfer version 2, and a version 2 memo is never empty. Transfers without a memo
//! keep their encoding and their ids, and nothing has two encodings. The state does not store
//! memos: they cost bytes in a block and no memory. Therefore blocks, the mempool and forwarding
//! are bounded by bytes as well.
//!
//! The transaction id leaves out the signature; the block commits to it. A second valid signature
//! makes no second transaction, and nobody can serve a block with other signatures under the same
//! id.

use crate::{ChainId, REGISTRY, codec::fixed_codec, genesis::Fees, limits::MAX_MEMO_BYTES};
use bytes::BufMut;
use commonware_codec::{
    Buf, Encode, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{Digest, Identity, IdentitySignature, SecretKey, sha256};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, sync::Arc};

/// Version byte of an encoded [`Transaction`] without a memo.
const PLAIN_VERSION: u8 = 1;

/// Version byte of an encoded [`Transaction`] with a memo.
const MEMO_VERSION: u8 = 2;

/// Namespace of a transaction's signature (see [`SecretKey::sign`]).
pub const TRANSACTION_NAMESPACE: &[u8] = b"quorate/transaction/1";

/// A transfer of money, as the sender signs it.
///
/// Encoded in 97 bytes: version 1, chain tag 8, sender 32, nonce 8, to 32, amount 8, fee 8. With a
/// memo the version is 2, and the memo's length (2 bytes, never 0) and the memo follow, so that every
/// transfer has one encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// First eight bytes of the chain's id.
    pub chain_tag: [u8; 8],
    /// The account that pays: an ed25519 public key.
    pub sender: Identity,
    /// How many transactions of the sender were executed before this one.
    pub nonce: u64,
    /// The account that receives.
    pub to: Identity,
    /// How much it receives, in the chain's smallest unit.
    pub amount: u64,
    /// The fee for the block's leader, in addition to the amount.
    pub fee: u64,
    /// Bytes that mean something to the two accounts and nothing to the chain, at most
    /// [`MAX_MEMO_BYTES`]: part of what is signed and stored, not of the state.
    pub memo: Memo,
}

/// A transfer's memo, at most [`MAX_MEMO_BYTES`]. An empty one takes no additional memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Memo(Option<Arc<[u8]>>);

/// A signed transfer: 161 bytes without a memo, 163 and the memo with one.
///
/// Its id leaves out the signature: who can make a second valid signature for the same transfer
/// does not make a second transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    transfer: Transfer,
    signature: IdentitySignature,
    id: Digest,
}

/// Why a transaction cannot be taken, whatever the state of its accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// It was made for another chain.
    #[error("the transaction is for another chain (tag {})", hex::encode(.tag))]
    WrongChain {
        /// The chain tag that it carries.
        tag: [u8; 8],
    },
    /// The signature is not the sender's.
    #[error("the signature is not the sender's")]
    BadSignature,
    /// Its sender or receiver is a key of small order, which anybody can sign for.
    #[error("{identity} is a key of small order: anybody could spend what such an account holds")]
    SmallOrderKey {
        /// The key.
        identity: Identity,
    },
    /// It pays less than the chain asks for.
    #[error("the fee is {fee}, and this chain asks for at least {minimum} for this transfer")]
    FeeTooLow {
        /// What it pays.
        fee: u64,
        /// The least for its size.
        minimum: u64,
    },
}

impl TransactionError {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WrongChain { .. } => "wrong_chain",
            Self::BadSignature => "bad_signature",
            Self::SmallOrderKey { .. } => "small_order_key",
            Self::FeeTooLow { .. } => "fee_too_low",
        }
    }
}

/// A memo is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a memo has at most {MAX_MEMO_BYTES} bytes, not {bytes}")]
pub struct MemoTooLong {
    /// How many it would have.
    pub bytes: usize,
}

impl Memo {
    /// No memo.
    pub const NONE: Self = Self(None);

    /// A memo of these bytes; of none, no memo.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_MEMO_BYTES`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, MemoTooLong> {
        let bytes = bytes.as_ref();
        match bytes.len() {
            0 => Ok(Self::NONE),
            1..=MAX_MEMO_BYTES => Ok(Self(Some(bytes.into()))),
            bytes => Err(MemoTooLong { bytes }),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Serialize for Memo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Memo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > 2 * MAX_MEMO_BYTES {
            let bytes = text.len() / 2;
            return Err(de::Error::custom(MemoTooLong { bytes }));
        }
        let bytes = hex::decode(&text)
            .map_err(|_| de::Error::custom("a memo is an even number of hexadecimal digits"))?;
        Self::new(bytes).map_err(de::Error::custom)
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl Transfer {
    /// Signs the transfer for the chain. The signature covers the whole chain id beside the
    /// transfer's own bytes, which hold only its tag.
    pub fn sign(self, chain: &ChainId, secret: &SecretKey) -> Transaction {
        let signature = secret.sign(TRANSACTION_NAMESPACE, &self.signed_bytes(chain));
        Transaction::new(self, signature)
    }

    /// The bytes that are signed within [`TRANSACTION_NAMESPACE`]: `chain id ‖ transfer`.
    pub fn signed_bytes(&self, chain: &ChainId) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + self.encode_size());
        chain.write(&mut bytes);
        self.write(&mut bytes);
        bytes
    }
}

impl Transaction {
    /// Puts a transfer and a signature together, unverified.
    pub fn new(transfer: Transfer, signature: IdentitySignature) -> Self {
        let id = sha256(&[&transfer.encode()]);
        Self {
            transfer,
            signature,
            id,
        }
    }

    /// What the sender signed.
    pub fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// The sender's signature.
    pub fn signature(&self) -> &IdentitySignature {
        &self.signature
    }

    /// Whether it is an operation on the registry (see [`crate::registry`]).
    pub fn is_operation(&self) -> bool {
        self.transfer.to == REGISTRY
    }

    /// Whether it is an operation by which validators keep the chain's set up to date
    /// ([`crate::registry::is_duty`]).
    pub fn is_duty(&self) -> bool {
        self.is_operation() && crate::registry::is_duty(self.transfer.memo.as_bytes())
    }

    /// SHA-256 of the encoded transfer, without the signature.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// Checks what can be checked without any state, but for the signature, which is left to a batch.
    ///
    /// # Errors
    ///
    /// If it is for another chain, pays too little, or names a key of small order.
    pub fn check(&self, chain: &ChainId, fees: &Fees) -> Result<(), TransactionError> {
        let transfer = &self.transfer;
        if transfer.chain_tag != chain.tag() {
            let tag = transfer.chain_tag;
            return Err(TransactionError::WrongChain { tag });
        }
        for identity in [transfer.sender, transfer.to] {
            if identity.is_small_order() {
                return Err(TransactionError::SmallOrderKey { identity });
            }
        }
        let (fee, minimum) = (transfer.fee, fees.minimum(transfer));
        if fee < minimum {
            return Err(TransactionError::FeeTooLow { fee, minimum });
        }
        Ok(())
    }

    /// As [`Self::check`], and the signature.
    ///
    /// # Errors
    ///
    /// As for [`Self::check`], or if its sender has not signed it.
    pub fn verify(&self, chain: &ChainId, fees: &Fees) -> Result<(), TransactionError> {
        self.check(chain, fees)?;
        let message = self.transfer.signed_bytes(chain);
        let sender = self.transfer.sender;
        if sender.verify(TRANSACTION_NAMESPACE, &message, &self.signature) {
            Ok(())
        } else {
            Err(TransactionError::BadSignature)
        }
    }
}

struct TransferFields {
    chain_tag: [u8; 8],
    sender: Identity,
    nonce: u64,
    to: Identity,
    amount: u64,
    fee: u64,
}

fixed_codec!(TransferFields {
    chain_tag: [u8; 8],
    sender: Identity,
    nonce: u64,
    to: Identity,
    amount: u64,
    fee: u64,
});

impl EncodeSize for Transfer {
    fn encode_size(&self) -> usize {
        let memo = self.memo.as_bytes().len();
        1 + TransferFields::SIZE + if memo > 0 { u16::SIZE + memo } else { 0 }
    }
}

impl Write for Transfer {
    fn write(&self, buffer: &mut impl BufMut) {
        let Self {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
            ref memo,
        } = *self;
        let version = match memo.is_empty() {
            true => PLAIN_VERSION,
            false => MEMO_VERSION,
        };
        version.write(buffer);
        TransferFields {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
        }
        .write(buffer);
        if !memo.is_empty() {
            let length = u16::try_from(memo.as_bytes().len()).expect("a memo is shorter");
            length.write(buffer);
            buffer.put_slice(memo.as_bytes());
        }
    }
}

impl Read for Transfer {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let version = u8::read(buffer)?;
        if ![PLAIN_VERSION, MEMO_VERSION].contains(&version) {
            return Err(Error::Invalid("transaction", "unknown version"));
        }
        let TransferFields {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
        } = TransferFields::read(buffer)?;
        let memo = match version {
            PLAIN_VERSION => Memo::NONE,
            _ => read_memo(buffer)?,
        };
        Ok(Self {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
            memo,
        })
    }
}

fn read_memo(buffer: &mut impl Buf) -> Result<Memo, Error> {
    let length = u16::read(buffer)? as usize;
    if !(1..=MAX_MEMO_BYTES).contains(&length) {
        return Err(Error::InvalidLength(length));
    }
    if buffer.remaining() < length {
        return Err(Error::EndOfBuffer);
    }
    let mut bytes = [0; MAX_MEMO_BYTES];
    buffer.copy_to_slice(&mut bytes[..length]);
    Ok(Memo(Some(bytes[..length].into())))
}

impl Transaction {
    /// Bytes of an encoded transaction without a memo; none has fewer.
    pub const MIN_SIZE: usize = 1 + TransferFields::SIZE + IdentitySignature::SIZE;
}

impl EncodeSize for Transaction {
    fn encode_size(&self) -> usize {
        self.transfer.encode_size() + IdentitySignature::SIZE
    }
}

impl Write for Transaction {
    fn write(&self, buffer: &mut impl BufMut) {
        self.transfer.write(buffer);
        self.signature.write(buffer);
    }
}

impl Read for Transaction {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let transfer = Transfer::read(buffer)?;
        let signature = IdentitySignature::read(buffer)?;
        Ok(Self::new(transfer, signature))
    }
}
