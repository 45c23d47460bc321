//! All validators of a committee over wide-area links, in virtual time, as `quorate-bench wan` runs
//! this node's: the same latencies, the same regions, costs charged to each validator's clock.
//!
//! The engine is wired as over TCP (see [`crate::node`]), with marshal, archives and buffered
//! broadcast. Only the runtime, the network (the library's deterministic and simulated ones) and
//! the scheme (see [`crate::cheap`]) differ. Leaders take turns by view, as this node's do, in the
//! library's order of the validators, and validator i of that order is in region i modulo their
//! number.
//!
//! A block's time begins when the leader hands it to the network. It ends at each validator with
//! the finalization certificate of that block or of a descendant.

use crate::{
    HandoffName, Leaders,
    app::Watch,
    block::Block,
    charged::{Charged, Costs, Inbox, Incoming, Meter},
    cheap::Cheap,
    clockwork::{Clockwork, stretched},
    node::{self, CERTIFICATES, CHANNELS, Links, NAMESPACE, Setup, VOTES},
    round_robin,
};
use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use commonware_actor::{Feedback, Unreliable};
use commonware_consensus::{Handoff, Heightable as _, simplex::scheme::Namespace};
use commonware_cryptography::{
    Digested, Signer as _,
    ed25519::{PrivateKey, PublicKey},
    sha256::Digest,
};
use commonware_p2p::{
    CheckedSender, LimitedSender, Recipients, Sender,
    simulated::{self, Link, Network, Oracle},
};
use commonware_runtime::{
    Clock as _, Handle, IoBufs, Quota, Runner as _, Supervisor as _,
    deterministic::{self, Context},
};
use commonware_utils::{NZU32, NZUsize, Participant, ordered::Set, probability, sync::Mutex};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Timeout per view on average, after which the run has failed.
const PATIENCE_PER_VIEW: Duration = Duration::from_secs(5);
/// How often the end of the run is checked.
const LOOK: Duration = Duration::from_millis(20);
/// Messages per second of the network's time and peer; never reached. The burst sizes queues.
const QUOTA: Quota = Quota::per_second(NZU32!(1_000_000)).allow_burst(NZU32!(256));
/// Minimal, since nothing is read back.
const CACHED_PAGES: NonZeroUsize = NZUsize!(64);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// A new leader for every view, who builds when its parent is certified.
    Rotating,
    /// A new leader for every view, who builds, sends and votes as soon as it has seen the parent.
    Handoff,
    /// One leader for all views, who runs ahead of certificates.
    Stable,
}

/// What to run.
#[derive(Args)]
pub(crate) struct WanArguments {
    #[arg(long, default_value_t = 50)]
    validators: usize,
    /// JSON file with `round_trips_us`: a square matrix of round trips between regions, in
    /// microseconds.
    #[arg(long)]
    map: PathBuf,
    /// Number of blocks measured.
    #[arg(long, default_value_t = 200)]
    views: u64,
    /// Number of blocks before the measured ones.
    #[arg(long, default_value_t = 5)]
    warm_up_views: u64,
    #[arg(long, value_enum, default_value = "rotating")]
    mode: Mode,
    /// Views that a stable leader leads (alto's default).
    #[arg(long, default_value = "1000")]
    term_length: NonZeroU32,
    /// Views that a stable leader may run ahead of certificates (alto's default).
    #[arg(long, default_value_t = 48)]
    optimistic_views: u64,
    /// Minimal time between a block and its parent, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pace_ms: u64,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Cost of signing a vote, in microseconds.
    #[arg(long, default_value_t = 0)]
    sign_us: u64,
    /// Cost of turning a quorum of votes into a verified certificate, in microseconds.
    #[arg(long, default_value_t = 0)]
    certify_us: u64,
    /// Cost of verifying a certificate, in microseconds.
    #[arg(long, default_value_t = 0)]
    verify_certificate_us: u64,
    /// Cost of syncing a file, in microseconds.
    #[arg(long, default_value_t = 0)]
    sync_us: u64,
    /// Cost of creating a file durably, in microseconds.
    #[arg(long, default_value_t = 0)]
    create_us: u64,
}

impl WanArguments {
    fn costs(&self) -> Costs {
        Costs {
            sign: Duration::from_micros(self.sign_us),
            certify: Duration::from_micros(self.certify_us),
            certificate: Duration::from_micros(self.verify_certificate_us),
            sync: Duration::from_micros(self.sync_us),
            create: Duration::from_micros(self.create_us),
        }
    }

    /// The last measured block.
    fn last(&self) -> u64 {
        self.warm_up_views + self.views
    }
}

/// One block's times, in µs.
struct Times {
    height: u64,
    proposed: u64,
    known: Vec<u64>,
}

/// Observations of all validators.
#[derive(Default)]
struct Timeline {
    /// By digest.
    blocks: BTreeMap<Digest, Times>,
    parents: BTreeMap<Digest, Digest>,
    /// The height up to which each validator knows blocks to be final.
    tips: Vec<u64>,
    nullified: BTreeSet<u64>,
    frames: u64,
    bytes: u64,
}

impl Timeline {
    fn finalized(&mut self, index: usize, digest: Digest, now: u64) {
        let before = self.tips[index];
        let mut next = Some(digest);
        while let Some(digest) = next.take()
            && let Some(block) = self.blocks.get_mut(&digest)
            && block.height > before
        {
            self.tips[index] = self.tips[index].max(block.height);
            block.known.push(now);
            next = self.parents.get(&digest).copied();
        }
    }
}

/// Records one validator's events.
#[derive(Clone)]
struct Witness {
    index: usize,
    clock: Arc<Clockwork>,
    timeline: Arc<Mutex<Timeline>>,
}

impl Witness {
    fn now(&self) -> u64 {
        micros(self.clock.current())
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Watch for Witness {
    fn now_us(&self) -> u64 {
        self.now()
    }

    /// The leader is the first to have the block, and sends it at the same instant.
    fn learn(&self, block: &Digested<Block>) {
        use commonware_cryptography::Digestible as _;
        let now = self.now();
        let mut timeline = self.timeline.lock();
        let parent = block.inner().context.parent.1;
        timeline.parents.insert(block.digest(), parent);
        timeline
            .blocks
            .entry(block.digest())
            .or_insert_with(|| Times {
                height: block.inner().height().get(),
                proposed: now,
                known: Vec::new(),
            });
    }

    fn finalized(&self, digest: Digest, _: u64) {
        let now = self.now();
        self.timeline.lock().finalized(self.index, digest, now);
    }

    fn nullified(&self, view: u64) {
        self.timeline.lock().nullified.insert(view);
    }

    fn stored(&self, _: &Digested<Block>) {}
}

/// Counts sent messages; a broadcast counts once for each receiver.
#[derive(Clone)]
struct Outbox<N> {
    inner: N,
    timeline: Arc<Mutex<Timeline>>,
}

struct Checked<C> {
    inner: C,
    timeline: Arc<Mutex<Timeline>>,
}

impl<N: Sender<PublicKey = PublicKey>> LimitedSender for Outbox<N> {
    type PublicKey = PublicKey;
    type Checked<'a> = Checked<N::Checked<'a>>;

    fn check(&mut self, to: Recipients<PublicKey>) -> Result<Self::Checked<'_>, SystemTime> {
        Ok(Checked {
            inner: self.inner.check(to)?,
            timeline: self.timeline.clone(),
        })
    }
}

impl<C: CheckedSender<PublicKey = PublicKey>> CheckedSender for Checked<C> {
    type PublicKey = PublicKey;

    fn recipients(&self) -> Vec<PublicKey> {
        self.inner.recipients()
    }

    fn send(self, message: impl Into<IoBufs> + Send, priority: bool) -> Unreliable<Feedback> {
        let message = message.into();
        let receivers = self.inner.recipients().len() as u64;
        let mut timeline = self.timeline.lock();
        timeline.frames += receivers;
        timeline.bytes += receivers * message.len() as u64;
        drop(timeline);
        self.inner.send(message, priority)
    }
}

/// The largest map file, in bytes.
const MAX_MAP_BYTES: u64 = 4 << 20;

/// Reads the round trips of a map.
fn round_trips(path: &PathBuf) -> Result<Vec<Vec<u64>>> {
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_MAP_BYTES + 1).read_to_end(&mut text))
        .with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        text.len() as u64 <= MAX_MAP_BYTES,
        "{} has more than the {MAX_MAP_BYTES} bytes that are read",
        path.display()
    );
    let map: Value = serde_json::from_slice(&text).context("the map is no JSON")?;
    let rows = map["round_trips_us"].as_array();
    let rows = rows.context("the map has no round_trips_us")?;
    let row =
        |row: &Value| -> Option<Vec<u64>> { row.as_array()?.iter().map(Value::as_u64).collect() };
    let trips: Option<Vec<_>> = rows.iter().map(row).collect();
    let trips = trips.context("round_trips_us are rows of microseconds")?;
    ensure!(
        !trips.is_empty() && trips.iter().all(|row| row.len() == trips.len()),
        "round_trips_us is no square"
    );
    Ok(trips)
}

/// Runs the committee and prints one JSON object.
///
/// # Errors
///
/// If the map cannot be read, or blocks do not become final.
pub(crate) fn run(arguments: &WanArguments) -> Result<()> {
    let trips = round_trips(&arguments.map)?;
    let config = deterministic::Config::new()
        .with_seed(arguments.seed)
        // A cycle of the runtime's loop takes almost no virtual time.
        .with_cycle(Duration::from_nanos(1));
    let report = deterministic::Runner::new(config).start(|context| async move {
        let timeline = simulate(&context, arguments, &trips).await?;
        let state = context.auditor().state();
        let timeline = timeline.lock();
        report(arguments, &timeline, &state)
    })?;
    println!("{report}");
    Ok(())
}

/// Runs until all validators know all measured blocks to be final.
async fn simulate(
    context: &Context,
    arguments: &WanArguments,
    trips: &[Vec<u64>],
) -> Result<Arc<Mutex<Timeline>>> {
    let keys =
        (0..arguments.validators as u64).map(|seed| PrivateKey::from_seed(seed).public_key());
    let participants = Set::from_iter_dedup(keys);
    let places: Vec<PublicKey> = participants.iter().cloned().collect();
    let (network, oracle) = Network::new_with_peers(
        context.child("network"),
        simulated::Config {
            max_size: node::largest_message::<Cheap>(places.len(), 0),
            max_peers_per_set: NonZeroUsize::new(places.len()).context("no validators")?,
            disconnect_on_block: true,
            tracked_peer_sets: NZUsize!(1),
        },
        places.clone(),
    )
    .await;
    let _network = network.start();
    let timeline = Arc::new(Mutex::new(Timeline {
        tips: vec![0; places.len()],
        ..Timeline::default()
    }));
    let mut validators = Vec::new();
    for index in 0..places.len() {
        let validator = Validator {
            index,
            participants: &participants,
            places: &places,
            arguments,
            timeline: &timeline,
        };
        validators.push(validator.start(context, &oracle).await?);
    }
    connect(&oracle, &places, trips).await?;
    let begin = context.current();
    let patience = stretched(PATIENCE_PER_VIEW) * u32::try_from(arguments.last())?;
    loop {
        context.sleep(stretched(LOOK)).await;
        if timeline
            .lock()
            .tips
            .iter()
            .all(|tip| *tip > arguments.last())
        {
            return Ok(timeline);
        }
        let waited = context.current().duration_since(begin)?;
        ensure!(waited < patience, "blocks do not become final");
    }
}

/// Links all pairs with the map's latencies.
async fn connect(
    oracle: &Oracle<PublicKey, Context>,
    places: &[PublicKey],
    trips: &[Vec<u64>],
) -> Result<()> {
    for (from, sender) in places.iter().enumerate() {
        for (to, receiver) in places.iter().enumerate().filter(|(to, _)| *to != from) {
            let one_way = trips[from % trips.len()][to % trips.len()] / 2;
            let link = Link {
                // The network truncates to milliseconds, and a millisecond stands for a microsecond
                // here.
                latency: stretched(Duration::from_micros(one_way)) + Duration::from_micros(500),
                jitter: Duration::ZERO,
                success_rate: probability!(1.0),
            };
            let added = oracle.add_link(sender.clone(), receiver.clone(), link);
            added.await.map_err(|error| anyhow!("{error}"))?;
        }
    }
    Ok(())
}

/// What is needed to start a validator.
struct Validator<'a> {
    index: usize,
    participants: &'a Set<PublicKey>,
    places: &'a [PublicKey],
    arguments: &'a WanArguments,
    timeline: &'a Arc<Mutex<Timeline>>,
}

impl Validator<'_> {
    async fn start(
        &self,
        context: &Context,
        oracle: &Oracle<PublicKey, Context>,
    ) -> Result<Vec<Handle<()>>> {
        let me = self.places[self.index].clone();
        let meter = Arc::new(Meter::new(self.arguments.costs()));
        let context = context
            .child("validator")
            .with_attribute("validator", self.index);
        let context = Clockwork::new(context, self.index, meter.clone());
        let clock = Arc::new(context.child("clock"));
        let control = oracle.control(me.clone());
        let mut channels = Vec::new();
        for channel in CHANNELS {
            let registered = control.register(channel, QUOTA).await;
            let (sender, receiver) = registered.map_err(|error| anyhow!("{error}"))?;
            let outbox = Outbox {
                inner: sender,
                timeline: self.timeline.clone(),
            };
            let inbox = Inbox {
                inner: receiver,
                incoming: match channel {
                    VOTES => Incoming::Votes,
                    CERTIFICATES => Incoming::Certificates,
                    _ => Incoming::Other,
                },
                clock: clock.clone(),
                meter: meter.clone(),
                examined: None,
            };
            channels.push((outbox, inbox));
        }
        let channels = channels.try_into();
        let links = Links {
            provider: oracle.manager(),
            blocker: control,
            channels: channels.map_err(|_| anyhow!("as many channels as there are"))?,
        };
        let strategy = Charged {
            clock: clock.clone(),
            meter: meter.clone(),
        };
        let witness = Witness {
            index: self.index,
            clock,
            timeline: self.timeline.clone(),
        };
        let setup = self.setup(me, strategy, meter)?;
        Ok(node::start(&context, links, setup, witness).await)
    }

    fn setup<T>(
        &self,
        me: PublicKey,
        strategy: T,
        meter: Arc<Meter>,
    ) -> Result<Setup<Cheap, impl commonware_consensus::simplex::elector::Config<Cheap> + use<T>, T>>
    {
        let arguments = self.arguments;
        let (leaders, handoff) = match arguments.mode {
            Mode::Rotating => (Leaders::Rotating, HandoffName::Wait),
            Mode::Handoff => (Leaders::Rotating, HandoffName::Vote),
            Mode::Stable => (Leaders::Stable, HandoffName::Wait),
        };
        Ok(Setup {
            me,
            first: self.places[0].clone(),
            scheme: Cheap {
                me: Participant::from_usize(self.index),
                participants: self.participants.clone(),
                namespace: Namespace::new(NAMESPACE),
                meter,
            },
            elector: round_robin(leaders, arguments.term_length, arguments.optimistic_views)?,
            strategy,
            payload_bytes: 0,
            handoff: match handoff {
                HandoffName::Wait => Handoff::Wait,
                HandoffName::Stage => Handoff::Stage(()),
                HandoffName::Vote => Handoff::Vote(()),
            },
            pace: Duration::from_millis(arguments.pace_ms),
            cached_pages: CACHED_PAGES,
        })
    }
}

/// Mean and percentiles in milliseconds, from microseconds; as `quorate-bench` reports them.
fn summary(mut values: Vec<u64>) -> Value {
    values.sort_unstable();
    let millis = |value: u64| value as f64 / 1e3;
    let at = |share: f64| millis(values[((values.len() - 1) as f64 * share).round() as usize]);
    let sum: u64 = values.iter().sum();
    json!({ "mean": millis(sum) / values.len() as f64, "p50": at(0.5), "p99": at(0.99) })
}

fn report(arguments: &WanArguments, timeline: &Timeline, state: &str) -> Result<Value> {
    // Of two blocks at a height, the final one is known to all.
    let mut blocks: BTreeMap<u64, &Times> = BTreeMap::new();
    let everywhere = |block: &&Times| block.known.len() == arguments.validators;
    for block in timeline.blocks.values().filter(everywhere) {
        blocks.insert(block.height, block);
    }
    let measured = arguments.warm_up_views + 1..=arguments.last();
    let measured: Vec<&Times> = blocks.range(measured).map(|(_, block)| *block).collect();
    ensure!(
        measured.len() as u64 == arguments.views,
        "a block did not become final everywhere"
    );
    ensure!(measured.len() > 1, "--views must be above 1");
    let between = measured.windows(2);
    let between = between.map(|pair| pair[1].proposed.saturating_sub(pair[0].proposed));
    let finality = measured.iter().flat_map(|block| {
        let known = block.known.iter();
        known.map(|known| known.saturating_sub(block.proposed))
    });
    let all = (timeline.blocks.len() * arguments.validators) as f64;
    Ok(json!({
        "validators": arguments.validators,
        "views": arguments.views,
        "block_ms": summary(between.collect()),
        "finality_ms": summary(finality.collect()),
        "nullified_views": timeline.nullified.len(),
        "messages_per_view": timeline.frames as f64 / all,
        "bytes_per_view": timeline.bytes as f64 / all,
        "state": state,
    }))
}
