//! Places for requests that wait and for streams, when fewer are free than clients want.
//!
//! Hundreds of addresses cost an attacker little, and a place is held for half a minute; that of a
//! stream for as long as it is read. So a client is not refused just because others hold all
//! places: one is freed at once. A request that waited there is answered with what is known by
//! then, as if it had timed out; a stream ends. The freed place is the oldest of the client that
//! has the most, if that is more than the newcomer would have; otherwise, for a newcomer that has
//! none, the oldest of all clients that are not [`Standing::Proven`]. A proven client loses a place
//! only to a client that has fewer.

use crate::{
    Client, Clients, Refusal, Resource, Standing,
    clients::{Account, semaphore},
};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Semaphore;

/// The occupied places, oldest first.
#[derive(Default)]
pub(crate) struct Places {
    next: u64,
    places: BTreeMap<u64, Held>,
}

struct Held {
    account: Arc<Account>,
    /// Closed when the place is given to another client.
    gone: Arc<Semaphore>,
}

/// A place to wait in, held until this is dropped.
pub struct Place {
    /// `None` for the operator, who has no limits.
    held: Option<HeldPlace>,
}

struct HeldPlace {
    clients: Clients,
    resource: Resource,
    number: u64,
    gone: Arc<Semaphore>,
}

impl Place {
    /// Resolves when another client needs the place.
    pub async fn gone(&self) {
        match &self.held {
            Some(held) => drop(held.gone.acquire().await),
            None => std::future::pending().await,
        }
    }

    /// The result of a future; `None` if the place is taken away first.
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
        if let Some(held) = &self.held {
            // A place that was taken away has already been removed.
            let mut line = held.clients.line(held.resource);
            line.places.remove(&held.number);
        }
    }
}

impl Places {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn count(&self, account: &Arc<Account>) -> usize {
        let held = self.places.values();
        held.filter(|held| Arc::ptr_eq(&held.account, account))
            .count()
    }

    /// The place to take away for a newcomer that has `own` places.
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
    /// Takes a place to wait in.
    ///
    /// # Errors
    ///
    /// Those of [`Self::place`].
    pub fn wait(&self) -> Result<Place, Refusal> {
        self.place(Resource::Waiting)
    }

    /// Takes a place to wait in ([`Resource::Waiting`]) or to read a stream in
    /// ([`Resource::Streams`]). If none is free, another client's place is freed.
    ///
    /// # Errors
    ///
    /// If the client already has its share, or no other client has to give way.
    pub fn place(&self, resource: Resource) -> Result<Place, Refusal> {
        let Some((account, clients)) = self.account() else {
            return Ok(Place { held: None });
        };
        let share = clients.limits().share(resource);
        let mut line = clients.line(resource);
        let own = line.count(account);
        if own >= share.each {
            return Err(clients.refuse(Refusal::Share(resource, share)));
        }
        if line.len() >= share.all {
            let victim = line.victim(own);
            let held = victim.and_then(|victim| line.places.remove(&victim));
            let held = held.ok_or_else(|| clients.refuse(Refusal::All(resource, share)))?;
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
            held: Some(HeldPlace {
                clients: clients.clone(),
                resource,
                number,
                gone,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::{ip, limits};
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
        // A client that already has a place gets no second one from clients that have one each.
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
        // Its second place is not protected.
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

    #[test]
    fn a_newcomer_gets_a_stream_of_those_who_have_all() {
        let clients = Clients::new(limits(8, 4));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let open = |last| client(last).place(Resource::Streams);
        let mut held: Vec<_> = (0..8).map(|n| open(n % 2).unwrap()).collect();
        assert_eq!(clients.taken(Resource::Streams), 8);
        let newcomer = open(9).unwrap();
        assert_eq!(held.iter().filter(|place| is_gone(place)).count(), 1);
        assert!(!is_gone(&newcomer));
        // A client that lost a place does not get it back from the newcomer, and other clients'
        // waiting places are untouched.
        held.retain(|place| !is_gone(place));
        assert!(open(0).is_err() || open(1).is_err());
        assert!(!is_gone(&newcomer));
        assert_eq!(clients.taken(Resource::Waiting), 0);
        drop((held, newcomer));
        assert_eq!(clients.taken(Resource::Streams), 0);
    }
}
