//! Telling the log how the chain goes: a line when that changes, and one now and then.

use crate::rpc::live::LiveStatus;
use quorate_load::api::{SyncJson, SyncState};
use quorate_p2p::PeerStatus;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// How often is looked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A change is told when it has been seen so often in a row: what passes at once is no news.
const LOOKS: u32 = 2;

/// After this long without a line there is one though nothing has changed.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// What is to be told, and how loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// It has got worse.
    Warning,
    /// It has got better, or is as it was.
    Notice,
}

/// What was told and seen last.
struct Watch {
    told: SyncState,
    told_at: Instant,
    seen: SyncState,
    looks: u32,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self {
            told: SyncState::Starting,
            told_at: now,
            seen: SyncState::Starting,
            looks: 0,
        }
    }

    /// What is to be told of a state that is seen.
    fn tells(&mut self, now: Instant, state: SyncState) -> Option<Line> {
        self.looks = if state == self.seen {
            self.looks + 1
        } else {
            1
        };
        self.seen = state;
        let is_new = state != self.told && self.looks >= LOOKS;
        if !is_new && now < self.told_at + HEARTBEAT {
            return None;
        }
        self.told_at = now;
        if is_new {
            self.told = state;
        }
        // Of a chain that stands still each heartbeat is a warning.
        Some(match self.told {
            SyncState::Stalled | SyncState::NoQuorum => Line::Warning,
            SyncState::InSync | SyncState::CatchingUp | SyncState::Starting => Line::Notice,
        })
    }
}

/// Looks at how the chain goes until it is dropped.
pub(crate) async fn watch(live: Arc<LiveStatus>, peers: impl Fn() -> Vec<PeerStatus>) {
    let mut watch = Watch::new(Instant::now());
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        ticks.tick().await;
        let sync = live.sync(&peers());
        let SyncJson {
            height,
            reachable,
            validators,
            blocks_per_second,
            ..
        } = sync;
        let rate = format!("{blocks_per_second:.1}");
        match watch.tells(Instant::now(), sync.state) {
            Some(Line::Warning) => {
                warn!(%height, blocks_per_second = rate, reachable, validators, "{}", sync.in_words());
            }
            Some(Line::Notice) => {
                info!(%height, blocks_per_second = rate, reachable, validators, "{}", sync.in_words());
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once_they_last_and_heartbeats_between_them() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let mut at = |second: u64, state| watch.tells(start + Duration::from_secs(second), state);
        use SyncState::{InSync, Stalled, Starting};
        let story = [
            (1, Starting, None),
            (2, InSync, None),
            (3, InSync, Some(Line::Notice)),
            (4, InSync, None),
            (5, Stalled, None),
            // It passes.
            (6, InSync, None),
            (7, Stalled, None),
            (8, Stalled, Some(Line::Warning)),
            (37, Stalled, None),
            (38, Stalled, Some(Line::Warning)),
            (39, InSync, None),
            (40, InSync, Some(Line::Notice)),
            (70, InSync, Some(Line::Notice)),
        ];
        for (second, state, expected) in story {
            assert_eq!(at(second, state), expected, "{second}");
        }
    }
}
