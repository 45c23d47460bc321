//! A look at RocksDB's own logs before it reads them.
//!
//! RocksDB 11.8 reads a record for ever whose type says that its file is a recycled one when the
//! file did not begin so (`log_reader.cc`: it is called bad, and not skipped). One flipped bit in a
//! write-ahead log or a manifest is enough, and the node would hang at its start without a word.
//! Files are never recycled here, so such a record is damage, and is said to be.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// Logs consist of blocks of this size; no record crosses their ends.
const BLOCK_BYTES: usize = 32 << 10;

/// Checksum, length and type.
const HEADER_BYTES: usize = 7;

/// The types of records in recycled files: whole, first, middle, last; sizes of timestamps; what the
/// log before was.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// The first log in a database's folder that RocksDB would read for ever, and where in it.
///
/// # Errors
///
/// If the folder or a log cannot be read.
pub fn find_endless(folder: &Path) -> io::Result<Option<(String, u64)>> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !(name.ends_with(".log") || name.starts_with("MANIFEST-")) {
            continue;
        }
        let mut file = File::open(folder.join(&name))?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let mut start = 0;
        loop {
            block.clear();
            let read = (&mut file)
                .take(BLOCK_BYTES as u64)
                .read_to_end(&mut block)?;
            if let Some(at) = endless_record(&block) {
                return Ok(Some((name, start + at as u64)));
            }
            if read < BLOCK_BYTES {
                break;
            }
            start += BLOCK_BYTES as u64;
        }
    }
    Ok(None)
}

/// Where in a block the first record of a recycled file is, if RocksDB comes as far: it skips the
/// rest of a block after a record that is cut short or fails its checksum.
fn endless_record(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some((header, rest)) = block.get(at..)?.split_first_chunk::<HEADER_BYTES>() {
        let [c0, c1, c2, c3, low, high, kind] = *header;
        if RECYCLED.contains(&kind) {
            return Some(at);
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        let content = rest.get(..length)?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), content);
        if unmask(u32::from_le_bytes([c0, c1, c2, c3])) != sum {
            return None;
        }
        at += HEADER_BYTES + length;
    }
    None
}

/// Checksums are stored rotated and moved, so that one of data that holds checksums is a good one.
fn unmask(stored: u32) -> u32 {
    stored.wrapping_sub(0xa282_ead8).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), content);
        let stored = sum.rotate_right(15).wrapping_add(0xa282_ead8);
        let length = content.len() as u16;
        let mut bytes = stored.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.push(kind);
        bytes.extend(content);
        bytes
    }

    #[test]
    fn a_flipped_type_is_found_wherever_rocksdb_would_read_it() {
        let mut block = record(1, b"first");
        let second = block.len();
        block.extend(record(1, b"second"));
        block.extend(record(1, b"third"));
        assert_eq!(endless_record(&block), None);
        block[second + 6] ^= 4;
        assert_eq!(endless_record(&block), Some(second));
        // After a record that fails its checksum the rest of the block is not read.
        block[HEADER_BYTES] ^= 1;
        assert_eq!(endless_record(&block), None);
    }

    #[test]
    fn torn_and_empty_ends_are_no_damage() {
        let whole = record(1, &[7; 500]);
        for end in 0..whole.len() {
            assert_eq!(endless_record(&whole[..end]), None);
        }
        assert_eq!(endless_record(&[0; 4_096]), None);
    }
}
