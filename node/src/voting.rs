//! Whether this validator votes: for the log and for whoever watches.

use quorate_consensus::{Notice, Voting};
use quorate_load::verdict;
use tracing::{error, info, warn};

/// Tells the operator what happens to the key.
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

/// What is shown of it.
pub(crate) fn shown(voting: Voting) -> verdict::Voting {
    match voting {
        // It takes a message's delay, or nothing moves without others anyway.
        Voting::Votes | Voting::Checking { .. } => verdict::Voting::Votes,
        Voting::Recovering { answers, needed } => verdict::Voting::Recovering { answers, needed },
        Voting::SilentUntil(from) => verdict::Voting::SilentUntil {
            epoch: from.epoch.0,
            view: from.view,
        },
        Voting::KeyElsewhere { .. } => verdict::Voting::KeySeenElsewhere { address: None },
    }
}
