//! The JSON types of the explorer's interface, used by server and client. Doc comments here become
//! descriptions in the OpenAPI document.
//!
//! 64-bit numbers are decimal strings, because browsers read JSON numbers with 53 bits of
//! precision; bytes are hexadecimal strings with the prefix `0x`.

use quorate_types::{Digest, Identity};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, schema::Type},
};

/// A 64-bit number, as a decimal string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(pub u64);

/// Bytes, as a hexadecimal string with the prefix `0x`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hex(pub Vec<u8>);

impl Hex {
    /// The value as a digest; `None` unless it has 32 bytes.
    pub fn digest(&self) -> Option<Digest> {
        self.0.as_slice().try_into().ok().map(Digest)
    }

    /// The value as an identity; `None` unless it has 32 bytes.
    pub fn identity(&self) -> Option<Identity> {
        self.0.as_slice().try_into().ok().map(Identity)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", hex::encode(&self.0))
    }
}

impl FromStr for Hex {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        hex::decode(text.strip_prefix("0x").unwrap_or(text)).map(Self)
    }
}

impl From<Digest> for Hex {
    fn from(digest: Digest) -> Self {
        Self(digest.0.to_vec())
    }
}

impl From<Identity> for Hex {
    fn from(identity: Identity) -> Self {
        Self(identity.0.to_vec())
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl PartialSchema for Number {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(0|[1-9][0-9]{0,19})$"))
            .description(Some("A number of 64 bits, as decimal text."))
            .examples(["42"])
            .into()
    }
}

impl ToSchema for Number {
    fn name() -> Cow<'static, str> {
        "Number".into()
    }
}

impl PartialSchema for Hex {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^0x([0-9a-f]{2})*$"))
            .description(Some("Bytes, as hexadecimal text."))
            .examples(["0x2a"])
            .into()
    }
}

impl ToSchema for Hex {
    fn name() -> Cow<'static, str> {
        "Hex".into()
    }
}

/// Schemas of string enumerations.
macro_rules! words {
    ($($name:ident: $($word:literal)+;)+) => {
        $(fn $name() -> RefOr<Schema> {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some([$($word),+]))
                .into()
        })+
    };
}

words! {
    upstream_states: "following" "standby" "failing" "lagging" "lying";
    check_states: "executed" "told" "diverged";
    periods: "minute" "hour" "day";
    submission_states: "pending" "finalized" "refused";
    transaction_states: "finalized" "failed" "pending" "dropped";
    roles: "sender" "receiver" "both";
    view_states: "finalized" "nullified" "skipped";
    sources: "certificate" "chain";
    vote_sources: "certificate" "observed";
    hit_kinds: "block" "view" "transaction" "account" "validator";
    outcomes: "applied" "wrong_nonce" "cannot_pay_fee" "insufficient_balance" "no_registry" "bad_operation"
        "already_bonded" "not_bonded" "stake_too_small" "bad_possession" "nothing_to_withdraw" "bad_evidence"
        "already_punished" "wrong_registry" "not_acting" "wrong_phase" "bad_dealing" "bad_complaint" "bad_share" "no_payloads";
    operations: "bond" "add_stake" "unbond" "withdraw" "rotate_key" "describe" "accuse" "report" "announce" "deal"
        "object" "prove";
    divergences: "state_root" "validators";
    finalized_type: "finalized";
    notarized_type: "notarized";
    nullified_type: "nullified";
    stats_type: "stats";
    gap_type: "gap";
    pruned_type: "pruned";
    transaction_type: "transaction";
}

fn nullable_divergences() -> RefOr<Schema> {
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .item(divergences())
        .into()
}

/// An error (RFC 9457), as `application/problem+json`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Where the error is documented.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status as text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// A short, stable error code.
    pub code: String,
    /// What is wrong.
    pub detail: String,
}

/// Identifies the chain.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChainInfo {
    /// The chain's name, for display.
    pub name: String,
    /// The hash of the genesis content.
    pub chain_id: Hex,
    /// The vote scheme: `bls-threshold` or `bls-aggregate`.
    pub scheme: String,
    /// The protocol: `simplex`, `hotstuff-chained`, `hotstuff-basic` or `pbft`.
    pub protocol: String,
    /// Number of validators.
    pub validators: u32,
}

/// The newest final block in the explorer's index.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Tip {
    /// The block's height.
    pub height: Number,
    /// The block's id.
    pub id: Hex,
    /// The epoch in which it was proposed.
    pub epoch: Number,
    /// The view in which it was proposed.
    pub view: Number,
    /// How long the explorer has had the block, in milliseconds by its own clock.
    pub age_ms: Number,
}

/// A validator from which the explorer reads.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStatus {
    /// The validator's HTTP address.
    pub url: String,
    /// `following`, `standby`, `failing` (it does not answer), `lagging` (it has no new blocks) or
    /// `lying` (an answer failed verification).
    #[schema(schema_with = upstream_states)]
    pub state: String,
    /// The newest height that the validator claims.
    #[schema(required)]
    pub height: Option<Number>,
    /// The last error.
    #[schema(required)]
    pub error: Option<String>,
}

/// How far transaction outcomes have been checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OutcomeChecks {
    /// `executed` (the explorer executes every block from the genesis accounts and compares each
    /// state root in a final header), `told` (outcomes are as reported by a validator), or
    /// `diverged`.
    #[schema(schema_with = check_states)]
    pub state: String,
    /// Outcomes of blocks up to this height were executed here, and a final header confirms the
    /// resulting state.
    pub checked_to: Number,
    /// Number of outcomes that a validator had reported differently, and that were replaced.
    pub corrected: Number,
    /// The block from which on outcomes are not checked, because this explorer and a quorum disagree.
    #[schema(required)]
    pub diverged_at: Option<Number>,
    /// What they disagree on: `state_root` (the header names another state than the executed one) or
    /// `validators` (handovers prove other validators of its epoch than the executed blocks lead to).
    #[schema(schema_with = nullable_divergences, required)]
    pub diverged_by: Option<String>,
}

/// Totals over the chain.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Transactions in all blocks that this explorer has indexed.
    pub transactions: Number,
    /// Number of accounts after the newest executed block; `null` if blocks are not executed here.
    #[schema(required)]
    pub accounts: Option<Number>,
    /// The sum of all balances and stakes, which never changes; `null` if blocks are not executed here.
    #[schema(required)]
    pub supply: Option<Number>,
}

/// The explorer's status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The chain.
    pub chain: ChainInfo,
    /// The explorer's version.
    pub version: String,
    /// The newest final block; `null` while the index is empty.
    #[schema(required)]
    pub tip: Option<Tip>,
    /// The lowest height in the index.
    #[schema(required)]
    pub oldest: Option<Number>,
    /// Number of blocks beyond the tip that the followed validator claims.
    pub lag: Number,
    /// Whether a validator is followed and no block is known to be missing.
    pub caught_up: bool,
    /// Maximum age of the newest block before the chain counts as stalled, in milliseconds: the
    /// median of the values that the upstream validators report.
    #[serde(default)]
    pub patience_ms: Number,
    /// Totals over the chain.
    #[serde(default)]
    pub totals: Totals,
    /// How far outcomes have been checked.
    #[serde(default)]
    pub outcomes: OutcomeChecks,
    /// The validators from which the explorer reads.
    pub upstreams: Vec<UpstreamStatus>,
    /// Uptime of the process in milliseconds.
    pub uptime_ms: Number,
    /// Number of open streams.
    pub streams: u32,
}

/// A block's summary.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    /// The block's height.
    pub height: Number,
    /// The block's id.
    pub id: Hex,
    /// The parent's id.
    pub parent: Hex,
    /// The epoch in which it was proposed.
    pub epoch: Number,
    /// The view in which it was proposed.
    pub view: Number,
    /// The validator that proposed it, by its index in the committee.
    pub leader: u32,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: Number,
    /// Number of transactions.
    pub transactions: u32,
    /// Size of the encoding in bytes.
    pub bytes: Number,
    /// The height of the block whose own finalization makes this block final.
    pub finalized_by: Number,
}

/// A block's height and id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockName {
    /// The height.
    pub height: Number,
    /// The id.
    pub id: Hex,
}

/// Proof that a block is final.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finality {
    /// The block that the certificate finalizes: this one or a descendant.
    pub finalized_by: BlockName,
    /// Encoded headers from the next block to the finalized one; empty if it is this block.
    pub headers: Vec<Hex>,
    /// The encoded finalization.
    pub certificate: Hex,
    /// The signers' indices in the committee, with `bls-aggregate`.
    #[schema(required)]
    pub signers: Option<Vec<u32>>,
}

/// A block with its header fields and finality.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockDetail {
    /// The block's summary.
    #[serde(flatten)]
    pub summary: BlockSummary,
    /// The view in which the parent was notarized.
    pub parent_view: Number,
    /// The height whose state the header commits to.
    pub executed_height: Number,
    /// The root of that state.
    pub state_root: Hex,
    /// The Merkle root of the transactions.
    pub body_root: Hex,
    /// The encoded header; its SHA-256 is the id.
    pub header: Hex,
    /// The encoded block.
    pub block: Hex,
    /// Proof that the block is final.
    pub finality: Finality,
}

/// Proof that a block is final, with the block's header.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockCertificate {
    /// The block's height.
    pub height: Number,
    /// The block's id.
    pub id: Hex,
    /// The encoded header.
    pub header: Hex,
    /// Proof that the block is final.
    #[serde(flatten)]
    pub finality: Finality,
}

/// A page of blocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockPage {
    /// The blocks.
    pub data: Vec<BlockSummary>,
    /// Link to the previous page, in the same order.
    #[schema(required)]
    pub prev: Option<String>,
    /// Link to the next page.
    #[schema(required)]
    pub next: Option<String>,
    /// The newest height.
    pub tip: Number,
}

/// A transaction in a block.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockTransaction {
    /// The transaction's id.
    pub id: Hex,
    /// The account that pays.
    pub sender: Hex,
    /// The sender's nonce.
    pub nonce: Number,
    /// The account that receives.
    pub to: Hex,
    /// The amount that it receives.
    pub amount: Number,
    /// The fee for the block's leader.
    pub fee: Number,
    /// Arbitrary bytes for the two accounts; omitted if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub memo: Option<Hex>,
    /// What a transfer to the staking registry does, as its memo says; omitted for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub operation: Option<RegistryOperation>,
    /// The sender's signature.
    pub signature: Hex,
    /// The block's height.
    pub height: Number,
    /// Its index in the block, from 0.
    pub index: u32,
    /// `applied`, or why not. Those from `no_registry` on are of operations of the staking registry.
    #[schema(schema_with = outcomes)]
    pub outcome: String,
    /// Whether this explorer has executed the block itself and a final header confirms the result;
    /// otherwise `outcome` is as reported by a validator.
    #[serde(default)]
    pub outcome_checked: bool,
    /// The block's time: its leader's clock, in milliseconds since 1970.
    pub timestamp_ms: Number,
}

/// A page of a block's transactions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionPage {
    /// The transactions.
    pub data: Vec<BlockTransaction>,
    /// Link to the next page.
    #[schema(required)]
    pub next: Option<String>,
    /// Total number of transactions in the block.
    pub total: u32,
}

/// The newest transactions of the chain, or those before a position or a time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionList {
    /// The transactions, newest first.
    pub data: Vec<BlockTransaction>,
    /// Link to the next page, with older transactions.
    #[schema(required)]
    pub next: Option<String>,
}

/// Sums over a minute, an hour or a day, by the leaders' clocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// Start of the period, in milliseconds since 1970.
    pub time_ms: Number,
    /// Number of final blocks.
    pub blocks: Number,
    /// Number of their transactions.
    pub transactions: Number,
    /// Total size of their encodings in bytes.
    pub bytes: Number,
}

/// Sums over time, oldest first. Periods without blocks are left out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// `minute`, `hour` or `day`.
    #[schema(schema_with = periods)]
    pub step: String,
    /// The length of a period in milliseconds.
    pub step_ms: Number,
    /// The sums. The last period may not have ended yet.
    pub data: Vec<HistoryPoint>,
}

/// Signed transfers to submit to a validator.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The encodings of at most 16 signed transfers.
    #[schema(max_items = 16)]
    pub hex: Vec<Hex>,
}

/// A validator's response to one transfer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionResult {
    /// The transaction's id, computed here.
    pub id: Hex,
    /// `pending`, `finalized` or `refused`, as reported by the validator.
    #[schema(schema_with = submission_states)]
    pub state: String,
    /// Why it was refused.
    #[schema(required)]
    pub error: Option<String>,
}

/// A validator's responses to transfers, in the order of submission.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionResults {
    /// One result per transfer.
    pub results: Vec<SubmissionResult>,
    /// The address of the validator that responded.
    pub by: String,
}

/// Stream event: a block became final.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FinalizedEvent {
    /// `finalized`.
    #[serde(rename = "type")]
    #[schema(schema_with = finalized_type)]
    pub kind: String,
    /// The height, which is also the event's id.
    pub height: Number,
    /// The block's summary.
    pub block: BlockSummary,
    /// The encoded header.
    pub header: Hex,
    /// Proof that the block is final.
    pub finality: Finality,
}

/// Stream event: a verified notarization. Its block is not final yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotarizedEvent {
    /// `notarized`.
    #[serde(rename = "type")]
    #[schema(schema_with = notarized_type)]
    pub kind: String,
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// The block's id.
    pub id: Hex,
    /// The notarization's encoding.
    pub certificate: Hex,
}

/// Stream event: a verified nullification.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NullifiedEvent {
    /// `nullified`.
    #[serde(rename = "type")]
    #[schema(schema_with = nullified_type)]
    pub kind: String,
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// The leader of the view, by its index in the committee.
    pub leader: u32,
    /// The encoded nullification.
    pub certificate: Hex,
    /// The reason, as reported by a validator.
    pub reason: String,
}

/// Stream event: statistics of the last minute, sent once a second.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatsEvent {
    /// `stats`.
    #[serde(rename = "type")]
    #[schema(schema_with = stats_type)]
    pub kind: String,
    /// The newest final height.
    pub tip: Number,
    /// The statistics.
    #[serde(flatten)]
    pub stats: Stats,
}

/// Stream event: the client was too slow for these blocks, or the explorer left them out. Fetch
/// them by REST.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GapEvent {
    /// `gap`.
    #[serde(rename = "type")]
    #[schema(schema_with = gap_type)]
    pub kind: String,
    /// The first missing height.
    pub from: Number,
    /// The last missing height.
    pub to: Number,
}

/// Stream event: history begins later than requested; the stream continues from there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrunedEvent {
    /// `pruned`.
    #[serde(rename = "type")]
    #[schema(schema_with = pruned_type)]
    pub kind: String,
    /// The lowest available height.
    pub oldest: Number,
}

/// Stream event: a final transaction of the subscribed account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionEvent {
    /// `transaction`.
    #[serde(rename = "type")]
    #[schema(schema_with = transaction_type)]
    pub kind: String,
    /// The transaction.
    #[serde(flatten)]
    pub transaction: AccountTransaction,
}

/// Any event of a stream; `type` identifies it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamEvent {
    /// A final block.
    Finalized(FinalizedEvent),
    /// A notarization.
    Notarized(NotarizedEvent),
    /// A nullification.
    Nullified(NullifiedEvent),
    /// Statistics.
    Stats(StatsEvent),
    /// Blocks that the stream leaves out.
    Gap(GapEvent),
    /// The lowest available height.
    Pruned(PrunedEvent),
    /// A transaction of the account.
    Transaction(TransactionEvent),
}

/// A transaction in any state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TransactionDetail {
    /// `finalized`, `failed` (in a final block, but not applied), `pending` (it waits at a
    /// validator, or this explorer does not have its final block yet) or `dropped` (a validator had
    /// accepted it and no longer has it). The last two are as reported by validators.
    #[schema(schema_with = transaction_states)]
    pub state: String,
    /// The transaction's id.
    pub id: Hex,
    /// If failed or dropped: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// If pending: the sender's nonce that must come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub waits_for_nonce: Option<Number>,
    /// If pending behind an earlier nonce: when the validator drops it, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_in_ms: Option<Number>,
    /// The account that pays. This and the following fields are present if a final block holds the
    /// transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sender: Option<Hex>,
    /// The sender's nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub nonce: Option<Number>,
    /// The account that receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub to: Option<Hex>,
    /// The amount that it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub amount: Option<Number>,
    /// The fee for the block's leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fee: Option<Number>,
    /// Arbitrary bytes for the two accounts, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub memo: Option<Hex>,
    /// What a transfer to the staking registry does, as its memo says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub operation: Option<RegistryOperation>,
    /// The sender's signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub signature: Option<Hex>,
    /// The block's height.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub height: Option<Number>,
    /// Its index in the block, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub index: Option<u32>,
    /// `applied`, or why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome: Option<String>,
    /// Whether this explorer has executed the block itself and a final header confirms the result;
    /// otherwise `outcome` is as reported by a validator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub outcome_checked: Option<bool>,
    /// The block's time: its leader's clock, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timestamp_ms: Option<Number>,
    /// The block's header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub header: Option<Hex>,
    /// Proof that the block is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub finality: Option<Finality>,
}

/// A proof that a block holds a transaction (RFC 9162, section 2.1.3).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionProof {
    /// The transaction's id.
    pub id: Hex,
    /// The block's height.
    pub height: Number,
    /// Its index in the block.
    pub index: u32,
    /// Number of transactions in the block.
    pub count: u32,
    /// The encoded transaction; its SHA-256 is the leaf.
    pub transaction: Hex,
    /// The sibling hashes, from the leaf up.
    pub siblings: Vec<Hex>,
    /// The block's header.
    pub header: Hex,
    /// The header field that the proof leads to.
    pub root_field: String,
    /// Proof that the block is final.
    pub finality: Finality,
}

/// A transaction of an account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountTransaction {
    /// The transaction.
    #[serde(flatten)]
    pub transaction: BlockTransaction,
    /// The account's role in it: `sender`, `receiver` or `both`.
    #[schema(schema_with = roles)]
    pub role: String,
}

/// A page of an account's transactions, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountPage {
    /// The transactions.
    pub data: Vec<AccountTransaction>,
    /// Link to the next page.
    #[schema(required)]
    pub next: Option<String>,
}

/// A final header with its own finalization.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Anchor {
    /// The block's height.
    pub height: Number,
    /// The block's id.
    pub id: Hex,
    /// The header's encoding.
    pub header: Hex,
    /// The encoded certificate that finalizes exactly this header.
    pub certificate: Hex,
}

/// An entry in a leaf of the state tree.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeafEntry {
    /// The hash of an account's identity.
    pub key: Hex,
    /// The account's encoding.
    pub value: Hex,
}

/// A proof of an account's state, or of its absence.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountProof {
    /// SHA-256 of the identity.
    pub key: Hex,
    /// The encoded account (17 bytes without a bond); `null` if it does not exist.
    #[schema(required)]
    pub value: Option<Hex>,
    /// The sibling hashes, from the root down.
    pub siblings: Vec<Hex>,
    /// All entries of the leaf to which the key belongs.
    pub leaf: Vec<LeafEntry>,
    /// The proof in the encoding that `quorate account` reads.
    pub encoded: Hex,
    /// The final header that contains the root.
    pub anchor: Anchor,
    /// The height after which this is the state.
    pub executed_height: Number,
    /// The root that the proof leads to.
    pub root: Hex,
    /// The header field that holds the root.
    pub root_field: String,
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountDetail {
    /// The account's identity.
    pub identity: Hex,
    /// Whether it was ever paid.
    pub exists: bool,
    /// The account's balance.
    pub balance: Number,
    /// Its next nonce.
    pub nonce: Number,
    /// What it has at stake; `null` if nothing. Part of what is proven.
    #[schema(required)]
    pub bond: Option<Bond>,
    /// Whether it was punished, and cannot be chosen before epoch `since` of its bond; by what this explorer has
    /// executed. `null` without a bond, or if this explorer executes no blocks.
    #[schema(required)]
    pub jailed: Option<bool>,
    /// The proof.
    pub proof: AccountProof,
}

/// A view: one attempt, by one leader, to extend the chain.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ViewDetail {
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// The view's leader, by its index in the committee.
    pub leader: u32,
    /// `finalized` (its block is in the chain), `nullified` (a verified nullification was observed)
    /// or `skipped` (the chain continues without it, and no certificate was observed).
    #[schema(schema_with = view_states)]
    pub state: String,
    /// Its block.
    #[schema(required)]
    pub block: Option<BlockSummary>,
    /// The view's own certificate: a finalization or a nullification.
    #[schema(required)]
    pub certificate: Option<Hex>,
    /// If nullified: the reason that a validator observed, `no_valid_proposal_in_time`,
    /// `no_quorum_in_time` or `unknown`.
    #[schema(required)]
    pub reason: Option<String>,
    /// The source of the state: `certificate` or `chain` (the header of a later block).
    #[schema(schema_with = sources)]
    pub source: String,
}

/// How often a validator was seen voting.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Participation {
    /// `certificate`: finalizations name their signers. `observed`: they do not, so only the votes
    /// that validators have recently received are known.
    #[schema(schema_with = vote_sources)]
    pub source: String,
    /// Number of finalizations that it signed.
    #[schema(required)]
    pub signed: Option<Number>,
    /// Number of finalizations examined.
    #[schema(required)]
    pub of: Option<Number>,
    /// `signed` as a percentage of `of`.
    #[schema(required)]
    pub percent: Option<f64>,
    /// The newest epoch and view in which an upstream validator has received a vote from it.
    #[schema(required, min_items = 2, max_items = 2)]
    pub last_vote: Option<[Number; 2]>,
    /// The newest epoch and view in which one has received a vote from any validator, as of when it was asked: `last_vote`
    /// is old if it is far below this, and not if it is far below the tip.
    #[schema(required, min_items = 2, max_items = 2)]
    pub newest_vote: Option<[Number; 2]>,
}

/// Verified evidence: two votes that an honest validator never casts together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EvidenceItem {
    /// Identifies the pair.
    pub id: Hex,
    /// The validator that signed both votes, by its index in the committee.
    pub validator: u32,
    /// `two_notarize`, `two_finalize`, `finalize_and_nullify` or `notarize_and_finalize`.
    pub conflict: String,
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// The two encoded votes, 150 bytes each.
    pub hex: Hex,
}

/// A validator that blocks the validator in question.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockedBy {
    /// The address of the blocking validator.
    pub by: String,
    /// The reason that it reports.
    pub reason: String,
}

/// A validator in an epoch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ValidatorDetail {
    /// Its index in the committee.
    pub index: u32,
    /// The validator's identity.
    pub identity: Hex,
    /// Its vote key, a compressed point of G2.
    pub vote_key: Hex,
    /// Its number of votes in a quorum.
    pub votes: u32,
    /// What it has at stake after the newest executed block; `null` if nothing, if this explorer does not execute
    /// blocks, and on chains without a staking registry. It does not change its number of votes.
    #[schema(required)]
    pub stake: Option<Number>,
    /// Number of views of the epoch that it led, up to the tip.
    pub led: Number,
    /// How many of these have a final block.
    pub blocks: Number,
    /// How many of these have no final block.
    pub missed: Number,
    /// Number of views that it led for which a nullification was observed. Some of them still have
    /// a final block, finalized by a later block that extends it, so this can exceed `missed`.
    pub nullified: Number,
    /// How often it was seen voting.
    pub participation: Participation,
    /// Evidence against it, in any epoch.
    pub evidence: Vec<EvidenceItem>,
    /// The validators that block it.
    pub blocked: Vec<BlockedBy>,
}

/// The validators of an epoch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ValidatorSet {
    /// The epoch.
    pub epoch: Number,
    /// The vote scheme.
    pub scheme: String,
    /// Number of votes that make a quorum.
    pub quorum: u32,
    /// The validators in committee order.
    pub data: Vec<ValidatorDetail>,
}

/// The median and the 99th percentile of some measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Statistics of the newest blocks, by the explorer's own clock.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// The requested window.
    pub window: String,
    /// How many seconds were actually observed.
    pub seconds: f64,
    /// Number of blocks that became final.
    pub blocks: Number,
    /// Number of their transactions, including failed ones.
    pub transactions: Number,
    /// Number of their transactions that were not applied.
    pub failed_transactions: Number,
    /// Blocks per second.
    pub blocks_per_second: f64,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// Time between consecutive final blocks, in milliseconds.
    #[schema(required)]
    pub block_time_ms: Option<Quantiles>,
    /// Time from a block's notarization to its finalization, in milliseconds.
    #[schema(required)]
    pub finality_ms: Option<Quantiles>,
    /// Block sizes in bytes.
    #[schema(required)]
    pub block_bytes: Option<Quantiles>,
    /// Number of observed nullifications.
    pub nullified: Number,
    /// Whose clock was used: `explorer`.
    pub clock: String,
}

/// A search result.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    /// `block`, `view`, `transaction`, `account` or `validator`.
    #[schema(schema_with = hit_kinds)]
    pub kind: String,
    /// The path of the resource.
    pub href: String,
    /// A label for display.
    pub label: String,
}

/// Changes of the validators. The same shape as a node's answer, so that a trust file can be moved forward with
/// either.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Handovers {
    /// The epoch of the newest final block.
    pub epoch: u64,
    /// The changes, the oldest first.
    pub handovers: Vec<HandoverItem>,
}

/// A change of the validators, with what proves it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HandoverItem {
    /// The first epoch of the new validators.
    pub epoch: u64,
    /// The encoding: `docs/FORMATS.md`, Handover.
    pub handover: String,
}

/// What a transfer to the staking registry does. Each operation has the fields that it takes; the stake of `bond` and
/// `add_stake` is the transfer's amount. A `report` without stake, key, address and name says that the registry outside
/// the chain has no such validator.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RegistryOperation {
    /// `bond`, `add_stake`, `unbond`, `withdraw`, `rotate_key`, `describe`, `accuse` or `report`.
    #[schema(schema_with = operations)]
    pub kind: String,
    /// `unbond`: how much is taken out. `report`: what the validator has at stake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stake: Option<Number>,
    /// `bond`, `rotate_key`, `report`: the vote key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub vote_key: Option<Hex>,
    /// `bond`, `describe`, `report`: where the validator can be reached. Printable ASCII of its operator's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub address: Option<String>,
    /// `bond`, `describe`, `report`: what people call it. Printable ASCII of its operator's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
    /// `accuse`: the accused validator. `report`: whom it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub validator: Option<Hex>,
    /// `accuse`: the two encoded votes, 150 bytes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub evidence: Option<Hex>,
}

/// What an account has at stake, and the validator that it stands for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Bond {
    /// The account, which is the validator's identity.
    pub identity: Hex,
    /// What counts, in the chain's smallest unit.
    pub stake: Number,
    /// What was unbonded and is still held.
    pub leaving: Number,
    /// The first epoch in which `leaving` may be withdrawn.
    pub leaves_at: Number,
    /// The first epoch in which it can be chosen, for the next one.
    pub since: Number,
    /// The key of its votes, a compressed point of G2.
    pub vote_key: Hex,
    /// Where it can be reached. Printable ASCII of its operator's choice.
    pub address: String,
    /// What people call it. Printable ASCII of its operator's choice.
    pub name: String,
}

/// A bond in the registry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryBond {
    #[serde(flatten)]
    pub bond: Bond,
    /// Whether it was punished, and cannot be chosen before epoch `since`.
    pub jailed: bool,
}

/// A validator of an epoch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryMember {
    /// Its identity.
    pub identity: Hex,
    /// The key of its votes in that epoch.
    pub vote_key: Hex,
    /// Where it can be reached; empty if the registry does not say.
    pub address: String,
    /// What people call it; may be empty.
    pub name: String,
}

/// The registry's rules, from the genesis file.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryLimits {
    /// The least stake of a bond.
    pub min_stake: Number,
    /// The most validators of an epoch.
    pub max_validators: u32,
    /// For how many epochs stake is held after it was unbonded.
    pub unbond_epochs: Number,
    /// How equivocation is punished; `null` if it is not.
    #[schema(required)]
    pub slashing: Option<RegistrySlashing>,
}

/// How equivocation is punished.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistrySlashing {
    /// How much of what is at stake or held is taken, in percent.
    pub percent: u8,
    /// For how many epochs the validator cannot be chosen.
    pub jail_epochs: Number,
}

/// The staking registry, as the blocks that this explorer has executed leave it. The fields are those of a
/// validator's `/v1/registry`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryDetail {
    /// The block after which the state has these values.
    pub executed_height: Number,
    /// Final headers confirm the explorer's state up to this height.
    pub checked_to: Number,
    /// The epoch of the next block.
    pub epoch: Number,
    /// The block whose state fixes the validators of the next epoch.
    pub fixing_height: Number,
    /// The last block of the epoch.
    pub last_height: Number,
    /// The registry's rules.
    pub rules: RegistryLimits,
    /// The validators of the epoch, in the committee's order.
    pub acting: Vec<RegistryMember>,
    /// The validators of the next epoch, once they are fixed.
    #[schema(required)]
    pub coming: Option<Vec<RegistryMember>>,
    /// Everything that is bonded, by stake: the greatest first.
    pub bonds: Vec<RegistryBond>,
}

/// The starting point of a light client.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Bootstrap {
    /// The content of the trust file. Compare it with a copy from an independent source.
    #[schema(value_type = Object)]
    pub trust: serde_json::Value,
    /// The newest block that has its own finalization.
    pub latest: Anchor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonware_codec::{Copying, DecodeExt};
    use quorate_types::Outcome;

    #[test]
    fn every_outcome_is_in_the_schema() {
        let schema = serde_json::to_string(&outcomes()).expect("text keys");
        let all = (0..=u8::MAX).filter_map(|code| Outcome::decode(Copying(&[code])).ok());
        for outcome in all {
            let name = format!("\"{}\"", outcome.name());
            assert!(schema.contains(&name), "{name}");
        }
    }
}
