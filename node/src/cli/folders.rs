//! Writes a complete validator folder that can be copied to the validator's machine.

use crate::{
    config::{CONFIG_FILE, NewConfig, NodeKind},
    genesis::{DealtChain, GENESIS_FILE, TRUST_FILE, write_new},
};
use anyhow::{Context as _, bail};
use quorate_api::verdict::grouped;
use quorate_consensus::ESTABLISHED_BLOCKS;
use quorate_machine::machine::ConsensusConfig;
use quorate_p2p::PeerAddress;
use quorate_types::{
    BondName, Committee, ExternalEntry, Identity,
    genesis::{Genesis, Protocol},
};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

/// The list of validators of a registry outside the chain.
pub(super) const REGISTRY_FILE: &str = "registry.toml";

/// The same, if all validators are on one machine.
const SHARED_REGISTRY_FILE: &str = "../registry.toml";

/// The metrics port is the HTTP port plus this offset.
const ADMIN_OFFSET: u16 = 100;

/// Printed for a chain without funded accounts.
pub(super) const NO_ACCOUNT: &str = "Nothing can be transferred on it, ever: balances come from the genesis \
    file alone. Make an account with `quorate keys generate`, and the chain anew with --account \
    IDENTITY=BALANCE";

/// A note on when all validators of a new chain must be there.
pub(super) fn late_start(protocol: Protocol) -> Option<String> {
    if protocol == Protocol::Simplex {
        return None;
    }
    let view = grouped(ESTABLISHED_BLOCKS * protocol.views_per_block());
    Some(format!(
        "note: with {} start all validators before the chain is used: one that starts for the first time after view \
         {view} is silent to the end of the next epoch (docs/OPERATING.md, *The vote journal*)",
        protocol.name()
    ))
}

/// Returns the HTTP and metrics ports of a validator with this peer address.
pub(super) fn local_ports(address: &PeerAddress) -> anyhow::Result<[u16; 2]> {
    let http = address.port().checked_add(1).with_context(|| {
        format!("the address {address}: there is no next port for HTTP; use a lower one")
    })?;
    let admin = http.checked_add(ADMIN_OFFSET).with_context(|| {
        format!("the address {address}: no port is left for metrics; use a lower one")
    })?;
    Ok([http, admin])
}

/// Refuses addresses whose validators would listen on the same port of the same machine.
pub(super) fn check_addresses(addresses: &[PeerAddress]) -> anyhow::Result<()> {
    let mut taken: BTreeMap<(String, u16), (usize, &str)> = BTreeMap::new();
    for (place, address) in addresses.iter().enumerate() {
        // All loopback addresses are the same machine.
        let host = match address {
            PeerAddress::Ip(at) if at.ip().is_loopback() => Ipv4Addr::LOCALHOST.to_string(),
            PeerAddress::Ip(at) => at.ip().to_string(),
            PeerAddress::Name { host, .. } if host == "localhost" => {
                Ipv4Addr::LOCALHOST.to_string()
            }
            PeerAddress::Name { host, .. } => host.clone(),
        };
        let [http, admin] = local_ports(address)?;
        for (port, what) in [
            (address.port(), "peers"),
            (http, "HTTP"),
            (admin, "metrics"),
        ] {
            if let Some((other, its)) = taken.insert((host.clone(), port), (place, what)) {
                bail!(
                    "the addresses {} and {address}: validator {other} would use port {port} for {its}, and \
                     validator {place} for {what}. A validator at port P uses P, P + 1 (HTTP) and P + {} \
                     (metrics); on one machine, choose every second port",
                    addresses[other],
                    1 + ADMIN_OFFSET
                );
            }
        }
    }
    Ok(())
}

/// Parses `IDENTITY@HOST:PORT`, or `PLACE@HOST:PORT` for a validator of the genesis file.
pub(super) fn parse_peer(
    text: &str,
    genesis: &Committee,
) -> anyhow::Result<(Identity, PeerAddress)> {
    let (who, address) = text
        .split_once('@')
        .context("give an identity (or a validator's number), @, and an address with a port")?;
    let identity = match who.parse::<usize>() {
        Ok(place) => *genesis
            .identities()
            .get(place)
            .with_context(|| format!("there is no validator {place}"))?,
        Err(_) => who.parse().ok().context(
            "an identity is 64 hexadecimal digits; a validator's number stands for it too",
        )?,
    };
    Ok((identity, address.parse()?))
}

/// Writes the configuration of a validator that joins a chain with a registry, and the genesis and trust
/// files beside it. `address` is where others reach it, and `peers` are the validators that it asks at first.
pub(super) fn write_newcomer(
    directory: &Path,
    genesis: &Genesis,
    own: Identity,
    address: &PeerAddress,
    peers: &[(Identity, PeerAddress)],
) -> anyhow::Result<()> {
    let [http_port, admin_port] = local_ports(address)?;
    let is_here = address.ip().is_some_and(|at| at.ip().is_loopback());
    let any = match is_here {
        true => Ipv4Addr::LOCALHOST,
        false => Ipv4Addr::UNSPECIFIED,
    };
    let config = NewConfig {
        kind: NodeKind::Newcomer,
        followers: &[],
        genesis: Path::new(GENESIS_FILE),
        p2p_listen: SocketAddr::from((any, address.port())),
        local: is_here,
        rpc_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, http_port)),
        admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port))),
        peers,
        own,
        retention_blocks: None,
        retention_time: None,
        min_block_interval: Duration::ZERO,
        idle_interval: ConsensusConfig::default().timing.idle_interval,
        registry_file: (genesis.registry.and_then(|rules| rules.external))
            .map(|_| Path::new(REGISTRY_FILE)),
    };
    write_new(&directory.join(CONFIG_FILE), &config.to_toml())?;
    write_new(&directory.join(TRUST_FILE), &genesis.trust().to_json())?;
    write_new(&directory.join(GENESIS_FILE), &genesis.to_json())?;
    Ok(())
}

/// What the genesis validators' entries in a registry outside the chain are.
pub(super) fn registry_of_genesis(
    genesis: &Genesis,
    peers: &[(Identity, PeerAddress)],
) -> anyhow::Result<String> {
    let mut entries = BTreeMap::new();
    for (validator, (_, address)) in genesis.validators.iter().zip(peers) {
        let possession = validator.proof_of_possession.as_deref().unwrap_or("");
        let entry = ExternalEntry {
            stake: validator.stake,
            vote_key: validator.vote_key()?,
            possession: possession.parse().context("a proof of possession")?,
            address: address.to_string().parse()?,
            name: BondName::default(),
        };
        entries.insert(validator.identity, entry);
    }
    quorate_registry::to_toml(&entries).context("--stake is too large for a TOML file")
}

/// Writes a validator's configuration, and the genesis and trust files beside it. With
/// `one_machine` the validator listens for peers on 127.0.0.1, else on all interfaces.
pub(super) fn write(
    directory: &Path,
    dealt: &DealtChain,
    peers: &[(Identity, PeerAddress)],
    place: usize,
    one_machine: bool,
) -> anyhow::Result<()> {
    let genesis = dealt.genesis();
    let config = config_text(genesis, peers, place, one_machine)?;
    write_new(&directory.join(CONFIG_FILE), &config)?;
    write_new(&directory.join(TRUST_FILE), &genesis.trust().to_json())?;
    write_new(&directory.join(GENESIS_FILE), &genesis.to_json())?;
    Ok(())
}

/// The configuration of a validator of the genesis file, see [`write`].
pub(super) fn config_text(
    genesis: &Genesis,
    peers: &[(Identity, PeerAddress)],
    place: usize,
    one_machine: bool,
) -> anyhow::Result<String> {
    let (own, address) = &peers[place];
    let [http_port, admin_port] = local_ports(address)?;
    let any = match one_machine {
        true => Ipv4Addr::LOCALHOST,
        false => Ipv4Addr::UNSPECIFIED,
    };
    let config = NewConfig {
        kind: NodeKind::Validator,
        followers: &[],
        genesis: Path::new(GENESIS_FILE),
        p2p_listen: SocketAddr::from((any, address.port())),
        local: address.ip().is_some_and(|at| at.ip().is_loopback()),
        rpc_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, http_port)),
        admin_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port))),
        peers,
        own: *own,
        retention_blocks: None,
        retention_time: None,
        min_block_interval: Duration::ZERO,
        idle_interval: ConsensusConfig::default().timing.idle_interval,
        registry_file: (genesis.registry.and_then(|rules| rules.external)).map(
            |_| match one_machine {
                true => Path::new(SHARED_REGISTRY_FILE),
                false => Path::new(REGISTRY_FILE),
            },
        ),
    };
    Ok(config.to_toml())
}
