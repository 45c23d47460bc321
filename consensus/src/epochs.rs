//! From one epoch to the next.
//!
//! An epoch ends at a block whose height follows from the epoch's length. Nothing is built on a
//! notarized last block: leaders propose that very block again, view after view, until it is final.
//! Then the next epoch starts on it, in view 1. Validators do not wait for each other: each leaves
//! the epoch when it has the last block's finalization. So three kinds of messages cross the
//! border:
//!
//! - *early* ones, of the next epoch: kept, within limits, until this validator gets there;
//! - *late* ones, of the epoch before: their sender is sent the finalization that ended it;
//! - claims to be *epochs ahead*: believed once f + 1 validators make them; then final blocks are
//!   fetched in order, epoch by epoch.
//!
//! Where the validators change, this engine ends with its epoch, and another one starts on the same
//! tip, for the next committee.

use crate::{
    config::{LOOKAHEAD_VIEWS, PROPOSAL_LOOKAHEAD_VIEWS},
    dropped::DropReason,
    engine::Engine,
    io::{Step, Target},
    rounds::flaw::Flaw,
    staging::Staging,
};
use quorate_types::{
    Block, Certificate, Epoch, Height, Message, Status, Succession, ValidatorIndex, View, VoteKind,
};

impl Engine {
    pub fn epoch(&self) -> Epoch {
        self.committee.epoch()
    }

    /// The height of the current epoch's last block.
    pub(crate) fn last_height(&self) -> Height {
        self.config.epoch_length.last_height(self.epoch())
    }

    /// Whether the current epoch ends with this block: nothing is built on it here.
    pub(crate) fn ends_epoch(&self, block: &Block) -> bool {
        // R11
        block.header().epoch == self.epoch() && block.height() == self.last_height()
    }

    /// Whether the epoch's last block is final.
    pub(crate) fn epoch_is_over(&self) -> bool {
        self.tip().height >= self.last_height()
    }

    /// Whether the epoch is over, and is known to be followed by one with the same validators, so that
    /// this engine goes on with it.
    pub(crate) fn may_cross(&self) -> bool {
        // R31
        self.epoch_is_over() && self.config.committees.succession(self.epoch()) == Succession::Stays
    }

    /// Waits until all of this epoch is executed. If the validators change, this engine has then done its
    /// work.
    pub(crate) fn wait_at_border(&mut self, step: &mut Step) {
        // R31
        if self.config.committees.succession(self.epoch()) == Succession::Changes {
            step.out.ended = Some(self.epoch());
        }
    }

    /// Upon a message of an epoch that is over here, while the next one has not begun: its sender may
    /// lack the last finalization.
    pub(crate) fn at_border(&mut self, step: &mut Step, from: ValidatorIndex, message: &Message) {
        // R31
        if let Message::Status(status) = message {
            self.peers.claims(from, status.finalized_height);
            if status.finalized_height >= self.last_height() {
                return;
            }
        }
        let waits = matches!(
            message,
            Message::Status(_)
                | Message::Vote(_)
                | Message::Proposal(_)
                | Message::CertificateRequest { .. }
        );
        if waits
            && self.may_help(step, from, self.tip().view)
            && let Some(last) = self.tip().certificate.clone()
        {
            step.send(Target::One(from), Message::Certificate(last));
        }
    }

    /// Leaves an epoch whose last block is final, and processes the early messages of the next.
    pub(crate) fn hand_over(&mut self, step: &mut Step) {
        // R12
        self.renew();
        if let Some(inquiry) = &mut self.memory.inquiry {
            inquiry.renew(step.now);
        }
        step.out.epochs.push(self.epoch());
        if let Err(error) = self.replay(step) {
            step.halt(error.to_string());
            return;
        }
        let view = self.view();
        self.enter(step, view, true);
        for (from, messages) in self.border.take_early() {
            for message in messages {
                self.on_message(step, from, message);
            }
        }
    }

    /// Starts the next epoch on the tip. What belongs to the old epoch alone is dropped: its votes
    /// can change nothing any more.
    pub(crate) fn renew(&mut self) {
        let epoch = self.epoch().next();
        self.border.cross(self.tip().certificate.clone());
        self.committee = self.config.committees.of(epoch);
        self.chain.start_epoch();
        self.views.restart();
        self.pacemaker.renew();
        self.staging = Staging::default();
        self.checks.leave_epoch();
        self.peers.leave_epoch();
        self.building = None;
        self.missing = None;
        self.fetcher.renew(epoch);
        self.note_last_block();
    }

    /// Keeps a message of the next epoch until it begins: at most [`MAX_EARLY_MESSAGES`] of a peer,
    /// and one proposal of each leader and view; so n × 48 small messages and 4 blocks.
    pub(crate) fn keep_early(&mut self, step: &mut Step, from: ValidatorIndex, message: Message) {
        let (view, limit) = match &message {
            Message::Vote(vote) if vote.signer == from => (vote.subject.view, LOOKAHEAD_VIEWS),
            Message::Certificate(certificate) => (certificate.subject.view, LOOKAHEAD_VIEWS),
            Message::Proposal(proposal) => (proposal.view, PROPOSAL_LOOKAHEAD_VIEWS),
            _ => (View(0), 0),
        };
        // R12
        if view.0 == 0 || view.0 > limit {
            return step.drop(from, DropReason::ViewAhead(view));
        }
        if let Message::Proposal(proposal) = &message {
            let next = self.epoch().next();
            if self.config.committees.leader(next, view) != from {
                return step.drop(from, DropReason::Flawed(view, Flaw::NotItsTurn));
            }
            // The first leader attaches the finalization that ended this epoch.
            let border = proposal.parent_certificate.clone();
            let border = border.filter(|held| held.subject.epoch == self.epoch());
            self.check_certificates(step, from, border.into_iter().collect());
        }
        if !self.border.keep_early(from, message) {
            step.drop(from, DropReason::TooManyEarly);
        }
    }

    /// Sends a peer that is stuck in the epoch before the finalization that ended it, at most once
    /// per half resend interval.
    pub(crate) fn help_across(&mut self, step: &mut Step, peer: ValidatorIndex) {
        let Some(border) = self.border.ended_by().cloned() else {
            return;
        };
        if self.may_help(step, peer, View(0)) {
            step.send(Target::One(peer), Message::Certificate(border));
        }
    }

    /// Upon a peer's status.
    pub(crate) fn on_status(&mut self, step: &mut Step, from: ValidatorIndex, status: Status) {
        self.peers.claims(from, status.finalized_height);
        if status.epoch == self.epoch() && status.view.next() < self.view() {
            self.help(step, from, status.view);
        }
        if status.epoch.next() == self.epoch() {
            self.help_across(step, from);
        }
        if status.epoch > self.epoch() {
            self.pursue(step);
        }
        self.inform(step, from, status.convicted);
    }

    /// Upon a message of a later epoch: its sender claims that all epochs before are over.
    pub(crate) fn on_claim(&mut self, step: &mut Step, from: ValidatorIndex, epoch: Epoch) {
        let over = epoch.previous().unwrap_or_default();
        let height = self.config.epoch_length.last_height(over);
        self.peers.claims_at_least(from, height);
        self.pursue(step);
    }

    /// Whether other validators have left this epoch: f + 1 of them claim to hold final blocks
    /// beyond it, so an honest one does. If the journal says so, one is enough.
    pub(crate) fn lags_by_epochs(&self) -> bool {
        let beyond = self.peers.claiming(self.last_height());
        // R13
        let lying_at_most = match self.journal_is_ahead() {
            true => 0,
            false => self.committee.faults(),
        };
        beyond > lying_at_most && !self.epoch_is_over()
    }

    /// Whether the journal tells of a later epoch, or that this one is over.
    pub fn journal_is_ahead(&self) -> bool {
        !self.border.later().is_empty() || self.epoch() < self.memory.settled.epoch
    }

    /// The finalizations of the last blocks of past epochs whose blocks are not yet durable outside
    /// the journal.
    pub(crate) fn delivered_borders(&self) -> impl Iterator<Item = Certificate> + '_ {
        let delivered = self.chain.delivered();
        let last = |height| self.config.epoch_length.is_last(height);
        delivered
            .filter(move |finalized| last(finalized.block.height()))
            .filter_map(|finalized| finalized.certificate.clone())
    }
}

/// The epoch of a message that belongs to one.
pub(crate) fn epoch_of(message: &Message) -> Option<Epoch> {
    match message {
        Message::Vote(vote) => Some(vote.subject.epoch),
        Message::Certificate(certificate) => Some(certificate.subject.epoch),
        Message::Proposal(proposal) => Some(proposal.epoch),
        _ => None,
    }
}

/// Whether a message shows that its sender is waiting in its epoch.
pub(crate) fn asks_for_help(message: &Message) -> bool {
    match message {
        Message::Vote(vote) => vote.subject.kind == VoteKind::Nullify,
        Message::Proposal(_) => true,
        _ => false,
    }
}
