//! Runs one validator of commonware's simplex consensus over TCP on loopback and measures it; or,
//! as `quorate-bench-peer wan`, all validators over wide-area links in virtual time (see [`wan`]).
//!
//! `quorate-bench engines` starts one process per validator. Each waits until it is linked to all
//! others and takes part in consensus. It starts measuring `--warm-up-ms` after its first
//! finalization and measures for `--seconds`. Then it prints one JSON line on standard output,
//! writes the runtime's metrics to `DIR/metrics.txt`, keeps running for `--linger-ms` so that
//! slower processes do not lose their quorum, and exits.
//!
//! `cpu_us`, `bytes_sent` and `syncs` count the measured time; `rss_bytes` is taken at the end.
//! `syncs` is the runtime's counter of file syncs and of writes that sync. It excludes creating a
//! file durably (an fsync of the file's header and of its directory), which consensus does once per
//! view, as its journal has a file per view.

mod app;
mod block;
mod charged;
mod cheap;
mod clockwork;
mod keys;
mod node;
mod recorder;
mod usage;
mod wan;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use commonware_consensus::{
    Handoff,
    simplex::{elector::RoundRobin, scheme::bls12381_threshold::standard},
    types::{TermLength, ViewDelta},
};
use commonware_cryptography::{Sha256, bls12381::primitives::variant::MinSig, ed25519::PublicKey};
use commonware_macros::select;
use commonware_parallel::Sequential;
use commonware_runtime::{
    Clock as _, Metrics as _, Runner as _,
    tokio::{Config as RuntimeConfig, Context, Runner},
};
use futures::future::select_all;
use keys::Keys;
use node::{CACHED_PAGES, NAMESPACE, Setup};
use recorder::Recorder;
use serde_json::{Value, json};
use std::{
    fs,
    num::NonZeroU32,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Timeout for the first finalization, after which the run has failed.
const FIRST_FINALIZATION: Duration = Duration::from_secs(60);
/// Timeout for the links; after it consensus starts without the missing ones.
const LINKED: Duration = Duration::from_secs(30);
/// Alto's timeout: a stable leader that finalizes nothing for this long is replaced.
const STALL: Duration = Duration::from_secs(12);

type TcpScheme = standard::Scheme<PublicKey, MinSig>;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Leaders {
    /// A new leader for every view.
    Rotating,
    /// One leader for `--term-length` views, who runs `--optimistic-views` ahead of certificates.
    Stable,
}

#[derive(Clone, Copy, ValueEnum)]
enum HandoffName {
    /// A new leader builds when its parent is certified (the library's default).
    Wait,
    /// It builds and sends the block as soon as it has seen the parent, and votes later.
    Stage,
    /// It builds, sends and votes at once. This trusts the previous leader not to equivocate.
    Vote,
}

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    arguments: Option<Arguments>,
}

#[derive(Subcommand)]
enum Command {
    /// Run all validators over wide-area links in virtual time.
    Wan(wan::WanArguments),
}

#[derive(Args)]
struct Arguments {
    /// This validator's index, from 0.
    #[arg(long)]
    index: usize,
    #[arg(long)]
    validators: usize,
    /// Validator i listens on 127.0.0.1, at this port plus i.
    #[arg(long)]
    base_port: u16,
    /// Storage directory; it should be empty.
    #[arg(long)]
    dir: PathBuf,
    /// Milliseconds from the first finalization until measuring starts.
    #[arg(long, default_value_t = 0)]
    warm_up_ms: u64,
    /// Seconds to measure.
    #[arg(long)]
    seconds: u64,
    /// Payload of each block, in bytes.
    #[arg(long, default_value_t = 0)]
    payload_bytes: usize,
    #[arg(long, value_enum, default_value = "rotating")]
    leaders: Leaders,
    /// Views that a stable leader leads (alto's default).
    #[arg(long, default_value = "1000")]
    term_length: NonZeroU32,
    /// Views that a stable leader may run ahead of certificates (alto's default).
    #[arg(long, default_value_t = 48)]
    optimistic_views: u64,
    #[arg(long, value_enum, default_value = "wait")]
    handoff: HandoffName,
    /// Minimal time between a block and its parent, in milliseconds. Alto paces its leaders (10 ms
    /// when stable).
    #[arg(long, default_value_t = 0)]
    pace_ms: u64,
    /// Threads of the runtime. The library's default is 2.
    #[arg(long, default_value_t = 2)]
    worker_threads: usize,
    /// Milliseconds to keep running after the measurement.
    #[arg(long, default_value_t = 1_000)]
    linger_ms: u64,
}

fn main() -> ExitCode {
    let program = Program::parse();
    let done = match (program.command, program.arguments) {
        (Some(Command::Wan(arguments)), _) => wan::run(&arguments),
        (None, Some(arguments)) => measure(arguments),
        (None, None) => Err(anyhow!("nothing to do")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.dir).context("cannot create --dir")?;
    let keys = Keys::derive(arguments.index, arguments.validators)?;
    let runtime = RuntimeConfig::new()
        .with_storage_directory(&arguments.dir)
        .with_worker_threads(arguments.worker_threads);
    Runner::new(runtime).start(|context| validate(context, arguments, keys))
}

/// The library's round robin.
fn round_robin(
    leaders: Leaders,
    term_length: NonZeroU32,
    optimistic_views: u64,
) -> Result<RoundRobin<Sha256>> {
    match leaders {
        Leaders::Rotating => Ok(RoundRobin::default()),
        Leaders::Stable if term_length.get() == 1 => {
            bail!("--term-length of stable leaders must be above 1")
        }
        Leaders::Stable => Ok(RoundRobin::default().with_term(
            TermLength::new(term_length),
            STALL,
            ViewDelta::new(optimistic_views),
        )),
    }
}

/// Runs a validator. Signatures are verified inline, without a thread pool: on two cores a pool
/// made no difference beyond the noise.
async fn validate(context: Context, arguments: Arguments, keys: Keys) -> Result<()> {
    let participants = keys.participants.clone();
    let (polynomial, share) = (keys.polynomial.clone(), keys.share.clone());
    let scheme = standard::Scheme::signer(NAMESPACE, participants, polynomial, share)
        .ok_or_else(|| anyhow!("the share fits no participant"))?;
    let setup = Setup {
        me: keys.public.clone(),
        first: keys.by_index[0].clone(),
        scheme,
        elector: round_robin(
            arguments.leaders,
            arguments.term_length,
            arguments.optimistic_views,
        )?,
        strategy: Sequential,
        payload_bytes: arguments.payload_bytes,
        handoff: match arguments.handoff {
            HandoffName::Wait => Handoff::Wait,
            HandoffName::Stage => Handoff::Stage(()),
            HandoffName::Vote => Handoff::Vote(()),
        },
        pace: Duration::from_millis(arguments.pace_ms),
        cached_pages: CACHED_PAGES,
    };
    let (network, links) = node::link::<TcpScheme>(
        &context,
        &keys,
        arguments.base_port,
        arguments.payload_bytes,
    );
    let deadline = Instant::now() + LINKED;
    while usage::connected(&context.encode()) + 1 < arguments.validators
        && Instant::now() < deadline
    {
        context.sleep(Duration::from_millis(20)).await;
    }

    let (recorder, first) = Recorder::new();
    let mut handles = node::start(&context, links, setup, recorder.clone()).await;
    handles.insert(0, network);
    let mut ended = select_all(handles);
    let mut measured = Box::pin(window(&context, &arguments, &recorder, first));
    select! {
        result = &mut measured => result,
        (ended, index, _) = &mut ended => {
            let task = ["network", "broadcast", "marshal", "consensus"][index];
            bail!("{task} has ended: {ended:?}")
        },
    }
}

/// Waits for the first finalization, measures, reports and lingers.
async fn window(
    context: &Context,
    arguments: &Arguments,
    recorder: &Recorder,
    first: futures::channel::oneshot::Receiver<()>,
) -> Result<()> {
    select! {
        first = first => first.context("consensus has ended")?,
        _ = context.sleep(FIRST_FINALIZATION) => bail!("no finalization in {FIRST_FINALIZATION:?}"),
    }
    context
        .sleep(Duration::from_millis(arguments.warm_up_ms))
        .await;
    recorder.begin();
    let begin = Instant::now();
    let (cpu_before, metrics_before) = (usage::cpu_us(), context.encode());
    context
        .sleep(Duration::from_secs(arguments.seconds).saturating_sub(begin.elapsed()))
        .await;
    let (elapsed, cpu, metrics) = (begin.elapsed(), usage::cpu_us(), context.encode());
    let seen = recorder.end();

    fs::write(arguments.dir.join("metrics.txt"), &metrics).context("cannot write metrics.txt")?;
    let counted = |name| {
        let before = usage::counter(&metrics_before, name);
        let after = usage::counter(&metrics, name)?;
        Some(after.saturating_sub(before.unwrap_or(0)))
    };
    let line = json!({
        "finalized": seen.finalized,
        "first_view": seen.views.map(|(first, _)| first),
        "last_view": seen.views.map(|(_, last)| last),
        "nullified_views": seen.nullified.len(),
        "elapsed_us": elapsed.as_micros() as u64,
        "finality_us_p50": percentile(&seen.finality_us, 50),
        "finality_us_p99": percentile(&seen.finality_us, 99),
        "finality_us_mean": mean(&seen.finality_us),
        "stored_us_p50": percentile(&seen.stored_us, 50),
        "stored_us_p99": percentile(&seen.stored_us, 99),
        "stored_us_mean": mean(&seen.stored_us),
        "bytes_sent": counted("runtime_outbound_bandwidth"),
        "bytes_received": counted("runtime_inbound_bandwidth"),
        "messages_sent": counted("network_spawner_messages_sent"),
        "syncs": counted("runtime_storage_syncs"),
        "storage_writes": counted("runtime_storage_writes"),
        "storage_write_bytes": counted("runtime_storage_write_bytes"),
        "cpu_us": cpu.saturating_sub(cpu_before),
        "rss_bytes": usage::rss_bytes()?,
    });
    println!("{line}");
    context
        .sleep(Duration::from_millis(arguments.linger_ms))
        .await;
    Ok(())
}

/// A percentile of sorted values; null if there are none.
fn percentile(sorted: &[u64], percent: usize) -> Value {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().into()
}

fn mean(values: &[u64]) -> Value {
    let sum: u64 = values.iter().sum();
    sum.checked_div(values.len() as u64).into()
}
