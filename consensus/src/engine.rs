//! The engine: its parts, and which of them each input goes to.

use crate::{
    border::Border,
    chain::Chain,
    checks::Checks,
    config::{Config, MAX_OPEN_VIEWS, TAIL_VIEWS, Tip},
    convictions::Convictions,
    dropped::{DropReason, Missing},
    epochs::{asks_for_help, epoch_of},
    fetch::{Fetcher, Want},
    inquiry::Memory,
    io::{Exhibit, Input, Moment, Offence, Order, Output, Step},
    peers::Peers,
    penalties::Penalties,
    protocol::{self, Rules},
    rounds::pacemaker::{Before, Expected, Pacemaker},
    staging::Staging,
    views::Views,
};
use quorate_crypto::Digest;
use quorate_types::{
    Block, Committee, Epoch, Message, Record, Subject, ValidatorIndex, View, VoteKind,
    genesis::Protocol,
};
use std::{sync::Arc, time::Duration};

/// Running totals, for metrics. They are never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Certificates made from votes.
    pub certified: u64,
    /// Checks that failed and were bisected.
    pub bisected: u64,
    /// Views in which this validator voted nullify.
    pub nullified: u64,
    /// Those of them whose leader was known to be absent or blocked.
    pub skipped: u64,
}

/// The sizes of what the engine holds in memory. The bounds are in the crate's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Views above the final tip or in its tail of which anything is kept.
    pub rounds: usize,
    /// Those of them above the current one.
    pub rounds_ahead: usize,
    /// Proposals of views above the current one.
    pub proposals_ahead: usize,
    /// Blocks above the final tip.
    pub blocks: usize,
    /// Those of them that only their leader is known to support.
    pub proposed: usize,
    /// Checks under way.
    pub jobs: usize,
    /// Staged blocks of a range.
    pub staged: usize,
    /// Final blocks that wait for execution.
    pub unexecuted: usize,
    /// Messages for the next epoch.
    pub early: usize,
    /// Requests under way.
    pub wants: usize,
    /// Pairs of conflicting votes.
    pub evidence: usize,
}

/// The consensus engine of one validator, epoch after epoch. The protocol is in the crate's head.
pub struct Engine {
    pub(crate) config: Config,
    /// The validators of the current epoch.
    pub(crate) committee: Committee,
    pub(crate) views: Views,
    pub(crate) chain: Chain,
    pub(crate) staging: Staging,
    pub(crate) checks: Checks,
    pub(crate) convictions: Convictions,
    pub(crate) penalties: Penalties,
    pub(crate) peers: Peers,
    pub(crate) border: Border,
    pub(crate) pacemaker: Pacemaker,
    pub(crate) fetcher: Fetcher,
    /// What is known of this key's votes besides the journal.
    pub(crate) memory: Memory,
    /// The view for which a block is being built.
    pub(crate) building: Option<View>,
    /// The last reported reason why the current view waits.
    pub(crate) missing: Option<(View, Missing)>,
    pub(crate) counters: Counters,
}

impl Engine {
    pub(crate) fn empty(mut config: Config, epoch: Epoch, tip: Tip) -> Self {
        let committee = config.committees.of(epoch);
        let faults = committee.faults();
        let mut penalties = Penalties::new(faults);
        for sentence in &config.sentences {
            penalties.restore(sentence);
        }
        let mut convictions = Convictions::new(&config.pardons);
        for evidence in std::mem::take(&mut config.evidence) {
            // R31
            if config.committees.votes_alike(evidence.first.subject.epoch) {
                convictions.keep(evidence.canonical());
            }
        }
        let seen = std::mem::take(&mut config.seen);
        let memory = Memory::knowing(seen, |vote| {
            let then = config.committees.of(vote.subject.epoch);
            committee.place(&then.identity(vote.signer)?)
        });
        let ended_by = tip.certificate.clone();
        let entered = after_tip(config.protocol, &committee, tip.view);
        Self {
            views: Views::above(tip.view, entered),
            staging: Staging::default(),
            checks: Checks::default(),
            convictions,
            penalties,
            peers: Peers::default(),
            border: Border::new(ended_by.filter(|held| held.subject.epoch != epoch)),
            pacemaker: Pacemaker::new(config.timing, committee.size(), faults)
                .with_turns(committee.turn()),
            fetcher: Fetcher::new(epoch, config.peers(), faults, config.timing.fetch_timeout),
            memory,
            building: None,
            missing: None,
            counters: Counters::default(),
            chain: Chain::new(tip),
            committee,
            config,
        }
    }

    /// Processes one input and returns what is to be done.
    ///
    /// Never panics on a peer's bytes. After an output with `fatal` set, the engine must not be
    /// stepped again.
    pub fn step(&mut self, now: Moment, input: Input) -> Output {
        let mut step = Step::new(now);
        self.penalties.at(now);
        match input {
            Input::Frame { from, messages } => self.on_frame(&mut step, from, messages),
            Input::Checked { job, verdict } => self.on_checked(&mut step, job, verdict),
            Input::Built { view, block } => self.on_built(&mut step, view, block),
            Input::Validated { view, block, valid } => {
                self.on_validated(&mut step, view, block, valid);
            }
            Input::Ordered { validator, order } => self.on_order(&mut step, validator, order),
            Input::Linked { peer, up } => self.on_linked(&mut step, peer, up),
            Input::Reached { peer } => self.pacemaker.reached(peer),
            Input::Executed { height } => self.on_executed(&mut step, height),
            Input::Pending(pending) => self.pacemaker.pending(step.now, pending),
            Input::Tick => {}
        }
        while step.out.fatal.is_none() && self.may_cross() {
            self.hand_over(&mut step);
        }
        if self.epoch_is_over() {
            self.wait_at_border(&mut step);
        } else {
            self.on_time(&mut step);
        }
        if self.views.len() > MAX_OPEN_VIEWS {
            step.halt(format!(
                "{MAX_OPEN_VIEWS} views went by since view {} without a finalised block",
                self.tip().view
            ));
        }
        step.out
    }

    /// The latest time for the next step, with [`Input::Tick`] if there is no other input.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.epoch_is_over() {
            return None;
        }
        [
            self.pacemaker.deadline(),
            self.fetcher.deadline(),
            self.inquiry_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub fn view(&self) -> View {
        self.views.current()
    }

    /// What a proposal may take and cost its leader nothing.
    pub fn free_time(&self) -> Duration {
        self.pacemaker.free()
    }

    /// The newest final block whose whole chain is here.
    pub fn tip(&self) -> &Tip {
        self.chain.tip()
    }

    /// The epoch from which on it votes, if its journal or its operator names a later one than the
    /// current.
    pub(crate) fn later_epoch(&self) -> Option<Epoch> {
        let journaled = self.border.later().iter().map(|record| match record {
            Record::Block(block) => block.header().epoch,
            Record::Certificate(certificate) => certificate.subject.epoch,
            Record::Vote(vote) => vote.subject.epoch,
            Record::Silence(_) => Epoch(0),
        });
        let told = self.config.silent_before.max(self.memory.settled.epoch);
        let first = journaled.max().max(Some(told));
        first.filter(|first| *first > self.epoch())
    }

    /// Whether a final block is known to exist whose chain is not complete here.
    pub fn is_behind(&self) -> bool {
        self.staging.target().is_some() || self.lags_by_epochs()
    }

    pub fn holdings(&self) -> Holdings {
        let ahead = self.views.range(self.view().next()..);
        let proposals = ahead.clone().filter(|(_, round)| round.proposal.is_some());
        let blocks = self.chain.blocks();
        let proposed = blocks
            .clone()
            .filter(|(id, held)| !self.is_vouched(id, held));
        Holdings {
            rounds: self.views.len(),
            rounds_ahead: ahead.count(),
            proposals_ahead: proposals.count(),
            blocks: blocks.count(),
            proposed: proposed.count(),
            jobs: self.checks.len(),
            staged: self.staging.len(),
            unexecuted: self.chain.delivered().count(),
            early: self.border.early_len(),
            wants: self.fetcher.len(),
            evidence: self.convictions.len(),
        }
    }

    /// Running totals.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The blocked validators and their offences.
    pub fn blocked(&self) -> Vec<(ValidatorIndex, Offence)> {
        self.penalties.blocked().collect()
    }

    /// The validators on probation and their offences.
    pub fn on_probation(&self) -> Vec<(ValidatorIndex, Offence)> {
        self.penalties.probation().collect()
    }

    /// Whether a validator on probation is muted because it has offended again.
    pub fn is_muted(&self, validator: ValidatorIndex) -> bool {
        self.penalties.is_muted(validator)
    }

    /// Whether one more validator can be blocked by the operator.
    pub fn may_block(&self) -> bool {
        let certain = self.penalties.blocked().filter(|(_, o)| o.is_certain());
        certain.count() < self.committee.faults()
    }

    /// Upon an order about a validator.
    fn on_order(&mut self, step: &mut Step, validator: ValidatorIndex, order: Order) {
        match order {
            Order::Block => {
                self.offend(step, validator, Offence::Operator, Exhibit::None);
            }
            Order::Pardon => {
                let now = (self.epoch(), self.view());
                self.convictions.pardon(validator, now);
                step.out.sentences.extend(self.penalties.lift(validator));
            }
        }
    }

    /// Upon a link having come up or gone down. Without a link nothing comes from that validator:
    /// no proposal, and no answer to a request. So its turns are given up at once, the present one
    /// too, and others are asked.
    fn on_linked(&mut self, step: &mut Step, peer: ValidatorIndex, up: bool) {
        if self.committee.identity(peer).is_none() || self.own_place() == Some(peer) {
            return;
        }
        self.pacemaker.linked(peer, up);
        if up {
            return self.ask_linked(step, peer);
        }
        self.note_unlinked(peer);
        self.fetcher.pass_on(step.now, peer);
        if self.committee.leader(self.view()) == peer {
            self.pacemaker.hurry(step.now);
        }
    }

    /// A block in memory, at or above the executed height, for serving it to a peer.
    pub fn block(&self, id: &Digest) -> Option<Arc<Block>> {
        self.chain.block(id)
    }

    /// Whether nothing here says that the vote key was used before (R28, *Restored*).
    pub fn key_is_fresh(&self) -> bool {
        self.memory.fresh
    }

    /// How many turns directly before this view have been given up, as far as this validator knows.
    pub(crate) fn turns_nullified_before(&self, view: View) -> u32 {
        let mut count = 0;
        let mut from = view;
        while let Some(last) = from.previous() {
            let first = self.committee.turn_of(last);
            let mut turn = self.views.range(first..=last);
            if !turn.any(|(_, round)| round.nullification.is_some()) {
                break;
            }
            count += 1;
            from = first;
        }
        count
    }

    /// Whether [`Self::checkpoint`] may replace a journal. It drops the votes up to the tip's view. If the database is lost,
    /// only the tip's finalization says that these are settled, and with a state that was fetched it has not come along.
    pub fn may_checkpoint(&self) -> bool {
        // R26
        self.tip().height.0 == 0 || self.tip().certificate.is_some()
    }

    /// The least that a journal must hold for this engine to be recovered: everything above the
    /// blocks that are durable elsewhere. Replaces all earlier records.
    pub fn checkpoint(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.silence_record().into_iter().collect();
        let delivered = self.chain.delivered().map(|finalized| &finalized.block);
        let held = self.chain.blocks().map(|(_, held)| held);
        let held = held.filter(|held| held.journaled).map(|held| &held.block);
        records.extend(delivered.chain(held).cloned().map(Record::Block));
        records.extend(self.delivered_borders().map(Record::Certificate));
        records.extend(self.tip().certificate.clone().map(Record::Certificate));
        records.extend(self.border.later().iter().cloned());
        for (_, round) in self.views.range(self.tip().view.next()..) {
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
            records.extend(votes.into_iter().flatten().copied().map(Record::Vote));
        }
        // R26: by its last block, and by nothing else, the journal says that the epoch before is over.
        if !records
            .iter()
            .any(|record| matches!(record, Record::Vote(_)))
        {
            let last = self.tip().block.as_ref();
            let last = last.filter(|block| block.header().epoch < self.epoch());
            records.extend(last.cloned().map(Record::Block));
        }
        records
    }

    fn on_frame(&mut self, step: &mut Step, from: ValidatorIndex, messages: Vec<Message>) {
        if self.committee.identity(from).is_none() || self.own_place() == Some(from) {
            return step.drop(from, DropReason::NotAPeer);
        }
        for message in messages {
            self.on_message(step, from, message);
        }
    }

    pub(crate) fn on_message(&mut self, step: &mut Step, from: ValidatorIndex, message: Message) {
        self.note_seen(from, &message);
        // Inquiries of blocked validators are answered too, and their answers are taken: they are
        // proven, or count as those of a faulty validator.
        match message {
            Message::Inquiry(nonce) => return self.on_inquiry(step, from, nonce),
            Message::Standing(standing) => return self.on_standing(step, from, *standing),
            _ => {}
        }
        if self.penalties.is_blocked(from) {
            return step.drop(from, DropReason::Blocked);
        }
        let takes_checking = matches!(
            message,
            Message::Vote(_) | Message::Certificate(_) | Message::Evidence(_)
        );
        if takes_checking && self.penalties.is_muted(from) {
            return step.drop(from, DropReason::Muted);
        }
        if let Some(epoch) = epoch_of(&message)
            && epoch != self.epoch()
        {
            return self.on_foreign_epoch(step, from, epoch, message);
        }
        if self.epoch_is_over() {
            return self.at_border(step, from, &message);
        }
        match message {
            Message::Vote(vote) => self.on_vote(step, from, vote),
            Message::Proposal(proposal) => self.on_proposal(step, from, proposal),
            Message::Certificate(certificate) => {
                self.check_certificates(step, from, vec![certificate]);
            }
            Message::BlockReply(block) => self.on_block(step, from, block),
            Message::RangeReply {
                blocks,
                finalization,
            } => self.on_range(step, from, blocks, finalization),
            Message::Pruned {
                from: height,
                oldest,
            } => self.on_pruned(step, from, height, oldest),
            Message::CertificateRequest { epoch, first, last } => {
                self.on_certificate_request(step, from, epoch, first, last);
            }
            Message::Status(status) => self.on_status(step, from, status),
            // Missing links and relayed frames are the node's concern.
            Message::Apart(_) | Message::Relayed(_) => {}
            Message::Inquiry(_) | Message::Standing(_) => {}
            Message::Evidence(evidence) => self.on_evidence(step, from, *evidence),
            // Requests for what is stored and forwarded transactions are the node's concern.
            Message::BlockRequest(_)
            | Message::RangeRequest(_)
            | Message::Transactions(_)
            | Message::SnapshotRequest
            | Message::SnapshotReply(_)
            | Message::ChunkRequest(_)
            | Message::ChunkReply { .. }
            | Message::FollowRequest(_)
            | Message::HandoverRequest(_)
            | Message::HandoverReply { .. }
            | Message::Bundle(_)
            | Message::BundleRequest(_) => {
                step.drop(from, DropReason::NotForEngine);
            }
        }
    }

    fn on_foreign_epoch(
        &mut self,
        step: &mut Step,
        from: ValidatorIndex,
        epoch: Epoch,
        message: Message,
    ) {
        if epoch > self.epoch() {
            // R31
            let alike = self.config.committees.votes_alike(epoch);
            if alike && epoch == self.epoch().next() {
                self.keep_early(step, from, message);
            } else {
                step.drop(from, DropReason::EpochAhead(epoch));
            }
            return self.on_claim(step, from, epoch);
        }
        step.drop(from, DropReason::EpochOver(epoch));
        if epoch.next() == self.epoch() && asks_for_help(&message) {
            self.help_across(step, from);
        }
    }

    pub(crate) fn rules(&self) -> &'static dyn Rules {
        protocol::of(self.config.protocol)
    }

    /// The view that a certificate lets a validator enter, and what that says of the view before.
    pub(crate) fn after(&self, subject: &Subject) -> (View, Before) {
        self.rules()
            .after(&self.committee, subject.kind, subject.view)
    }

    /// The view that the tip's finalization lets a validator enter.
    pub(crate) fn after_tip(&self) -> View {
        after_tip(self.config.protocol, &self.committee, self.tip().view)
    }

    pub(crate) fn own_place(&self) -> Option<ValidatorIndex> {
        self.config.own.as_ref().map(|own| own.place)
    }

    pub(crate) fn leads(&self, view: View) -> bool {
        self.own_place() == Some(self.committee.leader(view))
    }

    /// Moves to a view that is not below the current one.
    pub(crate) fn enter(&mut self, step: &mut Step, view: View, before: impl Into<Before>) {
        let before = before.into();
        if before != Before::Nothing {
            self.help_who_gave_up(step);
        }
        self.views.enter(view);
        step.out.entered.push(view);
        self.pace(step.now, before);
        if self.pacemaker.is_stuck() {
            // So many leaders in a row cannot all be faulty. Perhaps the blocked ones have healed,
            // and views pass without a block because their proposals are ignored.
            self.give_second_chances(step);
        }
        self.building = None;
        let open = View(view.0.saturating_sub(TAIL_VIEWS));
        self.checks.forget_below(open);
        self.fetcher
            .retain(|want| !matches!(want, Want::Certificates(..)));
        self.progress(step);
    }

    /// Puts on probation whoever is blocked on this validator's own observation alone.
    pub(crate) fn give_second_chances(&mut self, step: &mut Step) {
        // R18
        if self.rules().is_in_need(self) {
            step.out.sentences.extend(self.penalties.release_suspects());
        }
    }

    /// Starts the timers of the current view.
    pub(crate) fn pace(&mut self, now: Moment, before: impl Into<Before>) {
        let view = self.view();
        let leader = self.committee.leader(view);
        let expected = if !self.rules().proposes_in(&self.committee, view) {
            Expected::Votes
        } else if self.own_place() == Some(leader) {
            Expected::Own
        } else if self.penalties.is_blocked(leader) {
            Expected::Nothing
        } else {
            Expected::Proposal
        };
        self.pacemaker.set_doublings(self.rules().doublings(self));
        self.pacemaker.enter(now, view, leader, before, expected);
    }

    /// Does what the current view allows: propose, or vote for what is proposed.
    pub(crate) fn progress(&mut self, step: &mut Step) {
        if self.epoch_is_over() {
            return;
        }
        self.try_propose(step);
        self.try_notarize(step);
    }
}

/// The view that a validator enters upon the finalization of this one, with 0 for the start of an epoch.
fn after_tip(protocol: Protocol, committee: &Committee, view: View) -> View {
    let rules = protocol::of(protocol);
    rules.after(committee, VoteKind::Finalize, view).0
}
