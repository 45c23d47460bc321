//! The replica: the one thread that owns the consensus engine and the vote journal.
//!
//! It takes events, steps the engine, and carries out the output in the order that
//! [`quorate_consensus::Output`] documents. Everything slow is elsewhere: cryptography on the pool,
//! block checks on the validator, execution on the executor, sockets on the runtime. The only thing
//! that it waits for is the journal's sync.
//!
//! *One sync serves many steps.* All waiting events are taken before the journal is synced once for
//! the votes of all of them. A finalize vote alone can wait [`ReplicaConfig::finalize_linger`] for
//! the next view's notarize vote; then the two share the sync, the frame, and often the receivers'
//! pairing check.
//!
//! *Proposals leave before the journal's sync, the leader's vote after it.* A leader that crashes
//! in between may propose another block in the same view. Nobody counts that against it.
//!
//! *By default no vote waits for another.* A `finalize_linger` saves a tenth of the CPU time where
//! validators are less than a millisecond apart. It is useless where they are farther apart
//! (`docs/BENCH.md` has both).

mod building;
mod event;
mod penalties;
mod report;

pub use event::{Cut, Cutter, Event, Ordered};

use crate::{
    across::Across,
    clock::{self, Clock, ClockWatch},
    conduct::Conduct,
    evidence::EvidenceFolder,
    executor::ExecutorHandle,
    forecast::Forecast,
    live::LiveStatus,
    machine::{KeptJournal, Predecessor, SeenVotes},
    mempool::Mempool,
    metrics::NodeMetrics,
    offenders::Offenders,
    outlet::{Outlet, Wire},
    payloads::Payloads,
    serve::{Request, Requests},
    voting,
};
use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use quorate_consensus::{
    BuildRequest, Engine, Finalized, Input, Job, Moment, Outbound, Output, ValidateRequest,
};
use quorate_crypto::bls::Proof;

use quorate_storage::journal::Journal;
use quorate_types::{
    ChainId, Committees, Digest, Epoch, Message, Record, ValidatorIndex, View, VoteKind,
    genesis::BlockLimits,
};
use std::{
    collections::{HashMap, VecDeque},
    iter,
    sync::Arc,
    time::Duration,
};

use tracing::{debug, info};

/// Most events taken before the journal is synced.
const MAX_EVENTS_PER_SYNC: usize = 256;

/// Most blocks that become final at once when none is fetched.
const MAX_FINAL_AT_ONCE: usize = 8;

/// The replica's settings.
pub(crate) struct ReplicaConfig {
    pub(crate) chain: ChainId,
    pub(crate) committees: Committees,
    pub(crate) limits: BlockLimits,
    /// The genesis time, in milliseconds since 1970.
    pub(crate) genesis_ms: u64,
    /// How long a finalize vote waits for the next notarize vote.
    pub(crate) finalize_linger: Duration,
    /// The least time between a parent's timestamp and its child's.
    pub(crate) min_block_interval: Duration,
    /// How long a leader waits at most for transactions; zero for not at all.
    pub(crate) idle_interval: Duration,
    /// How long a penalty for something unproven lasts.
    pub(crate) penalty_lasts: Duration,
}

/// The threads and handles around the replica.
pub(crate) struct Neighbours {
    /// On a chain that only orders.
    pub(crate) payloads: Option<Arc<Payloads>>,
    pub(crate) outlet: Outlet,
    pub(crate) wire: Wire,
    pub(crate) jobs: Sender<Vec<Job>>,
    pub(crate) validator: Sender<ValidateRequest>,
    pub(crate) requests: Requests,
    pub(crate) executor: ExecutorHandle,
    pub(crate) forecast: Arc<Forecast>,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) live: Arc<LiveStatus>,
    /// Cuts the link to a blocked validator for a while, or allows it again.
    pub(crate) cut: Cutter,
    pub(crate) across: Arc<Across>,
    pub(crate) conduct: Arc<Conduct>,
    pub(crate) offenders: Offenders,
    pub(crate) evidence: EvidenceFolder,
    pub(crate) clock: Arc<dyn Clock>,
}

pub struct Replica {
    config: ReplicaConfig,
    engine: Engine,
    journal: Journal,
    around: Neighbours,
    /// Votes that wait for the journal's sync.
    votes: Vec<Outbound>,
    urgent: bool,
    linger_until: Option<Moment>,
    /// A block to build, and the earliest time for it.
    build: Option<(Moment, BuildRequest)>,
    /// What the engine was last told about whether a block is needed.
    pending: bool,
    proposed: HashMap<Digest, Moment>,
    timed: VecDeque<Digest>,
    last_final: Option<Moment>,
    next_status: Moment,
    /// When a held status leaves without votes.
    status_leaves: Option<Moment>,
    /// When the links of blocked validators are cut again.
    next_cut: Moment,
    /// The order that is being carried out.
    ordered: Option<Option<Duration>>,
    clock: ClockWatch,
    shown: voting::Shown,
    /// The epoch with which this replica's work is done.
    ended: Option<Epoch>,
    /// When an invalid block was last logged, and how many have come since.
    invalid: (Option<Moment>, u64),
    /// The epoch and view of the last report.
    reported: (Epoch, View),
    /// When it was last logged that the leader was changed.
    leader_told: Option<Moment>,
    /// Where the engine leaves what it has seen.
    seen: SeenVotes,
}

impl Replica {
    pub(crate) fn new(
        config: ReplicaConfig,
        engine: Engine,
        journal: Journal,
        around: Neighbours,
        seen: SeenVotes,
    ) -> Self {
        let start = around.clock.now();
        let voices = clock::voices_needed(config.committees.known());
        Self {
            config,
            engine,
            journal,
            around,
            votes: Vec::new(),
            urgent: false,
            linger_until: None,
            build: None,
            pending: true,
            proposed: HashMap::new(),
            timed: VecDeque::new(),
            last_final: None,
            next_status: start,
            status_leaves: None,
            next_cut: start,
            ordered: None,
            clock: ClockWatch::new(voices),
            shown: voting::Shown::default(),
            ended: None,
            invalid: (None, 0),
            reported: (Epoch(0), View(0)),
            leader_told: None,
            seen,
        }
    }

    /// The epoch that is over and executed, if the next one has other validators: another replica has to
    /// take over.
    pub fn ended(&self) -> Option<Epoch> {
        self.ended
    }

    /// Runs until [`Event::Stop`], until its work is done ([`Self::ended`]), or until going on would be
    /// unsafe. If its work is done, returns what the next one should know.
    ///
    /// # Errors
    ///
    /// If the journal fails, another thread has ended, or the engine says that it must stop.
    pub fn run(
        mut self,
        first: Output,
        events: Receiver<Event>,
    ) -> anyhow::Result<Option<(Predecessor, KeptJournal)>> {
        self.begin(first)?;
        loop {
            self.settle()?;
            if self.ended.is_some() {
                let before = self.left();
                return Ok(Some((before, self.stop()?)));
            }
            let wait = self.wake_at().since(self.now());
            match events.recv_timeout(wait) {
                Ok(event) => {
                    if !self.take_all(iter::once(event).chain(events.try_iter()))? {
                        self.stop()?;
                        return Ok(None);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.tick()?,
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all senders are gone"),
            }
        }
    }

    /// Carries out the engine's first output.
    ///
    /// # Errors
    ///
    /// As for [`Self::settle`].
    pub fn begin(&mut self, first: Output) -> anyhow::Result<()> {
        // Waiting for links, for instance, does not count as lateness.
        self.next_status = self.now();
        self.carry_out(first)?;
        self.show_offenders();
        self.show_evidence();
        Ok(())
    }

    /// Takes as many events as may share one sync. Returns whether to go on.
    ///
    /// # Errors
    ///
    /// As for [`Self::settle`].
    pub fn take_all(&mut self, events: impl Iterator<Item = Event>) -> anyhow::Result<bool> {
        for event in events.take(MAX_EVENTS_PER_SYNC) {
            if matches!(event, Event::Stop) {
                return Ok(false);
            }
            self.take(event)?;
        }
        Ok(true)
    }

    /// Does what is due after events: building a block, syncing the journal and sending the votes
    /// that wait for it, and publishing the state.
    ///
    /// # Errors
    ///
    /// If the journal fails, another thread has ended, or the engine says that it must stop.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.look_for_work()?;
        self.build_if_due()?;
        self.release_if_due()?;
        self.report()
    }

    /// Steps the engine because time has passed.
    ///
    /// # Errors
    ///
    /// As for [`Self::settle`].
    pub fn tick(&mut self) -> anyhow::Result<()> {
        self.step(Input::Tick)
    }

    /// What the next replica of this process should know.
    pub fn left(&self) -> Predecessor {
        Predecessor {
            voted: self.engine.can_be_followed(),
        }
    }

    /// What the engine has seen of the others' votes, once it has ended.
    pub(crate) fn seen(&self) -> SeenVotes {
        self.seen.clone()
    }

    /// The engine, for observers.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Sends the votes that wait. Returns the journal, for the parts of this process that come next.
    ///
    /// # Errors
    ///
    /// If the journal fails.
    pub fn stop(mut self) -> anyhow::Result<KeptJournal> {
        let votes = std::mem::take(&mut self.votes);
        let durable = self.journal.release(votes).context("vote journal")?;
        self.around.outlet.send_votes(durable);
        self.seen.keep(self.engine.seen());
        Ok(KeptJournal {
            records: self.engine.checkpoint(),
            fresh: self.engine.key_is_fresh(),
            journal: self.journal,
        })
    }

    fn now(&self) -> Moment {
        self.around.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        self.around.clock.wall_ms()
    }

    /// When something is due if no event comes before.
    pub fn wake_at(&self) -> Moment {
        let build = self.build.as_ref().map(|(due, _)| self.build_due(*due));
        [
            self.engine.next_deadline(),
            build,
            self.linger_until,
            self.status_leaves,
        ]
        .into_iter()
        .flatten()
        .fold(self.next_status, Moment::min)
    }

    fn take(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Frame {
                from,
                messages,
                across,
                queued,
            } => {
                if across {
                    self.step(Input::Reached { peer: from })?;
                } else {
                    self.around.across.heard(from, &messages);
                }
                for message in &messages {
                    match message {
                        Message::Status(status) => {
                            let now = self.now();
                            self.around.live.peer_status(from, status, now);
                        }
                        // A validator that catches up receives old blocks too, which say nothing
                        // about clocks.
                        Message::Proposal(proposal) if !self.engine.is_behind() => {
                            let now = self.wall_ms();
                            self.clock.heard(from, &proposal.block, now);
                        }
                        Message::Inquiry(_) => self.around.live.asked(from),
                        Message::Vote(vote) if vote.signer == from => {
                            let subject = vote.subject;
                            self.around.live.voted(from, subject.epoch, subject.view);
                        }
                        _ => {}
                    }
                }
                let result = self.step(Input::Frame { from, messages });
                drop(queued);
                result
            }
            Event::Checked(verdicts) => {
                for (job, verdict) in verdicts {
                    self.step(Input::Checked { job, verdict })?;
                }
                Ok(())
            }
            Event::Validated {
                view,
                block,
                invalid,
            } => {
                if let Some(why) = invalid {
                    self.tell_invalid(view, &block, why);
                }
                let valid = invalid.is_none();
                self.step(Input::Validated { view, block, valid })
            }
            Event::Executed(height) => self.step(Input::Executed { height }),
            Event::Wanted { from, id, .. } => {
                // Encoding and sending a block would take this thread too long.
                let request = match self.engine.block(&id) {
                    Some(block) => Request::Held(block),
                    None => Request::Stored(id),
                };
                if !self.around.requests.ask(from.into(), request) {
                    self.around.metrics.dropped("request_queue_full");
                }
                Ok(())
            }
            Event::Linked { peer, up } => {
                self.around.across.linked(peer, up);
                self.step(Input::Linked { peer, up })
            }
            Event::Ordered(ordered) => self.carry_out_order(ordered),
            // Checked once all events are taken.
            Event::Pending => Ok(()),
            Event::Stop => Ok(()),
        }
    }

    fn step(&mut self, input: Input) -> anyhow::Result<()> {
        let output = self.engine.step(self.now(), input);
        self.carry_out(output)
    }

    fn carry_out(&mut self, output: Output) -> anyhow::Result<()> {
        if let Some(reason) = output.fatal {
            anyhow::bail!("consensus stopped: {reason}");
        }
        for record in &output.persist {
            self.journal.append(record).context("vote journal")?;
            self.show(record);
        }
        if !output.jobs.is_empty() {
            let jobs = output.jobs;
            self.around.jobs.send(jobs).context("crypto pool is gone")?;
        }
        for request in output.validate {
            self.around
                .validator
                .send(request)
                .context("validator is gone")?;
        }
        if !output.send.is_empty() {
            self.time_proposals(&output.send);
            self.around.outlet.send(output.send);
        }
        if !output.votes.is_empty() {
            self.votes.extend(output.votes);
            if self.linger_until.is_none() {
                self.linger_until = Some(self.now().after(self.config.finalize_linger));
            }
        }
        self.urgent |= output.urgent;
        for notice in &output.notices {
            voting::log(notice);
        }
        self.tell_left_out(&output.dropped, output.missing);
        if let Some(view) = output.entered.last() {
            self.around.metrics.view.set(as_i64(view.0));
            let entered = output.entered.len() as u64;
            self.around.metrics.views.inc_by(entered);
            debug!(%view, "entered");
        }
        if let Some(epoch) = output.ended
            && self.ended.replace(epoch).is_none()
        {
            info!(%epoch, height = %self.engine.tip().height, "the epoch ends, and the validators change");
        }
        for epoch in output.epochs {
            self.around.metrics.epoch.set(as_i64(epoch.0));
            info!(%epoch, height = %self.engine.tip().height, "a new epoch begins");
        }
        for evidence in &output.evidence {
            self.keep_evidence(evidence)?;
        }
        for sentence in &output.sentences {
            self.announce(sentence)?;
        }
        if !output.finalized.is_empty() {
            self.deliver(output.finalized);
        }
        if let Some(leader) = output.remind {
            self.remind(leader);
        }
        if let Some(request) = output.build {
            self.plan_build(request)?;
        }
        Ok(())
    }

    /// Publishes certificates, and the own votes that explain them, for clients that follow the
    /// chain.
    fn show(&self, record: &Record) {
        let recent = self.around.live.recent();
        match record {
            Record::Certificate(certificate) => recent.certificate(certificate),
            Record::Vote(vote) if vote.subject.kind == VoteKind::Notarize => {
                recent.notarized(vote.subject.epoch, vote.subject.view);
            }
            Record::Vote(_) | Record::Block(_) | Record::Silence(_) => {}
        }
    }

    /// Syncs the journal and sends the votes that wait for it, if one of them is urgent or has
    /// waited long enough.
    fn release_if_due(&mut self) -> anyhow::Result<()> {
        let lingered = self.linger_until.is_some_and(|due| due <= self.now());
        if !self.urgent && !lingered {
            return Ok(());
        }
        self.urgent = false;
        self.linger_until = None;
        let votes = std::mem::take(&mut self.votes);
        let before = self.now();
        let durable = self.journal.release(votes).context("vote journal")?;
        NodeMetrics::observe(&self.around.metrics.journal_sync, self.now().since(before));
        self.around.outlet.send_votes(durable);
        if self.journal.should_rewrite() && self.engine.may_checkpoint() {
            let records = self.engine.checkpoint();
            self.journal.rewrite(&records).context("vote journal")?;
        }
        Ok(())
    }

    fn deliver(&mut self, finalized: Vec<Finalized>) {
        let metrics = &self.around.metrics;
        let now = self.now();
        // Fetched blocks come all at once and say nothing about the time between blocks.
        let fetched = finalized.len() > MAX_FINAL_AT_ONCE;
        let last = self.last_final.replace(now);
        let blocks = u32::try_from(finalized.len()).unwrap_or(u32::MAX);
        let interval = last
            .filter(|_| !fetched)
            .map(|last| now.since(last) / blocks);
        for Finalized { block, certificate } in &finalized {
            if let Some(signers) = certificate.as_ref().and_then(|c| signers_of(&c.proof)) {
                self.around.live.signed(signers);
            }
            let header = block.header();
            let leader = self.config.committees.leader(header.epoch, header.view);
            self.clock.accepted(now, leader, block.id());
            if let Some(interval) = interval {
                NodeMetrics::observe(&metrics.block_interval, interval);
            }
            if let Some(sent) = self.proposed.remove(&block.id()) {
                NodeMetrics::observe(&metrics.finality, now.since(sent));
            }
            debug!(height = %block.height(), view = %block.header().view,
                   transactions = block.transactions().len(), "finalised");
        }
        self.around.executor.submit(finalized);
    }
}

/// The signers, if the proof names them.
fn signers_of(proof: &Proof) -> Option<Vec<ValidatorIndex>> {
    match proof {
        Proof::Threshold(_) => None,
        Proof::Aggregate { signers, .. } => {
            Some(signers.members().into_iter().map(ValidatorIndex).collect())
        }
    }
}

/// Metrics are signed numbers; the values here are far from the limit.
fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
