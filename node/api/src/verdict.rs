//! A validator's health as a single verdict. The node decides it; status, log, live page, metrics
//! and alerts only display it.

use quorate_types::{Height, ValidatorIndex, View};
use serde::{Deserialize, Serialize};

/// A validator's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It has all final blocks, the chain grows, and it votes.
    Healthy,
    /// It has just started and does not know its peers' heights yet.
    Starting,
    /// Its peers have final blocks that it lacks, and it is downloading them; or it executes blocks that
    /// became final some time ago.
    CatchingUp,
    /// It has all final blocks but does not vote.
    NotVoting,
    /// Its peers have final blocks that it lacks, and none arrives.
    Stuck,
    /// Its peers have final blocks that it lacks, and no linked peer still stores the next one. It
    /// fetches the state next.
    BlocksGone,
    /// It fetches the state after a recent block, and takes no part meanwhile.
    StateSync,
    /// It is linked to so few validators that the chain may continue among those that it cannot
    /// reach.
    CutOff,
    /// It is cut off because its peers abort its handshakes, perhaps because they block it.
    Refused,
    /// The chain produces no blocks.
    Halted,
    /// Its vote key is also used elsewhere, and it has stopped voting.
    KeySeenElsewhere,
    /// A state that this version of the program does not know.
    #[serde(other)]
    Unknown,
}

impl Health {
    /// All states that a validator can report.
    pub const ALL: [Self; 11] = [
        Self::Healthy,
        Self::Starting,
        Self::CatchingUp,
        Self::NotVoting,
        Self::Stuck,
        Self::BlocksGone,
        Self::StateSync,
        Self::CutOff,
        Self::Refused,
        Self::Halted,
        Self::KeySeenElsewhere,
    ];

    /// Returns the name used in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Starting => "starting",
            Self::CatchingUp => "catching_up",
            Self::NotVoting => "not_voting",
            Self::Stuck => "stuck",
            Self::BlocksGone => "blocks_gone",
            Self::StateSync => "state_sync",
            Self::CutOff => "cut_off",
            Self::Refused => "refused",
            Self::Halted => "halted",
            Self::KeySeenElsewhere => "key_seen_elsewhere",
            Self::Unknown => "unknown",
        }
    }

    pub const fn severity(self) -> Severity {
        match self {
            Self::Healthy => Severity::Good,
            Self::Starting
            | Self::CatchingUp
            | Self::NotVoting
            | Self::BlocksGone
            | Self::StateSync
            | Self::Unknown => Severity::Warning,
            Self::Stuck | Self::CutOff | Self::Refused | Self::Halted | Self::KeySeenElsewhere => {
                Severity::Bad
            }
        }
    }
}

/// The severity of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No action is needed.
    Good,
    /// It resolves by itself, or waits for something that is named.
    Warning,
    /// The operator has to act.
    Bad,
}

/// Whether a validator votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Voting {
    #[default]
    Votes,
    /// It follows without voting until this epoch and view, because earlier votes with its key may
    /// be lost.
    SilentUntil {
        epoch: u64,
        /// The view in that epoch.
        view: View,
    },
    /// Its vote journal is lost or outdated, and it asks its peers from which view on it may vote.
    Recovering {
        /// The number of answers received.
        answers: usize,
        /// The number of answers needed.
        needed: usize,
        /// The number of validators that report a lost journal, including this one.
        #[serde(default)]
        lost: usize,
        /// Whether the operator's `--surviving-view` contradicts the peers' answers.
        #[serde(default)]
        refused: bool,
    },
    /// It asks its peers for unknown votes with its key, and too few have answered.
    Checking {
        /// The number of answers received.
        answers: usize,
        /// The number of answers needed.
        needed: usize,
    },
    /// It fetches the state and does not vote meanwhile.
    StateSync,
    /// It is no validator: it follows the chain.
    Follows,
    /// Another process votes with the same key.
    KeySeenElsewhere {
        /// The address of that process, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// The validator that has shown a vote not cast by this process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told_by: Option<ValidatorIndex>,
    },
}

/// The voting state of another validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voter {
    /// Its votes arrive.
    Votes,
    /// It is linked, but no vote from it has arrived for a while.
    Silent,
    /// It is linked, reports missing blocks, and does not vote.
    Behind,
    /// It was linked so recently that its votes may still arrive.
    Fresh,
    /// There is no link to it, and no vote from it arrives through other validators.
    Unreachable,
    /// It is blocked by this validator.
    Blocked,
    /// Its clock is so far behind that it considers the others' blocks invalid and does not vote
    /// for them.
    ClockBehind,
}

/// Another validator in the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterJson {
    /// The number in the committee.
    pub validator: ValidatorIndex,
    /// The first eight hexadecimal digits of the identity.
    pub name: String,
    pub state: Voter,
}

/// A validator's verdict on its own health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictJson {
    pub state: Health,
    /// A one-sentence explanation.
    pub summary: String,
    /// What the operator can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Further information, one sentence each, with its remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The age of the newest final block in milliseconds: since it became final here, or since its
    /// timestamp if that was before the start. `None` before the first block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_age_ms: Option<u64>,
    /// The start of this state, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Final blocks that the peers have and this validator lacks.
    pub blocks_behind: u64,
    /// Estimated seconds to catch up at the present rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    pub voting: Voting,
    /// Validators whose votes arrive, including this one if it votes.
    pub voters: usize,
    /// The number of votes that form a quorum.
    pub quorum: usize,
    /// All other validators.
    pub others: Vec<VoterJson>,
    /// The next missing block, which no linked peer stores any more, and the oldest block that one
    /// of them says it stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<(Height, Height)>,
}

/// Formats a count with its noun: "1 block", "2 blocks".
pub fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {word}{plural}", grouped(count))
}

/// Formats a number with thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration for people, rounded to the significant part: "0.4 s", "14 s", "3 min", "2.5
/// h", "9 d".
pub fn spoken(ms: u64) -> String {
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match ms {
        // Round to nearest: a validator that was just blocked for 12 h should be shown with 12 h
        // left.
        0..9_950 => format!("{:.1} s", ms as f64 / 1_000.0),
        9_950..119_500 => format!("{} s", (ms + 500) / 1_000),
        119_500..7_170_000 => format!("{} min", (ms + MINUTE / 2) / MINUTE),
        7_170_000..171_000_000 => {
            let tenths = (ms + HOUR / 20) / (HOUR / 10);
            match tenths % 10 {
                0 => format!("{} h", tenths / 10),
                _ => format!("{}.{} h", tenths / 10, tenths % 10),
            }
        }
        _ => format!("{} d", (ms + DAY / 2) / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_the_nearest_and_never_cut_off() {
        let hour = 3_600_000;
        for (ms, text) in [
            (0, "0.0 s"),
            (9_949, "9.9 s"),
            (9_950, "10 s"),
            (59_600, "60 s"),
            (120_000, "2 min"),
            (12 * hour - 300, "12 h"),
            (5 * hour / 2, "2.5 h"),
            (48 * hour, "2 d"),
            (1_790 * 1_000, "30 min"),
        ] {
            assert_eq!(spoken(ms), text, "{ms}");
        }
    }

    #[test]
    fn one_block_is_no_blocks() {
        assert_eq!(counted(1, "block"), "1 block");
        assert_eq!(counted(0, "block"), "0 blocks");
        assert_eq!(counted(1_234_567, "block"), "1,234,567 blocks");
    }

    #[test]
    fn each_state_has_the_name_that_json_gives_it() {
        for state in Health::ALL {
            let json = serde_json::to_value(state).expect("a string");
            assert_eq!(json, state.name());
        }
        let newer: Health = serde_json::from_str("\"something_new\"").expect("it is read");
        assert_eq!(newer, Health::Unknown);
    }
}
