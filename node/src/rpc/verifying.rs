//! Scheduling the verification of clients' transactions.
//!
//! An invalid signature costs its sender nothing, but costs the validator as much as a valid one.
//! So:
//!
//! - A client whose transactions were accepted recently, and which has no debt, is *proven*: it has
//!   priority over all others, and its transactions are verified on the runtime's own threads.
//! - All others are verified on two threads with a low priority, so that consensus goes first;
//!   unknown clients come before those with a debt for invalid signatures.
//! - The wasted work for these clients is charged to two shared budgets, one for unknown clients
//!   and one for those with a debt. While a budget is exhausted, its clients are refused before
//!   their requests are read. They cannot use each other's budget, and proven clients need none.
//!
//! Each client's own debt is counted in addition ([`Client::charge`]).
//!
//! Per-address limits alone bound only the cost of one address. Thirty addresses with 1,000 invalid
//! signatures in each request cost two thirds of the blocks (161 per second fell to 53, on two
//! cores) and caused other clients to be refused. With the budgets: 131 and 123 blocks per second,
//! no other client refused, and the others' p50 the same as without the flood
//! (`node/tests/clients.rs`).

use super::error::{RpcError, RpcResult};
use crate::priority::{self, Yields};
use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use parking_lot::Mutex;
use quorate_http::{Client, Refusal, Standing};
use quorate_machine::clock::Clock;
use quorate_p2p::Bucket;
use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// Number of threads for clients that are not proven.
pub(crate) const THREADS: usize = 2;

/// Wasted signature verifications allowed per second, for each processor and each of the two
/// budgets: about a fortieth of its time.
const IN_VAIN_PER_SECOND: u64 = 500;

/// Wasted signature verifications allowed in a burst.
const IN_VAIN_AT_ONCE: u64 = 2_000;

/// At least one in this many turns goes to the clients with a debt, so that unknown clients cannot
/// starve them.
const OTHERS_TURN: u64 = 8;

type Job = Box<dyn FnOnce() + Send>;

/// A queue of the verification threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Unknown,
    Owing,
}

/// The queues of requests that wait for verification. Clones share them.
#[derive(Clone)]
pub(crate) struct Verifying {
    clock: Arc<dyn Clock>,
    budgets: Arc<Mutex<[Bucket; 2]>>,
    /// Bounded by the limit on waiting transactions ([`quorate_http::Resource::Work`]), and by one
    /// request at a time per client.
    lanes: [Sender<Job>; 2],
}

/// The worker of a verification thread.
#[derive(Clone)]
pub(crate) struct Worker {
    unknown: Receiver<Job>,
    owing: Receiver<Job>,
}

impl Verifying {
    /// Creates the queues, and the worker for the threads.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> (Self, Worker) {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self::with_processors(clock, processors)
    }

    fn with_processors(clock: Arc<dyn Clock>, processors: usize) -> (Self, Worker) {
        let per_second = IN_VAIN_PER_SECOND.saturating_mul(processors as u64);
        let budget = Bucket::new(per_second, IN_VAIN_AT_ONCE);
        let (to_unknown, unknown) = unbounded();
        let (to_owing, owing) = unbounded();
        let verifying = Self {
            clock,
            budgets: Arc::new(Mutex::new([budget; 2])),
            lanes: [to_unknown, to_owing],
        };
        (verifying, Worker { unknown, owing })
    }

    /// Whether a client may have transactions verified now.
    ///
    /// # Errors
    ///
    /// If the client owes too much, or the budget of clients like it is exhausted.
    pub(crate) fn admits(&self, client: &Client) -> Result<(), Refusal> {
        client.check_debt()?;
        let Some(lane) = lane(client) else {
            return Ok(());
        };
        let now = self.clock.now();
        let wait_us = self.budgets.lock()[lane as usize].empty_for_us(now.0);
        match wait_us {
            0 => Ok(()),
            _ => Err(client.refused(Refusal::WastedWork(Duration::from_micros(wait_us)))),
        }
    }

    /// Charges wasted signature verifications of a client to its budget.
    pub(crate) fn in_vain(&self, client: &Client, signatures: u64) {
        let lane = lane(client).unwrap_or(Lane::Unknown);
        let now = self.clock.now();
        self.budgets.lock()[lane as usize].spend(now.0, signatures);
    }

    /// Runs work for a client that is not proven, when it is its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: &Client,
        work: impl FnOnce() -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move || {
            // The client may have disconnected.
            let _ = done.send(work());
        });
        let lane = lane(client).unwrap_or(Lane::Unknown);
        self.lanes[lane as usize]
            .send(job)
            .map_err(|_| RpcError::ending())?;
        let lost = |_| RpcError::internal(&"a request's verification has failed");
        result.await.map_err(lost)?
    }
}

/// Returns the queue of a client; `None` if it is proven.
fn lane(client: &Client) -> Option<Lane> {
    match client.standing() {
        Standing::Proven => None,
        Standing::Unknown => Some(Lane::Unknown),
        Standing::Owing => Some(Lane::Owing),
    }
}

impl Worker {
    /// Processes requests until all handles are dropped.
    pub(crate) fn run(self) {
        priority::lower_this_thread(Yields::Most);
        for turn in 1_u64.. {
            let (first, second) = match turn.is_multiple_of(OTHERS_TURN) {
                false => (&self.unknown, &self.owing),
                true => (&self.owing, &self.unknown),
            };
            let job = select_biased! {
                recv(first) -> job => job,
                recv(second) -> job => job,
            };
            let Ok(job) = job else { return };
            // A client's input must not be able to stop the node; the waiting client gets an error.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("verifying a request panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::RpcConfig, rpc::clients};
    use quorate_machine::clock::testing::Hand;
    use std::sync::atomic::Ordering::Relaxed;

    fn client(last: u8) -> Client {
        let config = RpcConfig::new(([127, 0, 0, 1], 1).into());
        clients(&config)
            .client([192, 0, 2, last].into())
            .expect("there are few")
    }

    #[test]
    fn what_is_in_vain_is_paid_by_those_like_who_caused_it() {
        let clock = Arc::new(Hand::default());
        let (verifying, _worker) = Verifying::with_processors(clock.clone(), 2);
        let [unknown, owing, proven] = [1, 2, 3].map(client);
        owing.charge(Duration::from_secs(5));
        proven.prove();
        verifying.in_vain(&owing, 3 * IN_VAIN_AT_ONCE);
        let refused = verifying.admits(&owing).expect_err("the budget is used up");
        assert_eq!(refused.retry_after_seconds(), Some(5), "{refused}");
        assert_eq!(verifying.admits(&unknown), Ok(()));
        verifying.in_vain(&unknown, IN_VAIN_AT_ONCE);
        assert!(verifying.admits(&unknown).is_err());
        assert_eq!(verifying.admits(&proven), Ok(()));
        assert_eq!(verifying.admits(&Client::operator()), Ok(()));
        clock.0.fetch_add(2_000, Relaxed);
        assert_eq!(verifying.admits(&unknown), Ok(()), "a moment later");
        assert!(verifying.admits(&owing).is_err());
    }

    #[tokio::test]
    async fn the_unknown_go_before_those_who_owe_and_keep_them_not_out() {
        let (verifying, worker) = Verifying::with_processors(Arc::new(Hand::default()), 1);
        let order: Arc<Mutex<Vec<u8>>> = Arc::default();
        let [unknown, owing] = [1, 2].map(client);
        owing.charge(Duration::from_secs(1));
        let ask = |client: &Client, mark: u8| {
            let (verifying, client, order) = (verifying.clone(), client.clone(), order.clone());
            let work = move || {
                order.lock().push(mark);
                Ok(())
            };
            async move { verifying.run(&client, work).await.expect("it is done") }
        };
        let asked = (0..4).map(|_| ask(&owing, 2));
        let asked: Vec<_> = asked
            .chain((0..16).map(|_| ask(&unknown, 1)))
            .map(Box::pin)
            .collect();
        let all = futures_util::future::join_all(asked);
        let mut all = Box::pin(all);
        // Queue all requests before any is processed.
        assert!(futures_util::poll!(&mut all).is_pending());
        let working = thread::spawn(move || worker.run());
        all.await;
        drop(verifying);
        let order = order.lock().clone();
        let places: Vec<_> = (1..).zip(&order).filter(|(_, mark)| **mark == 2).collect();
        let places: Vec<u64> = places.into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, [OTHERS_TURN, 2 * OTHERS_TURN, 19, 20], "{order:?}");
        drop(working);
    }
}
