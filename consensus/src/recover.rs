//! Starting from what is durable, for the first time or after a crash.

use crate::{
    config::{Config, Tip},
    engine::Engine,
    io::{Moment, Output, Step},
    protocol,
};
use quorate_types::{Certificate, Height, Record, View, Vote, VoteKind};

/// A journal that this validator cannot have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// It holds another validator's vote.
    #[error(
        "the journal holds {vote:?}, which is not this validator's vote: was the journal of another validator copied here?"
    )]
    ForeignVote { vote: Box<Vote> },
    /// It holds two votes that no honest validator casts together.
    #[error(
        "the journal holds two conflicting votes, {first:?} and {second:?}: this key must not vote again"
    )]
    ConflictingVotes { first: Box<Vote>, second: Box<Vote> },
}

impl Engine {
    /// An engine that continues where the journal ends. `tip` is the newest final block that is
    /// durable outside the journal; the records are the journal's, oldest first.
    ///
    /// The first output carries the blocks that became final beyond the tip, and repeats the votes
    /// in the view where the engine stopped. Without that, validators that all crash after they
    /// have voted would wait for each other for ever.
    ///
    /// # Errors
    ///
    /// If the journal cannot be this validator's.
    pub fn recover(
        config: Config,
        tip: Tip,
        records: Vec<Record>,
        now: Moment,
    ) -> Result<(Self, Output), RecoverError> {
        let committees = &config.committees;
        let own = config.own.as_ref().map(|own| own.place);
        let identity = own.and_then(|own| committees.known().identity(own));
        for record in &records {
            let Record::Vote(vote) = record else {
                continue;
            };
            let epoch = vote.subject.epoch;
            // R31: it may have had another place.
            let place = match committees.votes_alike(epoch) {
                true => own,
                false => identity.and_then(|own| committees.of(epoch).place(&own)),
            };
            if committees.is_fixed(epoch) && Some(vote.signer) != place {
                return Err(RecoverError::ForeignVote {
                    vote: Box::new(*vote),
                });
            }
        }
        let length = config.epoch_length;
        let epoch = length.epoch_of(tip.height.next());
        let starts_epoch = tip.height == Height(0) || length.is_last(tip.height);
        let decided = tip
            .certificate
            .as_ref()
            .is_some_and(|held| held.subject.view == tip.view && held.subject.payload == tip.id);
        let view = match tip.view.previous() {
            _ if starts_epoch => View(0),
            // P1: final by a later block's finalization, so its own view binds who has complained there.
            Some(before) if !decided && protocol::of(config.protocol).binds_beyond_views() => {
                before
            }
            _ => tip.view,
        };
        let tip = Tip { view, ..tip };
        let mut engine = Self::empty(config, epoch, tip);
        let mut records = records;
        engine.note_last_block();
        engine.restore_memory(&mut records);
        engine.border.keep_later(records);
        let mut step = Step::new(now);
        engine.enforce_evidence(&mut step);
        engine.replay(&mut step)?;
        while engine.may_cross() {
            engine.renew();
            engine.replay(&mut step)?;
        }
        // Requests are made when the engine runs, not while it recovers.
        step.out.send.clear();
        engine.resume(&mut step);
        Ok((engine, step.out))
    }

    /// Processes the records of the current epoch. Those of later epochs wait until the engine gets
    /// there. While there are any it does not vote: it has voted in a later epoch, so the journal
    /// no longer holds all its votes of this one.
    pub(crate) fn replay(&mut self, step: &mut Step) -> Result<(), RecoverError> {
        let epoch = self.epoch();
        let mut newest: Option<Certificate> = None;
        for record in self.border.take_later() {
            let of = match &record {
                Record::Block(block) => block.header().epoch,
                Record::Certificate(certificate) => certificate.subject.epoch,
                Record::Vote(vote) => vote.subject.epoch,
                Record::Silence(_) => continue,
            };
            if of != epoch {
                // R26
                if of > epoch {
                    self.border.keep_later([record]);
                }
                continue;
            }
            match record {
                Record::Block(block) => self.chain.restore(block),
                Record::Certificate(certificate) => {
                    let subject = certificate.subject;
                    if subject.view <= self.tip().view {
                        continue;
                    }
                    self.views.resume_at(self.after(&subject).0);
                    let round = self.views.at(subject.view);
                    round.keep(&certificate);
                    if subject.kind == VoteKind::Finalize
                        && newest
                            .as_ref()
                            .is_none_or(|held| held.subject.view < subject.view)
                    {
                        newest = Some(certificate);
                    }
                }
                Record::Vote(vote) => self.restore(vote)?,
                Record::Silence(_) => {}
            }
        }
        if let Some(certificate) = newest {
            self.on_finalization(step, certificate);
        }
        self.views.resume_at(self.after_tip());
        Ok(())
    }

    fn restore(&mut self, vote: Vote) -> Result<(), RecoverError> {
        let view = vote.subject.view;
        if view <= self.tip().view {
            return Ok(());
        }
        self.views.resume_at(view);
        let round = self.views.at(view);
        if let Some(held) = round.own.contradicted_by(vote) {
            return Err(RecoverError::ConflictingVotes {
                first: Box::new(held),
                second: Box::new(vote),
            });
        }
        *round.own.place(vote.subject.kind) = Some(vote);
        let size = self.committee.size();
        round.tally(vote.subject.kind).admit(&vote, size, true);
        Ok(())
    }

    /// Continues the current view.
    fn resume(&mut self, step: &mut Step) {
        self.pace(step.now, true);
        let stuck = self
            .views
            .get(self.view())
            .is_some_and(|round| round.own.nullify.is_some());
        if stuck {
            self.pacemaker.plan_resend(step.now);
        }
        self.repeat(step);
        step.out.entered.push(self.view());
        self.begin_inquiry(step);
        self.progress(step);
        let view = self.view();
        if self.has_notarized(view) {
            self.rules().on_own_notarize(self, step, view);
        }
    }
}
