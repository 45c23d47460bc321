//! The shapes of the HTTP interface, for both of its sides. Hashes, identities and signatures are
//! hexadecimal text; encodings are the hexadecimal form of the binary codec; amounts are in the
//! chain's smallest unit.

use crate::verdict::VerdictJson;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{
    Block, ChainId, Digest, Height, Identity, IdentitySignature, Memo, Transaction, Transfer,
    ValidatorIndex, View, genesis::Fees,
};
use serde::{
    Deserialize, Serialize,
    de::{SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

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
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "at_most_a_thousand"
    )]
    pub transactions: Vec<TransactionJson>,
    /// Transactions by their encoding, 161 bytes each without a memo.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "at_most_a_thousand"
    )]
    pub hex: Vec<String>,
}

/// Most transactions in one request.
pub const MAX_SUBMITTED: usize = 1_000;

/// Reads a list, and gives it up as soon as it is too long: a short body can name many items, and each
/// takes more memory than its bytes.
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
    /// It was taken in and has left without coming into a block; `error` says why. It is remembered for a
    /// while.
    Dropped,
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
    /// The nonce of its sender that must come, or be paid for, before it can go into a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for_nonce: Option<u64>,
    /// How soon it is dropped if that does not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Upon a submission: this very transaction was here or final before, so nothing new will be paid.
    #[serde(default, skip_serializing_if = "is_false")]
    pub repeated: bool,
    /// Why it was refused or dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl TransactionResult {
    /// One that waits for a block and for nothing else.
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
    /// Its link is refused for a while, for what it sent.
    Cut,
    /// Only its votes and proposals are listened to for a while, for what it sent.
    Muted,
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
    /// What it did: `invalid_vote`, `invalid_proposal`, `invalid_certificate`, `invalid_evidence`, `equivocation`, or
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
    /// Where it is in the configuration; only for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// What has changed when a configuration was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadedJson {
    /// Peers that are at another address.
    pub peers: Vec<MovedPeerJson>,
    /// What is logged now, if that has changed.
    pub log_level: Option<String>,
    /// Keys whose values differ from what the validator runs with, and need a restart.
    pub need_restart: Vec<String>,
    /// Why something was not taken over.
    pub notes: Vec<String>,
}

/// A peer that is at another address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedPeerJson {
    /// The peer.
    pub identity: Identity,
    /// Where it was.
    pub before: String,
    /// Where it is.
    pub now: String,
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
    /// The least that a transfer pays.
    #[serde(default)]
    pub fees: Fees,
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
    /// Whether it has what the others have, and whether the chain goes on. Validators of earlier
    /// versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncJson>,
    /// How it is, in a word and in sentences: what to go by. Validators of earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictJson>,
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

/// Whether a validator has what the others have, and whether the chain goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// It has just started, and has not heard yet where the others are.
    Starting,
    /// It has all final blocks that are known, and new ones come.
    InSync,
    /// It is not linked to a quorum: soon no block will come any more.
    NoQuorum,
    /// The others have final blocks that it has not, and it gets them.
    CatchingUp,
    /// No final block has come for much longer than usual.
    Stalled,
}

/// How the final chain grows at a validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncJson {
    /// In a word.
    pub state: SyncState,
    /// Milliseconds since it learned of its newest final block; if that was before its start, since
    /// then.
    pub since_final_ms: u64,
    /// Whether it has learned of a final block since its start.
    pub final_since_start: bool,
    /// After so many milliseconds without a final block it is stalled.
    pub stalled_after_ms: u64,
    /// Views that it has entered since its newest final block.
    pub views_without_block: u64,
    /// The newest final height that it has.
    pub height: Height,
    /// The height of its database when it started.
    pub start_height: Height,
    /// The height that f + 1 validators claim to be final, so that one honest one does.
    pub network_height: Height,
    /// Final blocks a second over the last ten seconds.
    pub blocks_per_second: f64,
    /// Validators that it is linked to, and itself.
    pub reachable: usize,
    /// Validators that there are.
    pub validators: usize,
    /// Validators that a quorum takes.
    pub quorum: usize,
    /// Validators that it is not linked to.
    pub missing: Vec<ValidatorIndex>,
}

/// Missing validators that are named.
const MAX_NAMED: usize = 8;

impl SyncJson {
    /// Final blocks that the others have and it has not.
    pub fn blocks_behind(&self) -> u64 {
        self.network_height.0.saturating_sub(self.height.0)
    }

    /// All of it in a sentence for people.
    pub fn in_words(&self) -> String {
        let since = shown_seconds(self.since_final_ms);
        let mut parts = Vec::new();
        match self.state {
            SyncState::Starting => parts.push(format!(
                "starting: no new final block since the start {since} s ago, and not heard from enough \
                 validators to know where the chain is"
            )),
            SyncState::InSync if self.final_since_start => {
                parts.push(format!("in sync, newest final block {since} s ago"));
            }
            SyncState::InSync => parts.push(format!(
                "in sync, no new final block since the start {since} s ago"
            )),
            SyncState::NoQuorum => {
                parts.push(format!("no quorum: newest final block {since} s ago"));
            }
            SyncState::CatchingUp => {
                parts.push(format!("catching up: {}", self.behind_in_words()));
                if self.blocks_per_second > 0.0 {
                    parts.push(format!("{:.1} blocks/s", self.blocks_per_second));
                } else {
                    parts.push(format!("no block has come for {since} s"));
                }
            }
            SyncState::Stalled => {
                let start = match self.final_since_start {
                    true => "",
                    false => ", since the start",
                };
                parts.push(format!("stalled: no new final block for {since} s{start}"));
                if self.blocks_behind() > 0 {
                    parts.push(self.behind_in_words());
                }
            }
        }
        if self.state != SyncState::InSync && self.start_height.0 == 0 && self.blocks_behind() > 0 {
            parts.push("it started with an empty database".to_owned());
        }
        if self.state == SyncState::Stalled || self.reachable < self.quorum {
            parts.push(self.links_in_words());
        }
        if self.state == SyncState::Stalled {
            parts.push(match self.views_without_block {
                0 => "the view stays the same".to_owned(),
                1 => "1 view without a block".to_owned(),
                views => format!("{views} views without a block"),
            });
        }
        parts.join("; ")
    }

    fn behind_in_words(&self) -> String {
        format!(
            "{} blocks behind (height {} of {})",
            self.blocks_behind(),
            self.height,
            self.network_height
        )
    }

    fn links_in_words(&self) -> String {
        let linked = format!(
            "{} of {} validators reachable (this one included), a quorum needs {}",
            self.reachable, self.validators, self.quorum
        );
        let named: Vec<String> = self
            .missing
            .iter()
            .take(MAX_NAMED)
            .map(|v| v.0.to_string())
            .collect();
        let more = self.missing.len().saturating_sub(MAX_NAMED);
        match (named.is_empty(), more) {
            (true, _) => linked,
            (false, 0) => format!("{linked}; missing: validators {}", named.join(", ")),
            (false, more) => format!(
                "{linked}; missing: validators {} and {more} more",
                named.join(", ")
            ),
        }
    }
}

/// Seconds, with one digit behind the point while that says something.
fn shown_seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1}", ms as f64 / 1_000.0),
        _ => (ms / 1_000).to_string(),
    }
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
    /// The first nonce that is free, if it is not `nonce`: transfers of the account wait at this validator
    /// and can go into a block, or were executed after the state that is proven. It is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_nonce: Option<u64>,
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
