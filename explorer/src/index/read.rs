//! Reading the index. All methods here fail if the index cannot be read or is damaged.

use super::{
    ACCOUNTS, ALL_VALIDATORS, BLOCKS, EVIDENCE, FINALITY, IDS, Index, IndexError, LEADERS,
    LeaderCount, NULLIFIED, NULLIFIED_BY, OUTCOMES, SIGNERS, TRANSACTIONS, VIEWS,
    rows::{self, Role, height_key, pair, place_key, read_number, read_pair},
};
use commonware_codec::{Copying, DecodeExt};
use quorate_storage::database::Row;
use quorate_types::{
    Block, Certificate, Digest, Epoch, Evidence, Height, Identity, Outcome, ValidatorIndex, View,
};

/// Maximum number of evidence items that are read: 16 for each of 1,024 validators.
const MAX_EVIDENCE: usize = 16_384;

/// Maximum number of positions of one transaction that are read. All but one of them have failed.
const MAX_PLACES: usize = 64;

/// Positions per read.
const PLACES_PER_READ: usize = 64;

/// A transaction's position in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionPlace {
    pub height: Height,
    /// Index in the block, from 0.
    pub index: u32,
}

/// The position of an account's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountPlace {
    pub place: TransactionPlace,
    pub role: Role,
}

/// An observed nullification.
#[derive(Clone, Debug)]
pub struct NullifiedView {
    /// The reason that a validator observed.
    pub reason: String,
    /// The certificate.
    pub certificate: Certificate,
}

impl Index {
    /// The encoding of the block at a height.
    pub fn block_bytes(&self, height: Height) -> Result<Option<Vec<u8>>, IndexError> {
        self.get(BLOCKS, &height_key(height))
    }

    /// The block at a height.
    pub fn block(&self, height: Height) -> Result<Option<Block>, IndexError> {
        let bytes = self.block_bytes(height)?;
        bytes
            .map(|bytes| Block::decode(Copying(&bytes)).map_err(|_| self.damaged("a block")))
            .transpose()
    }

    /// The finality of the block at a height: the height of the block that carries the
    /// finalization, and the finalization if it is this block's own.
    pub fn finality(
        &self,
        height: Height,
    ) -> Result<Option<(Height, Option<Certificate>)>, IndexError> {
        let Some(row) = self.get(FINALITY, &height_key(height))? else {
            return Ok(None);
        };
        let damaged = || self.damaged("what makes a block final");
        let (by, certificate) = row.split_at_checked(8).ok_or_else(damaged)?;
        let by = Height(read_number(by).ok_or_else(damaged)?);
        if certificate.is_empty() {
            return Ok(Some((by, None)));
        }
        let certificate = Certificate::decode(Copying(certificate)).map_err(|_| damaged())?;
        Ok(Some((by, Some(certificate))))
    }

    /// The height of the block with this id.
    pub fn height_of(&self, id: &Digest) -> Result<Option<Height>, IndexError> {
        self.height_at(IDS, &id.0)
    }

    /// The height of the final block that was proposed in a view.
    pub fn height_in(&self, epoch: Epoch, view: View) -> Result<Option<Height>, IndexError> {
        self.height_at(VIEWS, &pair(epoch.0, view.0))
    }

    /// The first final block of an epoch that was proposed after a view.
    pub fn next_in(&self, epoch: Epoch, view: View) -> Result<Option<Height>, IndexError> {
        let start = pair(epoch.0, view.0);
        let rows = self.rows(VIEWS, &start, 1)?;
        let Some((key, value)) = rows.first() else {
            return Ok(None);
        };
        if !key.starts_with(&epoch.0.to_be_bytes()) {
            return Ok(None);
        }
        let height = read_number(value).ok_or_else(|| self.damaged("a view's height"))?;
        Ok(Some(Height(height)))
    }

    /// The outcomes of a block's transactions, in order.
    pub fn outcomes(&self, height: Height) -> Result<Vec<Outcome>, IndexError> {
        let codes = self.get(OUTCOMES, &height_key(height))?.unwrap_or_default();
        codes
            .iter()
            .map(|code| Outcome::decode(Copying(&[*code])).map_err(|_| self.damaged("an outcome")))
            .collect()
    }

    /// A transaction's position: where it was applied, otherwise its first position.
    pub fn transaction(&self, id: &Digest) -> Result<Option<TransactionPlace>, IndexError> {
        let mut first = None;
        for (key, _) in self.rows(TRANSACTIONS, &id.0, MAX_PLACES)? {
            let Some((height, index)) = rows::read_place(&key, &id.0) else {
                break;
            };
            let place = TransactionPlace {
                height: Height(height),
                index,
            };
            let outcomes = self.outcomes(place.height)?;
            if outcomes.get(index as usize) == Some(&Outcome::Applied) {
                return Ok(Some(place));
            }
            first = first.or(Some(place));
        }
        Ok(first)
    }

    /// An account's transactions, newest first, at most `limit`, optionally only those before a
    /// position.
    pub fn account(
        &self,
        identity: &Identity,
        before: Option<TransactionPlace>,
        limit: usize,
    ) -> Result<Vec<AccountPlace>, IndexError> {
        let start = before.map_or([u8::MIN; 44], |place| {
            rows::newest_first(identity, place.height, place.index)
        });
        let start: &[u8] = if before.is_some() {
            &start
        } else {
            &identity.0
        };
        let mut places = Vec::new();
        // One more, because the row at the start itself is skipped.
        for (key, value) in self.rows(ACCOUNTS, start, limit + 1)? {
            let Some((height, index)) = rows::read_place(&key, &identity.0) else {
                break;
            };
            let place = TransactionPlace {
                height: Height(!height),
                index: !index,
            };
            let role = match value.as_slice() {
                [code] => Role::from_code(*code),
                _ => None,
            };
            let role = role.ok_or_else(|| self.damaged("an account's transaction"))?;
            if Some(place) != before && places.len() < limit {
                places.push(AccountPlace { place, role });
            }
        }
        Ok(places)
    }

    /// An account's transactions in the block at a height, in order.
    pub fn account_in(
        &self,
        identity: &Identity,
        height: Height,
    ) -> Result<Vec<AccountPlace>, IndexError> {
        let mut places = Vec::new();
        // Starts at the highest possible position and continues page by page.
        let mut before = Some(TransactionPlace {
            height,
            index: u32::MAX,
        });
        loop {
            let found = self.account(identity, before, PLACES_PER_READ)?;
            let own = found.iter().filter(|found| found.place.height == height);
            places.extend(own);
            match found.last() {
                Some(last) if last.place.height == height => before = Some(last.place),
                _ => break,
            }
        }
        places.reverse();
        Ok(places)
    }

    /// How many views a validator has led in an epoch, and how many of them have a final block.
    pub fn leader_count(
        &self,
        epoch: Epoch,
        place: ValidatorIndex,
    ) -> Result<LeaderCount, IndexError> {
        let Some(row) = self.get(LEADERS, &place_key(epoch, place))? else {
            return Ok(LeaderCount::default());
        };
        let (led, blocks) = read_pair(&row).ok_or_else(|| self.damaged("a leader's counts"))?;
        Ok(LeaderCount { led, blocks })
    }

    /// Among an epoch's finalizations that name their signers: how many a validator signed, and the
    /// total.
    pub fn signed(&self, epoch: Epoch, place: ValidatorIndex) -> Result<(u64, u64), IndexError> {
        let signed = self.count(SIGNERS, &place_key(epoch, place))?;
        let all = self.count(SIGNERS, &place_key(epoch, ALL_VALIDATORS))?;
        Ok((signed, all))
    }

    /// Number of observed nullifications of views that a validator led in an epoch.
    pub fn nullified_by(&self, epoch: Epoch, place: ValidatorIndex) -> Result<u64, IndexError> {
        self.count(NULLIFIED_BY, &place_key(epoch, place))
    }

    /// The nullification of a view, if it was observed.
    pub fn nullified(&self, epoch: Epoch, view: View) -> Result<Option<NullifiedView>, IndexError> {
        let Some(row) = self.get(NULLIFIED, &pair(epoch.0, view.0))? else {
            return Ok(None);
        };
        let (reason, certificate) =
            rows::read_nullified(&row).ok_or_else(|| self.damaged("a nullified view"))?;
        Ok(Some(NullifiedView {
            reason,
            certificate,
        }))
    }

    /// All evidence.
    pub fn evidence(&self) -> Result<Vec<Evidence>, IndexError> {
        let rows = self.rows(EVIDENCE, &[], MAX_EVIDENCE)?;
        rows.iter()
            .map(|(_, row)| {
                Evidence::decode(Copying(row)).map_err(|_| self.damaged("a piece of evidence"))
            })
            .collect()
    }

    fn height_at(&self, column: &'static str, key: &[u8]) -> Result<Option<Height>, IndexError> {
        let bytes = self.get(column, key)?;
        bytes
            .map(|bytes| {
                let height = read_number(&bytes).ok_or_else(|| self.damaged("a height"))?;
                Ok(Height(height))
            })
            .transpose()
    }

    /// A counter; zero if it was never written.
    pub(crate) fn count(&self, column: &'static str, key: &[u8]) -> Result<u64, IndexError> {
        match self.get(column, key)? {
            None => Ok(0),
            Some(bytes) => read_number(&bytes).ok_or_else(|| self.damaged("a count")),
        }
    }

    pub(crate) fn get(
        &self,
        column: &'static str,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let row = self.database.get(column, key);
        row.map_err(|source| self.failed(source))
    }

    pub(crate) fn rows(
        &self,
        column: &'static str,
        start: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, IndexError> {
        let rows = self.database.rows_from(column, start, limit);
        rows.map_err(|source| self.failed(source))
    }
}
