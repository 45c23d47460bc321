//! What one validator costs the others that is slow and does what it can. In virtual time, so that figures can
//! be asserted: each is a ratio to the same chain without it. A failure prints its seed.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{seconds, seeds};
use quorate_consensus::{Moment, Timing};
use quorate_sim::{BlockTimes, Fault, Latency, Scenario, Simulation};
use std::time::Duration;

/// What is slow about it.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// It has 1 Mbit/s each way.
    Line,
    /// Its messages take 300 ms longer, each way.
    Far,
    /// It has a quarter of a processor.
    Processor,
    /// It is not there.
    Dead,
}

/// What is usual has to be found out first.
const WARM_UP: Moment = Moment(5_000_000);

/// The time from one block to the next.
struct Times {
    /// From proposal to proposal, where neither this turn nor the one before was the slow one's.
    others: Duration,
    /// From one final block to the next, as the first validator learned of them.
    p50: Duration,
    mean: Duration,
}

fn times(seed: u64, validators: usize, one_way: Duration, slow: Option<Slow>) -> Times {
    let mut scenario = Scenario::new(seed, validators, seconds(20));
    scenario.timing = Timing::default();
    scenario.linger = Duration::ZERO;
    scenario.links.latency = Latency::Between(one_way, one_way * 11 / 10);
    scenario.transfers_per_second = 50;
    let last = validators - 1;
    match slow {
        None => {}
        Some(Slow::Line) => drop(scenario.links.narrow.insert(last, 125_000)),
        Some(Slow::Far) => drop(scenario.links.slow.insert(last, Duration::from_millis(300))),
        Some(Slow::Processor) => drop(scenario.slow_processors.insert(last, 4)),
        Some(Slow::Dead) => scenario
            .faults
            .push((Duration::ZERO, Fault::Crash(vec![last]))),
    }
    let described = format!("{scenario:?}");
    let measured = Simulation::new(scenario).measure();
    let (_, timeline) = measured.unwrap_or_else(|v| panic!("{}\n{described}", v.0));
    let blocks = timeline.blocks.iter();
    let blocks: Vec<&BlockTimes> = blocks.filter(|block| block.proposed > WARM_UP).collect();
    let is_slow = |block: &BlockTimes| block.view.0 % validators as u64 == last as u64;
    let pairs = blocks.windows(2);
    let others = pairs
        .filter(|two| two[0].view.next() == two[1].view && !is_slow(two[0]) && !is_slow(two[1]));
    let others = others.map(|two| two[1].proposed.since(two[0].proposed));
    let known: Vec<Moment> = blocks.iter().filter_map(|block| block.known[0]).collect();
    let gaps = known.windows(2).map(|two| two[1].since(two[0]));
    Times {
        others: median(others),
        p50: median(gaps),
        mean: known[known.len() - 1].since(known[0]) / (known.len() as u32 - 1),
    }
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    assert!(times.len() > 100, "only {} blocks", times.len());
    times.sort_unstable();
    times[times.len() / 2]
}

/// Its own turn takes what it takes, and so does giving it up. With four that is every fourth turn, and both blocks
/// around it are final later: the median of all blocks is moved by a little, as by a dead one.
#[test]
fn a_slow_validator_does_not_slow_the_turns_of_the_others() {
    for seed in seeds(1) {
        for validators in [4, 7] {
            for one_way in [Duration::from_millis(1), Duration::from_millis(25)] {
                let usual = times(seed, validators, one_way, None);
                for slow in [Slow::Line, Slow::Far, Slow::Processor, Slow::Dead] {
                    let with = times(seed, validators, one_way, Some(slow));
                    let ratio = |of: fn(&Times) -> Duration| {
                        of(&with).as_secs_f64() / of(&usual).as_secs_f64()
                    };
                    let others = ratio(|times| times.others);
                    let p50 = ratio(|times| times.p50);
                    let mean = ratio(|times| times.mean);
                    let what = format!(
                        "seed {seed}, {validators} validators {one_way:?} apart, {slow:?}: turns of the others \
                         {others:.3}, p50 {p50:.3}, mean {mean:.3} of {:?}",
                        usual.mean
                    );
                    eprintln!("{what}");
                    assert!(others <= 1.03, "{what}");
                    assert!(validators == 4 || p50 <= 1.03, "{what}");
                }
            }
        }
    }
}
