//! The history: an append-only file with one record per line.
//!
//! A record is durable when [`append`] returns. Writers exclude each other by a lock on the file. A
//! crash can leave the last line torn: readers report it and continue, the next writer truncates
//! it. Any other malformed line is an error with its line number, since silently skipping records
//! would shift what counts as usual.

use crate::record::{Record, RecordError};
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

/// The longest line, in bytes. A record of a suite is about 20 KB.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// The largest history, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// The beginning of every torn line that this program wrote, of any schema.
const START: &[u8] = b"{\"schema\":";

/// The contents of a history.
#[derive(Debug, Default)]
pub struct Contents {
    /// The records, in the order of the file.
    pub records: Vec<Record>,
    /// A message about a torn last line, if there is one.
    pub torn: Option<String>,
}

/// Why a history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An operation on the file failed.
    #[error("{doing} {}: {source}", path.display())]
    System {
        /// The operation.
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A line is not a valid record.
    #[error("{}:{line}: {source}. Repair the line, or move it to another file", path.display())]
    Line {
        path: PathBuf,
        /// Counts from 1.
        line: usize,
        source: RecordError,
    },
    /// A line is not text, or too long.
    #[error(
        "{}:{line}: the line {problem}. Is this a history? If so, repair the line, or move it to \
         another file",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        /// Counts from 1.
        line: usize,
        problem: String,
    },
    #[error(
        "{} is larger than {MAX_FILE_BYTES} bytes. Move its older lines to another file",
        path.display()
    )]
    Large { path: PathBuf },
    /// The record cannot be written.
    #[error("the record is not written to {}: {source}", path.display())]
    Record { path: PathBuf, source: RecordError },
}

/// Appends a record, creating the file if it is missing. Returns a message about a torn last line
/// that was truncated, if there was one.
///
/// # Errors
///
/// If the record exceeds a limit, the file is not a history, or a file operation fails. The file is
/// then unchanged, or has one torn line more.
pub fn append(path: &Path, record: &Record) -> Result<Option<String>, FileError> {
    let failed = |doing| {
        move |source| FileError::System {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    let wrong = |source| FileError::Record {
        path: path.to_owned(),
        source,
    };
    let mut line = record.to_line().map_err(wrong)?;
    line.push('\n');
    if line.len() > MAX_LINE_BYTES {
        return Err(wrong(RecordError::Limit {
            what: "its line".to_owned(),
            problem: format!("is of {} bytes, and {MAX_LINE_BYTES} may be", line.len()),
        }));
    }
    let is_new = !path.exists();
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(failed("opening"))?;
    file.lock().map_err(failed("locking"))?;
    let length = file.metadata().map_err(failed("reading"))?.len();
    if length.saturating_add(line.len() as u64) > MAX_FILE_BYTES {
        return Err(FileError::Large {
            path: path.to_owned(),
        });
    }
    let last = last_line(&mut file, length).map_err(failed("reading"))?;
    let mut said = None;
    match judge_end(&last) {
        End::Whole => {}
        // Only its newline was lost.
        End::Unended => line.insert(0, '\n'),
        End::Torn => {
            let kept = length - last.len() as u64;
            file.set_len(kept).map_err(failed("cutting"))?;
            said = Some(format!(
                "{}: the last line was torn, {} bytes of it are cut off",
                path.display(),
                last.len()
            ));
        }
        End::Foreign => {
            return Err(FileError::Foreign {
                path: path.to_owned(),
                line: count_lines(&mut file).map_err(failed("reading"))? + 1,
                problem: "is not ended and no record's beginning".to_owned(),
            });
        }
    }
    file.write_all(line.as_bytes()).map_err(failed("writing"))?;
    file.sync_all().map_err(failed("syncing"))?;
    if is_new {
        // The directory entry must be durable too.
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed("syncing the folder of"))?;
    }
    Ok(said)
}

/// Reads all records.
///
/// # Errors
///
/// If there is no such file, a line other than the last is malformed, or a limit is exceeded.
pub fn read(path: &Path) -> Result<Contents, FileError> {
    let failed = |doing| {
        move |source| FileError::System {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    let file = File::open(path).map_err(failed("opening"))?;
    // With the lock no writer is in the middle of a line.
    file.lock_shared().map_err(failed("locking"))?;
    if file.metadata().map_err(failed("reading"))?.len() > MAX_FILE_BYTES {
        return Err(FileError::Large {
            path: path.to_owned(),
        });
    }
    let mut reader = BufReader::new(file);
    let mut contents = Contents::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = reader.by_ref().take(most).read_until(b'\n', &mut bytes);
        if read.map_err(failed("reading"))? == 0 {
            break;
        }
        let foreign = |problem: &str| FileError::Foreign {
            path: path.to_owned(),
            line,
            problem: problem.to_owned(),
        };
        if bytes.len() > MAX_LINE_BYTES {
            return Err(foreign(&format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        if bytes.last() != Some(&b'\n') {
            match judge_end(&bytes) {
                End::Torn => {
                    contents.torn = Some(format!(
                        "{}:{line}: the last line is torn and left out; the next record that is \
                         added cuts it off",
                        path.display()
                    ));
                    break;
                }
                End::Foreign => return Err(foreign("is not ended and no record's beginning")),
                End::Whole | End::Unended => {}
            }
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| foreign("is no text"))?;
        if text.trim().is_empty() {
            continue;
        }
        let record = Record::from_line(text).map_err(|source| FileError::Line {
            path: path.to_owned(),
            line,
            source,
        })?;
        contents.records.push(record);
    }
    Ok(contents)
}

/// What follows the last newline.
enum End {
    /// Nothing.
    Whole,
    /// A whole line without its newline.
    Unended,
    /// A part of a line written by this program.
    Torn,
    /// Something else, which must not be truncated.
    Foreign,
}

fn judge_end(last: &[u8]) -> End {
    if last.is_empty() {
        return End::Whole;
    }
    // Half an object is not valid JSON; a whole one of another schema is not torn.
    if serde_json::from_slice::<serde_json::Map<_, serde_json::Value>>(last).is_ok() {
        return End::Unended;
    }
    match last.starts_with(START) || START.starts_with(last) {
        true => End::Torn,
        false => End::Foreign,
    }
}

/// The bytes after the last newline, cut at the longest line.
fn last_line(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    let from = length.saturating_sub(MAX_LINE_BYTES as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_LINE_BYTES as u64).read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    Ok(bytes.split_off(end.map_or(0, |end| end + 1)))
}

fn count_lines(file: &mut File) -> io::Result<usize> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = 0;
    let mut reader = BufReader::new(file);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(lines);
        }
        lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        let read = bytes.len();
        reader.consume(read);
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
