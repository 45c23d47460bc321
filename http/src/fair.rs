//! Turns to use something that allows only a few concurrent users, shared fairly by the time that
//! each client has used it.
//!
//! This is start-time fair queueing. A request's *start tag* is the virtual time of its arrival, or
//! the client's *finish tag* if that is later; when its turn ends, the finish tag is set to the
//! start tag plus the time that the turn took. The request with the least start tag is next, and
//! its start tag becomes the virtual time. So clients that always want a turn get the same time
//! each, and a client that wants a turn now and then goes ahead of them. Use while no one waited is
//! not counted.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// A client's finish tag, in virtual time.
pub(crate) type Finish = Arc<Mutex<Duration>>;

/// Turns for one resource. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    now: Duration,
    next: u64,
    /// By start tag, then in order of arrival.
    waiting: BTreeMap<(Duration, u64), (Finish, oneshot::Sender<Turn>)>,
}

#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    finish: Finish,
    start: Duration,
    began: Instant,
}

impl Turns {
    /// `count` concurrent turns.
    pub(crate) fn new(count: usize) -> Self {
        let queue = Queue {
            free: count,
            now: Duration::ZERO,
            next: 0,
            waiting: BTreeMap::new(),
        };
        Self {
            queue: Arc::new(Mutex::new(queue)),
        }
    }

    /// Waits for a turn of the client with this finish tag. Dropping the future gives up the place
    /// in the queue.
    pub(crate) async fn take(&self, finish: &Finish) -> Turn {
        let comes = {
            let mut queue = self.queue.lock();
            let start = queue.now.max(*finish.lock());
            if queue.free > 0 {
                queue.free -= 1;
                queue.now = start;
                return self.turn(finish.clone(), start);
            }
            let (sender, receiver) = oneshot::channel();
            let place = (start, queue.next);
            queue.next += 1;
            queue.waiting.insert(place, (finish.clone(), sender));
            receiver
        };
        match comes.await {
            Ok(turn) => turn,
            // A queued place stays until it is answered.
            Err(_) => std::future::pending().await,
        }
    }

    fn turn(&self, finish: Finish, start: Duration) -> Turn {
        Turn {
            turns: self.clone(),
            finish,
            start,
            began: Instant::now(),
        }
    }

    /// Gives a free turn to the next request that is still waiting.
    fn hand_on(&self) {
        let mut queue = self.queue.lock();
        while let Some(((start, _), (finish, sender))) = queue.waiting.pop_first() {
            if sender.is_closed() {
                continue;
            }
            queue.now = queue.now.max(start);
            drop(queue);
            // If the receiver has just gone, the turn is dropped, which passes it on.
            drop(sender.send(self.turn(finish, start)));
            return;
        }
        queue.free += 1;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut finish = self.finish.lock();
        *finish = self.start.max(*finish).saturating_add(self.began.elapsed());
        let reached = *finish;
        drop(finish);
        let mut queue = self.turns.queue.lock();
        if queue.waiting.is_empty() {
            queue.now = queue.now.max(reached);
        }
        drop(queue);
        self.turns.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    fn poll<T>(waits: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn at_once(turns: &Turns, finish: &Finish) -> Turn {
        match pin!(turns.take(finish)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => panic!("no turn is free"),
        }
    }

    fn used(seconds: u64) -> Finish {
        Arc::new(Mutex::new(Duration::from_secs(seconds)))
    }

    #[test]
    fn who_used_least_is_next_however_many_came_before() {
        let turns = Turns::new(1);
        let running = at_once(&turns, &used(0));
        let heavy: Vec<_> = (0..100).map(|_| used(5)).collect();
        let mut before: Vec<_> = heavy
            .iter()
            .map(|finish| Box::pin(turns.take(finish)))
            .collect();
        assert!(before.iter_mut().all(|waits| poll(waits).is_none()));
        let light = used(1);
        let mut waits = Box::pin(turns.take(&light));
        assert!(poll(&mut waits).is_none());
        drop(running);
        let turn = poll(&mut waits).unwrap();
        assert!(before.iter_mut().all(|waits| poll(waits).is_none()));
        drop(turn);
        assert!(poll(&mut before[0]).is_some(), "then in order of arrival");
    }

    #[test]
    fn a_turn_costs_its_time_and_two_clients_alternate() {
        let turns = Turns::new(1);
        let (one, two) = (used(0), used(0));
        let mut order = Vec::new();
        let mut turn = at_once(&turns, &one);
        for _ in 0..3 {
            let mut again = Box::pin(turns.take(&one));
            let mut other = Box::pin(turns.take(&two));
            assert!(poll(&mut again).is_none() && poll(&mut other).is_none());
            std::thread::sleep(Duration::from_millis(2));
            drop(turn);
            turn = match poll(&mut other) {
                Some(turn) => {
                    order.push(2);
                    turn
                }
                None => {
                    order.push(1);
                    poll(&mut again).unwrap()
                }
            };
        }
        // The first client's second request was queued before the cost of its first turn was known.
        assert!(order.contains(&2), "{order:?}");
        drop(turn);
        assert!(*one.lock() >= Duration::from_millis(2));
    }

    #[test]
    fn who_stops_waiting_holds_nobody_up() {
        let turns = Turns::new(1);
        let running = at_once(&turns, &used(0));
        let (gone, waits) = (used(0), used(0));
        let mut gone = Box::pin(turns.take(&gone));
        let mut waits = Box::pin(turns.take(&waits));
        assert!(poll(&mut gone).is_none() && poll(&mut waits).is_none());
        // One request is dropped before its turn comes, one after the turn was handed over.
        drop(gone);
        drop(running);
        drop(waits);
        drop(at_once(&turns, &used(0)));
        assert_eq!(turns.queue.lock().free, 1);
    }

    #[test]
    fn what_was_used_while_nobody_waited_is_forgotten() {
        let turns = Turns::new(1);
        let old = used(1_000);
        drop(at_once(&turns, &old));
        let running = at_once(&turns, &used(0));
        let newcomer = used(0);
        let mut first = Box::pin(turns.take(&old));
        assert!(poll(&mut first).is_none());
        let mut second = Box::pin(turns.take(&newcomer));
        assert!(poll(&mut second).is_none());
        drop(running);
        assert!(poll(&mut first).is_some());
    }
}
