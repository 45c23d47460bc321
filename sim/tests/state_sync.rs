//! Validators that were away for longer than the others keep blocks fetch the state and go on,
//! whatever happens meanwhile. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seeds};
use quorate_sim::{Attack, Fault, Latency, Mishap, Scenario, StateSyncTimes};
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
    for seed in seeds(20) {
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
    for seed in seeds(40) {
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

/// One validator lost its database, another one stays away, and the others have no snapshot from before
/// their start. The newest state is named by no block yet, and no block can come.
#[test]
fn a_chain_that_halted_and_was_restarted_serves_the_state_that_it_lacks() {
    for seed in seeds(10) {
        let mut scenario = Scenario::new(seed, 4, Duration::from_secs(20));
        scenario.retention = Some(40);
        scenario.snapshot_interval = 10;
        scenario.transfers_per_second = 40;
        scenario.must_recover = true;
        let lost = seed as usize % 4;
        let away = (lost + 1 + seed as usize / 4 % 3) % 4;
        let mut others = scenario.all();
        others.retain(|validator| *validator != away);
        scenario.faults = vec![
            (ms(10_000), Fault::Crash(scenario.all())),
            (ms(10_100), Fault::LoseDatabase(lost)),
            (ms(10_200), Fault::Restart(others)),
            (ms(18_000), Fault::Heal),
        ];
        let report = run(scenario);
        let mut its = report.state_syncs.clone();
        its.retain(|times| times.host == lost);
        let times = whole(&its);
        let at = Duration::from_micros(times.voted.unwrap().0);
        assert!(at < ms(17_000), "seed {seed}: {times:?}");
    }
}

/// How long a validator may take from the last part of the state to its next vote.
const TO_VOTE: Duration = Duration::from_secs(2);

/// How long the progress may say nothing new without a reason.
const SILENCE: Duration = Duration::from_secs(5);

/// The first state sync of a run that came to its end.
fn whole(syncs: &[StateSyncTimes]) -> &StateSyncTimes {
    let mut whole = syncs.iter().filter(|times| times.whole.is_some());
    whole
        .next()
        .unwrap_or_else(|| panic!("no state was fetched: {syncs:?}"))
}

#[test]
fn it_votes_two_seconds_after_the_last_part_at_most() {
    for seed in seeds(20) {
        let (mut scenario, mut rng, away) = scenario(seed + 2_000);
        // A validator that fetched an old state has more blocks to execute.
        scenario.snapshot_interval = rng.random_range(5..120);
        scenario.costs.execute = ms(rng.random_range(0..20));
        scenario.faults = vec![(ms(300), Fault::Crash(vec![away]))];
        if rng.random_bool(0.5) {
            scenario
                .faults
                .push((ms(12_400), Fault::LoseDatabase(away)));
        }
        scenario.faults.push((ms(12_500), Fault::Heal));
        let report = run(scenario);
        let times = whole(&report.state_syncs);
        let took = times.to_vote().unwrap();
        assert!(took <= TO_VOTE, "seed {seed}: {took:?}, {times:?}");
        assert!(!times.disturbed, "seed {seed}: {times:?}");
    }
}

#[test]
fn in_every_stage_it_shows_something_new_or_what_it_waits_for() {
    for seed in seeds(4) {
        let mut scenario = Scenario::new(seed, 4, Duration::from_secs(60));
        scenario.links.latency = Latency::Between(ms(5), ms(5));
        scenario.block_interval = ms(40);
        scenario.retention = Some(40);
        scenario.snapshot_interval = 10;
        scenario.must_recover = true;
        let away = seed as usize % 4;
        let others = scenario.all().into_iter().filter(|other| *other != away);
        let groups = vec![vec![away], others.collect()];
        scenario.faults = vec![
            (ms(300), Fault::Crash(vec![away])),
            (ms(12_500), Fault::Restart(vec![away])),
            (ms(15_000), Fault::Heal),
        ];
        let report = run(scenario.clone());
        let calm = whole(&report.state_syncs);
        let stages = [
            ("searching", calm.began),
            ("fetching", calm.chosen.unwrap()),
            ("completing", calm.last_part.unwrap()),
        ];
        for (stage, begins) in stages {
            // Nothing that is on its way now comes, nor anything in the next eight seconds.
            let at = Duration::from_micros(begins.0 + 500);
            scenario.faults.truncate(2);
            let silence = Fault::Partition(groups.clone());
            scenario.faults.push((at, silence));
            scenario.faults.push((at + ms(8_000), Fault::Join));
            scenario.faults.push((at + ms(20_000), Fault::Heal));
            let report = run(scenario.clone());
            let times = whole(&report.state_syncs);
            let took = times.whole.unwrap().since(times.began);
            assert!(took > ms(8_000), "seed {seed}, {stage}: {times:?}");
            assert!(times.silence <= SILENCE, "seed {seed}, {stage}: {times:?}");
        }
    }
}
