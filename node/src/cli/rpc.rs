//! Flags and helpers for requests to a validator.

use super::block::{load_trust, load_trust_file};
use crate::{
    config::{load_genesis, read_config},
    control::CONTROL_SOCKET,
};
use anyhow::{Context as _, bail};
use clap::Args;
use quorate_api::{ANSWER_TIMEOUT, ClientError, RpcClient, StatusJson};
use quorate_crypto::ParseBytesError;
use quorate_http::client::Roots;
use quorate_types::{
    ChainId, Identity,
    genesis::{ApplicationKind, Genesis, Verifier},
};
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// The address of the first validator of `quorate localnet`.
pub(super) const DEFAULT_RPC: &str = "http://127.0.0.1:26601";

/// Which validator to ask
#[derive(Args)]
pub(super) struct Rpc {
    /// The validator's HTTP address
    #[arg(long, value_name = "URL", default_value = DEFAULT_RPC, env = "QUORATE_RPC")]
    rpc: String,
    #[command(flatten)]
    believed: Believed,
}

/// Certificates to trust for https
#[derive(Args)]
pub(super) struct Believed {
    /// Additional certificates (PEM) to trust for https, besides the web's root authorities
    #[arg(long, value_name = "FILE", env = "QUORATE_CA")]
    ca: Option<PathBuf>,
}

impl Believed {
    pub(super) fn roots(&self) -> anyhow::Result<Roots> {
        let own = self.ca.as_ref().map(|path| Roots::with_file(path));
        Ok(own.transpose().context("--ca")?.unwrap_or_default())
    }
}

/// The chain that the user means. The server is never asked for it: any server could name another
/// chain and so obtain a signature for that chain.
#[derive(Args)]
pub(super) struct ForChain {
    /// The chain's trust file; the validator's answers about accounts are then verified with it
    #[arg(long, value_name = "FILE", conflicts_with = "chain_id")]
    trust: Option<PathBuf>,
    /// The chain's id, instead of a trust file
    #[arg(long, value_name = "HEX")]
    chain_id: Option<ChainId>,
}

impl ForChain {
    pub(super) fn id(&self) -> anyhow::Result<Option<ChainId>> {
        match &self.trust {
            Some(path) => Ok(Some(load_trust_file(path)?.chain_id)),
            None => Ok(self.chain_id),
        }
    }

    /// As [`Self::id`], but an error if none was given.
    pub(super) fn required(&self) -> anyhow::Result<ChainId> {
        self.id()?.context(
            "for which chain to sign? Give its trust file with --trust FILE, or its id with \
             --chain-id HEX, from somebody whom you trust (who deals a chain has trust.json; \
             `quorate localnet` writes it into its folder). What a server says is not believed here",
        )
    }

    /// Returns a verifier of the chain's blocks, if a trust file was given.
    pub(super) fn verifier(&self) -> anyhow::Result<Option<Verifier>> {
        self.trust.as_ref().map(|path| load_trust(path)).transpose()
    }
}

impl Rpc {
    pub(super) fn roots(&self) -> anyhow::Result<Roots> {
        self.believed.roots()
    }

    /// A client of another server, with the same certificates.
    pub(super) fn client_of(&self, url: &str) -> anyhow::Result<RpcClient> {
        let roots = self.believed.roots()?;
        Ok(RpcClient::with_roots(url, ANSWER_TIMEOUT, &roots)?)
    }

    pub(super) fn client(&self) -> anyhow::Result<RpcClient> {
        self.client_of(&self.rpc)
    }
}

/// Selects a validator on this machine
#[derive(Args)]
pub(super) struct Control {
    /// The validator's configuration file, which names its data directory
    #[arg(long, value_name = "FILE", default_value = "validator.toml")]
    config: PathBuf,
}

impl Control {
    pub(super) fn of(config: PathBuf) -> Self {
        Self { config }
    }

    /// Returns a client of the validator's control socket.
    pub(super) fn client(&self) -> anyhow::Result<RpcClient> {
        let socket = self.data_dir()?.join(CONTROL_SOCKET);
        // A killed validator leaves its socket behind, so only connecting shows whether it runs.
        UnixStream::connect(&socket).with_context(|| {
            format!(
                "nobody answers at {}: the validator of {} is not running, or runs as another user",
                socket.display(),
                self.config.display()
            )
        })?;
        Ok(RpcClient::over_socket(&socket)?)
    }

    pub(super) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        self.path_at("data_dir")
    }

    /// Whether the configuration is a validator's, and not a follower's.
    pub(super) fn votes(&self) -> anyhow::Result<bool> {
        let text = self.text()?;
        let table: toml::Table = text
            .parse()
            .with_context(|| self.config.display().to_string())?;
        Ok(table.contains_key("vote_key"))
    }

    pub(super) fn genesis(&self) -> anyhow::Result<Genesis> {
        Ok(load_genesis(&self.path_at("genesis")?)?)
    }

    /// Returns the text of the configuration file. It refers to secrets but contains none.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        Ok(read_config(&self.config)?)
    }

    /// Returns the path stored under a key. Ignores the rest of the file: these commands also work
    /// with configurations that no validator would start with.
    pub(super) fn path_at(&self, key: &str) -> anyhow::Result<PathBuf> {
        let file = self.config.display();
        let table: toml::Table = self.text()?.parse().with_context(|| format!("{file}"))?;
        let path = table.get(key).and_then(|value| value.as_str());
        let path = path.with_context(|| format!("{file}: `{key}` is missing or no text"))?;
        let folder = self.config.parent().unwrap_or(Path::new(""));
        Ok(folder.join(path))
    }
}

/// How long a validator may take for an answer that needs only data in memory. If it takes longer,
/// something is wrong with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Awaits a response with a time limit.
///
/// # Errors
///
/// If the request fails or times out.
pub(super) async fn prompt<T>(
    client: &RpcClient,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => bail!(
            "{} does not answer within {} s: its process is stopped (SIGSTOP) or overloaded, or it is no \
             validator's",
            client.url(),
            PATIENCE.as_secs()
        ),
    }
}

/// Returns advice for the user on a failed request.
pub(super) fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    let causes = error.chain();
    match causes.filter_map(|cause| cause.downcast_ref()).next()? {
        ClientError::Unreachable { .. } => Some(
            "Does a validator run there? --rpc (or QUORATE_RPC) names its `[rpc] listen`; localnet's \
             validator i has it at --base-port + 2i + 1.",
        ),
        ClientError::Transport { reason, .. } if reason.contains("begins with http") => None,
        ClientError::Transport { reason, .. } if was_cut(reason) => Some(
            "The connection ended without an answer: the node stops or restarts; ask again in a moment. Or that is not \
             a validator's HTTP address, `[rpc] listen`: its port for peers is another one.",
        ),
        ClientError::Transport { url, .. } if url.ends_with(CONTROL_SOCKET) => Some(
            "The validator's process is stopped (SIGSTOP) or overloaded. What was asked is carried out when it goes on.",
        ),
        ClientError::Transport { .. } => Some(
            "Is that a validator's HTTP address, `[rpc] listen`? Its port for peers is another one.",
        ),
        ClientError::Refused { .. } => None,
    }
}

/// Whether the connection was made and then ended without an answer.
fn was_cut(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    let words = ["reset by peer", "connection closed", "broken pipe"];
    words.iter().any(|word| reason.contains(word))
}

/// Whether a validator's chain orders payloads and has no accounts.
pub(super) fn only_orders(status: &StatusJson) -> bool {
    status.application.as_deref() == Some(ApplicationKind::OrderOnly.name())
}

/// Parses an amount of money.
///
/// # Errors
///
/// If it is not a whole number.
pub(super) fn amount(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "an amount is a whole number of the chain's smallest unit, from 0 to {}",
            u64::MAX
        )
    })
}

/// Parses the identity of an account that is to be paid. About half of all typing mistakes result
/// in bytes that are not a valid public key; nobody could ever spend from such an account.
///
/// # Errors
///
/// If nobody can hold the account's secret key, or if anybody could spend from it.
pub(super) fn owned_account(text: &str) -> Result<Identity, String> {
    let identity: Identity = text
        .parse()
        .map_err(|error: ParseBytesError| error.to_string())?;
    if identity.to_public_key().is_none() || !identity.is_canonical() {
        return Err(
            "it is no public key, so nobody could ever spend what it receives: look for a typing mistake".into(),
        );
    }
    if identity.is_small_order() {
        return Err("it is a key of small order: anybody could spend what it receives".into());
    }
    Ok(identity)
}

/// Runs an async command on the current thread.
pub(super) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}
