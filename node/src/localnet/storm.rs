//! Random changes: machines bond, unbond and come back, and processes are killed. Or exchanges: as many validators as
//! may be faulty are replaced at one border, again and again.

use super::{
    changes::{Changes, name_of, names_of},
    setup::STAKE,
};
use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// The fewest machines that have something at stake. Two less would be too few for a set.
const FEWEST_BONDED: usize = 5;

/// The longest pause between two things that happen.
const LONGEST_PAUSE_MS: u64 = 1_500;

/// For how long a killed process is away, in milliseconds.
const AWAY_MS: [u64; 3] = [1_000, 4_000, 15_000];

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Enter,
    Leave,
    Withdraw,
    Kill,
}

impl Changes {
    /// Lets random things happen until the time is over.
    ///
    /// # Errors
    ///
    /// If a process ends by itself, the chain stands still, or a command fails repeatedly.
    pub async fn storm(&mut self, seed: u64, lasts: Option<Duration>) -> anyhow::Result<()> {
        let mut rng = StdRng::seed_from_u64(seed);
        let start = Instant::now();
        while lasts.is_none_or(|lasts| start.elapsed() < lasts) {
            let pause = Duration::from_millis(rng.random_range(0..LONGEST_PAUSE_MS));
            let place = rng.random_range(0..self.network.size());
            let event = match rng.random_range(0..100) {
                0..35 => Event::Leave,
                35..75 => Event::Enter,
                75..85 => Event::Withdraw,
                _ => Event::Kill,
            };
            let away = Duration::from_millis(AWAY_MS[rng.random_range(0..AWAY_MS.len())]);
            self.let_happen(event, place, away).await?;
            let until = Instant::now() + pause;
            loop {
                self.tick().await?;
                if Instant::now() >= until {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replaces as many validators as may be faulty at one border, again and again, until the time is over. Those who wait
    /// outbid the ones with the least stake, in the second half of an epoch, so that all of them have a whole one to get
    /// their seats in.
    ///
    /// # Errors
    ///
    /// If a process ends by itself, the chain stands still, or those who outbid the others do not become validators.
    pub async fn exchange(&mut self, lasts: Option<Duration>) -> anyhow::Result<()> {
        let start = Instant::now();
        for place in 0..self.network.size() {
            if !self.watcher().chronicle().acting().contains(&place) {
                self.say(&format!("{} puts stake up", name_of(place)));
                self.enter(place).await?;
            }
        }
        while lasts.is_none_or(|lasts| start.elapsed() < lasts) {
            let acting = self.watcher().chronicle().acting();
            let at_once = (acting.len() - 1) / 3;
            let registry = self.registry().await.context("nobody tells the registry")?;
            let stake_of = |place| self.bond_of(&registry, place).map_or(0, |bond| bond.stake);
            let highest = (0..self.network.size()).map(stake_of).max().unwrap_or(0);
            // Who has waited longest has the least.
            let mut waiting: Vec<usize> = (0..self.network.size())
                .filter(|place| !acting.contains(place))
                .collect();
            waiting.sort_by_key(|place| stake_of(*place));
            waiting.truncate(at_once);
            for place in &waiting {
                self.wait_until_in_sync(*place).await?;
                self.fund(*place, highest + 1).await?;
            }
            self.wait_for_second_half().await?;
            self.say(&format!("{} outbid others", names_of(&waiting)));
            for place in &waiting {
                self.raise(*place, highest + 1).await?;
            }
            let wanted: BTreeSet<usize> = waiting.into_iter().collect();
            self.wait_for_validators(&wanted).await?;
        }
        Ok(())
    }

    /// Whether nobody is down, and all validators are in sync: one fault at a time is tolerated.
    fn all_are_there(&self) -> bool {
        let chronicle = self.watcher().chronicle();
        let mut acting = chronicle.acting().into_iter();
        self.down.is_empty() && acting.all(|place| chronicle.is_in_sync(place))
    }

    /// Does it if the machine's state permits it.
    async fn let_happen(
        &mut self,
        event: Event,
        place: usize,
        away: Duration,
    ) -> anyhow::Result<()> {
        let Some(registry) = self.registry().await else {
            return Ok(());
        };
        let bond = self.bond_of(&registry, place);
        let staked = bond.as_ref().map_or(0, |bond| bond.stake);
        let bonded = registry.bonds.iter().filter(|bond| bond.stake >= STAKE);
        let name = name_of(place);
        match event {
            Event::Leave if staked > 0 && bonded.count() > FEWEST_BONDED => {
                self.say(&format!("{name} takes its stake out"));
                self.leave(place).await
            }
            Event::Enter if staked == 0 => {
                self.say(&format!("{name} puts stake up"));
                self.enter(place).await.map(drop)
            }
            Event::Withdraw
                if bond.is_some_and(|bond| bond.leaving > 0 && bond.leaves_at < registry.epoch) =>
            {
                self.say(&format!("{name} withdraws its stake"));
                self.withdraw(place).await
            }
            Event::Kill if self.all_are_there() && self.network.process(place).is_some() => {
                self.say(&format!("{name} is killed for {} s", away.as_secs()));
                self.kill(place, away)
            }
            _ => Ok(()),
        }
    }
}
