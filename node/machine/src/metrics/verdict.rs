//! The verdict as metrics.

use crate::live::verdict::keeps_up;
use prometheus::{Gauge, IntGauge, IntGaugeVec, Opts, Registry};
use quorate_api::verdict::{Health, VerdictJson, Voter, Voting};
use quorate_types::{Committee, ValidatorIndex};
use std::time::Duration;

/// What alerts about votes and the chain's state use.
pub(crate) struct VerdictMetrics {
    state: IntGaugeVec,
    voting: IntGauge,
    votes: IntGaugeVec,
    clock_refused: IntGaugeVec,
    usual_interval: Gauge,
}

impl VerdictMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let labelled = |name: &str, help: &str, label: &str| {
            let metric = IntGaugeVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let voting = IntGauge::new(
            "quorate_consensus_voting_validators",
            "Validators whose votes are seen, this one among them if it votes",
        )?;
        registry.register(Box::new(voting.clone()))?;
        let usual_interval = Gauge::new(
            "quorate_consensus_usual_block_interval_seconds",
            "The longest that a block takes here when nothing is wrong: by configuration or as measured",
        )?;
        registry.register(Box::new(usual_interval.clone()))?;
        Ok(Self {
            usual_interval,
            state: labelled(
                "quorate_node_verdict",
                "1 for the state that this validator is in, by its own verdict, 0 for the others",
                "state",
            )?,
            voting,
            votes: labelled(
                "quorate_consensus_validator_votes",
                "1 if a validator's votes are seen here, otherwise 0",
                "validator",
            )?,
            clock_refused: labelled(
                "quorate_clock_refused",
                "1 while there is no link to a validator, since its clock and this one differ by more than 5 s",
                "validator",
            )?,
        })
    }

    /// A follower sees no votes.
    pub(super) fn introduce(&self, committee: &Committee, votes: bool) {
        for place in committee.places() {
            if votes {
                self.votes.with_label_values(&[&place.0.to_string()]);
            }
            self.clock_refused(place, false);
        }
        for state in Health::ALL {
            self.state.with_label_values(&[state.name()]);
        }
    }

    pub(super) fn clock_refused(&self, validator: ValidatorIndex, refused: bool) {
        let gauge = (self.clock_refused).with_label_values(&[&validator.0.to_string()]);
        gauge.set(i64::from(refused));
    }

    pub(super) fn show(&self, verdict: &VerdictJson, own: Option<ValidatorIndex>, usual: Duration) {
        self.usual_interval.set(usual.as_secs_f64());
        for state in Health::ALL {
            let gauge = self.state.with_label_values(&[state.name()]);
            gauge.set(i64::from(state == verdict.state));
        }
        self.voting
            .set(i64::try_from(verdict.voters).unwrap_or(i64::MAX));
        let votes = |place: ValidatorIndex, yes: bool| {
            let gauge = self.votes.with_label_values(&[&place.0.to_string()]);
            gauge.set(i64::from(yes));
        };
        if let Some(own) = own {
            votes(
                own,
                verdict.voting == Voting::Votes && keeps_up(verdict.blocks_behind),
            );
        }
        for other in &verdict.others {
            votes(other.validator, other.state == Voter::Votes);
        }
    }
}
