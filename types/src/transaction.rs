//! Transactions: signed transfers from one account to another.

use crate::{
    ChainId,
    codec::{fixed_codec, read_version},
};
use bytes::BufMut;
use commonware_codec::{Buf, Encode, Error, FixedSize, Read, Write, extensions::ReadExt};
use quorate_crypto::{Digest, Identity, IdentitySignature, SecretKey, sha256};

/// Version byte of an encoded [`Transaction`].
const TRANSACTION_VERSION: u8 = 1;

/// Namespace of a transaction's signature (see [`SecretKey::sign`]).
pub const TRANSACTION_NAMESPACE: &[u8] = b"quorate/transaction/1";

/// A wish to move money: what the sender signs.
///
/// Encoded in 97 bytes: version 1, chain tag 8, sender 32, nonce 8, to 32, amount 8, fee 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// What the sender pays beside the amount, to the block's leader.
    pub fee: u64,
}

/// A signed transfer: 161 bytes.
///
/// Its id leaves out the signature: who can make a second valid signature for the same transfer
/// does not make a second transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let mut bytes = Vec::with_capacity(32 + Self::SIZE);
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

    /// SHA-256 of the encoded transfer, without the signature.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// Checks what can be checked without any state.
    ///
    /// # Errors
    ///
    /// If it is for another chain or not signed by its sender.
    pub fn verify(&self, chain: &ChainId) -> Result<(), TransactionError> {
        self.check_chain(chain)?;
        let transfer = &self.transfer;
        if transfer.sender.verify(
            TRANSACTION_NAMESPACE,
            &transfer.signed_bytes(chain),
            &self.signature,
        ) {
            Ok(())
        } else {
            Err(TransactionError::BadSignature)
        }
    }

    /// Checks the chain tag only; the signature is left to a batch.
    ///
    /// # Errors
    ///
    /// If it is for another chain.
    pub fn check_chain(&self, chain: &ChainId) -> Result<(), TransactionError> {
        let tag = self.transfer.chain_tag;
        if tag == chain.tag() {
            Ok(())
        } else {
            Err(TransactionError::WrongChain { tag })
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

impl FixedSize for Transfer {
    const SIZE: usize = 1 + TransferFields::SIZE;
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
        } = *self;
        TRANSACTION_VERSION.write(buffer);
        TransferFields {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
        }
        .write(buffer);
    }
}

impl Read for Transfer {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, TRANSACTION_VERSION, "transaction")?;
        let TransferFields {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
        } = TransferFields::read(buffer)?;
        Ok(Self {
            chain_tag,
            sender,
            nonce,
            to,
            amount,
            fee,
        })
    }
}

impl FixedSize for Transaction {
    const SIZE: usize = Transfer::SIZE + IdentitySignature::SIZE;
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
