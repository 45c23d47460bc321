//! Binary encodings as hexadecimal text.

use crate::BlockJson;
use commonware_codec::{Copying, DecodeExt, Encode};
use quorate_types::{Block, Transaction};

/// Returns a value's encoding in hexadecimal.
pub fn to_hex(value: &impl Encode) -> String {
    hex::encode(value.encode())
}

/// Decodes a value from hexadecimal.
///
/// # Errors
///
/// If the text is not hexadecimal, or the bytes are not exactly one encoded value.
pub fn from_hex<T: DecodeExt<()>>(what: &str, text: &str) -> anyhow::Result<T> {
    let bytes = hex::decode(text).map_err(|_| anyhow::anyhow!("{what} is not hexadecimal"))?;
    T::decode(Copying(&bytes)).map_err(|error| anyhow::anyhow!("{what}: {error}"))
}

/// Decodes a transaction from hexadecimal.
///
/// # Errors
///
/// If the text is not exactly one transaction.
pub fn transaction_from_hex(text: &str) -> anyhow::Result<Transaction> {
    from_hex("transaction", text)
}

/// Decodes the block inside a [`BlockJson`].
///
/// # Errors
///
/// If its encoding is not exactly one block.
pub fn block_of(answer: &BlockJson) -> anyhow::Result<Block> {
    from_hex("block", &answer.block)
}
