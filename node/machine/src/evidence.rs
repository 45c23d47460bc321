//! Evidence on disk: one JSON file for each verified pair of conflicting votes.
//!
//! A file is complete in itself: anybody can check it with the trust file alone (`quorate evidence
//! verify`). Its readable fields are derived from `hex`, which is what counts.

use quorate_api::{EvidenceJson, from_hex, to_hex};
use quorate_storage::disk::{Disk, SystemDisk, write_atomically};
use quorate_types::{ChainId, Committee, Digest, Evidence, Identity, ValidatorIndex, View};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub const EVIDENCE_FOLDER: &str = "evidence";

/// Most bytes of one file.
pub const MAX_EVIDENCE_BYTES: u64 = 64 << 10;

/// Most files: 16 for each of 1,024 validators.
const MAX_FILES: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file holds no valid evidence.
    #[error("{}: {problem}; move it out of the folder", .path.display())]
    Damaged { path: PathBuf, problem: String },
}

/// A verified pair of conflicting votes, as written to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldEvidence {
    /// The pair's id.
    pub id: Digest,
    pub chain_id: ChainId,
    /// The kind of conflict.
    pub conflict: String,
    /// The signer's place.
    pub validator: ValidatorIndex,
    /// The signer's identity.
    pub identity: Option<Identity>,
    pub epoch: u64,
    pub view: View,
    pub first: String,
    pub second: String,
    /// When this validator verified it, in milliseconds since 1970.
    pub noticed_ms: u64,
    /// The encoding of the two votes, in hexadecimal. This is what counts.
    pub hex: String,
}

impl From<HeldEvidence> for EvidenceJson {
    fn from(held: HeldEvidence) -> Self {
        Self {
            id: held.id,
            chain_id: held.chain_id,
            conflict: held.conflict,
            validator: held.validator,
            identity: held.identity,
            epoch: held.epoch,
            view: held.view,
            first: held.first,
            second: held.second,
            noticed_ms: held.noticed_ms,
            hex: held.hex,
        }
    }
}

pub struct EvidenceFolder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    chain: ChainId,
    all: Vec<HeldEvidence>,
}

impl EvidenceFolder {
    /// Reads the folder in a data directory; empty if there is none. Fails if a file cannot be
    /// read, is damaged, or belongs to another chain.
    pub fn load(
        disk: Arc<dyn Disk>,
        directory: &Path,
        chain: ChainId,
    ) -> Result<Self, EvidenceError> {
        let path = directory.join(EVIDENCE_FOLDER);
        let mut all = Vec::new();
        for file in files(&*disk, &path)? {
            let evidence = read(&*disk, &file)?;
            if evidence.chain_id != chain {
                return Err(EvidenceError::Damaged {
                    path: file,
                    problem: format!("it is of the chain {}", evidence.chain_id),
                });
            }
            all.push(evidence);
        }
        Ok(Self {
            disk,
            path,
            chain,
            all,
        })
    }

    pub fn all(&self) -> &[HeldEvidence] {
        &self.all
    }

    /// The pairs, for the engine's start.
    pub(crate) fn pairs(&self) -> Vec<Evidence> {
        let decoded = self.all.iter().map(|evidence| pair_of(evidence).ok());
        decoded.flatten().collect()
    }

    /// Writes a verified pair.
    pub(crate) fn keep(
        &mut self,
        evidence: &Evidence,
        committee: &Committee,
        now_ms: u64,
    ) -> Result<(), EvidenceError> {
        let json = to_json(evidence, self.chain, committee, now_ms);
        if self.all.iter().any(|held| held.id == json.id) {
            return Ok(());
        }
        let path = self.path.join(file_name(&json));
        let written = self
            .disk
            .make_folder(&self.path)
            .and_then(|()| serde_json::to_vec_pretty(&json).map_err(io::Error::other))
            .and_then(|text| write_atomically(&*self.disk, &path, &text));
        written.map_err(|source| EvidenceError::Io { path, source })?;
        self.all.push(json);
        Ok(())
    }
}

fn file_name(evidence: &HeldEvidence) -> String {
    let id = evidence.id.to_string();
    format!("{}-{}.json", evidence.conflict, &id[..16])
}

fn files(disk: &dyn Disk, folder: &Path) -> Result<Vec<PathBuf>, EvidenceError> {
    let names = match disk.names(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|source| EvidenceError::Io {
            path: folder.to_path_buf(),
            source,
        })?,
    };
    let mut files: Vec<PathBuf> = names
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    files.sort();
    files.truncate(MAX_FILES);
    Ok(files)
}

/// Reads one file and checks that its readable fields match its bytes.
pub fn read_file(path: &Path) -> Result<HeldEvidence, EvidenceError> {
    read(&SystemDisk, path)
}

fn read(disk: &dyn Disk, path: &Path) -> Result<HeldEvidence, EvidenceError> {
    let io_error = |source| EvidenceError::Io {
        path: path.to_path_buf(),
        source,
    };
    let damaged = |problem: String| EvidenceError::Damaged {
        path: path.to_path_buf(),
        problem,
    };
    let text = disk.read(path, MAX_EVIDENCE_BYTES);
    let text = text.map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => damaged(source.to_string()),
        _ => io_error(source),
    })?;
    let json: HeldEvidence = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let pair = pair_of(&json).map_err(|error| damaged(error.to_string()))?;
    let same = json.id == pair.id()
        && json.validator == pair.first.signer
        && pair.conflict().map(|conflict| conflict.name()) == Some(json.conflict.as_str())
        && (json.epoch, json.view) == (pair.first.subject.epoch.0, pair.first.subject.view);
    if same {
        Ok(json)
    } else {
        Err(damaged(
            "what it says of itself is not what its `hex` holds".to_owned(),
        ))
    }
}

/// Decodes the votes in `hex`.
pub fn pair_of(evidence: &HeldEvidence) -> anyhow::Result<Evidence> {
    from_hex("hex", &evidence.hex)
}

fn to_json(
    evidence: &Evidence,
    chain: ChainId,
    committee: &Committee,
    now_ms: u64,
) -> HeldEvidence {
    let pair = evidence.canonical();
    let subject = pair.first.subject;
    HeldEvidence {
        id: pair.id(),
        chain_id: chain,
        conflict: pair
            .conflict()
            .map_or("none", |conflict| conflict.name())
            .to_owned(),
        validator: pair.first.signer,
        identity: committee.identity(pair.first.signer),
        epoch: subject.epoch.0,
        view: subject.view,
        first: format!("{:?}", pair.first.subject),
        second: format!("{:?}", pair.second.subject),
        noticed_ms: now_ms,
        hex: to_hex(&pair),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::bls::PartialSignature;
    use quorate_types::{Digest, Epoch, Identity, Subject, ValidatorIndex, View, Vote, VoteKind};
    use std::fs;

    fn pair() -> Evidence {
        let vote = |payload: u8| Vote {
            subject: Subject {
                epoch: Epoch(1),
                view: View(5),
                kind: VoteKind::Notarize,
                payload: Digest([payload; 32]),
            },
            signer: ValidatorIndex(2),
            signature: PartialSignature([payload; 96]),
        };
        Evidence {
            first: vote(9),
            second: vote(3),
        }
    }

    fn committee() -> Committee {
        let identities = (0..4).map(|i| Identity([i; 32])).collect();
        Committee::new(Epoch(0), identities).expect("distinct")
    }

    const CHAIN: ChainId = ChainId(Digest([7; 32]));

    fn load(directory: &Path, chain: ChainId) -> Result<EvidenceFolder, EvidenceError> {
        EvidenceFolder::load(Arc::new(SystemDisk), directory, chain)
    }

    #[test]
    fn evidence_is_kept_once_and_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut folder = load(directory.path(), CHAIN).expect("none yet");
        let turned = Evidence {
            first: pair().second,
            second: pair().first,
        };
        for pair in [pair(), turned] {
            folder.keep(&pair, &committee(), 5).expect("written");
        }
        let again = load(directory.path(), CHAIN).expect("valid");
        assert_eq!(again.all().len(), 1);
        assert_eq!(again.pairs(), [pair().canonical()]);
        let other = ChainId(Digest([8; 32]));
        assert!(load(directory.path(), other).is_err());
    }

    #[test]
    fn a_file_that_says_something_else_than_its_bytes_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("e.json");
        let good = to_json(&pair(), CHAIN, &committee(), 5);
        let mut lies = vec![good.clone(); 4];
        lies[0].validator = ValidatorIndex(1);
        lies[1].view = View(6);
        lies[2].conflict = "two_finalize".to_owned();
        lies[3].hex.truncate(100);
        for lie in lies {
            fs::write(&path, serde_json::to_vec(&lie).expect("plain")).expect("written");
            let error = read_file(&path).expect_err("a lie");
            assert!(error.to_string().contains("e.json"), "{error}");
        }
        fs::write(&path, serde_json::to_vec(&good).expect("plain")).expect("written");
        read_file(&path).expect("the truth");
        fs::write(&path, vec![b' '; MAX_EVIDENCE_BYTES as usize + 1]).expect("written");
        assert!(read_file(&path).is_err());
    }
}
