use quorate_storage::database::DatabaseError;
use quorate_types::ChainId;
use std::path::PathBuf;

/// Why the index cannot be used. All problems except a failing disk are solved by a new folder,
/// since everything in the index can be fetched again.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// RocksDB failed.
    #[error("{}: {source}", .path.display())]
    Database {
        path: PathBuf,
        source: DatabaseError,
    },
    /// The stored data is inconsistent.
    #[error(
        "{}: {what}; the index is damaged. Delete the folder, and the explorer fetches everything \
         again",
        .path.display()
    )]
    Damaged { path: PathBuf, what: String },
    /// The index belongs to another chain.
    #[error(
        "{} holds the index of chain {found}, but the trust file is of chain {expected}; choose \
         another folder with --data, or the trust file of that chain",
        .path.display()
    )]
    OtherChain {
        path: PathBuf,
        /// The chain of the index.
        found: ChainId,
        /// The chain of the trust file.
        expected: ChainId,
    },
    /// Another version wrote the index.
    #[error(
        "{} has format {found}, and this program writes format {expected}; delete the folder, and \
         the explorer fetches everything again",
        .path.display()
    )]
    OtherFormat {
        path: PathBuf,
        found: u64,
        expected: u64,
    },
}
