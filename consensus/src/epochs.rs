//! From one epoch to the next.
//!
//! An epoch ends at a block, whose height follows from the epoch's length. On a notarized last
//! block nothing is built: leaders propose that very block again, view after view, until it is
//! final. Then the next epoch's machine starts on it, in view 1. Nobody waits for anybody: who has
//! the last block's finalization has left the epoch. So three kinds of messages come across the
//! border, and each is dealt with here:
//!
//! - *early* ones, of the next epoch: kept, within limits, until this validator gets there;
//! - *late* ones, of the epoch before: whoever is stuck there is sent the finalization that ended
//!   it;
//! - word that others are *epochs ahead*: believed once f + 1 validators say so; then finalised
//!   blocks are fetched in order, epoch by epoch.

use crate::{
    config::{LOOKAHEAD_VIEWS, MAX_EARLY_MESSAGES, PROPOSAL_LOOKAHEAD_VIEWS, Tip},
    engine::{Engine, Pending},
    io::{Moment, Output, Target},
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{
    Block, Certificate, Epoch, Height, Message, Status, ValidatorIndex, View, VoteKind,
};
use std::collections::BTreeMap;

impl Engine {
    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch()
    }

    /// The height of the current epoch's last block.
    pub(crate) fn last_height(&self) -> Height {
        self.config.epoch_length.last_height(self.epoch())
    }

    /// Whether the current epoch ends with this block: nothing is built on it here.
    pub(crate) fn ends_epoch(&self, block: &Block) -> bool {
        // R11
        block.header().epoch == self.epoch()
            && block.height() == self.last_height()
            && !made(Mistake::BorderIgnored)
    }

    /// Whether the epoch's last block is final.
    pub(crate) fn epoch_is_over(&self) -> bool {
        self.tip.height >= self.last_height()
    }

    /// Leaves an epoch whose last block is final, and acts on what came early for the next.
    pub(crate) fn hand_over(&mut self, now: Moment, out: &mut Output) {
        // R12
        self.renew();
        out.epochs.push(self.epoch());
        if let Err(error) = self.replay(now, out) {
            out.fatal = Some(error.to_string());
            return;
        }
        let view = self.view;
        self.enter(now, view, true, out);
        for (from, messages) in std::mem::take(&mut self.early) {
            for message in messages {
                self.on_message(now, from, message, out);
            }
        }
    }

    /// Becomes the machine of the next epoch, which starts on the tip. What is of the old epoch
    /// alone is dropped: its votes can change nothing any more.
    pub(crate) fn renew(&mut self) {
        let epoch = self.epoch().next();
        self.border = self.tip.certificate.clone();
        self.config.committee = self.config.committee.with_epoch(epoch);
        self.tip = Tip {
            view: View(0),
            ..self.tip.clone()
        };
        self.view = View(1);
        self.pacemaker.renew();
        self.open_from = View(0);
        self.rounds.clear();
        self.blocks.clear();
        self.target = None;
        self.staged.clear();
        self.hashed.clear();
        self.spare.clear();
        self.helped.clear();
        self.building = None;
        self.fetcher.renew(epoch);
        self.staged_by.clear();
        for pending in self.jobs.values_mut() {
            // Two conflicting votes are evidence in any epoch; nothing else is of use.
            let kept = made(Mistake::StaleAnswerAccepted);
            let of_any_epoch =
                matches!(pending, Pending::Conflict { .. } | Pending::Standing { .. });
            if !of_any_epoch && !kept {
                *pending = Pending::Stale;
            }
        }
    }

    /// Keeps a message of the next epoch until it begins. At most [`MAX_EARLY_MESSAGES`] of a
    /// peer, one proposal of each leader and view; so n × 48 small messages and 4 blocks at most.
    pub(crate) fn keep_early(&mut self, from: ValidatorIndex, message: Message, out: &mut Output) {
        let (view, limit) = match &message {
            Message::Vote(vote) if vote.signer == from => (vote.subject.view, LOOKAHEAD_VIEWS),
            Message::Certificate(certificate) => (certificate.subject.view, LOOKAHEAD_VIEWS),
            Message::Proposal(proposal) => (proposal.view, PROPOSAL_LOOKAHEAD_VIEWS),
            _ => (View(0), 0),
        };
        let limit = if made(Mistake::EarlyUnbounded) {
            u64::MAX
        } else {
            limit
        };
        // R12
        if view.0 == 0 || view.0 > limit {
            self.counters.dropped_window += 1;
            return;
        }
        if let Message::Proposal(proposal) = &message {
            let next = self.epoch().next();
            if self.config.committee.leader_in(next, view) != from {
                self.counters.dropped_invalid += 1;
                return;
            }
            // The first leader attaches what ended this epoch.
            let border = proposal.parent_certificate.clone();
            let border = border.filter(|held| held.subject.epoch == self.epoch());
            self.check_certificates(from, border.into_iter().collect(), out);
        }
        let list = self.early.entry(from).or_default();
        let held = list.iter().any(|held| match (held, &message) {
            (Message::Proposal(held), Message::Proposal(new)) => held.view == new.view,
            (held, new) => held == new,
        });
        if !held && (list.len() < MAX_EARLY_MESSAGES || made(Mistake::EarlyUnbounded)) {
            list.push(message);
        }
    }

    /// Sends a peer that is stuck in the epoch before what ended it. At most once per half resend
    /// interval.
    pub(crate) fn help_across(&mut self, now: Moment, peer: ValidatorIndex, out: &mut Output) {
        let Some(border) = self.border.clone() else {
            return;
        };
        if self.may_help(now, peer, View(0)) {
            self.send(Target::One(peer), Message::Certificate(border), out);
        }
    }

    /// Upon word of how far a peer is.
    pub(crate) fn on_status(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        status: Status,
        out: &mut Output,
    ) {
        self.claims.insert(from, status.finalized_height);
        if status.epoch == self.epoch() && status.view.next() < self.view {
            self.help(now, from, status.view, out);
        }
        if status.epoch.next() == self.epoch() {
            self.help_across(now, from, out);
        }
        if status.epoch > self.epoch() {
            self.pursue(now, out);
        }
        self.inform(now, from, status.convicted, out);
    }

    /// Upon a message of a later epoch: its sender says that all epochs before are over.
    pub(crate) fn on_claim(
        &mut self,
        now: Moment,
        from: ValidatorIndex,
        epoch: Epoch,
        out: &mut Output,
    ) {
        let over = epoch.previous().unwrap_or_default();
        let height = self.config.epoch_length.last_height(over);
        let claim = self.claims.entry(from).or_default();
        *claim = height.max(*claim);
        self.pursue(now, out);
    }

    /// Whether other validators have left this epoch: f + 1 of them say that they hold finalised
    /// blocks beyond it, so an honest one does.
    pub(crate) fn lags_by_epochs(&self) -> bool {
        let beyond = self.claims.values().filter(|h| **h >= self.last_height());
        // R13
        beyond.count() > self.config.committee.faults() && !self.epoch_is_over()
    }

    /// The finalizations of the last blocks of epochs that are over, as far as their blocks are
    /// not yet durable outside the journal.
    pub(crate) fn delivered_borders(&self) -> impl Iterator<Item = Certificate> + '_ {
        self.delivered
            .iter()
            .filter(|(height, _)| self.config.epoch_length.is_last(**height))
            .filter_map(|(_, finalized)| finalized.certificate.clone())
    }
}

/// Messages that came too early, by who sent them.
pub(crate) type Early = BTreeMap<ValidatorIndex, Vec<Message>>;

/// The epoch of a message that belongs to one.
pub(crate) fn epoch_of(message: &Message) -> Option<Epoch> {
    match message {
        Message::Vote(_) if made(Mistake::StaleVoteAccepted) => None,
        Message::Certificate(_) if made(Mistake::StaleCertificateAccepted) => None,
        Message::Vote(vote) => Some(vote.subject.epoch),
        Message::Certificate(certificate) => Some(certificate.subject.epoch),
        Message::Proposal(proposal) => Some(proposal.epoch),
        _ => None,
    }
}

/// Whether a message shows that its sender waits for something to happen in its epoch.
pub(crate) fn asks_for_help(message: &Message) -> bool {
    match message {
        Message::Vote(vote) => vote.subject.kind == VoteKind::Nullify,
        Message::Proposal(_) => true,
        _ => false,
    }
}
