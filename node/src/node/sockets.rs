//! The sockets on which clients and operators reach the node.
//!
//! They stay open while the node's parts are assembled anew, for state sync and after it: whoever
//! connects meanwhile waits, and is not refused.

use super::{
    serving::{Listeners, Servers},
    task::Task,
};
use crate::{
    config::NodeConfig,
    control::ControlSocket,
    rpc::{self, Audience, error::RpcError},
};
use anyhow::Context as _;
use std::time::Duration;
use tokio::sync::watch;
use tracing::info;

/// After a signal the process ends so much later, so that who has sent it over the control socket gets an answer.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

/// What answers while no part of the node does, and ends the process if it is told to stop. What it does meanwhile cannot
/// be interrupted, and is as safe as after `kill -9`.
pub(super) struct Opening {
    servers: Servers,
    _control: Task<anyhow::Result<()>>,
    _watch: Task<()>,
}

impl Opening {
    /// Ends it. Its requests in progress are still answered.
    pub(super) fn end(self) {
        self.servers.tell_to_stop();
        drop(tokio::spawn(self.servers.end_beside()));
    }
}

/// Removes the control socket when dropped, so that nobody mistakes it for a running node's.
pub(super) struct Sockets {
    listeners: Listeners,
    control: ControlSocket,
}

impl Sockets {
    /// # Errors
    ///
    /// If an address is in use, or the system refuses.
    pub(super) fn open(config: &NodeConfig, stop: watch::Sender<bool>) -> anyhow::Result<Self> {
        let control = ControlSocket::bind(&config.data_dir, stop)?;
        let mut addresses = vec![(Audience::Public, config.rpc.listen)];
        match config.admin {
            Some(address) => addresses.push((Audience::Operator, address)),
            None => info!("no `[admin]` section: metrics are served over the control socket only"),
        }
        let listeners = addresses.into_iter().map(|(audience, address)| {
            let listener = rpc::listen(audience, address)?;
            let listener = listener.into_std().context(CANNOT_KEEP)?;
            Ok((audience, listener))
        });
        let listeners = listeners.collect::<anyhow::Result<_>>()?;
        Ok(Self { listeners, control })
    }

    /// Answers with a refusal, and ends the process once `stopped`.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(super) fn answer(
        &self,
        config: &NodeConfig,
        refusal: fn() -> RpcError,
        mut stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<Opening> {
        let orders = rpc::opening::router(refusal);
        let control = self.control()?.serve_router(orders);
        let router = |_| rpc::opening::router(refusal);
        let servers = Servers::of_routers(&config.rpc, self.listeners()?, router)?;
        let socket = self.control.path().to_path_buf();
        let watch = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
            info!("stopping: the database was being opened; what is synced is safe");
            tokio::time::sleep(ANSWERED_WITHIN).await;
            let _ = std::fs::remove_file(socket);
            std::process::exit(0);
        };
        Ok(Opening {
            servers,
            _control: Task::spawn(control),
            _watch: Task::spawn(watch),
        })
    }

    /// Handles to the listeners.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(super) fn listeners(&self) -> anyhow::Result<Listeners> {
        let listeners = self.listeners.iter().map(|(audience, listener)| {
            Ok((*audience, listener.try_clone().context(CANNOT_KEEP)?))
        });
        listeners.collect()
    }

    /// A handle to the control socket, for the current runtime.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(super) fn control(&self) -> anyhow::Result<ControlSocket> {
        self.control.again()
    }
}

const CANNOT_KEEP: &str = "a listener cannot be kept";

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.control.path());
    }
}
