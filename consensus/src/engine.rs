//! The machine: its state, and which part of it each input goes to.

use crate::{
    blame::Blame,
    config::{Config, MAX_OPEN_VIEWS, TAIL_VIEWS, Tip},
    epochs::{Early, asks_for_help, epoch_of},
    fetch::Fetcher,
    inquiry::{Answer, Memory},
    io::{Exhibit, Finalized, Input, Job, JobId, Moment, Offence, Order, Output, Target, Work},
    pacemaker::{Expected, Pacemaker},
    round::Round,
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_crypto::{Digest, bls::HashedMessage, bls::PartialSignature};
use quorate_types::{
    Block, Certificate, Epoch, Evidence, Height, Message, Nonce, Record, Subject, ValidatorIndex,
    View, Vote,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A block above the finalised tip.
pub(crate) struct Held {
    pub(crate) block: Arc<Block>,
    /// Whether it is in the journal.
    pub(crate) journaled: bool,
    /// Who proposed it, if that was the reason to keep it.
    pub(crate) leader: Option<ValidatorIndex>,
}

/// What a job under way is for.
pub(crate) enum Pending {
    /// Votes that may make a certificate.
    Certify {
        subject: Subject,
        parts: Vec<(u32, PartialSignature)>,
        /// Whether they are known not to hold together; who spoiled them is being found out.
        failed: bool,
    },
    /// Certificates from a peer.
    Certificates {
        from: ValidatorIndex,
        certificates: Vec<Certificate>,
    },
    /// A vote of a validator on probation.
    Probation { vote: Vote },
    /// Two votes that would be evidence, and who sent them as such, if this machine did not notice
    /// them itself.
    Conflict {
        evidence: Evidence,
        reporter: Option<ValidatorIndex>,
    },
    /// What a peer says about this key's votes.
    Standing {
        from: ValidatorIndex,
        nonce: Nonce,
        answer: Answer,
        vote: Option<Subject>,
    },
    /// Something of an epoch that is over.
    Stale,
}

/// Running totals, for metrics. They are never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Certificates made from votes.
    pub certified: u64,
    /// Checks that failed and were bisected.
    pub bisected: u64,
    /// Views in which this validator voted nullify.
    pub nullified: u64,
    /// Of these, because the leader was known to be silent or blocked.
    pub skipped: u64,
    /// Messages dropped because they came from a blocked validator.
    pub dropped_blocked: u64,
    /// Messages dropped because they came from somebody on probation that has offended again lately.
    pub dropped_unheard: u64,
    /// Votes and proposals dropped because their epoch or view is out of range.
    pub dropped_window: u64,
    /// Messages dropped because they break a rule that honest validators keep.
    pub dropped_invalid: u64,
}

/// What a machine holds in memory, for whoever watches its bounds (crate's head).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Views above the finalised tip or in its tail, of which something is kept.
    pub rounds: usize,
    /// Of these, views above the current one.
    pub rounds_ahead: usize,
    /// Proposals of views above the current one.
    pub proposals_ahead: usize,
    /// Blocks above the finalised tip.
    pub blocks: usize,
    /// Of these, blocks that nobody but their leader is known to stand for.
    pub proposed: usize,
    /// Checks under way.
    pub jobs: usize,
    /// Blocks of a range that wait for their finalization.
    pub staged: usize,
    /// Finalised blocks that wait for execution.
    pub unexecuted: usize,
    /// Messages for the next epoch.
    pub early: usize,
    /// Requests under way.
    pub wants: usize,
    /// Pairs of conflicting votes.
    pub evidence: usize,
}

/// The consensus machine of one validator, which goes from epoch to epoch. See the crate's head for
/// the protocol.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) view: View,
    pub(crate) rounds: BTreeMap<View, Round>,
    /// The oldest view whose slots are still kept.
    pub(crate) open_from: View,
    /// Blocks above the tip, by id.
    pub(crate) blocks: BTreeMap<Digest, Held>,
    /// The newest finalised block whose whole chain is known.
    pub(crate) tip: Tip,
    /// Finalised blocks that are not yet durable outside the journal.
    pub(crate) delivered: BTreeMap<Height, Finalized>,
    /// The newest height that is durable outside the journal.
    pub(crate) executed: Height,
    /// The newest verified finalization, if blocks below it are missing.
    pub(crate) target: Option<Certificate>,
    /// Blocks of a range that wait for their finalization.
    pub(crate) staged: Vec<Arc<Block>>,
    /// Who gave them, the latest last.
    pub(crate) staged_by: Vec<ValidatorIndex>,
    pub(crate) pacemaker: Pacemaker,
    pub(crate) blame: Blame,
    pub(crate) fetcher: Fetcher,
    pub(crate) jobs: BTreeMap<JobId, Pending>,
    next_job: u64,
    /// Certificates of subjects whose votes are being checked, and who sent them: one for each
    /// check under way.
    pub(crate) spare: BTreeMap<JobId, (ValidatorIndex, Certificate)>,
    /// Subjects on the curve, for the views that are open.
    pub(crate) hashed: BTreeMap<Subject, Arc<HashedMessage>>,
    /// Validators whose conflicting votes are being verified.
    pub(crate) accused: BTreeSet<ValidatorIndex>,
    /// Verified evidence, canonical, at most [`crate::MAX_EVIDENCE_PER_VALIDATOR`] for each.
    pub(crate) convictions: BTreeMap<ValidatorIndex, Vec<Evidence>>,
    /// The epoch and view up to which a validator's equivocations are pardoned.
    pub(crate) pardons: BTreeMap<ValidatorIndex, (Epoch, View)>,
    /// When each peer was last sent evidence that it lacked.
    pub(crate) informed: BTreeMap<ValidatorIndex, Moment>,
    /// The finalization that ended the epoch before.
    pub(crate) border: Option<Certificate>,
    /// What came early for the next epoch.
    pub(crate) early: Early,
    /// The newest finalised heights that the peers claim.
    pub(crate) claims: BTreeMap<ValidatorIndex, Height>,
    /// The oldest block that each peer says it keeps, of those that lacked one that was asked for.
    pub(crate) oldest: BTreeMap<ValidatorIndex, Height>,
    /// Journal records of epochs that this machine has not reached again.
    pub(crate) future: Vec<Record>,
    /// When each peer was last sent the certificates that it lacked.
    pub(crate) helped: BTreeMap<ValidatorIndex, (View, Moment)>,
    /// The view for which a block is being built.
    pub(crate) building: Option<View>,
    pub(crate) counters: Counters,
    /// What is known of this key's votes beside the journal.
    pub(crate) memory: Memory,
}

impl Engine {
    pub(crate) fn empty(config: Config, tip: Tip) -> Self {
        let mut blame = Blame::new(config.committee.faults());
        for sentence in &config.sentences {
            blame.restore(sentence);
        }
        let pardons = config.pardons.iter().map(|(v, e, w)| (*v, (*e, *w)));
        let mut engine = Self {
            pardons: pardons.collect(),
            view: tip.view.next(),
            rounds: BTreeMap::new(),
            open_from: tip.view,
            blocks: BTreeMap::new(),
            delivered: BTreeMap::new(),
            executed: tip.height,
            target: None,
            staged: Vec::new(),
            staged_by: Vec::new(),
            pacemaker: Pacemaker::new(
                config.timing,
                config.committee.size(),
                config.committee.faults(),
            ),
            blame,
            fetcher: Fetcher::new(config.epoch(), config.peers(), config.timing.fetch_timeout),
            convictions: BTreeMap::new(),
            informed: BTreeMap::new(),
            border: tip
                .certificate
                .clone()
                .filter(|held| held.subject.epoch != config.epoch()),
            early: Early::new(),
            claims: BTreeMap::new(),
            oldest: BTreeMap::new(),
            future: Vec::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            spare: BTreeMap::new(),
            hashed: BTreeMap::new(),
            accused: BTreeSet::new(),
            helped: BTreeMap::new(),
            building: None,
            counters: Counters::default(),
            memory: Memory::default(),
            config,
            tip,
        };
        engine.restore_evidence();
        engine
    }

    /// Takes one input and tells what is to be done about it.
    ///
    /// Never panics on what a peer sends. After an output with `fatal` set, the machine must not
    /// be stepped again.
    pub fn step(&mut self, now: Moment, input: Input) -> Output {
        let mut out = Output::default();
        self.blame.at(now);
        match input {
            Input::Frame { from, messages } => self.on_frame(now, from, messages, &mut out),
            Input::Checked { job, verdict } => self.on_checked(now, job, verdict, &mut out),
            Input::Built { view, block } => self.on_built(now, view, block, &mut out),
            Input::Validated { view, block, valid } => {
                self.on_validated(now, view, block, valid, &mut out);
            }
            Input::Ordered { validator, order } => self.on_order(validator, order, &mut out),
            Input::Linked { peer, up } => self.on_linked(now, peer, up, &mut out),
            Input::Reached { peer } => self.pacemaker.reached(peer),
            Input::Executed { height } => self.on_executed(now, height, &mut out),
            Input::Pending(pending) => self.pacemaker.pending(now, pending),
            Input::Tick => {}
        }
        while out.fatal.is_none() && self.epoch_is_over() {
            self.hand_over(now, &mut out);
        }
        self.on_time(now, &mut out);
        if self.rounds.len() > MAX_OPEN_VIEWS {
            out.fatal = Some(format!(
                "{MAX_OPEN_VIEWS} views went by since view {} without a finalised block",
                self.tip.view
            ));
        }
        out
    }

    /// When the machine wants to be stepped at the latest, with [`Input::Tick`] if nothing else.
    pub fn next_deadline(&self) -> Option<Moment> {
        [
            self.pacemaker.deadline(),
            self.fetcher.deadline(),
            self.inquiry_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The current view.
    pub fn view(&self) -> View {
        self.view
    }

    /// The newest finalised block whose whole chain is known here.
    pub fn tip(&self) -> &Tip {
        &self.tip
    }

    /// The epoch from which on it votes, if its journal or its operator names a later one.
    pub(crate) fn later_epoch(&self) -> Option<Epoch> {
        let journaled = self.future.iter().map(|record| match record {
            Record::Block(block) => block.header().epoch,
            Record::Certificate(certificate) => certificate.subject.epoch,
            Record::Vote(vote) => vote.subject.epoch,
            Record::Silence(_) => Epoch(0),
        });
        let first = journaled.max().max(Some(self.config.silent_before));
        first.filter(|first| *first > self.epoch())
    }

    /// Whether a finalised block is known to exist whose chain is not complete here.
    pub fn is_behind(&self) -> bool {
        self.target.is_some() || self.lags_by_epochs()
    }

    /// What is held in memory.
    pub fn holdings(&self) -> Holdings {
        let ahead = self.rounds.range(self.view.next()..);
        let proposals = ahead.clone().filter(|(_, round)| round.proposal.is_some());
        Holdings {
            rounds: self.rounds.len(),
            rounds_ahead: ahead.count(),
            proposals_ahead: proposals.count(),
            blocks: self.blocks.len(),
            proposed: {
                let blocks = self.blocks.iter();
                blocks
                    .filter(|(id, held)| !self.is_vouched(id, held))
                    .count()
            },
            jobs: self.jobs.len(),
            staged: self.staged.len(),
            unexecuted: self.delivered.len(),
            early: self.early.values().map(Vec::len).sum(),
            wants: self.fetcher.len(),
            evidence: self.convictions.values().map(Vec::len).sum(),
        }
    }

    /// Running totals.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Who is blocked and for what.
    pub fn blocked(&self) -> Vec<(ValidatorIndex, Offence)> {
        self.blame.blocked().collect()
    }

    /// Who is on probation and for what.
    pub fn on_probation(&self) -> Vec<(ValidatorIndex, Offence)> {
        self.blame.probation().collect()
    }

    /// Whether nothing that a validator on probation says is looked at for the moment, because it has
    /// offended again.
    pub fn is_unheard(&self, validator: ValidatorIndex) -> bool {
        self.blame.is_unheard(validator)
    }

    /// Whether an order to block one more validator would be carried out in full.
    pub fn may_block(&self) -> bool {
        let certain = self.blame.blocked().filter(|(_, o)| o.is_certain());
        certain.count() < self.config.committee.faults()
    }

    /// Upon an order about a validator.
    fn on_order(&mut self, validator: ValidatorIndex, order: Order, out: &mut Output) {
        match order {
            Order::Block => {
                self.offend(validator, Offence::Operator, Exhibit::None, out);
            }
            Order::Pardon => {
                let now = (self.epoch(), self.view);
                self.pardons.insert(validator, now);
                out.sentences.extend(self.blame.lift(validator));
            }
        }
    }

    /// Upon word that a link has come up or ended. Without a link nothing comes from that validator:
    /// no proposal, and no answer to a request. So its turn is given up at once, the one under way
    /// too, and others are asked.
    fn on_linked(&mut self, now: Moment, peer: ValidatorIndex, up: bool, out: &mut Output) {
        if self.config.committee.identity(peer).is_none() || self.own_place() == Some(peer) {
            return;
        }
        self.pacemaker.linked(peer, up);
        if up {
            return self.ask_linked(now, peer, out);
        }
        self.note_unlinked(peer);
        self.fetcher.pass_on(now, peer);
        if self.config.committee.leader(self.view) == peer {
            self.pacemaker.hurry(now);
        }
    }

    /// A block above or at the finalised tip that lies in memory, for serving it to a peer.
    pub fn block(&self, id: &Digest) -> Option<Arc<Block>> {
        if let Some(held) = self.blocks.get(id) {
            return Some(held.block.clone());
        }
        let delivered = self.delivered.values().rev();
        delivered
            .map(|finalized| &finalized.block)
            .find(|block| block.id() == *id)
            .cloned()
    }

    /// What a journal must hold at least for this machine to be recovered: everything above the
    /// blocks that are durable elsewhere. Replaces all records before.
    pub fn checkpoint(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.silence_record().into_iter().collect();
        let delivered = self.delivered.values().map(|finalized| &finalized.block);
        let held = self
            .blocks
            .values()
            .filter(|held| held.journaled)
            .map(|held| &held.block);
        if !made(Mistake::CheckpointWithoutBlocks) {
            records.extend(delivered.chain(held).cloned().map(Record::Block));
        }
        records.extend(self.delivered_borders().map(Record::Certificate));
        records.extend(self.tip.certificate.clone().map(Record::Certificate));
        records.extend(self.future.iter().cloned());
        for (_, round) in self.rounds.range(self.tip.view.next()..) {
            let certificates = [
                &round.notarization,
                &round.nullification,
                &round.finalization,
            ];
            records.extend(
                certificates
                    .into_iter()
                    .flatten()
                    .cloned()
                    .map(Record::Certificate),
            );
            let own = &round.own;
            let votes = [&own.notarize, &own.nullify, &own.finalize];
            if !made(Mistake::CheckpointWithoutVotes) {
                records.extend(votes.into_iter().flatten().copied().map(Record::Vote));
            }
        }
        records
    }

    fn on_frame(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        messages: Vec<Message>,
        out: &mut Output,
    ) {
        if self.config.committee.identity(from).is_none() || self.own_place() == Some(from) {
            self.counters.dropped_invalid += 1;
            return;
        }
        for message in messages {
            self.on_message(now, from, message, out);
        }
    }

    pub(crate) fn on_message(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        message: Message,
        out: &mut Output,
    ) {
        self.note_seen(from, &message);
        // Who is blocked may be asked and answered all the same: what it says is proven, or counts as
        // the word of one that is faulty.
        match message {
            Message::Inquiry(nonce) => return self.on_inquiry(from, nonce, out),
            Message::Standing(standing) => return self.on_standing(now, from, *standing, out),
            _ => {}
        }
        if self.blame.is_blocked(from) {
            self.counters.dropped_blocked += 1;
            return;
        }
        let takes_checking = matches!(
            message,
            Message::Vote(_) | Message::Certificate(_) | Message::Evidence(_)
        );
        if takes_checking && self.blame.is_unheard(from) {
            self.counters.dropped_unheard += 1;
            return;
        }
        if let Some(epoch) = epoch_of(&message)
            && epoch != self.epoch()
        {
            return self.on_foreign_epoch(now, from, epoch, message, out);
        }
        match message {
            Message::Vote(vote) => self.on_vote(now, from, vote, out),
            Message::Proposal(proposal) => self.on_proposal(now, from, proposal, out),
            Message::Certificate(certificate) => {
                self.check_certificates(from, vec![certificate], out);
            }
            Message::BlockReply(block) => self.on_block(now, from, block, out),
            Message::RangeReply {
                blocks,
                finalization,
            } => self.on_range(now, from, blocks, finalization, out),
            Message::Pruned {
                from: height,
                oldest,
            } => self.on_pruned(now, from, height, oldest),
            Message::CertificateRequest { epoch, first, last } => {
                self.on_certificate_request(now, from, epoch, first, last, out);
            }
            Message::Status(status) => self.on_status(now, from, status, out),
            // Who is linked to whom, and what goes by way of others, is not this machine's concern.
            Message::Apart(_) | Message::Relayed(_) => {}
            Message::Inquiry(_) | Message::Standing(_) => {}
            Message::Evidence(evidence) => self.on_evidence(from, *evidence, out),
            // Requests for stored blocks and forwarded transactions are the node's business.
            Message::BlockRequest(_) | Message::RangeRequest(_) | Message::Transactions(_) => {
                self.counters.dropped_invalid += 1
            }
        }
    }

    fn on_foreign_epoch(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        epoch: Epoch,
        message: Message,
        out: &mut Output,
    ) {
        if epoch > self.epoch() {
            if epoch == self.epoch().next() {
                self.keep_early(from, message, out);
            } else {
                self.counters.dropped_window += 1;
            }
            return self.on_claim(now, from, epoch, out);
        }
        self.counters.dropped_window += 1;
        if epoch.next() == self.epoch() && asks_for_help(&message) {
            self.help_across(now, from, out);
        }
    }

    pub(crate) fn own_place(&self) -> Option<ValidatorIndex> {
        self.config.own.as_ref().map(|own| own.place)
    }

    pub(crate) fn leads(&self, view: View) -> bool {
        self.own_place() == Some(self.config.committee.leader(view))
    }

    pub(crate) fn start(&mut self, work: Work, pending: Pending, out: &mut Output) -> JobId {
        self.next_job += 1;
        let id = JobId(self.next_job);
        self.jobs.insert(id, pending);
        out.jobs.push(Job { id, work });
        id
    }

    /// Moves to a view, which is above the current one.
    pub(crate) fn enter(&mut self, now: Moment, view: View, brought: bool, out: &mut Output) {
        self.view = view;
        out.entered.push(view);
        self.pace(now, brought);
        // R18
        if self.pacemaker.barren_views() > self.config.committee.faults() {
            // So many leaders in a row cannot all be faulty. Perhaps those who are blocked have
            // healed, and views pass without a block because their proposals are not heard.
            out.sentences.extend(self.blame.relent());
        }
        self.building = None;
        let closed = View(view.0.saturating_sub(TAIL_VIEWS));
        for (_, round) in self
            .rounds
            .range_mut(self.open_from..closed.max(self.open_from))
        {
            round.shrink();
        }
        self.open_from = closed.max(self.open_from);
        for (_, round) in self.rounds.range_mut(self.open_from..view) {
            // It is voted for in its view only.
            round.proposal = None;
        }
        self.hashed
            .retain(|subject, _| subject.view.0 + TAIL_VIEWS >= view.0);
        self.fetcher
            .retain(|want| !matches!(want, crate::fetch::Want::Certificates(..)));
        self.progress(now, out);
    }

    /// Starts the timers of the current view.
    pub(crate) fn pace(&mut self, now: Moment, brought: bool) {
        let view = self.view;
        let leader = self.config.committee.leader(view);
        let expected = if self.own_place() == Some(leader) {
            Expected::Own
        } else if self.blame.is_blocked(leader) {
            Expected::Nothing
        } else {
            Expected::Proposal
        };
        self.pacemaker.enter(now, view, leader, brought, expected);
    }

    /// Does what the current view allows: propose, or vote for what is proposed.
    pub(crate) fn progress(&mut self, now: Moment, out: &mut Output) {
        if self.epoch_is_over() {
            return;
        }
        self.try_propose(now, out);
        self.try_notarize(now, out);
    }

    pub(crate) fn send(&self, to: Target, message: Message, out: &mut Output) {
        out.send.push(crate::io::Outbound { to, message });
    }
}
