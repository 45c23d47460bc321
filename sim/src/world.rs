//! The world around the validators: time, links, faults, and the checkers.

use crate::host::{Behaviour, Host};
use commonware_codec::{DecodeExt, Encode};
use quorate_consensus::{
    BuildRequest, Config, Input, Job, JobId, Moment, Outbound, Output, Own, Target, Timing,
    Verdict, Work, Worker,
};
use quorate_crypto::{
    SecretKey,
    bls::{
        AggregateMember, HashedMessage, PartialSignature, Proof, Scheme, SchemeKind, VoteSecret,
        deal,
    },
    sha256,
};
use quorate_types::{
    Block, ChainId, Committee, Digest, Epoch, EpochLength, Evidence, Frame, Header, Height,
    Message, Status, Subject, ValidatorIndex, View, Vote,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const SYNC: Duration = Duration::from_micros(800);
const LINGER: Duration = Duration::from_millis(2);
const CHECK: Duration = Duration::from_micros(900);
const EXECUTE: Duration = Duration::from_millis(3);
const STATUS: Duration = Duration::from_secs(1);
const RANGE_BLOCKS: usize = 64;

/// Something that goes wrong, or right again, at a point in virtual time.
#[derive(Clone, Debug)]
pub enum Fault {
    /// These validators crash.
    Crash(Vec<usize>),
    /// These validators start again from their disks.
    Restart(Vec<usize>),
    /// Validators hear only those of their own group; who is in none hears nobody.
    Partition(Vec<Vec<usize>>),
    /// All hear all.
    Heal,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The source of all chance.
    pub seed: u64,
    /// How many validators.
    pub validators: usize,
    /// Who does not behave.
    pub byzantine: BTreeMap<usize, Behaviour>,
    /// Faults, by when they happen.
    pub faults: Vec<(Duration, Fault)>,
    /// One way, from the first to the second.
    pub latency: (Duration, Duration),
    /// How many of 100 messages are lost.
    pub loss_percent: u32,
    /// How long it lasts.
    pub duration: Duration,
    /// The vote scheme.
    pub scheme: SchemeKind,
    /// How many blocks an epoch has.
    pub epoch_blocks: u64,
    /// How often, of 100 times that a validator enters an epoch, it or (every fifth time) all of
    /// them crash within some milliseconds.
    pub border_crashes_percent: u32,
    /// How long the validators wait for what.
    pub timing: Timing,
    /// How many blocks below the lowest executed height the disks keep; `None` for all.
    pub retention: Option<u64>,
    /// Whether votes leave without waiting for the journal, which is the mistake that the checkers
    /// must notice.
    pub votes_before_sync: bool,
}

/// A rule that was broken. The text names the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The newest final height that any honest validator has executed.
    pub highest: Height,
    /// The newest that all honest validators have executed.
    pub lowest: Height,
    /// The highest view.
    pub view: View,
    /// A hash over everything that happened, in order.
    pub trace: Digest,
    /// Whom honest validators have blocked or put on probation.
    pub sentenced: BTreeSet<usize>,
    /// Of whom honest validators hold evidence, and how many of them.
    pub evidence: BTreeMap<usize, usize>,
    /// Whom the honest validators that run block at the end, and how many of them.
    pub blocked: BTreeMap<usize, usize>,
    /// Who is on probation at the end, likewise.
    pub probation: BTreeMap<usize, usize>,
    /// The highest epoch.
    pub epoch: Epoch,
    /// Crashes of single validators.
    pub crashes: u64,
}

impl Scenario {
    /// A quiet network: 1 to 5 ms, no loss, no faults. The scheme goes with the seed, so that every
    /// test with several seeds runs for both.
    pub fn new(seed: u64, validators: usize, duration: Duration) -> Self {
        Self {
            seed,
            validators,
            byzantine: BTreeMap::new(),
            faults: Vec::new(),
            latency: (Duration::from_millis(1), Duration::from_millis(5)),
            loss_percent: 0,
            duration,
            scheme: if seed.is_multiple_of(2) {
                SchemeKind::BlsThreshold
            } else {
                SchemeKind::BlsAggregate
            },
            epoch_blocks: 1_000_000,
            border_crashes_percent: 0,
            timing: timing(),
            retention: None,
            votes_before_sync: false,
        }
    }

    /// Crashes, restarts and partitions at random in the first two thirds of the time; then all is
    /// healed.
    pub fn with_random_faults(mut self) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0xfa17);
        let end = self.duration * 2 / 3;
        let mut at = Duration::from_millis(200);
        let mut down: BTreeSet<usize> = BTreeSet::new();
        while at < end {
            let victim = rng.random_range(0..self.validators);
            let fault = match rng.random_range(0..6) {
                0 | 1 if down.insert(victim) => Fault::Crash(vec![victim]),
                0..=2 => {
                    down.remove(&victim);
                    Fault::Restart(vec![victim])
                }
                3 => {
                    down.extend(0..self.validators);
                    Fault::Crash((0..self.validators).collect())
                }
                4 => {
                    let (one, other): (Vec<usize>, Vec<usize>) =
                        (0..self.validators).partition(|_| rng.random_bool(0.5));
                    Fault::Partition(vec![one, other])
                }
                _ => Fault::Heal,
            };
            let all_down = matches!(&fault, Fault::Crash(all) if all.len() == self.validators);
            self.faults.push((at, fault));
            if all_down {
                down.clear();
                let soon = at + Duration::from_millis(rng.random_range(1..100));
                self.faults
                    .push((soon, Fault::Restart((0..self.validators).collect())));
            }
            at += Duration::from_millis(rng.random_range(20..600));
        }
        self.faults.push((end, Fault::Heal));
        self.faults
            .push((end, Fault::Restart((0..self.validators).collect())));
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }
}

enum Event {
    Deliver {
        to: usize,
        from: usize,
        bytes: Vec<u8>,
    },
    Tick {
        host: usize,
        life: u64,
    },
    Synced {
        host: usize,
        life: u64,
    },
    Checked {
        host: usize,
        life: u64,
        verdicts: Vec<(JobId, Verdict)>,
    },
    Execute {
        host: usize,
        life: u64,
        blocks: Vec<quorate_consensus::Finalized>,
    },
    Status,
    Fault(Fault),
}

/// A running simulation. Host `i` is validator `i`; a twin's second host comes after all of them.
pub struct Simulation {
    scenario: Scenario,
    now: Moment,
    rng: ChaCha8Rng,
    events: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    hosts: Vec<Host>,
    /// Which validator each host is.
    identity: Vec<usize>,
    groups: Option<Vec<Vec<usize>>>,
    worker: Worker,
    /// Votes as honest machines signed them, and certificates that the curve has confirmed.
    genuine: BTreeSet<(Subject, u32, [u8; 96])>,
    proofs: BTreeMap<Subject, Proof>,
    chain: ChainId,
    trace: Digest,
    /// What honest validators have agreed on.
    agreed: BTreeMap<Height, Digest>,
    /// Every vote that an honest validator has sent, over all its lives.
    sent: BTreeMap<(usize, Epoch, View), Vec<Vote>>,
    sentenced: BTreeSet<usize>,
    crashes: u64,
    secrets: Vec<Arc<VoteSecret>>,
}

impl Simulation {
    /// A world before anything has happened.
    ///
    /// # Panics
    ///
    /// If the scenario has no validators.
    pub fn new(scenario: Scenario) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
        let count = u32::try_from(scenario.validators).expect("few validators");
        let (scheme, secrets) = make_scheme(scenario.scheme, count, &mut rng);
        let identities = (0..scenario.validators)
            .map(|i| SecretKey::from_bytes(&sha256(&[&i.to_be_bytes()]).0).identity())
            .collect();
        let committee = Committee::new(Epoch(0), identities).expect("distinct identities");
        let chain = ChainId(sha256(&[b"simulation"]));
        let mut identity: Vec<usize> = (0..scenario.validators).collect();
        identity.extend(
            scenario
                .byzantine
                .iter()
                .filter(|(_, behaviour)| **behaviour == Behaviour::Twins)
                .map(|(validator, _)| *validator),
        );
        let hosts = identity
            .iter()
            .map(|validator| {
                Host::new(Config {
                    chain,
                    committee: committee.clone(),
                    own: Some(Own {
                        place: ValidatorIndex(*validator as u32),
                        secret: secrets[*validator].clone(),
                    }),
                    epoch_length: EpochLength::new(scenario.epoch_blocks).expect("at least one"),
                    timing: scenario.timing,
                    sentences: Vec::new(),
                    evidence: Vec::new(),
                    pardons: Vec::new(),
                    silent_before: Epoch(0),
                })
            })
            .collect();
        Self {
            worker: Worker::new(chain, scheme),
            now: Moment(0),
            events: BTreeMap::new(),
            sequence: 0,
            hosts,
            identity,
            groups: None,
            genuine: BTreeSet::new(),
            proofs: BTreeMap::new(),
            chain,
            trace: Digest::ZERO,
            agreed: BTreeMap::new(),
            sent: BTreeMap::new(),
            sentenced: BTreeSet::new(),
            crashes: 0,
            secrets,
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

    /// As [`Self::run`], and tells of the time, the lowest executed height and the lowest epoch as
    /// it goes.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn run_watched(
        &mut self,
        watch: impl FnMut(Duration, Height, Epoch),
    ) -> Result<Report, Violation> {
        let seed = self.scenario.seed;
        self.play(watch)
            .map_err(|what| Violation(format!("seed {seed}, at {} µs: {what}", self.now.0)))?;
        let heights: Vec<Height> = self
            .honest_hosts()
            .map(|host| self.hosts[host].disk.height())
            .collect();
        Ok(Report {
            highest: heights.iter().copied().max().unwrap_or_default(),
            lowest: heights.iter().copied().min().unwrap_or_default(),
            view: self
                .hosts
                .iter()
                .filter_map(|host| host.engine.as_ref().map(|engine| engine.view()))
                .max()
                .unwrap_or_default(),
            trace: self.trace,
            evidence: self.count(|host| {
                let evidence = host.disk.evidence.iter();
                evidence.map(|pair| pair.first.signer.as_usize()).collect()
            }),
            blocked: self.count(|host| {
                let engine = host.engine.iter();
                engine
                    .flat_map(|e| e.blocked())
                    .map(|(v, _)| v.as_usize())
                    .collect()
            }),
            probation: self.count(|host| {
                let engine = host.engine.iter();
                engine
                    .flat_map(|e| e.on_probation())
                    .map(|(v, _)| v.as_usize())
                    .collect()
            }),
            epoch: self
                .hosts
                .iter()
                .filter_map(|host| host.engine.as_ref().map(|engine| engine.epoch()))
                .max()
                .unwrap_or_default(),
            crashes: self.crashes,
            sentenced: self.sentenced.clone(),
        })
    }

    /// How many honest hosts name each validator.
    fn count(&self, named: impl Fn(&Host) -> BTreeSet<usize>) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for host in self.honest_hosts() {
            for validator in named(&self.hosts[host]) {
                *counts.entry(validator).or_default() += 1;
            }
        }
        counts
    }

    fn play(&mut self, mut watch: impl FnMut(Duration, Height, Epoch)) -> Result<(), String> {
        for (at, fault) in self.scenario.faults.clone() {
            self.plan(at, Event::Fault(fault));
        }
        self.plan(STATUS, Event::Status);
        for host in 0..self.hosts.len() {
            self.start(host)?;
        }
        let end = Moment(0).after(self.scenario.duration);
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            let status = matches!(event, Event::Status);
            self.happen(event)?;
            if status {
                let height = self.hosts.iter().map(|host| host.disk.height()).min();
                let epochs = self.hosts.iter().filter_map(|host| host.engine.as_ref());
                watch(
                    self.now.since(Moment(0)),
                    height.unwrap_or_default(),
                    epochs
                        .map(|engine| engine.epoch())
                        .min()
                        .unwrap_or_default(),
                );
            }
        }
        Ok(())
    }

    fn plan(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        let at = self.now.after(delay);
        self.events.insert((at, self.sequence), event);
    }

    fn behaviour(&self, host: usize) -> Behaviour {
        let validator = self.identity[host];
        let byzantine = self.scenario.byzantine.get(&validator);
        byzantine.copied().unwrap_or(Behaviour::Honest)
    }

    fn honest_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.hosts.len()).filter(|host| self.keeps_protocol(*host))
    }

    /// Whether the host's machine does what it should, whatever becomes of its signatures.
    fn keeps_protocol(&self, host: usize) -> bool {
        matches!(
            self.behaviour(host),
            Behaviour::Honest | Behaviour::Glitch { .. }
        )
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver { to, from, bytes } => self.deliver(to, from, bytes),
            Event::Tick { host, life } => {
                if self.hosts[host].life == life {
                    self.step(host, Input::Tick)?;
                }
                Ok(())
            }
            Event::Synced { host, life } => {
                if self.hosts[host].life == life && self.hosts[host].engine.is_some() {
                    let votes = self.hosts[host].sync();
                    self.send_votes(host, votes)?;
                }
                Ok(())
            }
            Event::Checked {
                host,
                life,
                verdicts,
            } => {
                for (job, verdict) in verdicts {
                    if self.hosts[host].life == life {
                        self.step(host, Input::Checked { job, verdict })?;
                    }
                }
                Ok(())
            }
            Event::Execute { host, life, blocks } => self.execute(host, life, blocks),
            Event::Status => {
                for host in 0..self.hosts.len() {
                    self.tell_status(host);
                }
                self.plan(STATUS, Event::Status);
                Ok(())
            }
            Event::Fault(fault) => self.befall(fault),
        }
    }

    fn befall(&mut self, fault: Fault) -> Result<(), String> {
        self.note(&[format!("{fault:?}").as_bytes()]);
        match fault {
            Fault::Crash(validators) => {
                for host in 0..self.hosts.len() {
                    if validators.contains(&self.identity[host]) {
                        let unsynced = self.hosts[host].unsynced.len();
                        let kept = self.rng.random_range(0..=unsynced);
                        self.crashes += u64::from(self.hosts[host].engine.is_some());
                        self.hosts[host].crash(kept);
                    }
                }
                Ok(())
            }
            Fault::Restart(validators) => {
                for host in 0..self.hosts.len() {
                    let down = self.hosts[host].engine.is_none();
                    if down && validators.contains(&self.identity[host]) {
                        self.start(host)?;
                    }
                }
                Ok(())
            }
            Fault::Partition(groups) => {
                self.groups = Some(groups);
                Ok(())
            }
            Fault::Heal => {
                self.groups = None;
                Ok(())
            }
        }
    }

    fn start(&mut self, host: usize) -> Result<(), String> {
        let output = self.hosts[host].start(self.now)?;
        self.carry_out(host, output)
    }

    fn deliver(&mut self, to: usize, from: usize, bytes: Vec<u8>) -> Result<(), String> {
        if self.hosts[to].engine.is_none() {
            return Ok(());
        }
        self.note(&[&to.to_be_bytes(), &from.to_be_bytes(), &bytes]);
        let Frame(messages) =
            Frame::decode(bytes).map_err(|error| format!("an honest frame is refused: {error}"))?;
        let sender = self.identity[from];
        let mut protocol = Vec::new();
        for message in messages {
            match message {
                Message::BlockRequest(id) => self.serve_block(to, sender, id),
                Message::RangeRequest(height) => self.serve_range(to, sender, height),
                other => protocol.push(other),
            }
        }
        if protocol.is_empty() {
            return Ok(());
        }
        let from = ValidatorIndex(sender as u32);
        self.step(
            to,
            Input::Frame {
                from,
                messages: protocol,
            },
        )
    }

    fn serve_block(&mut self, host: usize, to: usize, id: Digest) {
        let held = self.hosts[host].engine.as_ref().and_then(|e| e.block(&id));
        let stored = || {
            let blocks = self.hosts[host].disk.blocks.values();
            blocks
                .map(|(block, _)| block)
                .find(|b| b.id() == id)
                .cloned()
        };
        if let Some(block) = held.or_else(stored) {
            self.send(
                host,
                Target::One(ValidatorIndex(to as u32)),
                Message::BlockReply(block),
            );
        }
    }

    fn serve_range(&mut self, host: usize, to: usize, from: Height) {
        let mut blocks = Vec::new();
        let mut finalization = None;
        let mut closed = 0;
        let stored = self.hosts[host].disk.blocks.range(from..);
        let length = self.hosts[host].config.epoch_length;
        for (height, (block, certificate)) in stored.take(RANGE_BLOCKS) {
            blocks.push(block.clone());
            if certificate.is_some() {
                finalization.clone_from(certificate);
                closed = blocks.len();
            }
            if length.is_last(*height) {
                break;
            }
        }
        if closed > 0 {
            blocks.truncate(closed);
        }
        if !blocks.is_empty() {
            let reply = Message::RangeReply {
                blocks,
                finalization,
            };
            self.send(host, Target::One(ValidatorIndex(to as u32)), reply);
        }
    }

    fn tell_status(&mut self, host: usize) {
        let Some(engine) = &self.hosts[host].engine else {
            return;
        };
        let status = Status {
            epoch: engine.epoch(),
            view: engine.view(),
            finalized_height: engine.tip().height,
            executed_height: self.hosts[host].disk.height(),
            convicted: engine.convicted(),
        };
        self.send(host, Target::All, Message::Status(status));
    }

    fn step(&mut self, host: usize, input: Input) -> Result<(), String> {
        let Some(engine) = &mut self.hosts[host].engine else {
            return Ok(());
        };
        let output = engine.step(self.now, input);
        self.carry_out(host, output)
    }

    fn carry_out(&mut self, host: usize, output: Output) -> Result<(), String> {
        let life = self.hosts[host].life;
        if let Some(reason) = output.fatal {
            return Err(format!("host {host} stops: {reason}"));
        }
        self.hosts[host].unsynced.extend(output.persist);
        if !output.jobs.is_empty() {
            let verdicts = output.jobs.into_iter().map(|job| self.work(job)).collect();
            self.plan(
                CHECK,
                Event::Checked {
                    host,
                    life,
                    verdicts,
                },
            );
        }
        for outbound in output.send {
            self.send(host, outbound.to, outbound.message);
        }
        if !output.votes.is_empty() {
            self.hold(host, output.votes, output.urgent)?;
        }
        self.check(host, &output.sentences, &output.evidence)?;
        let disk = &mut self.hosts[host].disk;
        disk.evidence.extend(output.evidence);
        for sentence in output.sentences {
            disk.sentences.insert(sentence.validator, sentence);
        }
        if !output.epochs.is_empty() {
            self.perhaps_crash(host);
        }
        if !output.finalized.is_empty() {
            self.plan(
                EXECUTE,
                Event::Execute {
                    host,
                    life,
                    blocks: output.finalized,
                },
            );
        }
        for request in output.validate {
            self.hosts[host].waiting.push((request.view, request.block));
        }
        if let Some(request) = output.build {
            let view = request.view;
            let block = Arc::new(self.build(host, request));
            self.step(host, Input::Built { view, block })?;
        }
        self.validate(host)?;
        if let Some(engine) = &self.hosts[host].engine
            && let Some(due) = engine.next_deadline()
        {
            let at = due.max(Moment(self.now.0 + 1));
            if self.hosts[host].tick_at != at {
                self.hosts[host].tick_at = at;
                self.sequence += 1;
                self.events
                    .insert((at, self.sequence), Event::Tick { host, life });
            }
        }
        Ok(())
    }

    /// Upon a host's entering an epoch: perhaps it, or all of them, crash about now.
    fn perhaps_crash(&mut self, host: usize) {
        if self.rng.random_range(0..100) >= self.scenario.border_crashes_percent {
            return;
        }
        let victims: Vec<usize> = if self.rng.random_range(0..5) == 0 {
            (0..self.scenario.validators).collect()
        } else {
            vec![self.identity[host]]
        };
        let soon = Duration::from_micros(self.rng.random_range(0..10_000));
        let later = soon + Duration::from_micros(self.rng.random_range(100..60_000));
        self.plan(soon, Event::Fault(Fault::Crash(victims.clone())));
        self.plan(later, Event::Fault(Fault::Restart(victims)));
    }

    fn hold(&mut self, host: usize, votes: Vec<Outbound>, urgent: bool) -> Result<(), String> {
        if self.scenario.votes_before_sync {
            self.send_votes(host, votes.clone())?;
        } else {
            self.hosts[host].held.extend(votes);
        }
        if !self.hosts[host].sync_planned || urgent {
            self.hosts[host].sync_planned = true;
            let life = self.hosts[host].life;
            let delay = if urgent { SYNC } else { LINGER };
            self.plan(delay, Event::Synced { host, life });
        }
        Ok(())
    }

    /// An honest application: it validates a block once it has executed the state it names.
    fn validate(&mut self, host: usize) -> Result<(), String> {
        for (view, block) in std::mem::take(&mut self.hosts[host].waiting) {
            let header = block.header();
            let Some(root) = self.hosts[host].disk.roots.get(&header.executed_height) else {
                self.hosts[host].waiting.push((view, block));
                continue;
            };
            let valid = *root == header.state_root;
            let input = Input::Validated {
                view,
                block: block.id(),
                valid,
            };
            self.step(host, input)?;
        }
        Ok(())
    }

    fn build(&mut self, host: usize, request: BuildRequest) -> Block {
        let parent = request.parent.as_ref().map(|block| *block.header());
        let disk = &self.hosts[host].disk;
        let floor = parent.map_or(Height(0), |header| header.executed_height);
        let (executed_height, state_root) = match parent {
            Some(header) if disk.height() < floor => (header.executed_height, header.state_root),
            _ => (disk.height(), disk.roots[&disk.height()]),
        };
        let before = parent.map_or(0, |header| header.timestamp_ms);
        let header = Header {
            chain: self.chain,
            epoch: request.epoch,
            view: request.view,
            height: parent.map_or(Height(1), |header| header.height.next()),
            parent: request.parent.map_or(Digest::ZERO, |block| block.id()),
            parent_view: request.parent_view,
            // Chance makes twins' blocks differ.
            timestamp_ms: before + self.rng.random_range(1..1_000),
            executed_height,
            state_root,
            body_root: Header::body_root_of(&[]),
        };
        Block::new(header, Vec::new()).expect("an empty block")
    }

    fn execute(
        &mut self,
        host: usize,
        life: u64,
        blocks: Vec<quorate_consensus::Finalized>,
    ) -> Result<(), String> {
        if self.hosts[host].life != life || self.hosts[host].engine.is_none() {
            return Ok(());
        }
        let honest = self.keeps_protocol(host);
        for finalized in blocks {
            let (height, id) = (finalized.block.height(), finalized.block.id());
            if honest {
                let agreed = *self.agreed.entry(height).or_insert(id);
                if agreed != id {
                    return Err(format!("two blocks are final at height {height}"));
                }
            }
            if height > self.hosts[host].disk.height() {
                self.hosts[host].disk.execute(finalized);
            }
        }
        let height = self.hosts[host].disk.height();
        self.prune();
        self.step(host, Input::Executed { height })?;
        self.validate(host)
    }

    /// Forgets what no checker needs any more, so that a long run's memory is the machines' own.
    fn prune(&mut self) {
        let Some(retention) = self.scenario.retention else {
            return;
        };
        let lowest = self.hosts.iter().map(|host| host.disk.height().0).min();
        let below = Height(lowest.unwrap_or(0).saturating_sub(retention));
        if below.0 == 0 || !below.0.is_multiple_of(64) {
            return;
        }
        let epochs = self.hosts.iter().filter_map(|host| host.engine.as_ref());
        let Some(epoch) = epochs.map(|engine| engine.epoch()).min() else {
            return;
        };
        for host in &mut self.hosts {
            host.disk.prune(below);
        }
        self.agreed = self.agreed.split_off(&below);
        self.sent.retain(|(_, of, _), _| of.next() >= epoch);
        self.proofs
            .retain(|subject, _| subject.epoch.next() >= epoch);
        self.genuine
            .retain(|(subject, ..)| subject.epoch.next() >= epoch);
    }

    /// Does a job. What honest validators have signed is known to be valid, so the curve is asked
    /// once per subject; everything else is asked of it always.
    fn work(&mut self, job: Job) -> (JobId, Verdict) {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        if let Work::Certify(batch) = &job.work {
            let subject = batch.subject;
            let all_genuine = batch
                .parts
                .iter()
                .all(|(signer, part)| self.genuine.contains(&(subject, *signer, part.0)));
            if all_genuine && let Some(proof) = self.proofs.get(&subject) {
                return (job.id, Verdict::Certified(Ok(proof.clone())));
            }
            let mut verdicts = self.worker.run(vec![job], seed);
            let (id, verdict) = verdicts.remove(0);
            if let Verdict::Certified(Ok(proof)) = &verdict {
                self.proofs.insert(subject, proof.clone());
            }
            return (id, verdict);
        }
        if let Work::VerifyCertificates(certificates) = &job.work
            && certificates
                .iter()
                .all(|c| self.proofs.get(&c.subject) == Some(&c.proof))
        {
            return (job.id, Verdict::Verified(vec![true; certificates.len()]));
        }
        self.worker.run(vec![job], seed).remove(0)
    }

    fn check(
        &mut self,
        host: usize,
        sentences: &[quorate_consensus::Sentence],
        evidence: &[Evidence],
    ) -> Result<(), String> {
        if !self.keeps_protocol(host) {
            return Ok(());
        }
        for sentence in sentences {
            let validator = sentence.validator.as_usize();
            if !self.scenario.byzantine.contains_key(&validator) {
                return Err(format!("host {host} sentences an honest one: {sentence:?}"));
            }
            self.sentenced.insert(validator);
        }
        for pair in evidence {
            let signer = pair.second.signer.as_usize();
            if !self.scenario.byzantine.contains_key(&signer) {
                return Err(format!("evidence against an honest validator: {pair:?}"));
            }
        }
        Ok(())
    }

    fn send_votes(&mut self, host: usize, votes: Vec<Outbound>) -> Result<(), String> {
        for mut outbound in votes {
            if let Message::Vote(vote) = &mut outbound.message {
                match self.behaviour(host) {
                    Behaviour::Garbage => vote.signature = self.garbage(host, vote),
                    Behaviour::Glitch { from_ms, until_ms }
                        if (from_ms..until_ms).contains(&(self.now.0 / 1_000)) =>
                    {
                        vote.signature = self.garbage(host, vote);
                    }
                    behaviour => {
                        self.genuine
                            .insert((vote.subject, vote.signer.0, vote.signature.0));
                        if self.keeps_protocol(host) {
                            self.check_vote(host, *vote)?;
                        }
                        if behaviour == Behaviour::Equivocator {
                            let second = self.contradict(host, *vote);
                            self.send(host, outbound.to, Message::Vote(second));
                        }
                    }
                }
            }
            self.send(host, outbound.to, outbound.message);
        }
        Ok(())
    }

    /// A valid vote of the same host that conflicts with this one, unless it is a nullify.
    fn contradict(&mut self, host: usize, vote: Vote) -> Vote {
        if vote.subject.kind == quorate_types::VoteKind::Nullify {
            return vote;
        }
        let subject = Subject {
            payload: sha256(&[b"another block", &vote.subject.payload.0]),
            ..vote.subject
        };
        let message = HashedMessage::new(&subject.signed_bytes(&self.chain));
        let signature = self.secrets[self.identity[host]].sign(&message);
        self.genuine.insert((subject, vote.signer.0, signature.0));
        Vote {
            subject,
            signature,
            ..vote
        }
    }

    /// No honest validator ever sends two votes that conflict, over all its lives.
    fn check_vote(&mut self, host: usize, vote: Vote) -> Result<(), String> {
        let votes = self
            .sent
            .entry((host, vote.subject.epoch, vote.subject.view))
            .or_default();
        for earlier in votes.iter() {
            let pair = Evidence {
                first: *earlier,
                second: vote,
            };
            if let Some(conflict) = pair.conflict() {
                return Err(format!(
                    "host {host} contradicts itself: {conflict:?} {pair:?}"
                ));
            }
        }
        if !votes.contains(&vote) {
            votes.push(vote);
        }
        Ok(())
    }

    fn garbage(&mut self, host: usize, vote: &Vote) -> PartialSignature {
        if self.rng.random_bool(0.5) {
            let mut bytes = [0; 96];
            self.rng.fill_bytes(&mut bytes);
            PartialSignature(bytes)
        } else {
            // A point as good as any, but of another message.
            let other = HashedMessage::new(&vote.subject.view.0.to_be_bytes());
            self.secrets[self.identity[host]].sign(&other)
        }
    }

    fn send(&mut self, host: usize, to: Target, message: Message) {
        if self.behaviour(host) == Behaviour::Silent {
            return;
        }
        let bytes = Frame(vec![message]).encode();
        let own = self.identity[host];
        for receiver in 0..self.hosts.len() {
            let validator = self.identity[receiver];
            let addressed = match to {
                Target::All => validator != own,
                Target::One(place) => validator == place.as_usize() && validator != own,
            };
            let connected = self.groups.as_ref().is_none_or(|groups| {
                groups
                    .iter()
                    .any(|group| group.contains(&own) && group.contains(&validator))
            });
            // Each twin talks to its own half of the others, and now and then to the other half,
            // without which nobody would ever see both.
            let other_half = self.behaviour(host) == Behaviour::Twins
                && validator.is_multiple_of(2) != (host < self.scenario.validators)
                && self.rng.random_bool(0.9);
            let lost = self.rng.random_range(0..100) < self.scenario.loss_percent;
            if !addressed || !connected || other_half || lost {
                continue;
            }
            let (least, most) = self.scenario.latency;
            let delay = self.rng.random_range(least.as_micros()..=most.as_micros());
            let delay = Duration::from_micros(u64::try_from(delay).unwrap_or(u64::MAX));
            self.plan(
                delay,
                Event::Deliver {
                    to: receiver,
                    from: host,
                    bytes: bytes.to_vec(),
                },
            );
        }
    }

    fn note(&mut self, parts: &[&[u8]]) {
        let mut all: Vec<&[u8]> = vec![&self.trace.0];
        let now = self.now.0.to_be_bytes();
        all.push(&now);
        all.extend(parts);
        self.trace = sha256(&all);
    }
}

/// Fresh vote keys and the scheme with them.
fn make_scheme(
    kind: SchemeKind,
    validators: u32,
    rng: &mut ChaCha8Rng,
) -> (Scheme, Vec<Arc<VoteSecret>>) {
    let (scheme, secrets) = match kind {
        SchemeKind::BlsThreshold => {
            let (keys, secrets) = deal(validators, rng);
            (Scheme::threshold(&keys), secrets)
        }
        SchemeKind::BlsAggregate => {
            let secrets: Vec<VoteSecret> = (0..validators)
                .map(|_| VoteSecret::random(&mut *rng))
                .collect();
            let members: Vec<AggregateMember> = secrets
                .iter()
                .map(|secret| AggregateMember {
                    identity: [0; 32],
                    key: secret.public_key(),
                    possession: secret.prove_possession("simulation", &[0; 32]),
                })
                .collect();
            (Scheme::aggregate("simulation", &members), secrets)
        }
    };
    let secrets = secrets.into_iter().map(Arc::new).collect();
    (scheme.expect("fresh keys"), secrets)
}

fn timing() -> Timing {
    Timing {
        leader_timeout: Duration::from_millis(100),
        view_timeout: Duration::from_millis(200),
        max_timeout: Duration::from_secs(1),
        resend_interval: Duration::from_millis(100),
        fetch_timeout: Duration::from_millis(50),
    }
}
