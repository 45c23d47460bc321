//! The generator without clock, sockets and threads: what is due, what waits, what is on its way,
//! and what came of it. Times count from the load's beginning.
//!
//! A transfer is due at a time that the schedule fixes beforehand. It then waits for one of the
//! places that a validator has for requests, is sent, answered, and becomes final. Its latency
//! counts from when it was *due*. If it counted from when it was sent, a validator that stops
//! answering for a second would be seen by the few requests that it has, and not by the many that
//! wait behind them: the coordinated omission, after Gil Tene.
//!
//! Everything is bounded: beyond [`MAX_ON_THE_WAY`] and [`MAX_WAITING`] a transfer that is due is
//! not sent, which is counted and shown.

use crate::{
    LoadCounters,
    api::{TransactionResult, TransactionState},
    latencies::Latencies,
    report::{LoadReport, Row, StepReport, Tally},
    schedule::{Schedule, Step},
    senders::{Senders, Wallet},
};
use quorate_types::Digest;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Transfers that wait or are on their way at most, about 150 bytes each.
const MAX_ON_THE_WAY: usize = 500_000;

/// Transfers that wait for one validator at most.
const MAX_WAITING: usize = 10_000;

/// What is sent so much after it was due is late.
pub(crate) const LATE: Duration = Duration::from_millis(10);

/// How often a transfer is sent if nobody answers.
const MAX_ATTEMPTS: u8 = 3;

/// How long a client of a closed loop pauses when it was refused.
const PAUSE: Duration = Duration::from_millis(20);

/// Where the transfers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// They are due at fixed times, whatever becomes of them.
    Open(Vec<Step>),
    /// Each of these clients sends its next one when its last has come to an end.
    Closed {
        /// How many clients, each with an account of its own.
        clients: usize,
        /// How long; `None` until the load is stopped.
        lasts: Option<Duration>,
    },
}

/// What is sent, and how much of it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests that one validator has at a time.
    pub connections: usize,
    /// Transfers in one request at most.
    pub batch: usize,
    /// A transfer that was sent and is not final after this long is counted as lost.
    pub lost_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            connections: 32,
            batch: 100,
            lost_after: Duration::from_secs(60),
        }
    }
}

enum Source {
    Open(Schedule),
    Closed {
        /// Clients that may go on, and from when.
        ready: VecDeque<(Duration, u32)>,
        /// Clients that were refused.
        pausing: VecDeque<(Duration, u32)>,
    },
}

/// A transfer to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: Digest,
    pub(crate) account: u32,
    pub(crate) nonce: u64,
}

/// Transfers to be sent to a validator at once.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: usize,
    pub(crate) orders: Vec<Order>,
}

/// Why a request was not answered as hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody is there.
    Unreachable,
    /// The validator takes none of it in, by this code.
    Turned(String),
    /// It may or may not have arrived.
    Unknown,
}

struct Entry {
    account: u32,
    nonce: u64,
    step: u32,
    due: Duration,
    sent: Option<Duration>,
    taken: bool,
    attempts: u8,
}

#[derive(Default)]
struct Target {
    waiting: VecDeque<Order>,
    under_way: usize,
    down: bool,
}

#[derive(Default)]
struct Second {
    row: Row,
    latencies: Latencies,
}

pub(crate) struct Core {
    wallet: Arc<Wallet>,
    counters: Arc<LoadCounters>,
    shape: Shape,
    pace: Pace,
    source: Source,
    senders: Senders,
    targets: Vec<Target>,
    on_the_way: HashMap<Digest, Entry>,
    tallies: Vec<Tally>,
    second: Second,
    seconds: u64,
    stopped: Option<Duration>,
}

impl Core {
    pub(crate) fn new(
        shape: Shape,
        pace: Pace,
        wallet: Arc<Wallet>,
        targets: usize,
        counters: Arc<LoadCounters>,
    ) -> Self {
        let (source, steps) = match &shape {
            Shape::Open(steps) => (Source::Open(Schedule::new(steps.clone())), steps.len()),
            Shape::Closed { clients, .. } => {
                let ready = (0..*clients as u32).map(|client| (Duration::ZERO, client));
                let source = Source::Closed {
                    ready: ready.collect(),
                    pausing: VecDeque::new(),
                };
                (source, 1)
            }
        };
        Self {
            senders: Senders::new(wallet.size()),
            wallet,
            counters,
            shape,
            pace,
            source,
            targets: (0..targets).map(|_| Target::default()).collect(),
            on_the_way: HashMap::new(),
            tallies: vec![Tally::default(); steps],
            second: Second::default(),
            seconds: 0,
            stopped: None,
        }
    }

    /// When something is due next; `None` if nothing more will be, or, in a closed loop, not before
    /// something has become final.
    pub(crate) fn next_due(&mut self) -> Option<Duration> {
        if self.stopped.is_some() {
            return None;
        }
        match &mut self.source {
            Source::Open(schedule) => schedule.next().map(|(due, _)| due),
            Source::Closed { ready, pausing } => {
                let fronts = [ready.front(), pausing.front()];
                fronts.into_iter().flatten().map(|(at, _)| *at).min()
            }
        }
    }

    /// When the load ends by itself.
    pub(crate) fn end(&self) -> Option<Duration> {
        match (&self.shape, &self.source) {
            (Shape::Closed { lasts, .. }, _) => *lasts,
            (_, Source::Open(schedule)) => schedule.end(),
            _ => None,
        }
    }

    /// Takes up all that is due, and hands out what can be sent now.
    pub(crate) fn poll(&mut self, now: Duration) -> Vec<Request> {
        self.take_up(now);
        let mut requests = Vec::new();
        for (target, state) in self.targets.iter_mut().enumerate() {
            while state.under_way < self.pace.connections && !state.waiting.is_empty() {
                let count = state.waiting.len().min(self.pace.batch);
                state.under_way += 1;
                let orders = state.waiting.drain(..count).collect();
                requests.push(Request { target, orders });
            }
        }
        requests
    }

    fn take_up(&mut self, now: Duration) {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            match &mut self.source {
                Source::Open(schedule) => {
                    let (_, step) = schedule.next().expect("it is due");
                    schedule.advance();
                    let from = self.senders.take();
                    self.offer(due, step, from, now);
                }
                Source::Closed { ready, pausing } => {
                    let paused = pausing.pop_front_if(|(at, _)| *at <= now);
                    let Some((due, client)) = paused.or_else(|| ready.pop_front()) else {
                        break;
                    };
                    if self.senders.is_doubtful(client) {
                        // It is asked for its nonce in the meantime.
                        pausing.push_back((now + PAUSE, client));
                        continue;
                    }
                    let nonce = self.senders.take_from(client);
                    self.offer(due, 0, Some((client, nonce)), now);
                }
            }
        }
    }

    /// A transfer is due.
    fn offer(&mut self, due: Duration, step: usize, from: Option<(u32, u64)>, now: Duration) {
        let tally = &mut self.tallies[step];
        tally.offered += 1;
        self.second.row.offered += 1;
        if now.saturating_sub(due) > LATE {
            tally.behind += 1;
        }
        let Some((account, nonce)) = from else {
            self.unsent(step, None);
            return;
        };
        let target = self.route(account);
        let full = self.targets[target].waiting.len() >= MAX_WAITING;
        if full || self.on_the_way.len() >= MAX_ON_THE_WAY {
            self.unsent(step, Some((account, nonce)));
            return;
        }
        let id = self.wallet.id(account, nonce);
        let entry = Entry {
            account,
            nonce,
            step: step as u32,
            due,
            sent: None,
            taken: false,
            attempts: 0,
        };
        let before = self.on_the_way.insert(id, entry);
        debug_assert!(before.is_none(), "a nonce is used once at a time");
        let order = Order { id, account, nonce };
        self.targets[target].waiting.push_back(order);
    }

    fn unsent(&mut self, step: usize, from: Option<(u32, u64)>) {
        self.tallies[step].unsent += 1;
        self.second.row.unsent += 1;
        self.counters.unsent.fetch_add(1, Relaxed);
        if let Some((account, nonce)) = from {
            self.senders.returned(account, nonce);
            self.senders.answered(account);
        }
    }

    /// Where an account's transfers go: always to the same validator, so that they arrive in the
    /// order of their nonces, unless it is down.
    fn route(&self, account: u32) -> usize {
        let count = self.targets.len();
        let home = account as usize % count;
        (home..home + count)
            .map(|place| place % count)
            .find(|place| !self.targets[*place].down)
            .unwrap_or(home)
    }

    /// A request leaves.
    pub(crate) fn sending(&mut self, now: Duration, request: &Request) {
        for order in &request.orders {
            let Some(entry) = self.on_the_way.get_mut(&order.id) else {
                continue;
            };
            entry.attempts += 1;
            if entry.attempts > 1 {
                self.tallies[entry.step as usize].resent += 1;
                continue;
            }
            entry.sent = Some(now);
            let waited = now.saturating_sub(entry.due);
            let tally = &mut self.tallies[entry.step as usize];
            tally.sent += 1;
            tally.latest = tally.latest.max(waited);
            if waited > LATE {
                tally.late += 1;
                self.second.row.late += 1;
            }
        }
    }

    /// A request was answered, or not.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        request: &Request,
        answer: Result<&[TransactionResult], Failure>,
    ) {
        let target = &mut self.targets[request.target];
        target.under_way = target.under_way.saturating_sub(1);
        match answer {
            Ok(results) => {
                for (place, order) in request.orders.iter().enumerate() {
                    match results.get(place).filter(|result| result.id == order.id) {
                        Some(result) => self.on_result(now, order, result),
                        None => self.refuse(now, order, "bad_answer"),
                    }
                    self.senders.answered(order.account);
                }
            }
            Err(Failure::Unknown) => self.send_again(now, request),
            Err(failure) => {
                let code = match &failure {
                    Failure::Turned(code) => code,
                    _ => "unreachable",
                };
                self.targets[request.target].down |= failure == Failure::Unreachable;
                for order in &request.orders {
                    self.refuse(now, order, code);
                    self.senders.answered(order.account);
                }
            }
        }
    }

    /// The same bytes go to another validator if there is one, so whatever became of them is found
    /// out and not guessed.
    fn send_again(&mut self, now: Duration, request: &Request) {
        self.targets[request.target].down = true;
        for order in &request.orders {
            let attempts = self.on_the_way.get(&order.id).map(|entry| entry.attempts);
            match attempts {
                Some(attempts) if attempts < MAX_ATTEMPTS && self.stopped.is_none() => {
                    let target = self.route(order.account);
                    self.targets[target].waiting.push_back(*order);
                }
                Some(_) => {
                    self.lose(now, &order.id);
                    self.senders.answered(order.account);
                }
                None => self.senders.answered(order.account),
            }
        }
    }

    fn on_result(&mut self, now: Duration, order: &Order, result: &TransactionResult) {
        match result.state {
            TransactionState::Pending => self.on_taken(now, &order.id),
            TransactionState::Finalized => {
                let attempts = self.on_the_way.get(&order.id).map(|entry| entry.attempts);
                match attempts {
                    Some(1) => {
                        let entry = self.take_out(now, &order.id, false).expect("it is there");
                        self.tallies[entry.step as usize].repeated += 1;
                        // Its nonce was used when nobody knew.
                        self.senders.doubt(entry.account);
                    }
                    Some(_) => {
                        let applied = result.outcome.as_deref() == Some("applied");
                        self.finalised(now, &order.id, applied);
                    }
                    None => {}
                }
            }
            TransactionState::Refused => {
                let code = result.error.as_ref().map_or("unknown", |e| e.code.as_str());
                self.refuse(now, order, code);
            }
        }
    }

    fn on_taken(&mut self, now: Duration, id: &Digest) {
        let Some(entry) = self.on_the_way.get_mut(id).filter(|entry| !entry.taken) else {
            return;
        };
        entry.taken = true;
        let tally = &mut self.tallies[entry.step as usize];
        tally.submitted += 1;
        if let Some(sent) = entry.sent {
            tally.answers.record(now.saturating_sub(sent));
        }
        self.second.row.taken += 1;
        self.counters.submitted.fetch_add(1, Relaxed);
    }

    fn refuse(&mut self, now: Duration, order: &Order, code: &str) {
        // What was taken in by one validator may be refused by another that it was sent to again.
        if self
            .on_the_way
            .get(&order.id)
            .is_none_or(|entry| entry.taken)
        {
            return;
        }
        // Somebody else uses the account, or the chain is further than was known.
        let used = matches!(code, "stale_nonce" | "nonce_taken" | "already_known");
        let entry = self.take_out(now, &order.id, !used).expect("it is there");
        if used {
            self.senders.doubt(entry.account);
        }
        self.tallies[entry.step as usize].refuse(code);
        self.second.row.refused += 1;
        self.counters.refused.fetch_add(1, Relaxed);
    }

    /// A transfer is in a final block.
    pub(crate) fn finalised(&mut self, now: Duration, id: &Digest, applied: bool) {
        // The block may be faster than the validator's answer.
        self.on_taken(now, id);
        let Some(entry) = self.take_out(now, id, false) else {
            return;
        };
        let tally = &mut self.tallies[entry.step as usize];
        if !applied {
            tally.failed += 1;
            self.second.row.failed += 1;
            self.counters.failed.fetch_add(1, Relaxed);
            self.senders.doubt(entry.account);
            return;
        }
        tally.finalized += 1;
        tally.from_due.record(now.saturating_sub(entry.due));
        if let Some(sent) = entry.sent {
            tally.from_send.record(now.saturating_sub(sent));
        }
        if let Some(step) = self.step_at(now) {
            self.tallies[step].applied_meanwhile += 1;
        }
        self.second.row.finalized += 1;
        self.second.latencies.record(now.saturating_sub(entry.due));
        self.counters.finalized.fetch_add(1, Relaxed);
    }

    /// Which step lasts at this time.
    fn step_at(&self, now: Duration) -> Option<usize> {
        (0..self.tallies.len()).find(|step| {
            let (start, end) = self.window(*step);
            (start..end.unwrap_or(Duration::MAX)).contains(&now)
        })
    }

    /// When a step starts and ends.
    fn window(&self, step: usize) -> (Duration, Option<Duration>) {
        let (start, end) = match &self.shape {
            Shape::Open(steps) => {
                let start = steps[..step].iter().filter_map(|step| step.lasts).sum();
                let lasts = steps[step].lasts;
                (start, lasts.map(|lasts| start + lasts))
            }
            Shape::Closed { lasts, .. } => (Duration::ZERO, *lasts),
        };
        let clip = |at: Duration| self.stopped.map_or(at, |stopped| at.min(stopped));
        match (end, self.stopped) {
            (Some(end), _) => (clip(start), Some(clip(end))),
            (None, stopped) => (clip(start), stopped),
        }
    }

    /// Takes a transfer out of the books. In a closed loop, its client may go on.
    fn take_out(&mut self, now: Duration, id: &Digest, nonce_returns: bool) -> Option<Entry> {
        let entry = self.on_the_way.remove(id)?;
        if nonce_returns {
            self.senders.returned(entry.account, entry.nonce);
        } else {
            self.senders.ended(entry.account);
        }
        if let Source::Closed { ready, pausing } = &mut self.source {
            match nonce_returns {
                true => pausing.push_back((now + PAUSE, entry.account)),
                false => ready.push_back((now, entry.account)),
            }
        }
        Some(entry)
    }

    fn lose(&mut self, now: Duration, id: &Digest) {
        if let Some(entry) = self.take_out(now, id, true) {
            self.tallies[entry.step as usize].lost += 1;
            self.second.row.lost += 1;
            self.counters.lost.fetch_add(1, Relaxed);
        }
    }

    /// Gives up what was sent too long ago.
    pub(crate) fn give_up_lost(&mut self, now: Duration) {
        let limit = self.pace.lost_after;
        let all = self.on_the_way.iter();
        let lost: Vec<Digest> = all
            .filter(|(_, entry)| {
                let sent = entry.sent.filter(|_| entry.taken);
                sent.is_some_and(|sent| now.saturating_sub(sent) > limit)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.lose(now, &id);
        }
    }

    /// Nothing more is due; what waits is not sent any more.
    pub(crate) fn stop(&mut self, now: Duration) {
        if self.stopped.is_some() {
            return;
        }
        let end = now.min(self.end().unwrap_or(Duration::MAX));
        self.take_up(end);
        self.stopped = Some(end);
        let waiting: Vec<Order> = self
            .targets
            .iter_mut()
            .flat_map(|target| target.waiting.drain(..))
            .collect();
        for order in waiting {
            let sent = self.on_the_way.get(&order.id).and_then(|entry| entry.sent);
            if sent.is_some() {
                continue;
            }
            if let Some(entry) = self.take_out(now, &order.id, true) {
                self.tallies[entry.step as usize].unsent += 1;
                self.second.row.unsent += 1;
                self.counters.unsent.fetch_add(1, Relaxed);
            }
        }
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.on_the_way.is_empty()
    }

    /// Accounts whose next nonce must be asked for, and whom to ask.
    pub(crate) fn to_ask(&self, max: usize) -> Vec<(u32, usize)> {
        let accounts = self.senders.to_ask(max).into_iter();
        accounts
            .map(|account| (account, self.route(account)))
            .collect()
    }

    /// A validator told an account's next nonce.
    pub(crate) fn learned(&mut self, account: u32, nonce: u64) {
        self.senders.learned(account, nonce);
    }

    /// Validators that did not answer the last time.
    pub(crate) fn down(&self) -> Vec<usize> {
        let all = self.targets.iter().enumerate();
        all.filter(|(_, target)| target.down)
            .map(|(place, _)| place)
            .collect()
    }

    /// A validator answers, or does not.
    pub(crate) fn set_down(&mut self, target: usize, down: bool) {
        self.targets[target].down = down;
    }

    /// The second that ends now.
    pub(crate) fn take_row(&mut self) -> Row {
        self.seconds += 1;
        let mut row = std::mem::take(&mut self.second.row);
        row.second = self.seconds;
        row.on_the_way = self.on_the_way.len();
        row.p50_ms = self.second.latencies.quantile_ms(0.5);
        row.p99_ms = self.second.latencies.quantile_ms(0.99);
        row.latencies = std::mem::take(&mut self.second.latencies);
        row
    }

    /// What has come of it until now.
    pub(crate) fn report(&self, now: Duration) -> LoadReport {
        let lasted = |step: usize| {
            let (start, end) = self.window(step);
            end.unwrap_or(now).saturating_sub(start)
        };
        let mut total = Tally::default();
        let mut total_lasted = Duration::ZERO;
        let mut steps: Vec<StepReport> = Vec::new();
        for (step, tally) in self.tallies.iter().enumerate() {
            let (rate, warm_up) = match &self.shape {
                Shape::Open(steps) => (Some(steps[step].rate), steps[step].warm_up),
                Shape::Closed { .. } => (None, false),
            };
            steps.push(tally.report(rate, lasted(step), warm_up));
            if !warm_up {
                total.add(tally);
                total_lasted += lasted(step);
            }
        }
        let counted = steps.iter().filter(|step| !step.warm_up);
        let rates: Vec<Option<f64>> = counted.map(|step| step.rate).collect();
        let rate = match rates[..] {
            [one] => one,
            _ => None,
        };
        let (mode, clients) = match &self.shape {
            Shape::Open(_) => ("open", None),
            Shape::Closed { clients, .. } => ("closed", Some(*clients)),
        };
        if steps.len() == 1 {
            steps.clear();
        }
        LoadReport {
            mode: mode.to_owned(),
            clients,
            total: total.report(rate, total_lasted, false),
            steps,
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
