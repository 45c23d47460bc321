//! What validators tell beside the chain: notarizations and nullifications as they come, evidence,
//! whom they block, whose votes they hear.
//!
//! Certificates and evidence are verified. Blocking and hearing are a validator's own word, and are
//! shown as such.

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

/// How long a validator may wait for the next certificate.
const WAIT: Duration = Duration::from_secs(2);

/// A pause between requests, below what the figures can tell apart.
const PAUSE: Duration = Duration::from_millis(5);

/// A pause after a validator gave no usable answer.
const REST: Duration = Duration::from_secs(2);

/// How often validators are asked for evidence and their opinions.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Views whose certificates are remembered, so that what several validators tell is told once.
const MAX_TOLD: usize = 4_096;

/// Pieces of evidence that are verified of one answer.
const MAX_EVIDENCE: usize = 64;

/// What validators think of one of them.
#[derive(Clone, Debug, Default)]
pub struct Opinion {
    /// Who blocks it, by their addresses.
    pub blocked: BTreeMap<String, String>,
    /// The newest vote that anybody has heard of it.
    pub last_vote: Option<(u64, u64)>,
}

/// What validators say of each other.
#[derive(Default)]
pub struct Opinions {
    of: RwLock<BTreeMap<u32, Opinion>>,
}

impl Opinions {
    /// What is thought of the validator at this place.
    pub fn of(&self, place: u32) -> Opinion {
        self.of.read().get(&place).cloned().unwrap_or_default()
    }

    /// Who blocks the validator at this place.
    pub fn blocked(&self, place: u32) -> Vec<BlockedBy> {
        let blocked = self.of(place).blocked.into_iter();
        blocked
            .map(|(by, reason)| BlockedBy { by, reason })
            .collect()
    }
}

/// Reads what validators tell beside the chain.
pub struct Observer {
    /// What verifies it.
    pub guard: Arc<Guard>,
    /// Where it is kept.
    pub index: Index,
    /// Who is told.
    pub hub: Arc<Hub>,
    /// What validators think of each other.
    pub opinions: Arc<Opinions>,
    told: parking_lot::Mutex<VecDeque<(Epoch, View, VoteKind)>>,
}

impl Observer {
    /// An observer that has told nothing yet.
    pub fn new(guard: Arc<Guard>, index: Index, hub: Arc<Hub>, opinions: Arc<Opinions>) -> Self {
        Self {
            guard,
            index,
            hub,
            opinions,
            told: parking_lot::Mutex::default(),
        }
    }

    /// Reads the certificates that the followed validator comes to hold, for ever.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn hear(self: Arc<Self>, upstreams: Vec<Upstream>) -> Result<Infallible, IndexError> {
        loop {
            let followed = self.hub.followed();
            let upstream = upstreams
                .iter()
                .find(|up| Some(up.url()) == followed.as_deref());
            match upstream {
                Some(upstream) => self.clone().hear_one(upstream).await?,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Reads the certificates that a validator comes to hold, until another one is followed or it
    /// gives no usable answer.
    async fn hear_one(self: Arc<Self>, upstream: &Upstream) -> Result<(), IndexError> {
        let mut after = None;
        let mut session = None;
        while self.hub.followed().as_deref() == Some(upstream.url()) {
            let answer = match upstream.certificates(after, WAIT).await {
                Ok(answer) => answer,
                // The follower tells of upstreams that fail.
                Err(_) => {
                    tokio::time::sleep(REST).await;
                    return Ok(());
                }
            };
            if session.replace(answer.session) != Some(answer.session) {
                // Another process: its numbers are others. What it held before is old.
                after = Some(answer.newest);
                continue;
            }
            after = answer.certificates.last().map(|item| item.number).or(after);
            for item in answer.certificates {
                let observer = self.clone();
                let reason = item.reason.unwrap_or_else(|| "unknown".to_owned());
                let heard = blocking(move || observer.take(&item.certificate, &reason)).await?;
                if heard.is_err() {
                    // So that checking what does not hold costs next to nothing.
                    tokio::time::sleep(REST).await;
                }
            }
            // A fast chain brings several at a time then.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Verifies a certificate, unless it is known, and tells it. The outer error is the index's.
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

    /// Asks a validator for evidence and opinions, for ever.
    ///
    /// # Errors
    ///
    /// If the index fails.
    pub async fn poll(self: Arc<Self>, upstream: Upstream) -> Result<Infallible, IndexError> {
        loop {
            if let Ok(texts) = upstream.evidence().await {
                let observer = self.clone();
                blocking(move || observer.keep_evidence(&texts)).await?;
            }
            if let Ok(status) = upstream.status().await {
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
            // What does not convict is not evidence, whoever says so.
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

    /// The place, if there is such a validator.
    fn place(&self, place: Option<u32>) -> Option<u32> {
        let size = self.guard.verifier().committee().size();
        place.filter(|place| (*place as usize) < size)
    }
}

/// The reasons that there are; a validator may say anything.
fn known_reason(reason: &str) -> &'static str {
    match reason {
        "no_valid_proposal_in_time" => "no_valid_proposal_in_time",
        "no_quorum_in_time" => "no_quorum_in_time",
        _ => "unknown",
    }
}

/// Tells the figures of the newest minute once a second, for ever.
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
