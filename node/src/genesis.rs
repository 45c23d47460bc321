//! Making a new chain: its vote keys, and the files.
//!
//! With `bls-threshold` a dealer makes the keys. Whoever runs this sees every validator's share of the group key for a moment, and could keep
//! them. A chain that nobody may be able to forge needs a dealer whom all trust. With
//! `bls-aggregate` each validator can make its own key and register it, and there is no dealer.

use crate::keys::{self, KeyFileError, KeyKind, Protection, VOTE_FILE};
use quorate_crypto::{
    Identity,
    bls::{AggregateMember, SchemeKind, VoteSecret, deal},
};
use quorate_types::{
    Committee, CommitteeError, Epoch, EpochLength,
    genesis::{
        BlockLimits, Fees, Genesis, GenesisAccount, GenesisError, GenesisValidator, Protocol, Trust,
    },
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The usual name of a genesis file.
pub const GENESIS_FILE: &str = "genesis.json";

/// The usual name of a trust file.
pub const TRUST_FILE: &str = "trust.json";

/// What a block may hold unless something else is asked for.
pub const DEFAULT_LIMITS: BlockLimits = BlockLimits {
    max_transactions: 4_096,
    max_bytes: 1 << 20,
};

/// What a transfer pays at least unless something else is asked for.
pub const DEFAULT_FEES: Fees = Fees {
    per_transfer: 1,
    per_memo_byte: 1,
};

/// What a new chain is to be like.
#[derive(Debug, Clone)]
pub struct NewChain {
    /// Its name, 1 to 64 bytes.
    pub name: String,
    /// The consensus protocol.
    pub protocol: Protocol,
    /// The vote scheme.
    pub scheme: SchemeKind,
    /// Limits on each block.
    pub limits: BlockLimits,
    /// The least that a transfer pays.
    pub fees: Fees,
    /// How many blocks an epoch has.
    pub epoch_blocks: EpochLength,
    /// The validators in order.
    pub validators: Vec<Identity>,
    /// What validators who have made their own vote keys have handed in, in the same order; empty
    /// if the keys are to be made here. With `bls-aggregate` only.
    pub registrations: Vec<GenesisValidator>,
    /// The accounts that exist from the start.
    pub accounts: Vec<GenesisAccount>,
}

/// A chain whose keys have been dealt. It holds every validator's secret share: write it and drop
/// it.
pub struct DealtChain {
    genesis: Genesis,
    secrets: Vec<VoteSecret>,
}

/// Why there is no new chain.
#[derive(Debug, thiserror::Error)]
pub enum NewChainError {
    /// The validators make no committee.
    #[error("{0}")]
    Committee(#[from] CommitteeError),
    /// An identity is not a point of the curve, so nobody has its key.
    #[error("{identity} is not an ed25519 public key")]
    NotAKey {
        /// The identity.
        identity: Identity,
    },
    /// A value is out of its range.
    #[error("{0}")]
    Genesis(#[from] GenesisError),
    /// A key file could not be written.
    #[error("{0}")]
    Key(#[from] KeyFileError),
    /// There is a chain in the directory already.
    #[error(
        "{} exists and is not written over; choose another directory",
        .path.display()
    )]
    Exists {
        /// The file that is there.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl NewChain {
    /// Deals a fresh group key to the validators, as of now.
    ///
    /// # Errors
    ///
    /// If the validators make no committee or a value is out of its range.
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let genesis = Genesis {
            name: self.name,
            timestamp_ms: now.map_or(0, |time| {
                u64::try_from(time.as_millis()).expect("not before the year 500,000,000")
            }),
            protocol: self.protocol,
            scheme: self.scheme.name().into(),
            limits: self.limits,
            fees: self.fees,
            epoch_blocks: self.epoch_blocks,
            group_key: dealt.group_key,
            validators: dealt.validators,
            accounts: self.accounts,
        };
        // Its reader's checks are the rules; what it would refuse is never written.
        let genesis = Genesis::from_json(&genesis.to_json())?;
        genesis.scheme()?;
        Ok(DealtChain {
            genesis,
            secrets: dealt.secrets,
        })
    }
}

/// Vote keys, public and secret.
struct Dealt {
    group_key: Option<String>,
    validators: Vec<GenesisValidator>,
    secrets: Vec<VoteSecret>,
}

/// Deals shares of a fresh group key.
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
            })
            .collect(),
        secrets,
    }
}

/// Makes each validator a vote key of its own.
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

/// What a validator that has made its own vote key hands to whoever makes the genesis file.
pub fn register(chain_name: &str, identity: Identity, secret: &VoteSecret) -> GenesisValidator {
    GenesisValidator {
        identity,
        vote_key: hex::encode(secret.public_key()),
        proof_of_possession: Some(hex::encode(
            secret.prove_possession(chain_name, &identity.0),
        )),
    }
}

/// Whether a registration's proof of possession holds for a chain of this name.
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
    /// The genesis, which is public.
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The trust file's content, which is public.
    pub fn trust(&self) -> Trust {
        self.genesis.trust()
    }

    /// Writes one validator's `vote.key` to its own directory, if it was made here.
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

    /// Writes `genesis.json`, `trust.json` and, for each validator, `validator-N/vote.key`
    /// under the given protection.
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

/// Where a validator's own files are, within the directory of a new chain.
pub fn validator_directory(directory: &Path, place: usize) -> PathBuf {
    directory.join(format!("validator-{place}"))
}

/// Writes a new text file and a line's end, and makes its directory if needed.
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

    fn chain(validators: usize) -> NewChain {
        NewChain {
            name: "test".into(),
            protocol: Protocol::Simplex,
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
