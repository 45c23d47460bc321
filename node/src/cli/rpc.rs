//! Asking a validator.

use anyhow::Context as _;
use clap::Args;
use quorate_load::RpcClient;

/// The address that `quorate localnet` gives its first validator.
pub(super) const DEFAULT_RPC: &str = "http://127.0.0.1:26601";

/// Which validator to ask
#[derive(Args)]
pub(super) struct Rpc {
    /// The validator's HTTP address
    #[arg(long, value_name = "URL", default_value = DEFAULT_RPC, env = "QUORATE_RPC")]
    rpc: String,
}

impl Rpc {
    /// A client of that validator.
    pub(super) fn client(&self) -> anyhow::Result<RpcClient> {
        Ok(RpcClient::new(&self.rpc)?)
    }
}

/// Runs a command that talks to the network, on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}
