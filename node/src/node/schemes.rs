//! The vote schemes of the validators that act and of those that come.
//!
//! Making one takes some milliseconds, since the keys are decoded and checked. At a border nothing can be voted for until it is
//! there, so it is made as soon as the coming validators are known, and kept over the border.

use parking_lot::Mutex;
use quorate_crypto::bls::{KeyError, Scheme};
use quorate_machine::live::LiveStatus;
use quorate_types::ValidatorSet;
use std::{sync::Arc, time::Duration};
use tracing::debug;

/// Schemes that are kept: of those who act and those who come, and of a set that is replaced before it acts.
const KEPT: usize = 3;

/// How often it is looked at whether the next epoch's validators are known.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Cheap to clone; clones share what is kept.
#[derive(Clone, Default)]
pub(super) struct Schemes(Arc<Mutex<Vec<(ValidatorSet, Scheme)>>>);

impl Schemes {
    fn held(&self, set: &ValidatorSet) -> Option<Scheme> {
        let is_same = |(kept, _): &&(ValidatorSet, Scheme)| {
            kept.group_key() == set.group_key() && kept.votes_as(set)
        };
        let held = self.0.lock();
        held.iter().find(is_same).map(|(_, scheme)| scheme.clone())
    }

    /// The scheme of a set.
    ///
    /// # Errors
    ///
    /// If its keys are not ones that were proven.
    pub(super) fn of(&self, set: &ValidatorSet) -> Result<Scheme, KeyError> {
        if let Some(scheme) = self.held(set) {
            return Ok(scheme);
        }
        let scheme = set.scheme()?;
        let mut kept = self.0.lock();
        kept.push((set.clone(), scheme.clone()));
        if kept.len() > KEPT {
            kept.remove(0);
        }
        Ok(scheme)
    }

    /// Makes the scheme of the newest set that is fixed as soon as there is one, until it is dropped. Ends at once where
    /// validators never change.
    pub(super) async fn prepare(self, live: Arc<LiveStatus>) {
        let committees = live.committees();
        if !committees.can_change() {
            return;
        }
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let newest = committees.set(committees.newest());
            let Some(set) = newest.filter(|set| self.held(set).is_none()) else {
                continue;
            };
            let schemes = self.clone();
            let made = tokio::task::spawn_blocking(move || schemes.of(&set).map(drop)).await;
            if !matches!(made, Ok(Ok(()))) {
                debug!(?made, "the scheme of the coming validators");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::bls::{HashedMessage, VoteSecret};
    use quorate_types::{BondAddress, BondName, Epoch, Identity, Member, VoteKey};

    fn secret(number: u8) -> VoteSecret {
        VoteSecret::from_bytes(&[number; 32]).expect("below the order")
    }

    fn set(epoch: u64, numbers: &[u8]) -> ValidatorSet {
        let members = numbers.iter().map(|number| Member {
            identity: Identity([*number; 32]),
            vote_key: VoteKey(secret(*number).public_key()),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        ValidatorSet::of_members(Epoch(epoch), members.collect())
    }

    #[test]
    fn a_scheme_is_made_once_for_the_same_keys_and_few_are_kept() {
        let schemes = Schemes::default();
        let kept = |schemes: &Schemes| schemes.0.lock().len();
        schemes.of(&set(1, &[1, 2, 3, 4])).expect("keys");
        schemes.of(&set(2, &[1, 2, 3, 4])).expect("keys");
        assert_eq!(kept(&schemes), 1, "the epoch makes no difference");
        for last in 5..10 {
            let changed = set(3, &[1, 2, 3, last]);
            let scheme = schemes.of(&changed).expect("keys");
            let message = HashedMessage::new(b"vote");
            let signed = |number: u8| secret(number).sign(&message);
            assert!(scheme.verify_partial(&message, 3, &signed(last)));
            assert!(!scheme.verify_partial(&message, 3, &signed(4)));
        }
        assert_eq!(kept(&schemes), KEPT);
    }
}
