//! Starting, anew or after a crash, from what is durable.

use crate::{
    config::{Config, Tip},
    engine::{Engine, Held},
    io::{Moment, Output},
};
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{Certificate, Height, Record, View, Vote, VoteKind};

/// A journal that this validator cannot have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// It holds somebody else's vote.
    #[error(
        "the journal holds {vote:?}, which is not this validator's vote: was the journal of another validator copied here?"
    )]
    ForeignVote {
        /// The vote.
        vote: Box<Vote>,
    },
    /// It holds two votes that no honest validator casts together.
    #[error(
        "the journal holds two conflicting votes, {first:?} and {second:?}: this key must not vote again"
    )]
    ConflictingVotes {
        /// One of them.
        first: Box<Vote>,
        /// The other.
        second: Box<Vote>,
    },
}

impl Engine {
    /// A machine that goes on where the journal ends. `tip` is the newest finalised block that is
    /// durable outside the journal; the records are the journal's, oldest first.
    ///
    /// The first output carries what became final beyond the tip, and says again what was said in
    /// the view where the machine stopped: without that, validators which all crash after they
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
        let own = config.own.as_ref().map(|own| own.place);
        for record in &records {
            if let Record::Vote(vote) = record
                && Some(vote.signer) != own
            {
                return Err(RecoverError::ForeignVote {
                    vote: Box::new(*vote),
                });
            }
        }
        let length = config.epoch_length;
        let epoch = length.epoch_of(tip.height.next());
        let config = Config {
            committee: config.committee.with_epoch(epoch),
            ..config
        };
        let starts_epoch = tip.height == Height(0) || length.is_last(tip.height);
        let tip = Tip {
            view: if starts_epoch { View(0) } else { tip.view },
            ..tip
        };
        let mut engine = Self::empty(config, tip);
        let mut records = records;
        engine.restore_memory(&mut records);
        engine.future = records;
        if made(Mistake::JournalNotReplayed) {
            engine.future.clear();
        }
        let mut out = Output::default();
        engine.enforce_evidence(&mut out);
        engine.replay(now, &mut out)?;
        while engine.epoch_is_over() {
            engine.renew();
            engine.replay(now, &mut out)?;
        }
        // Requests are made when the machine runs; nothing is asked while it recovers.
        out.send.clear();
        engine.resume(now, &mut out);
        Ok((engine, out))
    }

    /// Takes the records of the current epoch and acts on them; those of later epochs wait until
    /// the machine gets there. While there are any it does not vote: it once did in a later
    /// epoch, so the journal no longer tells what it said in this one.
    pub(crate) fn replay(&mut self, now: Moment, out: &mut Output) -> Result<(), RecoverError> {
        let epoch = self.epoch();
        let mut newest: Option<Certificate> = None;
        for record in std::mem::take(&mut self.future) {
            let of = match &record {
                Record::Block(block) => block.header().epoch,
                Record::Certificate(certificate) => certificate.subject.epoch,
                Record::Vote(vote) => vote.subject.epoch,
                Record::Silence(_) => continue,
            };
            if of != epoch {
                // R26
                if of > epoch {
                    self.future.push(record);
                }
                continue;
            }
            match record {
                Record::Certificate(_) if made(Mistake::FinalizeForgotten) => {}
                Record::Block(block) => {
                    if block.height() > self.tip.height {
                        let held = Held {
                            block: block.clone(),
                            journaled: true,
                            leader: None,
                        };
                        self.blocks.insert(block.id(), held);
                    }
                }
                Record::Certificate(certificate) => {
                    let subject = certificate.subject;
                    if subject.view <= self.tip.view {
                        continue;
                    }
                    self.view = self.view.max(subject.view.next());
                    let round = self.rounds.entry(subject.view).or_default();
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
            self.on_finalization(now, certificate, out);
        }
        self.view = self.view.max(self.tip.view.next());
        Ok(())
    }

    fn restore(&mut self, vote: Vote) -> Result<(), RecoverError> {
        let view = vote.subject.view;
        if view <= self.tip.view || is_forgotten(vote.subject.kind) {
            return Ok(());
        }
        self.view = self.view.max(view);
        let round = self.rounds.entry(view).or_default();
        if let Some(held) = round.own.contradicted_by(vote) {
            return Err(RecoverError::ConflictingVotes {
                first: Box::new(held),
                second: Box::new(vote),
            });
        }
        *round.own.place(vote.subject.kind) = Some(vote);
        let size = self.config.committee.size();
        round.tally(vote.subject.kind).admit(&vote, size, true);
        Ok(())
    }

    /// Sets the current view going again.
    fn resume(&mut self, now: Moment, out: &mut Output) {
        self.pace(now, true);
        let stuck = self
            .rounds
            .get(&self.view)
            .is_some_and(|round| round.own.nullify.is_some());
        if stuck {
            self.pacemaker.plan_resend(now);
        }
        self.repeat(out);
        out.entered.push(self.view);
        self.begin_inquiry(now, out);
        self.progress(now, out);
    }
}

/// A test's mistake; see [`quorate_crypto::mistakes`].
fn is_forgotten(kind: VoteKind) -> bool {
    made(match kind {
        VoteKind::Notarize => Mistake::NotarizeForgotten,
        VoteKind::Nullify => Mistake::NullifyForgotten,
        VoteKind::Finalize => Mistake::FinalizeForgotten,
    })
}
