//! The world around the validators: time, links, faults, clients, and the checkers.

mod clients;
mod faults;
mod links;
mod sync;
mod timeline;
mod traffic;
mod watch;

use crate::{
    adversary::{Adversary, Attack, Facts},
    checker::Checker,
    clock::START_MS,
    coverage::Coverage,
    crypto::Authority,
    host::{Chain, Host, PARTS, Part, Running, Sent, lock},
    network::Network,
    pacemaker::{MEETINGS, Pacemaker},
    payloads::PayloadChecker,
    scenario::{Fault, Scenario},
    stock::{self, Stock},
    trace::{Line, Trace, What},
};
pub use sync::StateSyncTimes;
pub use timeline::{BlockTimes, Checked, Timeline, TransferTimes};

use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt};
use quorate_consensus::{
    LOOKAHEAD_VIEWS, MAX_EARLY_MESSAGES, MAX_EVIDENCE_PER_VALIDATOR, MAX_PROPOSED_PER_LEADER,
    MAX_WANTS, Moment, Offence, PROPOSAL_LOOKAHEAD_VIEWS, VoteChecking, Voting,
};
use quorate_lanes::{Lane, To};
use quorate_types::genesis::{ApplicationKind, Protocol};
use quorate_types::{Block, Digest, Epoch, Frame, Height, Identity, Message, ValidatorIndex, View};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How often Byzantine validators say something of their own, in leader time-outs.
const SPONTANEOUS_PER_TIMEOUT: u32 = 2;

/// How often the world looks around, once all is healed.
const WATCH: Duration = Duration::from_millis(100);

/// A run that takes less time forgets nothing: a validator without a database may see old blocks again.
const LONG_RUN: Duration = Duration::from_secs(600);

/// New blocks that must be final everywhere after healing.
const RECOVERY_BLOCKS: u64 = 3;

/// How long all are down that crash at one event.
const RESTART_DELAY: Duration = Duration::from_millis(30);

/// A rule that was broken. The text names the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The newest final height that any honest validator has executed.
    pub highest: Height,
    /// The newest that all honest validators that run have executed.
    pub lowest: Height,
    /// The highest epoch, and the highest view within it.
    pub epoch: Epoch,
    /// The highest view within the highest epoch.
    pub view: View,
    /// A hash over everything that happened, in order.
    pub trace: Digest,
    /// The validators that honest ones hold evidence against, and how many of these there are.
    pub evidence: BTreeMap<usize, usize>,
    /// The validators blocked at the end by honest ones that run, and how many of these there are.
    pub blocked: BTreeMap<usize, usize>,
    /// Who is on probation at the end, likewise.
    pub probation: BTreeMap<usize, usize>,
    /// The validators that honest ones have blocked or put on probation at any time.
    pub sentenced: BTreeSet<usize>,
    /// From healing until some honest validator had a new final block; `None` if it was not healed.
    pub first_progress: Option<Duration>,
    /// From healing until all honest validators had new final blocks.
    pub recovery: Option<Duration>,
    /// The state syncs of honest validators.
    pub state_syncs: Vec<StateSyncTimes>,
    /// Blocks of honest leaders that a quorum of honest validators has voted for, and whose height another block has
    /// taken.
    pub abandoned: u64,
    /// What was covered.
    pub coverage: Coverage,
}

enum Event {
    Deliver {
        to: usize,
        from: usize,
        lane: Lane,
        bytes: Bytes,
    },
    Run {
        host: usize,
        life: u64,
        part: Part,
    },
    HandOver {
        host: usize,
        life: u64,
    },
    /// State sync looks what is due.
    Sync {
        host: usize,
        life: u64,
    },
    /// A host notices that its link to a validator has come up or ended.
    Linked {
        host: usize,
        life: u64,
        peer: usize,
        up: bool,
    },
    /// A validator that stopped by itself, or by a mishap, starts again.
    Return {
        host: usize,
        life: u64,
    },
    Spontaneous(usize),
    Client,
    Watch,
    Mark,
    Second,
    Fault(Fault),
}

/// How the views of the first rounds are cut up, for systematic exploration: groups of hosts that
/// hear each other's messages of a view. Later views are whole.
pub(crate) type ViewGroups = Vec<Vec<BTreeSet<usize>>>;

/// A running simulation. Host `i` is validator `i`; a twin's second host comes after all of them.
pub struct Simulation {
    pub(crate) scenario: Scenario,
    now: Moment,
    rng: ChaCha8Rng,
    events: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    hosts: Vec<Host>,
    adversaries: BTreeMap<usize, Adversary>,
    chain: Chain,
    network: Network,
    pub(crate) view_groups: Option<ViewGroups>,
    /// When each view was first entered, while views have partitions.
    view_began: BTreeMap<View, Moment>,
    checker: Checker,
    trace: Trace,
    stock: Stock,
    sentenced: BTreeSet<usize>,
    highest: (Epoch, View),
    coverage: Coverage,
    healed: Option<Healed>,
    done: bool,
    /// Events so far.
    step: u64,
    /// The event before which all validators crash, to start again soon.
    pub(crate) crash_all_at: Option<u64>,
    /// The validators that each host blocks for good.
    condemned: Vec<BTreeSet<usize>>,
    recorder: Option<timeline::Recorder>,
    /// The link states that each host was told.
    links: Vec<links::Told>,
    /// The last state sync of each honest host, and those before.
    syncs: BTreeMap<usize, sync::Watched>,
    ended_syncs: Vec<StateSyncTimes>,
    topology: links::Topology,
    /// How long a validator that a mishap stopped stays away.
    away: Duration,
}

/// Since when all is well.
struct Healed {
    at: Moment,
    height: Height,
    first_progress: Option<Duration>,
    recovery: Option<Duration>,
    /// When crashes ended.
    calm: Option<Moment>,
}

impl Simulation {
    /// A world before anything has happened.
    ///
    /// # Panics
    ///
    /// If the scenario has no validators.
    pub fn new(scenario: Scenario) -> Self {
        Self::watched(scenario, false)
    }

    /// As [`Self::new`]; keeps a line for everything that happens if `readable`.
    ///
    /// # Panics
    ///
    /// If the scenario has no validators.
    pub fn watched(scenario: Scenario, readable: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
        let (genesis, committee) = stock::genesis(&scenario);
        let validators = u32::try_from(scenario.validators).expect("few validators");
        let chain_id = genesis.chain_id();
        let authority = Arc::new(Authority::new(
            scenario.cryptography,
            scenario.scheme,
            validators,
            chain_id,
        ));
        let chain = Chain {
            genesis: Arc::new(genesis),
            committee: committee.clone(),
            authority: authority.clone(),
        };
        let mut places: Vec<usize> = scenario.all();
        let twins = scenario.byzantine.iter();
        let twins = twins.filter(|(_, attacks)| attacks.iter().any(|a| a.is_twin()));
        places.extend(twins.map(|(validator, _)| *validator));
        let rows = stock::genesis_rows(&chain);
        let hosts: Vec<Host> = places
            .iter()
            .map(|validator| {
                let host = Host::new(&scenario, &chain, *validator, rng.random());
                host.disk.preload(rows.clone());
                host
            })
            .collect();
        let adversaries = places
            .iter()
            .enumerate()
            .filter_map(|(host, validator)| {
                let attacks = scenario.byzantine.get(validator)?.clone();
                let adversary = Adversary::new(
                    *validator,
                    (scenario.validators, chain.committee.turn()),
                    chain_id,
                    scenario.scheme,
                    attacks,
                    &authority,
                    rng.random(),
                );
                Some((host, adversary))
            })
            .collect();
        let stock = Stock::new(&chain.genesis);
        let byzantine: BTreeSet<usize> = scenario.byzantine.keys().copied().collect();
        let orders = scenario.application == ApplicationKind::OrderOnly;
        let payloads =
            orders.then(|| PayloadChecker::new(committee.clone(), byzantine.clone(), hosts.len()));
        let checker = Checker::new(
            committee,
            byzantine,
            authority,
            hosts.len(),
            (stock::accounts(&chain.genesis), payloads),
        );
        Self {
            network: Network::new(scenario.links.clone()),
            now: Moment(0),
            events: BTreeMap::new(),
            sequence: 0,
            hosts,
            adversaries,
            chain,
            view_groups: None,
            view_began: BTreeMap::new(),
            checker,
            trace: Trace::new(readable),
            stock,
            sentenced: BTreeSet::new(),
            highest: (Epoch(0), View(0)),
            coverage: Coverage::default(),
            healed: None,
            done: false,
            step: 0,
            crash_all_at: None,
            recorder: None,
            links: vec![links::Told::default(); places.len()],
            syncs: BTreeMap::new(),
            ended_syncs: Vec::new(),
            topology: links::Topology::default(),
            condemned: vec![BTreeSet::new(); places.len()],
            away: Duration::from_millis(100),
            rng,
            scenario,
        }
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn run(mut self) -> Result<Report, Violation> {
        self.run_watched(|_, _, _| {})
    }

    /// As [`Self::run`], and tells of the time, the lowest executed height and the lowest epoch
    /// every second as it goes.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn run_watched(
        &mut self,
        watch: impl FnMut(Duration, Height, Epoch),
    ) -> Result<Report, Violation> {
        let seed = self.scenario.seed;
        let played = self.play(watch).and_then(|()| self.at_the_end());
        played.map_err(|what| {
            self.trace
                .line(self.now, 0, What::Note, || format!("VIOLATION: {what}"));
            Violation(format!("seed {seed}, at {} µs: {what}", self.now.0))
        })?;
        Ok(self.report())
    }

    /// The lines of a readable trace.
    pub fn lines(&mut self) -> Vec<Line> {
        self.trace.lines.take().unwrap_or_default()
    }

    /// How many disk operations a validator has done.
    pub fn disk_operations(&self, host: usize) -> u64 {
        self.hosts[host].disk.operations()
    }

    fn report(&mut self) -> Report {
        let honest: Vec<&Host> = self
            .honest_hosts()
            .into_iter()
            .map(|host| &self.hosts[host])
            .filter(|host| host.running.is_some())
            .collect();
        let heights = honest.iter().map(|host| host.height());
        let count = |named: &dyn Fn(&Host) -> Vec<ValidatorIndex>| {
            let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
            for host in &honest {
                let distinct: BTreeSet<usize> =
                    named(host).iter().map(|place| place.as_usize()).collect();
                for validator in distinct {
                    *counts.entry(validator).or_default() += 1;
                }
            }
            counts
        };
        let (epoch, view) = self.highest;
        let mut coverage = self.coverage.clone();
        coverage.lost = self.network.lost;
        coverage.doubled = self.network.doubled;
        coverage.blocks = self.checker.height().0;
        coverage.abandoned = self.checker.abandoned();
        coverage.transactions = self.checker.final_transactions();
        for host in &self.hosts {
            coverage.disk_operations += host.disk.operations();
            coverage.mishaps += host.disk.struck();
        }
        Report {
            highest: heights.clone().max().unwrap_or_default(),
            lowest: heights.min().unwrap_or_default(),
            epoch,
            view,
            trace: self.trace.hash(),
            abandoned: self.checker.abandoned(),
            evidence: count(&|host| {
                let running = host.running.as_ref().expect("running");
                let engine = running.machine.replica.engine();
                engine.evidence().map(|pair| pair.first.signer).collect()
            }),
            blocked: count(&|host| {
                let running = host.running.as_ref().expect("running");
                let engine = running.machine.replica.engine();
                engine.blocked().into_iter().map(|(v, _)| v).collect()
            }),
            probation: count(&|host| {
                let running = host.running.as_ref().expect("running");
                let engine = running.machine.replica.engine();
                engine.on_probation().into_iter().map(|(v, _)| v).collect()
            }),
            sentenced: self.sentenced.clone(),
            first_progress: self
                .healed
                .as_ref()
                .and_then(|healed| healed.first_progress),
            recovery: self.healed.as_ref().and_then(|healed| healed.recovery),
            state_syncs: self.state_syncs(),
            coverage,
        }
    }

    fn play(&mut self, mut watch: impl FnMut(Duration, Height, Epoch)) -> Result<(), String> {
        for (at, fault) in self.scenario.faults.clone() {
            self.plan(at, Event::Fault(fault));
        }
        if let Some(mark) = self.scenario.mark {
            self.plan(mark, Event::Mark);
        }
        for host in 0..self.hosts.len() {
            self.start(host)?;
        }
        let talkers: Vec<usize> = self.adversaries.keys().copied().collect();
        for host in talkers {
            self.plan(self.spontaneous_interval(), Event::Spontaneous(host));
        }
        if self.scenario.transfers_per_second > 0 {
            self.plan(Duration::from_millis(5), Event::Client);
        }
        self.plan(Duration::from_secs(1), Event::Second);
        let end = Moment(0).after(self.scenario.duration);
        while let Some(((at, _), event)) = self.events.pop_first() {
            let over = at > end && !(self.scenario.must_recover && self.healed.is_some());
            if over || self.done {
                break;
            }
            self.now = at;
            self.step += 1;
            if self.crash_all_at == Some(self.step) {
                self.apply_fault(Fault::Crash(self.scenario.all()))?;
                self.plan(
                    RESTART_DELAY,
                    Event::Fault(Fault::Restart(self.scenario.all())),
                );
            }
            if matches!(event, Event::Second) {
                let heights = self.hosts.iter().map(|host| host.height());
                let (epoch, _) = self.highest;
                watch(
                    self.now.since(Moment(0)),
                    heights.min().unwrap_or_default(),
                    epoch,
                );
            }
            self.happen(event)?;
            self.notice_links();
        }
        Ok(())
    }

    fn plan(&mut self, delay: Duration, event: Event) {
        self.plan_at(self.now.after(delay), event);
    }

    fn plan_at(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn spontaneous_interval(&self) -> Duration {
        self.scenario.timing.leader_timeout / SPONTANEOUS_PER_TIMEOUT
    }

    fn honest_hosts(&self) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|host| self.keeps_protocol(*host))
            .collect()
    }

    /// Whether the host's engine behaves, whatever happens to its messages.
    fn keeps_protocol(&self, host: usize) -> bool {
        let attacks = self.scenario.byzantine.get(&self.hosts[host].validator);
        attacks.is_none_or(|attacks| {
            attacks
                .iter()
                .all(|attack| matches!(attack, Attack::Glitch(..)))
        })
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver {
                to,
                from,
                lane,
                bytes,
            } => self.deliver(to, from, lane, bytes),
            Event::Run { host, life, part } => self.run_part(host, life, part),
            Event::HandOver { host, life } => {
                if self.hosts[host].life == life {
                    self.hosts[host].hand_over();
                    self.plan_parts(host);
                }
                Ok(())
            }
            Event::Sync { host, life } => self.tick_sync(host, life),
            Event::Linked {
                host,
                life,
                peer,
                up,
            } => {
                if self.hosts[host].life == life {
                    self.linked(host, peer, up);
                }
                Ok(())
            }
            Event::Return { host, life } => {
                if self.hosts[host].life == life && !self.hosts[host].is_up() {
                    return self.start(host);
                }
                Ok(())
            }
            Event::Spontaneous(host) => {
                self.spontaneous(host);
                self.plan(self.spontaneous_interval(), Event::Spontaneous(host));
                Ok(())
            }
            Event::Client => {
                self.client();
                let interval = Duration::from_secs(1) / self.scenario.transfers_per_second;
                self.plan(interval, Event::Client);
                Ok(())
            }
            Event::Watch => self.watch(),
            Event::Mark => {
                self.mark();
                Ok(())
            }
            Event::Second => {
                self.prune();
                for host in 0..self.hosts.len() {
                    if let Some(running) = &self.hosts[host].running {
                        running.machine.forwarder.forward();
                        self.drain(host)?;
                        self.ask_again(host)?;
                        self.look_how_far(host)?;
                    }
                }
                self.ask_for_proof()?;
                self.plan(Duration::from_secs(1), Event::Second);
                Ok(())
            }
            Event::Fault(fault) => self.apply_fault(fault),
        }
    }

    /// The hosts of these validators, both of a twin's.
    fn hosts_of(&self, validators: &[usize]) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|host| validators.contains(&self.hosts[*host].validator))
            .collect()
    }

    fn plan_parts(&mut self, host: usize) {
        let costs = self.scenario.costs_of(self.hosts[host].validator);
        for part in PARTS {
            let Some(due) = self.hosts[host].due(part, self.now) else {
                continue;
            };
            let late = self.lateness(host, part, due);
            let takes = match part {
                Part::Replica | Part::Crypto | Part::Keeper => Duration::ZERO,
                Part::Executor => costs.execute,
                Part::Validator | Part::Server | Part::Ingest | Part::Payloads => costs.block,
            };
            let busy = self.hosts[host].busy[part as usize];
            let at = due.max(self.now).after(takes + late).max(busy);
            let planned = &mut self.hosts[host].planned[part as usize];
            if planned.is_none_or(|before| at < before) {
                *planned = Some(at);
                let life = self.hosts[host].life;
                self.plan_at(at, Event::Run { host, life, part });
            }
        }
    }

    /// How late a timer fires that is due later than now.
    fn lateness(&mut self, host: usize, part: Part, due: Moment) -> Duration {
        let clock = self.scenario.clocks.get(&self.hosts[host].validator);
        let most = clock.map_or(0, |clock| clock.late.as_micros() as u64);
        if part != Part::Replica || due <= self.now || most == 0 {
            return Duration::ZERO;
        }
        Duration::from_micros(self.rng.random_range(0..=most))
    }

    fn run_part(&mut self, host: usize, life: u64, part: Part) -> Result<(), String> {
        let planned = self.hosts[host].planned[part as usize];
        if self.hosts[host].life != life
            || self.hosts[host].running.is_none()
            || planned != Some(self.now)
        {
            return Ok(());
        }
        self.hosts[host].planned[part as usize] = None;
        let mut seed = [0; 32];
        if part == Part::Crypto {
            self.rng.fill_bytes(&mut seed);
        }
        self.hosts[host].clock.set(self.now);
        let costs = self.scenario.costs_of(self.hosts[host].validator);
        let result = self.hosts[host].run(part, &self.chain.authority, &costs, seed);
        let free = self.hosts[host].clock.world();
        self.hosts[host].busy[part as usize] = free;
        self.trace
            .note(self.now, &[&[part as u8], &host.to_be_bytes()]);
        self.drain(host)?;
        if self.hosts[host].disk.has_crashed() {
            self.trace.line(self.now, host, What::Fault, || {
                format!("host {host} loses its power in the middle of a disk operation")
            });
            self.last_words(host);
            self.hosts[host].crash();
            self.coverage.crashes += 1;
            self.plan_return(host);
            return Ok(());
        }
        if let Err(error) = result {
            if self.hosts[host].disk.may_fail() {
                self.halt(host, &format!("{error:#}"));
                return Ok(());
            }
            return Err(format!("host {host} stops: {error:#}"));
        }
        match part {
            Part::Crypto => {
                let running = self.hosts[host].running.as_ref();
                let takes = running.map_or(Duration::ZERO, |running| running.checking_takes);
                if let (Some(recorder), Some(running)) = (&mut self.recorder, running) {
                    recorder.checked(host, self.now, takes, running.spoiled());
                }
                self.plan(takes, Event::HandOver { host, life });
            }
            Part::Executor => {
                self.executed(host)?;
                self.answer_payload_clients(host)?;
            }
            Part::Payloads => self.answer_payload_clients(host)?,
            Part::Keeper => self.answer_clients(host),
            Part::Replica => {
                if let (Some(recorder), Some(running)) =
                    (&mut self.recorder, &self.hosts[host].running)
                {
                    recorder.looked(host, self.hosts.len(), running, free);
                }
                self.look_at(host)?;
            }
            _ => {}
        }
        self.plan_parts(host);
        Ok(())
    }

    /// Forgets what no checker needs any more, so that a long run's memory is the machines' own.
    fn prune(&mut self) {
        let Some(retention) = self.scenario.retention else {
            return;
        };
        if self.scenario.duration < LONG_RUN {
            return;
        }
        let lowest = self.hosts.iter().map(|host| host.height().0).min();
        let below = Height(lowest.unwrap_or(0).saturating_sub(retention));
        if below.0 == 0 {
            return;
        }
        if self.scenario.snapshot_interval > 0 {
            // Who continues from a snapshot sees old certificates again.
            let oldest = self.chain.genesis.epoch_blocks.epoch_of(below);
            return self.checker.prune(below, oldest.min(self.highest.0));
        }
        self.checker.prune(below, self.highest.0);
        self.chain.authority.forget();
    }
}

/// What the world's clock shows at its start, in milliseconds since 1970.
pub(crate) const GENESIS_MS: u64 = START_MS - 1_000;

/// A disk may have failed by a mishap, or by being full.
impl crate::disk::SimDisk {
    pub(crate) fn may_fail(&self) -> bool {
        self.struck() > 0 || self.is_full()
    }
}
