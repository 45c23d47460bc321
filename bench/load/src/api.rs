//! The shapes of the HTTP interface, for both of its sides. Hashes, identities and signatures are
//! hexadecimal text; encodings are the hexadecimal form of the binary codec; amounts are in the
//! chain's smallest unit.

use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{
    Block, ChainId, Digest, Height, Identity, IdentitySignature, Transaction, Transfer,
    ValidatorIndex, View,
};
use serde::{Deserialize, Serialize};

/// What every error looks like.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error: a code for programs, a sentence for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A short name that does not change.
    pub code: String,
    /// What is wrong.
    pub message: String,
}

/// A signed transaction with its fields by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransactionJson {
    /// The account that pays.
    pub sender: Identity,
    /// Its next nonce.
    pub nonce: u64,
    /// The account that receives.
    pub to: Identity,
    /// How much it receives.
    pub amount: u64,
    /// What the sender pays beside.
    pub fee: u64,
    /// The sender's signature.
    pub signature: IdentitySignature,
}

impl TransactionJson {
    /// The transaction, for the chain whose node is asked.
    pub fn to_transaction(&self, chain: &ChainId) -> Transaction {
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: self.sender,
            nonce: self.nonce,
            to: self.to,
            amount: self.amount,
            fee: self.fee,
        };
        Transaction::new(transfer, self.signature)
    }

    /// The fields of a transaction.
    pub fn from_transaction(transaction: &Transaction) -> Self {
        let transfer = transaction.transfer();
        Self {
            sender: transfer.sender,
            nonce: transfer.nonce,
            to: transfer.to,
            amount: transfer.amount,
            fee: transfer.fee,
            signature: *transaction.signature(),
        }
    }
}

/// `POST /v1/transactions`: either list may be left out; at most 1,000 in both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Transactions by their fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transactions: Vec<TransactionJson>,
    /// Transactions by their encoding, 161 bytes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hex: Vec<String>,
}

/// The answer to [`SubmitRequest`]: one result per transaction, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubmitAnswer {
    /// The results.
    pub results: Vec<TransactionResult>,
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransactionState {
    /// It waits for a block.
    Pending,
    /// It was not taken in; `error` says why.
    Refused,
    /// It is in a final block; `outcome` says what became of it.
    Finalized,
}

/// What became of a transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionResult {
    /// Its id.
    pub id: Digest,
    /// Where it is.
    pub state: TransactionState,
    /// The final block's height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<Height>,
    /// Its place in that block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `applied`, `wrong_nonce`, `cannot_pay_fee` or `insufficient_balance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// A peer as a validator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerJson {
    /// Its place in the committee.
    pub validator: Option<ValidatorIndex>,
    /// Who it is.
    pub identity: Identity,
    /// Whether the link is up.
    pub connected: bool,
    /// The round trip.
    pub round_trip_us: Option<u64>,
    /// How far it says that it is.
    pub finalized_height: Option<Height>,
}

/// A validator that another one has blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedJson {
    /// Its place in the committee.
    pub validator: ValidatorIndex,
    /// Who it is.
    pub identity: Identity,
    /// What it did.
    pub reason: String,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusJson {
    /// The chain's name.
    pub name: String,
    /// The chain's id.
    pub chain_id: ChainId,
    /// The program's version.
    pub version: String,
    /// This validator's place in the committee.
    pub validator: ValidatorIndex,
    /// How many validators there are.
    pub validators: usize,
    /// The epoch.
    pub epoch: u64,
    /// The current view.
    pub view: View,
    /// The newest final height that this validator knows with its whole chain.
    pub finalized_height: Height,
    /// The newest executed and stored height.
    pub executed_height: Height,
    /// That block's id.
    pub executed_id: Digest,
    /// That block's timestamp, in milliseconds since 1970.
    pub executed_timestamp_ms: u64,
    /// The root of the accounts after it.
    pub state_root: Digest,
    /// Transactions in the mempool.
    pub mempool_transactions: usize,
    /// The other validators.
    pub peers: Vec<PeerJson>,
    /// Whom this validator has blocked.
    pub blocked: Vec<BlockedJson>,
    /// Seconds since the node started.
    pub uptime_seconds: u64,
}

/// `GET /v1/accounts/{identity}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountJson {
    /// Whose account it is.
    pub identity: Identity,
    /// Its next nonce.
    pub nonce: u64,
    /// What it holds.
    pub balance: u64,
    /// With `?proof=true`: what proves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<AccountProofJson>,
}

/// What proves an account, by encodings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountProofJson {
    /// The height whose state it is proven in.
    pub executed_height: Height,
    /// That state's root.
    pub state_root: Digest,
    /// The tree's proof.
    pub proof: String,
    /// A final header that names the height and the root.
    pub header: String,
    /// That header's finalization.
    pub certificate: String,
}

/// A transaction in a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockTransactionJson {
    /// Its id.
    pub id: Digest,
    /// Its fields.
    #[serde(flatten)]
    pub fields: TransactionJson,
    /// What became of it.
    pub outcome: String,
}

/// `GET /v1/blocks/{height|id|latest}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockJson {
    /// The block's id.
    pub id: Digest,
    /// Its height.
    pub height: Height,
    /// The epoch that it was proposed in.
    pub epoch: u64,
    /// The view that it was proposed in.
    pub view: View,
    /// The validator that proposed it.
    pub leader: ValidatorIndex,
    /// Its parent's id.
    pub parent: Digest,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The height whose state it names.
    pub executed_height: Height,
    /// That state's root.
    pub state_root: Digest,
    /// Its transactions, in order.
    pub transactions: Vec<BlockTransactionJson>,
    /// The block's encoding.
    pub block: String,
    /// The headers' encodings from the next block to the one that `certificate` finalises; empty
    /// if it finalises this one.
    pub descendants: Vec<String>,
    /// The encoding of a finalization, of this block or the last of `descendants`. Missing for
    /// a moment on the newest blocks if they have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A block in `GET /v1/blocks?from=`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockSummaryJson {
    /// Its height.
    pub height: Height,
    /// Its id.
    pub id: Digest,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The ids of its transactions.
    pub transactions: Vec<Digest>,
    /// What became of each.
    pub outcomes: Vec<String>,
}

/// `GET /v1/blocks?from=`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlocksJson {
    /// Consecutive final blocks.
    pub blocks: Vec<BlockSummaryJson>,
}

/// The hexadecimal form of a value's encoding.
pub fn to_hex(value: &impl Encode) -> String {
    hex::encode(value.encode())
}

/// Reads a value from the hexadecimal form of its encoding.
///
/// # Errors
///
/// If the text is no hexadecimal, or the bytes are not exactly one such value.
pub fn from_hex<T: DecodeExt<()>>(what: &str, text: &str) -> anyhow::Result<T> {
    let bytes = hex::decode(text).map_err(|_| anyhow::anyhow!("{what} is not hexadecimal"))?;
    T::decode(Copying(&bytes)).map_err(|error| anyhow::anyhow!("{what}: {error}"))
}

/// A transaction's encoding as hexadecimal text.
///
/// # Errors
///
/// If the text is not one transaction.
pub fn transaction_from_hex(text: &str) -> anyhow::Result<Transaction> {
    from_hex("transaction", text)
}

/// The block inside a [`BlockJson`].
///
/// # Errors
///
/// If its encoding is not one block.
pub fn block_of(answer: &BlockJson) -> anyhow::Result<Block> {
    from_hex("block", &answer.block)
}
