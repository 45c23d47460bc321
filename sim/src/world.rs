//! The world around the validators: time, links, faults, clients, and the checkers.

use crate::{
    adversary::{Adversary, Attack, Facts},
    checker::Checker,
    clock::START_MS,
    coverage::Coverage,
    crypto::Authority,
    host::{CHECK_TAKES, Chain, Host, PARTS, Part, Sent, VALIDATE_TAKES, lock},
    network::Network,
    scenario::{Fault, Scenario},
    stock::{self, Stock},
    trace::{Line, Trace, What},
};
use bytes::Bytes;
use commonware_codec::{Copying, DecodeExt};
use quorate_consensus::{
    LOOKAHEAD_VIEWS, MAX_EARLY_MESSAGES, MAX_EVIDENCE_PER_VALIDATOR, MAX_WANTS, Moment, Offence,
    PROPOSAL_LOOKAHEAD_VIEWS,
};
use quorate_p2p::{Lane, To};
use quorate_types::{Digest, Epoch, Frame, Height, Identity, Message, ValidatorIndex, View};
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

/// New blocks that must be final everywhere after healing.
const RECOVERY_BLOCKS: u64 = 3;

/// How long all are down that crash at one event.
const RESTART_DELAY: Duration = Duration::from_millis(30);

/// A rule that was broken. The text names the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// What came of a run.
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
    /// Of whom honest validators hold evidence, and how many of them.
    pub evidence: BTreeMap<usize, usize>,
    /// Whom the honest validators that run block at the end, and how many of them.
    pub blocked: BTreeMap<usize, usize>,
    /// Who is on probation at the end, likewise.
    pub probation: BTreeMap<usize, usize>,
    /// Whom honest validators have blocked or put on probation at any time.
    pub sentenced: BTreeSet<usize>,
    /// From healing until some honest validator had a new final block; `None` if it was not healed.
    pub first_progress: Option<Duration>,
    /// From healing until all honest validators had new final blocks.
    pub recovery: Option<Duration>,
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
    /// Whom each host blocks for good.
    condemned: Vec<BTreeSet<usize>>,
    /// How long a validator that a mishap stopped stays away.
    away: Duration,
}

/// Since when all is well.
struct Healed {
    at: Moment,
    height: Height,
    first_progress: Option<Duration>,
    recovery: Option<Duration>,
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
                    scenario.validators,
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
        let checker = Checker::new(
            committee,
            scenario.byzantine.keys().copied().collect(),
            authority,
            hosts.len(),
            stock::accounts(&chain.genesis),
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
                self.befall(Fault::Crash(self.scenario.all()))?;
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

    /// Whether the host's machine does what it should, whatever becomes of its messages.
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
            Event::Return { host, life } => {
                if self.hosts[host].life == life && self.hosts[host].running.is_none() {
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
                    }
                }
                self.plan(Duration::from_secs(1), Event::Second);
                Ok(())
            }
            Event::Fault(fault) => self.befall(fault),
        }
    }

    fn befall(&mut self, fault: Fault) -> Result<(), String> {
        self.trace
            .note(self.now, &[format!("{fault:?}").as_bytes()]);
        let words = format!("{fault:?}");
        let host = match &fault {
            Fault::Crash(hosts) | Fault::Restart(hosts) => hosts.first().copied(),
            Fault::Disk { validator, .. } | Fault::Full(validator) | Fault::Room(validator) => {
                Some(*validator)
            }
            _ => None,
        };
        self.trace
            .line(self.now, host.unwrap_or(0), What::Fault, || words);
        self.coverage.fault(&fault);
        match fault {
            Fault::Crash(validators) => {
                for host in self.hosts_of(&validators) {
                    if self.hosts[host].running.is_some() {
                        // A process that is killed leaves what it has written to the system; a
                        // power cut does not.
                        if self.rng.random_bool(0.5) {
                            self.hosts[host].crash();
                        } else {
                            self.hosts[host].running = None;
                        }
                        self.coverage.crashes += 1;
                    }
                }
                Ok(())
            }
            Fault::Restart(validators) => {
                for host in self.hosts_of(&validators) {
                    let refuses = self.hosts[host].disk.has_lied() && self.hosts[host].halted;
                    if self.hosts[host].running.is_none() && !refuses {
                        self.start(host)?;
                    }
                }
                Ok(())
            }
            Fault::Disk {
                validator,
                after,
                mishap,
                away,
            } => {
                self.away = away;
                self.hosts[validator].disk.plan(after, mishap);
                Ok(())
            }
            Fault::Full(validator) => {
                self.hosts[validator].disk.set_full(true);
                Ok(())
            }
            Fault::Room(validator) => {
                self.hosts[validator].disk.set_full(false);
                if self.hosts[validator].running.is_none() {
                    return self.start(validator);
                }
                Ok(())
            }
            Fault::Partition(groups) => {
                let groups = groups.into_iter().map(|group| group.into_iter().collect());
                self.network.groups = Some(groups.collect());
                Ok(())
            }
            Fault::Cut(from, to) => {
                self.network.cut.insert((from, to));
                Ok(())
            }
            Fault::Join => {
                self.network.groups = None;
                self.network.cut.clear();
                Ok(())
            }
            Fault::Heal => self.heal(),
        }
    }

    fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        for host in 0..self.hosts.len() {
            self.hosts[host].disk.cancel();
            self.hosts[host].disk.set_full(false);
            if self.hosts[host].running.is_none() {
                self.start(host)?;
            }
        }
        self.mark();
        if self.scenario.must_recover {
            self.plan(WATCH, Event::Watch);
        }
        Ok(())
    }

    /// From now on the time to the next final block is measured.
    fn mark(&mut self) {
        self.healed = Some(Healed {
            at: self.now,
            height: self.checker.height(),
            first_progress: None,
            recovery: None,
        });
    }

    /// The hosts of these validators, both of a twin's.
    fn hosts_of(&self, validators: &[usize]) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|host| validators.contains(&self.hosts[*host].validator))
            .collect()
    }

    fn start(&mut self, host: usize) -> Result<(), String> {
        let (now, scenario) = (self.now, &self.scenario);
        let started = self.hosts[host].start(scenario, &self.chain, now);
        self.trace.note(now, &[b"start", &host.to_be_bytes()]);
        if self.hosts[host].disk.has_crashed() {
            // The power went while it started.
            self.hosts[host].crash();
            self.coverage.crashes += 1;
            self.plan_return(host);
            return Ok(());
        }
        match started {
            Ok(()) => {
                self.coverage.starts += 1;
                let words = || format!("host {host} starts");
                self.trace.line(now, host, What::Fault, words);
                if self.keeps_protocol(host) {
                    for (path, offset, bytes) in self.hosts[host].disk.whole() {
                        self.checker.durable(host, &path, offset, &bytes);
                    }
                }
                self.drain(host)?;
                if self.keeps_protocol(host) {
                    let height = self.hosts[host].height();
                    self.checker.restarted(host, height)?;
                    self.still_condemned(host)?;
                    self.executed(host)?;
                }
                self.plan_parts(host);
                Ok(())
            }
            Err(reason) if self.hosts[host].disk.may_fail() => {
                self.halt(host, &reason);
                Ok(())
            }
            Err(reason) => Err(format!("host {host} does not start: {reason}")),
        }
    }

    /// A validator has stopped because its disk failed. Its operator starts it again.
    fn halt(&mut self, host: usize, reason: &str) {
        let reason = reason.to_owned();
        self.trace.line(self.now, host, What::Fault, || {
            format!("host {host} halts: {reason}")
        });
        self.coverage.halts += 1;
        self.hosts[host].running = None;
        self.hosts[host].halted = true;
        self.plan_return(host);
    }

    fn plan_return(&mut self, host: usize) {
        let life = self.hosts[host].life;
        self.plan(self.away, Event::Return { host, life });
    }

    fn plan_parts(&mut self, host: usize) {
        for part in PARTS {
            let Some(due) = self.hosts[host].due(part, self.now) else {
                continue;
            };
            let late = self.lateness(host, part, due);
            let takes = match part {
                Part::Replica | Part::Crypto => Duration::ZERO,
                Part::Validator | Part::Executor | Part::Server | Part::Ingest => VALIDATE_TAKES,
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
        let result = self.hosts[host].run(part, &self.chain.authority, seed);
        let free = self.hosts[host].clock.world();
        self.hosts[host].busy[part as usize] = free;
        self.trace
            .note(self.now, &[&[part as u8], &host.to_be_bytes()]);
        self.drain(host)?;
        if self.hosts[host].disk.has_crashed() {
            self.trace.line(self.now, host, What::Fault, || {
                format!("host {host} loses its power in the middle of a disk operation")
            });
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
            Part::Crypto => self.plan(CHECK_TAKES, Event::HandOver { host, life }),
            Part::Executor => self.executed(host)?,
            Part::Replica => self.look_at(host)?,
            _ => {}
        }
        self.plan_parts(host);
        Ok(())
    }

    /// After a replica has run: what it has become, and whether it keeps its bounds.
    fn look_at(&mut self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let engine = running.machine.replica.engine();
        let at = (engine.epoch(), engine.view());
        if self.view_groups.is_some() {
            self.view_began.entry(at.1).or_insert(self.now);
        }
        let bisected = engine.counters().bisected;
        let fresh = bisected - running.bisected.min(bisected);
        let blamed: Vec<usize> = engine
            .blocked()
            .into_iter()
            .chain(engine.on_probation())
            .map(|(validator, _)| validator.as_usize())
            .collect();
        let condemned = engine.blocked().into_iter();
        let condemned: Vec<usize> = condemned
            .filter(|(_, offence)| *offence == Offence::Equivocation)
            .map(|(validator, _)| validator.as_usize())
            .collect();
        let convicted = engine.evidence().count();
        let holdings = engine.holdings();
        let entered = running.epoch;
        let waiting = running.machine.events.len();
        if let Some(running) = &mut self.hosts[host].running {
            running.bisected = bisected;
            running.epoch = at.0;
        }
        if at > self.highest {
            let (epoch, view) = self.highest;
            let more = if at.0 == epoch {
                at.1.0 - view.0
            } else {
                at.1.0
            };
            self.coverage.views += more;
            self.coverage.epochs += at.0.0 - epoch.0;
            self.highest = at;
        }
        if at.0 > entered {
            self.perhaps_crash(host);
        }
        self.trace.line(self.now, host, What::Entered, || {
            format!("view {}.{}", at.0, at.1)
        });
        if !self.keeps_protocol(host) {
            return Ok(());
        }
        self.condemned[host].extend(condemned);
        self.coverage.bisections += fresh;
        self.coverage.evidence = self.coverage.evidence.max(convicted as u64);
        if fresh > 0 && blamed.is_empty() {
            return Err(format!("host {host} found invalid votes and blames nobody"));
        }
        for validator in blamed {
            if self.scenario.is_honest(validator) {
                return Err(format!("host {host} blames honest validator {validator}"));
            }
            if self.sentenced.insert(validator) {
                self.trace.line(self.now, host, What::Blamed, || {
                    format!("host {host} blames {validator}")
                });
            }
        }
        let size = self.scenario.validators;
        let bounds = [
            (
                "views ahead",
                holdings.rounds_ahead,
                LOOKAHEAD_VIEWS as usize + 1,
            ),
            (
                "proposals ahead",
                holdings.proposals_ahead,
                PROPOSAL_LOOKAHEAD_VIEWS as usize,
            ),
            ("early messages", holdings.early, MAX_EARLY_MESSAGES * size),
            ("requests", holdings.wants, MAX_WANTS),
            ("staged blocks", holdings.staged, 1_024),
            ("checks", holdings.jobs, 12 * size + 100),
            (
                "evidence",
                holdings.evidence,
                MAX_EVIDENCE_PER_VALIDATOR * size,
            ),
            ("waiting events", waiting, 2_100 * size),
        ];
        for (what, held, limit) in bounds {
            if held > limit {
                return Err(format!(
                    "host {host} holds {held} {what}, more than {limit}"
                ));
            }
        }
        Ok(())
    }

    /// Whoever was blocked for a proven equivocation still is after a restart.
    fn still_condemned(&self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let blocked = running.machine.replica.engine().blocked();
        for validator in &self.condemned[host] {
            if !blocked
                .iter()
                .any(|(held, _)| held.as_usize() == *validator)
            {
                return Err(format!(
                    "host {host} has forgotten that it blocks equivocator {validator}"
                ));
            }
        }
        Ok(())
    }

    /// Upon a host's entering an epoch: perhaps it, or all of them, crash about now.
    fn perhaps_crash(&mut self, host: usize) {
        let percent = self.scenario.border_crashes_percent;
        if percent == 0 || self.rng.random_range(0..100) >= percent {
            return;
        }
        let victims: Vec<usize> = if self.rng.random_range(0..5) == 0 {
            self.scenario.all()
        } else {
            vec![self.hosts[host].validator]
        };
        let soon = Duration::from_micros(self.rng.random_range(0..10_000));
        let later = soon + Duration::from_micros(self.rng.random_range(100..60_000));
        self.plan(soon, Event::Fault(Fault::Crash(victims.clone())));
        self.plan(later, Event::Fault(Fault::Restart(victims)));
    }

    /// Checks what a host has newly executed.
    fn executed(&mut self, host: usize) -> Result<(), String> {
        if !self.keeps_protocol(host) {
            return Ok(());
        }
        let Some(running) = &self.hosts[host].running else {
            return Ok(());
        };
        let store = running.store.clone();
        let (from, to) = (self.checker.told(host).next(), store.tip().height);
        for height in (from.0..=to.0).map(Height) {
            let stored = store.block(height).map_err(|error| error.to_string())?;
            let root = store.root(height).map_err(|error| error.to_string())?;
            let (Some(stored), Some(root)) = (stored, root) else {
                return Err(format!("host {host} has executed {height:?} and lacks it"));
            };
            if let Some(certificate) = &stored.certificate {
                self.checker.certificate(host, certificate)?;
            }
            self.checker.executed(host, &stored.block, root)?;
            self.trace.line(self.now, host, What::Executed, || {
                format!("executes {} {}", height, stored.block.id().short())
            });
        }
        if to >= from {
            self.progressed();
            self.done |= self.goal_is_reached();
        }
        Ok(())
    }

    fn goal_is_reached(&self) -> bool {
        let Some(goal) = self.scenario.goal else {
            return false;
        };
        let honest = self.honest_hosts();
        honest
            .iter()
            .all(|host| self.checker.told(*host) >= Height(goal))
    }

    fn progressed(&mut self) {
        let height = self.checker.height();
        if let Some(healed) = &mut self.healed
            && healed.first_progress.is_none()
            && height > healed.height
        {
            healed.first_progress = Some(self.now.since(healed.at));
        }
    }

    /// Looks whether the validators have recovered, and whether it has taken too long.
    fn watch(&mut self) -> Result<(), String> {
        // Whoever broke and healed may still be blocked, which is as it should be; those who never
        // broke must go on all the same.
        let mut honest = self.honest_hosts();
        honest.retain(|host| self.scenario.is_honest(self.hosts[*host].validator));
        let Some(healed) = &mut self.healed else {
            return Ok(());
        };
        let goal = Height(healed.height.0 + RECOVERY_BLOCKS);
        let since = self.now.since(healed.at);
        let all_there = honest
            .iter()
            .all(|host| self.hosts[*host].running.is_some() && self.checker.told(*host) >= goal);
        if all_there && healed.recovery.is_none() {
            healed.recovery = Some(since);
        }
        if all_there && self.evidence_is_known() {
            self.done = true;
            return Ok(());
        }
        if since > self.scenario.patience() {
            let told: Vec<u64> = honest.iter().map(|h| self.checker.told(*h).0).collect();
            let what = if all_there {
                "evidence that one honest validator holds is not known, or not acted upon, at all"
            } else {
                "no progress"
            };
            return Err(format!(
                "{what} {since:?} after healing at height {}: honest validators are at {told:?}",
                goal.0 - RECOVERY_BLOCKS
            ));
        }
        self.plan(WATCH, Event::Watch);
        Ok(())
    }

    /// Whether all honest validators hold evidence against, and block, whomever one of them holds
    /// evidence against.
    fn evidence_is_known(&self) -> bool {
        let mut convicted: BTreeSet<ValidatorIndex> = BTreeSet::new();
        let running: Vec<_> = self
            .honest_hosts()
            .into_iter()
            .filter(|host| self.scenario.is_honest(self.hosts[*host].validator))
            .filter_map(|host| self.hosts[host].running.as_ref())
            .map(|running| running.machine.replica.engine())
            .collect();
        for engine in &running {
            convicted.extend(engine.evidence().map(|pair| pair.first.signer));
        }
        running.iter().all(|engine| {
            let held: BTreeSet<_> = engine.evidence().map(|pair| pair.first.signer).collect();
            let blocked: BTreeSet<_> = engine.blocked().into_iter().map(|(v, _)| v).collect();
            held == convicted && blocked.is_superset(&convicted)
        })
    }

    /// What is checked when the run is over.
    fn at_the_end(&mut self) -> Result<(), String> {
        if self.scenario.goal.is_some() && !self.goal_is_reached() {
            let honest = self.honest_hosts();
            let told: Vec<u64> = honest.iter().map(|h| self.checker.told(*h).0).collect();
            return Err(format!("honest validators are only at {told:?} at the end"));
        }
        for host in self.honest_hosts() {
            let Some(running) = &self.hosts[host].running else {
                continue;
            };
            if running.store.tip().height != self.checker.height() {
                continue;
            }
            for (identity, expected) in self.checker.accounts() {
                let held = running.store.account(identity);
                let held = held.map_err(|error| error.to_string())?.unwrap_or_default();
                if held != *expected {
                    return Err(format!(
                        "host {host} holds {held:?} for {identity}, the blocks make {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Sends what a host has said.
    fn drain(&mut self, host: usize) -> Result<(), String> {
        let sent = std::mem::take(&mut lock(&self.hosts[host].outbox).sent);
        let news = self.hosts[host].disk.news();
        let honest = self.keeps_protocol(host);
        if honest {
            for (path, offset, bytes) in &news {
                self.checker.durable(host, path, *offset, bytes);
            }
        }
        for Sent {
            at,
            lane,
            to,
            bytes,
        } in sent
        {
            let receivers = self.receivers(host, &to);
            if lane == Lane::Votes {
                self.hosts[host].has_voted = true;
            }
            if honest {
                self.checker.sent(host, &bytes)?;
            }
            if self.adversaries.contains_key(&host) {
                let facts = self.facts(host);
                let adversary = self.adversaries.get_mut(&host).expect("just seen");
                for parcel in adversary.pass(&facts, lane, &receivers, &bytes) {
                    let bytes = Bytes::from(parcel.bytes);
                    self.carry(host, parcel.to, lane, bytes, at.after(parcel.delay));
                }
            } else {
                for receiver in receivers {
                    self.carry(host, receiver, lane, bytes.clone(), at);
                }
            }
        }
        Ok(())
    }

    fn facts(&self, host: usize) -> Facts {
        let (epoch, view) = match &self.hosts[host].running {
            Some(running) => {
                let engine = running.machine.replica.engine();
                (engine.epoch(), engine.view())
            }
            None => self.highest,
        };
        Facts {
            now_ms: self.now.0 / 1_000,
            epoch,
            view,
            leader_timeout: self.scenario.timing.leader_timeout,
            second: host >= self.scenario.validators,
        }
    }

    fn spontaneous(&mut self, host: usize) {
        if self.hosts[host].running.is_none() {
            return;
        }
        let facts = self.facts(host);
        let Some(adversary) = self.adversaries.get_mut(&host) else {
            return;
        };
        for parcel in adversary.spontaneous(&facts) {
            let bytes = Bytes::from(parcel.bytes);
            self.carry(host, parcel.to, parcel.lane, bytes, self.now);
        }
    }

    fn receivers(&self, host: usize, to: &To) -> Vec<usize> {
        let own = self.hosts[host].validator;
        let place = |identity: &Identity| {
            let place = self.chain.committee.place(identity)?;
            Some(place.as_usize())
        };
        let receivers: Vec<usize> = match to {
            To::All => self.scenario.all(),
            To::One(identity) => place(identity).into_iter().collect(),
            To::Some(identities) => identities.iter().filter_map(place).collect(),
        };
        receivers.into_iter().filter(|v| *v != own).collect()
    }

    /// Whether a validator refuses a link.
    fn refuses(&self, host: usize, other: usize) -> bool {
        let place = ValidatorIndex(other as u32);
        let Some(identity) = self.chain.committee.identity(place) else {
            return false;
        };
        let outbox = lock(&self.hosts[host].outbox);
        outbox.cuts.get(&identity).is_some_and(|u| *u > self.now)
    }

    /// Gives a frame to the network, for all hosts of a validator.
    fn carry(&mut self, from: usize, to: usize, lane: Lane, bytes: Bytes, at: Moment) {
        if self.refuses(from, to) {
            return;
        }
        for target in self.hosts_of(&[to]) {
            if self.hosts[target].validator == self.hosts[from].validator
                || !self.hear_each_other(from, target, &bytes)
            {
                continue;
            }
            let arrivals = self
                .network
                .carry(&mut self.rng, at, (from, target), lane, bytes.len());
            for arrival in arrivals {
                let arrives_us = arrival.0;
                let sent = What::Sent {
                    to: target,
                    arrives_us,
                };
                self.trace.line(self.now, from, sent, || describe(&bytes));
                self.plan_at(
                    arrival,
                    Event::Deliver {
                        to: target,
                        from,
                        lane,
                        bytes: bytes.clone(),
                    },
                );
            }
        }
    }

    /// Whether the views' own partition lets a frame through.
    fn hear_each_other(&self, from: usize, to: usize, bytes: &Bytes) -> bool {
        let Some(view_groups) = &self.view_groups else {
            return true;
        };
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes.as_ref())) else {
            return true;
        };
        let Some(view) = messages.iter().filter_map(view_of).max() else {
            return true;
        };
        // A partition that never ended would end the view's life, not the protocol's.
        let began = self.view_began.get(&view).copied().unwrap_or(self.now);
        if self.now.since(began) > self.scenario.timing.view_timeout * 5 / 4 {
            return true;
        }
        let index = usize::try_from(view.0.saturating_sub(1)).unwrap_or(usize::MAX);
        view_groups.get(index).is_none_or(|groups| {
            let mut groups = groups.iter();
            groups.any(|group| group.contains(&from) && group.contains(&to))
        })
    }

    fn deliver(&mut self, to: usize, from: usize, lane: Lane, bytes: Bytes) -> Result<(), String> {
        let sender = self.hosts[from].validator;
        if self.hosts[to].running.is_none() || self.refuses(to, sender) {
            return Ok(());
        }
        self.trace
            .note(self.now, &[&to.to_be_bytes(), &from.to_be_bytes(), &bytes]);
        if let Some(adversary) = self.adversaries.get_mut(&to) {
            adversary.overhears(lane, &bytes);
        }
        let place = ValidatorIndex(sender as u32);
        let identity = self.chain.committee.identity(place).expect("a member");
        if let Some(running) = &self.hosts[to].running {
            running.machine.inlet.receive(identity, lane, bytes);
        }
        self.coverage.frames += 1;
        self.plan_parts(to);
        Ok(())
    }

    /// A client hands a transfer to some validator.
    fn client(&mut self) {
        let host = self.rng.random_range(0..self.scenario.validators);
        let Some(running) = &self.hosts[host].running else {
            return;
        };
        let chain = self.chain.genesis.chain_id();
        if let Some(transaction) = self.stock.next(host, &chain, &running.store) {
            let sender = transaction.transfer().sender;
            let account = running.store.account(&sender).ok().flatten();
            let account = account.unwrap_or_default();
            // A refusal is the client's to deal with: the stock looks at the account again.
            let _ = running
                .machine
                .mempool
                .submit(transaction, account.nonce, account.balance);
            self.checker.submitted(&transaction);
            self.hosts[host].clock.set(self.now);
            if let Some(running) = &self.hosts[host].running {
                running.machine.forwarder.forward();
            }
            // Forwarded transactions are no votes: nothing here can be a violation.
            let _ = self.drain(host);
        }
    }

    /// Forgets what no checker needs any more, so that a long run's memory is the machines' own.
    fn prune(&mut self) {
        let Some(retention) = self.scenario.retention else {
            return;
        };
        let lowest = self.hosts.iter().map(|host| host.height().0).min();
        let below = Height(lowest.unwrap_or(0).saturating_sub(retention));
        if below.0 == 0 {
            return;
        }
        self.checker.prune(below, self.highest.0);
        self.chain.authority.forget();
    }
}

/// The view that a message belongs to, if it belongs to one.
fn view_of(message: &Message) -> Option<View> {
    match message {
        Message::Proposal(proposal) => Some(proposal.view),
        Message::Vote(vote) => Some(vote.subject.view),
        Message::Certificate(certificate) => Some(certificate.subject.view),
        _ => None,
    }
}

/// A frame in a few words.
fn describe(bytes: &[u8]) -> String {
    let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
        return format!("{} bytes that are no frame", bytes.len());
    };
    let words = messages.iter().map(|message| match message {
        Message::Vote(vote) => format!("{:?}", vote.subject),
        Message::Certificate(certificate) => format!("{:?}", certificate.subject),
        Message::Proposal(proposal) => format!(
            "proposal {:?} {} on {}",
            proposal.view,
            proposal.block.id().short(),
            proposal.block.header().parent.short()
        ),
        other => other.name().to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// What the world's clock shows at its start, in milliseconds since 1970.
pub(crate) const GENESIS_MS: u64 = START_MS - 1_000;

/// A disk may have failed by a mishap, or by being full.
impl crate::disk::SimDisk {
    pub(crate) fn may_fail(&self) -> bool {
        self.struck() > 0 || self.is_full()
    }
}
