//! The load generator: threads, sockets and the clock around its core.
//!
//! Five tasks run concurrently. The *pacer*, a thread of its own, sleeps until the next transfer is
//! due and hands out requests. *Requests* are signed and sent on a small runtime. The *follower*
//! reads final blocks; it has a thread of its own too, so that signing time does not appear as
//! latency. The *keeper* handles failures: lost transfers, unknown nonces, validators that are
//! down. The *teller* reports each second.

use crate::{
    core::{Core, Failure, Pace, Request, Shape},
    report::{LoadReport, Row},
    schedule::{MAX_RATE, MAX_STEPS, Step},
    senders::Wallet,
};
use commonware_codec::EncodeSize;
use quorate_api::{ClientError, RpcClient, SubmitRequest, to_hex};
use quorate_crypto::{SecretKey, sha256};
use quorate_http::client::Roots;
use quorate_types::{ChainId, Height, Memo, limits::MAX_MEMO_BYTES};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime, sync::watch, task::JoinSet};

/// Callback for each second's row.
pub type OnRow = Box<dyn FnMut(&Row) + Send>;

/// The pacer's shortest sleep; what comes due in the meantime is sent together.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// The pacer's longest sleep, so that it notices when the load is stopped.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Timeout for a validator's answer to a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// The follower's timeout for an answer, including the wait for a block.
const FOLLOW_LIMIT: Duration = Duration::from_secs(4);

/// The most blocks in one answer.
const BLOCKS: u64 = 100;

/// The keeper's interval.
const KEEP_EVERY: Duration = Duration::from_millis(50);

/// Every this many turns the keeper checks for lost transfers and for validators that are back.
const SELDOM: u32 = 10;

/// The most accounts whose nonces are queried in one turn of the keeper, and concurrently.
const ASK_MAX: usize = 1_024;
const ASK_AT_A_TIME: usize = 16;

/// The default time to wait at the end for transfers in flight.
const DRAIN: Duration = Duration::from_secs(5);

/// The most bytes of transfers in one request; validators accept requests of 1 MiB.
const REQUEST_BYTES: usize = 1_000_000;

/// The most clients of a closed loop.
const MAX_CLIENTS: usize = 10_000;

/// A simple load: a steady rate until it is stopped.
pub struct LoadConfig {
    /// The validators' URLs. Each account keeps to one of them as long as it answers.
    pub urls: Vec<String>,
    pub chain: ChainId,
    /// The accounts' keys. The accounts must hold money.
    pub accounts: Vec<SecretKey>,
    /// Transfers per second.
    pub rate: f64,
}

/// A load with all settings.
pub struct LoadPlan {
    /// The validators' URLs. Each account keeps to one of them as long as it answers.
    pub urls: Vec<String>,
    /// Trusted root certificates for https.
    pub roots: Roots,
    pub chain: ChainId,
    /// The accounts' keys. The accounts must hold money.
    pub accounts: Vec<SecretKey>,
    /// What triggers transfers.
    pub shape: Shape,
    /// How much is sent at a time.
    pub pace: Pace,
    /// The longest wait at the end for transfers in flight.
    pub drain: Duration,
    /// Signs the transfers of an open loop before it starts, and starts it at this time, or once all are signed. Otherwise
    /// each is signed when it is sent.
    pub ahead: Option<Instant>,
    /// The validators that get the load at the moment, by their places in `urls`, at least one of them; `None`
    /// for all.
    pub used: Option<watch::Receiver<BTreeSet<usize>>>,
    /// Ends that wait when it becomes true.
    pub hurry: Option<watch::Receiver<bool>>,
    /// Called every second.
    pub on_row: Option<OnRow>,
}

/// Running counts; readable at any time.
#[derive(Debug, Default)]
pub struct LoadCounters {
    /// Transactions accepted by a validator.
    pub submitted: AtomicU64,
    /// Transactions that became final and were applied.
    pub finalized: AtomicU64,
    /// Transactions that became final and failed.
    pub failed: AtomicU64,
    /// Transactions that were rejected.
    pub refused: AtomicU64,
    /// Transactions that were sent and did not become final in time.
    pub lost: AtomicU64,
    /// Transactions that were due and were not sent.
    pub unsent: AtomicU64,
}

/// A load generator.
pub struct Load {
    plan: LoadPlan,
    counters: Arc<LoadCounters>,
}

impl From<LoadConfig> for LoadPlan {
    fn from(config: LoadConfig) -> Self {
        Self {
            urls: config.urls,
            roots: Roots::default(),
            chain: config.chain,
            accounts: config.accounts,
            shape: Shape::Open(vec![Step::new(config.rate, None)]),
            pace: Pace::default(),
            drain: DRAIN,
            ahead: None,
            used: None,
            hurry: None,
            on_row: None,
        }
    }
}

impl Load {
    /// Creates a generator for this load.
    ///
    /// # Errors
    ///
    /// If there is no validator or no account, or a number is out of range.
    pub fn new(plan: impl Into<LoadPlan>) -> anyhow::Result<Self> {
        let plan = plan.into();
        anyhow::ensure!(!plan.urls.is_empty(), "no validator to send to");
        anyhow::ensure!(!plan.accounts.is_empty(), "no account to send from");
        let accounts = plan.accounts.len();
        match &plan.shape {
            Shape::Open(steps) => {
                anyhow::ensure!(
                    (1..=MAX_STEPS).contains(&steps.len()),
                    "a load has 1 to {MAX_STEPS} steps"
                );
                anyhow::ensure!(
                    steps
                        .iter()
                        .all(|step| (0.0..=MAX_RATE).contains(&step.rate)),
                    "a rate must be 0 to {MAX_RATE} transfers per second"
                );
            }
            Shape::Closed { clients, .. } => {
                anyhow::ensure!(
                    (1..=MAX_CLIENTS).contains(clients),
                    "a closed loop has 1 to {MAX_CLIENTS} clients"
                );
                anyhow::ensure!(
                    *clients <= accounts,
                    "{clients} clients need as many accounts, not {accounts}: give --accounts \
                     {clients}"
                );
            }
        }
        anyhow::ensure!(plan.pace.connections > 0, "no connection to send over");
        anyhow::ensure!(
            (1..=1_000).contains(&plan.pace.batch),
            "a request carries 1 to 1000 transfers"
        );
        anyhow::ensure!(
            plan.pace.payload_bytes <= MAX_MEMO_BYTES,
            "a transfer's payload has at most {MAX_MEMO_BYTES} bytes"
        );
        Ok(Self {
            plan,
            counters: Arc::default(),
        })
    }

    /// The running counts.
    pub fn counters(&self) -> Arc<LoadCounters> {
        self.counters.clone()
    }

    /// Generates load on its own threads until the load ends or `stop` becomes true, waits for
    /// transfers in flight, and reports.
    ///
    /// # Panics
    ///
    /// If the system refuses a thread, a socket or an HTTP client.
    pub async fn run(self, stop: watch::Receiver<bool>) -> LoadReport {
        let (done, report) = tokio::sync::oneshot::channel();
        let body = move || {
            let runtime = runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("load")
                .enable_all()
                .build()
                .expect("the system gives threads");
            let report = runtime.block_on(drive(self.plan, self.counters, stop));
            runtime.shutdown_background();
            let _ = done.send(report);
        };
        spawn("load-main", body);
        report.await.expect("the generator's thread does not panic")
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("the system gives threads")
}

struct Shared {
    core: Mutex<Core>,
    copies: bool,
    wallet: Arc<Wallet>,
    clients: Vec<RpcClient>,
    origin: Instant,
    stopped: AtomicBool,
    runtime: runtime::Handle,
}

async fn drive(
    plan: LoadPlan,
    counters: Arc<LoadCounters>,
    stop: watch::Receiver<bool>,
) -> LoadReport {
    let clients: Result<Vec<_>, ClientError> = plan
        .urls
        .iter()
        .map(|url| RpcClient::with_roots(url, ANSWER_LIMIT, &plan.roots))
        .collect();
    let clients = clients.expect("the system gives an HTTP client");
    let memo = payload(plan.pace.payload_bytes);
    let wallet = Arc::new(Wallet::new(plan.chain, plan.accounts, memo));
    // Each byte takes two hex digits, and each transfer is in quotes.
    let text = 2 * wallet.sign(0, 0).encode_size() + 3;
    let fitting = Pace {
        batch: plan.pace.batch.min(REQUEST_BYTES / text),
        ..plan.pace
    };
    let mut core = Core::new(plan.shape, fitting, wallet.clone(), clients.len(), counters);
    if let Some(used) = &plan.used {
        core.use_only(&used.borrow());
    }
    // Nothing is due before the nonces and the height from which to follow are known.
    let from = tokio::select! {
        from = prepare(&mut core, &wallet, &clients) => from,
        () = wait_for(stop.clone()) => return core.report(Duration::ZERO),
    };
    if let Some(start) = plan.ahead {
        core.sign_ahead(|account, nonce| signed(&wallet, account, nonce));
        tokio::time::sleep_until(start.into()).await;
    }
    let end = core.end();
    let shared = Arc::new(Shared {
        core: Mutex::new(core),
        copies: plan.pace.copies,
        wallet,
        clients,
        origin: Instant::now(),
        stopped: AtomicBool::new(false),
        runtime: runtime::Handle::current(),
    });
    let pacer = spawn("load-pacer", {
        let shared = shared.clone();
        move || pace(&shared)
    });
    let follower = spawn("load-follower", {
        let (shared, urls, roots) = (shared.clone(), plan.urls, plan.roots);
        move || run_follower(&shared, &urls, &roots, from)
    });
    let keeper = tokio::spawn(keep(shared.clone(), plan.used));
    let rows = plan.on_row.map(|on_row| {
        let shared = shared.clone();
        spawn("load-rows", move || rows(&shared, on_row))
    });
    let over = async {
        match end {
            Some(end) => tokio::time::sleep_until((shared.origin + end).into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait_for(stop) => {}
        () = over => {}
    }
    shared.send_due();
    let now = shared.now();
    shared.core().stop(now);
    drain(&shared, plan.drain, plan.hurry).await;
    let report = shared.core().report(now);
    shared.stopped.store(true, Relaxed);
    keeper.abort();
    // All check `stopped` often; a panic in one of them would show in the figures.
    let threads = [Some(pacer), Some(follower), rows];
    let joined = tokio::task::spawn_blocking(move || {
        threads.map(|thread| thread.map_or(Ok(()), thread::JoinHandle::join))
    });
    for thread in joined.await.into_iter().flatten() {
        thread.expect("the generator's threads do not panic");
    }
    report
}

/// Incompressible bytes, the same every time.
fn payload(bytes: usize) -> Memo {
    let hashes = (0_u64..).flat_map(|number| sha256(&[&number.to_be_bytes()]).0);
    Memo::new(hashes.take(bytes).collect::<Vec<u8>>()).expect("checked when the plan was made")
}

/// Resolves when the signal becomes true, or its sender is dropped.
async fn wait_for(mut signal: watch::Receiver<bool>) {
    let _ = signal.wait_for(|signal| *signal).await;
}

async fn drain(shared: &Shared, limit: Duration, hurry: Option<watch::Receiver<bool>>) {
    let drained = async {
        while !shared.core().is_idle() {
            tokio::time::sleep(KEEP_EVERY).await;
        }
    };
    let hurried = async {
        match hurry {
            Some(hurry) => wait_for(hurry).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(limit, drained) => {}
        () = hurried => {}
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Locks the core. A panic cannot leave it half-updated: it only moves data.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends everything that can be sent now.
    fn send_due(self: &Arc<Self>) {
        let requests = self.core().poll(self.now());
        for request in requests {
            self.runtime.spawn(self.clone().send(request));
        }
    }

    async fn send(self: Arc<Self>, mut request: Request) {
        let orders = request.orders.iter_mut();
        let body = SubmitRequest {
            hex: orders
                .map(|order| {
                    let text = order
                        .signed
                        .get_or_insert_with(|| signed(&self.wallet, order.account, order.nonce));
                    text.to_string()
                })
                .collect(),
            ..SubmitRequest::default()
        };
        self.core().sending(self.now(), &request);
        if self.copies {
            self.send_copies(&body, request.target);
        }
        let answer = self.clients[request.target].submit(&body).await;
        let now = self.now();
        match answer {
            Ok(answer) => self.core().answered(now, request, Ok(&answer.results)),
            Err(error) => self.core().answered(now, request, Err(failure(&error))),
        }
        self.send_due();
    }

    /// Sends a request to all validators but one, and waits for no answer.
    fn send_copies(&self, body: &SubmitRequest, but: usize) {
        for (target, client) in self.clients.iter().enumerate() {
            if target != but {
                let (client, body) = (client.clone(), body.clone());
                self.runtime
                    .spawn(async move { client.submit(&body).await });
            }
        }
    }
}

/// A signed transfer as it is sent.
fn signed(wallet: &Wallet, account: u32, nonce: u64) -> Arc<str> {
    to_hex(&wallet.sign(account, nonce)).into()
}

/// Classifies an error: whether the request may have had an effect although it brought no answer.
fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Unreachable { .. } => Failure::Unreachable,
        ClientError::Refused {
            status: 408 | 500, ..
        } => Failure::Unknown,
        ClientError::Refused { code, .. } => Failure::Turned(code.clone()),
        ClientError::Transport { .. } => Failure::Unknown,
    }
}

/// Queries all nonces, and the height after which to follow. Retries until it succeeds.
async fn prepare(core: &mut Core, wallet: &Arc<Wallet>, clients: &[RpcClient]) -> Height {
    let mut turn = 0;
    loop {
        let unknown = core.to_ask(wallet.size());
        if unknown.is_empty() {
            break;
        }
        let client = &clients[turn % clients.len()];
        turn += 1;
        // The others may be down; one validator that answers is enough for all nonces.
        for (account, nonce) in ask(wallet, unknown, |_| client.clone()).await {
            core.learned(account, nonce);
        }
    }
    loop {
        match clients[turn % clients.len()].status().await {
            Ok(status) => return status.executed_height.next(),
            Err(_) => tokio::time::sleep(KEEP_EVERY).await,
        }
        turn += 1;
    }
}

/// Queries the nonces of these accounts, a few at a time. Accounts without an answer are left out.
async fn ask(
    wallet: &Arc<Wallet>,
    accounts: Vec<(u32, usize)>,
    client: impl Fn(usize) -> RpcClient,
) -> Vec<(u32, u64)> {
    let mut workers = JoinSet::new();
    for part in accounts.chunks(accounts.len().div_ceil(ASK_AT_A_TIME).max(1)) {
        let part: Vec<(u32, RpcClient)> = part
            .iter()
            .map(|(account, target)| (*account, client(*target)))
            .collect();
        let wallet = wallet.clone();
        workers.spawn(async move {
            let mut learned = Vec::new();
            for (account, client) in part {
                match client.account(&wallet.identity(account), false).await {
                    Ok(answer) => learned.push((account, answer.nonce)),
                    Err(_) => tokio::time::sleep(KEEP_EVERY).await,
                }
            }
            learned
        });
    }
    workers.join_all().await.into_iter().flatten().collect()
}

/// Sends what is due when it is due.
fn pace(shared: &Arc<Shared>) {
    while !shared.stopped.load(Relaxed) {
        shared.send_due();
        let due = shared.core().next_due();
        let wait = due.map_or(LONGEST_SLEEP, |due| due.saturating_sub(shared.now()));
        thread::sleep(wait.clamp(SHORTEST_SLEEP, LONGEST_SLEEP));
    }
}

fn run_follower(shared: &Arc<Shared>, urls: &[String], roots: &Roots, from: Height) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives sockets");
    // Connections belong to the runtime that made them.
    let clients: Result<Vec<_>, ClientError> = urls
        .iter()
        .map(|url| RpcClient::with_roots(url, FOLLOW_LIMIT, roots))
        .collect();
    let clients = clients.expect("the system gives an HTTP client");
    runtime.block_on(follow(shared, &clients, from));
}

/// Reads final blocks from the first validator that answers.
async fn follow(shared: &Arc<Shared>, clients: &[RpcClient], from: Height) {
    let mut next = from;
    let mut turn = 0;
    while !shared.stopped.load(Relaxed) {
        let client = &clients[shared.core().route(turn % clients.len())];
        match client
            .blocks(next, BLOCKS, Duration::from_millis(500))
            .await
        {
            Ok(answer) if answer.blocks.is_empty() => {
                // There is nothing new, or the blocks have been pruned.
                if let Ok(status) = client.status().await {
                    next = next.max(status.first_height);
                }
                turn += 1;
            }
            Ok(answer) => {
                let now = shared.now();
                let mut core = shared.core();
                for block in &answer.blocks {
                    next = block.height.next();
                    for (id, outcome) in block.transactions.iter().zip(&block.outcomes) {
                        core.finalised(now, id, outcome);
                    }
                }
                drop(core);
                // Clients of a closed loop may continue.
                shared.send_due();
            }
            Err(_) => {
                turn += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Handles failures.
async fn keep(shared: Arc<Shared>, mut used: Option<watch::Receiver<BTreeSet<usize>>>) {
    let mut ticks = tokio::time::interval(KEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut turn: u32 = 0;
    loop {
        ticks.tick().await;
        turn = turn.wrapping_add(1);
        if let Some(used) = &mut used
            && used.has_changed().unwrap_or(false)
        {
            let used = used.borrow_and_update().clone();
            shared.core().use_only(&used);
        }
        if turn.is_multiple_of(SELDOM) {
            let now = shared.now();
            shared.core().give_up_lost(now);
            // Bound before the await: a lock guard in the loop's expression would live through it.
            let down = shared.core().down();
            for target in down {
                if shared.clients[target].ready().await.is_ok() {
                    shared.core().set_down(target, false);
                }
            }
        }
        let unknown = shared.core().to_ask(ASK_MAX);
        if unknown.is_empty() {
            continue;
        }
        let learned = ask(&shared.wallet, unknown, |target| {
            shared.clients[target].clone()
        });
        for (account, nonce) in learned.await {
            shared.core().learned(account, nonce);
        }
    }
}

/// Reports every second. It has a thread of its own; otherwise the busiest seconds would be
/// reported late and together.
fn rows(shared: &Shared, mut on_row: OnRow) {
    for second in 1_u64.. {
        let end = Duration::from_secs(second);
        while shared.now() < end {
            if shared.stopped.load(Relaxed) {
                return;
            }
            thread::sleep((end - shared.now().min(end)).min(LONGEST_SLEEP));
        }
        let row = shared.core().take_row();
        on_row(&row);
    }
}
