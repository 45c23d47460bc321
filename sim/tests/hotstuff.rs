//! Chained HotStuff: what it must do that is told of several validators. In virtual time; a failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{run, seconds, seeds};
use quorate_consensus::Moment;
use quorate_sim::{Attack, Fault, Latency, Scenario, Simulation, script, swarm};
use quorate_types::genesis::Protocol;
use std::time::Duration;

fn scenario(seed: u64, validators: usize) -> Scenario {
    let mut scenario = Scenario::new(seed, validators, seconds(20));
    scenario.protocol = Protocol::HotstuffChained;
    scenario.transfers_per_second = 0;
    scenario
}

/// H5, H6: of four validators one is down, so each third vote goes to nobody. Three blocks of consecutive views need
/// the votes that are carried around it.
#[test]
fn with_one_of_four_down_blocks_become_final() {
    for seed in seeds(3) {
        for down in 0..4 {
            let mut scenario = scenario(seed, 4);
            scenario
                .faults
                .push((Duration::ZERO, Fault::Crash(vec![down])));
            let report = run(scenario);
            let (height, view) = (report.highest.0, report.view.0);
            let abandoned = report.abandoned;
            eprintln!(
                "seed {seed}, {down} down: {height} final blocks in {view} views, {abandoned} abandoned"
            );
            // Three of four views bring a block, and the last ones are not final. Here frames overtake each other, so now
            // and then a carried vote comes too late.
            assert!(height * 80 >= view * 57, "seed {seed}: {report:?}");
        }
    }
}

/// H5, H6: a silent leader costs its own block and no other: nobody's certified block is abandoned, as the checkers
/// know from who has voted for what.
#[test]
fn no_block_of_an_honest_leader_is_abandoned_for_a_silent_one() {
    for seed in seeds(3) {
        for silent in [None, Some(Attack::Silent)] {
            let mut scenario = scenario(seed, 7);
            match silent {
                Some(attack) => drop(scenario.byzantine.insert(3, [attack].into())),
                None => scenario
                    .faults
                    .push((Duration::ZERO, Fault::Crash(vec![3]))),
            }
            let report = run(scenario);
            let (height, view) = (report.highest.0, report.view.0);
            let abandoned = report.abandoned;
            eprintln!(
                "seed {seed}, {silent:?}: {height} final blocks in {view} views, {abandoned} abandoned"
            );
            assert_eq!(abandoned, 0, "seed {seed}: {report:?}");
            // The last blocks are not final, and frames overtake each other.
            assert!(height * 700 >= view * 6 * 98, "seed {seed}: {report:?}");
        }
    }
}

/// H6, B7: while one of four is down, the votes of all others are needed in each view. A leader that waits for what is carried to it
/// as long as another one waits for its proposal leaves two in one view and the third in another, until a time-out of a second or two.
#[test]
fn validators_that_are_killed_one_after_the_other_cost_no_time_out() {
    for protocol in [Protocol::HotstuffChained, Protocol::HotstuffBasic] {
        for seed in seeds(20) {
            let mut scenario = Scenario::new(seed, 4, seconds(20));
            scenario.protocol = protocol;
            scenario.timing.leader_timeout = seconds(1);
            scenario.timing.view_timeout = seconds(2);
            scenario.timing.resend_interval = seconds(1);
            scenario.links.latency =
                Latency::Between(Duration::from_micros(100), Duration::from_millis(3));
            for down in 0..4_u64 {
                let at = seconds(4 * (down + 1)) + Duration::from_micros(seed * 7_919 % 30_000);
                let who = vec![down as usize];
                scenario.faults.push((at, Fault::Crash(who.clone())));
                scenario.faults.push((at + seconds(2), Fault::Restart(who)));
            }
            let (_, timeline) = Simulation::new(scenario).measure().unwrap();
            let blocks = timeline.blocks.iter();
            let times: Vec<Moment> = blocks
                .map(|block| *block.known.iter().flatten().min().unwrap())
                .collect();
            let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
            let longest = gaps.max().unwrap();
            eprintln!("seed {seed}, {protocol:?}: {longest:?}");
            assert!(
                longest < Duration::from_millis(300),
                "seed {seed}, {protocol:?}: {longest:?}"
            );
        }
    }
}

/// H10: one Byzantine leader, and three that are slow at times, are never waited for; nine views of ten bring blocks, and three
/// in a row are rare. Without the additional back-off nothing became final for seconds.
#[test]
fn slow_leaders_are_waited_for_when_nothing_becomes_final() {
    for seed in [97, 26] {
        let report = run(Scenario {
            protocol: Protocol::HotstuffChained,
            ..swarm(seed)
        });
        assert!(report.recovery.is_some(), "seed {seed}: {report:?}");
    }
}

/// Runs a scenario of 20 s with these validators, which one of them or two attack.
fn attacked(validators: usize, attack: &str) -> u64 {
    let text = format!(
        "seed 1\nvalidators {validators}\nprotocol hotstuff-chained\nscheme bls-threshold\n\
         duration 20000000\ntransfers 0\n{attack}"
    );
    run(script::parse(&text).unwrap()).highest.0
}

/// H5: a leader shows its proposal to some, or another one to each, and keeps its own vote back, so that nothing ends its view. The honest
/// leader after it lost each of its turns, and of four validators nothing became final any more: 0 to 8 % of the blocks.
#[test]
fn a_faulty_leader_takes_no_turns_from_the_next_one() {
    let honest = attacked(4, "epoch-blocks 1000000\n");
    for (name, attack) in [
        (
            "another proposal to each",
            "epoch-blocks 1000000\nbyzantine 1 EquivocateProposals WithholdCertificates\n\
             at 1000000 cut 1 2\n",
        ),
        (
            "after a time-out that only the next leader has seen",
            "epoch-blocks 1000000\nbyzantine 0 SplitVotes WithholdCertificates\nat 1000000 cut 0 1\n\
             at 1542000 cut 2 1\nat 1542000 cut 3 1\nat 1700000 join\nat 1700000 cut 0 1\n",
        ),
        (
            "at the end of an epoch",
            "epoch-blocks 200\nbyzantine 0 SplitVotes WithholdCertificates\nat 1000000 cut 0 1\n",
        ),
    ] {
        let height = attacked(4, attack);
        eprintln!("{name}: {height} of {honest} final blocks");
        assert!(height * 5 >= honest * 2, "{name}: {height} of {honest}");
    }
    // The leader of the next view has said nullify in this one before anybody was there.
    let usual = "epoch-blocks 1000000\nlatency 100 300\nsync 200\n\
                 timers 1000000 2000000 30000000 1000000 500000\n";
    let honest = attacked(4, usual);
    let height = attacked(4, &format!("{usual}byzantine 3 NullifyBefore\n"));
    eprintln!("nullified beforehand: {height} of {honest} final blocks");
    assert!(height * 4 >= honest, "{height} of {honest}");
    let honest = attacked(7, "epoch-blocks 1000000\n");
    let height = attacked(
        7,
        "epoch-blocks 1000000\nbyzantine 2 EquivocateProposals WithholdCertificates\n\
         byzantine 5 EquivocateProposals WithholdCertificates\nat 0 cut 2 3\nat 0 cut 5 6\n",
    );
    eprintln!("two of seven: {height} of {honest} final blocks");
    assert!(height * 3 >= honest, "two of seven: {height} of {honest}");
}
