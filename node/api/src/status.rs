//! A validator's status.

use crate::{BlockedJson, PeerJson, verdict::VerdictJson};
use quorate_types::{ChainId, Digest, Height, ValidatorIndex, View, genesis::Fees};
use serde::{Deserialize, Serialize};

/// `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusJson {
    pub name: String,
    pub chain_id: ChainId,
    pub version: String,
    /// This validator's number in the committee. Followers omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<ValidatorIndex>,
    /// The number of validators in the committee.
    pub validators: usize,
    /// The current epoch.
    pub epoch: u64,
    /// The current view.
    pub view: View,
    /// The newest final height up to which this validator knows the whole chain.
    pub finalized_height: Height,
    /// The newest executed and stored height.
    pub executed_height: Height,
    /// The id of that block.
    pub executed_id: Digest,
    /// The timestamp of that block, in milliseconds since 1970.
    pub executed_timestamp_ms: u64,
    /// The state root after that block.
    pub state_root: Digest,
    /// The minimum fees of a transfer.
    #[serde(default)]
    pub fees: Fees,
    pub mempool_transactions: usize,
    /// All other validators.
    pub peers: Vec<PeerJson>,
    pub blocked: Vec<BlockedJson>,
    pub uptime_seconds: u64,
    /// Whether final blocks are known to be missing here.
    pub behind: bool,
    /// Whether the validator has all blocks that its peers have, and whether the chain grows.
    /// Validators of earlier versions omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncJson>,
    /// The verdict on the validator's health; prefer it to the other fields. Validators of earlier
    /// versions omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictJson>,
    /// The lowest stored height.
    pub first_height: Height,
    pub database_bytes: u64,
    pub journal_bytes: u64,
    /// How far this clock is ahead of the leaders' clocks, in milliseconds, network delay included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    pub scheme: String,
    /// The protocol: `simplex`, `hotstuff-chained`, `hotstuff-basic` or `pbft`. Validators of earlier versions omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What the chain does: `ledger` or `order-only`. Nodes of earlier versions omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Who leads the current view. Nodes that fetch the state omit it, since they do not know the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnJson>,
    /// The number of pairs of conflicting votes that the validator holds.
    pub evidence: usize,
    /// The payloads of a validator whose chain only orders; others omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payloads: Option<PayloadsStatusJson>,
}

/// What a validator holds of the payloads that its chain orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadsStatusJson {
    /// Bytes of its clients' payloads that no block has ordered yet, with what each request counts beside them.
    pub waiting_bytes: u64,
    /// Bundles that blocks name and that are not on its disk.
    pub missing_bundles: u64,
    /// The size of its log of bundles.
    pub log_bytes: u64,
}

/// The turn that the current view belongs to: the views in a row that one validator leads. With `simplex` and
/// `hotstuff-chained` it is one view, with `hotstuff-basic` the three phases of a block, with `pbft` at most 100 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnJson {
    pub leader: ValidatorIndex,
    pub first_view: View,
    pub last_view: View,
}

/// Whether a validator is in sync and the chain is growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// It has just started and does not know its peers' heights yet.
    Starting,
    /// It has all final blocks that are known, and the chain grows.
    InSync,
    /// It is not linked to a quorum, so blocks will soon stop arriving.
    NoQuorum,
    /// Its peers have final blocks that it lacks, and it is downloading them.
    CatchingUp,
    /// No final block has arrived for much longer than usual.
    Stalled,
}

/// The growth of the final chain at a validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncJson {
    pub state: SyncState,
    /// Milliseconds since it learned of its newest final block, or since its start if that was
    /// later.
    pub since_final_ms: u64,
    /// Whether it has learned of a final block since its start.
    pub final_since_start: bool,
    /// The validator counts as stalled after this many milliseconds without a final block.
    pub stalled_after_ms: u64,
    /// Views entered since the newest final block.
    pub views_without_block: u64,
    /// The validator's newest final height.
    pub height: Height,
    /// The height of the database at the start.
    pub start_height: Height,
    /// The highest final height that at least f + 1 validators claim, so at least one honest
    /// validator does.
    pub network_height: Height,
    /// Final blocks per second, over the last ten seconds.
    pub blocks_per_second: f64,
    /// Linked validators, including this one.
    pub reachable: usize,
    /// The number of validators in the committee.
    pub validators: usize,
    /// The number of validators that form a quorum.
    pub quorum: usize,
    /// Validators without a link to this one.
    pub missing: Vec<ValidatorIndex>,
}

/// At most this many missing validators are named.
const MAX_NAMED: usize = 8;

impl SyncJson {
    /// Returns how many final blocks the peers have that this validator lacks.
    pub fn blocks_behind(&self) -> u64 {
        self.network_height.0.saturating_sub(self.height.0)
    }

    /// Describes the state in a sentence.
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

/// Formats seconds, with one decimal as long as it is significant.
fn shown_seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1}", ms as f64 / 1_000.0),
        _ => (ms / 1_000).to_string(),
    }
}
