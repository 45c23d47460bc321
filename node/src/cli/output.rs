//! Printing results.

use anyhow::Context as _;
use serde::Serialize;
use std::io::{self, Write as _};

/// Prints one JSON object, indented, to standard output.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write the result as JSON")?;
    print_lines(&[text])
}

/// Prints lines to standard output. That the reader went away (`| head`) is no error.
pub(super) fn print_lines(lines: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = lines
        .iter()
        .try_for_each(|line| writeln!(out, "{}", line.as_ref()))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a table of names and values, the values in one column.
pub(super) fn print_fields(fields: &[(&str, String)]) -> anyhow::Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}"))
        .collect();
    print_lines(&lines)
}
