//! Observes what validators report besides the chain: notarizations and nullifications as they
//! happen, evidence, which validators they block, and whose votes they receive.
//!
//! Certificates and evidence are verified. Blocking and received votes are unverified claims of a
//! validator, and are shown as such.

use crate::{
    answers::{encoding, json},
    hub::{Event, Hub, Topic},
    index::{Index, IndexError},
    shapes::{BlockedBy, NotarizedEvent, NullifiedEvent, Number, StatsEvent},
    task::blocking,
    upstream::{Upstream, UpstreamError, ValidatorStatus},
    verify::Guard,
};
use parking_lot::RwLock;
use quorate_types::{Certificate, Epoch, View, VoteKind};
use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use tracing::warn;

/// How long a validator may wait for the next certificate.
const WAIT: Duration = Duration::from_secs(2);

/// Pause between requests; shorter than the statistics can resolve.
const PAUSE: Duration = Duration::from_millis(5);

/// Pause after a validator gave no usable answer.
const REST: Duration = Duration::from_secs(2);

/// How often validators are polled for evidence and opinions.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Number of certificates remembered, so that one reported by several validators is published once.
const MAX_TOLD: usize = 4_096;

/// Maximum number of evidence items verified per answer.
const MAX_EVIDENCE: usize = 64;

/// What the validators report about one of them.
#[derive(Clone, Debug, Default)]
pub struct Opinion {
    /// Reasons for blocking it, by the address of the blocking validator.
    pub blocked: BTreeMap<String, String>,
    /// The newest vote from it that any validator has received.
    pub last_vote: Option<(u64, u64)>,
}

/// What validators report about each other.
#[derive(Default)]
pub struct Opinions {
    of: RwLock<BTreeMap<u32, Opinion>>,
}

impl Opinions {
    /// The newest vote from anybody.
    pub fn newest_vote(&self) -> Option<(u64, u64)> {
        let of = self.of.read();
        of.values().filter_map(|opinion| opinion.last_vote).max()
    }

    /// The opinion of the validator at this index.
    pub fn of(&self, place: u32) -> Opinion {
        self.of.read().get(&place).cloned().unwrap_or_default()
    }

    /// The validators that block the validator at this index.
    pub fn blocked(&self, place: u32) -> Vec<BlockedBy> {
        let blocked = self.of(place).blocked.into_iter();
        blocked
            .map(|(by, reason)| BlockedBy { by, reason })
            .collect()
    }
}

/// Reads what validators report besides the chain.
pub struct Observer {
    pub guard: Arc<Guard>,
    pub index: Index,
    pub hub: Arc<Hub>,
    pub opinions: Arc<Opinions>,
    told: parking_lot::Mutex<VecDeque<(Epoch, View, VoteKind)>>,
}

impl Observer {
    pub fn new(guard: Arc<Guard>, index: Index, hub: Arc<Hub>, opinions: Arc<Opinions>) -> Self {
        Self {
            guard,
            index,
            hub,
            opinions,
            told: parking_lot::Mutex::default(),
        }
    }

    /// Reads the followed validator's new certificates, forever.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn follow_certificates(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
    ) -> Result<Infallible, IndexError> {
        loop {
            let followed = self.hub.followed();
            let upstream = upstreams
                .iter()
                .find(|up| Some(up.url()) == followed.as_deref());
            match upstream {
                Some(upstream) => self.clone().follow_certificates_of(upstream).await?,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Reads a validator's new certificates until another validator is followed or it gives no
    /// usable answer.
    async fn follow_certificates_of(
        self: Arc<Self>,
        upstream: &Upstream,
    ) -> Result<(), IndexError> {
        let mut after = None;
        let mut session = None;
        while self.hub.followed().as_deref() == Some(upstream.url()) {
            let answer = match upstream.certificates(after, WAIT).await {
                Ok(answer) => answer,
                // The follower reports failing upstreams.
                Err(_) => {
                    tokio::time::sleep(REST).await;
                    return Ok(());
                }
            };
            if session.replace(answer.session) != Some(answer.session) {
                // The process has restarted and its sequence numbers differ. Certificates that it
                // held before are old.
                after = Some(answer.newest);
                continue;
            }
            after = answer.certificates.last().map(|item| item.number).or(after);
            for item in answer.certificates {
                let observer = self.clone();
                let reason = item.reason.unwrap_or_else(|| "unknown".to_owned());
                let heard = blocking(move || observer.take(&item.certificate, &reason)).await?;
                if heard.is_err() {
                    // Limits the cost of checking invalid certificates.
                    tokio::time::sleep(REST).await;
                }
            }
            // With this pause, a fast chain returns several certificates at a time.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Verifies a certificate, unless it is known, and publishes it. The outer error is the
    /// index's.
    fn take(&self, text: &str, reason: &str) -> Result<Result<(), UpstreamError>, IndexError> {
        let subject = match self.guard.subject(text) {
            Ok(subject) => subject,
            Err(error) => return Ok(Err(error)),
        };
        let name = (subject.epoch, subject.view, subject.kind);
        if subject.kind == VoteKind::Finalize || self.told.lock().contains(&name) {
            return Ok(Ok(()));
        }
        let certificate = match self.guard.certificate(text) {
            Ok(certificate) => certificate,
            Err(error) => return Ok(Err(error)),
        };
        {
            let mut told = self.told.lock();
            // Another upstream may have been faster.
            if told.contains(&name) {
                return Ok(Ok(()));
            }
            told.push_back(name);
            if told.len() > MAX_TOLD {
                told.pop_front();
            }
        }
        if subject.kind == VoteKind::Notarize {
            self.hub.notarized(subject.payload);
            self.publish_notarized(&certificate);
        } else {
            let leader = self.guard.leader(subject.epoch, subject.view);
            let reason = known_reason(reason);
            if self.index.add_nullification(leader, &certificate, reason)? {
                self.hub.nullified();
                self.publish_nullified(&certificate, leader.0, reason);
            }
        }
        Ok(Ok(()))
    }

    fn publish_notarized(&self, certificate: &Certificate) {
        let text = json(&NotarizedEvent {
            kind: "notarized".to_owned(),
            epoch: Number(certificate.subject.epoch.0),
            view: Number(certificate.subject.view.0),
            id: certificate.subject.payload.into(),
            certificate: encoding(certificate),
        });
        self.hub.publish(Event::new(Topic::Notarized, None, text));
    }

    fn publish_nullified(&self, certificate: &Certificate, leader: u32, reason: &str) {
        let text = json(&NullifiedEvent {
            kind: "nullified".to_owned(),
            epoch: Number(certificate.subject.epoch.0),
            view: Number(certificate.subject.view.0),
            leader,
            certificate: encoding(certificate),
            reason: reason.to_owned(),
        });
        self.hub.publish(Event::new(Topic::Nullified, None, text));
    }

    /// Polls a validator for evidence and opinions, forever.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn poll(self: Arc<Self>, upstream: Upstream) -> Result<Infallible, IndexError> {
        let expected = self.guard.trust().protocol.name();
        let mut warned = false;
        loop {
            if let Ok(texts) = upstream.evidence().await {
                let observer = self.clone();
                blocking(move || observer.keep_evidence(&texts)).await?;
            }
            if let Ok(status) = upstream.status().await {
                let protocol = status.protocol.as_deref().filter(|told| *told != expected);
                if let Some(told) = protocol
                    && !std::mem::replace(&mut warned, true)
                {
                    warn!(
                        validator = upstream.url(),
                        told,
                        expected,
                        "a validator says that the chain has another protocol than the trust file says: if the others \
                         do, too, the leaders shown here are wrong. Take the trust file that was made with the chain"
                    );
                }
                self.note_blocked(upstream.url(), &status);
                if let Some(growth) = status.sync {
                    let after = Duration::from_millis(growth.stalled_after_ms);
                    self.hub.note_stalled_after(upstream.url(), after);
                }
            }
            if let Ok(peers) = upstream.peers().await {
                for peer in peers {
                    if let Some(place) = self.place(peer.validator) {
                        let mut opinions = self.opinions.of.write();
                        let opinion = opinions.entry(place).or_default();
                        opinion.last_vote = opinion.last_vote.max(peer.last_vote);
                    }
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    fn keep_evidence(&self, texts: &[String]) -> Result<(), IndexError> {
        let known = self.index.evidence()?;
        for text in texts.iter().take(MAX_EVIDENCE) {
            // Anything that does not prove a conflict is not evidence, whoever reports it.
            if let Ok(evidence) = self.guard.evidence(text)
                && !known.contains(&evidence)
            {
                self.index.add_evidence(&evidence)?;
            }
        }
        Ok(())
    }

    fn note_blocked(&self, url: &str, status: &ValidatorStatus) {
        let mut opinions = self.opinions.of.write();
        for opinion in opinions.values_mut() {
            opinion.blocked.remove(url);
        }
        for blocked in &status.blocked {
            if let Some(place) = self.place(Some(blocked.validator)) {
                let opinion = opinions.entry(place).or_default();
                let reason: String = blocked.reason.chars().take(64).collect();
                opinion.blocked.insert(url.to_owned(), reason);
            }
        }
    }

    /// The index, if it is in the committee.
    fn place(&self, place: Option<u32>) -> Option<u32> {
        let size = self.guard.verifier().newest().size();
        place.filter(|place| (*place as usize) < size)
    }
}

/// Maps to a known reason, since a validator may report any text.
fn known_reason(reason: &str) -> &'static str {
    match reason {
        "no_valid_proposal_in_time" => "no_valid_proposal_in_time",
        "no_quorum_in_time" => "no_quorum_in_time",
        _ => "unknown",
    }
}

/// Publishes the statistics of the last minute once a second, forever.
pub async fn tell_stats(hub: Arc<Hub>) -> Infallible {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        if !hub.has_listeners() {
            continue;
        }
        let text = json(&StatsEvent {
            kind: "stats".to_owned(),
            tip: Number(hub.tip().borrow().0),
            stats: hub.stats("1m", Duration::from_secs(60)),
        });
        hub.publish(Event::new(Topic::Stats, None, text));
    }
}
