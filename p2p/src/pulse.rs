//! Pings: which peers answer, and their round-trip times.
//!
//! ```text
//! ping: 0 ‖ number (8 bytes)        pong: 1 ‖ the ping's number
//! time: 2 ‖ the clock, in milliseconds since 1970; sent right after each pong
//! ```
//!
//! Versions that do not know the third kind count it as refused and drop it.
//!
//! The library pings to keep connections open, but measures and reports nothing.

use crate::{
    frame::{self, FrameTag},
    lane::PULSE_CHANNEL,
    links::cut,
    metrics::{Metrics, Refused},
    peers::PeerTable,
    wire::Wire,
};
use bytes::Bytes;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{
    CheckedSender as _, LimitedSender as _, Receiver as _, Recipients,
    authenticated::lookup::{Oracle, Receiver, Sender},
};
use commonware_runtime::{IoBuf, IoBufs};
use quorate_crypto::Identity;
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{MissedTickBehavior, interval};

/// How often links are checked, and unanswered ones are pinged.
const TICK: Duration = Duration::from_millis(250);

/// How often a link that has answered is pinged. A little less than a second, so that every fourth
/// tick counts as due.
const PING_EVERY: Duration = Duration::from_millis(900);

const PING: u8 = 0;
const PONG: u8 = 1;
const TIME: u8 = 2;
const BODY_BYTES: usize = 9;

/// State shared by the two pulse tasks.
#[derive(Clone)]
pub(crate) struct Pulse {
    pub(crate) table: Arc<PeerTable>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sender: Sender<PublicKey, Wire>,
    pub(crate) oracle: Oracle<PublicKey>,
    pub(crate) header: IoBuf,
    pub(crate) tag: FrameTag,
}

impl Pulse {
    /// Pings forever, and keeps the gauges and the library's blocks up to date.
    pub(crate) async fn ping(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (mut connected, mut followers, mut blocked) = (0, 0, 0);
            for place in self.table.places() {
                let status = self.table.status(place);
                match self.table.peer(place).is_follower() {
                    true => followers += i64::from(status.connected),
                    false => connected += i64::from(status.connected),
                }
                blocked += i64::from(status.blocked);
                if status.blocked && self.table.is_linked(place) {
                    cut(&self.oracle, &self.table, place);
                }
                if let Some(number) = self.table.ping(place, PING_EVERY, rand::random()) {
                    self.send(place, PING, number);
                }
            }
            self.metrics.connected_peers.set(connected);
            self.metrics.connected_followers.set(followers);
            self.metrics.blocked_peers.set(blocked);
        }
    }

    /// Answers pings and processes answers until the network ends.
    pub(crate) async fn answer(mut self, mut receiver: Receiver<PublicKey>) {
        while let Ok((key, message)) = receiver.recv().await {
            let Some(place) = self.table.find(&Identity::from_public_key(&key)) else {
                self.metrics.refused(None, Refused::UnknownPeer);
                continue;
            };
            if self.table.is_blocked(place) {
                self.metrics.refused(None, Refused::Blocked);
                continue;
            }
            match frame::open(message.into(), &self.tag, BODY_BYTES) {
                Ok(body) => self.handle(place, &body),
                Err(defect) => self.metrics.refused(None, defect.into()),
            }
        }
    }

    fn handle(&mut self, place: usize, body: &[u8]) {
        match decode(body) {
            Some((PING, number)) => {
                self.send(place, PONG, number);
                self.send(place, TIME, wall_ms());
            }
            Some((TIME, peer_ms)) => self.table.told_time(place, peer_ms, wall_ms()),
            Some((PONG, number)) => self.table.pong(place, number),
            _ => self.metrics.refused(None, Refused::Version),
        }
    }

    fn send(&mut self, place: usize, kind: u8, number: u64) {
        // Over quota means that the peer pings too often; refused means that the network is
        // stopping.
        let recipient = Recipients::One(self.table.peer(place).key.clone());
        if let Ok(checked) = self.sender.check(recipient) {
            let body = IoBuf::from(encode(kind, number));
            let _ = checked.send(IoBufs::from([self.header.clone(), body]), true);
        }
    }
}

/// The library's channel number.
pub(crate) const CHANNEL: u64 = PULSE_CHANNEL;

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn encode(kind: u8, number: u64) -> Bytes {
    let mut body = [kind; BODY_BYTES];
    body[1..].copy_from_slice(&number.to_le_bytes());
    Bytes::copy_from_slice(&body)
}

fn decode(body: &[u8]) -> Option<(u8, u64)> {
    let (kind, number) = body.split_first()?;
    let number = number.try_into().ok().map(u64::from_le_bytes)?;
    Some((*kind, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_survives_its_bytes_and_other_lengths_do_not() {
        let body = encode(PONG, 0x0102_0304_0506_0708);
        assert_eq!(decode(&body), Some((PONG, 0x0102_0304_0506_0708)));
        for length in 0..BODY_BYTES {
            assert_eq!(decode(&body[..length]), None);
        }
    }
}
