//! What can be wrong with the index.

use quorate_storage::database::DatabaseError;
use quorate_types::ChainId;
use std::path::PathBuf;

/// Why the index cannot be used. All but a failing disk is mended by a new folder: everything in it
/// can be fetched again.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// RocksDB failed.
    #[error("{}: {source}", .path.display())]
    Database {
        /// The folder.
        path: PathBuf,
        /// What RocksDB says.
        source: DatabaseError,
    },
    /// What is stored was not written by this program like that.
    #[error(
        "{}: {what}; the index is damaged. Delete the folder, and the explorer fetches everything \
         again",
        .path.display()
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The index is another chain's.
    #[error(
        "{} holds the index of chain {found}, but the trust file is of chain {expected}; choose \
         another folder with --data, or the trust file of that chain",
        .path.display()
    )]
    OtherChain {
        /// The folder.
        path: PathBuf,
        /// Whose index it is.
        found: ChainId,
        /// Whose it should be.
        expected: ChainId,
    },
    /// Another version wrote it.
    #[error(
        "{} has format {found}, and this program writes format {expected}; delete the folder, and \
         the explorer fetches everything again",
        .path.display()
    )]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// This program's format.
        expected: u64,
    },
}
