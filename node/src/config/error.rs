//! Why a validator cannot start with its configuration.

use super::CONFIG_FILE;
use crate::keys::KeyFileError;
use quorate_crypto::Identity;
use quorate_files::ReadError;
use quorate_types::{ValidatorIndex, genesis::GenesisError};
use std::{io, path::PathBuf};

/// Why a validator cannot start with its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("the configuration file: {}{}", .0, remedy(.0))]
    Read(ReadError),
    /// It is not valid TOML, or has unknown or missing keys. The parser's message shows the line.
    #[error("{}: {message}", .path.display())]
    Syntax {
        path: PathBuf,
        /// The parser's message.
        message: String,
    },
    /// A value is out of range.
    #[error("{}: `{key}` is {found}; it must be {expected}", .path.display())]
    Value {
        path: PathBuf,
        /// The key in the file.
        key: &'static str,
        /// The value in the file.
        found: String,
        /// The allowed values.
        expected: String,
    },
    /// The list of peers does not match the committee.
    #[error("{}: `p2p.peers`: {problem}", .path.display())]
    Peers {
        path: PathBuf,
        /// The problem, and the allowed values.
        problem: String,
    },
    /// The genesis file cannot be read.
    #[error("the genesis file: {0}")]
    ReadGenesis(ReadError),
    /// The genesis file is invalid.
    #[error("the genesis file {}: {source}", .path.display())]
    Genesis { path: PathBuf, source: GenesisError },
    /// The genesis file that the configuration refers to is invalid or unreadable.
    #[error("{source} (`genesis` in {})", .path.display())]
    NamedGenesis {
        /// The configuration file.
        path: PathBuf,
        source: Box<ConfigError>,
    },
    /// A key file cannot be used.
    #[error("{source} (`{key}` in {})", .path.display())]
    Key {
        /// The configuration file.
        path: PathBuf,
        /// The configuration key that names the key file.
        key: &'static str,
        source: KeyFileError,
    },
    /// The identity is not in the genesis committee.
    #[error(
        "the identity {identity} of {} (`identity_key`) is not among the {validators} validators \
         of {}; use the identity key that this chain was made for, or the right genesis file",
        .file.display(), .genesis.display()
    )]
    NotAValidator {
        /// The identity's key file.
        file: PathBuf,
        /// The genesis file.
        genesis: PathBuf,
        identity: Identity,
        /// The number of validators in the committee.
        validators: usize,
    },
    /// The vote key does not belong to this validator.
    #[error(
        "the vote key {} (`vote_key`) is not the one of validator {place} in {}: its public key \
         begins with {found}, there it begins with {expected}; use the vote.key of this validator \
         that belongs to this genesis file",
        .file.display(), .genesis.display()
    )]
    WrongVoteKey {
        /// The vote key's file.
        file: PathBuf,
        /// The genesis file.
        genesis: PathBuf,
        /// The validator's number in the committee.
        place: ValidatorIndex,
        /// The first digits of the vote key's public key.
        found: String,
        /// The first digits of the public key in the genesis file.
        expected: String,
    },
}

/// Returns advice about a configuration file that cannot be read.
pub(super) fn remedy(error: &ReadError) -> String {
    let ReadError::Io { path, source } = error else {
        return String::new();
    };
    match source.kind() {
        io::ErrorKind::NotFound => "; name it with --config FILE".into(),
        io::ErrorKind::IsADirectory => {
            let file = path.join(CONFIG_FILE);
            format!("; name the file in it: --config {}", file.display())
        }
        _ => String::new(),
    }
}
