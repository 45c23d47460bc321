//! Messages to the links: encodes them into frames. Messages for the same peers share a frame.

use crate::{across::Across, asked::Asked, inlet::lane_of};
use bytes::Bytes;
use commonware_codec::Encode;
use quorate_consensus::{Outbound, Target};
use quorate_lanes::{Lane, To};
use quorate_types::{
    Committees, Durable, Frame, Identity, Message, Status, limits::MAX_FRAME_MESSAGES,
};
use std::sync::Arc;

/// Sends a frame to peers. It never waits, and drops frames that do not fit.
pub type Wire = Arc<dyn Fn(Lane, &To, Bytes) + Send + Sync>;

/// Returns how many bytes wait for a peer in a lane: sent, and not yet taken by its connection.
pub type InFlight = Arc<dyn Fn(Lane, &Identity) -> usize + Send + Sync>;

/// Sends the replica's messages. Votes are accepted only as [`Durable`].
pub struct Outlet {
    wire: Wire,
    committees: Committees,
    /// Whether any node may follow this validator.
    has_followers: bool,
    /// Where requests are noted.
    asked: Option<Arc<Asked>>,
    /// Relays frames to all around missing links.
    across: Option<Arc<Across>>,
    /// A status that leaves with the next votes.
    status: Option<Status>,
}

impl Outlet {
    /// An outlet without followers, that notes no requests and relays nothing.
    pub fn new(wire: Wire, committees: Committees) -> Self {
        Self {
            wire,
            committees,
            has_followers: false,
            asked: None,
            across: None,
            status: None,
        }
    }

    /// From now on notes which requests are sent to whom.
    pub(crate) fn noting(mut self, asked: Arc<Asked>) -> Self {
        self.asked = Some(asked);
        self
    }

    /// From now on also tells followers of this validator's status, if it may have any.
    pub(crate) fn followed(mut self, has_followers: bool) -> Self {
        self.has_followers = has_followers;
        self
    }

    /// From now on also reaches the peers without a link.
    pub(crate) fn across(mut self, across: Arc<Across>) -> Self {
        self.across = Some(across);
        self
    }

    /// Sends votes, which the journal has made durable.
    pub(crate) fn send_votes(&mut self, votes: Durable<Vec<Outbound>>) {
        let mut votes = votes.into_inner();
        let votes_to_all = votes.iter().any(|v| matches!(v.to, Target::All));
        if votes_to_all && let Some(status) = self.status.take() {
            votes.extend(self.said_of_itself(status));
        }
        self.dispatch(votes);
    }

    /// Sends messages that depend on nothing durable.
    ///
    /// # Panics
    ///
    /// If one of them is a vote: the journal would not have seen it. That is a defect of this
    /// program, and the node stops.
    pub(crate) fn send(&self, messages: Vec<Outbound>) {
        assert!(
            !messages
                .iter()
                .any(|outbound| matches!(outbound.message, Message::Vote(_))),
            "a vote is sent only after the journal's sync"
        );
        self.dispatch(messages);
    }

    /// Lets a status leave with the next votes, in their frame. A frame of its own would cost more
    /// than its content. Followers, which get no votes, are told at once.
    pub(crate) fn hold(&mut self, status: Status) {
        if self.has_followers {
            let told = Frame(vec![Message::Status(status)]).encode();
            (self.wire)(Lane::Votes, &To::Followers, told);
        }
        self.status = Some(status);
    }

    /// Sends the held status, if no votes have taken it along.
    pub(crate) fn send_held(&mut self) {
        if let Some(status) = self.status.take() {
            self.dispatch(self.said_of_itself(status));
        }
    }

    /// A status with the announcement of missing links.
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
                Target::One(place) => match self.committees.known().identity(place) {
                    Some(identity) => To::One(identity),
                    None => continue,
                },
            };
            let asks = messages
                .iter()
                .all(|message| matches!(message, Message::Inquiry(_) | Message::Standing(_)));
            let votes = (messages.iter()).any(|message| matches!(message, Message::Vote(_)));
            let frame = Frame(messages).encode();
            let beyond = match target {
                Target::All if lane == Lane::Votes || asks => Some(None),
                Target::One(place) if asks || votes => Some(Some(place)),
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

/// Sends one message to one peer.
pub(crate) fn send_to(wire: &Wire, peer: Identity, message: Message) {
    let lane = lane_of(&message);
    wire(lane, &To::One(peer), Frame(vec![message]).encode());
}

fn to_all(message: Message) -> Outbound {
    Outbound {
        to: Target::All,
        message,
    }
}
