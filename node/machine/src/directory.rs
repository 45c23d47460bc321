//! The nodes that a node exchanges requests and answers with.

use quorate_types::{Committee, Identity, ValidatorIndex};
use std::{collections::BTreeMap, sync::Arc};

/// A peer's number in a node's [`Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerIndex(pub usize);

impl PeerIndex {
    pub const fn as_usize(self) -> usize {
        self.0
    }
}

impl From<ValidatorIndex> for PeerIndex {
    /// Validators come first in a validator's directory, in the committee's order.
    fn from(place: ValidatorIndex) -> Self {
        Self(place.as_usize())
    }
}

/// The peers of a node by number. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Directory {
    list: Arc<List>,
}

#[derive(Debug)]
struct List {
    identities: Vec<Identity>,
    numbers: BTreeMap<Identity, PeerIndex>,
    /// The first so many are the committee.
    validators: usize,
}

impl Directory {
    /// A validator's peers: the committee, itself included, and the nodes that follow it.
    pub fn of_validator(committee: &Committee, followers: &[Identity]) -> Self {
        let members = committee.identities();
        let all = members.iter().chain(followers).copied();
        Self::new(all.collect(), members.len())
    }

    /// Peers that are not told apart.
    pub fn of(peers: Vec<Identity>) -> Self {
        Self::new(peers, 0)
    }

    fn new(identities: Vec<Identity>, validators: usize) -> Self {
        let mut numbers = BTreeMap::new();
        for (number, identity) in identities.iter().enumerate() {
            numbers.entry(*identity).or_insert(PeerIndex(number));
        }
        Self {
            list: Arc::new(List {
                identities,
                numbers,
                validators,
            }),
        }
    }

    pub fn size(&self) -> usize {
        self.list.identities.len()
    }

    pub fn find(&self, identity: &Identity) -> Option<PeerIndex> {
        self.list.numbers.get(identity).copied()
    }

    pub fn identity(&self, peer: PeerIndex) -> Option<Identity> {
        self.list.identities.get(peer.0).copied()
    }

    pub fn identities(&self) -> &[Identity] {
        &self.list.identities
    }

    pub fn has_followers(&self) -> bool {
        self.list.validators < self.list.identities.len()
    }

    /// A peer's place in the committee; `None` for a follower.
    pub fn validator(&self, peer: PeerIndex) -> Option<ValidatorIndex> {
        (peer.0 < self.list.validators).then(|| ValidatorIndex::at(peer.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Epoch;

    #[test]
    fn followers_are_numbered_behind_the_committee() {
        let members: Vec<_> = (0..4).map(|i| Identity([i; 32])).collect();
        let committee = Committee::new(Epoch(0), members).expect("distinct");
        let follower = Identity([9; 32]);
        let directory = Directory::of_validator(&committee, &[follower]);
        assert_eq!(directory.size(), 5);
        assert!(directory.has_followers());
        assert!(!Directory::of_validator(&committee, &[]).has_followers());
        let third = directory.find(&Identity([3; 32])).expect("a member");
        assert_eq!(directory.validator(third), Some(ValidatorIndex(3)));
        assert_eq!(third, ValidatorIndex(3).into());
        let last = directory.find(&follower).expect("a follower");
        assert_eq!((last, directory.validator(last)), (PeerIndex(4), None));
        assert_eq!(directory.identity(last), Some(follower));
        assert_eq!(directory.find(&Identity([8; 32])), None);
    }
}
