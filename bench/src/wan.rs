//! Block time and finality over wide-area networks, in virtual time: the node's own parts, the
//! measured cost of cryptography and disk charged to each validator's clock, beside the network's
//! own limit.
//!
//! The limit is what the protocol's hops take when computing takes no time at all: a proposal goes
//! to everybody, a vote from each to each, and a quorum of votes must have come; finality takes
//! another round of votes. Block time is from a proposal to the next one, finality from a proposal
//! until a validator knows the block to be final, over all validators.

use crate::{paired::Comparison, report::Output};
use anyhow::{Context, ensure};
use clap::Args;
use quorate_crypto::bls::{HashedMessage, Scheme, SchemeKind, deal};
use quorate_sim::{
    BlockTimes, Costs, Latency, MAPS, Map, Scenario, Simulation, Timeline, timing_for,
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;
use serde_json::{Value, json};
use std::{hint::black_box, io::Write, time::Duration};

/// What to run.
#[derive(Args, Clone)]
pub struct WanArgs {
    /// How many validators, spread evenly over the regions.
    #[arg(long, default_value_t = 50)]
    validators: u32,
    /// How many blocks are measured.
    #[arg(long, default_value_t = 200)]
    blocks: u64,
    /// How long a finalize vote may wait for company, in microseconds.
    #[arg(long, default_value_t = 0)]
    linger_us: u64,
    #[command(flatten)]
    output: Output,
}

/// Mean and percentiles of some times, in milliseconds.
#[derive(Clone, Copy)]
struct Summary {
    mean: f64,
    p50: f64,
    p99: f64,
}

impl Summary {
    fn of(mut millis: Vec<f64>) -> Self {
        millis.sort_by(f64::total_cmp);
        let at = |share: f64| millis[((millis.len() - 1) as f64 * share).round() as usize];
        Self {
            mean: millis.iter().sum::<f64>() / millis.len() as f64,
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    fn json(self) -> Value {
        json!({ "mean": self.mean, "p50": self.p50, "p99": self.p99 })
    }
}

/// Block times and finality of one engine.
struct Measured {
    block: Summary,
    finality: Summary,
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Milliseconds from each of these proposals to the next one.
pub(crate) fn block_times(blocks: &[&BlockTimes]) -> Vec<f64> {
    let pairs = blocks.windows(2);
    pairs
        .map(|pair| millis(pair[1].proposed.since(pair[0].proposed)))
        .collect()
}

/// Milliseconds from each of these proposals until a validator knew the block to be final, for all
/// validators that did.
pub(crate) fn finality_times(blocks: &[&BlockTimes]) -> Vec<f64> {
    let known = blocks.iter().flat_map(|block| {
        let known = block.known.iter().flatten();
        known.map(|known| millis(known.since(block.proposed)))
    });
    known.collect()
}

/// What this machine's cryptography and disk take for a committee of this size.
pub(crate) fn measure_costs(validators: u32) -> anyhow::Result<(Costs, Duration)> {
    let (keys, secrets) = deal(validators, ChaCha20Rng::from_seed([5; 32]));
    let scheme = Scheme::threshold(&keys)?;
    let hashed = HashedMessage::new(b"vote");
    let other = HashedMessage::new(b"another");
    let mut votes: Vec<_> = (0..).zip(secrets.iter().map(|s| s.sign(&hashed))).collect();
    let mut spoiled = votes.clone();
    spoiled[0].1 = secrets[0].sign(&other);
    spoiled.truncate(scheme.quorum() as usize);
    let proof = scheme.certify(&hashed, &votes, [1; 32])?;
    let mut rng = ChaCha20Rng::from_seed([6; 32]);
    let mut file = tempfile::NamedTempFile::new().context("making a file to sync")?;
    let mut comparison = Comparison::default();
    comparison.add("sign", || {
        let hashed = HashedMessage::new(black_box(b"vote"));
        black_box(secrets[0].sign(&hashed));
    });
    comparison.add("certify", || {
        votes.shuffle(&mut rng);
        black_box(scheme.certify(&hashed, &votes, [1; 32]).is_ok());
    });
    comparison.add("search", || {
        black_box(scheme.find_invalid(&hashed, &spoiled, [1; 32]));
    });
    comparison.add("certificate", || {
        let hashed = HashedMessage::new(black_box(b"vote"));
        assert!(scheme.verify(&hashed, &proof));
    });
    comparison.add("vote", || {
        let hashed = HashedMessage::new(black_box(b"vote"));
        black_box(scheme.verify_partial(&hashed, 0, &spoiled[0].1));
    });
    comparison.add("sync", || {
        let written = file
            .write_all(&[7; 400])
            .and_then(|()| file.as_file().sync_data());
        written.expect("a temporary file can be written");
    });
    comparison.run(21);
    let micros = |name| Duration::from_micros(comparison.micros(name).median as u64);
    let costs = Costs {
        sign: micros("sign"),
        checks: Duration::ZERO,
        certify: micros("certify"),
        search: micros("search"),
        certificate: micros("certificate"),
        vote: micros("vote"),
        block: Duration::ZERO,
    };
    Ok((costs, micros("sync")))
}

/// The least that the hops take with these leaders.
fn limit(map: &Map, validators: usize, leaders: &[usize]) -> Measured {
    let quorum = validators - (validators - 1) / 3;
    let one_way = |from: usize, to: usize| match from == to {
        true => 0.0,
        false => millis(map.one_way(from, to)),
    };
    let nth = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[quorum - 1]
    };
    let (mut blocks, mut finality) = (Vec::new(), Vec::new());
    for pair in leaders.windows(2) {
        let notarized: Vec<f64> = (0..validators)
            .map(|to| {
                let votes = (0..validators).map(|by| one_way(pair[0], by) + one_way(by, to));
                nth(votes.collect())
            })
            .collect();
        blocks.push(notarized[pair[1]]);
        finality.extend((0..validators).map(|to| {
            nth((0..validators)
                .map(|by| notarized[by] + one_way(by, to))
                .collect())
        }));
    }
    Measured {
        block: Summary::of(blocks),
        finality: Summary::of(finality),
    }
}

/// Runs the node's parts over the map.
fn ours(
    args: &WanArgs,
    map: &'static Map,
    costs: &Costs,
    sync: Duration,
) -> anyhow::Result<(Measured, Timeline)> {
    let mut scenario = Scenario::new(0, args.validators as usize, Duration::from_secs(3_600));
    scenario.scheme = SchemeKind::BlsThreshold;
    scenario.links.latency = Latency::Map(map, 0);
    scenario.timing = timing_for(scenario.links.bound() * 2);
    scenario.costs = costs.clone();
    scenario.sync = sync;
    scenario.linger = Duration::from_micros(args.linger_us);
    scenario.transfers_per_second = 0;
    scenario.goal = Some(args.blocks + 10);
    let run = Simulation::new(scenario).measure();
    let (_, timeline) = run.map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
    // The first blocks come while the links and caches are cold; the last are not known everywhere.
    let blocks = timeline.blocks.iter().skip(5).take(args.blocks as usize);
    let blocks: Vec<_> = blocks.collect();
    ensure!(blocks.len() > 1, "no blocks were measured");
    let measured = Measured {
        block: Summary::of(block_times(&blocks)),
        finality: Summary::of(finality_times(&blocks)),
    };
    Ok((measured, timeline))
}

fn print_row(name: &str, measured: &Measured, limit: &Measured) {
    println!(
        "{name:<20} {:>8.1} {:>8.1} {:>8.1} {:>7.3} | {:>8.1} {:>8.1} {:>8.1} {:>7.3}",
        measured.block.mean,
        measured.block.p50,
        measured.block.p99,
        measured.block.mean / limit.block.mean,
        measured.finality.mean,
        measured.finality.p50,
        measured.finality.p99,
        measured.finality.mean / limit.finality.mean,
    );
}

/// Runs the comparison and prints its report.
///
/// # Errors
///
/// When a run breaks a rule, or the report cannot be written.
pub fn run(args: &WanArgs) -> anyhow::Result<()> {
    let (costs, sync) = measure_costs(args.validators)?;
    println!(
        "{} validators; charged, µs: sign {}, certify {}, verify a certificate {}, sync {}\n",
        args.validators,
        costs.sign.as_micros(),
        costs.certify.as_micros(),
        costs.certificate.as_micros(),
        sync.as_micros()
    );
    println!(
        "{:<20} {:>8} {:>8} {:>8} {:>7} | {:>8} {:>8} {:>8} {:>7}",
        "ms", "block", "p50", "p99", "÷limit", "final", "p50", "p99", "÷limit"
    );
    let mut rows = Vec::new();
    for map in MAPS {
        let (measured, timeline) = ours(args, map, &costs, sync)?;
        let views = timeline.blocks.iter().skip(5).take(args.blocks as usize);
        let leaders: Vec<usize> = views
            .map(|block| (block.view.0 % u64::from(args.validators)) as usize)
            .collect();
        let limit = limit(map, args.validators as usize, &leaders);
        println!("{}", map.name);
        print_row("  limit", &limit, &limit);
        print_row("  quorate", &measured, &limit);
        let views = timeline.entered.len() as f64;
        let others = f64::from(args.validators - 1);
        let mean = |total: u64| total as f64 / views / f64::from(args.validators);
        let frames = mean(timeline.sent.iter().map(|(frames, _)| frames).sum());
        let bytes = mean(timeline.sent.iter().map(|(_, bytes)| bytes).sum());
        println!(
            "  sent per view and validator: {frames:.1} messages, {:.2} (n − 1); {bytes:.0} bytes",
            frames / others
        );
        rows.push(json!({
            "map": map.name,
            "limit": { "block_ms": limit.block.json(), "finality_ms": limit.finality.json() },
            "quorate": {
                "block_ms": measured.block.json(),
                "finality_ms": measured.finality.json(),
                "messages_per_view": frames,
                "messages_per_view_and_peer": frames / others,
                "bytes_per_view": bytes,
            },
            "block_to_limit": measured.block.mean / limit.block.mean,
            "finality_to_limit": measured.finality.mean / limit.finality.mean,
        }));
    }
    let results = json!({
        "validators": args.validators,
        "linger_us": args.linger_us,
        "costs_us": {
            "sign": costs.sign.as_micros() as u64,
            "certify": costs.certify.as_micros() as u64,
            "certificate": costs.certificate.as_micros() as u64,
            "sync": sync.as_micros() as u64,
        },
        "maps": rows,
    });
    args.output.write("wan", &results)
}
