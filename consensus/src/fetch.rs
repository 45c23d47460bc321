//! What is missing and who is asked for it.

use crate::{
    config::MAX_WANTS,
    io::{Moment, Outbound, Target},
};
use quorate_crypto::Digest;
use quorate_crypto::mistakes::{Mistake, made};
use quorate_types::{Epoch, Height, Message, ValidatorIndex, View};
use std::{collections::BTreeMap, time::Duration};

/// Something that this validator lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// The block with this id.
    Block(Digest),
    /// Finalised blocks from this height on.
    Range(Height),
    /// What closed these views.
    Certificates(View, View),
}

struct Request {
    asked: ValidatorIndex,
    due: Moment,
    attempts: u32,
}

/// The requests under way: at most [`MAX_WANTS`]. Each goes to one peer at a time; when no answer
/// has come in time, to the next.
pub(crate) struct Fetcher {
    epoch: Epoch,
    peers: Vec<ValidatorIndex>,
    timeout: Duration,
    wants: BTreeMap<Want, Request>,
}

impl Fetcher {
    /// A fetcher that may ask `peers`.
    pub(crate) fn new(epoch: Epoch, peers: Vec<ValidatorIndex>, timeout: Duration) -> Self {
        Self {
            epoch,
            peers,
            timeout,
            wants: BTreeMap::new(),
        }
    }

    /// How many requests are under way.
    pub(crate) fn len(&self) -> usize {
        self.wants.len()
    }

    /// Asks for something, unless it is being asked for. `hint` is who should have it.
    pub(crate) fn want(
        &mut self,
        now: Moment,
        want: Want,
        hint: Option<ValidatorIndex>,
    ) -> Option<Outbound> {
        if self.wants.contains_key(&want) || self.wants.len() >= MAX_WANTS {
            return None;
        }
        let asked = match hint {
            Some(hint) if self.peers.contains(&hint) => hint,
            _ => *self.peers.get(self.wants.len() % self.peers.len().max(1))?,
        };
        let due = now.after(self.timeout);
        self.wants.insert(
            want,
            Request {
                asked,
                due,
                attempts: 0,
            },
        );
        Some(self.request(want, asked))
    }

    /// Whether this is being asked for.
    pub(crate) fn is_wanted(&self, want: &Want) -> bool {
        self.wants.contains_key(want)
    }

    /// Stops asking.
    pub(crate) fn satisfy(&mut self, want: &Want) {
        self.wants.remove(want);
    }

    /// Stops asking for whatever `keep` does not hold on to.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Want) -> bool) {
        self.wants.retain(|want, _| keep(want));
    }

    /// Asks the next peer for whatever is overdue.
    pub(crate) fn retry(
        &mut self,
        now: Moment,
        is_blocked: impl Fn(ValidatorIndex) -> bool,
    ) -> Vec<Outbound> {
        let mut again = Vec::new();
        for (want, request) in &mut self.wants {
            if request.due > now || made(Mistake::RequestsNotRepeated) {
                continue;
            }
            request.attempts = request.attempts.saturating_add(1);
            request.due = now.after(self.timeout * (1 << request.attempts.min(3)));
            if let Some(next) = next_peer(&self.peers, request.asked, &is_blocked) {
                request.asked = next;
                again.push((*want, next));
            }
        }
        again
            .into_iter()
            .map(|(want, peer)| self.request(want, peer))
            .collect()
    }

    /// When [`Fetcher::retry`] is due next.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.wants.values().map(|request| request.due).min()
    }

    fn request(&self, want: Want, peer: ValidatorIndex) -> Outbound {
        let message = match want {
            Want::Block(id) => Message::BlockRequest(id),
            Want::Range(from) => Message::RangeRequest(from),
            Want::Certificates(first, last) => Message::CertificateRequest {
                epoch: self.epoch,
                first,
                last,
            },
        };
        Outbound {
            to: Target::One(peer),
            message,
        }
    }
}

/// The peer after `current` that is not blocked; `current` itself if there is no other.
fn next_peer(
    peers: &[ValidatorIndex],
    current: ValidatorIndex,
    is_blocked: &impl Fn(ValidatorIndex) -> bool,
) -> Option<ValidatorIndex> {
    let start = peers
        .iter()
        .position(|peer| *peer == current)
        .map_or(0, |place| place + 1);
    (0..peers.len())
        .map(|step| peers[(start + step) % peers.len()])
        .find(|peer| !is_blocked(*peer))
}
