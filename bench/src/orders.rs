//! How many payloads a second a network of validators on this machine orders and stores: a chain whose application is
//! order-only, with real processes, disks and HTTP.
//!
//! A payload counts once it is in a block that is final and executed at the validator that its client has asked. A
//! quorum has synced it to disk by then. Some of the payloads are fetched from other validators than the one they were
//! sent to, and compared.

use crate::{
    ours::{self, OurNetwork, beside},
    report::Output,
};
use anyhow::{Context as _, ensure};
use clap::Args;
use quorate_load::{
    Client,
    payloads::{self, PayloadLoad, PayloadReport},
};
use quorate_node::localnet::{Network, Sample};
use quorate_types::genesis::{ApplicationKind, Protocol};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};

/// Requests that one client may have waiting at a validator.
const WAITING: u64 = 256;

/// What to run.
#[derive(Args, Clone)]
pub struct OrdersArgs {
    /// Number of validators
    #[arg(long, default_value_t = 4)]
    validators: usize,
    /// Payloads per second: one run for each number
    #[arg(long, value_delimiter = ',', default_values_t = [20_000.0, 50_000.0, 100_000.0])]
    rate: Vec<f64>,
    /// Protocols: one run for each
    #[arg(long, value_delimiter = ',', default_value = "simplex")]
    protocol: Vec<Protocol>,
    /// Bytes of a payload, 16 at least
    #[arg(long, default_value_t = 512)]
    bytes: usize,
    /// Payloads in a request
    #[arg(long, default_value_t = 128)]
    together: usize,
    /// Seconds that are measured, after 3 s of the same load
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// First port to listen on
    #[arg(long, default_value_t = 26_000)]
    base_port: u16,
    /// Folder for data directories (default: the temporary folder)
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs it, and prints a line for each run.
///
/// # Errors
///
/// If a validator ends by itself, or a payload is not what was sent.
pub fn run(args: &OrdersArgs) -> anyhow::Result<()> {
    ensure!(
        args.rate.iter().all(|rate| (1.0..=1e6).contains(rate)),
        "--rate must be 1 to 1000000"
    );
    ensure!(args.bytes >= 16, "--bytes must be 16 at least");
    ensure!(
        args.together > 0 && args.seconds > 0,
        "--together and --seconds must be 1 at least"
    );
    println!(
        "{} validators, payloads of {} bytes, {} in a request, {} s\n",
        args.validators, args.bytes, args.together, args.seconds
    );
    println!(
        "{:>17} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}",
        "", "per s", "final/s", "p50 ms", "p99 ms", "refused", "failed", "unsent", "cores", "MB/s"
    );
    let mut results = Vec::new();
    for protocol in &args.protocol {
        for rate in &args.rate {
            results.push(run_one(args, *protocol, *rate)?);
        }
    }
    args.output.write("orders", &Value::Array(results))
}

fn run_one(args: &OrdersArgs, protocol: Protocol, rate: f64) -> anyhow::Result<Value> {
    let folder = args.folder.as_deref();
    let ours = OurNetwork::prepare("orders", args.validators, args.base_port, folder, |it| {
        it.application = ApplicationKind::OrderOnly;
        it.protocol = protocol;
    })?;
    for place in 0..args.validators {
        ours.set_number(place, "max_waiting_per_client", WAITING)?;
    }
    let binary = beside("quorate")?;
    let runtime = tokio::runtime::Runtime::new().context("starting a runtime")?;
    runtime.block_on(async {
        let network = ours.start(&binary, |_| Vec::new()).await?;
        let load = PayloadLoad {
            urls: network.urls(),
            rate,
            bytes: args.bytes,
            together: args.together,
            warm_up: Duration::from_secs(3),
            measured: Duration::from_secs(args.seconds),
        };
        let before = Sample::take(&network).await;
        let report = payloads::run(load).await?;
        let after = Sample::take(&network).await;
        verify(&network, &report).await?;
        ours::end(network)?;
        Ok(show(args, protocol, rate, &report, (&before, &after)))
    })
}

/// Every validator must have every sampled payload, where the answers say that it is.
async fn verify(network: &Network, report: &PayloadReport) -> anyhow::Result<()> {
    let clients: Vec<Client> = (network.urls().iter())
        .map(|url| Client::new(url))
        .collect::<Result<_, _>>()?;
    for (number, sent) in report.samples.iter().enumerate() {
        let other = (sent.validator + 1 + number % (clients.len() - 1).max(1)) % clients.len();
        let answer = &sent.answer;
        let found = clients[other].payload(&answer.bundle, answer.first).await?;
        ensure!(
            found == sent.first,
            "payload {} of bundle {} is another one at validator {other}",
            answer.first,
            answer.bundle
        );
        let height = answer.height.context("it is final")?;
        let block = clients[other].block(&height.to_string()).await?;
        let names_it = format!("{block:?}").contains(&answer.bundle.to_string());
        ensure!(
            names_it,
            "block {height} does not name bundle {}",
            answer.bundle
        );
    }
    Ok(())
}

fn show(
    args: &OrdersArgs,
    protocol: Protocol,
    rate: f64,
    report: &PayloadReport,
    (before, after): (&Sample, &Sample),
) -> Value {
    let seconds = args.seconds as f64;
    let per_second = report.answered as f64 / seconds;
    let ms = |quantile: f64| report.latencies.value_at_quantile(quantile) as f64 / 1e3;
    let all_seconds = after.since(before).seconds;
    let cores = after.growth(before, "quorate_process_cpu_seconds_total") / all_seconds;
    let written = after.growth(before, "quorate_payloads_ordered_bytes_total") / all_seconds / 1e6;
    println!(
        "{:>17} {:>9.0} {:>9.0} {:>8.1} {:>8.1} {:>8} {:>8} {:>8} {:>7.2} {:>8.1}",
        protocol.name(),
        rate,
        per_second,
        ms(0.5),
        ms(0.99),
        report.refused,
        report.failed,
        report.unsent,
        cores,
        written
    );
    if let Some(error) = &report.error {
        println!("    the first error: {error}");
    }
    json!({
        "protocol": protocol.name(),
        "rate": rate,
        "payload_bytes": args.bytes,
        "final_per_second": per_second,
        "due": report.due,
        "final": report.finalized,
        "refused": report.refused,
        "failed": report.failed,
        "unsent": report.unsent,
        "p50_ms": ms(0.5),
        "p99_ms": ms(0.99),
        "worst_ms": report.latencies.max() as f64 / 1e3,
        "verified": report.samples.len(),
        "cores": cores,
        "ordered_mb_per_second": written,
    })
}
