//! Whether this validator votes, for the log and the status.

use quorate_api::verdict;
use quorate_consensus::{Notice, Voting};
use tracing::{error, info, warn};

/// Logs what happens to the key.
pub(crate) fn log(notice: &Notice) {
    let peer = |told_by: &Option<quorate_types::ValidatorIndex>| told_by.map(|peer| peer.0);
    match notice {
        Notice::OldJournal { vote, told_by } => warn!(
            ?vote,
            told_by = peer(told_by),
            "this validator's key has cast a vote that its journal lacks: the journal is an old copy, or \
             another process votes with the key. The journal counts as lost, and the others are asked \
             from which view on it may vote"
        ),
        Notice::RestoredKey { told_by } => warn!(
            told_by = told_by.0,
            "nothing here says that this vote key was used before, and the chain has gone on for long: the \
             key may have voted on a machine that is gone. Its journal counts as lost, and the others are \
             asked from which view on it may vote"
        ),
        Notice::Recovered { from } => warn!(
            epoch = %from.epoch, view = %from.view,
            "the journal does not hold all votes of this key; by what the others say, it may vote from \
             this view on"
        ),
        Notice::KeyElsewhere { vote, told_by } => error!(
            ?vote,
            told_by = peer(told_by),
            "another process votes with THIS validator's key: this one has stopped voting and only \
             follows. Stop the other process, then start this one again"
        ),
        Notice::WordRefused(reason) => error!(
            reason,
            "--surviving-view does not fit what the other validators say, and this one stays silent"
        ),
    }
    if matches!(notice, Notice::Recovered { .. }) {
        info!("nothing is to be done: it votes again by itself");
    }
}

/// Seconds after which it is logged that too few others answer. Usually all answer within a
/// message's delay.
const PATIENCE_SECONDS: u32 = 3;

/// The state that is shown, and for how many seconds in a row the validator has been inquiring.
#[derive(Default)]
pub(crate) struct Shown {
    asking_seconds: u32,
}

impl Shown {
    /// The state to show this second.
    pub(crate) fn next(&mut self, voting: Voting) -> verdict::Voting {
        self.asking_seconds = match voting {
            Voting::Checking { .. } => self.asking_seconds.saturating_add(1),
            _ => 0,
        };
        match voting {
            Voting::Checking { answers, needed } if self.asking_seconds > PATIENCE_SECONDS => {
                verdict::Voting::Checking { answers, needed }
            }
            Voting::Votes | Voting::Checking { .. } => verdict::Voting::Votes,
            Voting::Recovering {
                answers,
                needed,
                lost,
                refused,
            } => verdict::Voting::Recovering {
                answers,
                needed,
                lost,
                refused,
            },
            Voting::SilentUntil(from) => verdict::Voting::SilentUntil {
                epoch: from.epoch.0,
                view: from.view,
            },
            Voting::KeyElsewhere { told_by } => verdict::Voting::KeySeenElsewhere {
                address: None,
                told_by,
            },
        }
    }
}
