//! Block time and finality over wide-area networks, in virtual time: the node's own components,
//! with the measured cost of cryptography and disk charged to each validator's clock, beside the
//! network's own limit.
//!
//! The limit is the time of a protocol's hops if computing takes no time at all. *Simplex*: the leader sends
//! a proposal to all, each validator sends a vote to all, and a quorum of votes must arrive;
//! finality takes another round of votes. *Chained HotStuff*: the votes go to the next leader, and a block is known to be final
//! with the third proposal after it. Block time is from a proposal to the next one, finality
//! from a proposal until a validator knows the block to be final, over all validators.
//!
//! If the peer's program (`bench/peer`) is in the same folder as this one, it runs commonware's
//! simplex, wired as in its own chain, in virtual time over the same latencies, with the costs of
//! its own cryptography and the same syncs. The limit is that of rotating leaders; a stable leader
//! who proposes ahead of certificates has a different one.

use crate::{paired::Comparison, report::Output};
use anyhow::{Context, ensure};
use clap::Args;
use commonware_codec::{DecodeExt, Encode};
use commonware_cryptography::bls12381::{
    dkg::feldman_desmedt::deal_anonymous,
    primitives::{
        group::{G1, Share},
        ops::{self, threshold},
        sharing::{Mode, Sharing},
        variant::{MinSig, PartialSignature as PeerPart},
    },
};
use commonware_parallel::Sequential;
use commonware_utils::{N3f1, Participant};
use quorate_consensus::Timing;
use quorate_crypto::{
    Identity,
    bls::{Ballot, CheckCount, HashedMessage, Scheme, SchemeKind, deal},
};
use quorate_sim::{BlockTimes, Costs, Latency, MAPS, Map, Scenario, Simulation, Timeline};
use quorate_types::{
    Committee, Epoch, View,
    genesis::{Protocol, Turns},
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    hint::black_box,
    io::Write,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Blocks before the measured ones, while links and caches are cold.
const WARM_UP_BLOCKS: usize = 5;

/// The peer's program.
const PEER: &str = "quorate-bench-peer";

/// What to run.
#[derive(Args, Clone)]
pub struct WanArgs {
    /// Number of validators, spread evenly over the regions.
    #[arg(long, default_value_t = 50)]
    validators: u32,
    /// Number of blocks measured.
    #[arg(long, default_value_t = 200)]
    blocks: u64,
    /// Longest time that a finalize vote waits to be batched with others, in microseconds.
    #[arg(long, default_value_t = 0)]
    linger_us: u64,
    /// Skip the peer even if its program is there.
    #[arg(long)]
    without_peer: bool,
    #[command(flatten)]
    output: Output,
}

/// Mean and percentiles of times, in milliseconds.
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

    fn read(value: &Value) -> anyhow::Result<Self> {
        let field = |name: &str| value[name].as_f64().context("a summary has no numbers");
        Ok(Self {
            mean: field("mean")?,
            p50: field("p50")?,
            p99: field("p99")?,
        })
    }
}

/// Block times and finality of one engine.
struct Measured {
    block: Summary,
    finality: Summary,
}

impl Measured {
    fn json(&self, limit: &Self, sent: &Sent) -> Value {
        json!({
            "block_ms": self.block.json(),
            "finality_ms": self.finality.json(),
            "block_to_limit": self.block.mean / limit.block.mean,
            "finality_to_limit": self.finality.mean / limit.finality.mean,
            "messages_per_view": sent.frames,
            "bytes_per_view": sent.bytes,
        })
    }
}

/// What a validator sends in a view; a broadcast counts once for each receiver.
struct Sent {
    frames: f64,
    bytes: f64,
}

/// Costs of the peer's cryptography, and of creating a file durably as it does.
struct PeerCosts {
    sign: Duration,
    certify: Duration,
    certificate: Duration,
    create: Duration,
}

/// Costs of computing and syncing on this machine.
struct AllCosts {
    ours: Costs,
    peer: PeerCosts,
    sync: Duration,
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

/// Measures the costs of this machine's cryptography and disk for a committee of this size.
pub(crate) fn measure_costs(validators: u32) -> anyhow::Result<(Costs, Duration)> {
    let all = measure_all_costs(validators)?;
    Ok((all.ours, all.sync))
}

/// Like [`measure_costs`], the peer's alternating with ours.
fn measure_all_costs(validators: u32) -> anyhow::Result<AllCosts> {
    let (keys, secrets) = deal(validators, ChaCha20Rng::from_seed([5; 32]));
    let scheme = Scheme::threshold(&keys)?;
    let hashed = HashedMessage::new(b"vote");
    let other = HashedMessage::new(b"another");
    let mut votes: Vec<_> = (0..).zip(secrets.iter().map(|s| s.sign(&hashed))).collect();
    let mut spoiled = votes.clone();
    spoiled[0].1 = secrets[0].sign(&other);
    spoiled.truncate(scheme.quorum() as usize);
    let proof = scheme.certify(&hashed, &votes, [1; 32])?;
    let mut other_votes: Vec<_> = (0..).zip(secrets.iter().map(|s| s.sign(&other))).collect();
    let other_proof = scheme.certify(&other, &other_votes, [1; 32])?;
    other_votes.reverse();
    let votes_of_two = [votes.clone(), other_votes];
    let mut rng = ChaCha20Rng::from_seed([6; 32]);
    let mut file = tempfile::NamedTempFile::new().context("making a file to sync")?;
    let folder = tempfile::tempdir().context("making a folder for files")?;
    let mut files = 0_u64;
    let peer = PeerCommittee::new(validators)?;
    let mut peer_votes = peer.votes.clone();
    let mut peer_rng = ChaCha20Rng::from_seed([7; 32]);
    let mut comparison = Comparison::default();
    comparison.add("sign", || {
        let hashed = HashedMessage::new(black_box(b"vote"));
        black_box(secrets[0].sign(&hashed));
    });
    comparison.add("peer sign", || peer.sign());
    comparison.add("certify", || {
        votes.shuffle(&mut rng);
        black_box(scheme.certify(&hashed, &votes, [1; 32]).is_ok());
    });
    comparison.add("certify two", || {
        let quorum = scheme.quorum() as usize;
        let ballots =
            [(&hashed, &votes_of_two[0]), (&other, &votes_of_two[1])].map(|(message, parts)| {
                Ballot {
                    message,
                    parts: &parts[..quorum],
                    verified: 0,
                }
            });
        let made = scheme.check_many(&ballots, [1; 32], &mut CheckCount::default());
        assert!(made.iter().all(|one| matches!(one, Ok(Some(_)))));
    });
    comparison.add("peer certify", || {
        peer_votes.shuffle(&mut peer_rng);
        assert!(peer.certify(&peer_votes[..scheme.quorum() as usize]));
    });
    comparison.add("search", || {
        black_box(scheme.find_invalid(&hashed, &spoiled, [1; 32]));
    });
    comparison.add("certificate", || {
        let hashed = HashedMessage::new(black_box(b"vote"));
        assert!(scheme.verify(&hashed, &proof));
    });
    comparison.add("two certificates", || {
        let messages =
            [b"vote".as_slice(), b"another"].map(|one| HashedMessage::new(black_box(one)));
        let items = [(&messages[0], &proof), (&messages[1], &other_proof)];
        assert!(scheme.verify_many(&items, [1; 32]));
    });
    comparison.add("peer certificate", || {
        assert!(peer.verify(&peer.certificate));
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
    comparison.add("create", || {
        files += 1;
        create_durably(folder.path(), files).expect("a temporary file can be made");
    });
    comparison.run(21);
    let micros = |name| Duration::from_micros(comparison.micros(name).median as u64);
    Ok(AllCosts {
        ours: Costs {
            sign: micros("sign"),
            checks: Duration::ZERO,
            certify: micros("certify"),
            certify_beside: micros("certify two").saturating_sub(micros("certify")),
            search: micros("search"),
            certificate: micros("certificate"),
            certificate_beside: micros("two certificates").saturating_sub(micros("certificate")),
            vote: micros("vote"),
            block: Duration::ZERO,
            execute: Duration::ZERO,
        },
        peer: PeerCosts {
            sign: micros("peer sign"),
            certify: micros("peer certify"),
            certificate: micros("peer certificate"),
            create: micros("create"),
        },
        sync: micros("sync"),
    })
}

/// Creates a file as the peer's storage does: its name and its folder's are durable before its
/// header.
fn create_durably(folder: &Path, number: u64) -> std::io::Result<()> {
    let partition = folder.join("partition");
    fs::create_dir_all(&partition)?;
    let mut file = File::create(partition.join(number.to_string()))?;
    File::open(&partition)?.sync_all()?;
    File::open(folder)?.sync_all()?;
    file.write_all(&[7; 8])?;
    file.sync_all()
}

/// A committee with the peer's own keys, and its votes on one message.
struct PeerCommittee {
    sharing: Sharing<MinSig>,
    share: Share,
    votes: Vec<(Participant, bytes::Bytes)>,
    certificate: bytes::Bytes,
}

impl PeerCommittee {
    const NAMESPACE: &[u8] = b"votes";
    const MESSAGE: &[u8] = b"vote";

    fn new(validators: u32) -> anyhow::Result<Self> {
        let count = NonZeroU32::new(validators).context("no validators")?;
        let rng = ChaCha20Rng::from_seed([5; 32]);
        let (sharing, shares) = deal_anonymous::<MinSig, N3f1>(rng, Mode::NonZeroCounter, count);
        sharing.precompute_partial_publics();
        let parts = shares
            .iter()
            .map(|share| threshold::sign_message::<MinSig>(share, Self::NAMESPACE, Self::MESSAGE))
            .collect::<Vec<_>>();
        let certificate = threshold::recover(&sharing, &parts, &Sequential)
            .map_err(|error| anyhow::anyhow!("recovering a signature: {error:?}"))?;
        let votes = parts.iter().map(|part| (part.index, part.value.encode()));
        Ok(Self {
            votes: votes.collect(),
            certificate: certificate.encode(),
            share: shares[0].clone(),
            sharing,
        })
    }

    fn sign(&self) {
        let message = black_box(Self::MESSAGE);
        black_box(threshold::sign_message::<MinSig>(
            &self.share,
            Self::NAMESPACE,
            message,
        ));
    }

    /// Certifies from the bytes of a quorum's votes, as the peer's batcher does.
    fn certify(&self, quorum: &[(Participant, bytes::Bytes)]) -> bool {
        let decode = |(index, bytes): &(Participant, bytes::Bytes)| PeerPart::<MinSig> {
            index: *index,
            value: G1::decode(bytes.clone()).expect("a point"),
        };
        let parts: Vec<_> = quorum.iter().map(decode).collect();
        let signature = threshold::recover(&self.sharing, &parts, &Sequential).expect("a quorum");
        self.holds(&signature)
    }

    /// Verifies from a certificate's bytes.
    fn verify(&self, certificate: &bytes::Bytes) -> bool {
        self.holds(&G1::decode(certificate.clone()).expect("a point"))
    }

    fn holds(&self, signature: &G1) -> bool {
        let public = self.sharing.public();
        let message = black_box(Self::MESSAGE);
        ops::verify_message::<MinSig>(public, Self::NAMESPACE, message, signature).is_ok()
    }
}

/// The leaders of these views in a committee of this size.
fn leaders(
    protocol: Protocol,
    validators: u32,
    views: impl Iterator<Item = View>,
) -> anyhow::Result<Vec<usize>> {
    let identities = (0..validators).map(|place| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&place.to_be_bytes());
        Identity(bytes)
    });
    let committee = Committee::new(Epoch(0), identities.collect())?.with_turns(Turns::of(protocol));
    Ok(views
        .map(|view| committee.leader(view).as_usize())
        .collect())
}

/// The minimal time of a protocol's hops with these leaders.
fn limit(protocol: Protocol, map: &Map, validators: usize, leaders: &[usize]) -> Measured {
    let quorum = validators - (validators - 1) / 3;
    let one_way = |from: usize, to: usize| match from == to {
        true => 0.0,
        false => millis(map.one_way(from, to)),
    };
    let nth = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[quorum - 1]
    };
    // From a leader's proposal until a quorum of votes for it has come to a validator.
    let voted = |leader: usize, to: usize| {
        let votes = (0..validators).map(|by| one_way(leader, by) + one_way(by, to));
        nth(votes.collect())
    };
    let views = || leaders.windows(2);
    // What the three phases of one leader take until it can say that its block is final.
    let decided = |leader: usize| 3.0 * voted(leader, leader);
    let blocks: Vec<f64> = match protocol {
        Protocol::HotstuffBasic => views()
            .map(|pair| decided(pair[0]) + one_way(pair[0], pair[1]))
            .collect(),
        _ => views().map(|pair| voted(pair[0], pair[1])).collect(),
    };
    let finality: Vec<f64> = match protocol {
        Protocol::Simplex | Protocol::Pbft => views()
            .flat_map(|pair| {
                let notarized: Vec<f64> = (0..validators).map(|to| voted(pair[0], to)).collect();
                (0..validators).map(move |to| {
                    let votes = (0..validators).map(|by| notarized[by] + one_way(by, to));
                    nth(votes.collect())
                })
            })
            .collect(),
        Protocol::HotstuffChained => (blocks.windows(3).zip(&leaders[3..]))
            .flat_map(|(three, leader)| {
                let made: f64 = three.iter().sum();
                (0..validators).map(move |to| made + one_way(*leader, to))
            })
            .collect(),
        Protocol::HotstuffBasic => leaders
            .iter()
            .flat_map(|leader| {
                (0..validators).map(move |to| decided(*leader) + one_way(*leader, to))
            })
            .collect(),
    };
    Measured {
        block: Summary::of(blocks),
        finality: Summary::of(finality),
    }
}

/// Runs the node's components over the map.
fn ours(
    args: &WanArgs,
    protocol: Protocol,
    map: &'static Map,
    costs: &Costs,
    sync: Duration,
) -> anyhow::Result<(Measured, Timeline)> {
    let mut scenario = Scenario::new(0, args.validators as usize, Duration::from_secs(3_600));
    scenario.protocol = protocol;
    scenario.scheme = SchemeKind::BlsThreshold;
    scenario.links.latency = Latency::Map(map, 0);
    scenario.timing = Timing::default();
    scenario.costs = costs.clone();
    scenario.sync = sync;
    scenario.linger = Duration::from_micros(args.linger_us);
    scenario.transfers_per_second = 0;
    scenario.goal = Some(args.blocks + 10);
    let run = Simulation::new(scenario).measure();
    let (_, timeline) = run.map_err(|violation| anyhow::anyhow!("{}", violation.0))?;
    let blocks = measured_blocks(args, &timeline);
    ensure!(blocks.len() > 1, "no blocks were measured");
    let measured = Measured {
        block: Summary::of(block_times(&blocks)),
        finality: Summary::of(finality_times(&blocks)),
    };
    Ok((measured, timeline))
}

/// The measured blocks, without the last ones, which are not known everywhere.
fn measured_blocks<'a>(args: &WanArgs, timeline: &'a Timeline) -> Vec<&'a BlockTimes> {
    let blocks = timeline.blocks.iter().skip(WARM_UP_BLOCKS);
    blocks.take(args.blocks as usize).collect()
}

/// How the peer is run.
struct PeerMode {
    name: &'static str,
    mode: &'static str,
    warm_up_blocks: usize,
}

const PEER_MODES: [PeerMode; 3] = [
    PeerMode {
        name: "commonware",
        mode: "rotating",
        warm_up_blocks: WARM_UP_BLOCKS,
    },
    PeerMode {
        name: "commonware, early hand-over",
        mode: "handoff",
        warm_up_blocks: WARM_UP_BLOCKS,
    },
    // It takes a while until the maximal number of proposals is in flight.
    PeerMode {
        name: "commonware, stable leader",
        mode: "stable",
        warm_up_blocks: 100,
    },
];

/// The peer's program, if it is in the same folder as this one and is wanted.
fn peer_program(args: &WanArgs) -> anyhow::Result<Option<PathBuf>> {
    let own = std::env::current_exe().context("finding this program")?;
    let path = own.with_file_name(PEER);
    Ok((!args.without_peer && path.exists()).then_some(path))
}

/// Runs the peer over the map, in a separate process.
fn peer(
    args: &WanArgs,
    binary: &Path,
    map: &Map,
    costs: &AllCosts,
    mode: &PeerMode,
) -> anyhow::Result<(Measured, Sent)> {
    let mut file = tempfile::NamedTempFile::new().context("making a file for the map")?;
    let described = json!({
        "name": map.name,
        "regions": map.regions,
        "round_trips_us": map.round_trips_us,
    });
    write!(file, "{described}").context("writing the map")?;
    let micros = |duration: Duration| duration.as_micros().to_string();
    let output = Command::new(binary)
        .arg("wan")
        .arg("--map")
        .arg(file.path())
        .args(["--validators", &args.validators.to_string()])
        .args(["--views", &args.blocks.to_string()])
        .args(["--warm-up-views", &mode.warm_up_blocks.to_string()])
        .args(["--mode", mode.mode])
        .args(["--sign-us", &micros(costs.peer.sign)])
        .args(["--certify-us", &micros(costs.peer.certify)])
        .args(["--verify-certificate-us", &micros(costs.peer.certificate)])
        .args(["--sync-us", &micros(costs.sync)])
        .args(["--create-us", &micros(costs.peer.create)])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", binary.display()))?;
    ensure!(
        output.status.success(),
        "the peer's process failed ({})",
        output.status
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("the peer's report")?;
    let number = |name: &str| {
        report[name]
            .as_f64()
            .context("the peer's report lacks a number")
    };
    let measured = Measured {
        block: Summary::read(&report["block_ms"])?,
        finality: Summary::read(&report["finality_ms"])?,
    };
    let sent = Sent {
        frames: number("messages_per_view")?,
        bytes: number("bytes_per_view")?,
    };
    Ok((measured, sent))
}

fn print_row(name: &str, measured: &Measured, limit: &Measured, ours: &Measured) {
    let half = |it: &Summary, limit: &Summary, ours: &Summary| {
        format!(
            "{:>8.1} {:>8.1} {:>8.1} {:>7.3} {:>9.3}",
            it.mean,
            it.p50,
            it.p99,
            it.mean / limit.mean,
            it.mean / ours.mean
        )
    };
    println!(
        "  {name:<28} {} | {}",
        half(&measured.block, &limit.block, &ours.block),
        half(&measured.finality, &limit.finality, &ours.finality)
    );
}

fn print_sent(name: &str, sent: &Sent, validators: u32) {
    println!(
        "  {name} sends per view and validator: {:.1} messages, {:.2} (n − 1); {:.0} bytes",
        sent.frames,
        sent.frames / f64::from(validators - 1),
        sent.bytes
    );
}

/// Runs the comparison and prints its report.
///
/// # Errors
///
/// If a run breaks a rule, or the report cannot be written.
pub fn run(args: &WanArgs) -> anyhow::Result<()> {
    ensure!(args.validators > 1, "one validator needs no network");
    let costs = measure_all_costs(args.validators)?;
    let binary = peer_program(args)?;
    println!(
        "{} validators; charged, µs: sign {}, certify {} (with another {} more), verify a certificate {} (with another {} \
         more), sync {}",
        args.validators,
        costs.ours.sign.as_micros(),
        costs.ours.certify.as_micros(),
        costs.ours.certify_beside.as_micros(),
        costs.ours.certificate.as_micros(),
        costs.ours.certificate_beside.as_micros(),
        costs.sync.as_micros()
    );
    match &binary {
        Some(_) => println!(
            "the peer: sign {}, certify {}, verify a certificate {}, sync {}, create a file {}",
            costs.peer.sign.as_micros(),
            costs.peer.certify.as_micros(),
            costs.peer.certificate.as_micros(),
            costs.sync.as_micros(),
            costs.peer.create.as_micros()
        ),
        None => println!("without the peer: `make bench-engines` builds {PEER}"),
    }
    println!(
        "\n{:<30} {:>8} {:>8} {:>8} {:>7} {:>9} | {:>8} {:>8} {:>8} {:>7} {:>9}",
        "ms",
        "block",
        "p50",
        "p99",
        "÷limit",
        "÷quorate",
        "final",
        "p50",
        "p99",
        "÷limit",
        "÷quorate"
    );
    let mut rows = Vec::new();
    for map in MAPS {
        rows.push(compare(args, map, &costs, binary.as_deref())?);
    }
    let micros = |duration: Duration| duration.as_micros() as u64;
    let results = json!({
        "validators": args.validators,
        "linger_us": args.linger_us,
        "costs_us": {
            "sign": micros(costs.ours.sign),
            "certify": micros(costs.ours.certify),
            "certify_beside": micros(costs.ours.certify_beside),
            "certificate": micros(costs.ours.certificate),
            "certificate_beside": micros(costs.ours.certificate_beside),
            "sync": micros(costs.sync),
        },
        "peer_costs_us": {
            "sign": micros(costs.peer.sign),
            "certify": micros(costs.peer.certify),
            "certificate": micros(costs.peer.certificate),
            "sync": micros(costs.sync),
            "create": micros(costs.peer.create),
        },
        "rows": rows,
    });
    args.output.write("wan", &results)
}

/// Runs all engines over a map, and prints a row for each.
fn compare(
    args: &WanArgs,
    map: &'static Map,
    costs: &AllCosts,
    binary: Option<&Path>,
) -> anyhow::Result<Value> {
    println!("{}", map.name);
    let simplex = compare_protocol(args, Protocol::Simplex, map, costs)?;
    let mut row = json!({
        "map": map.name,
        "limit": {
            "block_ms": simplex.limit.block.json(),
            "finality_ms": simplex.limit.finality.json(),
        },
        "quorate": simplex.measured.json(&simplex.limit, &simplex.sent),
    });
    let mut others = Vec::new();
    for protocol in Protocol::ALL.into_iter().skip(1) {
        let one = compare_protocol(args, protocol, map, costs)?;
        row[protocol.name()] = one.measured.json(&one.limit, &one.sent);
        others.push((protocol, one));
    }
    let Compared {
        measured,
        limit,
        sent,
        timeline,
    } = simplex;
    let mut peers = Vec::new();
    for mode in binary.iter().flat_map(|_| &PEER_MODES) {
        let binary = binary.context("the peer's program")?;
        let (by_peer, sent) = peer(args, binary, map, costs, mode)?;
        print_row(mode.name, &by_peer, &limit, &measured);
        let mut described = by_peer.json(&limit, &sent);
        described["block_to_quorate"] = (by_peer.block.mean / measured.block.mean).into();
        described["finality_to_quorate"] = (by_peer.finality.mean / measured.finality.mean).into();
        row[mode.name] = described;
        peers.push((mode.name, sent));
    }
    print_sent("simplex", &sent, args.validators);
    for (kinds, frames) in &timeline.kinds {
        println!(
            "    {:>6.2} × (n − 1)  {kinds}",
            per_view(args, &timeline, *frames) / f64::from(args.validators - 1)
        );
    }
    for (protocol, one) in &others {
        print_sent(protocol.name(), &one.sent, args.validators);
    }
    for (name, sent) in &peers {
        print_sent(name, sent, args.validators);
    }
    Ok(row)
}

/// What the node makes of one map with one protocol, and what that protocol's limit is.
struct Compared {
    measured: Measured,
    limit: Measured,
    sent: Sent,
    timeline: Timeline,
}

/// A total of all validators, for each of them and each view.
fn per_view(args: &WanArgs, timeline: &Timeline, total: u64) -> f64 {
    total as f64 / timeline.entered.len() as f64 / f64::from(args.validators)
}

fn compare_protocol(
    args: &WanArgs,
    protocol: Protocol,
    map: &'static Map,
    costs: &AllCosts,
) -> anyhow::Result<Compared> {
    let (measured, timeline) = ours(args, protocol, map, &costs.ours, costs.sync)?;
    let views = measured_blocks(args, &timeline);
    let leaders = leaders(
        protocol,
        args.validators,
        views.iter().map(|block| block.view),
    )?;
    let limit = limit(protocol, map, args.validators as usize, &leaders);
    print_row(
        &format!("limit, {}", protocol.name()),
        &limit,
        &limit,
        &measured,
    );
    print_row(
        &format!("quorate, {}", protocol.name()),
        &measured,
        &limit,
        &measured,
    );
    let sent = Sent {
        frames: per_view(
            args,
            &timeline,
            timeline.sent.iter().map(|(frames, _)| frames).sum(),
        ),
        bytes: per_view(
            args,
            &timeline,
            timeline.sent.iter().map(|(_, bytes)| bytes).sum(),
        ),
    };
    Ok(Compared {
        measured,
        limit,
        sent,
        timeline,
    })
}
