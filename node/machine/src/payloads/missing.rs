//! Bundles that blocks name and that are not here: which are asked for, when, and of whom.

use quorate_consensus::Moment;
use quorate_types::{Digest, Height, Identity};
use std::{collections::BTreeMap, time::Duration};

/// Most bundles that are asked for at a time, for each [`Share`].
const MAX_FETCHED: usize = 32;

/// Most bundles that are known to be missing, for each [`Share`].
const MAX_MISSING: usize = 1_024;

/// A bundle that each peer was asked for so often makes room for others: nobody keeps it any more.
const GIVEN_UP: usize = 4;

/// How often the time doubles after which the peers are asked again for a bundle of a final block.
const MAX_DOUBLINGS: u32 = 6;

/// The same while so many are missing that they keep others from being looked for.
const FEW_DOUBLINGS: u32 = 2;

/// Who has a share of the bundles that are fetched: leaders with those of the blocks that they propose, and authors with
/// those in final blocks. So a faulty validator's, which nobody has, keep nobody else's waiting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    Leader(Identity),
    Author(Identity),
}

/// Which block names a bundle.
#[derive(Clone, Copy)]
enum NamedBy {
    /// A proposed one. The bundle is given up at this time.
    Proposed(Moment),
    /// The final one of this height.
    Final(Height),
}

/// A bundle that is missing.
struct Item {
    author: Identity,
    due: Moment,
    /// How many peers were asked.
    asked: usize,
    by: NamedBy,
}

/// What a peer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) to: Identity,
    pub(super) digest: Digest,
}

#[derive(Default)]
pub(super) struct Missing {
    shares: BTreeMap<Share, BTreeMap<Digest, Item>>,
}

impl Missing {
    /// Notes a bundle of a final block, to be asked for from `due` on. Returns whether there was room.
    pub(super) fn of_final(
        &mut self,
        author: Identity,
        digest: Digest,
        due: Moment,
        of: Height,
    ) -> bool {
        let items = self.shares.entry(Share::Author(author)).or_default();
        let fits = items.len() < MAX_MISSING || items.contains_key(&digest);
        if fits {
            items.entry(digest).or_insert(Item {
                author,
                due,
                asked: 0,
                by: NamedBy::Final(of),
            });
        }
        fits
    }

    /// Notes a bundle of a block that a leader proposes, to be asked for from `due` on, and until it is given up. The one
    /// of the leader's oldest block makes room for it.
    pub(super) fn of_proposed(
        &mut self,
        leader: Identity,
        author: Identity,
        digest: Digest,
        due: Moment,
        until: Moment,
    ) {
        let items = self.shares.entry(Share::Leader(leader)).or_default();
        let by = NamedBy::Proposed(until);
        if let Some(item) = items.get_mut(&digest) {
            item.by = by;
            return;
        }
        if items.len() >= MAX_MISSING {
            let until = |item: &Item| match item.by {
                NamedBy::Proposed(until) => Some(until),
                NamedBy::Final(_) => None,
            };
            let oldest = items.iter().min_by_key(|(_, item)| until(item));
            let oldest = oldest.map(|(digest, _)| *digest);
            oldest.and_then(|digest| items.remove(&digest));
        }
        let item = Item {
            author,
            due,
            asked: 0,
            by,
        };
        items.insert(digest, item);
    }

    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.shares.values().any(|items| items.contains_key(digest))
    }

    pub(super) fn remove(&mut self, digest: &Digest) {
        for items in self.shares.values_mut() {
            items.remove(digest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shares.values().map(BTreeMap::len).sum()
    }

    /// The lowest final block of which a bundle is missing.
    pub(super) fn lowest(&self) -> Option<Height> {
        let items = self.shares.values().flat_map(BTreeMap::values);
        let heights = items.filter_map(|item| match item.by {
            NamedBy::Final(height) => Some(height),
            NamedBy::Proposed(_) => None,
        });
        heights.min()
    }

    /// Forgets what has come and what is given up, and returns whom to ask for what now, and when to look again.
    pub(super) fn questions(
        &mut self,
        now: Moment,
        peers: &[Identity],
        timeout: Duration,
        holds: impl Fn(&Digest) -> bool,
    ) -> (Vec<Question>, Option<Moment>) {
        if peers.is_empty() {
            self.shares.clear();
        }
        let (mut questions, mut next) = (Vec::new(), None);
        for (share, items) in &mut self.shares {
            let is_full = items.len() >= MAX_MISSING;
            items.retain(|digest, item| {
                let is_over = match item.by {
                    NamedBy::Proposed(until) => until <= now,
                    NamedBy::Final(_) => is_full && item.asked >= GIVEN_UP * peers.len(),
                };
                !is_over && !holds(digest)
            });
            let mut asking: Vec<_> = items.iter_mut().collect();
            asking.sort_by_key(|(_, item)| item.due);
            asking.truncate(MAX_FETCHED);
            for (digest, item) in asking {
                if item.due <= now {
                    let order = share.order(item.author, peers);
                    questions.push(Question {
                        to: order[item.asked % order.len()],
                        digest: *digest,
                    });
                    item.asked += 1;
                    item.due = now.after(timeout * item.patience(peers.len(), is_full));
                }
                next = next.into_iter().chain([item.due]).min();
            }
        }
        self.shares.retain(|_, items| !items.is_empty());
        (questions, next)
    }
}

impl Share {
    /// In which order the peers are asked: the leader that proposes it first, then the author and all others.
    fn order(&self, author: Identity, peers: &[Identity]) -> Vec<Identity> {
        let leader = match self {
            Self::Leader(leader) => Some(*leader),
            Self::Author(_) => None,
        };
        let mut order: Vec<Identity> = (leader.into_iter().chain([author]))
            .filter(|one| peers.contains(one))
            .collect();
        order.dedup();
        let others = peers.iter().filter(|one| !order.contains(one));
        let others: Vec<Identity> = others.copied().collect();
        order.extend(others);
        order
    }
}

impl Item {
    /// How many times the usual timeout an answer may take.
    fn patience(&self, peers: usize, is_full: bool) -> u32 {
        let most = match is_full {
            true => FEW_DOUBLINGS,
            false => MAX_DOUBLINGS,
        };
        match self.by {
            NamedBy::Proposed(_) => 1,
            NamedBy::Final(_) => {
                let rounds = u32::try_from(self.asked / peers).unwrap_or(u32::MAX);
                2_u32.pow(rounds.min(most))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::{SecretKey, sha256};

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn peers(count: u8) -> Vec<Identity> {
        let key = |seed| SecretKey::from_bytes(&[seed; 32]).identity();
        (1..=count).map(key).collect()
    }

    fn digest(number: usize) -> Digest {
        sha256(&[&number.to_be_bytes()])
    }

    /// Asks until `end`, and returns what was asked when.
    fn asked(missing: &mut Missing, peers: &[Identity], end: Moment) -> Vec<(Moment, Question)> {
        let (mut now, mut all) = (Moment(0), Vec::new());
        while now < end {
            let (questions, next) = missing.questions(now, peers, TIMEOUT, |_| false);
            all.extend(questions.into_iter().map(|question| (now, question)));
            match next {
                Some(next) => now = next.max(Moment(now.0 + 1)),
                None => break,
            }
        }
        all
    }

    #[test]
    fn the_leader_is_asked_first_then_the_author_then_all_others_until_it_is_given_up() {
        let peers = peers(4);
        let mut missing = Missing::default();
        let until = Moment(0).after(4 * TIMEOUT);
        missing.of_proposed(peers[2], peers[1], digest(0), Moment(0), until);
        let all = asked(&mut missing, &peers, Moment(0).after(100 * TIMEOUT));
        let to: Vec<Identity> = all.iter().map(|(_, question)| question.to).collect();
        assert_eq!(to, [peers[2], peers[1], peers[0], peers[3]]);
        assert_eq!(missing.len(), 0);
    }

    #[test]
    fn a_final_blocks_bundle_is_asked_for_ever_less_often_and_not_given_up() {
        let peers = peers(3);
        let mut missing = Missing::default();
        assert!(missing.of_final(peers[0], digest(0), Moment(0), Height(7)));
        let all = asked(&mut missing, &peers, Moment(0).after(1_000 * TIMEOUT));
        let to: Vec<Identity> = all.iter().map(|(_, question)| question.to).collect();
        assert_eq!(to[..4], [peers[0], peers[1], peers[2], peers[0]]);
        let pauses: Vec<u64> = (all.windows(2))
            .map(|two| two[1].0.0 - two[0].0.0)
            .collect();
        assert!(pauses.is_sorted());
        let most = TIMEOUT.as_micros() as u64 * 2_u64.pow(MAX_DOUBLINGS);
        assert_eq!(pauses.last(), Some(&most));
        assert_eq!(missing.lowest(), Some(Height(7)));
        let (_, next) = missing.questions(Moment(0), &peers, TIMEOUT, |_| true);
        assert_eq!((missing.len(), next), (0, None), "it has come");
    }

    #[test]
    fn what_one_author_withholds_keeps_no_other_waiting_and_makes_room_once_all_were_asked() {
        let peers = peers(3);
        let mut missing = Missing::default();
        for number in 0..MAX_MISSING {
            assert!(missing.of_final(peers[0], digest(number), Moment(0), Height(1)));
        }
        assert!(!missing.of_final(peers[0], digest(MAX_MISSING), Moment(0), Height(2)));
        let other = digest(MAX_MISSING + 1);
        assert!(missing.of_final(peers[1], other, Moment(0), Height(3)));
        let (questions, _) = missing.questions(Moment(0), &peers, TIMEOUT, |_| false);
        assert_eq!(questions.len(), MAX_FETCHED + 1);
        assert!(questions.iter().any(|question| question.digest == other));
        asked(&mut missing, &peers, Moment(0).after(3_000 * TIMEOUT));
        assert!(missing.of_final(peers[0], digest(MAX_MISSING), Moment(0), Height(2)));
    }

    #[test]
    fn a_leaders_new_block_pushes_out_what_its_oldest_one_names() {
        let peers = peers(3);
        let mut missing = Missing::default();
        for number in 0..=MAX_MISSING {
            let until = Moment(1_000 + number as u64);
            missing.of_proposed(peers[0], peers[1], digest(number), Moment(0), until);
        }
        assert_eq!(missing.len(), MAX_MISSING);
        assert!(!missing.contains(&digest(0)) && missing.contains(&digest(MAX_MISSING)));
        assert_eq!(missing.lowest(), None);
        missing.remove(&digest(1));
        assert!(!missing.contains(&digest(1)));
    }
}
