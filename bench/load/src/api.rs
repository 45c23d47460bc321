//! The shapes of the HTTP interface, for both of its sides. Hashes, identities and signatures are
//! hexadecimal text; encodings are the hexadecimal form of the binary codec; amounts are in the
//! chain's smallest unit.

use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{
    Block, ChainId, Digest, Height, Identity, IdentitySignature, Memo, Transaction, Transfer,
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
    /// Bytes for the two accounts, at most 4,096; left out if there are none.
    #[serde(default, skip_serializing_if = "Memo::is_empty")]
    pub memo: Memo,
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
            memo: self.memo.clone(),
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
            memo: transfer.memo.clone(),
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
    /// Transactions by their encoding, 161 bytes each without a memo.
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

/// What a validator thinks of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Nothing of it is listened to.
    Blocked,
    /// Its votes are verified one by one before they count.
    Probation,
    /// It was blocked or on probation, and is believed again.
    Pardoned,
}

/// Somebody whom a validator blocks or half believes; also an entry of `offenders.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffenderJson {
    /// Who it is.
    pub identity: Identity,
    /// Its place in the committee.
    pub validator: ValidatorIndex,
    /// What became of it.
    pub standing: Standing,
    /// What it did: `invalid_vote`, `invalid_certificate`, `invalid_evidence`, `equivocation`, or
    /// `operator` if it was blocked by order.
    pub reason: String,
    /// Whether the operator ordered this.
    pub ordered: bool,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Until when; without it, until the operator lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The epoch and view up to which it is pardoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pardoned_until: Option<(u64, View)>,
    /// What shows the offence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ExhibitJson>,
}

/// What shows an offence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExhibitJson {
    /// `vote`, `certificate` or `evidence`.
    pub kind: String,
    /// For people.
    pub summary: String,
    /// Its encoding.
    pub hex: String,
}

/// `GET /v1/peers`: one for each other validator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerDetailJson {
    /// Its link and what it says of itself.
    #[serde(flatten)]
    pub peer: PeerJson,
    /// Where it is in the configuration.
    pub address: Option<String>,
    /// The newest epoch and view in which a vote of it was heard.
    pub last_vote: Option<(u64, View)>,
    /// Of the newest certificates that name their signers, in how many of 100 it signed; only
    /// with `bls-aggregate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participation_percent: Option<f64>,
    /// What is held against it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offender: Option<OffenderJson>,
}

/// `GET /v1/peers`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeersJson {
    /// The other validators.
    pub peers: Vec<PeerDetailJson>,
}

/// A verified pair of conflicting votes; also a file in the folder `evidence`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceJson {
    /// Names the pair.
    pub id: Digest,
    /// The chain.
    pub chain_id: ChainId,
    /// `two_notarize`, `two_finalize`, `finalize_and_nullify` or `notarize_and_finalize`.
    pub conflict: String,
    /// Who signed both.
    pub validator: ValidatorIndex,
    /// Who that is.
    pub identity: Option<Identity>,
    /// The epoch.
    pub epoch: u64,
    /// The view.
    pub view: View,
    /// The first vote, for people.
    pub first: String,
    /// The second vote, for people.
    pub second: String,
    /// When this validator verified it, in milliseconds since 1970.
    pub noticed_ms: u64,
    /// The two votes' encoding; what counts.
    pub hex: String,
}

/// `GET /v1/evidence`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvidenceListJson {
    /// All evidence that the validator holds.
    pub evidence: Vec<EvidenceJson>,
}

/// `POST /v1/peers/block` and `POST /v1/peers/unblock` on a validator's control socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderJson {
    /// Whom: an identity or a place in the committee.
    pub peer: String,
    /// For so many seconds; without it, until it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The answer to [`OrderJson`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderAnswer {
    /// What is thought of it now; `None` if nothing is held against it and nothing was.
    pub offender: Option<OffenderJson>,
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
    /// Whether finalised blocks are known to be missing here.
    pub behind: bool,
    /// The lowest height that is kept.
    pub first_height: Height,
    /// Bytes of the database's files.
    pub database_bytes: u64,
    /// Bytes of the vote journal.
    pub journal_bytes: u64,
    /// By how many milliseconds this clock is ahead of the leaders', the network's delay included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// The vote scheme.
    pub scheme: String,
    /// Pairs of conflicting votes that are held.
    pub evidence: usize,
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

/// A final block in `GET /v1/chain`, by encodings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainBlockJson {
    /// The block's encoding.
    pub block: String,
    /// The encoding of its own finalization, if it has one; otherwise a later block's stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// What became of each of its transactions.
    pub outcomes: Vec<String>,
}

/// `GET /v1/chain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainJson {
    /// The newest executed height.
    pub executed_height: Height,
    /// The lowest height that is kept.
    pub first_height: Height,
    /// Consecutive final blocks.
    pub blocks: Vec<ChainBlockJson>,
}

/// A certificate in `GET /v1/certificates`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateJson {
    /// Its number in the order of their coming.
    pub number: u64,
    /// Its encoding.
    pub certificate: String,
    /// Of a nullification, why the view brought nothing, as far as this validator saw it:
    /// `no_valid_proposal_in_time`, `no_quorum_in_time` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/certificates`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificatesJson {
    /// Names the validator's process; numbers begin anew with each.
    pub session: u64,
    /// The newest one's number.
    pub newest: u64,
    /// Certificates in the order of their coming.
    pub certificates: Vec<CertificateJson>,
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
