//! Checks `[p2p]`: each other validator must have exactly one reachable address.

use super::{Check, ConfigError, P2pConfig, file};
use quorate_crypto::Identity;
use quorate_machine::serve::Upload;
use quorate_p2p::PeerAddress;
use quorate_types::{Committee, ValidatorIndex};
use std::{collections::BTreeMap, net::SocketAddr};

/// Bytes a second in a megabit a second.
pub(super) const BYTES_PER_MBIT: u64 = 125_000;

impl Check<'_> {
    pub(super) fn p2p(
        &self,
        file: file::P2p,
        committee: &Committee,
        own: ValidatorIndex,
    ) -> Result<P2pConfig, ConfigError> {
        let problem = |problem| ConfigError::Peers {
            path: self.path.into(),
            problem,
        };
        let mut peers = BTreeMap::new();
        for file::Peer { identity, address } in file.peers {
            let Some(place) = committee.place(&identity) else {
                return Err(problem(format!(
                    "{identity} is no validator of the genesis file; take it out"
                )));
            };
            let address: PeerAddress = address.parse().map_err(|error| {
                problem(format!(
                    "the address {address:?} of validator {place} ({}): {error}; it must be an IP \
                     address or a host name, and a port, for instance \"192.0.2.7:26600\", \
                     \"[2001:db8::7]:26600\" or \"validator-7.example.org:26600\"",
                    identity.short()
                ))
            })?;
            if peers.insert(identity, address).is_some() {
                return Err(problem(format!("{identity} is listed twice; take one out")));
            }
        }
        let own = committee.identity(own);
        let addresses: Vec<_> = committee
            .identities()
            .iter()
            .filter(|identity| own != Some(**identity))
            .map(|identity| {
                let address = peers.get(identity).ok_or_else(|| {
                    problem(format!(
                        "validator {identity} has no address; add it, since every validator is \
                         linked to every other"
                    ))
                })?;
                Ok((*identity, address.clone()))
            })
            .collect::<Result<_, _>>()?;
        distinct(file.listen, &addresses).map_err(problem)?;
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
            peers: addresses,
            timing: match file.timing.unwrap_or(file::Timing::Wide) {
                file::Timing::Local => quorate_p2p::Timing::Local,
                file::Timing::Wide => quorate_p2p::Timing::Wide,
            },
        })
    }
}

/// Refuses two validators with the same address, and a peer with this validator's own listen
/// address.
fn distinct(listen: SocketAddr, peers: &[(Identity, PeerAddress)]) -> Result<(), String> {
    let mut taken: BTreeMap<&PeerAddress, &Identity> = BTreeMap::new();
    for (identity, address) in peers {
        if let Some(other) = taken.insert(address, identity) {
            return Err(format!(
                "{} and {} have the same address, {address}; each validator has its own",
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
                "{address}, the address of {}, is the one on which this validator itself listens \
                 (`p2p.listen`); name that validator's own",
                identity.short()
            ));
        }
    }
    Ok(())
}
