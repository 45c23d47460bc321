//! Validators that come and leave, in virtual time: whole nodes on a chain with a registry, whose parts are
//! assembled anew where the validators change, as in the node.
//!
//! Stake is put up and taken out at random, one validator at a time or as many as may leave at once. Nodes
//! crash, more often at borders than elsewhere; the power goes inside disk operations; the network falls apart
//! and heals; of each set of validators up to f are faulty, and newcomers come late. Votes have the simulator's
//! cheap signatures; possession of keys is proven with BLS.
//!
//! What must never happen is in [`checker`]; that the chain goes on is checked after each healing.

mod checker;
mod host;
mod keys;

use self::{
    checker::Checker,
    host::{Host, Shared},
    keys::Keys,
};
use crate::{
    disk::{DiskCopy, Mishap},
    host::Sent,
    network::{Latency, Links, Network},
    scenario::timing_for,
    stock,
};
use bytes::Bytes;
use commonware_codec::Encode as _;
use quorate_consensus::Moment;
use quorate_lanes::{Lane, To};
use quorate_types::{
    BondAddress, BondName, Epoch, EpochLength, Height, Identity, Memo, Operation, Possession,
    REGISTRY, RegistryRules, Transfer,
    genesis::{
        ApplicationKind, DEFAULT_FEES, DEFAULT_LIMITS, Genesis, GenesisAccount, GenesisValidator,
        Protocol,
    },
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

const EPOCH_BLOCKS: u64 = 24;
const STAKE: u64 = 1_000_000;
const BALANCE: u64 = 10_000_000;

/// How often stake is moved, in virtual time.
const CHANGE_EVERY: Duration = Duration::from_millis(60);

/// How often something goes wrong, and for how long.
const FAULT_EVERY: Duration = Duration::from_millis(400);
const FAULT_LASTS: Duration = Duration::from_millis(1_200);

/// How often a disk is copied; it is restored up to four times as long after that.
const COPY_EVERY: Duration = Duration::from_millis(900);

/// The least time of a restart with a copy.
const RESTART_TAKES: Duration = Duration::from_millis(50);

/// How long the chain may stand still while no fault lasts, until it is a violation. A node that has lost
/// the others looks for them after 15 s, and time-outs have doubled by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a validator misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its votes are forged.
    Forges,
    /// It says nothing of consensus.
    Mute,
    /// What it says comes late.
    Late,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct BorderScenario {
    pub seed: u64,
    /// The consensus protocol.
    pub protocol: Protocol,
    /// How many nodes there are; four or more of them validate at first.
    pub nodes: usize,
    pub validators: usize,
    /// How many of the nodes misbehave. At most a third of any set does: the others' stake is higher.
    pub faulty: usize,
    /// The run ends at this epoch.
    pub epochs: u64,
    /// Whether nodes crash and the network falls apart.
    pub faults: bool,
    /// Whether honest nodes, one after the other, go on from old copies of their disks.
    pub old_copies: bool,
}

impl BorderScenario {
    /// A scenario made from a seed.
    pub fn of(seed: u64, epochs: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let validators = rng.random_range(4..=7);
        let nodes = validators + rng.random_range(2..=4);
        let faulty = rng.random_range(0..=1);
        let faults = rng.random_range(0..4) > 0;
        Self {
            seed,
            protocol: Protocol::Simplex,
            nodes,
            validators,
            faulty,
            epochs,
            faults,
            // An old copy is one of the f that do not vote, and the others must remember its votes.
            old_copies: faulty == 0 && !faults,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BorderReport {
    pub height: u64,
    /// Borders between epochs.
    pub borders: u64,
    /// Those at which the validators changed.
    pub changes: u64,
    /// Those at which as many left as may: all but a quorum stayed.
    pub largest: u64,
    /// How often a node's parts were assembled anew while it ran.
    pub assemblies: u64,
    pub crashes: u64,
    pub partitions: u64,
    /// How often a node went on from an old copy of its disk.
    pub old_copies: u64,
    pub transactions: u64,
    /// The longest time without a new final block while no fault lasted.
    pub longest_pause: Duration,
}

impl BorderReport {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.height += other.height;
        self.borders += other.borders;
        self.changes += other.changes;
        self.largest += other.largest;
        self.assemblies += other.assemblies;
        self.crashes += other.crashes;
        self.partitions += other.partitions;
        self.old_copies += other.old_copies;
        self.transactions += other.transactions;
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }
}

impl fmt::Display for BorderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} borders in {} blocks with {} transactions; at {} the validators changed, and at {} of these all \
             but a quorum left; {} assemblies of parts, {} crashes, {} partitions, {} old copies; the longest time without a \
             final block, with no partition: {} ms",
            self.borders,
            self.height,
            self.transactions,
            self.changes,
            self.largest,
            self.assemblies,
            self.crashes,
            self.partitions,
            self.old_copies,
            self.longest_pause.as_millis()
        )
    }
}

enum Event {
    Deliver {
        to: usize,
        from: Identity,
        lane: Lane,
        bytes: Bytes,
    },
    Step {
        host: usize,
        life: u64,
    },
    Return(usize),
    Second,
    Client,
    Change,
    Fault,
    Heal,
    /// A node's disk is copied.
    Copy,
    /// A node goes on from the copy of its disk.
    Restore(usize, DiskCopy),
}

/// A running simulation.
struct World {
    scenario: BorderScenario,
    shared: Arc<Shared>,
    rng: ChaCha8Rng,
    now: Moment,
    events: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    hosts: Vec<Host>,
    network: Network,
    checker: Checker,
    misbehave: BTreeMap<usize, Fault>,
    report: BorderReport,
    /// When the newest block became final, or the last fault ended.
    progress: Moment,
    /// Faults that last.
    troubles: u32,
    submitted: u64,
}

/// Runs a scenario to its end.
///
/// # Errors
///
/// The first rule that is broken, in words.
pub fn run_borders(
    scenario: &BorderScenario,
    watch: impl FnMut(&BorderReport),
) -> Result<BorderReport, String> {
    let seed = scenario.seed;
    let mut world = World::new(scenario.clone());
    world
        .play(watch)
        .map_err(|what| format!("seed {seed}, at {} µs: {what}", world.now.0))
}

impl World {
    fn new(scenario: BorderScenario) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0xb0_4de4);
        let keys = Arc::new(Keys::new(scenario.nodes));
        let genesis = genesis(&scenario, &keys);
        let links = Links {
            latency: Latency::Between(Duration::from_millis(1), Duration::from_millis(4)),
            ..Links::good()
        };
        let shared = Arc::new(Shared {
            timing: timing_for(links.bound()),
            chain: genesis.chain_id(),
            genesis: Arc::new(genesis),
            keys,
        });
        let mut hosts: Vec<Host> = (0..scenario.nodes)
            .map(|place| Host::new(place, rng.random()))
            .collect();
        // The faulty ones have the least stake, so that honest ones can replace them.
        let misbehave: BTreeMap<usize, Fault> = (scenario.nodes - scenario.faulty..scenario.nodes)
            .map(|place| {
                let faults = [Fault::Forges, Fault::Mute, Fault::Late];
                (place, faults[rng.random_range(0..faults.len())])
            })
            .collect();
        for (place, fault) in &misbehave {
            hosts[*place].forges = *fault == Fault::Forges;
        }
        Self {
            checker: Checker::new(shared.clone()),
            network: Network::new(links),
            now: Moment(0),
            events: BTreeMap::new(),
            sequence: 0,
            hosts,
            misbehave,
            report: BorderReport::default(),
            progress: Moment(0),
            troubles: 0,
            submitted: 0,
            rng,
            shared,
            scenario,
        }
    }

    fn play(&mut self, mut watch: impl FnMut(&BorderReport)) -> Result<BorderReport, String> {
        for host in 0..self.hosts.len() {
            self.start(host)?;
        }
        self.plan(Duration::from_secs(1), Event::Second);
        self.plan(Duration::from_millis(20), Event::Client);
        self.plan(CHANGE_EVERY, Event::Change);
        if self.scenario.faults {
            self.plan(FAULT_EVERY, Event::Fault);
        }
        if self.scenario.old_copies {
            self.plan(COPY_EVERY, Event::Copy);
        }
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if matches!(event, Event::Second) {
                watch(&self.report);
            }
            self.happen(event)?;
            if self.report.borders >= self.scenario.epochs {
                break;
            }
            let pause = self.now.since(self.progress);
            if self.troubles == 0 && pause > PATIENCE {
                let states: Vec<String> = self.hosts.iter().map(Host::describe).collect();
                return Err(format!(
                    "no block has become final for {pause:?} while nothing was wrong: {}",
                    states.join("; ")
                ));
            }
        }
        self.checker.at_the_end(&self.hosts)?;
        Ok(self.report.clone())
    }

    fn plan(&mut self, delay: Duration, event: Event) {
        self.plan_at(self.now.after(delay), event);
    }

    fn plan_at(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver {
                to,
                from,
                lane,
                bytes,
            } => {
                self.hosts[to].receive(self.now, from, lane, bytes);
                self.plan_step(to);
            }
            Event::Step { host, life } => {
                if self.hosts[host].life == life && self.hosts[host].planned == Some(self.now) {
                    self.hosts[host].planned = None;
                    return self.step(host);
                }
            }
            Event::Return(host) => {
                if !self.hosts[host].is_up() {
                    return self.start(host);
                }
            }
            Event::Second => {
                self.tell_links();
                for host in 0..self.hosts.len() {
                    let peers = self.peers(host);
                    self.hosts[host].each_second(&self.shared, self.now, &peers);
                    self.plan_step(host);
                }
                self.plan(Duration::from_secs(1), Event::Second);
            }
            Event::Client => {
                let host = self.rng.random_range(0..self.hosts.len());
                let sender = self.rng.random_range(0..self.hosts.len());
                let to = self.shared.keys.identity((sender + 1) % self.hosts.len());
                self.submit(host, sender, to, 1, Memo::NONE);
                self.plan(Duration::from_millis(20), Event::Client);
            }
            Event::Change => {
                self.change();
                let factor = self.rng.random_range(1..=4);
                self.plan(CHANGE_EVERY * factor, Event::Change);
            }
            Event::Fault => {
                self.fault();
                let factor = self.rng.random_range(1..=10);
                self.plan(FAULT_EVERY * factor, Event::Fault);
            }
            Event::Copy => {
                let host = self.rng.random_range(0..self.hosts.len());
                self.crash(host, RESTART_TAKES);
                let copy = self.hosts[host].disk.copy();
                let later = COPY_EVERY * self.rng.random_range(1..=4);
                self.plan(later, Event::Restore(host, copy));
            }
            Event::Restore(host, copy) => {
                self.report.old_copies += 1;
                self.crash(host, RESTART_TAKES);
                self.hosts[host].disk.restore(&copy);
                self.checker.lost(host);
                self.plan(COPY_EVERY, Event::Copy);
            }
            Event::Heal => {
                self.network.join();
                self.troubles -= 1;
                self.progress = self.now;
                self.tell_links();
            }
        }
        Ok(())
    }

    fn start(&mut self, host: usize) -> Result<(), String> {
        self.hosts[host].clock.set(self.now);
        let started = self.hosts[host].start(&self.shared);
        if self.crashed_inside(host) {
            return Ok(());
        }
        started.map_err(|error| format!("host {host} does not start: {error:#}"))?;
        self.tell_links();
        self.plan_step(host);
        Ok(())
    }

    /// Whether the power went in the middle of what a host did.
    fn crashed_inside(&mut self, host: usize) -> bool {
        if !self.hosts[host].disk.has_crashed() {
            return false;
        }
        self.crash(host, Duration::from_millis(200));
        true
    }

    fn crash(&mut self, host: usize, away: Duration) {
        self.report.crashes += 1;
        self.hosts[host].crash();
        let takes = self.rng.random_range(1..=5);
        self.plan(away * takes, Event::Return(host));
        self.tell_links();
    }

    fn plan_step(&mut self, host: usize) {
        let takes = Duration::from_micros(self.rng.random_range(200..800));
        let at = self.now.after(takes);
        self.plan_step_at(host, at);
    }

    fn plan_step_at(&mut self, host: usize, at: Moment) {
        if !self.hosts[host].is_up() || self.hosts[host].planned.is_some_and(|before| before <= at)
        {
            return;
        }
        self.hosts[host].planned = Some(at);
        let life = self.hosts[host].life;
        self.plan_at(at, Event::Step { host, life });
    }

    fn step(&mut self, host: usize) -> Result<(), String> {
        self.hosts[host].clock.set(self.now);
        let stepped = self.hosts[host].step(&self.shared);
        if self.crashed_inside(host) {
            return Ok(());
        }
        let ended = stepped.map_err(|error| format!("host {host} stops: {error:#}"))?;
        self.drain(host)?;
        self.look_at(host)?;
        if let Some(follows) = ended {
            self.report.assemblies += 1;
            let left = self.hosts[host].leave();
            self.drain(host)?;
            if self.crashed_inside(host) {
                return Ok(());
            }
            left.map_err(|error| format!("host {host} does not end: {error:#}"))?;
            // Not all are equally fast, and some do not survive it.
            if self.scenario.faults && self.rng.random_range(0..20) == 0 {
                self.crash(host, Duration::from_millis(100));
                return Ok(());
            }
            let assembled = self.hosts[host].assemble(&self.shared, follows, false);
            if self.crashed_inside(host) {
                return Ok(());
            }
            assembled.map_err(|error| format!("host {host} does not go on: {error:#}"))?;
            self.tell_links();
            let takes = Duration::from_millis(self.rng.random_range(1..40));
            let at = self.now.after(takes);
            self.plan_step_at(host, at);
            return self.drain(host);
        }
        if let Some(due) = self.hosts[host].due() {
            let at = due.max(self.now.after(Duration::from_micros(100)));
            self.plan_step_at(host, at);
        }
        Ok(())
    }

    /// Sends what a host has said.
    fn drain(&mut self, host: usize) -> Result<(), String> {
        self.checker.look_at_sets(&self.hosts[host], host)?;
        let honest = !self.misbehave.contains_key(&host);
        let fault = self.misbehave.get(&host).copied();
        for Sent {
            lane, to, bytes, ..
        } in self.hosts[host].sent()
        {
            if honest {
                self.checker.sent(host, &bytes)?;
            }
            let is_consensus = matches!(lane, Lane::Votes | Lane::Control);
            let late = match fault {
                Some(Fault::Mute) if is_consensus => continue,
                Some(Fault::Late) => Duration::from_millis(self.rng.random_range(0..400)),
                _ => Duration::ZERO,
            };
            for receiver in self.receivers(host, &to) {
                self.carry(host, receiver, lane, bytes.clone(), late);
            }
        }
        Ok(())
    }

    fn receivers(&self, host: usize, to: &To) -> Vec<usize> {
        let keys = &self.shared.keys;
        match to {
            To::All => self.hosts[host].members(keys),
            To::Followers => {
                let members = self.hosts[host].members(keys);
                let others = (0..self.hosts.len()).filter(|other| *other != host);
                others.filter(|other| !members.contains(other)).collect()
            }
            To::One(identity) => keys.place(identity).into_iter().collect(),
            To::Some(identities) => identities.iter().filter_map(|i| keys.place(i)).collect(),
        }
    }

    fn carry(&mut self, from: usize, to: usize, lane: Lane, bytes: Bytes, late: Duration) {
        let sent = self.now.after(late);
        let arrivals = self
            .network
            .carry(&mut self.rng, sent, (from, to), lane, bytes.len());
        let from = self.shared.keys.identity(from);
        for at in arrivals {
            let bytes = bytes.clone();
            self.plan_at(
                at,
                Event::Deliver {
                    to,
                    from,
                    lane,
                    bytes,
                },
            );
        }
    }

    /// Checks what a host has newly executed, and which validators it believes to be fixed.
    fn look_at(&mut self, host: usize) -> Result<(), String> {
        let before = self.checker.height();
        self.checker.look_at(&self.hosts[host], host)?;
        let height = self.checker.height();
        if height > before {
            if self.troubles == 0 {
                let pause = self.now.since(self.progress);
                self.report.longest_pause = self.report.longest_pause.max(pause);
            }
            self.progress = self.now;
            self.report.height = height.0;
            self.report.borders = height.0 / EPOCH_BLOCKS;
            (self.report.changes, self.report.largest) = self.checker.changes();
            self.report.transactions = self.checker.transactions();
        }
        Ok(())
    }

    fn is_linked(&self, one: usize, other: usize) -> bool {
        let together = self.network.groups.as_ref().is_none_or(|groups| {
            let mut groups = groups.iter();
            groups.any(|group| group.contains(&one) && group.contains(&other))
        });
        together && self.hosts[one].is_up() && self.hosts[other].is_up()
    }

    fn peers(&self, host: usize) -> Vec<usize> {
        let others = (0..self.hosts.len()).filter(|other| *other != host);
        others
            .filter(|other| self.is_linked(host, *other))
            .collect()
    }

    /// Tells all hosts which links have come up or ended.
    fn tell_links(&mut self) {
        for host in 0..self.hosts.len() {
            let peers: BTreeSet<usize> = self.peers(host).into_iter().collect();
            if self.hosts[host].tell_links(&self.shared, &peers) {
                self.plan_step(host);
            }
        }
    }

    /// Somebody puts stake up or takes it out; at times as many as may leave do, and as many come.
    fn change(&mut self) {
        let mut order: Vec<usize> = (0..self.hosts.len()).collect();
        order.shuffle(&mut self.rng);
        let several = if self.rng.random_range(0..2) == 0 {
            1
        } else {
            4
        };
        for place in order.into_iter().take(several) {
            self.change_stake(place);
        }
    }

    fn change_stake(&mut self, place: usize) {
        let up = (0..self.hosts.len()).find(|host| self.hosts[*host].is_up());
        let Some(accounts) = up.and_then(|host| self.hosts[host].accounts(&self.shared)) else {
            return;
        };
        let staked =
            |bond: &Option<Box<quorate_types::Bond>>| bond.as_ref().map_or(0, |bond| bond.stake);
        let honest = |place: &usize| !self.misbehave.contains_key(place);
        let bonded: Vec<usize> = (0..accounts.len())
            .filter(|place| staked(&accounts[*place].bond) > 0)
            .collect();
        let own = &accounts[place];
        let (amount, operation) = match &own.bond {
            Some(bond) if bond.stake > 0 => {
                // Enough honest validators stay that the faulty ones are a third at most.
                let rest = bonded.iter().filter(|one| **one != place && honest(one));
                if rest.count() < 4 + self.scenario.faulty * 2 {
                    return;
                }
                (0, Operation::Unbond { stake: bond.stake })
            }
            Some(bond) if bond.leaving > 0 && own.balance < STAKE * 2 => (0, Operation::Withdraw),
            Some(_) => (self.stake(place), Operation::AddStake),
            None => {
                let keys = self.shared.keys.clone();
                let name = self.shared.genesis.name.clone();
                let identity = keys.identity(place);
                let secret = keys.secret(place);
                (
                    self.stake(place),
                    Operation::Bond {
                        vote_key: keys.vote_key(place),
                        possession: Possession(secret.prove_possession(&name, &identity.0)),
                        address: BondAddress::default(),
                        name: BondName::default(),
                    },
                )
            }
        };
        let Ok(memo) = Memo::new(operation.encode()) else {
            return;
        };
        let mut hosts: Vec<usize> = (0..self.hosts.len())
            .filter(|host| self.hosts[*host].is_up())
            .collect();
        hosts.shuffle(&mut self.rng);
        for host in hosts.into_iter().take(2) {
            self.submit(host, place, REGISTRY, amount, memo.clone());
        }
    }

    fn stake(&mut self, place: usize) -> u64 {
        match self.misbehave.contains_key(&place) {
            true => STAKE,
            false => STAKE + self.rng.random_range(1..STAKE / 2),
        }
    }

    fn submit(&mut self, host: usize, sender: usize, to: Identity, amount: u64, memo: Memo) {
        let secret = stock::identity_key(sender);
        let Some(nonce) = self.hosts[host].nonce(&secret.identity()) else {
            return;
        };
        let mut transfer = Transfer {
            chain_tag: self.shared.chain.tag(),
            sender: secret.identity(),
            nonce,
            to,
            amount,
            fee: 0,
            memo,
        };
        // Each submission differs: the same transfer is refused while it waits.
        self.submitted += 1;
        transfer.fee = self.shared.genesis.fees.minimum(&transfer) + self.submitted % 7;
        let transaction = transfer.sign(&self.shared.chain, &secret);
        self.hosts[host].clock.set(self.now);
        if self.hosts[host].submit(self.now, transaction) {
            self.plan_step(host);
        }
    }

    /// Something goes wrong for a while.
    fn fault(&mut self) {
        let host = self.rng.random_range(0..self.hosts.len());
        match self.rng.random_range(0..5) {
            0 => self.part(),
            1 if self.hosts[host].is_up() => {
                let after = self.rng.random_range(1..200);
                let crash = Mishap::CRASHES[self.rng.random_range(0..Mishap::CRASHES.len())];
                self.hosts[host].disk.plan(after, crash);
            }
            2 => {
                // Long enough for some epochs.
                if self.hosts[host].is_up() {
                    self.crash(host, Duration::from_secs(3));
                }
            }
            3 => {
                for host in 0..self.hosts.len() {
                    if self.hosts[host].is_up() && self.rng.random_range(0..2) == 0 {
                        self.crash(host, Duration::from_millis(300));
                    }
                }
            }
            _ => {
                if self.hosts[host].is_up() {
                    self.crash(host, Duration::from_millis(300));
                }
            }
        }
    }

    /// The network falls into two parts.
    fn part(&mut self) {
        if self.network.groups.is_some() {
            return;
        }
        self.report.partitions += 1;
        let mut order: Vec<usize> = (0..self.hosts.len()).collect();
        order.shuffle(&mut self.rng);
        let (one, other) = order.split_at(self.rng.random_range(1..order.len()));
        let groups = [one, other].map(|group| group.iter().copied().collect());
        self.network.groups = Some(groups.to_vec());
        self.troubles += 1;
        self.tell_links();
        let factor = self.rng.random_range(1..=3);
        self.plan(FAULT_LASTS * factor, Event::Heal);
    }
}

fn genesis(scenario: &BorderScenario, keys: &Keys) -> Genesis {
    let validators = (0..scenario.validators).map(|place| GenesisValidator {
        identity: keys.identity(place),
        vote_key: keys.vote_key(place).to_string(),
        proof_of_possession: None,
        stake: STAKE + place as u64,
        address: BondAddress::default(),
    });
    let accounts = (0..scenario.nodes).map(|place| GenesisAccount {
        identity: keys.identity(place),
        balance: BALANCE,
    });
    Genesis {
        name: "borders".to_owned(),
        timestamp_ms: crate::world::GENESIS_MS,
        protocol: scenario.protocol,
        application: ApplicationKind::Ledger,
        scheme: "bls-aggregate".to_owned(),
        limits: DEFAULT_LIMITS,
        fees: DEFAULT_FEES,
        epoch_blocks: EpochLength::new(EPOCH_BLOCKS).expect("not zero"),
        group_key: None,
        registry: Some(RegistryRules {
            min_stake: STAKE,
            max_validators: u32::try_from(scenario.nodes).unwrap_or(u32::MAX),
            unbond_epochs: 1,
            slashing: None,
            external: None,
            resharing: false,
        }),
        validators: validators.collect(),
        accounts: accounts.collect(),
    }
}

/// The epoch of a height.
fn epoch_of(height: Height) -> Epoch {
    EpochLength::new(EPOCH_BLOCKS)
        .expect("not zero")
        .epoch_of(height)
}
