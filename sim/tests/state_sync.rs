//! Validators that were away for longer than the others keep blocks fetch the state and go on,
//! whatever happens meanwhile. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seeds};
use quorate_sim::{Attack, Fault, Mishap, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// More than are executed in one go, so that the checker sees each before it is pruned.
const RETENTION: u64 = 250;

/// A validator is away for so long that the others no longer keep blocks for it. Then all faults end.
fn scenario(seed: u64) -> (Scenario, ChaCha8Rng, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x57a7e);
    let validators = [4, 4, 5, 7][rng.random_range(0..4)];
    let mut scenario = Scenario::new(seed, validators, Duration::from_secs(15));
    scenario.retention = Some(RETENTION);
    scenario.snapshot_interval = rng.random_range(5..30);
    scenario.epoch_blocks = [7, 60, 1_000_000][rng.random_range(0..3)];
    scenario.transfers_per_second = 40;
    scenario.must_recover = true;
    let away = rng.random_range(0..validators);
    (scenario, rng, away)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn who_was_away_for_too_long_fetches_the_state_and_goes_on() {
    for seed in seeds(30) {
        let (mut scenario, mut rng, away) = scenario(seed);
        scenario.faults = vec![(ms(300), Fault::Crash(vec![away]))];
        if rng.random_bool(0.5) {
            scenario
                .faults
                .push((ms(12_400), Fault::LoseDatabase(away)));
        }
        scenario.faults.push((ms(12_500), Fault::Heal));
        let report = run(scenario);
        assert!(
            report.coverage.state_syncs >= 1,
            "seed {seed}: {:?}",
            report.coverage
        );
        assert!(report.blocked.is_empty(), "seed {seed}");
    }
}

#[test]
fn liars_crashes_and_disk_errors_cost_it_time_and_nothing_else() {
    let mut syncs = 0;
    for seed in seeds(60) {
        let (mut scenario, mut rng, away) = scenario(seed + 1_000);
        let most = (scenario.validators - 1) / 3;
        // With one fault at most, the chain needs all others while one is away, a liar among them: it lies
        // about snapshots only.
        if most >= 2 || rng.random_bool(0.7) {
            let liar = (away + rng.random_range(1..scenario.validators)) % scenario.validators;
            scenario
                .byzantine
                .insert(liar, [Attack::GarbageReplies].into());
        }
        scenario.faults = vec![(ms(300), Fault::Crash(vec![away]))];
        if rng.random_bool(0.5) {
            scenario
                .faults
                .push((ms(12_400), Fault::LoseDatabase(away)));
        }
        scenario
            .faults
            .push((ms(12_500), Fault::Restart(vec![away])));
        for _ in 0..rng.random_range(0..4) {
            let after = rng.random_range(1..60);
            let mishap = match rng.random_range(0..3) {
                0 => Mishap::CrashBefore,
                1 => Mishap::CrashInside,
                _ => Mishap::Fail,
            };
            let fault = Fault::Disk {
                validator: away,
                after,
                mishap,
                away: ms(rng.random_range(5..200)),
            };
            scenario
                .faults
                .push((ms(rng.random_range(12_500..13_200)), fault));
        }
        scenario.faults.push((ms(13_500), Fault::Heal));
        scenario.faults.sort_by_key(|(at, _)| *at);
        let report = run(scenario);
        syncs += report.coverage.state_syncs;
    }
    assert!(syncs > 30, "{syncs}");
}
