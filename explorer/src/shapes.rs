//! The shapes of the explorer's interface, for both of its sides.
//!
//! Numbers of 64 bits are decimal text, because browsers read JSON numbers as 53 bits; bytes are
//! hexadecimal text after `0x`.

use quorate_types::{Digest, Identity};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

/// A number of 64 bits, as decimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(pub u64);

/// Bytes, as hexadecimal text after `0x`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hex(pub Vec<u8>);

impl Hex {
    /// The 32 bytes that this must be.
    pub fn digest(&self) -> Option<Digest> {
        self.0.as_slice().try_into().ok().map(Digest)
    }

    /// The 32 bytes that this must be.
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

/// What every error looks like (RFC 9457), as `application/problem+json`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Where the error is described.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// A short name that does not change.
    pub code: String,
    /// What is wrong.
    pub detail: String,
}

/// Which chain this is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChainInfo {
    /// Its name, for people.
    pub name: String,
    /// The hash of its genesis content.
    pub chain_id: Hex,
    /// The vote scheme: `bls-threshold` or `bls-aggregate`.
    pub scheme: String,
    /// How many validators there are.
    pub validators: u32,
}

/// The newest final block that the explorer shows.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Tip {
    /// Its height.
    pub height: Number,
    /// Its id.
    pub id: Hex,
    /// The epoch that it was proposed in.
    pub epoch: Number,
    /// The view that it was proposed in.
    pub view: Number,
    /// Since when it is shown, in milliseconds by this explorer's own clock.
    pub age_ms: Number,
}

/// A validator that the explorer reads from.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStatus {
    /// Its HTTP address.
    pub url: String,
    /// `following`, `standby`, `failing` (no answer), `lagging` (nothing new) or `lying` (an answer
    /// that does not verify).
    pub state: String,
    /// The newest height that it claims.
    pub height: Option<Number>,
    /// What was wrong with it last.
    pub error: Option<String>,
}

/// How far the outcomes of transactions are checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OutcomeChecks {
    /// `executed` (every block is executed here from the genesis accounts, and each state that a
    /// final header names is compared), `told` (outcomes are what a validator says), or `diverged`.
    pub state: String,
    /// Outcomes of blocks up to this height were executed here, and a final header confirms the
    /// state.
    pub checked_to: Number,
    /// Outcomes that a validator told otherwise, and that were replaced.
    pub corrected: Number,
    /// The block whose header names another state than executing leads to.
    pub diverged_at: Option<Number>,
}

/// What the chain holds altogether.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Transactions in all blocks that this explorer has taken in.
    pub transactions: Number,
    /// Accounts after the newest executed block; `null` if blocks are not executed here.
    pub accounts: Option<Number>,
    /// The sum of all balances, which never changes; `null` if blocks are not executed here.
    pub supply: Option<Number>,
}

/// How the explorer is doing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The chain.
    pub chain: ChainInfo,
    /// The program's version.
    pub version: String,
    /// The newest final block; none while the index is empty.
    pub tip: Option<Tip>,
    /// The oldest height in the index.
    pub oldest: Option<Number>,
    /// Blocks that the followed validator claims beyond the tip.
    pub lag: Number,
    /// Whether nothing is known to be missing.
    pub caught_up: bool,
    /// How old the newest block may be before the chain is taken to stand, in milliseconds: the median of
    /// what the validators that are read from say.
    #[serde(default)]
    pub patience_ms: Number,
    /// What the chain holds altogether.
    #[serde(default)]
    pub totals: Totals,
    /// How far outcomes are checked.
    #[serde(default)]
    pub outcomes: OutcomeChecks,
    /// The validators that are read from.
    pub upstreams: Vec<UpstreamStatus>,
    /// How long the process lives.
    pub uptime_ms: Number,
    /// Open streams.
    pub streams: u32,
}

/// A block in short.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    /// Its height.
    pub height: Number,
    /// Its id.
    pub id: Hex,
    /// Its parent's id.
    pub parent: Hex,
    /// The epoch that it was proposed in.
    pub epoch: Number,
    /// The view that it was proposed in.
    pub view: Number,
    /// The validator that proposed it.
    pub leader: u32,
    /// The leader's clock, in milliseconds since 1970.
    pub timestamp_ms: Number,
    /// How many transactions it holds.
    pub transactions: u32,
    /// Bytes of its encoding.
    pub bytes: Number,
    /// The height of the block whose own finalization makes it final.
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

/// What makes a block final.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finality {
    /// The block that the certificate finalises: this one or a descendant.
    pub finalized_by: BlockName,
    /// The headers' encodings from the next block to that one; empty if it is this one.
    pub headers: Vec<Hex>,
    /// The finalization's encoding.
    pub certificate: Hex,
    /// Who signed it, with `bls-aggregate`.
    pub signers: Option<Vec<u32>>,
}

/// A block.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockDetail {
    /// The block in short.
    #[serde(flatten)]
    pub summary: BlockSummary,
    /// The view that notarized the parent.
    pub parent_view: Number,
    /// The height whose state it names.
    pub executed_height: Number,
    /// That state's root.
    pub state_root: Hex,
    /// The Merkle root of its transactions.
    pub body_root: Hex,
    /// The header's encoding; its SHA-256 is the id.
    pub header: Hex,
    /// The block's encoding.
    pub block: Hex,
    /// What makes it final.
    pub finality: Finality,
}

/// What makes a block final, with its own header.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockCertificate {
    /// The block's height.
    pub height: Number,
    /// Its id.
    pub id: Hex,
    /// Its header's encoding.
    pub header: Hex,
    /// What makes it final.
    #[serde(flatten)]
    pub finality: Finality,
}

/// A page of blocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockPage {
    /// The blocks.
    pub data: Vec<BlockSummary>,
    /// The page before, in the same order.
    pub prev: Option<String>,
    /// The page after.
    pub next: Option<String>,
    /// The newest height.
    pub tip: Number,
}

/// A transaction in a block.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockTransaction {
    /// Its id.
    pub id: Hex,
    /// The account that pays.
    pub sender: Hex,
    /// The sender's number for it.
    pub nonce: Number,
    /// The account that receives.
    pub to: Hex,
    /// How much it receives.
    pub amount: Number,
    /// What the block's leader receives.
    pub fee: Number,
    /// Bytes for the two accounts; left out if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memo: Option<Hex>,
    /// The sender's signature.
    pub signature: Hex,
    /// The block's height.
    pub height: Number,
    /// Its place in the block, from 0.
    pub index: u32,
    /// `applied`, `wrong_nonce`, `cannot_pay_fee` or `insufficient_balance`.
    pub outcome: String,
    /// Whether this explorer has executed the block itself and a final header confirms it; otherwise
    /// `outcome` is what a validator says.
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
    /// The page after.
    pub next: Option<String>,
    /// How many there are in all.
    pub total: u32,
}

/// The newest transactions of the chain, or those before a place or a time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionList {
    /// The transactions, newest first.
    pub data: Vec<BlockTransaction>,
    /// The page after, with older ones.
    pub next: Option<String>,
}

/// Sums over a minute, an hour or a day, by the leaders' clocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// When it begins, in milliseconds since 1970.
    pub time_ms: Number,
    /// Final blocks.
    pub blocks: Number,
    /// Their transactions.
    pub transactions: Number,
    /// Bytes of their encodings.
    pub bytes: Number,
}

/// Sums over time, oldest first. Periods without blocks are left out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// `minute`, `hour` or `day`.
    pub step: String,
    /// The length of a period in milliseconds.
    pub step_ms: Number,
    /// The sums; the last one may be of a period that has not ended.
    pub data: Vec<HistoryPoint>,
}

/// Signed transfers to hand to a validator.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The encodings of at most 16 signed transfers.
    #[schema(max_items = 16)]
    pub hex: Vec<Hex>,
}

/// What a validator made of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionResult {
    /// Its id, computed here.
    pub id: Hex,
    /// `pending`, `finalized` or `refused`, as the validator says.
    pub state: String,
    /// Why it is refused.
    pub error: Option<String>,
}

/// What a validator made of transfers, in their order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionResults {
    /// One for each.
    pub results: Vec<SubmissionResult>,
    /// The address of the validator that says so.
    pub by: String,
}

/// A final block, in a stream.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FinalizedEvent {
    /// `finalized`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The height, which is also the event's id.
    pub height: Number,
    /// The block in short.
    pub block: BlockSummary,
    /// The header's encoding.
    pub header: Hex,
    /// What makes it final.
    pub finality: Finality,
}

/// A verified notarization, in a stream. Its block is not final yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotarizedEvent {
    /// `notarized`.
    #[serde(rename = "type")]
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

/// A verified nullification, in a stream.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NullifiedEvent {
    /// `nullified`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// Who led it.
    pub leader: u32,
    /// The nullification's encoding.
    pub certificate: Hex,
    /// Why, as a validator says.
    pub reason: String,
}

/// The figures of the newest minute, in a stream, once a second.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatsEvent {
    /// `stats`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The newest final height.
    pub tip: Number,
    /// The figures.
    #[serde(flatten)]
    pub stats: Stats,
}

/// The client was too slow for these blocks, or the explorer left them out: fetch them by REST.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GapEvent {
    /// `gap`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The first height that is missing.
    pub from: Number,
    /// The last one.
    pub to: Number,
}

/// History begins later than what was asked for; the stream goes on from there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrunedEvent {
    /// `pruned`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The oldest height.
    pub oldest: Number,
}

/// A final transaction of the account that a stream is about.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionEvent {
    /// `transaction`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The transaction.
    #[serde(flatten)]
    pub transaction: AccountTransaction,
}

/// Any event of a stream; `type` tells which.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamEvent {
    /// A final block.
    Finalized(FinalizedEvent),
    /// A notarization.
    Notarized(NotarizedEvent),
    /// A nullification.
    Nullified(NullifiedEvent),
    /// Figures.
    Stats(StatsEvent),
    /// Blocks that the stream leaves out.
    Gap(GapEvent),
    /// Where history begins.
    Pruned(PrunedEvent),
    /// A transaction of the account.
    Transaction(TransactionEvent),
}

/// A transaction, wherever it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TransactionDetail {
    /// `finalized`, `failed` (in a final block, but not applied), `pending` (it waits at a validator, or
    /// its final block is on its way to this explorer) or `dropped` (a validator had accepted it and
    /// keeps it no longer). The last two are validators' words.
    pub state: String,
    /// Its id.
    pub id: Hex,
    /// Of one that failed or was dropped, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a pending one: the sender's nonce that must come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_nonce: Option<Number>,
    /// Of such a one: when the validator drops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<Number>,
    /// The account that pays. This and the following are there if a final block holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Hex>,
    /// The sender's number for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Number>,
    /// The account that receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Hex>,
    /// How much it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Number>,
    /// What the block's leader receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fee: Option<Number>,
    /// Bytes for the two accounts, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memo: Option<Hex>,
    /// The sender's signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Hex>,
    /// The block's height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<Number>,
    /// Its place in the block, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `applied`, `wrong_nonce`, `cannot_pay_fee` or `insufficient_balance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Whether this explorer has executed the block itself and a final header confirms it; otherwise
    /// `outcome` is what a validator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_checked: Option<bool>,
    /// The block's time: its leader's clock, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<Number>,
    /// The block's header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Hex>,
    /// What makes the block final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finality: Option<Finality>,
}

/// A proof that a block holds a transaction (RFC 9162, section 2.1.3).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TransactionProof {
    /// The transaction's id.
    pub id: Hex,
    /// The block's height.
    pub height: Number,
    /// Its place in the block.
    pub index: u32,
    /// How many transactions the block holds.
    pub count: u32,
    /// The transaction's encoding; its SHA-256 is the leaf.
    pub transaction: Hex,
    /// The hashes beside the way, from the leaf up.
    pub siblings: Vec<Hex>,
    /// The block's header.
    pub header: Hex,
    /// The header's field that the proof leads to.
    pub root_field: String,
    /// What makes the block final.
    pub finality: Finality,
}

/// A transaction of an account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountTransaction {
    /// The transaction.
    #[serde(flatten)]
    pub transaction: BlockTransaction,
    /// The account's part in it: `sender`, `receiver` or `both`.
    pub role: String,
}

/// A page of an account's transactions, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountPage {
    /// The transactions.
    pub data: Vec<AccountTransaction>,
    /// The page after.
    pub next: Option<String>,
}

/// A final header with its own finalization.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Anchor {
    /// The block's height.
    pub height: Number,
    /// Its id.
    pub id: Hex,
    /// The header's encoding.
    pub header: Hex,
    /// The encoding of the certificate that finalises exactly this header.
    pub certificate: Hex,
}

/// An entry of a state tree's leaf.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeafEntry {
    /// The hash of an account's identity.
    pub key: Hex,
    /// The account's encoding.
    pub value: Hex,
}

/// A proof of what an account holds, or that it is not there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountProof {
    /// SHA-256 of the identity.
    pub key: Hex,
    /// The account's encoding: version 1, nonce and balance, 17 bytes; `null` if it is not there.
    pub value: Option<Hex>,
    /// The hashes beside the way, from the root down.
    pub siblings: Vec<Hex>,
    /// All entries of the leaf where the key belongs.
    pub leaf: Vec<LeafEntry>,
    /// The proof in the encoding that `quorate account` reads.
    pub encoded: Hex,
    /// The final header that names the root.
    pub anchor: Anchor,
    /// The height whose state this is.
    pub executed_height: Number,
    /// The root that the proof leads to.
    pub root: Hex,
    /// The header's field that holds the root.
    pub root_field: String,
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountDetail {
    /// Whose it is.
    pub identity: Hex,
    /// Whether it was ever paid.
    pub exists: bool,
    /// What it holds.
    pub balance: Number,
    /// Its next nonce.
    pub nonce: Number,
    /// What proves it.
    pub proof: AccountProof,
}

/// A view: one attempt, by one leader, to extend the chain.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ViewDetail {
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// Who led it.
    pub leader: u32,
    /// `finalized` (its block is in the chain), `nullified` (a verified nullification was observed)
    /// or `skipped` (the chain passes it by, and no certificate was observed).
    pub state: String,
    /// Its block.
    pub block: Option<BlockSummary>,
    /// The view's own certificate: a finalization or a nullification.
    pub certificate: Option<Hex>,
    /// Of a nullified view, why, as a validator observed it: `no_valid_proposal_in_time`,
    /// `no_quorum_in_time` or `unknown`.
    pub reason: Option<String>,
    /// Where the state is known from: `certificate` or `chain` (the header of a later block).
    pub source: String,
}

/// How often a validator's votes were seen.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Participation {
    /// `certificate`: finalizations name their signers. `observed`: they do not, and what
    /// validators have heard lately is all there is.
    pub source: String,
    /// Finalizations that it signed.
    pub signed: Option<Number>,
    /// Finalizations that were looked at.
    pub of: Option<Number>,
    /// `signed` in percent of `of`.
    pub percent: Option<f64>,
    /// The newest epoch and view in which a validator that is read from has heard a vote of it.
    pub last_vote: Option<[Number; 2]>,
}

/// Verified evidence: two votes that no honest validator casts together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EvidenceItem {
    /// Names the pair.
    pub id: Hex,
    /// Who signed both.
    pub validator: u32,
    /// `two_notarize`, `two_finalize`, `finalize_and_nullify` or `notarize_and_finalize`.
    pub conflict: String,
    /// The epoch.
    pub epoch: Number,
    /// The view.
    pub view: Number,
    /// The two votes' encodings, 150 bytes each.
    pub hex: Hex,
}

/// Somebody who does not listen to a validator any more.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockedBy {
    /// The address of the validator that says so.
    pub by: String,
    /// Why, as it says.
    pub reason: String,
}

/// A validator in an epoch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ValidatorDetail {
    /// Its place in the committee.
    pub index: u32,
    /// Its identity.
    pub identity: Hex,
    /// Its vote key, a compressed point of G2.
    pub vote_key: Hex,
    /// How many votes it has in a quorum.
    pub votes: u32,
    /// What it has staked; there is no staking on chains whose validators stand in the genesis file.
    pub stake: Option<Number>,
    /// Views of the epoch that it led, up to the tip.
    pub led: Number,
    /// Of these, with a final block.
    pub blocks: Number,
    /// Of these, without one.
    pub missed: Number,
    /// Views that it led of which a nullification was observed. A few of them have a final block all the
    /// same, by a later block that follows it; so there may be more of them than missed ones.
    pub nullified: Number,
    /// How often its votes were seen.
    pub participation: Participation,
    /// Evidence against it, in any epoch.
    pub evidence: Vec<EvidenceItem>,
    /// Who blocks it.
    pub blocked: Vec<BlockedBy>,
}

/// The validators of an epoch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ValidatorSet {
    /// The epoch.
    pub epoch: Number,
    /// The vote scheme.
    pub scheme: String,
    /// How many votes make a quorum.
    pub quorum: u32,
    /// The validators in the committee's order.
    pub data: Vec<ValidatorDetail>,
}

/// The middle and the slow end of some measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Half of them are at most this.
    pub p50: f64,
    /// Of 100, 99 are at most this.
    pub p99: f64,
}

/// Figures of the newest blocks, by the explorer's own clock.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// The window that was asked for.
    pub window: String,
    /// How many seconds were really observed.
    pub seconds: f64,
    /// Blocks that became final.
    pub blocks: Number,
    /// Their transactions, those that failed among them.
    pub transactions: Number,
    /// Those of them that were not applied.
    pub failed_transactions: Number,
    /// Blocks per second.
    pub blocks_per_second: f64,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// From one final block to the next.
    pub block_time_ms: Option<Quantiles>,
    /// From a block's notarization to its finalization.
    pub finality_ms: Option<Quantiles>,
    /// Sizes of the blocks.
    pub block_bytes: Option<Quantiles>,
    /// Nullifications that were observed.
    pub nullified: Number,
    /// Whose clock: `explorer`.
    pub clock: String,
}

/// Something that a search found.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    /// `block`, `view`, `transaction`, `account` or `validator`.
    pub kind: String,
    /// Where it is.
    pub href: String,
    /// For people.
    pub label: String,
}

/// Where a light client begins.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Bootstrap {
    /// The trust file's content. Compare it with what you know from elsewhere.
    #[schema(value_type = Object)]
    pub trust: serde_json::Value,
    /// The newest block with a finalization of its own.
    pub latest: Anchor,
}
