//! Blocks: a header, which votes name by its hash, and the transactions it commits to.
//!
//! A vote names a block by its header's hash. The header holds the view, the parent view and the
//! roots, so nothing else needs a signature, and a block that is proposed again keeps its id.

use crate::{
    ChainId, Epoch, Height, Transaction, View,
    codec::{fixed_codec, list_size, read_list, read_version, write_list},
    limits::{MAX_BLOCK_BYTES, MAX_BLOCK_OPERATIONS, MAX_BLOCK_TRANSACTIONS},
    merkle_root,
};
use bytes::BufMut;
use commonware_codec::{
    Buf, Encode, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{Digest, sha256};
use std::fmt;

/// Version byte of an encoded [`Header`].
const HEADER_VERSION: u8 = 1;

/// What a block says of itself. Its SHA-256 is the block's id, which votes are about.
///
/// Encoded in 177 bytes: a version byte and the fields in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The chain it belongs to.
    pub chain: ChainId,
    /// The epoch it was proposed in.
    pub epoch: Epoch,
    /// The view it was proposed in.
    pub view: View,
    /// One more than its parent's.
    pub height: Height,
    /// The parent's id, or [`Digest::ZERO`] at height 1.
    pub parent: Digest,
    /// The view that notarized the parent.
    pub parent_view: View,
    /// The leader's clock, in milliseconds since 1970; above the parent's.
    pub timestamp_ms: u64,
    /// The height of an ancestor whose state is named in `state_root`; never below the parent's.
    pub executed_height: Height,
    /// The root of the accounts after that ancestor.
    pub state_root: Digest,
    /// The Merkle root over the hashes of the encoded transactions, signatures included.
    pub body_root: Digest,
}

/// A header and its transactions, with the id computed once.
///
/// The transactions are known to be those that the header commits to: reading checks it.
#[derive(Clone, PartialEq, Eq)]
pub struct Block {
    header: Header,
    transactions: Vec<Transaction>,
    id: Digest,
}

/// Why a header and transactions make no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// More than [`MAX_BLOCK_TRANSACTIONS`].
    #[error("a block holds at most {MAX_BLOCK_TRANSACTIONS} transactions, not {count}")]
    TooManyTransactions {
        /// How many there were.
        count: usize,
    },
    /// More than [`MAX_BLOCK_BYTES`].
    #[error("a block has at most {MAX_BLOCK_BYTES} bytes, not {bytes}")]
    TooLarge {
        /// How many it would have.
        bytes: usize,
    },
    /// More than [`MAX_BLOCK_OPERATIONS`].
    #[error("a block holds at most {MAX_BLOCK_OPERATIONS} operations on the registry, not {count}")]
    TooManyOperations {
        /// How many there were.
        count: usize,
    },
    /// The header commits to other transactions.
    #[error("the transactions are not those that the header commits to")]
    BodyMismatch,
}

struct HeaderFields {
    chain: ChainId,
    epoch: Epoch,
    view: View,
    height: Height,
    parent: Digest,
    parent_view: View,
    timestamp_ms: u64,
    executed_height: Height,
    state_root: Digest,
    body_root: Digest,
}

fixed_codec!(HeaderFields {
    chain: ChainId,
    epoch: Epoch,
    view: View,
    height: Height,
    parent: Digest,
    parent_view: View,
    timestamp_ms: u64,
    executed_height: Height,
    state_root: Digest,
    body_root: Digest,
});

impl Header {
    /// SHA-256 of the encoded header.
    pub fn id(&self) -> Digest {
        sha256(&[&self.encode()])
    }

    /// What [`Header::body_root`] must be for these transactions.
    pub fn body_root_of(transactions: &[Transaction]) -> Digest {
        let leaves: Vec<Digest> = transactions
            .iter()
            .map(|transaction| sha256(&[&transaction.encode()]))
            .collect();
        merkle_root(&leaves)
    }
}

impl FixedSize for Header {
    const SIZE: usize = 1 + HeaderFields::SIZE;
}

impl Write for Header {
    fn write(&self, buffer: &mut impl BufMut) {
        let Self {
            chain,
            epoch,
            view,
            height,
            parent,
            parent_view,
            timestamp_ms,
            executed_height,
            state_root,
            body_root,
        } = *self;
        HEADER_VERSION.write(buffer);
        HeaderFields {
            chain,
            epoch,
            view,
            height,
            parent,
            parent_view,
            timestamp_ms,
            executed_height,
            state_root,
            body_root,
        }
        .write(buffer);
    }
}

impl Read for Header {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        read_version(buffer, HEADER_VERSION, "header")?;
        let HeaderFields {
            chain,
            epoch,
            view,
            height,
            parent,
            parent_view,
            timestamp_ms,
            executed_height,
            state_root,
            body_root,
        } = HeaderFields::read(buffer)?;
        Ok(Self {
            chain,
            epoch,
            view,
            height,
            parent,
            parent_view,
            timestamp_ms,
            executed_height,
            state_root,
            body_root,
        })
    }
}

fn check_size(transactions: &[Transaction]) -> Result<(), BlockError> {
    if transactions.len() > MAX_BLOCK_TRANSACTIONS {
        return Err(BlockError::TooManyTransactions {
            count: transactions.len(),
        });
    }
    let bytes = Header::SIZE + list_size(transactions);
    if bytes > MAX_BLOCK_BYTES {
        return Err(BlockError::TooLarge { bytes });
    }
    let operations = transactions.iter().filter(|t| t.is_operation()).count();
    if operations > MAX_BLOCK_OPERATIONS {
        return Err(BlockError::TooManyOperations { count: operations });
    }
    Ok(())
}

impl Block {
    /// A block of the given header and transactions.
    ///
    /// # Errors
    ///
    /// If there are too many transactions, operations or bytes, or the header commits to others.
    pub fn new(header: Header, transactions: Vec<Transaction>) -> Result<Self, BlockError> {
        check_size(&transactions)?;
        if Header::body_root_of(&transactions) != header.body_root {
            return Err(BlockError::BodyMismatch);
        }
        Ok(Self::of_checked(header, transactions))
    }

    /// A new block: its header's body root is made from the transactions.
    ///
    /// # Errors
    ///
    /// If there are too many transactions, operations or bytes.
    pub fn build(header: Header, transactions: Vec<Transaction>) -> Result<Self, BlockError> {
        check_size(&transactions)?;
        let header = Header {
            body_root: Header::body_root_of(&transactions),
            ..header
        };
        Ok(Self::of_checked(header, transactions))
    }

    fn of_checked(header: Header, transactions: Vec<Transaction>) -> Self {
        Self {
            header,
            transactions,
            id: header.id(),
        }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The transactions in the order of their execution.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// The block's id: the hash of its header.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// The block's height.
    pub fn height(&self) -> Height {
        self.header.height
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        write!(
            f,
            "block {} (height {}, view {}.{}, {} transactions)",
            self.id.short(),
            header.height,
            header.epoch,
            header.view,
            self.transactions.len()
        )
    }
}

impl EncodeSize for Block {
    fn encode_size(&self) -> usize {
        Header::SIZE + list_size(&self.transactions)
    }
}

impl Write for Block {
    fn write(&self, buffer: &mut impl BufMut) {
        self.header.write(buffer);
        write_list(&self.transactions, buffer);
    }
}

impl Read for Block {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        let header = Header::read(buffer)?;
        let transactions = read_list(buffer, MAX_BLOCK_TRANSACTIONS)?;
        Self::new(header, transactions).map_err(|error| match error {
            BlockError::TooManyTransactions { count } => Error::InvalidLength(count),
            BlockError::TooLarge { bytes } => Error::InvalidLength(bytes),
            BlockError::TooManyOperations { count } => Error::InvalidLength(count),
            BlockError::BodyMismatch => Error::Invalid("block", "body does not match the header"),
        })
    }
}
