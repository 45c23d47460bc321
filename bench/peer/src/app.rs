//! The application: builds blocks, checks blocks, and acknowledges those that are final.

use crate::block::{Block, Context, Payloads};
use commonware_actor::Feedback;
use commonware_consensus::{
    Application, Handoff, Reporter, Viewable as _,
    marshal::{Update, ancestry::Ancestry},
    simplex::types::Activity,
};
use commonware_cryptography::{Digested, certificate::Scheme, sha256::Digest};
use commonware_runtime::Clock;
use commonware_utils::Acknowledgement as _;
use futures::StreamExt as _;
use std::{marker::PhantomData, time::Duration};

/// A block may be this far ahead of the verifier's clock, as in alto.
const AHEAD_US: u64 = 500_000;

/// Who looks on: it tells the time and notes what happens when.
pub(crate) trait Watch: Clone + Send + Sync + 'static {
    /// µs since the epoch.
    fn now_us(&self) -> u64;
    /// A block was built here or has arrived.
    fn learn(&self, block: &Digested<Block>);
    /// A certificate says that the block is final.
    fn finalized(&self, digest: Digest, view: u64);
    /// A view was skipped.
    fn nullified(&self, view: u64);
    /// A final block is durable, and all before it.
    fn stored(&self, block: &Digested<Block>);
}

/// Builds and checks blocks.
pub(crate) struct App<S, W> {
    pub(crate) payloads: Payloads,
    pub(crate) watch: W,
    /// What to answer when the parent is not certified yet.
    pub(crate) handoff: Handoff<()>,
    /// Least time between a block's timestamp and its parent's.
    pub(crate) pace: Duration,
    pub(crate) scheme: PhantomData<fn() -> S>,
}

impl<S, W: Clone> Clone for App<S, W> {
    fn clone(&self) -> Self {
        Self {
            payloads: self.payloads.clone(),
            watch: self.watch.clone(),
            handoff: self.handoff,
            pace: self.pace,
            scheme: PhantomData,
        }
    }
}

impl<S, W: Watch> App<S, W> {
    async fn build<E: Clock>(
        &self,
        clock: &E,
        context: Context,
        mut ancestry: impl Ancestry<Block>,
    ) -> Option<Digested<Block>> {
        let parent = ancestry.next().await?;
        let parent = parent.inner();
        if !self.pace.is_zero() {
            let due = parent.timestamp_us + self.pace.as_micros() as u64;
            let wait = due.saturating_sub(self.watch.now_us());
            clock.sleep(Duration::from_micros(wait)).await;
        }
        let height = parent.height.next();
        let block = Block {
            context,
            height,
            timestamp_us: self.watch.now_us().max(parent.timestamp_us + 1),
            payload: self.payloads.at(height),
        };
        let block = block.seal();
        self.watch.learn(&block);
        Some(block)
    }
}

impl<E: Clock, S: Scheme, W: Watch> Application<E> for App<S, W> {
    type SigningScheme = S;
    type Context = Context;
    type Block = Block;
    type Input = ();

    async fn prepare(
        &mut self,
        (clock, context): (E, Context),
        ancestry: impl Ancestry<Block>,
        (): (),
    ) -> Handoff<Digested<Block>> {
        if self.handoff.is_wait() {
            return Handoff::Wait;
        }
        let block = self.build(&clock, context, ancestry).await;
        block.map_or(Handoff::Wait, |block| self.handoff.map(|()| block))
    }

    async fn propose(
        &mut self,
        (clock, context): (E, Context),
        ancestry: impl Ancestry<Block>,
        (): (),
    ) -> Option<Digested<Block>> {
        self.build(&clock, context, ancestry).await
    }

    /// The library has checked digest, context, parent and height.
    async fn verify(&mut self, _: (E, Context), mut ancestry: impl Ancestry<Block>) -> bool {
        let Some(block) = ancestry.next().await else {
            return false;
        };
        self.watch.learn(&block);
        let Some(parent) = ancestry.next().await else {
            return false;
        };
        let block = block.inner();
        block.timestamp_us > parent.inner().timestamp_us
            && block.timestamp_us <= self.watch.now_us() + AHEAD_US
            && block.payload.len() == self.payloads.length()
    }
}

/// Takes final blocks from marshal, which has made them durable, and acknowledges them at once.
#[derive(Clone)]
pub(crate) struct Executor<W>(pub(crate) W);

impl<W: Watch> Reporter for Executor<W> {
    type Activity = Update<Block>;

    fn report(&mut self, update: Update<Block>) -> Feedback {
        if let Update::Block(block, acknowledgement) = update {
            self.0.stored(&block);
            acknowledgement.acknowledge();
        }
        Feedback::Ok
    }
}

/// Notes certificates on their way from consensus to marshal.
#[derive(Clone)]
pub(crate) struct Observer<W, R> {
    pub(crate) watch: W,
    pub(crate) next: R,
}

impl<S, W, R> Reporter for Observer<W, R>
where
    W: Watch,
    S: Scheme,
    R: Reporter<Activity = Activity<S, Digest>>,
{
    type Activity = Activity<S, Digest>;

    fn report(&mut self, activity: Activity<S, Digest>) -> Feedback {
        match &activity {
            Activity::Finalization(certificate) => self
                .watch
                .finalized(certificate.proposal.payload, certificate.view().get()),
            Activity::Nullification(certificate) => self.watch.nullified(certificate.view().get()),
            _ => {}
        }
        self.next.report(activity)
    }
}
