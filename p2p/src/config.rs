//! Configuration of the links, checked at startup, and the errors.

use crate::{
    address::PeerAddress,
    dialer::Lookup,
    frame::{FrameTag, HEADER_BYTES},
    timing::Timing,
};
use commonware_cryptography::ed25519::PublicKey;
use quorate_crypto::{Identity, SecretKey};
use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

/// Maximum number of validators in one network, including this one.
pub const MAX_VALIDATORS: usize = quorate_crypto::bls::MAX_VALIDATORS as usize;

/// Upper limit of [`Config::max_frame_bytes`]: 16 MiB.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Default of [`Config::max_frame_bytes`]: 4 MiB.
pub const DEFAULT_FRAME_BYTES: usize = 4 << 20;

/// Settings of one node's links. All validators of a chain must agree on everything except
/// `identity` and `listen`.
#[derive(Clone)]
pub struct Config {
    /// This node's key. Peers know it by its public key.
    pub identity: SecretKey,
    /// Where to accept connections.
    pub listen: SocketAddr,
    /// The chain id. A handshake between two namespaces fails.
    pub namespace: Vec<u8>,
    /// First 8 bytes of the chain id, in the header of every frame.
    pub frame_tag: FrameTag,
    /// The other validators and where to dial them. This node may be in the list and is skipped.
    /// Connections are accepted only from the IP addresses in this list, and from those of its host
    /// names.
    pub peers: Vec<(Identity, PeerAddress)>,
    /// Nodes that follow this one without a vote, with their addresses. They are linked like `peers`,
    /// and get nothing that is sent to all.
    pub followers: Vec<(Identity, PeerAddress)>,
    /// How many more peers may come later ([`Links::set_peers`](crate::Links::set_peers)).
    pub room: usize,
    /// Resolves the host names in `peers`.
    pub lookup: Arc<Lookup>,
    /// How eagerly to dial and how soon to give up.
    pub timing: Timing,
    /// Maximum payload of a frame in the lanes `Votes` and `Fetch`, in bytes, at most
    /// [`MAX_FRAME_BYTES`]. The other lanes have lower limits of their own. The library disconnects
    /// a peer that sends more.
    pub max_frame_bytes: usize,
    /// Whether this node only fetches for now, and does not take part in consensus. Then the byte
    /// budget of each peer is as large as links are fast.
    pub is_fetching: bool,
}

/// Why links cannot start, or have ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot listen on {listen}: the address is already in use; change `p2p.listen`, or end what uses it (`ss -tanp`)"
    )]
    AddressInUse { listen: SocketAddr },
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        listen: SocketAddr,
        source: io::Error,
    },
    /// A peer's identity is not a point of the curve.
    #[error("peer {identity} is not a valid ed25519 public key")]
    InvalidPeer { identity: Identity },
    /// A peer is listed twice, with different addresses or as a peer and as a follower.
    #[error("peer {identity} is listed twice, at {first} and at {second}")]
    PeerTwice {
        identity: Identity,
        first: PeerAddress,
        second: PeerAddress,
    },
    #[error("{count} validators, the limit is {MAX_VALIDATORS}")]
    TooManyValidators {
        /// Number of validators in the list, including this node.
        count: usize,
    },
    /// The frame limit is zero or above [`MAX_FRAME_BYTES`].
    #[error("max_frame_bytes is {bytes}, allowed are 1 to {MAX_FRAME_BYTES}")]
    FrameLimit { bytes: usize },
    /// The metrics are already registered, or were otherwise rejected.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A task of the network ended unexpectedly. No frames are transferred any more.
    #[error("the network's task \"{task}\" has ended unexpectedly")]
    TaskEnded { task: &'static str },
    /// The links were stopped, or the runtime is shutting down.
    #[error("the network was stopped")]
    Stopped,
}

impl Error {
    /// Why this address cannot be listened on.
    pub fn of_listening(listen: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { listen },
            _ => Self::Listen { listen, source },
        }
    }
}

/// A configured peer with its decoded key.
pub(crate) struct KnownPeer {
    pub(crate) identity: Identity,
    pub(crate) key: PublicKey,
    pub(crate) address: PeerAddress,
    pub(crate) is_follower: bool,
}

impl Config {
    /// The library's limit for one message, in bytes.
    pub(crate) fn max_message_bytes(&self) -> u32 {
        u32::try_from(self.max_frame_bytes + HEADER_BYTES).expect("checked by known_peers")
    }

    /// Checks the limits and returns the peers.
    pub(crate) fn known_peers(&self) -> Result<Vec<KnownPeer>, Error> {
        if self.max_frame_bytes == 0 || self.max_frame_bytes > MAX_FRAME_BYTES {
            return Err(Error::FrameLimit {
                bytes: self.max_frame_bytes,
            });
        }
        known_peers(&self.identity.identity(), &self.peers, &self.followers)
    }
}

/// Checks lists of peers, and returns all but this node, sorted by identity.
pub(crate) fn known_peers(
    own: &Identity,
    peers: &[(Identity, PeerAddress)],
    followers: &[(Identity, PeerAddress)],
) -> Result<Vec<KnownPeer>, Error> {
    let mut addresses = BTreeMap::new();
    let peers = peers.iter().map(|peer| (peer, false));
    let followers = followers.iter().map(|peer| (peer, true));
    for ((identity, address), is_follower) in peers.chain(followers) {
        if identity == own {
            continue;
        }
        let listed = (address.clone(), is_follower);
        if let Some(first) = addresses.insert(*identity, listed.clone())
            && first != listed
        {
            return Err(Error::PeerTwice {
                identity: *identity,
                first: first.0,
                second: listed.0,
            });
        }
    }
    if addresses.len() + 1 > MAX_VALIDATORS {
        return Err(Error::TooManyValidators {
            count: addresses.len() + 1,
        });
    }
    addresses
        .into_iter()
        .map(|(identity, (address, is_follower))| {
            let key = identity
                .to_public_key()
                .ok_or(Error::InvalidPeer { identity })?;
            Ok(KnownPeer {
                identity,
                key,
                address,
                is_follower,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_bytes(&[seed; 32])
    }

    fn config(peers: Vec<(Identity, PeerAddress)>) -> Config {
        Config {
            identity: key(1),
            listen: SocketAddr::from(([127, 0, 0, 1], 1)),
            namespace: b"chain".to_vec(),
            frame_tag: [7; 8],
            peers,
            followers: Vec::new(),
            room: 0,
            lookup: crate::dialer::system_lookup(),
            timing: Timing::Local,
            max_frame_bytes: DEFAULT_FRAME_BYTES,
            is_fetching: false,
        }
    }

    fn address(port: u16) -> PeerAddress {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn own_identity_and_repetitions_are_left_out() {
        let peers = vec![
            (key(1).identity(), address(1)),
            (key(2).identity(), address(2)),
            (key(3).identity(), address(3)),
            (key(2).identity(), address(2)),
        ];
        let known = config(peers).known_peers().expect("valid");
        let mut expected = vec![key(2).identity(), key(3).identity()];
        expected.sort();
        let identities: Vec<_> = known.iter().map(|peer| peer.identity).collect();
        assert_eq!(identities, expected);
    }

    #[test]
    fn contradictions_and_limits_are_refused() {
        let twice = vec![
            (key(2).identity(), address(2)),
            (key(2).identity(), address(3)),
        ];
        assert!(matches!(
            config(twice).known_peers(),
            Err(Error::PeerTwice { .. })
        ));
        let not_a_point = (0..=u8::MAX)
            .map(|first| {
                let mut bytes = [0; 32];
                bytes[0] = first;
                Identity(bytes)
            })
            .find(|identity| identity.to_public_key().is_none())
            .expect("half of all encodings are no point");
        let no_point = vec![(not_a_point, address(2))];
        assert!(matches!(
            config(no_point).known_peers(),
            Err(Error::InvalidPeer { .. })
        ));
        let many = (0..MAX_VALIDATORS)
            .map(|index| {
                let mut seed = [9; 32];
                seed[..8].copy_from_slice(&(index as u64).to_le_bytes());
                (SecretKey::from_bytes(&seed).identity(), address(2))
            })
            .collect();
        assert!(matches!(
            config(many).known_peers(),
            Err(Error::TooManyValidators { count }) if count == MAX_VALIDATORS + 1
        ));
        for bytes in [0, MAX_FRAME_BYTES + 1] {
            let mut config = config(vec![]);
            config.max_frame_bytes = bytes;
            assert!(matches!(
                config.known_peers(),
                Err(Error::FrameLimit { .. })
            ));
        }
    }
}
