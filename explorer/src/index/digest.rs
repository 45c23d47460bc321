//! A hash over everything in the index that the chain alone determines.

use super::{
    ACCOUNTS, BLOCKS, IDS, Index, IndexError, LEADERS, META, OUTCOMES, TRANSACTIONS, VIEWS,
};
use quorate_types::Digest;

/// Columns that are functions of the chain's blocks. The available finalizations and other
/// observations may differ between explorers.
const COLUMNS: [&str; 8] = [
    BLOCKS,
    IDS,
    OUTCOMES,
    TRANSACTIONS,
    ACCOUNTS,
    VIEWS,
    LEADERS,
    META,
];

/// Rows per read.
const ROWS_PER_READ: usize = 1_024;

impl Index {
    /// SHA-256 over the rows of all columns that the chain alone determines. Two indexes of the
    /// same blocks have the same digest, however often their explorers were killed.
    pub fn digest(&self) -> Result<Digest, IndexError> {
        let mut digest = Digest::ZERO;
        for column in COLUMNS {
            let mut start = Vec::new();
            loop {
                let rows = self.rows(column, &start, ROWS_PER_READ)?;
                let mut text = column.as_bytes().to_vec();
                for (key, value) in &rows {
                    text.extend_from_slice(&(key.len() as u64).to_be_bytes());
                    text.extend_from_slice(key);
                    text.extend_from_slice(&(value.len() as u64).to_be_bytes());
                    text.extend_from_slice(value);
                }
                digest = quorate_crypto::sha256(&[&digest.0, &text]);
                let Some((last, _)) = rows.last() else {
                    break;
                };
                // The smallest key above the last one.
                start.clone_from(last);
                start.push(0);
            }
        }
        Ok(digest)
    }
}
