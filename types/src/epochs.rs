//! Which blocks belong to which epoch.

use crate::{Epoch, Header, Height};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// How many blocks each epoch has. Epoch e holds the heights from e·N + 1 to (e + 1)·N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochLength(NonZeroU64);

impl EpochLength {
    /// What a new chain of simplex gets unless something else is asked for.
    pub const DEFAULT: Self = Self(NonZeroU64::new(10_000).expect("not zero"));

    /// What a chain of another protocol gets ([`Protocol::usual_epoch`](crate::genesis::Protocol::usual_epoch)).
    pub const SHORT: Self = Self(NonZeroU64::new(1_000).expect("not zero"));

    /// An epoch length; `None` for zero.
    pub fn new(blocks: u64) -> Option<Self> {
        NonZeroU64::new(blocks).map(Self)
    }

    /// The number of blocks.
    pub fn blocks(self) -> u64 {
        self.0.get()
    }

    /// The epoch that the block of this height belongs to. Height 0, the genesis state, counts as
    /// epoch 0.
    pub fn epoch_of(self, height: Height) -> Epoch {
        Epoch(height.0.saturating_sub(1) / self.0)
    }

    /// The height of the epoch's last block, on whose finality the next epoch starts.
    pub fn last_height(self, epoch: Epoch) -> Height {
        Height(epoch.0.saturating_add(1).saturating_mul(self.0.get()))
    }

    /// On a chain with a registry: the height in the middle of an epoch whose state fixes the validators
    /// of the next one.
    pub fn fixing_height(self, epoch: Epoch) -> Height {
        Height(self.last_height(epoch).0.saturating_sub(self.0.get() / 2))
    }

    /// On a chain with a registry: whether a block, if it is the last of its epoch, names a state that fixes
    /// the next validators. So a quorum of the old set has signed who the new one is. If it names an older
    /// one, the validators stay.
    pub fn names_next_set(self, header: &Header) -> bool {
        !self.is_last(header.height) || header.executed_height >= self.fixing_height(header.epoch)
    }

    /// On a chain with a registry: the last epoch whose validators the state after a block fixes.
    pub fn fixed_to(self, executed: Height) -> Epoch {
        let epoch = self.epoch_of(executed.next());
        if executed >= self.fixing_height(epoch) {
            epoch.next()
        } else {
            epoch
        }
    }

    /// Whether the block of this height is the last of its epoch.
    pub fn is_last(self, height: Height) -> bool {
        height.0 > 0 && height.0.is_multiple_of(self.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_height_is_in_one_epoch_and_the_last_one_ends_it() {
        for blocks in [1, 2, 7, 10_000] {
            let length = EpochLength::new(blocks).expect("not zero");
            let mut epoch = Epoch(0);
            for height in (1..=3 * blocks).map(Height) {
                assert_eq!(length.epoch_of(height), epoch);
                assert_eq!(length.is_last(height), height == length.last_height(epoch));
                if length.is_last(height) {
                    epoch = epoch.next();
                }
            }
        }
        let longest = EpochLength::new(u64::MAX).expect("not zero");
        assert_eq!(longest.last_height(Epoch(u64::MAX)), Height(u64::MAX));
        assert_eq!(longest.epoch_of(Height(0)), Epoch(0));
        assert!(EpochLength::new(0).is_none() && !longest.is_last(Height(0)));
    }

    #[test]
    fn the_middle_of_an_epoch_fixes_the_next_one() {
        let length = EpochLength::new(16).expect("not zero");
        let fixed = |height| length.fixed_to(Height(height)).0;
        assert_eq!([0, 7].map(fixed), [0, 0]);
        assert_eq!([8, 15, 16, 23].map(fixed), [1, 1, 1, 1]);
        assert_eq!([24, 32, 39, 40].map(fixed), [2, 2, 2, 3]);
    }
}
