//! An open-loop load of payloads, for a chain that only orders.
//!
//! Requests are due at fixed times, whatever the validators do; the time to the answer counts from then.

use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use hdrhistogram::Histogram;
use quorate_api::{ClientError, PayloadsAnswer, PayloadsState, RpcClient};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Most requests in flight; those that are due beyond that are not sent, and counted.
const MAX_IN_FLIGHT: usize = 2_000;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// One in so many requests is kept to be verified.
const SAMPLED: u64 = 97;

/// What to send.
#[derive(Clone, Debug)]
pub struct PayloadLoad {
    /// The validators, which are asked in turn.
    pub urls: Vec<String>,
    /// Payloads per second.
    pub rate: f64,
    /// Bytes of a payload: 16 at least.
    pub bytes: usize,
    /// Payloads in a request.
    pub together: usize,
    /// What is sent before the measurement.
    pub warm_up: Duration,
    pub measured: Duration,
}

/// Payloads that were sent, and what the validator said of them.
pub struct SentPayloads {
    pub answer: PayloadsAnswer,
    /// The first of them.
    pub first: Bytes,
    /// Who was asked.
    pub validator: usize,
}

/// What came of it.
pub struct PayloadReport {
    /// Payloads that were due in the measured time.
    pub due: u64,
    /// Of these, those that were final, executed and durable in the end.
    pub finalized: u64,
    /// Those that were answered within the measured time, whenever they were due.
    pub answered: u64,
    pub refused: u64,
    pub failed: u64,
    pub unsent: u64,
    /// Microseconds from when they were due until they were final.
    pub latencies: Histogram<u64>,
    pub samples: Vec<SentPayloads>,
    /// The first error.
    pub error: Option<String>,
}

struct Counts {
    finalized: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicUsize,
    rest: Mutex<Rest>,
}

struct Rest {
    latencies: Histogram<u64>,
    samples: Vec<SentPayloads>,
    error: Option<String>,
}

/// Runs the load, and waits for the answers.
///
/// # Errors
///
/// If no client can be made.
pub async fn run(load: PayloadLoad) -> anyhow::Result<PayloadReport> {
    let clients: Vec<RpcClient> = (load.urls.iter())
        .map(|url| RpcClient::with_timeout(url, PATIENCE))
        .collect::<Result<_, _>>()?;
    let counts = Arc::new(Counts {
        finalized: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        in_flight: AtomicUsize::new(0),
        rest: Mutex::new(Rest {
            latencies: Histogram::new_with_bounds(1, 3_600_000_000, 3).context("a histogram")?,
            samples: Vec::new(),
            error: None,
        }),
    });
    let start = Instant::now();
    let begin = start + load.warm_up;
    let end = begin + load.measured;
    let interval = load.together as f64 / load.rate;
    let filling: Vec<u8> = (0..load.bytes.max(16))
        .map(|i| (i * 131 % 251) as u8)
        .collect();
    let mut tasks = JoinSet::new();
    let (mut due_payloads, mut unsent) = (0, 0);
    for number in 0_u64.. {
        let due = start + Duration::from_secs_f64(number as f64 * interval);
        if due >= end {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        let is_measured = due >= begin;
        let together = load.together as u64;
        due_payloads += if is_measured { together } else { 0 };
        if counts.in_flight.load(Relaxed) >= MAX_IN_FLIGHT {
            unsent += if is_measured { together } else { 0 };
            continue;
        }
        counts.in_flight.fetch_add(1, Relaxed);
        let mut body = BytesMut::with_capacity(load.together * (4 + filling.len()));
        for place in 0..together {
            body.put_u32(u32::try_from(filling.len()).context("a short payload")?);
            body.put_u64(number);
            body.put_u64(place);
            body.put_slice(&filling[16..]);
        }
        let body = body.freeze();
        let validator = usize::try_from(number).unwrap_or(0) % clients.len();
        let (client, counts) = (clients[validator].clone(), counts.clone());
        let first = body.slice(4..4 + filling.len());
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let answer = client.submit_payloads(body, true).await;
            let now = Instant::now();
            counts.in_flight.fetch_sub(1, Relaxed);
            let is_final = |answer: &PayloadsAnswer| answer.state == PayloadsState::Finalized;
            if now >= begin && now < end && answer.as_ref().is_ok_and(is_final) {
                counts.answered.fetch_add(together, Relaxed);
            }
            if !is_measured {
                return;
            }
            let mut rest = counts.rest.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Ok(answer) if is_final(&answer) => {
                    counts.finalized.fetch_add(together, Relaxed);
                    let micros = now.saturating_duration_since(due).as_micros();
                    rest.latencies
                        .saturating_record_n(u64::try_from(micros).unwrap_or(u64::MAX), together);
                    if number % SAMPLED == 0 {
                        rest.samples.push(SentPayloads {
                            answer,
                            first,
                            validator,
                        });
                    }
                }
                Ok(_) => drop(counts.failed.fetch_add(together, Relaxed)),
                Err(error) => {
                    let is_busy = matches!(&error, ClientError::Refused { status: 429, .. });
                    let counter = if is_busy {
                        &counts.refused
                    } else {
                        &counts.failed
                    };
                    counter.fetch_add(together, Relaxed);
                    rest.error.get_or_insert_with(|| error.to_string());
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let counts = Arc::into_inner(counts).context("all requests have ended")?;
    let rest = counts
        .rest
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(PayloadReport {
        due: due_payloads,
        finalized: counts.finalized.into_inner(),
        answered: counts.answered.into_inner(),
        refused: counts.refused.into_inner(),
        failed: counts.failed.into_inner(),
        unsent,
        latencies: rest.latencies,
        samples: rest.samples,
        error: rest.error,
    })
}
