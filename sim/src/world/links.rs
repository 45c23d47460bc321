//! What hosts notice of their links. The end of a process ends its connections, which the other sides
//! see about a message's delay later; so they do when it is back. A line that is merely cut tells
//! nobody.

use super::*;
use quorate_machine::replica::Event as ReplicaEvent;

/// The link states that a host was told, or is about to be told.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// Validators that it takes to be without a link to it.
    down: BTreeSet<usize>,
    /// When it was last told.
    last: BTreeMap<usize, Moment>,
}

/// On what links depend, as it last was.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Each host's life, if it runs.
    alive: Vec<Option<u64>>,
    unlinked: BTreeSet<(usize, usize)>,
}

impl Simulation {
    fn topology_is_new(&mut self) -> bool {
        let life = |host: &Host| host.is_up().then_some(host.life);
        let mut alive = self.hosts.iter().map(life);
        let known = &self.topology;
        if known.alive.len() == self.hosts.len()
            && known.alive.iter().all(|held| Some(*held) == alive.next())
            && known.unlinked == self.network.unlinked
        {
            return false;
        }
        self.topology = Topology {
            alive: self.hosts.iter().map(life).collect(),
            unlinked: self.network.unlinked.clone(),
        };
        true
    }

    /// Plans the announcement of changed links.
    pub(super) fn notice_links(&mut self) {
        if !self.topology_is_new() {
            return;
        }
        let validators = self.scenario.validators;
        let mut alive = vec![false; validators];
        for host in &self.hosts {
            alive[host.validator] |= host.is_up();
        }
        for host in 0..self.hosts.len() {
            let own = self.hosts[host].validator;
            if !self.hosts[host].is_up() {
                continue;
            }
            for (peer, alive) in alive.iter().enumerate() {
                let up = *alive && self.network.is_linked(own, peer);
                if peer == own || up != self.links[host].down.contains(&peer) {
                    continue;
                }
                self.plan_notice(host, peer, up);
            }
        }
    }

    fn plan_notice(&mut self, host: usize, peer: usize, up: bool) {
        let delay = self.network.delay(&mut self.rng, peer, host);
        let told = &mut self.links[host];
        if up {
            told.down.remove(&peer);
        } else {
            told.down.insert(peer);
        }
        // What came up after it had ended is told after it, too.
        let last = told.last.entry(peer).or_default();
        *last = self.now.after(delay).max(*last);
        let at = *last;
        let life = self.hosts[host].life;
        let event = Event::Linked {
            host,
            life,
            peer,
            up,
        };
        self.plan_at(at, event);
    }

    /// A host is told a link's state.
    pub(super) fn linked(&mut self, host: usize, peer: usize, up: bool) {
        let place = ValidatorIndex(peer as u32);
        if let Some(sync) = &mut self.hosts[host].syncing {
            let identity = self.chain.committee.identity(place).expect("a member");
            sync.linked(identity, up);
            return;
        }
        let Some(running) = &self.hosts[host].running else {
            return;
        };
        let event = ReplicaEvent::Linked { peer: place, up };
        // The replica is here as long as its queue is.
        let _ = running.machine.to_replica.send(event);
        self.trace
            .note(self.now, &[b"link", &host.to_be_bytes(), &[u8::from(up)]]);
        self.plan_parts(host);
    }
}
