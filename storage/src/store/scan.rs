//! Reading everything, to check a database that no node uses.

use super::{ACCOUNTS, BLOCKS, IDS, Store, StoreError, TRANSACTIONS, TransactionPlace, failed};
use crate::tree;
use commonware_codec::{Copying, DecodeExt};
use quorate_types::{Account, Digest, Height};

/// A key of 32 bytes and its value.
type Row = ([u8; 32], Vec<u8>);

/// Rows given back at a time.
pub const SCAN_ROWS: usize = 10_000;

impl Store {
    /// Accounts in the order of their state keys, at most [`SCAN_ROWS`], those after `after`.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn accounts_after(
        &self,
        after: Option<tree::Key>,
    ) -> Result<Vec<(tree::Key, Account)>, StoreError> {
        self.rows(ACCOUNTS, after)?
            .into_iter()
            .map(|(key, row)| Ok((key, self.account_row(&row)?.0)))
            .collect()
    }

    /// Blocks by their ids, in the order of the ids, at most [`SCAN_ROWS`], those after `after`.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn ids_after(&self, after: Option<Digest>) -> Result<Vec<(Digest, Height)>, StoreError> {
        self.rows(IDS, after.map(|id| id.0))?
            .into_iter()
            .map(|(key, value)| {
                let height = Height::decode(Copying(&value));
                Ok((
                    Digest(key),
                    height.map_err(|e| self.damaged("a height", &e))?,
                ))
            })
            .collect()
    }

    /// Transactions' places in the order of their ids, at most [`SCAN_ROWS`], those after `after`.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn transactions_after(
        &self,
        after: Option<Digest>,
    ) -> Result<Vec<(Digest, TransactionPlace)>, StoreError> {
        self.rows(TRANSACTIONS, after.map(|id| id.0))?
            .into_iter()
            .map(|(key, value)| {
                let (height, index) = <(Height, u32)>::decode(Copying(&value))
                    .map_err(|e| self.damaged("a transaction's place", &e))?;
                Ok((Digest(key), TransactionPlace { height, index }))
            })
            .collect()
    }

    /// The lowest height that a block is stored at.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn lowest_block(&self) -> Result<Option<Height>, StoreError> {
        let rows = self.database.rows_from(BLOCKS, &[], 1);
        let rows = rows.map_err(|source| failed(&self.path, source))?;
        let Some((key, _)) = rows.first() else {
            return Ok(None);
        };
        let height = Height::decode(Copying(key));
        height.map(Some).map_err(|e| self.damaged("a height", &e))
    }

    /// Rows whose keys have 32 bytes.
    fn rows(&self, column: &'static str, after: Option<[u8; 32]>) -> Result<Vec<Row>, StoreError> {
        let start: &[u8] = after.as_ref().map_or(&[], |key| key);
        let rows = self.database.rows_from(column, start, SCAN_ROWS + 1);
        rows.map_err(|source| failed(&self.path, source))?
            .into_iter()
            .map(|(key, value)| {
                let bytes = key.len();
                let key = key
                    .try_into()
                    .map_err(|_| self.damaged_by(format!("a key in {column} has {bytes} bytes")))?;
                Ok((key, value))
            })
            .filter(|row| !matches!(row, Ok((key, _)) if after == Some(*key)))
            .take(SCAN_ROWS)
            .collect()
    }
}
