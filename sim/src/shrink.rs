//! From a failing scenario to a small one that fails too.

use crate::{network::Links, runner::run_one, scenario::Scenario};
use std::time::{Duration, Instant};

/// Tries to leave out whatever can be left out. Gives the smallest failing scenario that was found
/// within the time, and what it violates; `None` if the scenario does not fail.
pub fn shrink(
    scenario: Scenario,
    limit: Duration,
    mut watch: impl FnMut(&Scenario),
) -> Option<(Scenario, String)> {
    let start = Instant::now();
    let mut violation = run_one(scenario.clone()).err()?.0;
    let mut best = scenario;
    loop {
        let before = best.clone();
        let mut candidates = simpler(&best);
        // Larger cuts first: halves of the faults, then quarters, then single ones.
        let mut size = best.faults.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < best.faults.len() {
                let mut less = best.clone();
                let end = (from + size).min(less.faults.len());
                less.faults.drain(from..end);
                candidates.push(less);
                from += size;
            }
            size /= 2;
        }
        for candidate in candidates {
            if start.elapsed() > limit {
                return Some((best, violation));
            }
            if let Err(found) = run_one(candidate.clone()) {
                violation = found.0;
                best = candidate;
                watch(&best);
                break;
            }
        }
        if best == before {
            return Some((best, violation));
        }
    }
}

/// The scenario with one of its troubles gone.
fn simpler(scenario: &Scenario) -> Vec<Scenario> {
    let mut list = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Scenario)| {
        let mut less = scenario.clone();
        change(&mut less);
        if less != *scenario {
            list.push(less);
        }
    };
    offer(&|s| {
        s.links = Links {
            latency: s.links.latency.clone(),
            ..Links::good()
        }
    });
    offer(&|s| s.clocks.clear());
    offer(&|s| s.transfers_per_second = 0);
    offer(&|s| s.border_crashes_percent = 0);
    offer(&|s| s.links.loss_percent = 0);
    offer(&|s| s.links.double_percent = 0);
    offer(&|s| s.links.disorder = false);
    offer(&|s| s.links.bandwidth = None);
    offer(&|s| s.links.slow.clear());
    offer(&|s| s.epoch_blocks = 1_000_000);
    for validator in scenario.clocks.keys() {
        offer(&|s| {
            s.clocks.remove(validator);
        });
    }
    for (validator, attacks) in &scenario.byzantine {
        offer(&|s| {
            s.byzantine.remove(validator);
        });
        if attacks.len() > 1 {
            for attack in attacks {
                offer(&|s| {
                    if let Some(held) = s.byzantine.get_mut(validator) {
                        held.remove(attack);
                    }
                });
            }
        }
    }
    list
}
