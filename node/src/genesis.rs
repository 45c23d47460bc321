//! Creating a new chain: its vote keys and its files.
//!
//! With `bls-threshold`, a dealer generates the keys, unless the validators hold a [`crate::ceremony`].
//! The dealer's process briefly holds every validator's share of the group key and could keep them: if
//! the chain must not be forged, all validators must trust the dealer. With `bls-aggregate`, each validator can generate its own key and register it,
//! without a dealer.

use crate::keys::{self, KeyFileError, KeyKind, Protection, VOTE_FILE};
use quorate_crypto::{
    Identity,
    bls::{AggregateMember, SchemeKind, VoteSecret, deal},
};
use quorate_p2p::PeerAddress;
use quorate_types::{
    BondAddress, Committee, CommitteeError, Epoch, EpochLength, RegistryRules,
    genesis::{
        ApplicationKind, BlockLimits, Fees, Genesis, GenesisAccount, GenesisError,
        GenesisValidator, Protocol, Trust,
    },
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The default name of a genesis file.
pub const GENESIS_FILE: &str = "genesis.json";

/// The default name of a trust file.
pub const TRUST_FILE: &str = "trust.json";

/// The parameters of a new chain.
#[derive(Debug, Clone)]
pub struct NewChain {
    /// The chain's name, 1 to 64 bytes.
    pub name: String,
    pub protocol: Protocol,
    pub application: ApplicationKind,
    pub scheme: SchemeKind,
    pub limits: BlockLimits,
    /// The minimum fees of a transfer.
    pub fees: Fees,
    /// The length of an epoch in blocks.
    pub epoch_blocks: EpochLength,
    /// In committee order.
    pub validators: Vec<Identity>,
    /// The registrations of validators that have generated their own vote keys, in the same order;
    /// empty if the keys are generated here. Only with `bls-aggregate`.
    pub registrations: Vec<GenesisValidator>,
    pub accounts: Vec<GenesisAccount>,
    pub registry: Option<NewRegistry>,
}

/// The staking registry of a new chain.
#[derive(Debug, Clone)]
pub struct NewRegistry {
    pub rules: RegistryRules,
    /// What each validator has at stake from the start.
    pub stake: u64,
    /// Where each validator can be reached, in committee order; may be empty. An address that is too long for
    /// the registry is left out.
    pub addresses: Vec<PeerAddress>,
}

/// A chain with its generated keys. Contains every validator's secret key or share: write it and
/// drop it.
pub struct DealtChain {
    genesis: Genesis,
    secrets: Vec<VoteSecret>,
}

/// Why a new chain cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NewChainError {
    /// The validators do not form a valid committee.
    #[error("{0}")]
    Committee(#[from] CommitteeError),
    /// An identity is not a point on the curve, so nobody has its secret key.
    #[error("{identity} is not an ed25519 public key")]
    NotAKey { identity: Identity },
    /// A value is out of range.
    #[error("{0}")]
    Genesis(#[from] GenesisError),
    /// A key file could not be written.
    #[error("{0}")]
    Key(#[from] KeyFileError),
    /// The directory already contains a chain.
    #[error(
        "{} exists and is not written over; choose another directory",
        .path.display()
    )]
    Exists { path: PathBuf },
    /// A file could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl NewChain {
    /// Generates the vote keys (or takes the registered ones) and the genesis, with the current
    /// time.
    ///
    /// # Errors
    ///
    /// If the validators do not form a valid committee, or a value is out of range.
    pub fn deal(self) -> Result<DealtChain, NewChainError> {
        let committee = Committee::new(Epoch(0), self.validators)?;
        for identity in committee.identities() {
            if identity.to_public_key().is_none() {
                let identity = *identity;
                return Err(NewChainError::NotAKey { identity });
            }
        }
        let dealt = match self.scheme {
            SchemeKind::BlsAggregate if !self.registrations.is_empty() => Dealt {
                group_key: None,
                validators: self.registrations,
                secrets: Vec::new(),
            },
            SchemeKind::BlsThreshold => deal_shares(&committee),
            SchemeKind::BlsAggregate => make_keys(&self.name, &committee),
        };
        let mut validators = dealt.validators;
        if let Some(registry) = &self.registry {
            for validator in &mut validators {
                validator.stake = registry.stake;
            }
            for (validator, address) in validators.iter_mut().zip(&registry.addresses) {
                validator.address = bond_address(address);
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let genesis = Genesis {
            name: self.name,
            timestamp_ms: now.map_or(0, |time| {
                u64::try_from(time.as_millis()).expect("not before the year 500,000,000")
            }),
            protocol: self.protocol,
            application: self.application,
            scheme: self.scheme.name().into(),
            limits: self.limits,
            fees: self.fees,
            epoch_blocks: self.epoch_blocks,
            group_key: dealt.group_key,
            registry: self.registry.map(|registry| registry.rules),
            validators,
            accounts: self.accounts,
        };
        // Parse the result with the reader's own checks, so that no file is written that a reader
        // would refuse.
        let genesis = Genesis::from_json(&genesis.to_json())?;
        genesis.scheme()?;
        Ok(DealtChain {
            genesis,
            secrets: dealt.secrets,
        })
    }
}

/// The public and secret vote keys.
struct Dealt {
    group_key: Option<String>,
    validators: Vec<GenesisValidator>,
    secrets: Vec<VoteSecret>,
}

/// Deals shares of a new group key.
fn deal_shares(committee: &Committee) -> Dealt {
    let count = u32::try_from(committee.size()).expect("at most 1,024");
    let (keys, secrets) = deal(count, keys::system_rng());
    let validators = committee.identities().iter().zip(&keys.share_keys);
    Dealt {
        group_key: Some(hex::encode(keys.group_key)),
        validators: validators
            .map(|(identity, key)| GenesisValidator {
                identity: *identity,
                vote_key: hex::encode(key),
                proof_of_possession: None,
                stake: 0,
                address: BondAddress::default(),
            })
            .collect(),
        secrets,
    }
}

/// Generates a separate vote key for each validator.
fn make_keys(chain_name: &str, committee: &Committee) -> Dealt {
    let mut rng = keys::system_rng();
    let identities = committee.identities();
    let secrets: Vec<VoteSecret> = identities
        .iter()
        .map(|_| VoteSecret::random(&mut rng))
        .collect();
    Dealt {
        group_key: None,
        validators: identities
            .iter()
            .zip(&secrets)
            .map(|(identity, secret)| register(chain_name, *identity, secret))
            .collect(),
        secrets,
    }
}

/// Creates the registration of a validator that has generated its own vote key.
pub fn register(chain_name: &str, identity: Identity, secret: &VoteSecret) -> GenesisValidator {
    GenesisValidator {
        identity,
        vote_key: hex::encode(secret.public_key()),
        proof_of_possession: Some(hex::encode(
            secret.prove_possession(chain_name, &identity.0),
        )),
        stake: 0,
        address: BondAddress::default(),
    }
}

/// The address as the registry holds it: empty if it is too long.
pub fn bond_address(address: &PeerAddress) -> BondAddress {
    address.to_string().parse().unwrap_or_default()
}

/// Whether a registration's proof of possession is valid for a chain of this name.
pub fn is_proven(registration: &GenesisValidator, chain_name: &str) -> bool {
    let mut member = AggregateMember {
        identity: registration.identity.0,
        key: [0; 96],
        possession: [0; 48],
    };
    let proof = registration.proof_of_possession.as_deref().unwrap_or("");
    hex::decode_to_slice(&registration.vote_key, &mut member.key).is_ok()
        && hex::decode_to_slice(proof, &mut member.possession).is_ok()
        && member.is_proven(chain_name)
}

impl DealtChain {
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    pub fn trust(&self) -> Trust {
        self.genesis.trust()
    }

    /// Writes one validator's `vote.key` to its own directory, if it was generated here.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written.
    pub fn write_vote_key(
        &self,
        directory: &Path,
        place: usize,
        protection: Protection<'_>,
    ) -> Result<(), NewChainError> {
        let Some(secret) = self.secrets.get(place) else {
            return Ok(());
        };
        let path = directory.join(VOTE_FILE);
        Ok(keys::save_key(
            &path,
            KeyKind::Vote,
            &secret.to_bytes(),
            protection,
        )?)
    }

    /// Writes `genesis.json`, `trust.json` and, for each validator, `validator-N/vote.key` with the
    /// given protection.
    ///
    /// # Errors
    ///
    /// If a file exists or cannot be written.
    pub fn write(&self, directory: &Path, protection: Protection<'_>) -> Result<(), NewChainError> {
        let genesis = directory.join(GENESIS_FILE);
        if genesis.exists() {
            return Err(NewChainError::Exists { path: genesis });
        }
        for place in 0..self.secrets.len() {
            self.write_vote_key(&validator_directory(directory, place), place, protection)?;
        }
        write_new(&directory.join(TRUST_FILE), &self.trust().to_json())?;
        write_new(&genesis, &self.genesis.to_json())
    }
}

/// Returns the folder of a validator's own files, within the directory of a new chain.
pub fn validator_directory(directory: &Path, place: usize) -> PathBuf {
    directory.join(format!("validator-{place}"))
}

/// Writes a new text file that ends with a newline, and creates its directory if needed.
///
/// # Errors
///
/// If the file exists or cannot be written.
pub fn write_new(path: &Path, text: &str) -> Result<(), NewChainError> {
    let write_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => NewChainError::Exists { path: path.into() },
        _ => NewChainError::Write {
            path: path.into(),
            source,
        },
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(write_error)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(write_error)?;
    file.write_all(text.trim_end().as_bytes())
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .map_err(write_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::generate_identity;
    use quorate_types::genesis::{DEFAULT_FEES, DEFAULT_LIMITS};

    fn chain(validators: usize) -> NewChain {
        NewChain {
            registry: None,
            name: "test".into(),
            protocol: Protocol::Simplex,
            application: ApplicationKind::Ledger,
            scheme: SchemeKind::BlsThreshold,
            limits: DEFAULT_LIMITS,
            fees: DEFAULT_FEES,
            epoch_blocks: EpochLength::DEFAULT,
            validators: (0..validators)
                .map(|_| generate_identity().identity())
                .collect(),
            registrations: Vec::new(),
            accounts: vec![],
        }
    }

    #[test]
    fn what_is_dealt_is_valid_for_these_validators_in_both_schemes() {
        for (validators, scheme) in [1, 4, 7]
            .into_iter()
            .flat_map(|n| SchemeKind::ALL.map(|scheme| (n, scheme)))
        {
            let chain = NewChain {
                scheme,
                ..chain(validators)
            };
            let expected = chain.validators.clone();
            let dealt = chain.deal().expect("a committee");
            let scheme = dealt.genesis().scheme().expect("one dealing");
            assert_eq!(scheme.validators() as usize, validators);
            let committee = dealt.genesis().committee().expect("a committee");
            assert_eq!(committee.identities(), expected);
            for (secret, validator) in dealt.secrets.iter().zip(&dealt.genesis().validators) {
                assert_eq!(hex::encode(secret.public_key()), validator.vote_key);
            }
        }
    }

    #[test]
    fn a_chain_that_its_reader_would_refuse_is_not_made() {
        let nameless = NewChain {
            name: String::new(),
            ..chain(4)
        };
        assert!(matches!(nameless.deal(), Err(NewChainError::Genesis(_))));
        assert!(matches!(
            chain(0).deal(),
            Err(NewChainError::Committee(CommitteeError::Empty))
        ));
        let nobody = (0..=u8::MAX)
            .map(|byte| Identity([byte; 32]))
            .find(|identity| identity.to_public_key().is_none())
            .expect("about half of all encodings are no point");
        let unowned = NewChain {
            validators: vec![nobody],
            ..chain(1)
        };
        assert!(matches!(unowned.deal(), Err(NewChainError::NotAKey { .. })));
    }

    #[test]
    fn a_chain_is_not_written_over_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = chain(4).deal().expect("a committee");
        first
            .write(directory.path(), Protection::Plain)
            .expect("written");
        let second = chain(4).deal().expect("a committee");
        let result = second.write(directory.path(), Protection::Plain);
        assert!(matches!(result, Err(NewChainError::Exists { .. })));
        let text = fs::read_to_string(directory.path().join(TRUST_FILE)).expect("there");
        assert_eq!(Trust::from_json(&text).expect("valid"), first.trust());
    }
}
