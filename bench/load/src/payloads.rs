//! An open-loop load of payloads, for a chain that only orders.
//!
//! Requests are due at fixed times, whatever the validators do; the time to the answer counts from then.

use crate::{
    generator::LoadCounters,
    report::{LoadReport, Tally},
};
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
use tokio::{sync::watch, task::JoinSet};

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
        let body = numbered(number, together, &filling)?;
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

/// Bytes of each payload of [`run_until`].
const USUAL_BYTES: usize = 512;

/// Requests a second of [`run_until`], at most: payloads beyond share requests.
const REQUESTS_PER_SECOND: f64 = 200.0;

/// Sends payloads of 512 bytes at a rate to validators in turn until it is told to stop, and waits for the answers.
/// A payload is final once the asked validator says so. A request that no validator takes goes to the next one; one that
/// is taken and not answered is not sent again, since its payloads may be ordered.
///
/// # Errors
///
/// If no client can be made.
pub async fn run_until(
    urls: &[String],
    rate: f64,
    counters: Arc<LoadCounters>,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<LoadReport> {
    let clients: Vec<RpcClient> = (urls.iter())
        .map(|url| RpcClient::with_timeout(url, PATIENCE + Duration::from_secs(5)))
        .collect::<Result<_, _>>()?;
    let together = (rate / REQUESTS_PER_SECOND).ceil().clamp(1.0, 1_024.0) as u64;
    let interval = together as f64 / rate;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0_u64.. {
        let due = start + Duration::from_secs_f64(number as f64 * interval);
        tokio::select! {
            biased;
            stopped = stop.wait_for(|stops| *stops) => {
                // Whoever would stop it is gone.
                let _ = stopped;
                break;
            }
            () = tokio::time::sleep_until(due.into()) => {}
        }
        while tasks.try_join_next().is_some() {}
        let mut held = tally.lock().unwrap_or_else(PoisonError::into_inner);
        held.offered += together;
        if tasks.len() >= MAX_IN_FLIGHT {
            held.unsent += together;
            counters.unsent.fetch_add(together, Relaxed);
            continue;
        }
        drop(held);
        let body = numbered(number, together, &[7; USUAL_BYTES])?;
        let asking = Asking {
            clients: clients.clone(),
            first: usize::try_from(number).unwrap_or(0),
            due,
            together,
            counters: counters.clone(),
            tally: tally.clone(),
        };
        tasks.spawn(asking.ask(body));
    }
    while tasks.join_next().await.is_some() {}
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(LoadReport {
        mode: "open".to_owned(),
        total: tally.report(Some(rate), start.elapsed(), false),
        ..LoadReport::default()
    })
}

/// A list of payloads that no other request has: each is the filling with its number in the first 16 bytes.
fn numbered(number: u64, together: u64, filling: &[u8]) -> anyhow::Result<Bytes> {
    let mut body = BytesMut::with_capacity(together as usize * (4 + filling.len()));
    for place in 0..together {
        body.put_u32(u32::try_from(filling.len()).context("a short payload")?);
        body.put_u64(number);
        body.put_u64(place);
        body.put_slice(&filling[16..]);
    }
    Ok(body.freeze())
}

struct Asking {
    clients: Vec<RpcClient>,
    /// Who is asked first.
    first: usize,
    due: Instant,
    together: u64,
    counters: Arc<LoadCounters>,
    tally: Arc<Mutex<Tally>>,
}

impl Asking {
    async fn ask(self, body: Bytes) {
        let together = self.together;
        let sent = Instant::now();
        let mut answer = None;
        for turn in 0..self.clients.len() {
            let client = &self.clients[(self.first + turn) % self.clients.len()];
            match client.submit_payloads(body.clone(), true).await {
                Err(ClientError::Unreachable { .. }) => {}
                other => {
                    answer = Some(other);
                    break;
                }
            }
        }
        let now = Instant::now();
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.sent += together;
        let code = match answer {
            Some(Ok(answer)) => {
                tally.submitted += together;
                self.counters.submitted.fetch_add(together, Relaxed);
                if answer.state == PayloadsState::Finalized {
                    tally.finalized += together;
                    tally.applied_meanwhile += together;
                    self.counters.finalized.fetch_add(together, Relaxed);
                    tally.from_due.record(now.duration_since(self.due));
                    tally.from_send.record(now.duration_since(sent));
                }
                return;
            }
            Some(Err(ClientError::Refused { code, .. })) => code,
            Some(Err(_)) => "no_answer".to_owned(),
            None => "unreachable".to_owned(),
        };
        for _ in 0..together {
            tally.refuse(&code);
        }
        self.counters.refused.fetch_add(together, Relaxed);
    }
}
