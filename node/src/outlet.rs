//! What goes to the links: messages become frames, and those for the same peers travel together.

use crate::{inlet::lane_of, misbehave::Spoiler};
use bytes::Bytes;
use commonware_codec::Encode;
use quorate_consensus::{Outbound, Target};
use quorate_p2p::{Lane, To};
use quorate_types::{Committee, Durable, Frame, Message, Status, limits::MAX_FRAME_MESSAGES};
use std::sync::Arc;

/// What takes frames to peers: the links. It never waits, and drops what does not fit.
pub type Wire = Arc<dyn Fn(Lane, &To, Bytes) + Send + Sync>;

/// Sends messages of the replica. Votes are taken only as [`Durable`].
pub struct Outlet {
    wire: Wire,
    committee: Committee,
    spoiler: Option<Spoiler>,
    /// What leaves with the next votes.
    status: Option<Status>,
}

impl Outlet {
    pub(crate) fn new(wire: Wire, committee: Committee, spoiler: Option<Spoiler>) -> Self {
        Self {
            wire,
            committee,
            spoiler,
            status: None,
        }
    }

    /// Sends votes, which the journal has made durable.
    pub(crate) fn send_votes(&mut self, votes: Durable<Vec<Outbound>>) {
        let mut votes = votes.into_inner();
        if let Some(spoiler) = &self.spoiler {
            spoiler.spoil(&mut votes);
        }
        let votes_to_all = votes.iter().any(|v| matches!(v.to, Target::All));
        if votes_to_all && let Some(status) = self.status.take() {
            votes.push(to_all(status));
        }
        self.dispatch(votes);
    }

    /// Sends messages that depend on nothing durable. A vote among them would be one that the
    /// journal has not seen: a fault of this program, and the node stops.
    ///
    /// # Panics
    ///
    /// If a message is a vote.
    pub(crate) fn send(&self, messages: Vec<Outbound>) {
        assert!(
            !messages
                .iter()
                .any(|outbound| matches!(outbound.message, Message::Vote(_))),
            "a vote is sent only after the journal's sync"
        );
        self.dispatch(messages);
    }

    /// Lets a status leave with the next votes, in their frame: a message of its own would cost
    /// more than all that it says.
    pub(crate) fn hold(&mut self, status: Status) {
        self.status = Some(status);
    }

    /// Sends the status that is held, if no votes have taken it along.
    pub(crate) fn send_held(&mut self) {
        if let Some(status) = self.status.take() {
            self.dispatch(vec![to_all(status)]);
        }
    }

    fn dispatch(&self, messages: Vec<Outbound>) {
        let mut groups: Vec<(Target, Lane, Vec<Message>)> = Vec::new();
        for Outbound { to, message } in messages {
            let lane = lane_of(&message);
            let group = groups
                .iter_mut()
                .find(|(t, l, list)| *t == to && *l == lane && list.len() < MAX_FRAME_MESSAGES);
            match group {
                Some((_, _, list)) => list.push(message),
                None => groups.push((to, lane, vec![message])),
            }
        }
        for (target, lane, messages) in groups {
            let to = match target {
                Target::All => To::All,
                Target::One(place) => match self.committee.identity(place) {
                    Some(identity) => To::One(identity),
                    None => continue,
                },
            };
            (self.wire)(lane, &to, Frame(messages).encode());
        }
    }
}

fn to_all(status: Status) -> Outbound {
    Outbound {
        to: Target::All,
        message: Message::Status(status),
    }
}
