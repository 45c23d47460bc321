//! Transactions and their results.

use crate::ErrorDetail;
use quorate_types::{
    ChainId, Digest, Height, Identity, IdentitySignature, Memo, Transaction, Transfer,
};
use serde::{
    Deserialize, Serialize,
    de::{SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// A signed transaction with named fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransactionJson {
    /// The paying account.
    pub sender: Identity,
    /// The sender's next nonce.
    pub nonce: u64,
    /// The receiving account.
    pub to: Identity,
    /// The amount that the recipient receives.
    pub amount: u64,
    /// The fee that the sender pays in addition.
    pub fee: u64,
    /// Data for sender and recipient, at most 4,096 bytes; omitted if empty.
    #[serde(default, skip_serializing_if = "Memo::is_empty")]
    pub memo: Memo,
    /// The sender's signature.
    pub signature: IdentitySignature,
}

impl TransactionJson {
    /// Converts to a transaction on the given chain.
    pub fn to_transaction(&self, chain: &ChainId) -> Transaction {
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: self.sender,
            nonce: self.nonce,
            to: self.to,
            amount: self.amount,
            fee: self.fee,
            memo: self.memo.clone(),
        };
        Transaction::new(transfer, self.signature)
    }

    /// Converts from a transaction.
    pub fn from_transaction(transaction: &Transaction) -> Self {
        let transfer = transaction.transfer();
        Self {
            sender: transfer.sender,
            nonce: transfer.nonce,
            to: transfer.to,
            amount: transfer.amount,
            fee: transfer.fee,
            memo: transfer.memo.clone(),
            signature: *transaction.signature(),
        }
    }
}

/// `POST /v1/transactions`: both lists are optional; together at most 1,000 transactions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Transactions with named fields.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "at_most_a_thousand"
    )]
    pub transactions: Vec<TransactionJson>,
    /// Encoded transactions, 161 bytes each without a memo.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "at_most_a_thousand"
    )]
    pub hex: Vec<String>,
}

/// Most transactions in one request.
pub const MAX_SUBMITTED: usize = 1_000;

/// Deserializes a list, and aborts as soon as it is too long: a short body can contain many items,
/// each of which takes more memory than its bytes in the body.
fn at_most_a_thousand<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_SUBMITTED} transactions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAX_SUBMITTED {
                    return Err(serde::de::Error::invalid_length(list.len() + 1, &self));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(Items(PhantomData))
}

/// The answer to [`SubmitRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubmitAnswer {
    /// One result per transaction, in order.
    pub results: Vec<TransactionResult>,
}

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransactionState {
    /// It waits in the mempool for a block.
    Pending,
    /// It was not accepted; `error` says why.
    Refused,
    /// It is in a final block; see `outcome`.
    Finalized,
    /// It was accepted, and left the mempool without being included in a block; `error` says why.
    /// Remembered for a while.
    Dropped,
}

/// The result of a submission or query.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionResult {
    pub id: Digest,
    pub state: TransactionState,
    /// The height of the final block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<Height>,
    /// The transaction's index in that block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `applied`, `wrong_nonce`, `cannot_pay_fee` or `insufficient_balance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The transaction waits for this nonce of its sender: a transaction with it must arrive, or be
    /// paid for, first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for_nonce: Option<u64>,
    /// How soon the transaction is dropped if that does not happen, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// For a submission: this same transaction was already pending or final, so nothing is paid
    /// twice.
    #[serde(default, skip_serializing_if = "is_false")]
    pub repeated: bool,
    /// Why the transaction was refused or dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl TransactionResult {
    /// Creates the result of a transaction that only waits for a block.
    pub fn pending(id: Digest) -> Self {
        Self {
            id,
            state: TransactionState::Pending,
            height: None,
            index: None,
            outcome: None,
            waits_for_nonce: None,
            repeated: false,
            expires_in_ms: None,
            error: None,
        }
    }
}
