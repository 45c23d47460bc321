//! What lies across the borders of the current epoch: what ended the one before, messages that came early
//! for the next, and journal records of later ones.

use crate::config::MAX_EARLY_MESSAGES;
use quorate_types::{Certificate, Message, Record, ValidatorIndex};
use std::collections::BTreeMap;

/// Messages that came too early, by sender.
pub(crate) type Early = BTreeMap<ValidatorIndex, Vec<Message>>;

#[derive(Default)]
pub(crate) struct Border {
    /// The finalization that ended the epoch before.
    ended_by: Option<Certificate>,
    early: Early,
    /// Journal records of epochs that this machine has not reached again.
    later: Vec<Record>,
}

impl Border {
    pub(crate) fn new(ended_by: Option<Certificate>) -> Self {
        Self {
            ended_by,
            ..Self::default()
        }
    }

    pub(crate) fn ended_by(&self) -> Option<&Certificate> {
        self.ended_by.as_ref()
    }

    /// Starts the next epoch; the certificate has ended the one before.
    pub(crate) fn cross(&mut self, ended_by: Option<Certificate>) {
        self.ended_by = ended_by;
    }

    /// Keeps a message of the next epoch: at most [`MAX_EARLY_MESSAGES`] of a peer, and one proposal
    /// for each view. Returns whether it was kept or is held already.
    pub(crate) fn keep_early(&mut self, from: ValidatorIndex, message: Message) -> bool {
        let list = self.early.entry(from).or_default();
        let held = list.iter().any(|held| match (held, &message) {
            (Message::Proposal(held), Message::Proposal(new)) => held.view == new.view,
            (held, new) => held == new,
        });
        let room = list.len() < MAX_EARLY_MESSAGES;
        if !held && room {
            list.push(message);
        }
        held || room
    }

    pub(crate) fn take_early(&mut self) -> Early {
        std::mem::take(&mut self.early)
    }

    pub(crate) fn early_len(&self) -> usize {
        self.early.values().map(Vec::len).sum()
    }

    /// Journal records of later epochs, oldest first.
    pub(crate) fn later(&self) -> &[Record] {
        &self.later
    }

    pub(crate) fn take_later(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.later)
    }

    pub(crate) fn keep_later(&mut self, records: impl IntoIterator<Item = Record>) {
        self.later.extend(records);
    }
}
