//! Starting, anew or after a crash, from what is durable.

use crate::{
    config::{Config, Tip},
    engine::{Engine, Held},
    io::{Moment, Output},
};
use quorate_types::{Certificate, Record, Vote, VoteKind};

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
    /// It is of another epoch.
    #[error("the journal holds {vote:?}, but this is epoch {epoch}")]
    OtherEpoch {
        /// The vote.
        vote: Box<Vote>,
        /// The epoch that was to be recovered.
        epoch: quorate_types::Epoch,
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
        let mut engine = Self::empty(config, tip, now);
        let mut out = Output::default();
        let mut newest: Option<Certificate> = None;
        for record in records {
            match record {
                Record::Block(block) => {
                    if block.height() > engine.tip.height {
                        let held = Held {
                            block: block.clone(),
                            journaled: true,
                        };
                        engine.blocks.insert(block.id(), held);
                    }
                }
                Record::Certificate(certificate) => {
                    let subject = certificate.subject;
                    if subject.epoch != engine.config.epoch() || subject.view <= engine.tip.view {
                        continue;
                    }
                    engine.view = engine.view.max(subject.view.next());
                    engine
                        .rounds
                        .entry(subject.view)
                        .or_default()
                        .keep(&certificate);
                    if subject.kind == VoteKind::Finalize
                        && newest
                            .as_ref()
                            .is_none_or(|held| held.subject.view < subject.view)
                    {
                        newest = Some(certificate);
                    }
                }
                Record::Vote(vote) => engine.restore(vote)?,
            }
        }
        if let Some(certificate) = newest {
            engine.on_finalization(now, certificate, &mut out);
        }
        // Requests are made when the machine runs; nothing is asked while it recovers.
        out.send.clear();
        engine.view = engine.view.max(engine.tip.view.next());
        engine.resume(now, &mut out);
        Ok((engine, out))
    }

    fn restore(&mut self, vote: Vote) -> Result<(), RecoverError> {
        let epoch = self.config.epoch();
        if vote.subject.epoch != epoch {
            return Err(RecoverError::OtherEpoch {
                vote: Box::new(vote),
                epoch,
            });
        }
        if Some(vote.signer) != self.own_place() {
            return Err(RecoverError::ForeignVote {
                vote: Box::new(vote),
            });
        }
        let view = vote.subject.view;
        if view <= self.tip.view {
            return Ok(());
        }
        self.view = self.view.max(view);
        let round = self.rounds.entry(view).or_default();
        for held in [&round.own.notarize, &round.own.nullify, &round.own.finalize]
            .into_iter()
            .flatten()
        {
            let pair = quorate_types::Evidence {
                first: *held,
                second: vote,
            };
            if pair.conflict().is_some() {
                return Err(RecoverError::ConflictingVotes {
                    first: Box::new(*held),
                    second: Box::new(vote),
                });
            }
        }
        let place = match vote.subject.kind {
            VoteKind::Notarize => &mut round.own.notarize,
            VoteKind::Nullify => &mut round.own.nullify,
            VoteKind::Finalize => &mut round.own.finalize,
        };
        *place = Some(vote);
        let size = self.config.committee.size();
        round.tally(vote.subject.kind).admit(&vote, size, true);
        Ok(())
    }

    /// Sets the current view going again.
    fn resume(&mut self, now: Moment, out: &mut Output) {
        self.pacemaker.enter(now, true, false);
        let stuck = self
            .rounds
            .get(&self.view)
            .is_some_and(|round| round.own.nullify.is_some());
        if stuck {
            self.pacemaker.plan_resend(now);
        }
        self.repeat(out);
        out.entered.push(self.view);
        self.progress(now, out);
    }
}
