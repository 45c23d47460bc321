//! Checks `[p2p]`: each other validator must have exactly one reachable address.

use super::{Check, ConfigError, P2pConfig, Role, file};
use quorate_crypto::Identity;
use quorate_machine::serve::Upload;
use quorate_p2p::PeerAddress;
use quorate_types::{Committee, ValidatorIndex};
use std::{collections::BTreeMap, net::SocketAddr};

/// Bytes a second in a megabit a second.
pub(super) const BYTES_PER_MBIT: u64 = 125_000;

/// Most followers of a node.
const MAX_FOLLOWERS: usize = 64;

impl Check<'_> {
    pub(super) fn p2p(&self, file: file::P2p, role: Role<'_>) -> Result<P2pConfig, ConfigError> {
        let problem = |problem| ConfigError::Peers {
            path: self.path.into(),
            problem,
        };
        let peers = match role {
            Role::Validator(committee, own) => validators(file.peers, committee, own),
            Role::Registered(committee, own) | Role::Follower(committee, own) => {
                upstreams(file.peers, committee, own)
            }
        };
        let peers = peers.map_err(problem)?;
        let (committee, own) = match role {
            Role::Validator(committee, own) => (committee, committee.identity(own)),
            Role::Registered(committee, own) | Role::Follower(committee, own) => {
                (committee, Some(own))
            }
        };
        let followers = followers(file.followers, committee, own, &peers).map_err(problem)?;
        let all: Vec<_> = peers.iter().chain(&followers).cloned().collect();
        distinct(file.listen, &all).map_err(problem)?;
        let default = Upload::default();
        let most = default.bytes_per_second / BYTES_PER_MBIT;
        let upload_mbit = self.number(
            "p2p.upload_mbit",
            file.upload_mbit,
            most as usize,
            8..=100_000,
        )? as u64;
        Ok(P2pConfig {
            listen: file.listen,
            upload: Upload {
                bytes_per_second: upload_mbit * BYTES_PER_MBIT,
                ..default
            },
            peers,
            followers,
            timing: match file.timing.unwrap_or(file::Timing::Wide) {
                file::Timing::Local => quorate_p2p::Timing::Local,
                file::Timing::Wide => quorate_p2p::Timing::Wide,
            },
        })
    }
}

/// Reads addresses. `named` says whose each is, for errors.
fn addresses(
    peers: Vec<file::Peer>,
    named: impl Fn(&Identity) -> Result<String, String>,
) -> Result<BTreeMap<Identity, PeerAddress>, String> {
    let mut read = BTreeMap::new();
    for file::Peer { identity, address } in peers {
        let name = named(&identity)?;
        let address: PeerAddress = address.parse().map_err(|error| {
            format!(
                "the address {address:?} of {name} ({}): {error}; it must be an IP address or a host \
                 name, and a port, for instance \"192.0.2.7:26600\", \"[2001:db8::7]:26600\" or \
                 \"validator-7.example.org:26600\"",
                identity.short()
            )
        })?;
        if read.insert(identity, address).is_some() {
            return Err(format!("{identity} is listed twice; take one out"));
        }
    }
    Ok(read)
}

/// A validator's peers: all others.
fn validators(
    peers: Vec<file::Peer>,
    committee: &Committee,
    own: ValidatorIndex,
) -> Result<Vec<(Identity, PeerAddress)>, String> {
    let listed = addresses(peers, |identity| match committee.place(identity) {
        Some(place) => Ok(format!("validator {place}")),
        None => Err(format!(
            "{identity} is no validator of the genesis file; take it out, or list it under \
             [[p2p.followers]]"
        )),
    })?;
    let own = committee.identity(own);
    let others = committee.identities().iter();
    let others = others.filter(|identity| own != Some(**identity));
    others
        .map(|identity| {
            let address = listed.get(identity).ok_or_else(|| {
                format!(
                    "validator {identity} has no address; add it, since every validator is linked to \
                     every other"
                )
            })?;
            Ok((*identity, address.clone()))
        })
        .collect()
}

fn name_of(identity: &Identity, committee: &Committee) -> String {
    match committee.place(identity) {
        Some(place) => format!("validator {place}"),
        None => "a follower".to_owned(),
    }
}

/// The nodes that a follower follows.
fn upstreams(
    peers: Vec<file::Peer>,
    committee: &Committee,
    own: Identity,
) -> Result<Vec<(Identity, PeerAddress)>, String> {
    let listed = addresses(peers, |identity| match *identity == own {
        true => Err(format!(
            "{identity} is this node itself, which cannot follow itself; take it out"
        )),
        false => Ok(name_of(identity, committee)),
    })?;
    if listed.is_empty() {
        return Err(
            "there are no [[p2p.peers]]: list the validators or followers that this node follows, one \
             at least"
                .to_owned(),
        );
    }
    Ok(listed.into_iter().collect())
}

/// The nodes that follow this one.
fn followers(
    listed: Vec<file::Peer>,
    committee: &Committee,
    own: Option<Identity>,
    peers: &[(Identity, PeerAddress)],
) -> Result<Vec<(Identity, PeerAddress)>, String> {
    let listed = addresses(listed, |identity| {
        if committee.place(identity).is_some() {
            Err(format!(
                "[[p2p.followers]]: {identity} is a validator, which follows nobody; take it out"
            ))
        } else if own == Some(*identity) {
            Err(format!(
                "[[p2p.followers]]: {identity} is this node itself; take it out"
            ))
        } else if peers.iter().any(|(peer, _)| peer == identity) {
            Err(format!(
                "{identity} is under [[p2p.peers]] and under [[p2p.followers]]: two nodes that follow \
                 each other learn nothing; take one out"
            ))
        } else {
            Ok("a follower".to_owned())
        }
    })?;
    if listed.len() > MAX_FOLLOWERS {
        return Err(format!(
            "{} [[p2p.followers]]: {MAX_FOLLOWERS} at most; let the others follow these",
            listed.len()
        ));
    }
    Ok(listed.into_iter().collect())
}

/// Refuses two peers with the same address, and a peer with this node's own listen address.
fn distinct(listen: SocketAddr, peers: &[(Identity, PeerAddress)]) -> Result<(), String> {
    let mut taken: BTreeMap<&PeerAddress, &Identity> = BTreeMap::new();
    for (identity, address) in peers {
        if let Some(other) = taken.insert(address, identity) {
            return Err(format!(
                "{} and {} have the same address, {address}; each node has its own",
                other.short(),
                identity.short()
            ));
        }
        let loops = |at: &SocketAddr| {
            let own = at.ip() == listen.ip();
            let any = listen.ip().is_unspecified() && at.ip().is_loopback();
            at.port() == listen.port() && (own || any)
        };
        if address.ip().is_some_and(|at| loops(&at)) {
            return Err(format!(
                "{address}, the address of {}, is the one on which this node itself listens \
                 (`p2p.listen`); name that node's own",
                identity.short()
            ));
        }
    }
    Ok(())
}
