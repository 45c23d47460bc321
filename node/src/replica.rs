//! The replica: the one thread that owns the consensus machine and the vote journal.
//!
//! It takes events, steps the machine, and carries out what the machine says, in the order that
//! [`quorate_consensus::Output`] documents. Everything slow is elsewhere: cryptography on the
//! pool, block checks on the validator, execution on the executor, sockets on the runtime. The one
//! thing that it waits for is the journal's sync.
//!
//! *One sync serves many steps.* All events that wait are taken before the journal is synced once
//! for the votes of all of them. A finalize vote alone can wait [`ReplicaConfig::finalize_linger`]
//! for the next view's notarize vote, with which it then shares the sync, the frame, and at the
//! receivers often the pairing check.

use crate::{
    across::Across,
    clock::{self, Clock, ClockWatch},
    conduct::Conduct,
    evidence::EvidenceFolder,
    executor::ExecutorHandle,
    forecast::{Forecast, Outlook},
    inlet::Queued,
    mempool::Mempool,
    metrics::NodeMetrics,
    offenders::{Circumstances, Offenders},
    outlet::{Outlet, Wire},
    rpc::live::{Condition, LiveStatus},
    serve::{Request, Requests},
    validate::MAX_EXECUTION_LAG,
    voting,
};
use anyhow::Context;
use commonware_codec::Encode;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use quorate_consensus::{
    BuildRequest, Engine, Finalized, Input, Job, JobId, Moment, Order, Outbound, Output, Penalty,
    Sentence, ValidateRequest, Verdict,
};
use quorate_crypto::bls::Proof;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_load::api::OffenderJson;
use quorate_p2p::{Lane, To};
use quorate_storage::journal::Journal;
use quorate_types::{
    Block, ChainId, Committee, Digest, Evidence, Frame, Header, Height, Identity, Message, Record,
    Status, Transaction, ValidatorIndex, View, VoteKind, genesis::BlockLimits,
    limits::FORWARDED_BYTES,
};
use std::{
    collections::{HashMap, VecDeque},
    iter,
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;
use tracing::{debug, error, info, warn};

/// Events taken in one go before the journal is synced.
const MAX_EVENTS_PER_SYNC: usize = 256;

/// How often this validator tells its peers how far it is.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a status may wait for votes that take it along.
const STATUS_WAIT: Duration = Duration::from_millis(400);

/// How often the links of blocked validators are cut anew. The library forgets after 60 s.
const CUT_INTERVAL: Duration = Duration::from_secs(45);

/// Blocks that become final at once, at most, when none is fetched.
const MAX_FINAL_AT_ONCE: usize = 8;

/// Transactions of which a leader is reminded.
const MAX_REMINDED: usize = 100;

/// Own proposals whose way to finality is being timed.
const MAX_TIMED_PROPOSALS: usize = 1_024;

/// Something for the replica to deal with.
pub enum Event {
    /// Messages of one frame.
    Frame {
        /// Who sent it.
        from: ValidatorIndex,
        /// The messages, in order.
        messages: Vec<Message>,
        /// Whether there is no link to who sent it, and another has passed it on.
        across: bool,
        /// The room that they take in the queue; freed with the event.
        queued: Queued,
    },
    /// The crypto pool is done with these.
    Checked(Vec<(JobId, Verdict)>),
    /// A block has been checked.
    Validated {
        /// The view that it was proposed in.
        view: View,
        /// Its id.
        block: Digest,
        /// Whether an honest leader could have built it.
        valid: bool,
    },
    /// Blocks up to here are durable in the database.
    Executed(Height),
    /// A peer asks for a block that the machine may hold in memory.
    Wanted {
        /// Who asks.
        from: ValidatorIndex,
        /// The block's id.
        id: Digest,
        /// The room that the request takes in the queue; freed with the event.
        #[allow(dead_code)]
        queued: Queued,
    },
    /// The first transaction has come that can go into a block.
    Pending,
    /// The link to a validator has come up or ended.
    Linked {
        /// Who is at the other end.
        peer: ValidatorIndex,
        /// Whether the link is up now.
        up: bool,
    },
    /// The operator, or the end of a penalty's time, orders something.
    Ordered(Ordered),
    /// The node is stopping.
    Stop,
}

/// An order about a validator, and where the outcome is to be told.
pub struct Ordered {
    /// About whom.
    pub validator: ValidatorIndex,
    /// What.
    pub order: Order,
    /// For how long, if not for good.
    pub lasts: Option<Duration>,
    /// Where the outcome is told.
    pub reply: Option<oneshot::Sender<Result<Option<OffenderJson>, String>>>,
}

/// What the replica is told at its start.
pub(crate) struct ReplicaConfig {
    pub(crate) chain: ChainId,
    pub(crate) committee: Committee,
    pub(crate) limits: BlockLimits,
    /// The time before anything else in the chain, in milliseconds since 1970.
    pub(crate) genesis_ms: u64,
    /// How long a finalize vote waits for company.
    pub(crate) finalize_linger: Duration,
    /// The least time between a parent's timestamp and its child's.
    pub(crate) min_block_interval: Duration,
    /// How long a leader waits at most for something to put into a block; zero for not at all.
    pub(crate) idle_interval: Duration,
    /// How long a penalty for something unproven lasts.
    pub(crate) penalty_lasts: Duration,
}

/// The threads and handles around the replica.
pub(crate) struct Neighbours {
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

/// Cuts the link to a validator, or allows it again.
pub type Cutter = Arc<dyn Fn(Identity, Cut) + Send + Sync>;

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It is refused for a minute.
    Off,
    /// It may come up again.
    Allowed,
}

/// The replica.
pub struct Replica {
    config: ReplicaConfig,
    engine: Engine,
    journal: Journal,
    around: Neighbours,
    /// Votes that wait for the journal's sync.
    votes: Vec<Outbound>,
    urgent: bool,
    linger_until: Option<Moment>,
    /// A block that is to be built, and when at the earliest.
    build: Option<(Moment, BuildRequest)>,
    /// Whether something is known here that needs a block, as the machine was told.
    pending: bool,
    proposed: HashMap<Digest, Moment>,
    timed: VecDeque<Digest>,
    last_final: Option<Moment>,
    next_status: Moment,
    /// When a status leaves without votes.
    status_leaves: Option<Moment>,
    /// When the links of blocked validators are cut anew.
    next_cut: Moment,
    /// The order that is being carried out.
    ordered: Option<Option<Duration>>,
    clock: ClockWatch,
    shown: voting::Shown,
}

impl Replica {
    pub(crate) fn new(
        config: ReplicaConfig,
        engine: Engine,
        journal: Journal,
        around: Neighbours,
    ) -> Self {
        let start = around.clock.now();
        let voices = clock::voices_needed(&config.committee);
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
        }
    }

    /// Runs until [`Event::Stop`] or until going on would be unsafe.
    ///
    /// # Errors
    ///
    /// If the journal fails, a neighbour is gone, or the machine says that it must stop.
    pub(crate) fn run(mut self, first: Output, events: Receiver<Event>) -> anyhow::Result<()> {
        self.begin(first)?;
        loop {
            self.settle()?;
            let wait = self.wake_at().since(self.now());
            match events.recv_timeout(wait) {
                Ok(event) => {
                    if !self.take_all(iter::once(event).chain(events.try_iter()))? {
                        return self.stop();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.tick()?,
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all senders are gone"),
            }
        }
    }

    /// Carries out what the machine said at its recovery.
    ///
    /// # Errors
    ///
    /// As for [`Self::settle`].
    pub fn begin(&mut self, first: Output) -> anyhow::Result<()> {
        // What was waited for before, links for instance, does not make it late.
        self.next_status = self.now();
        self.carry_out(first)?;
        self.show_offenders();
        let evidence = self.around.evidence.all().to_vec();
        self.around.live.set_evidence(evidence);
        Ok(())
    }

    /// Takes events, as many as may share one sync. Returns whether to go on.
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

    /// Does what is due after events: building, the journal's sync with the votes that wait for
    /// it, and telling how things are.
    ///
    /// # Errors
    ///
    /// If the journal fails, a neighbour is gone, or the machine says that it must stop.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.look_for_work()?;
        self.build_if_due()?;
        self.release_if_due()?;
        self.report()
    }

    /// Tells the machine that time has passed.
    ///
    /// # Errors
    ///
    /// As for [`Self::settle`].
    pub fn tick(&mut self) -> anyhow::Result<()> {
        self.step(Input::Tick)
    }

    /// The machine, for whoever watches.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Releases the votes that wait.
    ///
    /// # Errors
    ///
    /// If the journal fails.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let votes = std::mem::take(&mut self.votes);
        let durable = self.journal.release(votes).context("vote journal")?;
        self.around.outlet.send_votes(durable);
        Ok(())
    }

    fn now(&self) -> Moment {
        self.around.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        self.around.clock.wall_ms()
    }

    /// When something is due, if no event comes before.
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
                        Message::Status(status) => self.around.live.peer_status(from, status),
                        // Who catches up hears of old blocks too, which tell nothing of clocks.
                        Message::Proposal(proposal) if !self.engine.is_behind() => {
                            let now = self.wall_ms();
                            self.clock.heard(from, &proposal.block, now);
                        }
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
            Event::Validated { view, block, valid } => {
                if !valid {
                    warn!(%view, block = %block.short(), "a proposed block is not valid");
                }
                self.step(Input::Validated { view, block, valid })
            }
            Event::Executed(height) => self.step(Input::Executed { height }),
            Event::Wanted { from, id, .. } => {
                // What it costs to encode and send a block is not for this thread.
                let request = match self.engine.block(&id) {
                    Some(block) => Request::Held(block),
                    None => Request::Stored(id),
                };
                if !self.around.requests.ask(from, request) {
                    self.around.metrics.dropped("request_queue_full");
                }
                Ok(())
            }
            Event::Linked { peer, up } => {
                self.around.across.linked(peer, up);
                self.step(Input::Linked { peer, up })
            }
            Event::Ordered(ordered) => self.obey(ordered),
            // It is looked for once all events are taken.
            Event::Pending => Ok(()),
            Event::Stop => Ok(()),
        }
    }

    fn obey(&mut self, ordered: Ordered) -> anyhow::Result<()> {
        let Ordered {
            validator,
            order,
            lasts,
            reply,
        } = ordered;
        let blocked = self.engine.blocked();
        let already = blocked.iter().any(|(held, _)| *held == validator);
        if order == Order::Block && !already && !self.engine.may_block() {
            let refusal = format!(
                "{} validators are blocked already, which is all that this committee of {} can do \
                 without (f): with more, blocking could halt the chain. Lift one first",
                self.config.committee.faults(),
                self.config.committee.size()
            );
            if let Some(reply) = reply {
                let _ = reply.send(Err(refusal));
            }
            return Ok(());
        }
        self.ordered = Some(lasts);
        let result = self.step(Input::Ordered { validator, order });
        self.ordered = None;
        let identity = self.config.committee.identity(validator);
        let offenders = self.around.offenders.entries();
        let entry = offenders.into_iter().find(|e| Some(e.identity) == identity);
        if let Some(reply) = reply {
            // Whoever asked may have gone.
            let _ = reply.send(Ok(entry));
        }
        result
    }

    /// Ends penalties whose time is up, and cuts the links of the blocked anew: the library's own
    /// block is short.
    fn renew_penalties(&mut self, now: Moment) -> anyhow::Result<()> {
        for identity in self.around.offenders.expired(self.wall_ms()) {
            if let Some(validator) = self.config.committee.place(&identity) {
                self.step(Input::Ordered {
                    validator,
                    order: Order::Pardon,
                })?;
            }
        }
        if now >= self.next_cut {
            self.next_cut = now.after(CUT_INTERVAL);
            for (validator, _) in self.engine.blocked() {
                if let Some(identity) = self.config.committee.identity(validator) {
                    (self.around.cut)(identity, Cut::Off);
                }
            }
        }
        Ok(())
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
        if let Some(view) = output.entered.last() {
            self.around.metrics.view.set(as_i64(view.0));
            let entered = output.entered.len() as u64;
            self.around.metrics.views.inc_by(entered);
            debug!(%view, "entered");
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

    /// Shows certificates, and the own votes that explain them, to whoever follows the chain.
    fn show(&self, record: &Record) {
        let heard = self.around.live.heard();
        match record {
            Record::Certificate(certificate) => heard.certificate(certificate),
            Record::Vote(vote) if vote.subject.kind == VoteKind::Notarize => {
                heard.notarized(vote.subject.epoch, vote.subject.view);
            }
            Record::Vote(_) | Record::Block(_) | Record::Silence(_) => {}
        }
    }

    /// Syncs the journal and sends the votes that wait for it, if one is urgent or has waited long
    /// enough.
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
        if self.journal.should_rewrite() {
            let records = self.engine.checkpoint();
            self.journal.rewrite(&records).context("vote journal")?;
        }
        Ok(())
    }

    fn plan_build(&mut self, request: BuildRequest) -> anyhow::Result<()> {
        let interval = u64::try_from(self.config.min_block_interval.as_millis()).unwrap_or(0);
        let earliest = self.parent_time(&request).saturating_add(interval);
        let wait = earliest.saturating_sub(self.wall_ms()).min(interval);
        // What is pending may have changed with the view.
        self.look_for_work()?;
        let due = self.now().after(Duration::from_millis(wait));
        self.build = Some((due, request));
        self.build_if_due()
    }

    /// When a block is to be built: not before the current view's leader has nothing to wait for.
    fn build_due(&self, earliest: Moment) -> Moment {
        let idles_until = self.engine.idles_until(self.now());
        idles_until.map_or(earliest, |until| until.max(earliest))
    }

    fn build_if_due(&mut self) -> anyhow::Result<()> {
        let Some((earliest, request)) = &self.build else {
            return Ok(());
        };
        let wanted = (request.epoch, request.view) == (self.engine.epoch(), self.engine.view());
        if wanted && self.build_due(*earliest) > self.now() {
            return Ok(());
        }
        match self.build.take().filter(|_| wanted) {
            Some((_, request)) => self.propose(request),
            None => Ok(()),
        }
    }

    /// Tells the machine whether something needs a block: transactions that wait here, or those before
    /// that cannot be proven yet.
    fn look_for_work(&mut self) -> anyhow::Result<()> {
        if self.config.idle_interval.is_zero() {
            return Ok(());
        }
        let executor = &self.around.executor;
        let complete = || self.engine.is_complete(|height| executor.root_at(height));
        let pending = self.around.mempool.runnable() > 0 || !complete();
        let awaits = self.engine.awaits_proposal();
        self.around.live.set_awaits_proposal(awaits);
        if pending == self.pending {
            return Ok(());
        }
        self.pending = pending;
        self.step(Input::Pending(pending))
    }

    /// Hands a leader what is to go into its block, in case nobody has.
    fn remind(&self, leader: ValidatorIndex) {
        let Some(identity) = self.config.committee.identity(leader) else {
            return;
        };
        let mempool = &self.around.mempool;
        let transactions = mempool.take(MAX_REMINDED, FORWARDED_BYTES, &Outlook::default());
        if !transactions.is_empty() {
            let frame = Frame(vec![Message::Transactions(transactions)]).encode();
            (self.around.wire)(Lane::Transactions, &To::One(identity), frame);
        }
    }

    fn propose(&mut self, request: BuildRequest) -> anyhow::Result<()> {
        let view = request.view;
        let block = Arc::new(self.build_block(request)?);
        self.step(Input::Built { view, block })
    }

    fn parent_time(&self, request: &BuildRequest) -> u64 {
        let parent = request.parent.as_ref();
        parent.map_or(self.config.genesis_ms, |p| p.header().timestamp_ms)
    }

    fn build_block(&self, request: BuildRequest) -> anyhow::Result<Block> {
        let parent = request.parent.as_ref().map(|block| block.header());
        let height = parent.map_or(Height(1), |header| header.height.next());
        let floor = parent.map_or(Height(0), |header| header.executed_height);
        let ours = self.around.executor.executed().borrow().clone();
        let (executed_height, state_root) = match parent {
            Some(header) if ours.height < floor => (header.executed_height, header.state_root),
            _ => (ours.height, ours.state_root),
        };
        let lag = height.0.saturating_sub(executed_height.0);
        let transactions = if lag > MAX_EXECUTION_LAG {
            Vec::new()
        } else {
            self.fill(&request)?
        };
        let header = Header {
            chain: self.config.chain,
            epoch: request.epoch,
            view: request.view,
            height,
            parent: request.parent.as_ref().map_or(Digest::ZERO, |p| p.id()),
            parent_view: request.parent_view,
            timestamp_ms: self.wall_ms().max(self.parent_time(&request) + 1),
            executed_height,
            state_root,
            body_root: Header::body_root_of(&transactions),
        };
        Block::new(header, transactions).context("the mempool gave too many transactions")
    }

    /// The transactions of a new block. None if its ancestors were executed so long ago that nobody
    /// waits for it any more.
    fn fill(&self, request: &BuildRequest) -> anyhow::Result<Vec<Transaction>> {
        let unexecuted: &[Arc<Block>] = if made(Mistake::AncestorsNotExcluded) {
            &[]
        } else {
            &request.unexecuted
        };
        let outlook = self.around.forecast.after(unexecuted);
        let Some(outlook) = outlook.context("cannot read an account")? else {
            return Ok(Vec::new());
        };
        Ok(self.around.mempool.take(
            self.config.limits.max_transactions,
            self.config.limits.transaction_bytes(),
            &outlook,
        ))
    }

    fn time_proposals(&mut self, messages: &[Outbound]) {
        let now = self.now();
        for outbound in messages {
            if let Message::Proposal(proposal) = &outbound.message {
                let id = proposal.block.id();
                self.proposed.entry(id).or_insert(now);
                self.timed.push_back(id);
                if self.timed.len() > MAX_TIMED_PROPOSALS
                    && let Some(old) = self.timed.pop_front()
                {
                    self.proposed.remove(&old);
                }
            }
        }
    }

    fn deliver(&mut self, finalized: Vec<Finalized>) {
        let metrics = &self.around.metrics;
        let now = self.now();
        // What is fetched comes at once, and tells nothing of the time between blocks.
        let fetched = finalized.len() > MAX_FINAL_AT_ONCE;
        for Finalized { block, certificate } in &finalized {
            if let Some(signers) = certificate.as_ref().and_then(|c| signers_of(&c.proof)) {
                self.around.live.signed(signers);
            }
            let header = block.header();
            let leader = self.config.committee.leader_in(header.epoch, header.view);
            self.clock.accepted(now, leader, block.id());
            if let Some(last) = self.last_final.replace(now)
                && !fetched
            {
                NodeMetrics::observe(&metrics.block_interval, now.since(last));
            }
            if let Some(sent) = self.proposed.remove(&block.id()) {
                NodeMetrics::observe(&metrics.finality, now.since(sent));
            }
            debug!(height = %block.height(), view = %block.header().view,
                   transactions = block.transactions().len(), "finalised");
        }
        self.around.executor.submit(finalized);
    }

    /// Keeps verified evidence on disk and shows it.
    fn keep_evidence(&mut self, evidence: &Evidence) -> anyhow::Result<()> {
        self.around.metrics.evidence.inc();
        let committee = &self.config.committee;
        let signer = evidence.first.signer;
        if signer == self.around.live.own() {
            error!(
                ?evidence,
                "THIS validator's key has signed two conflicting votes: another process uses the \
                 same key, or the journal was restored from a copy. Stop all of them but one, and \
                 replace the key"
            );
        } else {
            warn!(
                validator = signer.0, epoch = %evidence.first.subject.epoch,
                view = %evidence.first.subject.view, id = %evidence.id().short(),
                conflict = evidence.conflict().map_or("none", |c| c.name()),
                "a validator has signed two conflicting votes"
            );
        }
        let now_ms = self.around.clock.wall_ms();
        self.around.evidence.keep(evidence, committee, now_ms)?;
        let all = self.around.evidence.all().to_vec();
        self.around.live.set_evidence(all);
        Ok(())
    }

    /// Remembers, shows and acts upon a change of somebody's standing.
    fn announce(&mut self, sentence: &Sentence) -> anyhow::Result<()> {
        let Sentence {
            validator,
            offence,
            penalty,
            ..
        } = *sentence;
        let Some(identity) = self.config.committee.identity(validator) else {
            return Ok(());
        };
        let lasts = match self.ordered {
            Some(lasts) => lasts,
            None => (!offence.is_certain()).then_some(self.config.penalty_lasts),
        };
        let circumstances = Circumstances {
            now_ms: self.wall_ms(),
            at: (self.engine.epoch(), self.engine.view()),
            ordered: self.ordered.is_some(),
            lasts,
        };
        self.around
            .offenders
            .note(identity, sentence, circumstances)?;
        let place = validator.0;
        let reason = offence.name();
        match penalty {
            Penalty::Blocked => {
                let offences = &self.around.metrics.sentences;
                offences.with_label_values(&[reason]).inc();
                warn!(validator = place, %identity, reason, "blocked");
                (self.around.cut)(identity, Cut::Off);
            }
            Penalty::Probation => {
                warn!(validator = place, %identity, reason,
                      "on probation: its votes are verified one by one");
                (self.around.cut)(identity, Cut::Allowed);
            }
            Penalty::Lifted => {
                warn!(validator = place, %identity, reason, "believed again");
                (self.around.cut)(identity, Cut::Allowed);
            }
        }
        self.show_offenders();
        Ok(())
    }

    fn show_offenders(&self) {
        let metrics = &self.around.metrics;
        metrics
            .blocked
            .set(as_i64(self.engine.blocked().len() as u64));
        metrics
            .probation
            .set(as_i64(self.engine.on_probation().len() as u64));
        let offenders = self.around.offenders.entries();
        self.around.live.set_offenders(offenders);
        self.around.conduct.make_room();
    }

    /// Shows where the machine is, and from time to time tells the peers.
    fn report(&mut self) -> anyhow::Result<()> {
        let tip = self.engine.tip();
        let live = &self.around.live;
        live.set_progress(self.engine.epoch(), self.engine.view(), tip.height);
        // Also while nothing becomes final: after a start it is what the disk holds, and not 0.
        let metrics = &self.around.metrics;
        metrics.finalized_height.set(as_i64(tip.height.0));
        self.around.metrics.stepped(self.engine.counters());
        let now = self.now();
        if self.status_leaves.is_some_and(|due| due <= now) {
            self.status_leaves = None;
            self.around.outlet.send_held();
        }
        if now < self.next_status {
            return Ok(());
        }
        self.clock.was_late(now, now.since(self.next_status));
        self.next_status = now.after(STATUS_INTERVAL);
        self.renew_penalties(now)?;
        self.around
            .metrics
            .journal_bytes
            .set(as_i64(self.journal.bytes()));
        let (bytes, pruned) = self.around.executor.disk();
        let clock_ahead_ms = self.clock.ahead_ms(now);
        self.around.live.set_condition(Condition {
            behind: self.engine.is_behind(),
            journal_bytes: self.journal.bytes(),
            database_bytes: bytes,
            pruned_below: pruned,
            clock_ahead_ms,
        });
        let live = &self.around.live;
        live.set_pruned_elsewhere(self.engine.pruned_elsewhere());
        live.set_voting(self.shown.next(self.engine.voting()));
        let tip = self.engine.tip();
        self.around.metrics.database_bytes.set(as_i64(bytes));
        self.around.metrics.pruned_below.set(as_i64(pruned.0));
        let executed = self.around.executor.executed().borrow().height;
        self.around.metrics.executed_height.set(as_i64(executed.0));
        let status = Status {
            epoch: self.engine.epoch(),
            view: self.engine.view(),
            finalized_height: tip.height,
            executed_height: executed,
            convicted: self.engine.convicted(),
        };
        for peer in self.around.across.never_linked(now) {
            self.take(Event::Linked { peer, up: false })?;
        }
        self.around.outlet.hold(status);
        self.status_leaves = Some(now.after(STATUS_WAIT));
        Ok(())
    }
}

/// Who signed, if the proof tells.
fn signers_of(proof: &Proof) -> Option<Vec<ValidatorIndex>> {
    match proof {
        Proof::Threshold(_) => None,
        Proof::Aggregate { signers, .. } => {
            Some(signers.members().into_iter().map(ValidatorIndex).collect())
        }
    }
}

/// Metrics hold signed numbers; ours are far from the limit.
fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
