//! Turns at something that only a few can use at a time, shared fairly by the time that each client
//! has used it.
//!
//! This is start-time fair queueing. A request's *start tag* is the virtual time at which it comes, or
//! the client's *finish tag* if that is later; when its turn ends, the finish tag is the start tag plus
//! the time that the turn took. The least start tag is next, and is the virtual time from then on. So of
//! clients that always want a turn each gets the same time, and one that wants a turn now and then is
//! ahead of all those. What a client used while nobody waited is forgotten.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// How far a client's turns have got, in virtual time.
pub(crate) type Finish = Arc<Mutex<Duration>>;

/// Turns at one thing. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Virtual time.
    now: Duration,
    next: u64,
    /// By start tag, and in order of arrival where those are the same.
    waiting: BTreeMap<(Duration, u64), (Finish, oneshot::Sender<Turn>)>,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    finish: Finish,
    start: Duration,
    began: Instant,
}

impl Turns {
    /// `count` at a time.
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

    /// Waits for a turn of the client with this finish tag. Who stops waiting loses its place.
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
            // A place is in the queue until it is answered.
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

    /// Hands a free turn to the next one that still waits.
    fn hand_on(&self) {
        let mut queue = self.queue.lock();
        while let Some(((start, _), (finish, sender))) = queue.waiting.pop_first() {
            if sender.is_closed() {
                continue;
            }
            queue.now = queue.now.max(start);
            drop(queue);
            // Who has just gone drops the turn, which hands it on.
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
        // The first one's second request was queued before what its first turn cost was known.
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
        // One goes before its turn comes, one after it was handed over.
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
