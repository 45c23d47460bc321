//! What the kernel counts for this process.

use anyhow::Context;
use std::{fs, io::ErrorKind, path::Path, time::Duration};

/// A kernel counter of this process.
fn field(file: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .with_context(|| format!("no {name} in {file}"))
}

/// Resident memory in bytes, now and at most.
pub(crate) fn memory() -> anyhow::Result<(u64, u64)> {
    let file = "/proc/self/status";
    Ok((field(file, "VmRSS:")? * 1024, field(file, "VmHWM:")? * 1024))
}

/// Bytes handed to the kernel to be written to files.
pub(crate) fn written_bytes() -> anyhow::Result<u64> {
    field("/proc/self/io", "wchar:")
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu() -> anyhow::Result<Duration> {
    let file = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(
        nanos.with_context(|| format!("no time in {file}"))?,
    ))
}

/// Processor time of all threads; the kernel counts in hundredths of a second.
pub(crate) fn cpu() -> anyhow::Result<Duration> {
    cpu_of(std::process::id())
}

/// Processor time of all threads of a process.
pub(crate) fn cpu_of(process: u32) -> anyhow::Result<Duration> {
    let file = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    let (_, fields) = text
        .rsplit_once(')')
        .with_context(|| format!("no name in {file}"))?;
    // After the name comes field 3; user and system time are fields 14 and 15.
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| (ticks.parse::<u64>()).with_context(|| format!("time in {file}")))
        .sum::<anyhow::Result<u64>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// Bytes of all files in a folder. One that the database deletes meanwhile does not count.
pub(crate) fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        bytes += match entry?.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(bytes)
}
