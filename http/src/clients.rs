//! Bookkeeping: which client holds which resources.

use crate::{
    Address, Limits, PACE_AHEAD, Resource, Share,
    fair::{Finish, Turn, Turns},
    waiting::Places,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of clients remembered. A client that holds nothing and owes nothing is forgotten.
const MAX_CLIENTS: usize = 65_536;

/// Number of clients from which on forgettable ones are looked for.
const SWEEP_FROM: usize = 1_024;

/// Maximum debt before a client is refused.
const MAX_DEBT: Duration = Duration::from_secs(10);

/// All clients of an interface. Cheap to clone.
#[derive(Clone)]
pub struct Clients {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    all: [Arc<Semaphore>; Resource::EACH.len()],
    turns: [Turns; Resource::EACH.len()],
    waiting: Mutex<Places>,
    streams: Mutex<Places>,
    book: Mutex<ClientTable>,
    refused: AtomicU64,
}

#[derive(Default)]
struct ClientTable {
    clients: BTreeMap<Address, Arc<Account>>,
    connections: usize,
    next: u64,
    sweep_at: usize,
}

/// How long a client stays [`Standing::Proven`] after useful work.
const PROVEN_LASTS: Duration = Duration::from_secs(60);

/// What one client holds.
pub(crate) struct Account {
    address: Address,
    share: [Arc<Semaphore>; Resource::EACH.len()],
    /// Finish tags of its turns, for fair scheduling.
    finish: [Finish; Resource::EACH.len()],
    /// Its connections by number, with the semaphore whose closing ends each.
    connections: Mutex<BTreeMap<u64, Arc<Semaphore>>>,
    /// When its next request would come at its pace.
    paced_at: Mutex<Instant>,
    /// When its debt will be paid off.
    paid_at: Mutex<Instant>,
    /// Until when it counts as proven.
    proven_until: Mutex<Instant>,
    /// Held while one of its unwanted bodies is read.
    forgetting: Arc<Semaphore>,
}

/// What is known about a client's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Some of it was useful lately, and the client has no debt. The operator is always proven.
    Proven,
    /// Nothing is known.
    Unknown,
    /// It has a debt for useless work.
    Owing,
}

/// A client, as seen by request handlers. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    /// `None` for the operator, who has no limits.
    account: Option<(Arc<Account>, Clients)>,
}

/// A share of a resource, held until this is dropped.
#[derive(Debug, Default)]
pub struct Permit {
    permits: Vec<OwnedSemaphorePermit>,
    turn: Option<Turn>,
}

impl Permit {
    /// Merges another permit of the same client for the same resource.
    pub(crate) fn add(&mut self, other: Self) {
        if self.permits.is_empty() {
            *self = other;
            return;
        }
        for (own, more) in self.permits.iter_mut().zip(other.permits) {
            own.merge(more);
        }
    }
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It already has its share.
    Share(Resource, Share),
    /// All clients together hold all of it.
    All(Resource, Share),
    /// It must first pay off its debt for useless work, in this much time.
    Debt(Duration),
    /// Too many clients are remembered.
    Clients,
    /// It has its share of connections, or all connections are taken by clients that have no more
    /// than it.
    Connections(Share),
    /// Clients with the same standing have caused so much useless work that they must wait this
    /// long.
    WastedWork(Duration),
    /// Its request took too long to arrive, or its answer too long to produce.
    Slow,
    /// Its request names no host, or several.
    NoHost,
    /// Its request names a host that this interface does not serve.
    UnknownHost,
}

impl Refusal {
    /// When to retry, in whole seconds; `None` if retrying the same request is pointless.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Debt(wait) | Self::WastedWork(wait) => Some(
                u32::try_from(wait.as_secs())
                    .unwrap_or(u32::MAX)
                    .saturating_add(1),
            ),
            Self::Share(..) | Self::All(..) | Self::Clients | Self::Connections(_) => Some(1),
            Self::Slow | Self::NoHost | Self::UnknownHost => None,
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = |resource: &Resource| match resource {
            Resource::Requests => "requests are under way",
            Resource::Waiting => "requests wait",
            Resource::Streams => "streams are open",
            Resource::Bytes => "bytes of requests and answers are under way",
            Resource::Work => "transactions wait to be verified",
            Resource::Reading | Resource::Verifying => "requests work",
        };
        match self {
            Self::Share(resource, share) => write!(
                f,
                "too many {} for this address, whose share is {}; try again later",
                what(resource),
                share.each
            ),
            Self::All(resource, share) => write!(
                f,
                "too many {}, {} in all; try again later",
                what(resource),
                share.all
            ),
            Self::Debt(debt) => write!(
                f,
                "this address has sent too many bad signatures; try again in {} s",
                debt.as_secs() + 1
            ),
            Self::WastedWork(wait) => write!(
                f,
                "too many bad signatures come from clients of which nothing good is known, and this is \
                 one; try again in {} s",
                wait.as_secs() + 1
            ),
            Self::Slow => write!(f, "the request took too long"),
            Self::NoHost => write!(
                f,
                "a request has one `Host` field, with one name or address"
            ),
            Self::UnknownHost => write!(f, "this is not served under that name"),
            Self::Clients => write!(f, "too many clients; try again later"),
            Self::Connections(share) => write!(
                f,
                "too many connections: an address has {} at most, all together {}; try again later",
                share.each, share.all
            ),
        }
    }
}

/// A connection's entry in the book, until this is dropped.
pub(crate) struct ConnectionSlot {
    clients: Clients,
    account: Arc<Account>,
    number: u64,
    /// Closed to evict the connection.
    pub(crate) evicted: Arc<Semaphore>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut book = self.clients.shared.book.lock();
        book.leave(&self.account, self.number);
    }
}

impl Clients {
    pub fn new(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                all: Resource::EACH.map(|resource| semaphore(limits.share(resource).all)),
                turns: Resource::EACH.map(|resource| Turns::new(limits.share(resource).all)),
                limits,
                waiting: Mutex::default(),
                streams: Mutex::default(),
                book: Mutex::default(),
                refused: AtomicU64::new(0),
            }),
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.book.lock().connections
    }

    /// Number of refusals so far.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// How much of a resource is in use.
    pub fn taken(&self, resource: Resource) -> usize {
        let all = self.limits().share(resource).all;
        let free = self.shared.all[resource as usize].available_permits();
        let places = match resource {
            Resource::Waiting | Resource::Streams => self.line(resource).len(),
            _ => 0,
        };
        all.saturating_sub(free) + places
    }

    /// The queue of places for this kind of resource.
    pub(crate) fn line(&self, resource: Resource) -> MutexGuard<'_, Places> {
        match resource {
            Resource::Streams => self.shared.streams.lock(),
            _ => self.shared.waiting.lock(),
        }
    }

    /// The client with this address.
    ///
    /// # Errors
    ///
    /// If too many clients are remembered.
    pub fn client(&self, address: IpAddr) -> Result<Client, Refusal> {
        let mut book = self.shared.book.lock();
        let account = book.account(Address::of(address), self.limits());
        let account = account.ok_or_else(|| self.refuse(Refusal::Clients))?;
        Ok(Client {
            account: Some((account, self.clone())),
        })
    }

    /// Registers a new connection. If all are taken, the client with the most connections loses its
    /// newest.
    pub(crate) fn seat(&self, address: IpAddr) -> Result<ConnectionSlot, Refusal> {
        let limits = self.limits();
        let share = limits.connections;
        let proxy = limits.trusted_proxies.contains(&address.to_canonical());
        let mut book = self.shared.book.lock();
        let account = book.account(Address::of(address), limits);
        let account = account.ok_or_else(|| self.refuse(Refusal::Clients))?;
        let own = account.connections.lock().len();
        if own >= share.each && !proxy {
            return Err(self.refuse(Refusal::Connections(share)));
        }
        if book.connections >= share.all && !book.make_room(own, limits) {
            return Err(self.refuse(Refusal::Connections(share)));
        }
        let number = book.next;
        book.next += 1;
        book.connections += 1;
        let evicted = semaphore(0);
        let seat = (number, evicted.clone());
        account.connections.lock().extend([seat]);
        Ok(ConnectionSlot {
            clients: self.clone(),
            account,
            number,
            evicted,
        })
    }

    pub(crate) fn refuse(&self, refusal: Refusal) -> Refusal {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        refusal
    }
}

impl ClientTable {
    /// The account of an address, created if necessary; `None` if there are too many.
    fn account(&mut self, address: Address, limits: &Limits) -> Option<Arc<Account>> {
        if let Some(account) = self.clients.get(&address) {
            return Some(account.clone());
        }
        if self.clients.len() >= self.sweep_at.max(SWEEP_FROM) {
            let now = Instant::now();
            self.clients.retain(|_, account| {
                Arc::strong_count(account) > 1
                    || *account.paid_at.lock() > now
                    || *account.proven_until.lock() > now
            });
            self.sweep_at = (2 * self.clients.len()).min(MAX_CLIENTS);
        }
        if self.clients.len() >= MAX_CLIENTS {
            return None;
        }
        let account = Arc::new(Account::new(address, limits));
        self.clients.insert(address, account.clone());
        Some(account)
    }

    /// Evicts a connection: the newest of the client with the most connections, if that client has
    /// more than `own` + 1; otherwise, for a client that has none, the oldest connection of an idle
    /// client.
    fn make_room(&mut self, own: usize, limits: &Limits) -> bool {
        let proxies = &limits.trusted_proxies;
        let counts = self.clients.values().filter(|account| {
            !proxies
                .iter()
                .any(|proxy| Address::of(*proxy) == account.address)
        });
        let holders: Vec<(usize, &Arc<Account>)> = counts
            .map(|account| (account.connections.lock().len(), account))
            .filter(|(count, _)| *count > 0)
            .collect();
        let most = holders.iter().max_by_key(|(count, _)| *count);
        let victim = match most {
            Some((count, account)) if *count > own + 1 => account.connections.lock().pop_last(),
            Some(_) if own == 0 => {
                // Slow request heads and connections that are kept open. A client with a request in
                // progress, or with useful work lately, keeps its connections.
                let idle = holders
                    .iter()
                    .filter(|(_, account)| account.is_idle(limits));
                let first = |account: &Account| account.connections.lock().keys().next().copied();
                let eldest = idle.min_by_key(|(_, account)| first(account));
                eldest.and_then(|(_, account)| account.connections.lock().pop_first())
            }
            _ => None,
        };
        let Some((_, evicted)) = victim else {
            return false;
        };
        self.connections = self.connections.saturating_sub(1);
        evicted.close();
        true
    }

    fn leave(&mut self, account: &Account, number: u64) {
        // An evicted connection has already been removed.
        if account.connections.lock().remove(&number).is_some() {
            self.connections = self.connections.saturating_sub(1);
        }
    }
}

impl Account {
    fn new(address: Address, limits: &Limits) -> Self {
        Self {
            address,
            share: Resource::EACH.map(|resource| semaphore(limits.share(resource).each)),
            finish: Default::default(),
            connections: Mutex::default(),
            paced_at: Mutex::new(Instant::now()),
            paid_at: Mutex::new(Instant::now()),
            proven_until: Mutex::new(Instant::now()),
            forgetting: semaphore(1),
        }
    }

    /// Whether no request of it is in progress and it is not proven.
    fn is_idle(&self, limits: &Limits) -> bool {
        let free = self.share[Resource::Requests as usize].available_permits();
        free >= limits.requests.each && self.standing() != Standing::Proven
    }

    pub(crate) fn standing(&self) -> Standing {
        let now = Instant::now();
        if *self.paid_at.lock() > now {
            Standing::Owing
        } else if *self.proven_until.lock() > now {
            Standing::Proven
        } else {
            Standing::Unknown
        }
    }
}

impl Client {
    /// The operator of this machine, over the control socket; has no limits.
    pub fn operator() -> Self {
        Self { account: None }
    }

    /// Takes `count` units of a resource.
    ///
    /// Of resources that a client can hold for a while at no cost, a client gets at most as much as
    /// remains free afterwards. So four clients that take their quarters do not exhaust it; each
    /// further greedy client gets half of the rest.
    ///
    /// # Errors
    ///
    /// If the client would exceed its share or what remains, or all clients together the total.
    pub fn take(&self, resource: Resource, count: usize) -> Result<Permit, Refusal> {
        let Some((account, clients)) = &self.account else {
            return Ok(Permit::default());
        };
        let share = clients.limits().share(resource);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let take = |semaphore: &Arc<Semaphore>, refusal| {
            let permit = semaphore.clone().try_acquire_many_owned(count);
            permit.map_err(|_| clients.refuse(refusal))
        };
        let place = resource as usize;
        let own = take(&account.share[place], Refusal::Share(resource, share))?;
        let all = take(&clients.shared.all[place], Refusal::All(resource, share))?;
        let held = share
            .each
            .saturating_sub(account.share[place].available_permits());
        if resource.leaves_some() && held > clients.shared.all[place].available_permits() {
            return Err(clients.refuse(Refusal::All(resource, share)));
        }
        Ok(Permit {
            permits: vec![own, all],
            turn: None,
        })
    }

    /// Waits until the client's next request is due. Its requests wait one behind the other.
    pub(crate) async fn pace(&self) {
        let Some((account, clients)) = &self.account else {
            return;
        };
        let now = Instant::now();
        let ahead = {
            let mut paced_at = account.paced_at.lock();
            *paced_at = (*paced_at).max(now) + clients.limits().times.pace;
            paced_at.saturating_duration_since(now)
        };
        if let Some(wait) = ahead.checked_sub(PACE_AHEAD) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits for a turn to use a resource, first behind the client's own requests. Turns go to the
    /// client that has used the least time, so a client does not wait longer because others send
    /// more requests.
    pub async fn turn(&self, resource: Resource) -> Permit {
        let own = self.own_turn(resource).await;
        self.turn_of_all(resource, own).await
    }

    /// Waits for one unit of the client's own share, behind its own requests.
    pub async fn own_turn(&self, resource: Resource) -> Permit {
        let Some((account, _)) = &self.account else {
            return Permit::default();
        };
        // The semaphore is never closed.
        let own = account.share[resource as usize].clone().acquire_owned();
        Permit {
            permits: own.await.into_iter().collect(),
            turn: None,
        }
    }

    /// Given one unit of the client's share, waits for a turn among all clients.
    pub async fn turn_of_all(&self, resource: Resource, mut own: Permit) -> Permit {
        if let Some((account, clients)) = &self.account {
            let place = resource as usize;
            let turn = clients.shared.turns[place].take(&account.finish[place]);
            own.turn = Some(turn.await);
        }
        own
    }

    /// Waits until no other unwanted body of this client is being read. `None` for the operator,
    /// whose bodies are not throttled.
    pub(crate) async fn forgetting(&self) -> Option<OwnedSemaphorePermit> {
        let (account, _) = self.account.as_ref()?;
        account.forgetting.clone().acquire_owned().await.ok()
    }

    /// Records that the client's request caused useful work.
    pub fn prove(&self) {
        if let Some((account, _)) = &self.account {
            *account.proven_until.lock() = Instant::now() + PROVEN_LASTS;
        }
    }

    pub fn standing(&self) -> Standing {
        let account = self.account.as_ref();
        account.map_or(Standing::Proven, |(account, _)| account.standing())
    }

    /// Its account; `None` for the operator.
    pub(crate) fn account(&self) -> Option<&(Arc<Account>, Clients)> {
        self.account.as_ref()
    }

    /// Counts a refusal decided elsewhere.
    pub fn refused(&self, refusal: Refusal) -> Refusal {
        match &self.account {
            Some((_, clients)) => clients.refuse(refusal),
            None => refusal,
        }
    }

    /// Charges the client for useless work; the price is paid off with time.
    pub fn charge(&self, price: Duration) {
        if let Some((account, _)) = &self.account {
            let mut paid_at = account.paid_at.lock();
            // The debt is capped, which bounds how long the client is refused.
            let limit = Instant::now() + 2 * MAX_DEBT;
            *paid_at = ((*paid_at).max(Instant::now()) + price).min(limit);
        }
    }

    /// Refuses a client that has too much debt.
    ///
    /// # Errors
    ///
    /// If its debt is above `MAX_DEBT`.
    pub fn check_debt(&self) -> Result<(), Refusal> {
        let Some((account, clients)) = &self.account else {
            return Ok(());
        };
        let debt = account
            .paid_at
            .lock()
            .saturating_duration_since(Instant::now());
        match debt.checked_sub(MAX_DEBT) {
            Some(beyond) => Err(clients.refuse(Refusal::Debt(beyond))),
            None => Ok(()),
        }
    }
}

pub(crate) fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Times;

    pub(crate) fn limits(all: usize, each: usize) -> Limits {
        let share = Share { all, each };
        Limits {
            connections: share,
            requests: share,
            waiting: share,
            streams: share,
            bytes: share,
            work: share,
            reading: share,
            verifying: share,
            times: Times {
                head: Duration::from_secs(1),
                body: Duration::from_secs(1),
                stall: Duration::from_secs(1),
                life: Duration::from_secs(1),
                last_answer: None,
                pace: Duration::ZERO,
            },
            trusted_proxies: vec!["10.0.0.1".parse().unwrap()],
        }
    }

    pub(crate) fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_client_over_its_share_is_refused_and_another_is_not() {
        let clients = Clients::new(limits(6, 4));
        let one: Vec<_> = (0..4).map(|_| clients.seat(ip(1)).ok().unwrap()).collect();
        assert!(clients.seat(ip(1)).is_err());
        let two = clients.seat(ip(2)).ok().unwrap();
        drop(one);
        assert_eq!(clients.connections(), 1);
        drop(two);
        assert_eq!(clients.connections(), 0);
        assert_eq!(clients.refused(), 1);
    }

    #[test]
    fn who_has_most_makes_room_for_who_has_less() {
        let clients = Clients::new(limits(4, 4));
        let many: Vec<_> = (0..4).map(|_| clients.seat(ip(1)).ok().unwrap()).collect();
        let first = clients.seat(ip(2)).ok().unwrap();
        let second = clients.seat(ip(2)).ok().unwrap();
        // Two each: no client has more than another.
        assert!(clients.seat(ip(2)).is_err());
        // A new client has none and gets one of theirs.
        let third = clients.seat(ip(3)).ok().unwrap();
        assert_eq!(clients.connections(), 4);
        drop(many);
        drop((first, second));
        assert_eq!(clients.connections(), 1);
        drop(third);
        assert_eq!(clients.connections(), 0);
    }

    #[test]
    fn a_newcomer_gets_the_eldest_idle_connection_when_all_have_one() {
        let clients = Clients::new(limits(4, 4));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let seats: Vec<_> = (1..=4)
            .map(|last| clients.seat(ip(last)).ok().unwrap())
            .collect();
        // The first has a request in progress, the second has done useful work.
        let request = client(1).take(Resource::Requests, 1).unwrap();
        client(2).prove();
        let newcomer = clients.seat(ip(9)).ok().unwrap();
        let gone: Vec<bool> = seats.iter().map(|seat| seat.evicted.is_closed()).collect();
        assert_eq!(gone, [false, false, true, false]);
        // It has one now, like the others.
        assert!(clients.seat(ip(9)).is_err());
        assert_eq!(clients.connections(), 4);
        // When no client is idle, no connection is evicted.
        let busy: Vec<_> = [4, 9]
            .map(|last| client(last).take(Resource::Requests, 1).unwrap())
            .into();
        assert!(clients.seat(ip(10)).is_err());
        drop((seats, newcomer, busy, request));
        assert_eq!(clients.connections(), 0);
    }

    #[test]
    fn a_trusted_proxy_has_no_share_and_makes_no_room() {
        let clients = Clients::new(limits(8, 2));
        let proxy = "10.0.0.1".parse().unwrap();
        let seats: Vec<_> = (0..8).map(|_| clients.seat(proxy).ok().unwrap()).collect();
        assert!(clients.seat(ip(1)).is_err());
        drop(seats);
    }

    #[test]
    fn what_is_taken_is_given_back_and_shares_add_up_to_no_more_than_all() {
        let clients = Clients::new(limits(5, 3));
        let client = |last| clients.client(ip(last)).ok().unwrap();
        let (one, two) = (client(1), client(2));
        let held = one.take(Resource::Requests, 3).unwrap();
        let share = Share { all: 5, each: 3 };
        let over = one.take(Resource::Requests, 1).unwrap_err();
        assert_eq!(over, Refusal::Share(Resource::Requests, share));
        let all = two.take(Resource::Requests, 3).unwrap_err();
        assert_eq!(all, Refusal::All(Resource::Requests, share));
        // A request refused by the total limit does not count against the client's share.
        let rest = two.take(Resource::Requests, 2).unwrap();
        assert_eq!(clients.taken(Resource::Requests), 5);
        drop((held, rest));
        assert_eq!(clients.taken(Resource::Requests), 0);
        assert!(Client::operator().take(Resource::Requests, 100).is_ok());
    }

    #[test]
    fn nobody_gets_more_than_is_left_of_what_costs_nothing_to_hold() {
        let clients = Clients::new(limits(1_000, 250));
        let greedy: Vec<_> = (0..6)
            .map(|last| {
                let client = clients.client(ip(last)).ok().unwrap();
                std::iter::from_fn(|| client.take(Resource::Bytes, 1).ok()).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(greedy[0].len(), 250, "its share");
        let left = 1_000 - clients.taken(Resource::Bytes);
        assert_eq!(left, 32, "three quarters, and then half of the rest each");
        let modest = clients.client(ip(200)).ok().unwrap();
        assert!(modest.take(Resource::Bytes, 1).is_ok());
        drop(greedy);
        assert_eq!(clients.taken(Resource::Bytes), 0);
    }

    #[test]
    fn a_client_is_known_by_what_its_work_was_worth() {
        let clients = Clients::new(limits(5, 3));
        let client = clients.client(ip(1)).ok().unwrap();
        assert_eq!(client.standing(), Standing::Unknown);
        client.prove();
        assert_eq!(client.standing(), Standing::Proven);
        client.charge(MAX_DEBT / 2);
        assert_eq!(client.standing(), Standing::Owing);
        assert_eq!(Client::operator().standing(), Standing::Proven);
    }

    #[test]
    fn who_owes_is_refused_alone_and_remembered_without_a_connection() {
        let clients = Clients::new(limits(5, 3));
        let one = clients.client(ip(1)).ok().unwrap();
        one.charge(MAX_DEBT / 2);
        assert_eq!(one.check_debt(), Ok(()));
        one.charge(MAX_DEBT);
        drop(one);
        let again = clients.client(ip(1)).ok().unwrap();
        assert!(matches!(again.check_debt(), Err(Refusal::Debt(_))));
        assert_eq!(clients.client(ip(2)).ok().unwrap().check_debt(), Ok(()));
    }

    #[test]
    fn clients_that_hold_nothing_are_forgotten() {
        let clients = Clients::new(limits(5, 3));
        for number in 0..3 * SWEEP_FROM as u32 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(clients.client(address).is_ok());
        }
        assert!(clients.shared.book.lock().clients.len() <= SWEEP_FROM);
    }
}
