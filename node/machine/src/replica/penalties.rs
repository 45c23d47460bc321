//! Penalties and evidence: orders, and what is stored and published of them.

use super::{Cut, Ordered, Replica, as_i64};
use crate::offenders::Circumstances;
use quorate_api::EvidenceJson;
use quorate_api::OffenderJson;
use quorate_consensus::Input;
use quorate_consensus::Moment;
use quorate_consensus::Order;
use quorate_consensus::Penalty;
use quorate_consensus::Sentence;
use quorate_types::Evidence;
use tracing::error;
use tracing::warn;

use std::time::Duration;

/// How often the links of blocked validators are cut again. The library forgets after 60 s.
const CUT_INTERVAL: Duration = Duration::from_secs(45);

impl Replica {
    pub(super) fn carry_out_order(&mut self, ordered: Ordered) -> anyhow::Result<()> {
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
                self.config.committees.known().faults(),
                self.config.committees.known().size()
            );
            if let Some(reply) = reply {
                let _ = reply.send(Err(refusal));
            }
            return Ok(());
        }
        self.ordered = Some(lasts);
        let result = self.step(Input::Ordered { validator, order });
        self.ordered = None;
        let identity = self.config.committees.known().identity(validator);
        let offenders = self.around.offenders.entries();
        let entry = offenders.into_iter().find(|e| Some(e.identity) == identity);
        if let Some(reply) = reply {
            // The operator's command may have gone.
            let _ = reply.send(Ok(entry.map(OffenderJson::from)));
        }
        result
    }

    /// Ends expired penalties, and cuts the links of blocked validators again: the library's own
    /// block is short.
    pub(super) fn renew_penalties(&mut self, now: Moment) -> anyhow::Result<()> {
        for identity in self.around.offenders.expired(self.wall_ms()) {
            if let Some(validator) = self.config.committees.known().place(&identity) {
                self.step(Input::Ordered {
                    validator,
                    order: Order::Pardon,
                })?;
            }
        }
        if now >= self.next_cut {
            self.next_cut = now.after(CUT_INTERVAL);
            for (validator, _) in self.engine.blocked() {
                if let Some(identity) = self.config.committees.known().identity(validator) {
                    (self.around.cut)(identity, Cut::Off);
                }
            }
        }
        Ok(())
    }

    /// Stores verified evidence on disk and publishes it.
    pub(super) fn keep_evidence(&mut self, evidence: &Evidence) -> anyhow::Result<()> {
        self.around.metrics.evidence.inc();
        let committee = &self.config.committees.known();
        let signer = evidence.first.signer;
        if Some(signer) == self.around.live.own() {
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
        self.show_evidence();
        Ok(())
    }

    /// Stores, publishes and acts on a change of a validator's penalty.
    pub(super) fn announce(&mut self, sentence: &Sentence) -> anyhow::Result<()> {
        let Sentence {
            validator,
            offence,
            penalty,
            ..
        } = *sentence;
        let Some(identity) = self.config.committees.known().identity(validator) else {
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

    pub(super) fn show_evidence(&self) {
        let held = self.around.evidence.all().iter().cloned();
        let shown = held.map(EvidenceJson::from).collect();
        self.around.live.set_evidence(shown);
    }

    pub(super) fn show_offenders(&self) {
        let metrics = &self.around.metrics;
        metrics
            .blocked
            .set(as_i64(self.engine.blocked().len() as u64));
        metrics
            .probation
            .set(as_i64(self.engine.on_probation().len() as u64));
        let offenders = self.around.offenders.entries().into_iter();
        let offenders = offenders.map(OffenderJson::from).collect();
        self.around.live.set_offenders(offenders);
        self.around.conduct.make_room();
    }
}
