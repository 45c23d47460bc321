use super::*;
use quorate_api::ErrorDetail;
use quorate_crypto::{SecretKey, sha256};
use quorate_types::{ChainId, Memo};

const MS: Duration = Duration::from_millis(1);
const FINALITY: Duration = Duration::from_millis(20);

/// Answers after two milliseconds, if nothing keeps it from it; what it has taken is final 20 ms
/// later.
struct Server {
    under_way: Vec<(Duration, Request)>,
    finals: VecDeque<(Duration, Digest)>,
    stall: std::ops::Range<Duration>,
    /// What it says to the n-th request.
    says: fn(usize, &Request) -> Result<Vec<TransactionResult>, Failure>,
    requests: usize,
}

impl Server {
    fn new() -> Self {
        Self {
            under_way: Vec::new(),
            finals: VecDeque::new(),
            stall: Duration::ZERO..Duration::ZERO,
            says: |_, request| Ok(request.orders.iter().map(|o| pending(o.id)).collect()),
            requests: 0,
        }
    }

    fn stalled(stall: std::ops::Range<Duration>) -> Self {
        Self {
            stall,
            ..Self::new()
        }
    }

    fn take(&mut self, now: Duration, request: Request) {
        let mut at = now + 2 * MS;
        if self.stall.contains(&at) {
            at = self.stall.end + 2 * MS;
        }
        self.under_way.push((at, request));
    }

    fn go_on(&mut self, now: Duration, core: &mut Core) {
        let (done, open) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.under_way = open;
        for (_, request) in done {
            self.requests += 1;
            let answer = (self.says)(self.requests, &request);
            let taken = answer.iter().flatten();
            let taken = taken.filter(|result| result.state == TransactionState::Pending);
            self.finals
                .extend(taken.map(|result| (now + FINALITY, result.id)));
            core.answered(now, request, answer.as_deref().map_err(Clone::clone));
        }
        while let Some((_, id)) = self.finals.pop_front_if(|(at, _)| *at <= now) {
            core.finalised(now, &id, "applied");
        }
    }
}

fn result(id: Digest, state: TransactionState, code: Option<&str>) -> TransactionResult {
    TransactionResult {
        state,
        error: code.map(|code| ErrorDetail {
            code: code.to_owned(),
            message: String::new(),
        }),
        ..TransactionResult::pending(id)
    }
}

fn pending(id: Digest) -> TransactionResult {
    result(id, TransactionState::Pending, None)
}

fn core(shape: Shape, pace: Pace, accounts: u8, targets: usize) -> Core {
    let keys = (0..accounts).map(|seed| SecretKey::from_bytes(&[seed; 32]));
    let wallet = Wallet::new(ChainId(sha256(&[b"test"])), keys.collect(), Memo::NONE);
    let mut core = Core::new(shape, pace, Arc::new(wallet), targets, Arc::default());
    (0..u32::from(accounts)).for_each(|account| core.learned(account, 0));
    core
}

fn open(rate: f64, seconds: u64) -> Shape {
    Shape::Open(vec![Step::new(rate, Some(Duration::from_secs(seconds)))])
}

/// Few places, so that a stall keeps transfers waiting.
const NARROW: Pace = Pace {
    connections: 4,
    batch: 1,
    payload_bytes: 0,
    copies: false,
    lost_after: Duration::from_secs(30),
};

/// Drives the load through, awake once in `tick`, with `drain` at its end.
fn drive(core: &mut Core, server: &mut Server, tick: Duration, drain: Duration) -> LoadReport {
    let end = core.end().expect("tests end");
    let mut now = Duration::ZERO;
    while now < end + drain {
        for request in core.poll(now.min(end)) {
            core.sending(now, &request);
            server.take(now, request);
        }
        if now >= end {
            core.stop(end);
        }
        server.go_on(now, core);
        core.give_up_lost(now);
        now += tick;
    }
    core.report(now)
}

/// Each offered transfer came to exactly one end.
fn is_complete(report: &StepReport) {
    let ends = [
        report.finalized,
        report.failed,
        report.refused,
        report.lost,
        report.repeated,
        report.unsent,
        report.unfinished,
    ];
    assert_eq!(ends.iter().sum::<u64>(), report.offered, "{report:?}");
}

#[test]
fn a_stall_of_the_server_shows_in_the_latencies_from_when_transfers_were_due() {
    let stall = Duration::from_secs(2)..Duration::from_secs(3);
    let mut core = core(open(1_000.0, 10), NARROW, 100, 1);
    let report = drive(
        &mut core,
        &mut Server::stalled(stall),
        MS,
        Duration::from_secs(1),
    );
    let total = &report.total;
    assert_eq!((total.offered, total.finalized), (10_000, 10_000));
    // A thousand transfers were due while nothing went on: a tenth of all.
    let p99 = total.latency.p99_ms.expect("some");
    let p90 = total.latency.p90_ms.expect("some");
    assert!(p99 > 900.0 && p90 > 400.0, "p90 {p90}, p99 {p99}");
    assert!(total.latency.p50_ms.expect("some") < 30.0);
    // Only four requests were there to see it. This is what must not be reported.
    let omitted = total.latency_from_send.p99_ms.expect("some");
    assert!(omitted < 30.0, "{omitted}");
    assert!(total.late > 1_000 && total.behind == 0 && total.unsent == 0);
    is_complete(total);
}

#[test]
fn what_another_generator_has_sent_is_not_counted_as_final() {
    let mut core = core(open(100.0, 1), NARROW, 100, 1);
    let mut server = Server {
        says: |n, request| {
            let said = request.orders.iter().map(|order| TransactionResult {
                repeated: n % 4 == 0,
                ..pending(order.id)
            });
            Ok(said.collect())
        },
        ..Server::new()
    };
    let report = drive(&mut core, &mut server, MS, Duration::from_secs(1));
    let total = &report.total;
    assert_eq!(
        (total.offered, total.finalized, total.repeated),
        (100, 75, 25)
    );
    is_complete(total);
}

#[test]
fn a_closed_loop_hides_the_same_stall() {
    let stall = Duration::from_secs(2)..Duration::from_secs(3);
    let shape = Shape::Closed {
        clients: 20,
        lasts: Some(Duration::from_secs(10)),
    };
    let mut core = core(shape, NARROW, 20, 1);
    let report = drive(
        &mut core,
        &mut Server::stalled(stall),
        MS,
        Duration::from_secs(1),
    );
    let total = &report.total;
    assert!(total.finalized > 5_000, "{total:?}");
    assert!(total.latency.p99_ms.expect("some") < 50.0);
    assert!(total.latency.max_ms.expect("some") > 900.0);
    is_complete(total);
}

#[test]
fn a_generator_that_wakes_late_says_so_and_offers_all_the_same() {
    let mut core = core(open(1_000.0, 5), Pace::default(), 100, 1);
    let tick = Duration::from_millis(50);
    let report = drive(&mut core, &mut Server::new(), tick, Duration::from_secs(1));
    let total = &report.total;
    assert_eq!(total.offered, 5_000);
    assert!(total.behind > 3_000 && total.late >= total.behind);
    assert!(total.latest_ms >= 48.0, "{}", total.latest_ms);
    is_complete(total);
}

#[test]
fn a_server_that_never_answers_fills_no_memory_and_lowers_no_load() {
    let never = Duration::ZERO..Duration::from_secs(1_000);
    let mut core = core(open(20_000.0, 10), NARROW, 100, 2);
    let report = drive(&mut core, &mut Server::stalled(never), 10 * MS, MS);
    let total = &report.total;
    assert_eq!(total.offered, 200_000);
    assert!(total.sent <= 8 && total.unsent >= 200_000 - 8, "{total:?}");
    assert!(core.on_the_way.capacity() < 4 * MAX_WAITING);
    is_complete(total);
}

#[test]
fn nonces_leave_no_gap_when_nine_of_ten_are_refused() {
    let mut core = core(open(5_000.0, 2), Pace::default(), 50, 1);
    let mut server = Server {
        says: |n, request| {
            let orders = request.orders.iter().enumerate();
            Ok(orders
                .map(|(place, order)| match (n + place) % 10 {
                    0 => pending(order.id),
                    _ => result(order.id, TransactionState::Refused, Some("mempool_full")),
                })
                .collect())
        },
        ..Server::new()
    };
    let report = drive(&mut core, &mut server, MS, Duration::from_secs(1));
    let total = &report.total;
    assert_eq!(
        total.refused_by_code.keys().collect::<Vec<_>>(),
        ["mempool_full"]
    );
    assert!(total.refused > 8_000 && total.finalized > 500, "{total:?}");
    is_complete(total);
    // What was taken of each account is an unbroken run; the next one is the first not taken.
    let mut taken = 0;
    for account in 0..50 {
        taken += core.senders.take_from(account).0;
    }
    assert_eq!(taken, total.finalized);
}

#[test]
fn few_accounts_under_far_too_much_load_leave_no_gap_either() {
    // Every third request is turned away as a whole, while others are under way.
    let mut core = core(open(20_000.0, 2), Pace::default(), 20, 2);
    let mut server = Server {
        says: |n, request| match n % 3 {
            0 => Err(Failure::Turned("busy".to_owned())),
            _ => Ok(request.orders.iter().map(|o| pending(o.id)).collect()),
        },
        ..Server::new()
    };
    let (end, mut now) = (core.end().expect("tests end"), Duration::ZERO);
    while now < end {
        for request in core.poll(now) {
            let under_way = server.under_way.iter().flat_map(|(_, other)| &other.orders);
            let busy: Vec<u32> = under_way.map(|order| order.account).collect();
            for order in &request.orders {
                assert!(
                    !busy.contains(&order.account),
                    "its predecessors may be refused"
                );
            }
            core.sending(now, &request);
            server.take(now, request);
        }
        server.go_on(now, &mut core);
        now += MS;
    }
    let report = core.report(now);
    assert!(report.total.refused_by_code["busy"] > 1_000);
    assert!(report.total.finalized > 10_000, "{:?}", report.total);
}

#[test]
fn what_nobody_answers_goes_to_another_validator_and_counts_once() {
    let mut core = core(open(1_000.0, 2), Pace::default(), 50, 2);
    let mut server = Server {
        says: |n, request| match (request.target, n) {
            (0, 100..200) => Err(Failure::Unknown),
            _ => Ok(request.orders.iter().map(|o| pending(o.id)).collect()),
        },
        ..Server::new()
    };
    let report = drive(&mut core, &mut server, MS, Duration::from_secs(1));
    let total = &report.total;
    assert_eq!((total.offered, total.finalized), (2_000, 2_000));
    assert!(total.resent > 0);
    assert_eq!(core.down(), [0]);
    is_complete(total);
}

#[test]
fn transfers_to_a_validator_that_is_away_are_refused_and_the_others_get_the_next() {
    let mut core = core(open(1_000.0, 2), Pace::default(), 50, 2);
    let mut server = Server {
        says: |_, request| match request.target {
            0 => Err(Failure::Unreachable),
            _ => Ok(request.orders.iter().map(|o| pending(o.id)).collect()),
        },
        ..Server::new()
    };
    let report = drive(&mut core, &mut server, MS, Duration::from_secs(1));
    let total = &report.total;
    assert!(
        (1..10).contains(&total.refused_by_code["unreachable"]),
        "{total:?}"
    );
    assert_eq!(total.finalized + total.refused, 2_000);
    is_complete(total);
}

#[test]
fn what_is_taken_and_never_final_is_lost_and_its_nonce_used_again() {
    let pace = Pace {
        lost_after: Duration::from_secs(1),
        ..Pace::default()
    };
    let mut core = core(open(100.0, 1), pace, 10, 1);
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(1) {
        for request in core.poll(now) {
            core.sending(now, &request);
            let results: Vec<_> = request.orders.iter().map(|o| pending(o.id)).collect();
            core.answered(now, request, Ok(&results));
        }
        now += MS;
    }
    core.give_up_lost(Duration::from_secs(3));
    let report = core.report(now);
    assert_eq!((report.total.submitted, report.total.lost), (100, 100));
    assert!((0..10).all(|account| core.senders.take_from(account).0 == 0));
    is_complete(&report.total);
}

#[test]
fn the_total_is_the_sum_of_the_steps_that_count() {
    let step = |rate, warm_up| Step {
        rate,
        lasts: Some(Duration::from_secs(2)),
        warm_up,
    };
    let steps = vec![step(100.0, true), step(500.0, false), step(1_000.0, false)];
    let mut core = core(Shape::Open(steps), Pace::default(), 100, 1);
    let report = drive(&mut core, &mut Server::new(), MS, Duration::from_secs(1));
    let offered: Vec<u64> = report.steps.iter().map(|step| step.offered).collect();
    assert_eq!(offered, [200, 1_000, 2_000]);
    let total = &report.total;
    assert_eq!((total.offered, total.seconds), (3_000, 4.0));
    assert_eq!(total.latency.count, 3_000);
    let goodput = report.steps[2].goodput_per_s;
    assert!((980.0..=1_020.0).contains(&goodput), "{goodput}");
    let mut merged = Latencies::from_text(&report.steps[1].latency.histogram).expect("ours");
    let last = Latencies::from_text(&report.steps[2].latency.histogram).expect("ours");
    merged.merge(&last);
    assert_eq!(merged.summary(), total.latency);
}

#[test]
fn a_load_goes_evenly_to_the_validators_that_are_used_and_takes_along_what_waited_for_others() {
    let mut core = core(open(1_000.0, 2), NARROW, 12, 4);
    let sent = |core: &mut Core, server: &mut Server, from: u64| {
        let mut counts = [0; 4];
        for now in (from..from + 500).map(|ms| ms as u32 * MS) {
            for request in core.poll(now) {
                counts[request.target] += 1;
                core.sending(now, &request);
                server.take(now, request);
            }
            server.go_on(now, core);
        }
        counts
    };
    let mut server = Server::new();
    core.use_only(&[0, 1].into());
    let first = sent(&mut core, &mut server, 0);
    assert!(first[0] > 200 && first[1] > 200, "{first:?}");
    assert_eq!(first[2..], [0, 0]);
    core.targets[0].waiting.push_back(Due {
        at: 500 * MS,
        step: 0,
        client: None,
    });
    core.use_only(&[1, 3].into());
    assert!(core.targets[0].waiting.is_empty());
    let second = sent(&mut core, &mut server, 500);
    assert!(second[1] > 200 && second[3] > 200, "{second:?}");
    assert_eq!([second[0], second[2]], [0, 0]);
}
