//! What others have learned the hard way, from their issue threads and advisories: each a test. Those
//! that live elsewhere are named in `docs/SIMULATOR.md`.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_crypto::bls::SchemeKind;
use quorate_sim::{Attack, Fault, Mishap, Report, Scenario};
use std::time::Duration;

/// All lose their power around the same sync; who had let a vote out before it would contradict it.
#[test]
fn a_vote_exposed_before_the_sync_would_be_contradicted_after_a_power_cut_of_all() {
    for seed in seeds(40) {
        let mut scenario = Scenario::new(seed, 4, seconds(4));
        for validator in 0..4 {
            for (cut, at) in [300, 900, 1_500].into_iter().enumerate() {
                let fault = Fault::Disk {
                    validator,
                    after: 1 + (seed + validator as u64) % 5,
                    mishap: Mishap::CRASHES[(seed as usize + cut + validator) % 3],
                    away: Duration::from_millis(5),
                };
                scenario.faults.push((Duration::from_millis(at), fault));
            }
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        let report = run(scenario);
        assert!(report.coverage.crashes >= 10, "{report:?}");
        assert!(report.lowest.0 > 100, "{report:?}");
    }
}

/// The same validator starts again and again from a journal that it replays each time.
#[test]
fn a_journal_that_is_replayed_again_and_again_makes_no_second_vote() {
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(6));
        for restart in 0..60 {
            let at = Duration::from_millis(200 + 70 * restart);
            let victim = vec![(restart % 2) as usize];
            scenario.faults.push((at, Fault::Crash(victim.clone())));
            let back = at + Duration::from_millis(1 + restart % 25);
            scenario.faults.push((back, Fault::Restart(victim)));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        let report = run(scenario);
        assert!(report.coverage.starts >= 60, "{report:?}");
        assert!(report.lowest.0 > 100, "{report:?}");
    }
}

/// Power cuts while the journal is rewritten under another name, whose folder may not be synced.
#[test]
fn what_was_signed_is_not_rolled_back_with_the_folders_names() {
    for seed in seeds(30) {
        let mut scenario = Scenario::new(seed, 4, seconds(8));
        scenario.transfers_per_second = 100;
        for cut in 0..12 {
            let at = Duration::from_millis(400 + 500 * cut);
            let fault = Fault::Disk {
                validator: (cut % 4) as usize,
                after: 1 + (seed * 7 + cut * 13) % 90,
                mishap: Mishap::CRASHES[(seed + cut) as usize % 3],
                away: Duration::from_millis(20),
            };
            scenario.faults.push((at, fault));
        }
        let report = run(scenario);
        assert!(report.coverage.mishaps >= 8, "{report:?}");
        assert!(report.lowest.0 > 100, "{report:?}");
    }
}

fn with_attacker(seed: u64, attacks: &[Attack]) -> Report {
    let mut scenario = Scenario::new(seed, 4, seconds(5));
    scenario.epoch_blocks = 20;
    let attacks = attacks.iter().copied().collect();
    scenario.byzantine.insert((seed % 4) as usize, attacks);
    run(scenario)
}

/// Views far ahead, up to the last there is, are dropped before they take memory or overflow.
#[test]
fn views_far_in_the_future_take_no_memory_and_overflow_nothing() {
    for seed in seeds(6) {
        let report = with_attacker(seed, &[Attack::FarFuture, Attack::VoteSpam]);
        assert!(report.lowest.0 > 40, "{report:?}");
    }
}

/// Certificates whose bitmaps are too long, too short, or name nobody.
#[test]
fn bitmaps_of_another_committee_and_of_too_few_prove_nothing() {
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(4));
        scenario.scheme = SchemeKind::BlsAggregate;
        scenario
            .byzantine
            .insert(1, [Attack::ForgeCertificates, Attack::FarFuture].into());
        let report = run(scenario);
        assert!(report.lowest.0 > 40, "{report:?}");
    }
}

/// Votes of another epoch, another chain, or another validator count nowhere.
#[test]
fn signatures_are_checked_against_their_own_epoch_chain_and_signer() {
    for seed in seeds(6) {
        let report = with_attacker(seed, &[Attack::WrongEpoch, Attack::Impersonate]);
        assert!(report.lowest.0 > 40, "{report:?}");
        // Nobody was blamed for what the attacker said in another's name: the world checks that.
    }
}

/// The same vote under two signatures, and different votes at once: slots go by the signer.
#[test]
fn votes_are_not_told_apart_by_the_bytes_of_their_signatures() {
    for seed in seeds(6) {
        let report = with_attacker(seed, &[Attack::Replay, Attack::SplitVotes]);
        assert!(report.lowest.0 > 40, "{report:?}");
    }
}

/// One peer answers every request with something else. Who has been away catches up all the same.
#[test]
fn one_bad_peer_does_not_wedge_catching_up() {
    for seed in seeds(12) {
        let mut scenario = Scenario::new(seed, 4, seconds(12));
        scenario.epoch_blocks = [1_000_000, 30][seed as usize % 2];
        scenario
            .byzantine
            .insert(1, [Attack::GarbageReplies].into());
        scenario.faults = vec![
            (seconds(1), Fault::Crash(vec![2])),
            (seconds(4), Fault::Restart(vec![2])),
        ];
        let report = run(scenario);
        assert!(
            report.lowest.0 + 20 > report.highest.0,
            "{seed}: {report:?}"
        );
        assert!(report.highest.0 > 150, "{seed}: {report:?}");
    }
}

/// A disk that claims to have synced and has not. Nobody can be protected from that alone, but with
/// one such validator the chain is, and the validator either starts with what it has or refuses.
#[test]
fn one_lying_disk_harms_no_other_validator() {
    for seed in seeds(20) {
        let mut scenario = Scenario::new(seed, 4, seconds(6));
        // It may say anything after it has forgotten what it said: one of the f.
        scenario.byzantine.insert(3, [Attack::LyingDisk].into());
        for lie in 0..10 {
            let fault = Fault::Disk {
                validator: 3,
                after: 1 + (seed + lie) % 9,
                mishap: Mishap::Lie,
                away: Duration::from_millis(20),
            };
            let at = Duration::from_millis(300 + 300 * lie);
            scenario.faults.push((at, fault));
            let crash = at + Duration::from_millis(60);
            scenario.faults.push((crash, Fault::Crash(vec![3])));
            let back = crash + Duration::from_millis(20);
            scenario.faults.push((back, Fault::Restart(vec![3])));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        let report = run(scenario);
        assert!(report.lowest.0 > 100, "{seed}: {report:?}");
    }
}

/// Execution that depends on anything but the blocks would part the states: clocks that are wrong,
/// mempools and caches that differ, and blocks executed at different times and in different batches
/// change nothing. The world compares every root.
#[test]
fn execution_depends_on_the_blocks_alone() {
    for seed in seeds(6) {
        let mut scenario = Scenario::new(seed, 4, seconds(6)).with_random_faults();
        scenario.transfers_per_second = 200;
        for validator in 0..4 {
            let clock = quorate_sim::ClockFault {
                ahead_ms: 700 * validator as i64 - 1_000,
                drift_ppm: 5_000 * validator as i64,
                late: Duration::from_millis(3),
            };
            scenario.clocks.insert(validator, clock);
        }
        let report = run(scenario);
        assert!(report.coverage.transactions > 150, "{report:?}");
    }
}
