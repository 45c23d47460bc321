//! The generator's logic without clock, sockets and threads: what is due, what is queued, what is
//! in flight, and each outcome. Times count from the load's start.
//!
//! A transfer is due at a time that the schedule fixes beforehand. It then waits for one of the
//! validator's request slots and for an account without unanswered requests; then it is sent,
//! answered, and becomes final. Its latency counts from when it was *due*. If it counted from when
//! it was sent, a validator that stops answering for a second would show only in the few requests
//! in flight, and not in the many queued behind them: coordinated omission, after Gil Tene.
//!
//! Everything is bounded: beyond [`MAX_ON_THE_WAY`] and [`MAX_WAITING`] a due transfer is not sent,
//! which is counted and reported.

use crate::{
    LoadCounters,
    latencies::Latencies,
    report::{LoadReport, MAX_NAMED, Row, StepReport, Tally},
    schedule::{Schedule, Step},
    senders::{Senders, Signed, Wallet},
};
use quorate_api::{TransactionResult, TransactionState};
use quorate_types::Digest;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem::take,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// The most transfers in flight, about 150 bytes each.
const MAX_ON_THE_WAY: usize = 500_000;

/// The most transfers queued for one validator.
const MAX_WAITING: usize = 10_000;

/// A transfer sent this long after it was due counts as late.
pub(crate) const LATE: Duration = Duration::from_millis(10);

/// The most attempts to send a transfer that gets no answer.
const MAX_ATTEMPTS: u8 = 3;

/// The outcome of a successful transfer.
const APPLIED: &str = "applied";

/// How long a client of a closed loop pauses after a rejection.
const PAUSE: Duration = Duration::from_millis(20);

/// What triggers transfers.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Open loop: transfers are due at fixed times, whatever their outcomes.
    Open(Vec<Step>),
    /// Closed loop: each client sends its next transfer when its last one has completed.
    Closed {
        /// The number of clients, each with an account of its own.
        clients: usize,
        /// The duration; `None` runs until the load is stopped.
        lasts: Option<Duration>,
    },
}

/// How much is sent at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The most requests in flight to one validator.
    pub connections: usize,
    /// The most transfers in one request; fewer if the request would be too long.
    pub batch: usize,
    /// Bytes of the memo in each transfer, from 0 to 4,096.
    pub payload_bytes: usize,
    /// Whether the other validators get a copy of each request. Their answers do not count.
    pub copies: bool,
    /// A transfer that was sent and is not final after this time is counted as lost.
    pub lost_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            connections: 32,
            batch: 100,
            payload_bytes: 0,
            copies: false,
            lost_after: Duration::from_secs(60),
        }
    }
}

enum Source {
    Open(Schedule),
    Closed {
        /// Clients that may continue, and from when.
        ready: VecDeque<(Duration, u32)>,
        /// Clients pausing after a rejection.
        pausing: VecDeque<(Duration, u32)>,
    },
}

/// A transfer to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: Digest,
    pub(crate) account: u32,
    pub(crate) nonce: u64,
    /// The signed transfer as it is sent; the generator fills it in.
    pub(crate) signed: Signed,
}

/// Transfers to send to one validator together.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: usize,
    pub(crate) orders: Vec<Order>,
}

/// Why a request got no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection could not be made.
    Unreachable,
    /// The validator rejects the whole request with this code.
    Turned(String),
    /// The request may or may not have arrived.
    Unknown,
}

struct Entry {
    account: u32,
    nonce: u64,
    step: u32,
    due: Duration,
    sent: Option<Duration>,
    taken: bool,
    /// It was pending before it was sent.
    foreign: bool,
    attempts: u8,
}

/// A due transfer that waits for a request slot and an account.
#[derive(Clone, Copy)]
struct Due {
    at: Duration,
    step: u32,
    /// The client (and account), in a closed loop.
    client: Option<u32>,
}

#[derive(Default)]
struct Target {
    waiting: VecDeque<Due>,
    /// Transfers that another validator did not answer.
    again: VecDeque<Order>,
    under_way: usize,
    down: bool,
    /// It answers, and is not to get any load now.
    aside: bool,
}

impl Target {
    const fn is_open(&self) -> bool {
        !self.down && !self.aside
    }
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
    /// The validator that gets the next transfer.
    turn: usize,
    on_the_way: HashMap<Digest, Entry>,
    tallies: Vec<Tally>,
    second: Second,
    seconds: u64,
    stopped: Option<Duration>,
    /// Transfers that were accepted and are lost; the first ones.
    lost: Vec<Digest>,
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
            senders: Senders::new(wallet.size(), targets),
            wallet,
            counters,
            shape,
            pace,
            source,
            targets: (0..targets).map(|_| Target::default()).collect(),
            turn: 0,
            on_the_way: HashMap::new(),
            tallies: vec![Tally::default(); steps],
            second: Second::default(),
            seconds: 0,
            stopped: None,
            lost: Vec::new(),
        }
    }

    /// When the next event is due. `None` if nothing more will be due, or, in a closed loop, not
    /// before a transfer has become final.
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

    /// Signs what an open loop with an end sends: each account's share, and somewhat more, since some are slower than others.
    pub(crate) fn sign_ahead(&mut self, sign: impl FnMut(u32, u64) -> Arc<str>) {
        let Shape::Open(steps) = &self.shape else {
            return;
        };
        let due = |step: &Step| Some(step.rate * step.lasts?.as_secs_f64());
        let all: f64 = steps.iter().filter_map(due).sum();
        let share = all / self.wallet.size() as f64;
        self.senders
            .sign_ahead((share * 1.1).ceil() as u64 + 2, sign);
    }

    /// When the load ends by itself.
    pub(crate) fn end(&self) -> Option<Duration> {
        match (&self.shape, &self.source) {
            (Shape::Closed { lasts, .. }, _) => *lasts,
            (_, Source::Open(schedule)) => schedule.end(),
            _ => None,
        }
    }

    /// Takes in everything that is due, and returns the requests that can be sent now.
    pub(crate) fn poll(&mut self, now: Duration) -> Vec<Request> {
        self.take_up(now);
        let mut requests = Vec::new();
        for target in 0..self.targets.len() {
            while self.targets[target].under_way < self.pace.connections {
                let orders = self.orders(target);
                if orders.is_empty() {
                    break;
                }
                self.targets[target].under_way += 1;
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
                    let target = self.route((self.turn + 1) % self.targets.len());
                    self.turn = target;
                    self.offer(due, step, target, None, now);
                }
                Source::Closed { ready, pausing } => {
                    let paused = pausing.pop_front_if(|(at, _)| *at <= now);
                    let Some((due, client)) = paused.or_else(|| ready.pop_front()) else {
                        break;
                    };
                    if self.senders.is_doubtful(client) {
                        // The account's nonce is queried in the meantime.
                        pausing.push_back((now + PAUSE, client));
                        continue;
                    }
                    let target = self.route(self.senders.home(client));
                    self.offer(due, 0, target, Some(client), now);
                }
            }
        }
    }

    /// Handles a transfer that has come due.
    fn offer(
        &mut self,
        at: Duration,
        step: usize,
        target: usize,
        client: Option<u32>,
        now: Duration,
    ) {
        let tally = &mut self.tallies[step];
        tally.offered += 1;
        self.second.row.offered += 1;
        if now.saturating_sub(at) > LATE {
            tally.behind += 1;
        }
        let waiting = &mut self.targets[target].waiting;
        if waiting.len() >= MAX_WAITING || self.on_the_way.len() >= MAX_ON_THE_WAY {
            self.unsent(step);
            return;
        }
        let step = step as u32;
        waiting.push_back(Due { at, step, client });
    }

    fn unsent(&mut self, step: usize) {
        self.tallies[step].unsent += 1;
        self.second.row.unsent += 1;
        self.counters.unsent.fetch_add(1, Relaxed);
    }

    /// The transfers of the next request to this validator; empty if nothing is queued or no
    /// account is available.
    fn orders(&mut self, target: usize) -> Vec<Order> {
        let batch = self.pace.batch;
        let again = &mut self.targets[target].again;
        if !again.is_empty() {
            return again.drain(..again.len().min(batch)).collect();
        }
        if self.targets[target].waiting.is_empty() {
            return Vec::new();
        }
        // A few from each of many accounts, unless so many are queued that all slots must be used.
        let homes = self.homes_of(target);
        let clear: usize = homes.iter().map(|home| self.senders.clear(*home)).sum();
        let needed = self.targets[target].waiting.len().div_ceil(clear.max(1));
        let most = (self.pace.connections * batch).div_ceil(self.senders.per_home().max(1));
        let share = needed.min(most).max(1);
        let mut orders = Vec::new();
        while orders.len() < batch
            && let Some(front) = self.targets[target].waiting.front()
        {
            let (account, share) = match front.client {
                Some(client) => (client, 1),
                None => match homes.iter().find_map(|home| self.senders.take(*home)) {
                    Some(account) => (account, share),
                    None => break,
                },
            };
            for _ in 0..share.min(batch - orders.len()) {
                let Some(due) = self.targets[target].waiting.pop_front() else {
                    break;
                };
                orders.push(self.order(due, account));
            }
        }
        orders
    }

    fn order(&mut self, due: Due, account: u32) -> Order {
        let (nonce, signed) = self.senders.take_from(account);
        let id = self.wallet.id(account, nonce);
        let entry = Entry {
            account,
            nonce,
            step: due.step,
            due: due.at,
            sent: None,
            taken: false,
            foreign: false,
            attempts: 0,
        };
        let before = self.on_the_way.insert(id, entry);
        debug_assert!(before.is_none(), "a nonce is used once at a time");
        Order {
            id,
            account,
            nonce,
            signed,
        }
    }

    /// The validator that gets the transfers of the accounts of `home`: always `home`, so that they
    /// arrive in the order of their nonces, unless it is down or set aside.
    pub(crate) fn route(&self, home: usize) -> usize {
        let count = self.targets.len();
        (home..home + count)
            .map(|place| place % count)
            .find(|place| self.targets[*place].is_open())
            .unwrap_or(home)
    }

    /// The homes whose accounts' transfers go to this validator.
    fn homes_of(&self, target: usize) -> Vec<usize> {
        if self.targets.iter().all(Target::is_open) {
            return vec![target];
        }
        let mut homes: Vec<usize> = (0..self.targets.len())
            .filter(|home| self.route(*home) == target)
            .collect();
        homes.sort_by_key(|home| *home != target);
        homes
    }

    /// Records that a request is sent.
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

    /// Records the answer to a request, or its failure.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        request: Request,
        answer: Result<&[TransactionResult], Failure>,
    ) {
        let Request { target, orders } = request;
        let state = &mut self.targets[target];
        state.under_way = state.under_way.saturating_sub(1);
        match answer {
            Ok(results) => {
                for (place, order) in orders.into_iter().enumerate() {
                    let account = order.account;
                    match results.get(place).filter(|result| result.id == order.id) {
                        Some(result) => self.on_result(now, order, result),
                        None => self.refuse(now, order, "bad_answer"),
                    }
                    self.senders.answered(account);
                }
            }
            Err(Failure::Unknown) => self.send_again(now, target, orders),
            Err(failure) => {
                let code = match &failure {
                    Failure::Turned(code) => code,
                    _ => "unreachable",
                };
                if failure == Failure::Unreachable {
                    self.set_down(target, true);
                }
                for order in orders {
                    let account = order.account;
                    self.refuse(now, order, code);
                    self.senders.answered(account);
                }
            }
        }
    }

    /// Queues the same bytes for another validator if there is one, so that the outcome is found
    /// out, not guessed.
    fn send_again(&mut self, now: Duration, target: usize, orders: Vec<Order>) {
        self.set_down(target, true);
        for order in orders {
            let attempts = self.on_the_way.get(&order.id).map(|entry| entry.attempts);
            match attempts {
                Some(attempts) if attempts < MAX_ATTEMPTS && self.stopped.is_none() => {
                    let target = self.route(self.senders.home(order.account));
                    self.targets[target].again.push_back(order);
                }
                Some(_) => {
                    let account = order.account;
                    self.lose(now, &order.id, order.signed);
                    self.senders.answered(account);
                }
                None => self.senders.answered(order.account),
            }
        }
    }

    fn on_result(&mut self, now: Duration, order: Order, result: &TransactionResult) {
        match result.state {
            TransactionState::Pending => {
                if let Some(entry) = self.on_the_way.get_mut(&order.id) {
                    let first = entry.attempts == 1 && !entry.taken && !self.pace.copies;
                    entry.foreign |= first && result.repeated;
                }
                self.on_taken(now, &order.id);
            }
            TransactionState::Finalized => {
                let attempts = self.on_the_way.get(&order.id).map(|entry| entry.attempts);
                match attempts {
                    Some(1) => {
                        let entry = self.take_out(now, &order.id, None).expect("it is there");
                        self.tallies[entry.step as usize].repeated += 1;
                        // Its nonce was used at an unknown time.
                        self.senders.doubt(entry.account);
                    }
                    Some(_) => {
                        let outcome = result.outcome.as_deref().unwrap_or("unknown");
                        self.finalised(now, &order.id, outcome);
                    }
                    None => {}
                }
            }
            TransactionState::Refused | TransactionState::Dropped => {
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

    fn refuse(&mut self, now: Duration, order: Order, code: &str) {
        // A transfer accepted by one validator may be rejected by another to which it was resent.
        if self
            .on_the_way
            .get(&order.id)
            .is_none_or(|entry| entry.taken)
        {
            return;
        }
        // Someone else uses the account, or the chain is further ahead than was known.
        let used = matches!(code, "stale_nonce" | "nonce_taken" | "already_known");
        let again = (!used).then_some(order.signed);
        let entry = self.take_out(now, &order.id, again).expect("it is there");
        if used {
            self.senders.doubt(entry.account);
        }
        self.tallies[entry.step as usize].refuse(code);
        self.second.row.refused += 1;
        self.counters.refused.fetch_add(1, Relaxed);
    }

    /// Records that a transfer is in a final block, with its outcome.
    pub(crate) fn finalised(&mut self, now: Duration, id: &Digest, outcome: &str) {
        // The block may arrive before the validator's answer.
        self.on_taken(now, id);
        let Some(entry) = self.take_out(now, id, None) else {
            return;
        };
        let tally = &mut self.tallies[entry.step as usize];
        if entry.foreign {
            tally.repeated += 1;
            self.senders.doubt(entry.account);
            return;
        }
        if outcome != APPLIED {
            tally.fail(outcome);
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

    /// The step at this time.
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

    /// Removes a transfer; `again` if its nonce is to be reused. In a closed loop, its client may
    /// continue.
    fn take_out(&mut self, now: Duration, id: &Digest, again: Option<Signed>) -> Option<Entry> {
        let entry = self.on_the_way.remove(id)?;
        let returns = again.is_some();
        match again {
            Some(signed) => self.senders.returned(entry.account, entry.nonce, signed),
            None => self.senders.ended(entry.account),
        }
        if let Source::Closed { ready, pausing } = &mut self.source {
            match returns {
                true => pausing.push_back((now + PAUSE, entry.account)),
                false => ready.push_back((now, entry.account)),
            }
        }
        Some(entry)
    }

    fn lose(&mut self, now: Duration, id: &Digest, signed: Signed) {
        if let Some(entry) = self.take_out(now, id, Some(signed)) {
            self.tallies[entry.step as usize].lost += 1;
            self.second.row.lost += 1;
            self.counters.lost.fetch_add(1, Relaxed);
        }
    }

    /// Gives up transfers that were sent too long ago.
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
            if self.lost.len() < MAX_NAMED {
                self.lost.push(id);
            }
            self.lose(now, &id, None);
        }
    }

    /// Stops the load: nothing more comes due, and queued transfers are not sent.
    pub(crate) fn stop(&mut self, now: Duration) {
        if self.stopped.is_some() {
            return;
        }
        let end = now.min(self.end().unwrap_or(Duration::MAX));
        self.take_up(end);
        self.stopped = Some(end);
        let waiting: Vec<Due> = self
            .targets
            .iter_mut()
            .flat_map(|target| target.waiting.drain(..))
            .collect();
        waiting
            .iter()
            .for_each(|due| self.unsent(due.step as usize));
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.on_the_way.is_empty()
    }

    /// Accounts whose next nonce must be queried, each with the validator to query.
    pub(crate) fn to_ask(&self, max: usize) -> Vec<(u32, usize)> {
        let accounts = self.senders.to_ask(max).into_iter();
        accounts
            .map(|account| (account, self.route(self.senders.home(account))))
            .collect()
    }

    /// Records an account's next nonce as told by a validator.
    pub(crate) fn learned(&mut self, account: u32, nonce: u64) {
        self.senders.learned(account, nonce);
    }

    /// Validators that did not answer the last request.
    pub(crate) fn down(&self) -> Vec<usize> {
        let all = self.targets.iter().enumerate();
        all.filter(|(_, target)| target.down)
            .map(|(place, _)| place)
            .collect()
    }

    /// Records whether a validator answers.
    pub(crate) fn set_down(&mut self, target: usize, down: bool) {
        self.targets[target].down = down;
        self.hand_over(target);
    }

    /// Gives the load to these validators only.
    pub(crate) fn use_only(&mut self, used: &BTreeSet<usize>) {
        for (place, target) in self.targets.iter_mut().enumerate() {
            target.aside = !used.contains(&place);
        }
        (0..self.targets.len()).for_each(|target| self.hand_over(target));
    }

    /// Queues what waits for a validator for the one that gets its transfers now.
    fn hand_over(&mut self, target: usize) {
        let place = self.route(target);
        if place == target {
            return;
        }
        let state = &mut self.targets[target];
        let (waiting, again) = (take(&mut state.waiting), take(&mut state.again));
        self.targets[place].again.extend(again);
        for due in waiting {
            let others = &mut self.targets[place].waiting;
            match others.len() < MAX_WAITING {
                true => others.push_back(due),
                false => self.unsent(due.step as usize),
            }
        }
    }

    /// The row of the second that ends now.
    pub(crate) fn take_row(&mut self) -> Row {
        self.seconds += 1;
        let mut row = take(&mut self.second.row);
        row.second = self.seconds;
        row.on_the_way = self.on_the_way.len();
        row.p50_ms = self.second.latencies.quantile_ms(0.5);
        row.p99_ms = self.second.latencies.quantile_ms(0.99);
        row.latencies = take(&mut self.second.latencies);
        row
    }

    /// The results so far.
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
        let on_the_way = self.on_the_way.iter();
        let on_the_way = on_the_way.filter(|(_, entry)| entry.taken);
        let unsettled = self.lost.iter().chain(on_the_way.map(|(id, _)| id));
        LoadReport {
            unsettled: unsettled.take(MAX_NAMED).copied().collect(),
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
