//! What goes to the links: messages become frames, and those for the same peers travel together.

use crate::{across::Across, asked::Asked, inlet::lane_of, misbehave::Spoiler};
use bytes::Bytes;
use commonware_codec::Encode;
use quorate_consensus::{Outbound, Target};
use quorate_p2p::{Lane, To};
use quorate_types::{
    Committee, Durable, Frame, Identity, Message, Status, limits::MAX_FRAME_MESSAGES,
};
use std::sync::Arc;

/// What takes frames to peers: the links. It never waits, and drops what does not fit.
pub type Wire = Arc<dyn Fn(Lane, &To, Bytes) + Send + Sync>;

/// Tells how many bytes wait for a peer in a lane: sent, and not yet taken by its connection.
pub type InFlight = Arc<dyn Fn(Lane, &Identity) -> usize + Send + Sync>;

/// Sends messages of the replica. Votes are taken only as [`Durable`].
pub struct Outlet {
    wire: Wire,
    committee: Committee,
    spoiler: Option<Spoiler>,
    /// Where questions are noted.
    asked: Option<Arc<Asked>>,
    /// Brings what is for all to those without a link.
    across: Option<Arc<Across>>,
    /// What leaves with the next votes.
    status: Option<Status>,
}

impl Outlet {
    pub(crate) fn new(wire: Wire, committee: Committee, spoiler: Option<Spoiler>) -> Self {
        Self {
            wire,
            committee,
            spoiler,
            asked: None,
            across: None,
            status: None,
        }
    }

    /// Notes from now on what it asks of whom.
    pub(crate) fn noting(mut self, asked: Arc<Asked>) -> Self {
        self.asked = Some(asked);
        self
    }

    /// Reaches from now on those too to whom there is no link.
    pub(crate) fn across(mut self, across: Arc<Across>) -> Self {
        self.across = Some(across);
        self
    }

    /// Sends votes, which the journal has made durable.
    pub(crate) fn send_votes(&mut self, votes: Durable<Vec<Outbound>>) {
        let mut votes = votes.into_inner();
        if let Some(spoiler) = &self.spoiler {
            spoiler.spoil(&mut votes);
        }
        let votes_to_all = votes.iter().any(|v| matches!(v.to, Target::All));
        if votes_to_all && let Some(status) = self.status.take() {
            votes.extend(self.said_of_itself(status));
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
            self.dispatch(self.said_of_itself(status));
        }
    }

    /// A status, and whom there is no link to.
    fn said_of_itself(&self, status: Status) -> Vec<Outbound> {
        let apart = self.across.as_ref().and_then(|across| across.apart());
        let messages = [Some(Message::Status(status)), apart];
        messages.into_iter().flatten().map(to_all).collect()
    }

    fn dispatch(&self, messages: Vec<Outbound>) {
        let mut groups: Vec<(Target, Lane, Vec<Message>)> = Vec::new();
        for Outbound { to, message } in messages {
            let lane = lane_of(&message);
            if let (Some(asked), Target::One(peer)) = (&self.asked, to) {
                asked.note(peer, &message);
            }
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
            let asks = messages
                .iter()
                .all(|message| matches!(message, Message::Inquiry(_) | Message::Standing(_)));
            let frame = Frame(messages).encode();
            let beyond = match target {
                Target::All if lane == Lane::Votes || asks => Some(None),
                Target::One(place) if asks => Some(Some(place)),
                _ => None,
            };
            if let (Some(across), Some(only)) = (&self.across, beyond) {
                for (way, relayed) in across.ways(&frame, only) {
                    (self.wire)(Lane::Votes, &To::One(way), relayed);
                }
            }
            (self.wire)(lane, &to, frame);
        }
    }
}

fn to_all(message: Message) -> Outbound {
    Outbound {
        to: Target::All,
        message,
    }
}
