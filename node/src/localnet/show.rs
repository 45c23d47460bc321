//! Validators come, leave, and are replaced, in a fixed order: four become seven, seven become five, and then the
//! first four are replaced one by one.

use super::changes::{Changes, name_of, names_of};
use quorate_types::Epoch;
use std::collections::BTreeSet;

/// The number of validators at the beginning.
pub const FIRST: usize = 4;

/// The number of machines that are no validators at the beginning.
pub const SPARES: usize = 5;

/// How many epochs it lasts at least.
const EPOCHS: u64 = 30;

/// The spares that join at first, so that there are seven validators.
const JOINING: [usize; 3] = [4, 5, 6];

/// Two of them, which leave again, so that there are five.
const LEAVING: [usize; 2] = [5, 6];

/// The first four, and who takes the place of each: two that were no validators before, and the two that left.
const REPLACED: [(usize, usize); FIRST] = [(0, 7), (1, 8), (2, 5), (3, 6)];

impl Changes {
    /// Plays the whole show. Between two changes there is an epoch without one.
    ///
    /// # Errors
    ///
    /// If a command fails, a set is not reached in time, a process ends, or the chain stands still.
    pub async fn show(&mut self) -> anyhow::Result<()> {
        let mut set: BTreeSet<usize> = (0..FIRST).collect();
        self.wait_for_set(&set).await?;
        self.say("the first validators give themselves names (quorate registry describe)");
        for place in 0..FIRST {
            self.describe(place).await?;
        }
        self.say(&format!(
            "{} put stake up (quorate registry bond)",
            names_of(&JOINING)
        ));
        for place in JOINING {
            self.enter(place).await?;
            set.insert(place);
        }
        self.rest(&set).await?;
        self.say(&format!(
            "{} take their stake out (quorate registry unbond)",
            names_of(&LEAVING)
        ));
        for place in LEAVING {
            self.leave(place).await?;
            set.remove(&place);
        }
        self.rest(&set).await?;
        for (old, new) in REPLACED {
            self.say(&format!(
                "{} is to take the place of {} (bond, unbond)",
                name_of(new),
                name_of(old)
            ));
            // Both count from the same half-time on, if the new one is in sync before it. Otherwise the old one
            // stays for some epochs more.
            let since = self.enter(new).await?;
            self.wait_for_epoch(since).await?;
            self.wait_until_in_sync(new).await?;
            self.leave(old).await?;
            set.remove(&old);
            set.insert(new);
            self.rest(&set).await?;
        }
        self.wait_for_epoch(Epoch(EPOCHS)).await
    }

    /// Waits until these are the validators, and have been for an epoch.
    async fn rest(&mut self, set: &BTreeSet<usize>) -> anyhow::Result<()> {
        self.wait_for_set(set).await?;
        let next = self.epoch().next();
        self.wait_for_epoch(next.next()).await
    }
}
