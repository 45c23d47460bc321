//! Places to wait in, when there are fewer than clients that want one.
//!
//! Hundreds of addresses cost an attacker little, and a place is held for half a minute. So nobody is
//! refused because others wait: a place is freed at once, and who had it is answered with what is known by
//! then, as if its time were up. It is the eldest place of the client that has most, if that is more
//! than the newcomer would have; else, for a newcomer that has none, the eldest of all clients whose
//! work was of no use lately ([`Standing::Proven`]). Who is proven gives way only to who has fewer.

use crate::{
    Client, Clients, Refusal, Resource, Standing,
    book::{Account, semaphore},
};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Semaphore;

/// Who waits, the eldest first.
#[derive(Default)]
pub(crate) struct Line {
    next: u64,
    places: BTreeMap<u64, Held>,
}

struct Held {
    account: Arc<Account>,
    /// Closed when the place is somebody else's.
    gone: Arc<Semaphore>,
}

/// A place to wait in, until this is dropped.
pub struct Place {
    /// `None` for the operator, who has no limits.
    held: Option<(Clients, u64, Arc<Semaphore>)>,
}

impl Place {
    /// Ends when somebody else needs the place.
    pub async fn gone(&self) {
        match &self.held {
            Some((.., gone)) => drop(gone.acquire().await),
            None => std::future::pending().await,
        }
    }

    /// What a future brings; `None` if the place is gone first.
    pub async fn until_gone<T>(&self, waits: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = waits => Some(done),
            () = self.gone() => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((clients, number, _)) = &self.held {
            // One that had to give way has left already.
            clients.line().places.remove(number);
        }
    }
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn count(&self, account: &Arc<Account>) -> usize {
        let held = self.places.values();
        held.filter(|held| Arc::ptr_eq(&held.account, account))
            .count()
    }

    /// The place that a newcomer gets which has `own` of them.
    fn victim(&self, own: usize) -> Option<u64> {
        let mut counts: BTreeMap<*const Account, usize> = BTreeMap::new();
        for held in self.places.values() {
            *counts.entry(Arc::as_ptr(&held.account)).or_default() += 1;
        }
        let count = |held: &Held| counts[&Arc::as_ptr(&held.account)];
        let most = counts.values().max().copied().unwrap_or(0);
        let of_most = self.places.iter().filter(|(_, held)| count(held) == most);
        if most > own + 1 {
            return of_most.map(|(number, _)| *number).next();
        }
        let mut unproven = self
            .places
            .iter()
            .filter(|(_, held)| held.account.standing() != Standing::Proven);
        unproven
            .next()
            .map(|(number, _)| *number)
            .filter(|_| own == 0)
    }
}

impl Client {
    /// Takes a place to wait in. If there is none, somebody else's is freed.
    ///
    /// # Errors
    ///
    /// If the client has its share, or none of the others is to give way to it.
    pub fn wait(&self) -> Result<Place, Refusal> {
        let Some((account, clients)) = self.account() else {
            return Ok(Place { held: None });
        };
        let share = clients.limits().share(Resource::Waiting);
        let mut line = clients.line();
        let own = line.count(account);
        if own >= share.each {
            return Err(clients.refuse(Refusal::Share(Resource::Waiting, share)));
        }
        if line.len() >= share.all {
            let victim = line.victim(own);
            let held = victim.and_then(|victim| line.places.remove(&victim));
            let held =
                held.ok_or_else(|| clients.refuse(Refusal::All(Resource::Waiting, share)))?;
            held.gone.close();
        }
        let number = line.next;
        line.next += 1;
        let gone = semaphore(0);
        let held = Held {
            account: account.clone(),
            gone: gone.clone(),
        };
        line.places.insert(number, held);
        Ok(Place {
            held: Some((clients.clone(), number, gone)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::{ip, limits};
    use std::task::{Context, Poll, Waker};

    fn is_gone(place: &Place) -> bool {
        let mut gone = std::pin::pin!(place.gone());
        gone.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_newcomer_gets_the_eldest_place_when_all_have_one() {
        let clients = Clients::new(limits(4, 4));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let mut held: Vec<_> = (0..4).map(|last| client(last).wait().unwrap()).collect();
        let newcomer = client(9).wait().unwrap();
        let gone: Vec<bool> = held.iter().map(is_gone).collect();
        assert_eq!(gone, [true, false, false, false]);
        assert_eq!(clients.taken(Resource::Waiting), 4);
        // Who has a place already gets no second one of those that have one each.
        let share = clients.limits().waiting;
        let refused = client(9).wait().err();
        assert_eq!(refused, Some(Refusal::All(Resource::Waiting, share)));
        held.clear();
        assert_eq!(clients.taken(Resource::Waiting), 1);
        drop(newcomer);
        assert_eq!(clients.taken(Resource::Waiting), 0);
    }

    #[test]
    fn who_has_most_gives_way_first_and_its_eldest_place_goes() {
        let clients = Clients::new(limits(4, 3));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let modest = client(1).wait().unwrap();
        let many: Vec<_> = (0..3).map(|_| client(2).wait().unwrap()).collect();
        assert!(matches!(client(2).wait(), Err(Refusal::Share(..))));
        let newcomer = client(3).wait().unwrap();
        let gone: Vec<bool> = many.iter().map(is_gone).collect();
        assert_eq!(gone, [true, false, false]);
        assert!(!is_gone(&modest) && !is_gone(&newcomer));
    }

    #[test]
    fn who_is_known_for_useful_work_gives_way_to_nobody_that_would_have_as_many() {
        let clients = Clients::new(limits(2, 2));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let proven = client(1);
        proven.prove();
        let eldest = proven.wait().unwrap();
        let other = client(2).wait().unwrap();
        for last in 3..9 {
            drop(client(last).wait().unwrap());
        }
        assert!(is_gone(&other) && !is_gone(&eldest));
        // Its second place is another matter.
        let second = proven.wait().unwrap();
        let newcomer = client(9).wait().unwrap();
        assert!(is_gone(&eldest) && !is_gone(&second) && !is_gone(&newcomer));
    }

    #[test]
    fn the_operator_always_waits_and_displaces_nobody() {
        let clients = Clients::new(limits(1, 1));
        let one = clients.client(ip(1)).ok().unwrap().wait().unwrap();
        let places: Vec<_> = (0..9).map(|_| Client::operator().wait().unwrap()).collect();
        assert!(!is_gone(&one) && !places.iter().any(is_gone));
    }
}
