//! The owner of a data directory.
//!
//! The vote journal and the database in it belong to one validator on one chain. A validator that
//! ran on another validator's journal would not know its own votes and would take the other's votes
//! for its own. So the first start records the owner in the directory.
//!
//! In addition, a validator binds all its listen addresses before its first link, so that a
//! validator that cannot run never joins the network.

use quorate_files::read_text;
use quorate_storage::disk::{SystemDisk, write_atomically};
use quorate_types::{ChainId, Identity, Record, ValidatorIndex};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The owner file in the data directory.
pub(crate) const OWNER_FILE: &str = "owner.json";

/// Size limit of the owner file.
const MAX_OWNER_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    pub(crate) chain_id: ChainId,
    pub(crate) identity: Identity,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    /// The owner file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The owner file is damaged.
    #[error(
        "{} is damaged ({problem}); it says whose data directory this is. If you are certain that it is \
         this validator's, remove the file", .path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    /// The data directory belongs to another validator.
    #[error(
        "`data_dir`: {} belongs to another validator: {what}. Name a folder of this validator's own",
        .directory.display()
    )]
    Foreign {
        /// The data directory.
        directory: PathBuf,
        /// What differs.
        what: String,
    },
    /// The data directory is one of another chain.
    #[error(
        "`data_dir`: {} belongs to another chain: {OWNER_FILE} in it names the chain {held}, and the genesis file (`genesis`) is \
         that of {given}. If that file was replaced or changed (each value in it, like `protocol`, makes another chain), put \
         the chain's own back. Only to validate on the other chain name another folder; this one keeps what the key has voted",
        .directory.display()
    )]
    OtherChain {
        /// The data directory.
        directory: PathBuf,
        held: ChainId,
        given: ChainId,
    },
}

/// Checks that a data directory belongs to this validator or has no recorded owner. Returns whether
/// an owner is recorded.
pub(crate) fn check(directory: &Path, own: &Owner) -> Result<bool, OwnerError> {
    let path = directory.join(OWNER_FILE);
    let text = match read_text(&path, MAX_OWNER_BYTES) {
        Err(error) if error.is_missing() => return Ok(false),
        text => text.map_err(|error| OwnerError::Io {
            path: path.clone(),
            source: error.into(),
        })?,
    };
    let held: Owner = serde_json::from_str(&text).map_err(|error| OwnerError::Damaged {
        path: path.clone(),
        problem: error.to_string(),
    })?;
    if held.chain_id != own.chain_id {
        return Err(OwnerError::OtherChain {
            directory: directory.to_path_buf(),
            held: held.chain_id,
            given: own.chain_id,
        });
    }
    if held.identity != own.identity {
        return Err(OwnerError::Foreign {
            directory: directory.to_path_buf(),
            what: format!(
                "{OWNER_FILE} in it names the identity {}, and the identity key is that of {}",
                held.identity, own.identity
            ),
        });
    }
    Ok(true)
}

/// Records this validator as the owner of a data directory, unless the directory already has
/// another owner or its journal contains another validator's votes (earlier versions recorded no
/// owner).
pub(crate) fn claim(
    directory: &Path,
    own: &Owner,
    place: Option<ValidatorIndex>,
    journal: &[Record],
) -> Result<(), OwnerError> {
    if check(directory, own)? {
        return Ok(());
    }
    let signer = |record: &Record| match record {
        Record::Vote(vote) => Some(vote.signer),
        Record::Certificate(_) | Record::Block(_) | Record::Silence(_) => None,
    };
    if let Some(other) = journal
        .iter()
        .filter_map(signer)
        .find(|s| Some(*s) != place)
    {
        let own_name = place.map_or("a follower".to_owned(), |place| {
            format!("validator {place}")
        });
        return Err(OwnerError::Foreign {
            directory: directory.to_path_buf(),
            what: format!("its journal holds votes of validator {other}, and this is {own_name}"),
        });
    }
    let path = directory.join(OWNER_FILE);
    serde_json::to_vec_pretty(own)
        .map_err(io::Error::other)
        .and_then(|text| write_atomically(&SystemDisk, &path, &text))
        .map_err(|source| OwnerError::Io { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Digest, Epoch, Subject, View, Vote};
    use std::fs;

    #[test]
    fn a_data_directory_stays_with_its_validator() {
        let folder = tempfile::tempdir().expect("a directory");
        let own = Owner {
            chain_id: ChainId(Digest([1; 32])),
            identity: Identity([2; 32]),
        };
        let place = ValidatorIndex(1);
        assert!(!check(folder.path(), &own).expect("empty"));
        claim(folder.path(), &own, Some(place), &[]).expect("nobody's yet");
        assert!(check(folder.path(), &own).expect("its own"));
        claim(folder.path(), &own, Some(place), &[]).expect("again");
        let other = Owner {
            identity: Identity([3; 32]),
            ..own
        };
        let refused = claim(folder.path(), &other, Some(place), &[]).expect_err("another identity");
        assert!(refused.to_string().contains("identity"), "{refused}");
        let other = Owner {
            chain_id: ChainId(Digest([4; 32])),
            ..own
        };
        let refused = check(folder.path(), &other).expect_err("another chain");
        let refused = refused.to_string();
        assert!(
            refused.contains("another chain") && refused.contains("`genesis`"),
            "{refused}"
        );
        fs::write(folder.path().join(OWNER_FILE), "{").expect("own file");
        let refused = check(folder.path(), &own).expect_err("damaged");
        assert!(matches!(refused, OwnerError::Damaged { .. }), "{refused}");
    }

    #[test]
    fn a_journal_without_a_mark_tells_by_its_votes() {
        let folder = tempfile::tempdir().expect("a directory");
        let own = Owner {
            chain_id: ChainId(Digest([1; 32])),
            identity: Identity([2; 32]),
        };
        let vote = Vote {
            subject: Subject::nullify(Epoch(0), View(1)),
            signer: ValidatorIndex(2),
            signature: quorate_crypto::bls::PartialSignature([0; 96]),
        };
        let records = [Record::Vote(vote)];
        let refused = claim(folder.path(), &own, Some(ValidatorIndex(1)), &records);
        let refused = refused.expect_err("validator 2's");
        assert!(refused.to_string().contains("validator 2"), "{refused}");
        assert!(!folder.path().join(OWNER_FILE).exists());
        claim(folder.path(), &own, Some(ValidatorIndex(2)), &records).expect("its own");
    }
}
