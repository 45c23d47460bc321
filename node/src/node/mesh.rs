//! The links, which outlive the parts that use them.
//!
//! At a border between epochs with other validators, and before and after state sync, the node's parts are
//! assembled anew. Making all links again took 0.3 s and more, without a block; so they stay, to all peers
//! that stay.

use super::links::p2p_config;
use crate::config::NodeConfig;
use bytes::Bytes;
use commonware_runtime::{Supervisor as _, tokio::Context as Runtime};
use parking_lot::Mutex;
use prometheus::Registry;
use quorate_consensus::Moment;
use quorate_machine::between::Between;
use quorate_p2p::{Inbound, Lane, Links, Running};
use quorate_types::Identity;
use std::{pin::Pin, sync::Arc, time::Instant};
use tracing::info;

/// How many peers can come before all links are made again.
const ROOM: usize = 32;

/// The links between two parts of a run.
#[derive(Default)]
pub(super) struct KeptLinks(Mutex<Option<Mesh>>);

impl KeptLinks {
    /// Links the node with the peers of a configuration, and hands their frames to `inbound`.
    ///
    /// # Errors
    ///
    /// If the network cannot start, or the configuration is inconsistent.
    pub(super) async fn join(
        &self,
        context: &Runtime,
        config: &NodeConfig,
        is_fetching: bool,
        inbound: Arc<Inbound>,
    ) -> anyhow::Result<Mesh> {
        let kept = self.0.lock().take();
        if let Some(mesh) = kept {
            let p2p = &config.p2p;
            if (mesh.links).set_peers(&p2p.peers, &p2p.followers, is_fetching)? {
                mesh.inbox.open(inbound);
                return Ok(mesh);
            }
            info!("there is no room for so many new peers: all links are made again");
            mesh.network.stop().await;
        }
        let can_change = config.genesis.registry.is_some();
        let inbox = Arc::new(Inbox::new(can_change));
        inbox.open(inbound);
        let receiving = inbox.clone();
        let registry = Registry::new();
        let p2p = quorate_p2p::Config {
            is_fetching,
            room: if can_change { ROOM } else { 0 },
            ..p2p_config(config)
        };
        let (links, network) = quorate_p2p::start(
            context.child("p2p"),
            p2p,
            Arc::new(move |from, lane, frame| receiving.receive(from, lane, frame)),
            &registry,
        )
        .await?;
        Ok(Mesh {
            links,
            registry,
            network,
            inbox,
        })
    }

    /// Keeps the links for the next part.
    pub(super) fn keep(&self, mesh: Mesh) {
        mesh.inbox.close();
        mesh.links.watch(Box::new(|_, _| {}));
        *self.0.lock() = Some(mesh);
    }
}

/// The links while a part uses them.
pub(super) struct Mesh {
    pub(super) links: Links,
    /// The links' metrics.
    pub(super) registry: Registry,
    network: Running,
    inbox: Arc<Inbox>,
}

impl Mesh {
    /// Resolves once the network has ended.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let error = Pin::new(&mut self.network).await;
        anyhow::Error::from(error).context("network")
    }
}

/// Hands frames to the parts that run, or keeps them until some do.
struct Inbox {
    start: Instant,
    receiver: Mutex<Receiver>,
}

struct Receiver {
    inbound: Option<Arc<Inbound>>,
    between: Between,
}

impl Inbox {
    fn new(validators_can_change: bool) -> Self {
        Self {
            start: Instant::now(),
            receiver: Mutex::new(Receiver {
                inbound: None,
                between: Between::new(validators_can_change),
            }),
        }
    }

    fn now(&self) -> Moment {
        Moment(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn receive(&self, from: Identity, lane: Lane, frame: Bytes) {
        let mut receiver = self.receiver.lock();
        let inbound = match receiver.between.receive(self.now(), from, lane, &frame) {
            true => receiver.inbound.clone(),
            false => None,
        };
        drop(receiver);
        if let Some(inbound) = inbound {
            inbound(from, lane, frame);
        }
    }

    fn open(&self, inbound: Arc<Inbound>) {
        self.receiver.lock().inbound = Some(inbound.clone());
        loop {
            let waiting = self.receiver.lock().between.open(self.now());
            if waiting.is_empty() {
                return;
            }
            for (from, lane, frame) in waiting {
                inbound(from, lane, frame);
            }
        }
    }

    fn close(&self) {
        let mut receiver = self.receiver.lock();
        receiver.inbound = None;
        receiver.between.close();
    }
}
