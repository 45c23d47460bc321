//! The list of offenders on disk: which validators are blocked or on probation, since when and why.
//!
//! The consensus engine decides. This file survives a restart, knows when a penalty ends, and shows
//! the proof to the operator. It is JSON, written whole and atomically whenever a penalty changes,
//! which is rare. It has at most one entry for each validator of the committee.
//!
//! `quorate_consensus` decides who is blocked: for an invalid vote, proposal, certificate or piece
//! of evidence, which only this validator knows of, or for a verified pair of conflicting votes.
//! The list is in `offenders.json`, written atomically, with reason, proof and end: 24 hours for
//! suspicions (`consensus.penalty_lasts`), no end for equivocation. `quorate peers unblock` lifts
//! both, and forgives what the validator did up to that view, even if another validator reports it
//! again. Orders come over a Unix socket of mode 0600 in the data directory, so the network cannot
//! give any.
//!
//! Verified pairs are sent to all once. A status names the *set* of validators against which its
//! sender holds evidence; a validator with another set sends one pair for each that is missing. So
//! all validators come to block the same equivocators.

use quorate_api::{ExhibitJson, OffenderJson, to_hex};
use quorate_consensus::{Exhibit, Offence, Penalty, Sentence};
use quorate_storage::disk::{Disk, write_atomically};
use quorate_types::{Committee, Epoch, Identity, ValidatorIndex, View};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The file's name in the data directory.
pub const OFFENDERS_FILE: &str = "offenders.json";

/// Most bytes of the file: 1,024 entries with their proofs.
pub const MAX_OFFENDERS_BYTES: u64 = 16 << 20;

/// Why the list cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum OffendersError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} is damaged ({problem}): move it away to start with nobody blocked; offenders are found \
         again, and evidence is kept elsewhere",
        .path.display()
    )]
    Damaged { path: PathBuf, problem: String },
}

/// A validator's penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All its frames are ignored.
    Blocked,
    /// Its votes are verified one by one before they count.
    Probation,
    /// The penalty was lifted.
    Pardoned,
}

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offender {
    pub identity: Identity,
    pub validator: ValidatorIndex,
    pub standing: Standing,
    pub reason: String,
    pub ordered: bool,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Until when; without it, until the operator lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The epoch and view up to which it is pardoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pardoned_until: Option<(u64, View)>,
    /// The proof of the offence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// The proof of an offence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// `vote`, `header`, `certificate` or `evidence`.
    pub kind: String,
    /// In words.
    pub summary: String,
    /// Its encoding in hexadecimal.
    pub hex: String,
}

impl From<Offender> for OffenderJson {
    fn from(entry: Offender) -> Self {
        Self {
            identity: entry.identity,
            validator: entry.validator,
            standing: match entry.standing {
                Standing::Blocked => quorate_api::Standing::Blocked,
                Standing::Probation => quorate_api::Standing::Probation,
                Standing::Pardoned => quorate_api::Standing::Pardoned,
            },
            reason: entry.reason,
            ordered: entry.ordered,
            since_ms: entry.since_ms,
            until_ms: entry.until_ms,
            pardoned_until: entry.pardoned_until,
            proof: entry.proof.map(|proof| ExhibitJson {
                kind: proof.kind,
                summary: proof.summary,
                hex: proof.hex,
            }),
        }
    }
}

pub struct Offenders {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    list: BTreeMap<Identity, Offender>,
}

/// When a penalty was imposed, by whom, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
    /// The engine's epoch and view.
    pub(crate) at: (Epoch, View),
    pub(crate) ordered: bool,
    /// When a penalty for something unproven, or one that the operator has limited, ends.
    pub(crate) lasts: Option<Duration>,
}

impl Offenders {
    /// Reads the list from a data directory; empty if there is none. Expired penalties are left
    /// out.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is damaged.
    pub fn load(
        disk: Arc<dyn Disk>,
        directory: &Path,
        now_ms: u64,
    ) -> Result<Self, OffendersError> {
        let path = directory.join(OFFENDERS_FILE);
        let text = match disk.read(&path, MAX_OFFENDERS_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => b"[]".to_vec(),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let problem = error.to_string();
                return Err(OffendersError::Damaged { path, problem });
            }
            text => text.map_err(|source| OffendersError::Io {
                path: path.clone(),
                source,
            })?,
        };
        let entries: Vec<Offender> =
            serde_json::from_slice(&text).map_err(|error| OffendersError::Damaged {
                path: path.clone(),
                problem: error.to_string(),
            })?;
        let list = entries
            .into_iter()
            .filter(|entry| entry.until_ms.is_none_or(|until| until > now_ms))
            .map(|entry| (entry.identity, entry))
            .collect();
        Ok(Self { disk, path, list })
    }

    /// The penalties in force, for the engine's start. Entries of identities outside the committee
    /// wait until they are in it.
    pub(crate) fn sentences(&self, committee: &Committee) -> Vec<Sentence> {
        let in_force = self.list.values().filter_map(|entry| {
            let penalty = match entry.standing {
                Standing::Blocked => Penalty::Blocked,
                Standing::Probation => Penalty::Probation,
                Standing::Pardoned => return None,
            };
            Some(Sentence {
                validator: committee.place(&entry.identity)?,
                offence: offence(&entry.reason),
                penalty,
                exhibit: Exhibit::None,
            })
        });
        let mut sentences: Vec<Sentence> = in_force.collect();
        // Certain ones come first, in case the cap does not hold all of them.
        sentences.sort_by_key(|sentence| std::cmp::Reverse(sentence.offence));
        sentences
    }

    /// The validators that the operator has pardoned, and up to which epoch and view.
    pub(crate) fn pardons(&self, committee: &Committee) -> Vec<(ValidatorIndex, Epoch, View)> {
        let pardoned = self.list.values().filter_map(|entry| {
            let (epoch, view) = entry.pardoned_until?;
            Some((committee.place(&entry.identity)?, Epoch(epoch), view))
        });
        pardoned.collect()
    }

    /// Notes a change of a validator's penalty and writes the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn note(
        &mut self,
        identity: Identity,
        sentence: &Sentence,
        circumstances: Circumstances,
    ) -> Result<(), OffendersError> {
        let former = self.list.remove(&identity);
        let Circumstances {
            now_ms,
            at,
            ordered,
            lasts,
        } = circumstances;
        let pardoned = former.as_ref().and_then(|entry| entry.pardoned_until);
        let proof = match (exhibit(&sentence.exhibit), former) {
            // On probation for what it was blocked for: the proof stays.
            (None, Some(former)) if former.reason == sentence.offence.name() => former.proof,
            (proof, _) => proof,
        };
        let lasts = lasts.and_then(|lasts| u64::try_from(lasts.as_millis()).ok());
        let entry = Offender {
            identity,
            validator: sentence.validator,
            standing: match sentence.penalty {
                Penalty::Blocked => Standing::Blocked,
                Penalty::Probation => Standing::Probation,
                Penalty::Lifted => Standing::Pardoned,
            },
            reason: sentence.offence.name().to_owned(),
            ordered,
            since_ms: now_ms,
            until_ms: match sentence.penalty {
                Penalty::Lifted => None,
                _ => lasts.map(|lasts| now_ms.saturating_add(lasts)),
            },
            pardoned_until: match sentence.penalty {
                Penalty::Lifted => Some((at.0.0, at.1)),
                _ => pardoned,
            },
            proof,
        };
        self.list.insert(identity, entry);
        self.save()
    }

    /// All entries.
    pub fn entries(&self) -> Vec<Offender> {
        self.list.values().cloned().collect()
    }

    /// The penalties that have expired since the last call.
    pub(crate) fn expired(&self, now_ms: u64) -> Vec<Identity> {
        let up = self.list.values().filter(|entry| {
            entry.standing != Standing::Pardoned
                && entry.until_ms.is_some_and(|until| until <= now_ms)
        });
        up.map(|entry| entry.identity).collect()
    }

    fn save(&self) -> Result<(), OffendersError> {
        let text = serde_json::to_string_pretty(&self.entries())
            .map_err(io::Error::other)
            .and_then(|text| write_atomically(&*self.disk, &self.path, text.as_bytes()));
        text.map_err(|source| OffendersError::Io {
            path: self.path.clone(),
            source,
        })
    }
}

fn offence(name: &str) -> Offence {
    let known = Offence::ALL.into_iter().find(|known| known.name() == name);
    // A name of a later version counts as the least certain offence.
    known.unwrap_or(Offence::InvalidVote)
}

fn exhibit(exhibit: &Exhibit) -> Option<Proof> {
    Some(match exhibit {
        Exhibit::None => return None,
        Exhibit::Vote(vote) => Proof {
            kind: "vote".to_owned(),
            summary: format!("{vote:?}"),
            hex: to_hex(vote.as_ref()),
        },
        Exhibit::Proposal(header, flaw) => Proof {
            kind: "header".to_owned(),
            summary: format!("{}: {header:?}", flaw.name()),
            hex: to_hex(header.as_ref()),
        },
        Exhibit::Certificate(certificate) => Proof {
            kind: "certificate".to_owned(),
            summary: format!("{certificate:?}"),
            hex: to_hex(certificate.as_ref()),
        },
        Exhibit::Evidence(evidence) => Proof {
            kind: "evidence".to_owned(),
            summary: format!("{} {evidence:?}", evidence.id()),
            hex: to_hex(evidence.as_ref()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::disk::SystemDisk;
    use std::fs;

    fn load(directory: &Path, now_ms: u64) -> Result<Offenders, OffendersError> {
        Offenders::load(Arc::new(SystemDisk), directory, now_ms)
    }

    fn committee() -> Committee {
        let identities = (0..4).map(|i| Identity([i; 32])).collect();
        Committee::new(Epoch(0), identities).expect("distinct")
    }

    fn sentence(place: u32, offence: Offence, penalty: Penalty) -> Sentence {
        Sentence {
            validator: ValidatorIndex(place),
            offence,
            penalty,
            exhibit: Exhibit::None,
        }
    }

    fn at(now_ms: u64, lasts: Option<Duration>) -> Circumstances {
        Circumstances {
            now_ms,
            at: (Epoch(2), View(7)),
            ordered: false,
            lasts,
        }
    }

    #[test]
    fn a_restart_remembers_who_is_blocked_until_the_time_is_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut list = load(directory.path(), 0).expect("none yet");
        let hour = Some(Duration::from_secs(3_600));
        let blocked = sentence(1, Offence::InvalidVote, Penalty::Blocked);
        list.note(Identity([1; 32]), &blocked, at(1_000, hour))
            .expect("written");
        let certain = sentence(2, Offence::Equivocation, Penalty::Blocked);
        list.note(Identity([2; 32]), &certain, at(1_000, None))
            .expect("written");
        let again = load(directory.path(), 2_000).expect("valid");
        assert_eq!(again.entries(), list.entries());
        let places: Vec<u32> = again
            .sentences(&committee())
            .iter()
            .map(|s| s.validator.0)
            .collect();
        assert_eq!(places, [2, 1], "the certain one first");
        let end = 1_000 + 3_600_000;
        assert_eq!(list.expired(end - 1), []);
        assert_eq!(list.expired(end), [Identity([1; 32])]);
        let later = load(directory.path(), end).expect("valid");
        assert_eq!(later.sentences(&committee()).len(), 1);
    }

    #[test]
    fn a_pardon_is_remembered_with_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut list = load(directory.path(), 0).expect("none yet");
        let identity = Identity([3; 32]);
        for penalty in [Penalty::Blocked, Penalty::Lifted] {
            let sentence = sentence(3, Offence::Equivocation, penalty);
            list.note(identity, &sentence, at(5, None))
                .expect("written");
        }
        let again = load(directory.path(), 6).expect("valid");
        assert!(again.sentences(&committee()).is_empty());
        assert_eq!(
            again.pardons(&committee()),
            [(ValidatorIndex(3), Epoch(2), View(7))]
        );
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(OFFENDERS_FILE);
        for text in ["", "{", "[{}]", "[{\"identity\": 7}]"] {
            fs::write(&path, text).expect("written");
            let error = load(directory.path(), 0).err().expect("damaged");
            assert!(error.to_string().contains(OFFENDERS_FILE), "{error}");
        }
    }
}
