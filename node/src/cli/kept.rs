//! The command-line syntax for block retention.

use crate::config::{
    MAX_RETENTION_TIME, MIN_RETENTION_BLOCKS, MIN_RETENTION_TIME, format_duration, parse_duration,
};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The newest blocks, this many; 0 keeps all.
    Blocks(u64),
    /// The blocks of this period.
    Time(Duration),
}

/// Parses a number of blocks or a duration.
///
/// # Errors
///
/// If the text is neither, or out of range.
pub(super) fn parse_kept(text: &str) -> Result<Kept, String> {
    let range = MIN_RETENTION_TIME..=MAX_RETENTION_TIME;
    match (text.parse(), parse_duration(text)) {
        (Ok(blocks), _) if blocks == 0 || blocks >= MIN_RETENTION_BLOCKS => {
            Ok(Kept::Blocks(blocks))
        }
        (_, Ok(time)) if range.contains(&time) => Ok(Kept::Time(time)),
        _ => Err(format!(
            "it must be 0 for all, {MIN_RETENTION_BLOCKS} blocks at least, or a time such as 7d, {} at least",
            format_duration(MIN_RETENTION_TIME)
        )),
    }
}
