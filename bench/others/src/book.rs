//! The book of an open loop: which transaction is due when, which are final, and what that adds up to.
//!
//! All times are since the start of the load, and arguments: the book has no clock.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::Load;

/// Latencies above this count as this.
const MAX_LATENCY: Duration = Duration::from_secs(3_600);
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Latencies of transactions, weighted.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self> {
        Histogram::new_with_bounds(1, MAX_LATENCY.as_micros() as u64, DIGITS)
            .map(Self)
            .context("the histogram's bounds are odd")
    }

    /// Notes that `count` transactions took so long.
    pub(crate) fn note(&mut self, latency: Duration, count: u64) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(micros, count);
    }

    /// The latency in milliseconds that this part of all does not exceed, or NaN if there is none.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        match self.0.is_empty() {
            true => f64::NAN,
            false => self.0.value_at_quantile(part) as f64 / 1e3,
        }
    }
}

/// What the measured time added up to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sums {
    /// Transactions sent in it.
    pub(crate) sent: u64,
    /// Transactions that became final in it.
    pub(crate) finalised: u64,
    /// Blocks that became final in it.
    pub(crate) blocks: u64,
    /// Of those due in it, how many were not final at the end of the run, in percent.
    pub(crate) unfinished_percent: f64,
    /// Median latency of those due in it.
    pub(crate) p50_ms: f64,
    /// 99th percentile of the latency of those due in it.
    pub(crate) p99_ms: f64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Book {
    rate: f64,
    window: Range<Duration>,
    measured: Range<u64>,
    finalised: Vec<bool>,
    sent: u64,
    waiting: u64,
    latencies: Latencies,
    sums: Sums,
}

impl Book {
    pub(crate) fn new(load: &Load) -> Result<Self> {
        load.check()?;
        let window = load.warm_up..load.warm_up + load.measure;
        let first_due_at = |at: Duration| (at.as_secs_f64() * load.rate).ceil() as u64;
        let measured = first_due_at(window.start)..first_due_at(window.end);
        let all = usize::try_from(load.transactions()).context("too many transactions")?;
        Ok(Self {
            rate: load.rate,
            window,
            waiting: measured.end - measured.start,
            measured,
            finalised: vec![false; all],
            sent: 0,
            latencies: Latencies::new()?,
            sums: Sums {
                sent: 0,
                finalised: 0,
                blocks: 0,
                unfinished_percent: 0.0,
                p50_ms: f64::NAN,
                p99_ms: f64::NAN,
            },
        })
    }

    /// How many transactions there are in all.
    pub(crate) fn transactions(&self) -> u64 {
        self.finalised.len() as u64
    }

    /// When transaction `number`, from 0, is due.
    pub(crate) fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// Notes that the next transaction was sent.
    pub(crate) fn sent(&mut self, at: Duration) {
        self.sent += 1;
        self.sums.sent += u64::from(self.window.contains(&at));
    }

    /// Notes a final block and the numbers of its transactions.
    ///
    /// # Errors
    /// If one of them was never sent.
    pub(crate) fn block(
        &mut self,
        at: Duration,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let inside = self.window.contains(&at);
        self.sums.blocks += u64::from(inside);
        for number in numbers {
            ensure!(
                number < self.sent,
                "a block holds transaction {number}, but only {} were sent",
                self.sent
            );
            // It fits: so many were sent.
            let known = &mut self.finalised[number as usize];
            if std::mem::replace(known, true) {
                continue;
            }
            self.sums.finalised += u64::from(inside);
            if self.measured.contains(&number) {
                self.waiting -= 1;
                let due = self.due(number);
                self.latencies.note(at.saturating_sub(due), 1);
            }
        }
        Ok(())
    }

    /// Whether all that were due in the measured time are final.
    pub(crate) fn settled(&self) -> bool {
        self.waiting == 0
    }

    /// Closes the book. What is not final yet has waited until now.
    pub(crate) fn close(mut self, at: Duration) -> Sums {
        for number in self.measured.clone() {
            if !self.finalised[number as usize] {
                let due = self.due(number);
                self.latencies.note(at.saturating_sub(due), 1);
            }
        }
        let measured = self.measured.end - self.measured.start;
        Sums {
            unfinished_percent: 100.0 * self.waiting as f64 / measured as f64,
            p50_ms: self.latencies.quantile_ms(0.5),
            p99_ms: self.latencies.quantile_ms(0.99),
            ..self.sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten a second: 10 to warm up, 20 measured, 10 while it drains.
    fn book() -> Book {
        Book::new(&Load {
            validators: 4,
            rate: 10.0,
            transaction_bytes: 161,
            warm_up: 1_000 * MS,
            measure: 2_000 * MS,
            drain: 1_000 * MS,
        })
        .expect("the load is within the limits")
    }

    fn send(book: &mut Book, numbers: Range<u64>, late: Duration) {
        for number in numbers {
            let due = book.due(number);
            book.sent(due + late);
        }
    }

    #[test]
    fn transactions_are_due_by_the_rate_alone() {
        let book = book();
        assert_eq!(book.transactions(), 40);
        assert_eq!(book.due(0), Duration::ZERO);
        assert_eq!(book.due(25), 2_500 * MS);
    }

    #[test]
    fn only_the_measured_time_counts() {
        let mut book = book();
        send(&mut book, 0..40, Duration::ZERO);
        // Before, at the first moment, at the last, and after.
        book.block(999 * MS, 0..5).expect("they were sent");
        book.block(1_000 * MS, 5..10).expect("they were sent");
        book.block(2_999 * MS, 10..29).expect("they were sent");
        assert!(!book.settled());
        book.block(3_000 * MS, 29..35).expect("they were sent");
        assert!(book.settled());
        let sums = book.close(4_000 * MS);
        assert_eq!((sums.sent, sums.finalised, sums.blocks), (20, 24, 2));
        assert_eq!(sums.unfinished_percent, 0.0);
    }

    #[test]
    fn latency_counts_from_when_it_was_due_however_late_it_was_sent() {
        let mut book = book();
        send(&mut book, 0..30, 400 * MS);
        for number in 0..30 {
            let at = book.due(number) + 500 * MS;
            book.block(at, [number]).expect("it was sent");
        }
        let sums = book.close(4_000 * MS);
        assert!((499.0..501.0).contains(&sums.p50_ms), "{sums:?}");
        assert!((499.0..501.0).contains(&sums.p99_ms), "{sums:?}");
        // Due at 1.0 s it is sent at 1.4 s; those due from 2.6 s on were sent after the measured time.
        assert_eq!(sums.sent, 20);
    }

    #[test]
    fn what_is_not_final_counts_with_the_time_it_waited() {
        let mut book = book();
        send(&mut book, 0..30, Duration::ZERO);
        for number in 10..25 {
            let at = book.due(number) + 10 * MS;
            book.block(at, [number]).expect("it was sent");
        }
        let sums = book.close(4_000 * MS);
        assert_eq!(sums.unfinished_percent, 25.0);
        assert!((9.9..10.1).contains(&sums.p50_ms), "{sums:?}");
        // Number 25 was due at 2.5 s.
        assert!((1_499.0..1_501.0).contains(&sums.p99_ms), "{sums:?}");
    }

    #[test]
    fn a_transaction_in_two_blocks_counts_once() {
        let mut book = book();
        send(&mut book, 0..30, Duration::ZERO);
        book.block(1_500 * MS, [12, 12]).expect("it was sent");
        book.block(1_600 * MS, [12]).expect("it was sent");
        let sums = book.close(4_000 * MS);
        assert_eq!((sums.finalised, sums.blocks), (1, 2));
        assert_eq!(sums.unfinished_percent, 95.0);
    }

    #[test]
    fn a_transaction_that_was_never_sent_is_an_error() {
        let mut book = book();
        send(&mut book, 0..3, Duration::ZERO);
        let error = book.block(MS, [2, 3]).expect_err("only three were sent");
        assert!(error.to_string().contains("transaction 3"), "{error}");
        assert!(book.block(MS, [u64::MAX]).is_err());
    }

    #[test]
    fn latencies_without_any_are_no_number() {
        let mut latencies = Latencies::new().expect("the bounds are fine");
        assert!(latencies.quantile_ms(0.5).is_nan());
        latencies.note(2 * MAX_LATENCY, 1);
        assert!(latencies.quantile_ms(0.5) >= 3_599_000.0);
    }
}
