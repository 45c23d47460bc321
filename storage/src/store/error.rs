//! Why the database cannot be used.

use crate::{database::DatabaseError, tree::TreeError};
use quorate_types::{ChainId, genesis::GenesisError};
use std::path::PathBuf;

/// Version of the column families and their rows.
pub(super) const FORMAT_VERSION: u32 = 2;

/// The version before, which is brought to this one when the database is opened.
pub(super) const FORMAT_BEFORE: u32 = 1;

/// Why the database cannot be used. All of these halt the node; none is retried.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed.
    #[error("database {path}: {source}")]
    Database {
        /// The database's folder.
        path: PathBuf,
        /// What it says.
        source: DatabaseError,
    },
    /// The genesis file's accounts cannot be made.
    #[error("genesis file: {0}")]
    Genesis(GenesisError),
    /// The database belongs to another chain.
    #[error(
        "database {path} belongs to chain {found}, not to {expected}: use another data directory \
         or the chain's own genesis file"
    )]
    OtherChain {
        /// The database's folder.
        path: PathBuf,
        /// The chain that it belongs to.
        found: ChainId,
        /// The genesis file's.
        expected: ChainId,
    },
    /// Another version of this program wrote the database.
    #[error(
        "database {path} has format {found}, this program has {FORMAT_VERSION}: use the program \
         that wrote it, or remove this folder, and only this (the vote journal beside it must \
         stay), to fetch all blocks again"
    )]
    OtherFormat {
        /// The database's folder.
        path: PathBuf,
        /// The format's version.
        found: u32,
    },
    /// A database of the version before is opened to be read only.
    #[error(
        "database {path} was written by the version before this one: start the validator once, which \
         brings it to this version's format"
    )]
    NotUpgraded {
        /// The database's folder.
        path: PathBuf,
    },
    /// The genesis state was being written when the process that made the database ended.
    #[error(
        "database {path} was being made when that was interrupted: start the node, or import again"
    )]
    Unfinished {
        /// The database's folder.
        path: PathBuf,
    },
    /// State sync is under way, so the database holds the state of no block.
    #[error(
        "database {path} is being filled by state sync, which a running validator completes: start it"
    )]
    Syncing {
        /// The database's folder.
        path: PathBuf,
    },
    /// The database has a column family that this program does not know.
    #[error(
        "database {path} has a part {name:?} that this program does not know: a newer version \
         wrote it, use that one"
    )]
    UnknownColumn {
        /// The database's folder.
        path: PathBuf,
        /// The column family's name.
        name: String,
    },
    /// The database does not hold what was written to it.
    #[error(
        "database {path} is damaged: {what}; look after the disk, then remove this folder, and \
         only this (the vote journal beside it must stay), to fetch all blocks again"
    )]
    Damaged {
        /// The database's folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The authenticated tree failed.
    #[error("state tree: {0}")]
    Tree(#[from] TreeError),
}
