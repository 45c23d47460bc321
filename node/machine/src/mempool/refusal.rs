//! Why a transaction is refused, or was dropped later.

use super::MAX_NONCE_GAP;
use quorate_types::Digest;

/// Why a transaction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is here already.
    #[error("the transaction is already waiting")]
    AlreadyKnown,
    /// Another transaction of the sender has this nonce, and this one does not pay enough to
    /// replace it.
    #[error(
        "another transaction of this sender is waiting with nonce {nonce}; a fee of at least {minimum} \
         replaces it"
    )]
    NonceTaken {
        /// The nonce.
        nonce: u64,
        /// The least fee that replaces the waiting one.
        minimum: u64,
    },
    /// The waiting transaction with this nonce has replaced another one just now.
    #[error(
        "the transaction that waits with nonce {nonce} has replaced another one less than a second ago; \
         try again in a second"
    )]
    ReplacedLately {
        /// The nonce.
        nonce: u64,
    },
    /// Its nonce is used.
    #[error("nonce {nonce} was used; the account's next nonce is {expected}")]
    StaleNonce {
        nonce: u64,
        /// The account's next nonce.
        expected: u64,
    },
    /// Its nonce is too far ahead.
    #[error(
        "nonce {nonce} is more than {MAX_NONCE_GAP} above the account's next nonce, {expected}"
    )]
    NonceTooFar {
        nonce: u64,
        /// The account's next nonce.
        expected: u64,
    },
    /// The sender cannot pay the fee when its turn comes.
    #[error(
        "the account holds {left}, less what its transfers here take that go before, and the fee is {fee}"
    )]
    CannotPayFee {
        /// The balance after the transactions before it.
        left: u64,
        /// The fee.
        fee: u64,
    },
    /// The sender has too many here.
    #[error("{limit} transactions of this sender are waiting, the most that may")]
    SenderFull { limit: usize },
    /// No block of this chain could hold it.
    #[error("the transaction has {bytes} bytes, and a block of this chain has room for {limit}")]
    TooLarge {
        /// The size of its encoding.
        bytes: usize,
        /// The largest size that a block holds.
        limit: usize,
    },
    /// The mempool is full.
    #[error("the mempool is full; try again when blocks have taken some of it")]
    Full,
    /// The account was read too long ago to decide.
    #[error("the account has changed since it was read; try again")]
    Outdated,
}

impl Refusal {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::AlreadyKnown => "already_known",
            Self::NonceTaken { .. } => "nonce_taken",
            Self::ReplacedLately { .. } => "replaced_lately",
            Self::StaleNonce { .. } => "stale_nonce",
            Self::NonceTooFar { .. } => "nonce_too_far",
            Self::CannotPayFee { .. } => "cannot_pay_fee",
            Self::SenderFull { .. } => "sender_full",
            Self::TooLarge { .. } => "too_large",
            Self::Full => "mempool_full",
            Self::Outdated => "outdated",
        }
    }
}

/// Why a client's accepted transaction has left without a final block that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It waited too long for a nonce before it, or for money.
    #[error(
        "it waited too long: nonce {missing} of its sender never came, or could not be paid for"
    )]
    Expired {
        /// The nonce that it waited for.
        missing: u64,
    },
    /// It was evicted for transactions that can go into a block, because it could not.
    #[error("the mempool was full, and it waited for nonce {missing} of its sender")]
    MadeWay {
        /// The nonce that it waited for.
        missing: u64,
    },
    /// When the validator started again, its mempool had no room for it.
    #[error("the validator was started again with less room in its mempool")]
    NoRoom,
    /// The sender has replaced it by one that pays more.
    #[error("replaced by {by}, which has the same nonce and pays more")]
    Replaced {
        /// The replacement's id.
        by: Digest,
    },
    /// Another transaction of its sender has used its nonce.
    #[error("another transaction of its sender has used its nonce")]
    NonceUsed,
    /// Its turn came, and its sender could not pay the fee.
    #[error("its turn came, and the account held {balance}, less than the fee of {fee}")]
    CannotPayFee {
        /// The account's balance.
        balance: u64,
        /// The fee.
        fee: u64,
    },
}

impl Dropped {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::MadeWay { .. } => "made_way",
            Self::NoRoom => "no_room",
            Self::Replaced { .. } => "replaced",
            Self::NonceUsed => "nonce_used",
            Self::CannotPayFee { .. } => "cannot_pay_fee",
        }
    }
}
