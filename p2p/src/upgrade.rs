//! Observes handshakes: who is linked, since when, and why others are not.

use crate::{
    clock::WallClock,
    metrics::{Handshake, Metrics},
    peers::{LinkToken, PeerTable},
    timing::{CLOCK_AHEAD, HANDSHAKE_AGE},
};
use commonware_cryptography::{
    ChaCha20Poly1305,
    ed25519::{PrivateKey, PublicKey},
    handshake::sake::Error as SakeError,
};
use commonware_runtime::{Clock, IoBufs, Sink, Stream};
use commonware_stream::{
    Receiver, SakeCups, Upgrader,
    cups::{self, Cups},
    sake::{self, Sake},
};
use quorate_crypto::Identity;
use rand::CryptoRng;
use std::sync::{Arc, OnceLock};
use tokio::time::sleep;

type Secure = SakeCups<PrivateKey, ChaCha20Poly1305>;

/// The library's authenticated encryption, extended to tell the peer table when a link begins (both
/// sides have proved their keys) and ends.
#[derive(Clone)]
pub(crate) struct Watched {
    secure: Secure,
    table: Arc<PeerTable>,
    metrics: Arc<Metrics>,
}

/// The receiving half of a link. The link is up as long as this exists.
pub(crate) struct WatchedReceiver<R> {
    receiver: R,
    metrics: Arc<Metrics>,
    /// `None` for a peer outside the table, which the library refuses before this is made.
    link: Option<LinkToken>,
}

/// Counts an attempt as timed out unless it finishes otherwise: the library cancels a slow attempt
/// by dropping its future.
struct Attempt {
    metrics: Arc<Metrics>,
    outcome: Handshake,
}

impl Watched {
    pub(crate) fn new(signer: PrivateKey, table: Arc<PeerTable>, metrics: Arc<Metrics>) -> Self {
        let sake = Sake {
            signer,
            synchrony_bound: CLOCK_AHEAD,
            max_handshake_age: HANDSHAKE_AGE,
            version: sake::Version::V1,
        };
        Self {
            secure: Cups::new(sake, cups::Version::V1),
            table,
            metrics,
        }
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            metrics: self.metrics.clone(),
            outcome: Handshake::Timeout,
        }
    }

    /// Records why there is no link to a peer, if that is useful to an operator.
    fn note(&self, peer: &PublicKey, error: Option<&sake::Error>) {
        let Some(place) = self.table.find(&Identity::from_public_key(peer)) else {
            return;
        };
        match error {
            // The connection was accepted, so the peer may have blocked this node.
            Some(sake::Error::Frame(_)) => self.table.refused_by(place),
            Some(sake::Error::HandshakeError(SakeError::InvalidTimestamp(..))) => {
                self.table.clock_refused(place);
            }
            _ => {}
        }
    }

    /// Needed because the library's own block is short and cannot be extended.
    fn is_blocked(&self, peer: &PublicKey) -> bool {
        let place = self.table.find(&Identity::from_public_key(peer));
        place.is_some_and(|place| self.table.is_blocked(place))
    }

    fn watch<R>(&self, peer: &PublicKey, receiver: R) -> WatchedReceiver<R> {
        let place = self.table.find(&Identity::from_public_key(peer));
        WatchedReceiver {
            receiver,
            metrics: self.metrics.clone(),
            link: place.map(|place| LinkToken::new(self.table.clone(), place)),
        }
    }
}

impl Attempt {
    fn finish(mut self, error: Option<&sake::Error>) {
        self.outcome = match error {
            None => Handshake::Completed,
            Some(sake::Error::PeerRejected(_)) => Handshake::Refused,
            Some(sake::Error::HandshakeError(SakeError::InvalidTimestamp(..))) => Handshake::Clock,
            Some(sake::Error::HandshakeError(_)) => Handshake::Authentication,
            Some(_) => Handshake::Broken,
        };
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let count = self.metrics.handshake(self.outcome);
        // This needs an operator, but may happen many times a second for hours, so it is logged at
        // the 1st, 2nd, 4th, 8th time and so on. Clock failures are logged by the table, once per
        // peer.
        if self.outcome == Handshake::Authentication && count.is_power_of_two() {
            tracing::warn!(
                count,
                "a handshake failed: the peer is on another chain, or has not the key that is \
                 expected at its address"
            );
        }
    }
}

impl Upgrader for Watched {
    const MAX_SIZE: u32 = <Secure as Upgrader>::MAX_SIZE;

    type PublicKey = PublicKey;
    type Error = sake::Error;
    type Sender<I: Stream, O: Sink> = <Secure as Upgrader>::Sender<I, O>;
    type Receiver<I: Stream, O: Sink> = WatchedReceiver<<Secure as Upgrader>::Receiver<I, O>>;

    fn public_key(&self) -> PublicKey {
        self.secure.public_key()
    }

    async fn dial<C, I, O>(
        self,
        context: C,
        namespace: &[u8],
        max_message_size: u32,
        peer: PublicKey,
        stream: I,
        sink: O,
    ) -> Result<(Self::Sender<I, O>, Self::Receiver<I, O>), Self::Error>
    where
        C: Clock + CryptoRng,
        I: Stream,
        O: Sink,
    {
        let attempt = self.attempt();
        if self.is_blocked(&peer) {
            let refused = sake::Error::PeerRejected(peer.as_ref().to_vec());
            attempt.finish(Some(&refused));
            return Err(refused);
        }
        let secure = self.secure.clone();
        let dialled = secure
            .dial(
                WallClock(context),
                namespace,
                max_message_size,
                peer.clone(),
                stream,
                sink,
            )
            .await;
        self.note(&peer, dialled.as_ref().err());
        attempt.finish(dialled.as_ref().err());
        let (sender, receiver) = dialled?;
        Ok((sender, self.watch(&peer, receiver)))
    }

    async fn listen<C, I, O, B, F>(
        self,
        context: C,
        namespace: &[u8],
        max_message_size: u32,
        bouncer: B,
        stream: I,
        sink: O,
    ) -> Result<(PublicKey, Self::Sender<I, O>, Self::Receiver<I, O>), Self::Error>
    where
        C: Clock + CryptoRng,
        I: Stream,
        O: Sink,
        B: FnOnce(PublicKey) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let attempt = self.attempt();
        let secure = self.secure.clone();
        let caller: Arc<OnceLock<PublicKey>> = Arc::default();
        let noted = caller.clone();
        let bouncer = move |key: PublicKey| {
            let _ = noted.set(key.clone());
            bouncer(key)
        };
        let accepted = secure
            .listen(
                WallClock(context),
                namespace,
                max_message_size,
                |peer| {
                    let blocked = self.is_blocked(&peer);
                    let place = self.table.find(&Identity::from_public_key(&peer));
                    let table = self.table.clone();
                    if peer == self.secure.public_key() {
                        table.reached_itself();
                    }
                    let admitted = bouncer(peer);
                    async move {
                        let admitted = admitted.await;
                        if let Some(place) = place
                            && !admitted
                            && !blocked
                        {
                            table.asked_again(place);
                        }
                        !blocked && admitted
                    }
                },
                stream,
                sink,
            )
            .await;
        if let (Some(caller), Err(error @ sake::Error::HandshakeError(_))) =
            (caller.get(), &accepted)
        {
            self.note(caller, Some(error));
        }
        attempt.finish(accepted.as_ref().err());
        let (peer, sender, receiver) = accepted?;
        let receiver = self.watch(&peer, receiver);
        Ok((peer, sender, receiver))
    }
}

impl<R: Receiver> Receiver for WatchedReceiver<R> {
    type Error = R::Error;

    async fn recv(&mut self) -> Result<IoBufs, R::Error> {
        let message = self.receiver.recv().await?;
        if let Some(link) = &self.link {
            link.heard();
            // Nothing more is read meanwhile: what the peer keeps sending waits in its own
            // connection, and no other peer's frames are delayed.
            if let Some(wait) = link.pay(message.len()) {
                self.metrics.reads_delayed.inc();
                sleep(wait).await;
            }
        }
        Ok(message)
    }
}
