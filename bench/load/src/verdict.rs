//! How a validator is, in one verdict. The node decides it; status, log, live page, metrics and
//! alerts show it and decide nothing themselves.

use quorate_types::{Height, ValidatorIndex, View};
use serde::{Deserialize, Serialize};

/// How a validator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It has all final blocks, new ones come, and it votes.
    Healthy,
    /// It has just started, and has not heard yet where the others are.
    Starting,
    /// The others have final blocks that it has not, and it gets them.
    CatchingUp,
    /// It has all final blocks and does not vote.
    NotVoting,
    /// The others have final blocks that it has not, and none comes.
    Stuck,
    /// The others have final blocks that it has not, and no linked peer keeps the next of them.
    BlocksGone,
    /// It is linked to so few validators that those it misses may go on without it.
    CutOff,
    /// It is cut off since the others end its handshakes: they block it, perhaps.
    Refused,
    /// The chain makes no blocks.
    Halted,
    /// Its key is used elsewhere, too, and it has stopped voting.
    KeySeenElsewhere,
    /// One that this program does not know.
    #[serde(other)]
    Unknown,
}

impl Health {
    /// All that a validator may say.
    pub const ALL: [Self; 10] = [
        Self::Healthy,
        Self::Starting,
        Self::CatchingUp,
        Self::NotVoting,
        Self::Stuck,
        Self::BlocksGone,
        Self::CutOff,
        Self::Refused,
        Self::Halted,
        Self::KeySeenElsewhere,
    ];

    /// Its name in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Starting => "starting",
            Self::CatchingUp => "catching_up",
            Self::NotVoting => "not_voting",
            Self::Stuck => "stuck",
            Self::BlocksGone => "blocks_gone",
            Self::CutOff => "cut_off",
            Self::Refused => "refused",
            Self::Halted => "halted",
            Self::KeySeenElsewhere => "key_seen_elsewhere",
            Self::Unknown => "unknown",
        }
    }

    /// How much it matters.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Healthy => Severity::Good,
            Self::Starting | Self::CatchingUp | Self::NotVoting | Self::Unknown => {
                Severity::Warning
            }
            Self::Stuck
            | Self::BlocksGone
            | Self::CutOff
            | Self::Refused
            | Self::Halted
            | Self::KeySeenElsewhere => Severity::Bad,
        }
    }
}

/// How much a verdict matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is to be done.
    Good,
    /// It passes by itself, or waits for something that is told.
    Warning,
    /// Somebody has to act.
    Bad,
}

/// Whether a validator votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Voting {
    /// It does.
    #[default]
    Votes,
    /// It follows without a vote until this epoch and view: what its key said before may be lost.
    SilentUntil {
        /// The epoch.
        epoch: u64,
        /// The view of that epoch.
        view: View,
    },
    /// Its vote journal is lost or old, and it asks the others from which view on it may vote.
    Recovering {
        /// Answers that have come.
        answers: usize,
        /// Answers that it needs.
        needed: usize,
        /// Validators that say that their journal is lost, this one among them.
        #[serde(default)]
        lost: usize,
        /// Whether the operator's `--surviving-view` does not fit what the others say.
        #[serde(default)]
        refused: bool,
    },
    /// It asks the others for votes of its key that it does not know, and too few answer.
    Checking {
        /// Answers that have come.
        answers: usize,
        /// Answers that it needs.
        needed: usize,
    },
    /// Somebody else votes with its key.
    KeySeenElsewhere {
        /// Where, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// The validator that has shown a vote which this process has not cast.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told_by: Option<ValidatorIndex>,
    },
}

/// What is seen of another validator's votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voter {
    /// Its votes come.
    Votes,
    /// It is linked, and no vote of it has come for a while.
    Silent,
    /// It is linked, says that it lacks blocks, and does not vote.
    Behind,
    /// It is linked, for so short a time that its votes may still come.
    Fresh,
    /// There is no link to it, and no vote of it comes by way of others.
    Unreachable,
    /// It is blocked here.
    Blocked,
}

/// Another validator in a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterJson {
    /// Its place in the committee.
    pub validator: ValidatorIndex,
    /// The first eight digits of its identity.
    pub name: String,
    /// What is seen of its votes.
    pub state: Voter,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictJson {
    /// In a word.
    pub state: Health,
    /// In a sentence.
    pub summary: String,
    /// What is to be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What else is to be known, a sentence each; each with its remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The newest final block's age in milliseconds: since it became final here, or since its
    /// timestamp if that was before the start. None before the first block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_age_ms: Option<u64>,
    /// Since when it is so, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Final blocks that the others have and it has not.
    pub blocks_behind: u64,
    /// How long it takes to catch up at the present rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Whether this validator votes.
    pub voting: Voting,
    /// Validators whose votes are seen, this one among them if it votes.
    pub voters: usize,
    /// Votes that a quorum needs.
    pub quorum: usize,
    /// The other validators.
    pub others: Vec<VoterJson>,
    /// The next block that is missing here and that no linked peer keeps, and the oldest that one
    /// of them says it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<(Height, Height)>,
}

/// A count and its word: "1 block", "2 blocks".
pub fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {word}{plural}", grouped(count))
}

/// A number with its thousands apart.
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

/// A time for people, rounded to what says something: "0.4 s", "14 s", "3 min", "2.5 h", "9 d".
pub fn spoken(ms: u64) -> String {
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match ms {
        // Rounded to the nearest: who was blocked for 12 h a moment ago is blocked for another 12.
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
