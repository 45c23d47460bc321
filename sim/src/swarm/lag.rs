//! Validators that fall so far behind that they have to fetch the state, while all other faults go on.
//!
//! From chance of its own: a seed without them draws the world that it always drew. A validator without a
//! state counts as faulty, so there are at most f of them and of Byzantine ones that may fall silent. Other
//! faults may make more of them, and stop all processes: the chain halts then, until they have fetched the
//! state from those that were started again with it.

use crate::{
    adversary::Attack,
    scenario::{Fault, Scenario},
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{ops::Range, time::Duration};

/// Of 100 seeds, how many draw this.
const PERCENT: u32 = 25;

/// How many times as long as others such a run is: blocks must come and be deleted meanwhile.
pub(super) const TIMES_AS_LONG: u32 = 3;

/// What is drawn about laggards.
pub(super) struct Lag {
    rng: ChaCha8Rng,
    /// How many there are.
    count: usize,
}

/// The laggards of a seed, if it draws them.
pub(super) fn drawn(seed: u64) -> Option<Lag> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x1a_99);
    (rng.random_range(0..100) < PERCENT).then(|| Lag::of(seed))
}

impl Lag {
    /// The laggards of a seed, whether it draws them or not.
    pub(super) fn of(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0x57_a7e5),
            count: 0,
        }
    }

    /// How many validators there are: more often as many that a laggard is not the only faulty one.
    pub(super) fn validators(&mut self) -> usize {
        [4, 4, 5, 7, 7, 7, 10][self.rng.random_range(0..7)]
    }

    /// Leaves out Byzantine validators beyond the bound. Returns how many validators will lag behind.
    pub(super) fn keep_bound(&mut self, scenario: &mut Scenario) -> usize {
        let most = (scenario.validators - 1) / 3;
        while scenario.byzantine.len() > most - 1 {
            scenario.byzantine.pop_last();
        }
        let room = most - scenario.byzantine.len();
        self.count = self.rng.random_range(1..=room);
        if self.rng.random_bool(0.5) {
            // One that lies about snapshots only, and votes. It may be one of the others, which does more.
            let liar = self.rng.random_range(0..scenario.validators);
            let lie = match self.rng.random_bool(0.5) {
                true => Attack::GarbageReplies,
                false => Attack::StaleSnapshots,
            };
            let attacks = scenario.byzantine.entry(liar).or_default();
            if !super::heals(attacks) {
                attacks.insert(lie);
            }
        }
        self.count
    }

    /// Adds what makes them lag behind.
    pub(super) fn add(&mut self, scenario: &mut Scenario, end: Duration) {
        let rng = &mut self.rng;
        scenario.retention = Some(rng.random_range(8..40));
        scenario.snapshot_interval = rng.random_range(3..16);
        let mut victims = scenario.all();
        victims.retain(|victim| scenario.is_honest(*victim));
        victims.shuffle(rng);
        for victim in victims.into_iter().take(self.count) {
            let (away, loses) = match rng.random_range(0..4) {
                // Long enough that the others have deleted what it lacks.
                0 | 1 => (away(rng, end, 0.05..0.45, 0.25..0.5), false),
                2 => (away(rng, end, 0.05..0.45, 0.25..0.5), true),
                // The others have deleted the first blocks by then.
                _ => (away(rng, end, 0.45..0.85, 0.0..0.1), true),
            };
            stay_away(scenario, victim, &away);
            let faults = &mut scenario.faults;
            faults.push((away.start, Fault::Crash(vec![victim])));
            if loses {
                let at = away.start + (away.end - away.start).mul_f64(rng.random_range(0.0..1.0));
                faults.push((at, Fault::LoseDatabase(victim)));
            }
            faults.push((away.end, Fault::Restart(vec![victim])));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
    }
}

/// When somebody is away: from a share of the time on, for a share of it.
fn away(
    rng: &mut ChaCha8Rng,
    end: Duration,
    from: Range<f64>,
    lasts: Range<f64>,
) -> Range<Duration> {
    let start = end.mul_f64(rng.random_range(from));
    start..start + end.mul_f64(rng.random_range(lasts))
}

/// Leaves out what would start a validator again while it is away.
fn stay_away(scenario: &mut Scenario, victim: usize, away: &Range<Duration>) {
    scenario.faults.retain_mut(|(at, fault)| match fault {
        _ if !away.contains(at) => true,
        Fault::Restart(validators) => {
            validators.retain(|validator| *validator != victim);
            !validators.is_empty()
        }
        Fault::Disk { validator, .. } => *validator != victim,
        Fault::Room(validator) => {
            if *validator == victim {
                *at = away.end;
            }
            true
        }
        _ => true,
    });
}
