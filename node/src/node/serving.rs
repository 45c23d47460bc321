//! Serving HTTP on threads of its own, which yield to everything else.
//!
//! One client with 250 connections once had the two threads of the links so busy with requests that only read memory
//! that the chain stood still. So clients have a runtime of their own, at a lower priority, and a pace
//! ([`quorate_http::Times::pace`]).
//!
//! With a much lower priority (nice 10), clients' transfers waited for a processor longer than for consensus wherever
//! processors are scarce: four validators on two cores told of a transfer's finality after 221 ms instead of 46 (p50,
//! 1,000 transfers a second). The pace does more against floods: four clients with 250 connections each, one at each
//! validator, left 103 of 172 blocks a second, and 77 of 185 with the low priority instead.

use crate::{
    config::RpcConfig,
    priority::{self, Yields},
    rpc::{self, Audience, RpcState},
};
use anyhow::Context as _;
use axum::Router;
use std::time::Duration;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinSet,
};

/// Threads that read requests and write answers.
const THREADS: usize = 2;

/// How long requests may take to be answered at the end.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The same where parts that need the database for themselves take over.
const BORDER_LIMIT: Duration = Duration::from_millis(30);

/// The same beside other parts that have taken over. On a busy machine the threads of clients get little, and 2 s were
/// too few: who waited for something saw its connection end without a word.
const BESIDE_LIMIT: Duration = Duration::from_secs(15);

/// Listeners that are not registered with a runtime yet.
pub(super) type Listeners = Vec<(Audience, std::net::TcpListener)>;

pub(super) struct Servers {
    stop: watch::Sender<()>,
    tasks: JoinSet<()>,
    /// Taken at the end.
    runtime: Option<Runtime>,
}

impl Servers {
    /// Serves a node that takes part or follows.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(super) fn start(state: &RpcState, listeners: Listeners) -> anyhow::Result<Self> {
        Self::with(listeners, |audience, listener, mut stopped| {
            let state = state.clone();
            async move {
                let shutdown = async { drop(stopped.changed().await) };
                rpc::serve(state, audience, listener, shutdown).await;
            }
        })
    }

    /// Serves a node that does not take part: it opens its database, or fetches a state.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(super) fn of_routers(
        config: &RpcConfig,
        listeners: Listeners,
        router: impl Fn(Audience) -> Router,
    ) -> anyhow::Result<Self> {
        Self::with(listeners, |audience, listener, mut stopped| {
            let router = router(audience);
            let config = config.clone();
            let clients = rpc::clients(&config);
            async move {
                let shutdown = async { drop(stopped.changed().await) };
                rpc::serve_router(router, config, clients, listener, shutdown).await;
            }
        })
    }

    fn with<F: Future<Output = ()> + Send + 'static>(
        listeners: Listeners,
        serve: impl Fn(Audience, TcpListener, watch::Receiver<()>) -> F,
    ) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("http")
            .on_thread_start(|| priority::lower_this_thread(Yields::Some))
            .enable_all()
            .build()
            .context("cannot start the threads that serve HTTP")?;
        let (stop, stopped) = watch::channel(());
        let mut tasks = JoinSet::new();
        for (audience, listener) in listeners {
            let entered = runtime.enter();
            let listener = TcpListener::from_std(listener).context("a listener cannot be kept")?;
            drop(entered);
            tasks.spawn_on(serve(audience, listener, stopped.clone()), runtime.handle());
        }
        Ok(Self {
            stop,
            tasks,
            runtime: Some(runtime),
        })
    }

    pub(super) fn tell_to_stop(&self) {
        let _ = self.stop.send(());
    }

    /// Waits until all requests are answered: for at most 2 s, or for a moment if other parts of the node wait for that.
    /// The connections of those that take longer end.
    pub(super) async fn end(self, others_wait: bool) {
        self.end_within(if others_wait { BORDER_LIMIT } else { END_LIMIT })
            .await;
    }

    /// The same while other parts of the node run already.
    pub(super) async fn end_beside(self) {
        self.end_within(BESIDE_LIMIT).await;
    }

    async fn end_within(mut self, limit: Duration) {
        let tasks = std::mem::take(&mut self.tasks);
        let _ = tokio::time::timeout(limit, tasks.join_all()).await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Without waiting: this may be a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}
