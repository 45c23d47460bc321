//! Asking a validator.

use crate::{
    config::{load_genesis, read_bounded},
    control::CONTROL_SOCKET,
};
use anyhow::Context as _;
use clap::Args;
use quorate_load::RpcClient;
use quorate_types::genesis::Genesis;
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

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

/// Which validator of this machine is meant
#[derive(Args)]
pub(super) struct Control {
    /// The validator's configuration file, which names its data directory
    #[arg(long, value_name = "FILE", default_value = "validator.toml")]
    config: PathBuf,
}

impl Control {
    /// A client of that validator's control socket.
    pub(super) fn client(&self) -> anyhow::Result<RpcClient> {
        let socket = self.data_dir()?.join(CONTROL_SOCKET);
        // A killed validator leaves its socket behind, so only a connection tells.
        UnixStream::connect(&socket).with_context(|| {
            format!(
                "nobody answers at {}: the validator of {} is not running, or runs as another user",
                socket.display(),
                self.config.display()
            )
        })?;
        Ok(RpcClient::over_socket(&socket)?)
    }

    /// The validator's data directory.
    pub(super) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        self.path_at("data_dir")
    }

    /// The chain's genesis.
    pub(super) fn genesis(&self) -> anyhow::Result<Genesis> {
        Ok(load_genesis(&self.path_at("genesis")?)?)
    }

    /// The configuration file's text. It names secrets and holds none.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let file = self.config.display();
        read_bounded(&self.config, 1 << 20)
            .with_context(|| format!("cannot read the configuration file {file}"))
    }

    /// The path that stands at a key. Nothing else in the file is looked at: these commands are
    /// also for configurations that no validator would start with.
    fn path_at(&self, key: &str) -> anyhow::Result<PathBuf> {
        let file = self.config.display();
        let table: toml::Table = self.text()?.parse().with_context(|| format!("{file}"))?;
        let path = table.get(key).and_then(|value| value.as_str());
        let path = path.with_context(|| format!("{file}: `{key}` is missing or no text"))?;
        let folder = self.config.parent().unwrap_or(Path::new(""));
        Ok(folder.join(path))
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
