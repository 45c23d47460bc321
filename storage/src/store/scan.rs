//! Reading through everything, for checks of a database that nobody runs on.

use super::{ACCOUNTS, BLOCKS, IDS, Store, StoreError, TRANSACTIONS, TransactionPlace, rocks};
use commonware_codec::{Copying, DecodeExt};
use quorate_types::{Account, Digest, Height, Identity};
use rocksdb::{Direction, IteratorMode};

/// A key of 32 bytes and its value.
type Row = ([u8; 32], Box<[u8]>);

/// Rows given back at a time.
pub const SCAN_ROWS: usize = 10_000;

impl Store {
    /// Accounts in the order of their identities, at most [`SCAN_ROWS`], those after `after`.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or is damaged.
    pub fn accounts_after(
        &self,
        after: Option<Identity>,
    ) -> Result<Vec<(Identity, Account)>, StoreError> {
        self.rows(ACCOUNTS, after.map(|identity| identity.0))?
            .into_iter()
            .map(|(key, value)| {
                let account = Account::decode(Copying(&value));
                let account = account.map_err(|e| self.damaged("an account", &e))?;
                Ok((Identity(key), account))
            })
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
        let mut rows = self
            .database
            .iterator_cf(self.column(BLOCKS), IteratorMode::Start);
        let Some(row) = rows.next() else {
            return Ok(None);
        };
        let (key, _) = row.map_err(|source| rocks(&self.path, source))?;
        let height = Height::decode(Copying(&key));
        height.map(Some).map_err(|e| self.damaged("a height", &e))
    }

    /// Rows whose keys have 32 bytes.
    fn rows(&self, column: &str, after: Option<[u8; 32]>) -> Result<Vec<Row>, StoreError> {
        let start = match &after {
            Some(key) => IteratorMode::From(key, Direction::Forward),
            None => IteratorMode::Start,
        };
        let mut rows = Vec::new();
        for row in self.database.iterator_cf(self.column(column), start) {
            let (key, value) = row.map_err(|source| rocks(&self.path, source))?;
            let key = <[u8; 32]>::try_from(&key[..]).map_err(|_| {
                self.damaged_by(format!("a key in {column} has {} bytes", key.len()))
            })?;
            if after != Some(key) {
                rows.push((key, value));
            }
            if rows.len() == SCAN_ROWS {
                break;
            }
        }
        Ok(rows)
    }
}
