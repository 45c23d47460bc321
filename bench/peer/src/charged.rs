//! Charges the cost of computing to a validator's virtual time at the place where the library
//! spends it.
//!
//! * Signing is paid by the voter at its next sync of the journal, which always comes before the
//!   vote is sent.
//! * A quorum of votes (decoding, recovery, one check) is paid by the batcher, which waits for the
//!   job inline.
//! * A certificate from a peer is paid before the batcher gets it, and meanwhile the batcher takes
//!   no vote; one that it has already is free, as in the library.
//! * Syncs and created files are paid where they are awaited (see [`crate::clockwork`]).
//!
//! Not charged, here as in this node's own run: encoding, hashing of blocks, encryption, and CPU
//! contention between tasks.

use crate::cheap::Cheap;
use commonware_codec::Decode as _;
use commonware_consensus::{
    Viewable as _,
    simplex::types::{Certificate, Subject},
};
use commonware_cryptography::{ed25519::PublicKey, sha256::Digest};
use commonware_p2p::{Message, Receiver};
use commonware_parallel::{Sequential, Strategy};
use commonware_runtime::Clock;
use commonware_utils::sync::Mutex;
use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The most certificates that are remembered as known to a validator.
const REMEMBERED: usize = 2_048;

/// The costs of computing and storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Signing a vote, hashing included.
    pub(crate) sign: Duration,
    /// Turning a quorum of votes' bytes into a verified certificate.
    pub(crate) certify: Duration,
    /// Verifying a certificate from its bytes.
    pub(crate) certificate: Duration,
    /// Syncing a file.
    pub(crate) sync: Duration,
    /// Creating a file durably.
    pub(crate) create: Duration,
}

/// One validator's costs that are not charged yet.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) costs: Costs,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    signing: Duration,
    certifying: Duration,
    /// When the batcher is free again.
    busy: Option<SystemTime>,
    /// View and kind of the certificates that the batcher has.
    held: BTreeSet<(u64, u8)>,
}

impl State {
    /// Records a certificate. Returns whether it is new.
    fn hold(&mut self, certificate: (u64, u8)) -> bool {
        let new = self.held.insert(certificate);
        if self.held.len() > REMEMBERED {
            self.held.pop_first();
        }
        new
    }
}

impl Meter {
    pub(crate) fn new(costs: Costs) -> Self {
        Self {
            costs,
            state: Mutex::new(State::default()),
        }
    }

    /// Charges the signing of a vote.
    pub(crate) fn sign(&self) {
        self.state.lock().signing += self.costs.sign;
    }

    /// Charges turning a quorum of votes into a certificate.
    pub(crate) fn certify<D: commonware_cryptography::Digest>(&self, subject: &Subject<'_, D>) {
        let kind = match subject {
            Subject::Notarize { .. } => 0,
            Subject::Nullify { .. } => 1,
            Subject::Finalize { .. } => 2,
        };
        let mut state = self.state.lock();
        state.certifying += self.costs.certify;
        state.hold((subject.view().get(), kind));
    }

    /// The signing cost since the last call.
    pub(crate) fn signed(&self) -> Duration {
        std::mem::take(&mut self.state.lock().signing)
    }

    /// The cost of checking a certificate from a peer.
    fn examine(&self, certificate: &Certificate<Cheap, Digest>) -> Duration {
        let kind = match certificate {
            Certificate::Notarization(_) => 0,
            Certificate::Nullification(_) => 1,
            Certificate::Finalization(_) => 2,
        };
        match self.state.lock().hold((certificate.view().get(), kind)) {
            true => self.costs.certificate,
            false => Duration::ZERO,
        }
    }
}

/// Runs jobs immediately and lets their caller wait for as long as they would take.
pub(crate) struct Charged<E> {
    pub(crate) clock: Arc<E>,
    pub(crate) meter: Arc<Meter>,
}

impl<E> Clone for Charged<E> {
    fn clone(&self) -> Self {
        Self {
            clock: self.clock.clone(),
            meter: self.meter.clone(),
        }
    }
}

impl<E> fmt::Debug for Charged<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Charged").finish_non_exhaustive()
    }
}

impl<E: Clock> Strategy for Charged<E> {
    fn spawn<F, T>(&self, _: usize, job: F) -> impl Future<Output = T> + Send + 'static
    where
        F: FnOnce(Self) -> T + Send + 'static,
        T: Send + 'static,
    {
        let result = job(self.clone());
        let takes = std::mem::take(&mut self.meter.state.lock().certifying);
        let done = self.clock.sleep(takes);
        async move {
            done.await;
            result
        }
    }

    fn run<R, SEQ, PAR>(&self, len: usize, serial: SEQ, parallel: PAR) -> R
    where
        R: Send,
        SEQ: FnOnce() -> R + Send,
        PAR: FnOnce() -> R + Send,
    {
        Sequential.run(len, serial, parallel)
    }

    fn try_run<R, X, SEQ, PAR>(&self, len: usize, serial: SEQ, parallel: PAR) -> Result<R, X>
    where
        R: Send,
        X: Send,
        SEQ: FnOnce() -> Result<R, X> + Send,
        PAR: FnOnce() -> Result<R, X> + Send,
    {
        Sequential.try_run(len, serial, parallel)
    }

    fn fold_init<I, INIT, T, R, ID, F, RD>(
        &self,
        items: I,
        init: INIT,
        identity: ID,
        fold: F,
        reduce: RD,
    ) -> R
    where
        I: IntoIterator<IntoIter: Send, Item: Send> + Send,
        INIT: Fn() -> T + Send + Sync,
        T: Send,
        R: Send,
        ID: Fn() -> R + Send + Sync,
        F: Fn(R, &mut T, I::Item) -> R + Send + Sync,
        RD: Fn(R, R) -> R + Send + Sync,
    {
        Sequential.fold_init(items, init, identity, fold, reduce)
    }

    fn try_fold<I, R, X, ID, F, RD>(
        &self,
        items: I,
        identity: ID,
        fold: F,
        reduce: RD,
    ) -> Result<R, X>
    where
        I: IntoIterator<IntoIter: Send, Item: Send> + Send,
        R: Send,
        X: Send,
        ID: Fn() -> R + Send + Sync,
        F: Fn(R, I::Item) -> Result<R, X> + Send + Sync,
        RD: Fn(R, R) -> R + Send + Sync,
    {
        Sequential.try_fold(items, identity, fold, reduce)
    }

    fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        (a(), b())
    }

    fn sort_by<T, C>(&self, items: &mut [T], compare: C)
    where
        T: Send,
        C: Fn(&T, &T) -> Ordering + Send + Sync,
    {
        items.sort_by(compare);
    }

    fn sort_unstable_by<T, C>(&self, items: &mut [T], compare: C)
    where
        T: Send,
        C: Fn(&T, &T) -> Ordering + Send + Sync,
    {
        items.sort_unstable_by(compare);
    }
}

/// The kind of messages on a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Votes,
    Certificates,
    Other,
}

/// A receiver that delivers messages when the batcher has had time for them.
pub(crate) struct Inbox<E, R> {
    pub(crate) inner: R,
    pub(crate) incoming: Incoming,
    pub(crate) clock: Arc<E>,
    pub(crate) meter: Arc<Meter>,
    /// A certificate under examination, and until when. The batcher drops the waiting future
    /// whenever something else comes first.
    pub(crate) examined: Option<(SystemTime, Message<PublicKey>)>,
}

impl<E, R> fmt::Debug for Inbox<E, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl<E: Clock, R: Receiver<PublicKey = PublicKey>> Receiver for Inbox<E, R> {
    type Error = R::Error;
    type PublicKey = PublicKey;

    async fn recv(&mut self) -> Result<Message<PublicKey>, R::Error> {
        loop {
            if let Some((until, _)) = &self.examined {
                self.clock.sleep_until(*until).await;
                if let Some((_, message)) = self.examined.take() {
                    return Ok(message);
                }
            }
            if self.incoming != Incoming::Other {
                let busy = self.meter.state.lock().busy;
                if let Some(busy) = busy.filter(|busy| *busy > self.clock.current()) {
                    self.clock.sleep_until(busy).await;
                }
            }
            let message = self.inner.recv().await?;
            if self.incoming != Incoming::Certificates {
                return Ok(message);
            }
            // Messages that cannot be decoded are left to the batcher to reject.
            let takes = Certificate::<Cheap, Digest>::decode_cfg(message.1.clone(), &())
                .map_or(Duration::ZERO, |found| self.meter.examine(&found));
            if takes.is_zero() {
                return Ok(message);
            }
            let until = self.clock.current() + takes;
            self.meter.state.lock().busy = Some(until);
            self.examined = Some((until, message));
        }
    }

    fn capacity(&self) -> NonZeroUsize {
        self.inner.capacity()
    }
}
