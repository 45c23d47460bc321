//! The load generator: signed transfers at a steady rate, and how long each takes to be final.

use crate::{
    api::{SubmitRequest, TransactionResult, TransactionState, to_hex},
    client::{ClientError, RpcClient},
};
use quorate_crypto::SecretKey;
use quorate_types::{ChainId, Digest, Height, Identity, Transaction, Transfer};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often a batch is sent.
const TICK: Duration = Duration::from_millis(20);

/// Transactions on their way at most; beyond it the generator waits.
const MAX_OUTSTANDING: usize = 20_000;

/// Transactions of one account on their way at most.
const MAX_OUTSTANDING_PER_ACCOUNT: u64 = 64;

/// A transaction that is not final after this long is counted as lost.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// How long the generator waits at the end for what is on its way.
const DRAIN: Duration = Duration::from_secs(5);

/// Latencies kept for the report; of more, every second one is dropped.
const MAX_SAMPLES: usize = 1 << 20;

/// What load to make.
pub struct LoadConfig {
    /// The validators' URLs. Each account keeps to one of them as long as it answers.
    pub urls: Vec<String>,
    /// The chain.
    pub chain: ChainId,
    /// The accounts' keys. They must hold money.
    pub accounts: Vec<SecretKey>,
    /// Transfers per second.
    pub rate: f64,
}

/// How the load is going; readable at any time.
#[derive(Debug, Default)]
pub struct LoadCounters {
    /// Transactions that were taken in.
    pub submitted: AtomicU64,
    /// Transactions that became final and were applied.
    pub finalized: AtomicU64,
    /// Transactions that became final and failed.
    pub failed: AtomicU64,
    /// Transactions that were refused.
    pub refused: AtomicU64,
    /// Transactions that were taken in and did not become final in time.
    pub lost: AtomicU64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Transactions that were taken in.
    pub submitted: u64,
    /// Transactions that became final and were applied.
    pub finalized: u64,
    /// Transactions that became final and failed.
    pub failed: u64,
    /// Transactions that were refused.
    pub refused: u64,
    /// Transactions that were taken in and did not become final in time.
    pub lost: u64,
    /// From sending to learning of finality, in milliseconds.
    pub latency_ms_p50: Option<f64>,
    /// The same, the slowest hundredth left out.
    pub latency_ms_p99: Option<f64>,
}

struct Account {
    secret: SecretKey,
    identity: Identity,
    validator: usize,
    next_nonce: u64,
    outstanding: u64,
    /// The nonce must be asked for before anything more is sent.
    unsure: bool,
}

struct Sent {
    at: Instant,
    account: usize,
}

struct Shared {
    clients: Vec<RpcClient>,
    chain: ChainId,
    accounts: Mutex<Vec<Account>>,
    sent: Mutex<HashMap<Digest, Sent>>,
    samples: Mutex<Vec<f64>>,
    counters: Arc<LoadCounters>,
}

/// A running load generator.
pub struct Load {
    shared: Arc<Shared>,
    rate: f64,
}

impl Load {
    /// A generator for this load.
    ///
    /// # Errors
    ///
    /// If there is no validator or no account, or no HTTP client.
    pub fn new(config: LoadConfig) -> anyhow::Result<Self> {
        anyhow::ensure!(!config.urls.is_empty(), "no validator to send to");
        anyhow::ensure!(!config.accounts.is_empty(), "no account to send from");
        let clients = config
            .urls
            .iter()
            .map(|url| RpcClient::new(url))
            .collect::<Result<Vec<_>, ClientError>>()?;
        let count = clients.len();
        let accounts = config
            .accounts
            .into_iter()
            .enumerate()
            .map(|(place, secret)| Account {
                identity: secret.identity(),
                secret,
                validator: place % count,
                next_nonce: 0,
                outstanding: 0,
                unsure: true,
            })
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                clients,
                chain: config.chain,
                accounts: Mutex::new(accounts),
                sent: Mutex::default(),
                samples: Mutex::default(),
                counters: Arc::default(),
            }),
            rate: config.rate,
        })
    }

    /// The running counts.
    pub fn counters(&self) -> Arc<LoadCounters> {
        self.shared.counters.clone()
    }

    /// Makes load until `stop` becomes true, waits for what is on its way, and reports.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> LoadReport {
        let follower = tokio::spawn(follow(self.shared.clone()));
        let keeper = tokio::spawn(keep_sure(self.shared.clone()));
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut due = 0.0;
        let mut last = Instant::now();
        let mut next_account = 0;
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                _ = ticks.tick() => {}
            }
            // What could not be sent in a second is not caught up with.
            due = (due + last.elapsed().as_secs_f64() * self.rate).min(self.rate.max(1.0));
            last = Instant::now();
            let count = due as usize;
            due -= count as f64;
            self.shared.send(count, &mut next_account);
        }
        let drained = Instant::now() + DRAIN;
        while !lock(&self.shared.sent).is_empty() && Instant::now() < drained {
            tokio::time::sleep(TICK).await;
        }
        follower.abort();
        keeper.abort();
        self.shared.report()
    }
}

/// Takes a lock whose holder cannot have panicked half-way: every critical section only moves data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    /// Signs up to `count` transfers and sends them, one request per validator.
    fn send(self: &Arc<Self>, count: usize, next_account: &mut usize) {
        let room = MAX_OUTSTANDING.saturating_sub(lock(&self.sent).len());
        let mut batches: Vec<Vec<(Transaction, usize)>> = vec![Vec::new(); self.clients.len()];
        let mut accounts = lock(&self.accounts);
        let size = accounts.len();
        let mut made = 0;
        let mut idle = 0;
        while made < count.min(room) && idle < size {
            let place = *next_account % size;
            *next_account = (place + 1) % size;
            let to = accounts[(place + 1) % size].identity;
            let account = &mut accounts[place];
            if account.unsure || account.outstanding >= MAX_OUTSTANDING_PER_ACCOUNT {
                idle += 1;
                continue;
            }
            idle = 0;
            made += 1;
            let transfer = Transfer {
                chain_tag: self.chain.tag(),
                sender: account.identity,
                nonce: account.next_nonce,
                to,
                amount: 1,
                fee: 1,
            };
            account.next_nonce += 1;
            account.outstanding += 1;
            let transaction = transfer.sign(&self.chain, &account.secret);
            batches[account.validator].push((transaction, place));
        }
        drop(accounts);
        let now = Instant::now();
        let mut sent = lock(&self.sent);
        for (transaction, account) in batches.iter().flatten() {
            let account = *account;
            sent.insert(transaction.id(), Sent { at: now, account });
        }
        drop(sent);
        for (validator, batch) in batches.into_iter().enumerate() {
            for chunk in batch.chunks(1_000) {
                tokio::spawn(self.clone().submit(validator, chunk.to_vec()));
            }
        }
    }

    async fn submit(self: Arc<Self>, validator: usize, batch: Vec<(Transaction, usize)>) {
        let request = SubmitRequest {
            hex: batch.iter().map(|(t, _)| to_hex(t)).collect(),
            ..SubmitRequest::default()
        };
        match self.clients[validator].submit(&request).await {
            Ok(answer) => {
                for (result, (_, account)) in answer.results.iter().zip(&batch) {
                    self.on_submitted(result, *account);
                }
            }
            // The validator is down or busy: these accounts turn to the next one.
            Err(_) => {
                for (transaction, account) in &batch {
                    self.forget(&transaction.id());
                    let accounts = &mut lock(&self.accounts)[*account];
                    accounts.unsure = true;
                    accounts.validator = (validator + 1) % self.clients.len();
                }
                self.counters.refused.fetch_add(batch.len() as u64, Relaxed);
            }
        }
    }

    fn on_submitted(&self, result: &TransactionResult, account: usize) {
        if result.state == TransactionState::Refused {
            self.counters.refused.fetch_add(1, Relaxed);
            self.forget(&result.id);
            lock(&self.accounts)[account].unsure = true;
        } else {
            self.counters.submitted.fetch_add(1, Relaxed);
        }
    }

    fn forget(&self, id: &Digest) -> Option<Sent> {
        let sent = lock(&self.sent).remove(id)?;
        let account = &mut lock(&self.accounts)[sent.account];
        account.outstanding = account.outstanding.saturating_sub(1);
        Some(sent)
    }

    fn on_final(&self, id: &Digest, outcome: &str) {
        let Some(sent) = self.forget(id) else {
            return;
        };
        let latency_ms = sent.at.elapsed().as_secs_f64() * 1_000.0;
        let mut samples = lock(&self.samples);
        if samples.len() >= MAX_SAMPLES {
            let mut keep = false;
            samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        samples.push(latency_ms);
        drop(samples);
        if outcome == "applied" {
            self.counters.finalized.fetch_add(1, Relaxed);
        } else {
            self.counters.failed.fetch_add(1, Relaxed);
            lock(&self.accounts)[sent.account].unsure = true;
        }
    }

    fn drop_lost(&self) {
        let lost: Vec<Digest> = lock(&self.sent)
            .iter()
            .filter(|(_, sent)| sent.at.elapsed() > LOST_AFTER)
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            if let Some(sent) = self.forget(&id) {
                self.counters.lost.fetch_add(1, Relaxed);
                lock(&self.accounts)[sent.account].unsure = true;
            }
        }
    }

    fn report(&self) -> LoadReport {
        let mut samples = std::mem::take(&mut *lock(&self.samples));
        samples.sort_unstable_by(f64::total_cmp);
        let quantile = |q: f64| {
            let place = (samples.len() as f64 * q) as usize;
            samples
                .get(place.min(samples.len().saturating_sub(1)))
                .copied()
        };
        let counters = &self.counters;
        LoadReport {
            submitted: counters.submitted.load(Relaxed),
            finalized: counters.finalized.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            lost: counters.lost.load(Relaxed),
            latency_ms_p50: quantile(0.5),
            latency_ms_p99: quantile(0.99),
        }
    }
}

/// Follows final blocks at the first validator that answers.
async fn follow(shared: Arc<Shared>) {
    let mut validator = 0;
    let mut next: Option<Height> = None;
    loop {
        let client = &shared.clients[validator % shared.clients.len()];
        let from = match next {
            Some(next) => Ok(next),
            None => client.status().await.map(|s| s.executed_height.next()),
        };
        let answer = match from {
            Ok(from) => {
                next = Some(from);
                client.blocks(from, 100, Duration::from_secs(1)).await
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => {
                for block in answer.blocks {
                    next = Some(block.height.next());
                    for (id, outcome) in block.transactions.iter().zip(&block.outcomes) {
                        shared.on_final(id, outcome);
                    }
                }
            }
            Err(_) => {
                validator += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Asks for the nonces of accounts that are unsure of theirs, once nothing of them is on its way.
async fn keep_sure(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        shared.drop_lost();
        let unsure: Vec<(usize, Identity, usize)> = lock(&shared.accounts)
            .iter()
            .enumerate()
            .filter(|(_, account)| account.unsure && account.outstanding == 0)
            .map(|(place, account)| (place, account.identity, account.validator))
            .take(256)
            .collect();
        for (place, identity, validator) in unsure {
            let answer = shared.clients[validator].account(&identity, false).await;
            let account = &mut lock(&shared.accounts)[place];
            match answer {
                Ok(answer) => {
                    account.next_nonce = answer.nonce;
                    account.unsure = false;
                }
                Err(_) => account.validator = (validator + 1) % shared.clients.len(),
            }
        }
    }
}
