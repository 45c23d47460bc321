//! Sums over minutes, hours and days, by the leaders' clocks, and the list of blocks with
//! transactions.

use super::{
    BLOCKS, FILLED, HISTORY, Index, IndexError, META, TransactionPlace,
    rows::{height_key, read_number},
};
use commonware_codec::{Copying, DecodeExt, FixedSize};
use quorate_storage::database::Batch;
use quorate_types::{Header, Height};
use std::collections::BTreeMap;

/// Rows per read when an older index is migrated.
const ROWS_PER_READ: usize = 256;

/// The length of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    Minute,
    Hour,
    /// 24 hours, from midnight UTC.
    Day,
}

impl Period {
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// Its name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Its length in milliseconds.
    pub fn millis(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Minute => b'm',
            Self::Hour => b'h',
            Self::Day => b'd',
        }
    }

    fn key(self, number: u64) -> [u8; 9] {
        let mut key = [self.code(); 9];
        key[1..].copy_from_slice(&number.to_be_bytes());
        key
    }
}

/// Totals over the blocks of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub blocks: u64,
    pub transactions: u64,
    /// Size of the blocks' encodings.
    pub bytes: u64,
}

impl Sums {
    fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            transactions: self.transactions.saturating_add(other.transactions),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn row(self) -> Vec<u8> {
        let numbers = [self.blocks, self.transactions, self.bytes];
        numbers.map(u64::to_be_bytes).concat()
    }

    fn read(row: &[u8]) -> Option<Self> {
        let (numbers, []) = row.as_chunks::<8>() else {
            return None;
        };
        let &[blocks, transactions, bytes] = numbers else {
            return None;
        };
        Some(Self {
            blocks: u64::from_be_bytes(blocks),
            transactions: u64::from_be_bytes(transactions),
            bytes: u64::from_be_bytes(bytes),
        })
    }
}

/// Changes to the sums by a batch of blocks.
#[derive(Default)]
pub(super) struct Added {
    sums: BTreeMap<(Period, u64), Sums>,
    transactions: u64,
}

impl Added {
    pub(super) fn add(
        &mut self,
        header: &Header,
        transactions: u64,
        bytes: u64,
        batch: &mut Batch,
    ) {
        let own = Sums {
            blocks: 1,
            transactions,
            bytes,
        };
        for period in Period::ALL {
            let number = header.timestamp_ms / period.millis();
            let sums = self.sums.entry((period, number)).or_default();
            *sums = sums.plus(own);
        }
        self.transactions += transactions;
        if transactions > 0 {
            batch.put(FILLED, height_key(Height(!header.height.0)), []);
        }
    }
}

impl Index {
    pub(super) fn stage_history(&self, added: &Added, batch: &mut Batch) -> Result<(), IndexError> {
        for ((period, number), sums) in &added.sums {
            let key = period.key(*number);
            let held = self.sums_at(&key)?;
            batch.put(HISTORY, key, held.plus(*sums).row());
        }
        let count = self.transaction_count()?.saturating_add(added.transactions);
        batch.put(META, b"transactions", count.to_be_bytes());
        Ok(())
    }

    fn sums_at(&self, key: &[u8]) -> Result<Sums, IndexError> {
        let row = self.get(HISTORY, key)?;
        row.map_or(Ok(Sums::default()), |row| {
            Sums::read(&row).ok_or_else(|| self.damaged("a sum of the history"))
        })
    }

    /// The number of transactions in all blocks ever indexed.
    pub fn transaction_count(&self) -> Result<u64, IndexError> {
        self.count(META, b"transactions")
    }

    /// The sums of at most `limit` periods up to the one that contains a time, oldest first, each
    /// with the start time of its period. Periods without blocks are omitted.
    pub fn history(
        &self,
        period: Period,
        until_ms: u64,
        limit: u64,
    ) -> Result<Vec<(u64, Sums)>, IndexError> {
        let last = until_ms / period.millis();
        let first = last.saturating_sub(limit.saturating_sub(1));
        let rows = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for (key, row) in self.rows(HISTORY, &period.key(first), rows)? {
            let number = match key.split_first() {
                Some((code, number)) if *code == period.code() => read_number(number),
                _ => break,
            };
            let number = number.ok_or_else(|| self.damaged("a time of the history"))?;
            if number > last {
                break;
            }
            let sums = Sums::read(&row).ok_or_else(|| self.damaged("a sum of the history"))?;
            found.push((number.saturating_mul(period.millis()), sums));
        }
        Ok(found)
    }

    /// Heights of blocks with transactions, in descending order, starting from `from`.
    pub fn filled(&self, from: Height, limit: usize) -> Result<Vec<Height>, IndexError> {
        let rows = self.rows(FILLED, &height_key(Height(!from.0)), limit)?;
        rows.iter()
            .map(|(key, _)| {
                let height = read_number(key).ok_or_else(|| self.damaged("a height"))?;
                Ok(Height(!height))
            })
            .collect()
    }

    /// The newest transactions, newest first, at most `limit`, optionally only those before a
    /// position.
    pub fn newest_transactions(
        &self,
        before: Option<TransactionPlace>,
        limit: usize,
    ) -> Result<Vec<TransactionPlace>, IndexError> {
        let mut places = Vec::with_capacity(limit);
        let from = before.map_or(Height(u64::MAX), |place| place.height);
        for height in self.filled(from, limit + 1)? {
            let all = self.outcomes(height)?.len();
            let own = before.filter(|place| place.height == height);
            let end = own.map_or(all, |place| all.min(place.index as usize));
            for index in (0..end).rev().take(limit - places.len()) {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                places.push(TransactionPlace { height, index });
            }
            if places.len() == limit {
                break;
            }
        }
        Ok(places)
    }

    /// Turns this into an index of format 1, for tests.
    #[doc(hidden)]
    pub fn as_format_1(&self) -> Result<(), IndexError> {
        let mut batch = Batch::default();
        for column in [FILLED, HISTORY] {
            for (key, _) in self.rows(column, &[], usize::MAX)? {
                batch.delete(column, key);
            }
        }
        batch.delete(META, b"transactions");
        batch.put(META, b"format", 1_u64.to_be_bytes());
        self.write(&batch)
    }

    /// Adds what an index of format 1 lacks: sums and the list of blocks with transactions.
    pub(super) fn add_history(&self, format: u64) -> Result<(), IndexError> {
        // Idempotent: everything is written as one batch at the end.
        let mut batch = Batch::default();
        let mut added = Added::default();
        let mut start = Vec::new();
        loop {
            let rows = self.rows(BLOCKS, &start, ROWS_PER_READ)?;
            for (_, bytes) in &rows {
                let damaged = || self.damaged("a block");
                let (header, rest) = bytes.split_at_checked(Header::SIZE).ok_or_else(damaged)?;
                let header = Header::decode(Copying(header)).map_err(|_| damaged())?;
                let count = rest.first_chunk().ok_or_else(damaged)?;
                let count = u64::from(u32::from_be_bytes(*count));
                added.add(&header, count, bytes.len() as u64, &mut batch);
            }
            let Some((last, _)) = rows.last() else {
                break;
            };
            start.clone_from(last);
            start.push(0);
        }
        self.stage_history(&added, &mut batch)?;
        batch.put(META, b"format", format.to_be_bytes());
        self.write(&batch)
    }
}
