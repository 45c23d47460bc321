//! Journals that are lost, at random, or replaced by an old copy. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_sim::{Attack, Fault, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Up to f validators lose their journals at random moments, again and again, also while others crash. None
/// ever contradicts itself, which the checker sees to, and in the end all vote again: f others stop,
/// and the chain goes on.
// R27
#[test]
fn lost_journals_cost_no_safety_and_their_validators_vote_again() {
    for seed in seeds(40) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let validators = [4, 4, 4, 7][seed as usize % 4];
        let faults = (validators - 1) / 3;
        let mut scenario = Scenario::new(seed, validators, seconds(6));
        scenario.epoch_blocks = [1, 2, 5, 30, 10_000][seed as usize % 5];
        scenario.links.loss_percent = [0, 0, 5][seed as usize % 3];
        for victim in 0..faults {
            for _ in 0..rng.random_range(1..5) {
                let at = Duration::from_millis(rng.random_range(5..2_000));
                let away = Duration::from_micros(rng.random_range(1..100_000));
                scenario.faults.push((at, Fault::LoseJournal(victim)));
                scenario
                    .faults
                    .push((at + away, Fault::Restart(vec![victim])));
            }
        }
        for _ in 0..rng.random_range(0..4) {
            let victim = rng.random_range(0..validators);
            let at = Duration::from_millis(rng.random_range(5..2_000));
            let away = Duration::from_micros(rng.random_range(1..100_000));
            scenario.faults.push((at, Fault::Crash(vec![victim])));
            scenario
                .faults
                .push((at + away, Fault::Restart(vec![victim])));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario.faults.push((seconds(3), Fault::Heal));
        scenario.must_recover = true;
        let healed = run(scenario.clone());
        let others: Vec<usize> = (validators - faults..validators).collect();
        scenario.faults.push((seconds(5), Fault::Crash(others)));
        scenario.duration = seconds(8);
        scenario.must_recover = false;
        let report = run(scenario);
        assert!(
            report.highest.0 > healed.highest.0 + 20,
            "seed {seed}: {} then {}",
            healed.highest,
            report.highest
        );
    }
}

/// A validator is started on an old copy of its journal, while the others run. It notices before its first
/// vote, since the others have seen newer votes of it.
// R28
#[test]
fn an_old_copy_of_a_journal_is_noticed_before_the_first_vote() {
    for seed in seeds(30) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut scenario = Scenario::new(seed, 4, seconds(4));
        scenario.epoch_blocks = [3, 40, 10_000][seed as usize % 3];
        let mut at = Duration::from_millis(rng.random_range(100..500));
        let copied = (at, Fault::CopyJournal(1));
        at += Duration::from_micros(rng.random_range(0..300_000));
        let restored = (at, Fault::RestoreJournal(1));
        at += Duration::from_micros(rng.random_range(1..50_000));
        let restarted = (at, Fault::Restart(vec![1]));
        scenario.faults = vec![copied, restored, restarted];
        // The chain needs its votes later on.
        scenario.faults.push((seconds(2), Fault::Crash(vec![0])));
        let mut before = scenario.clone();
        before.duration = seconds(2);
        let (before, after) = (run(before), run(scenario));
        assert!(
            after.highest.0 > before.highest.0 + 20,
            "seed {seed}: {} then {}",
            before.highest,
            after.highest
        );
    }
}

/// Two of four lose their journals in the same epoch, one after the other. Each votes again at once, and both vote in
/// the first views of the next epoch: without them the chain would stand there for good.
#[test]
fn journals_lost_one_after_the_other_do_not_halt_the_chain_at_the_next_border() {
    for seed in seeds(4) {
        let mut scenario = Scenario::new(seed, 4, seconds(12));
        scenario.epoch_blocks = 400;
        let at = |ms| Duration::from_millis(ms);
        scenario.faults = vec![
            (at(200), Fault::LoseJournal(2)),
            (at(250), Fault::Restart(vec![2])),
            (at(1_000), Fault::LoseJournal(3)),
            (at(1_050), Fault::Restart(vec![3])),
        ];
        let report = run(scenario);
        assert!(report.epoch.0 >= 2, "seed {seed}: {report:?}");
    }
}

/// The link to one of the others is missing while a lost journal is recovered, which takes an answer of each: question
/// and answer go another way.
#[test]
fn a_lost_journal_is_recovered_over_a_missing_link() {
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(12));
        scenario.epoch_blocks = [40, 10_000][seed as usize % 2];
        let at = |ms| Duration::from_millis(ms);
        scenario.faults = vec![
            (at(300), Fault::Unlink(0, 3)),
            (at(500), Fault::LoseJournal(3)),
            (at(600), Fault::Restart(vec![3])),
            // The chain needs its votes later on.
            (seconds(7), Fault::Crash(vec![1])),
        ];
        let mut before = scenario.clone();
        before.duration = seconds(7);
        let (before, after) = (run(before), run(scenario));
        assert!(
            after.highest.0 > before.highest.0 + 20,
            "seed {seed}: {} then {}",
            before.highest,
            after.highest
        );
    }
}

/// One or two of seven, or one of four, lie to whoever asks what its lost journal held. Nobody contradicts itself,
/// nobody takes its own votes for somebody else's, which the checker sees to. Of seven, one liar and one lost
/// journal are no more than f: all goes on.
#[test]
fn lies_about_lost_votes_cost_no_safety_and_keep_no_more_than_f_from_voting() {
    for seed in seeds(60) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x11e);
        let (validators, liars) = [(4, 1), (7, 2), (7, 1)][seed as usize % 3];
        let mut scenario = Scenario::new(seed, validators, seconds(6));
        scenario.epoch_blocks = [1, 2, 5, 30, 10_000][seed as usize % 5];
        scenario.links.loss_percent = [0, 5][seed as usize % 2];
        for liar in validators - liars..validators {
            let attacks = [Attack::LyingStandings];
            scenario.byzantine.insert(liar, attacks.into());
        }
        for _ in 0..rng.random_range(3..12) {
            let at = Duration::from_millis(rng.random_range(5..2_000));
            let away = Duration::from_micros(rng.random_range(1..30_000));
            scenario.faults.push((at, Fault::LoseJournal(1)));
            scenario.faults.push((at + away, Fault::Restart(vec![1])));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario.faults.push((seconds(3), Fault::Heal));
        scenario.must_recover = liars < (validators - 1) / 3;
        run(scenario);
    }
}
