//! Scenarios from seeds, by swarm testing (Groce et al., 2012): each run switches a random subset of
//! all faults on, since some hide what others would show.

mod lag;

use self::lag::Lag;
use crate::{
    adversary::Attack,
    clock::ClockFault,
    crypto::Cryptography,
    disk::Mishap,
    network::{Latency, Links, WORLD},
    scenario::{Fault, Scenario, timing_for, whole_micros},
};
use quorate_types::{
    EpochLength,
    genesis::{ApplicationKind, Protocol},
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeSet, time::Duration};

/// One run in this many uses BLS; the others the cheap scheme.
const BLS_EVERY: u64 = 4;

/// How long faults last, in views of a healthy network.
const FAULTY_VIEWS: u32 = 120;

/// The kinds of faults that a run may have switched on.
struct Switches {
    crashes: bool,
    power: bool,
    storms: bool,
    partitions: bool,
    cuts: bool,
    disk_errors: bool,
    full_disks: bool,
}

/// The scenario of a seed.
pub fn swarm(seed: u64) -> Scenario {
    draw(seed, lag::drawn(seed))
}

/// The scenario of a seed in which some validator has to fetch the state.
pub fn swarm_with_sync(seed: u64) -> Scenario {
    draw(seed, Some(Lag::of(seed)))
}

fn draw(seed: u64, mut lag: Option<Lag>) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5_1a23);
    let validators = [4, 4, 4, 4, 5, 6, 7, 7, 10][rng.random_range(0..9)];
    let validators = lag.as_mut().map_or(validators, Lag::validators);
    let mut scenario = Scenario::new(seed, validators, Duration::ZERO);
    let mut on = |percent: u32| rng.random_range(0..100) < percent;
    let switches = Switches {
        crashes: on(50),
        power: on(50),
        storms: on(30),
        partitions: on(40),
        cuts: on(25),
        disk_errors: on(25),
        full_disks: on(10),
    };
    let (lossy, doubles, disorder, narrow, slow) = (on(40), on(30), on(50), on(15), on(15));
    let (skewed, regions, short_epochs, byzantine) = (on(40), on(10), on(40), on(70));
    // Runs with state sync are long.
    let bls_every = BLS_EVERY * if lag.is_some() { 4 } else { 1 };
    if seed.is_multiple_of(bls_every) {
        scenario.cryptography = Cryptography::Bls;
    }
    // The node's default, and finalize votes that wait for company.
    if (seed / 2).is_multiple_of(2) {
        scenario.linger = Duration::ZERO;
    }
    scenario.links = links(&mut rng, [lossy, doubles, disorder, narrow, slow, regions]);
    let bound = scenario.links.bound();
    scenario.timing = timing_for(bound);
    if seed.is_multiple_of(3) {
        let blocks = [16, 32, 64, 160, 640][(seed / 3 % 5) as usize];
        scenario.turns_fit = EpochLength::new(blocks);
    }
    if short_epochs {
        scenario.epoch_blocks = rng.random_range(1..40);
        scenario.border_crashes_percent = if switches.crashes { 10 } else { 0 };
    }
    if skewed {
        for validator in 0..validators {
            let clock = ClockFault {
                ahead_ms: rng.random_range(-2_000..2_000),
                drift_ppm: rng.random_range(-20_000..20_000),
                late: Duration::from_micros(rng.random_range(0..20_000)),
            };
            scenario.clocks.insert(validator, clock);
        }
    }
    if byzantine {
        let most = (validators - 1) / 3;
        for _ in 0..rng.random_range(1..=most) {
            let attacks: BTreeSet<Attack> = (0..rng.random_range(1..=3))
                .map(|_| Attack::ALL[rng.random_range(0..Attack::ALL.len())])
                .collect();
            let victim = rng.random_range(0..validators);
            scenario.byzantine.insert(victim, attacks);
        }
        let colludes = |attacks: &BTreeSet<Attack>| attacks.contains(&Attack::Collude);
        if most >= 2 && scenario.byzantine.values().any(colludes) {
            // One alone is a mere forger: two whose errors cancel.
            let first = rng.random_range(0..validators);
            let second = (first + 1) % validators;
            let pair = [first, second].map(|v| (v, [Attack::Collude].into()));
            scenario.byzantine = pair.into();
        }
    }
    // More than f that break for a while and heal, one after the other: no protocol can demand
    // anything meanwhile, and everything afterwards.
    let glitches = !byzantine && rng.random_range(0..100) < 25;
    scenario.sync = Duration::from_micros(rng.random_range(50..3_000));
    scenario.transfers_per_second = rng.random_range(0..60);
    let healthy = bound * 3 + scenario.sync * 2 + Duration::from_millis(2);
    let times = if lag.is_some() { lag::TIMES_AS_LONG } else { 1 };
    let end = healthy * FAULTY_VIEWS * times;
    if glitches {
        let span = end.as_millis() as u64 / validators as u64;
        for validator in 0..rng.random_range(1..validators) {
            let from = span * validator as u64;
            let until = from + rng.random_range(span / 2..span * 3 / 2);
            let until = until.min(end.as_millis() as u64);
            let glitch = Attack::Glitch(from, until);
            scenario.byzantine.insert(validator, [glitch].into());
        }
    }
    let laggards = lag.as_mut().map_or(0, |lag| lag.keep_bound(&mut scenario));
    add_faults(&mut scenario, &mut rng, &switches, end);
    scenario.must_recover = true;
    if lag.is_none() {
        lose_a_database(&mut scenario, end);
    }
    lose_journals(&mut scenario, end, laggards);
    if lag.is_none() {
        lie_about_votes(&mut scenario, end);
    }
    lack_links(&mut scenario, end);
    if scenario.byzantine.len() + laggards <= (validators - 1) / 3 {
        // Otherwise one of them lies about snapshots only.
        forge_more(&mut scenario);
        spoil_turns(&mut scenario);
    }
    if let Some(lag) = &mut lag {
        lag.add(&mut scenario, end);
    }
    for (at, fault) in &mut scenario.faults {
        *at = whole_micros(*at);
        if let Fault::Disk { away, .. } = fault {
            *away = whole_micros(*away);
        }
    }
    execute_slowly(&mut scenario);
    idle(&mut scenario);
    if lag.is_some() {
        // A state that is worth fetching takes many blocks.
        let interval = &mut scenario.timing.idle_interval;
        *interval = whole_micros((*interval).min(healthy * 2));
    }
    scenario.duration = whole_micros(end);
    scenario
}

/// The same with a protocol. With chained HotStuff every eighth seed is about one that is dead or silent, and what that must not
/// cost the others.
pub fn with_protocol(scenario: Scenario, protocol: Protocol) -> Scenario {
    let seed = scenario.seed;
    let scenario = match protocol {
        Protocol::HotstuffChained if seed % 8 == 3 => one_of_seven(scenario),
        _ => scenario,
    };
    Scenario {
        protocol,
        ..scenario
    }
}

fn one_of_seven(drawn: Scenario) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(drawn.seed ^ 0x1_0f7);
    let mut scenario = Scenario::new(drawn.seed, 7, Duration::ZERO);
    scenario.cryptography = drawn.cryptography;
    scenario.application = drawn.application;
    scenario.linger = drawn.linger;
    scenario.sync = drawn.sync;
    scenario.transfers_per_second = drawn.transfers_per_second;
    let least = rng.random_range(100..10_000);
    let most = least * rng.random_range(1..4);
    scenario.links.latency =
        Latency::Between(Duration::from_micros(least), Duration::from_micros(most));
    scenario.timing = timing_for(scenario.links.bound());
    let faulty = rng.random_range(0..scenario.validators);
    match rng.random_range(0..2) {
        0 => drop(scenario.byzantine.insert(faulty, [Attack::Silent].into())),
        _ => scenario
            .faults
            .push((Duration::ZERO, Fault::Crash(vec![faulty]))),
    }
    let healthy = scenario.links.bound() * 3 + scenario.sync * 2 + Duration::from_millis(2);
    scenario.duration = whole_micros(healthy * FAULTY_VIEWS);
    scenario
}

/// The same on a chain that only orders. Byzantine validators do with payloads what they should not, by chance of its
/// own.
pub fn with_payloads(mut scenario: Scenario) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x0bd_e45);
    scenario.application = ApplicationKind::OrderOnly;
    for attacks in scenario.byzantine.values_mut() {
        if heals(attacks) {
            continue;
        }
        for attack in [
            Attack::KeepPayloads,
            Attack::DoubleNumbers,
            Attack::OrderNothing,
            Attack::ForgePayloads,
        ] {
            if rng.random_range(0..100) < 40 {
                attacks.insert(attack);
            }
        }
    }
    scenario
}

/// In every fifth run with Byzantine validators they forge the ends of epochs and pass their own signature
/// off as a quorum's. From chance of its own.
fn forge_more(scenario: &mut Scenario) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0xf0_49e);
    if rng.random_range(0..100) >= 20 {
        return;
    }
    for attacks in scenario.byzantine.values_mut() {
        if heals(attacks) {
            continue;
        }
        attacks.insert(Attack::OtherBorder);
        attacks.insert(Attack::ShortCertificates);
    }
}

/// Whether a validator is Byzantine for a while only.
fn heals(attacks: &BTreeSet<Attack>) -> bool {
    attacks.iter().any(|a| matches!(a, Attack::Glitch(..)))
}

/// In every tenth run with Byzantine validators one of them keeps the next leader out of its turn, gives up the view before
/// its own, or is as slow as is free. From chance of its own.
fn spoil_turns(scenario: &mut Scenario) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x7_042e);
    if rng.random_range(0..100) >= 10 {
        return;
    }
    let spoils = match rng.random_range(0..4) {
        0 => Attack::ShunNext,
        1 => Attack::ShunAlways,
        2 => Attack::Dawdle,
        _ => Attack::NullifyBefore,
    };
    if let Some(attacks) = scenario
        .byzantine
        .values_mut()
        .find(|attacks| !heals(attacks))
    {
        attacks.insert(spoils);
    }
}

/// In every third run execution takes longer than blocks do, so that several final ones wait for it.
fn execute_slowly(scenario: &mut Scenario) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x510);
    if rng.random_range(0..100) < 33 {
        scenario.costs.execute = Duration::from_micros(rng.random_range(1_000..60_000));
    }
}

/// In every third run leaders wait for something to put into their blocks, and mostly there is little. From
/// chance of its own.
fn idle(scenario: &mut Scenario) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x1d1e);
    if rng.random_range(0..100) < 33 {
        let interval = Duration::from_millis(rng.random_range(20..2_000));
        scenario.timing.idle_interval = interval;
        if rng.random_range(0..100) < 70 {
            scenario.transfers_per_second = rng.random_range(0..4);
        }
    }
}

/// In some runs one honest validator finds its database gone, while its journal is there: the others
/// have all blocks still. From chance of its own, so that a seed's other faults do not depend on it.
fn lose_a_database(scenario: &mut Scenario, end: Duration) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x10_57);
    let victim = rng.random_range(0..scenario.validators);
    if rng.random_range(0..100) < 10 && scenario.is_honest(victim) {
        let at = end.mul_f64(rng.random_range(0.1..0.9));
        let back = at + (end - at).mul_f64(rng.random_range(0.0..0.3));
        let faults = &mut scenario.faults;
        faults.push((at, Fault::LoseDatabase(victim)));
        faults.push((back, Fault::Restart(vec![victim])));
        faults.sort_by_key(|(at, _)| *at);
    }
}

/// In every fifth run honest validators lose their journals, at most f with the faulty ones at a time: each is
/// back and votes again before the next one is hit, or not. From chance of its own. `others` are as good as
/// faulty for another reason.
fn lose_journals(scenario: &mut Scenario, end: Duration, others: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x4a02);
    let most = (scenario.validators - 1) / 3;
    let Some(can_lose) = most.checked_sub(scenario.byzantine.len() + others) else {
        return;
    };
    if can_lose == 0 || rng.random_range(0..100) >= 20 {
        return;
    }
    let mut victims: Vec<usize> = (0..scenario.validators).collect();
    victims.retain(|victim| scenario.is_honest(*victim));
    victims.shuffle(&mut rng);
    for victim in victims.into_iter().take(can_lose) {
        for _ in 0..rng.random_range(1..4) {
            let at = end.mul_f64(rng.random_range(0.05..0.95));
            let back = at + (end - at).mul_f64(rng.random_range(0.0..0.2));
            let faults = &mut scenario.faults;
            faults.push((at, Fault::LoseJournal(victim)));
            faults.push((back, Fault::Restart(vec![victim])));
        }
    }
    scenario.faults.sort_by_key(|(at, _)| *at);
}

/// In every tenth run honest validators lose their journals, and now and then their
/// databases, again and again beside f that lie to them. What
/// f liars and a lost journal take from the quorum need not come back, so such a run is about safety, unless there
/// are fewer of both. From chance of its own.
fn lie_about_votes(scenario: &mut Scenario, end: Duration) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x11e5);
    let glitches = |attacks: &BTreeSet<Attack>| {
        let mut attacks = attacks.iter();
        attacks.any(|attack| matches!(attack, Attack::Glitch(..)) || attack.is_twin())
    };
    if rng.random_range(0..100) >= 10 || scenario.byzantine.values().any(glitches) {
        return;
    }
    let most = (scenario.validators - 1) / 3;
    while scenario.byzantine.len() < most {
        let liar = rng.random_range(0..scenario.validators);
        scenario.byzantine.entry(liar).or_default();
    }
    for attacks in scenario.byzantine.values_mut() {
        // A validator that sends nothing tells no lies either.
        attacks.remove(&Attack::Silent);
        attacks.insert(Attack::LyingStandings);
    }
    scenario.must_recover = false;
    let mut victims: Vec<usize> = (0..scenario.validators).collect();
    victims.retain(|victim| scenario.is_honest(*victim));
    victims.shuffle(&mut rng);
    let count = rng.random_range(1..=2);
    for victim in victims.into_iter().take(count) {
        for _ in 0..rng.random_range(2..8) {
            let at = end.mul_f64(rng.random_range(0.02..0.95));
            let back = at + end.mul_f64(rng.random_range(0.0..0.02));
            let faults = &mut scenario.faults;
            let loss = match rng.random_range(0..4) {
                0 => Fault::LoseDatabase(victim),
                _ => Fault::LoseJournal(victim),
            };
            faults.push((at, loss));
            faults.push((back, Fault::Restart(vec![victim])));
        }
    }
    scenario.faults.sort_by_key(|(at, _)| *at);
}

/// In every third run some links are missing from the beginning, or come and go. From chance of its own.
fn lack_links(scenario: &mut Scenario, end: Duration) {
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x401e);
    if rng.random_range(0..100) >= 33 {
        return;
    }
    let validators = scenario.validators;
    for _ in 0..rng.random_range(1..=validators) {
        let one = rng.random_range(0..validators);
        let other = (one + rng.random_range(1..validators)) % validators;
        scenario
            .faults
            .push((Duration::ZERO, Fault::Unlink(one, other)));
        let (flaps, mut at, mut up) = (rng.random_range(0..2) == 0, Duration::ZERO, false);
        if !flaps {
            continue;
        }
        loop {
            at += end.mul_f64(rng.random_range(0.002..0.1));
            if at >= end {
                break;
            }
            up = !up;
            let fault = if up { Fault::Link } else { Fault::Unlink };
            scenario.faults.push((at, fault(one, other)));
        }
    }
    scenario.faults.sort_by_key(|(at, _)| *at);
}

fn links(rng: &mut ChaCha8Rng, switches: [bool; 6]) -> Links {
    let [lossy, doubles, disorder, narrow, slow, regions] = switches;
    let mut links = Links::good();
    if regions {
        links.latency = Latency::Map(&WORLD, 10);
    } else {
        let least = rng.random_range(100..10_000);
        let most = least * rng.random_range(1..8);
        links.latency = Latency::Between(Duration::from_micros(least), Duration::from_micros(most));
    }
    links.disorder = disorder;
    if lossy {
        links.loss_percent = rng.random_range(1..20);
    }
    if doubles {
        links.double_percent = rng.random_range(1..20);
    }
    if narrow {
        links.bandwidth = Some(rng.random_range(1_000_000..20_000_000));
    }
    if slow {
        let delay = Duration::from_micros(rng.random_range(1_000..30_000));
        links.slow.insert(rng.random_range(0..4), delay);
    }
    links
}

fn add_faults(scenario: &mut Scenario, rng: &mut ChaCha8Rng, switches: &Switches, end: Duration) {
    let validators = scenario.validators;
    let twins = scenario.byzantine.values();
    let twins = twins.filter(|attacks| attacks.iter().any(|a| a.is_twin()));
    let hosts = validators + twins.count();
    let mut at = Duration::ZERO;
    let step = |rng: &mut ChaCha8Rng| end.mul_f64(rng.random_range(0.005..0.08));
    loop {
        at += step(rng);
        if at >= end {
            break;
        }
        let victim = rng.random_range(0..validators);
        let away = step(rng);
        match rng.random_range(0..7) {
            0 if switches.crashes => {
                scenario.faults.push((at, Fault::Crash(vec![victim])));
                scenario
                    .faults
                    .push((at + away, Fault::Restart(vec![victim])));
            }
            1 if switches.power => {
                let mishap = Mishap::CRASHES[rng.random_range(0..3)];
                let after = rng.random_range(1..12);
                let fault = Fault::Disk {
                    validator: rng.random_range(0..hosts),
                    after,
                    mishap,
                    away,
                };
                scenario.faults.push((at, fault));
            }
            2 if switches.storms => {
                scenario.faults.push((at, Fault::Crash(scenario.all())));
                let soon = at + away / 4;
                scenario.faults.push((soon, Fault::Restart(scenario.all())));
            }
            3 if switches.partitions => {
                let parts = rng.random_range(1..4);
                let mut groups = vec![Vec::new(); parts + 1];
                for host in 0..hosts {
                    groups[rng.random_range(0..=parts)].push(host);
                }
                scenario.faults.push((at, Fault::Partition(groups)));
                scenario.faults.push((at + away, Fault::Join));
            }
            4 if switches.cuts => {
                for _ in 0..rng.random_range(1..=hosts) {
                    let (from, to) = (rng.random_range(0..hosts), rng.random_range(0..hosts));
                    scenario.faults.push((at, Fault::Cut(from, to)));
                }
                scenario.faults.push((at + away * 2, Fault::Join));
            }
            5 if switches.disk_errors => {
                let fault = Fault::Disk {
                    validator: rng.random_range(0..hosts),
                    after: rng.random_range(1..30),
                    mishap: Mishap::Fail,
                    away,
                };
                scenario.faults.push((at, fault));
            }
            6 if switches.full_disks => {
                scenario.faults.push((at, Fault::Full(victim)));
                scenario.faults.push((at + away, Fault::Room(victim)));
            }
            _ => {}
        }
    }
    scenario.faults.push((end, Fault::Heal));
    scenario.faults.sort_by_key(|(at, _)| *at);
    let last = scenario.faults.iter().position(|(_, f)| *f == Fault::Heal);
    // What was to end later ends with the healing.
    scenario.faults.truncate(last.map_or(0, |last| last + 1));
}
