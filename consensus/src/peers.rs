//! What the peers say of themselves, and when each was last helped.

use crate::io::Moment;
use quorate_types::{Height, ValidatorIndex, View};
use std::{collections::BTreeMap, time::Duration};

/// Most times in an interval that a peer is helped whose views rise.
const MAX_HELPED: u32 = 8;

#[derive(Clone, Copy)]
struct Helped {
    view: View,
    since: Moment,
    times: u32,
}

/// Memory: at most one entry of each kind for each peer.
#[derive(Default)]
pub(crate) struct Peers {
    /// The newest finalised heights that they claim.
    claims: BTreeMap<ValidatorIndex, Height>,
    /// The oldest blocks that they keep, of those that lacked a block that they were asked for.
    oldest: BTreeMap<ValidatorIndex, Height>,
    /// How each was helped lately.
    helped: BTreeMap<ValidatorIndex, Helped>,
    /// When each was last sent evidence.
    informed: BTreeMap<ValidatorIndex, Moment>,
}

impl Peers {
    /// A peer's status says how high its finalised chain is.
    pub(crate) fn claims(&mut self, peer: ValidatorIndex, height: Height) {
        self.claims.insert(peer, height);
    }

    /// A peer has shown that its finalised chain is at least so high.
    pub(crate) fn claims_at_least(&mut self, peer: ValidatorIndex, height: Height) {
        let claim = self.claims.entry(peer).or_default();
        *claim = height.max(*claim);
    }

    /// How many claim this height or a higher one.
    pub(crate) fn claiming(&self, height: Height) -> usize {
        let claims = self.claims.values();
        claims.filter(|claimed| **claimed >= height).count()
    }

    /// Whether the peer does not say that it has the finalised blocks from `from` on, or says that it
    /// keeps later ones only. `tip` is the newest that this validator has.
    pub(crate) fn lacks_blocks(&self, peer: ValidatorIndex, from: Height, tip: Height) -> bool {
        let behind = self.claims.get(&peer).is_none_or(|claimed| *claimed <= tip);
        behind || self.oldest.get(&peer).is_some_and(|oldest| *oldest > from)
    }

    /// Notes that a peer keeps no block below `oldest`. Returns what it said before.
    pub(crate) fn prunes(&mut self, peer: ValidatorIndex, oldest: Height) -> Option<Height> {
        self.oldest.insert(peer, oldest)
    }

    /// Forgets what a peer said about pruning: it gave what it was asked for.
    pub(crate) fn serves(&mut self, peer: ValidatorIndex) {
        self.oldest.remove(&peer);
    }

    /// The peers that say that they do not keep this height, with the oldest that each keeps.
    pub(crate) fn pruning(&self, height: Height) -> Vec<(ValidatorIndex, Height)> {
        let lacking = self.oldest.iter().filter(|(_, oldest)| **oldest > height);
        lacking.map(|(peer, oldest)| (*peer, *oldest)).collect()
    }

    /// Whether a peer may be sent what ended a view, and notes that it is: once an interval, and a few times more while the
    /// views rise, so that nobody can make this validator flood the network.
    pub(crate) fn may_help(
        &mut self,
        peer: ValidatorIndex,
        view: View,
        now: Moment,
        interval: Duration,
    ) -> bool {
        let helped = self.helped.get(&peer).copied();
        let recent = helped.filter(|helped| now.since(helped.since) < interval);
        let next = match recent {
            None => Helped {
                view,
                since: now,
                times: 1,
            },
            Some(recent) if view > recent.view && recent.times < MAX_HELPED => Helped {
                view,
                times: recent.times + 1,
                ..recent
            },
            Some(_) => return false,
        };
        self.helped.insert(peer, next);
        true
    }

    /// Views are counted anew.
    pub(crate) fn leave_epoch(&mut self) {
        self.helped.clear();
    }

    /// Whether a peer may be sent evidence, and notes that it is: at most once per interval.
    pub(crate) fn may_inform(
        &mut self,
        peer: ValidatorIndex,
        now: Moment,
        interval: Duration,
    ) -> bool {
        let last = self.informed.get(&peer);
        let due = last.is_none_or(|at| now.since(*at) >= interval);
        if due {
            self.informed.insert(peer, now);
        }
        due
    }
}
