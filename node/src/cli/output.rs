//! Printing results.

use anyhow::Context as _;
use quorate_api::verdict::Severity;
use quorate_http::client::{is_harmful, shown, shown_lines};
use serde::Serialize;
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Prints one JSON object, indented, to standard output.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write the result as JSON")?;
    let text = escape_json(&text);
    print_lines(&[text])
}

/// Escapes characters that can control a terminal and that JSON leaves unescaped. They occur only
/// within JSON strings, where the escaped form means the same.
fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) && character != '\n' {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Prints lines to standard output, with terminal control characters escaped. A closed pipe (`|
/// head`) is not an error.
pub(super) fn print_lines(lines: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let escaped: Vec<String> = lines.iter().map(|l| shown_lines(l.as_ref())).collect();
    print_painted(&escaped)
}

/// Like [`print_lines`], for lines coloured with [`Paint`]. Text from servers must already be
/// escaped.
pub(super) fn print_painted(lines: &[String]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = lines
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// How often progress is told where it is not shown on a terminal.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// A line on standard error that shows how far a command is. On a terminal it is replaced by the next one, and cleared
/// when dropped.
pub(super) struct ProgressLine {
    is_terminal: bool,
    shown: String,
    told: Instant,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            shown: String::new(),
            told: Instant::now(),
        }
    }

    pub(super) fn show(&mut self, line: String) {
        if line == self.shown {
            return;
        }
        if self.is_terminal {
            eprint!("\r\x1b[2K{line}");
            let _ = io::stderr().flush();
        } else if self.told.elapsed() >= TELL_EVERY {
            eprintln!("{line}");
            self.told = Instant::now();
        } else {
            return;
        }
        self.shown = line;
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_terminal && !self.shown.is_empty() {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Prints a table of names and values, with the values aligned.
pub(super) fn print_fields(fields: &[(&str, String)]) -> anyhow::Result<()> {
    print_painted(&field_lines(fields))
}

/// Formats a table of names and values, with the values aligned and terminal control characters
/// escaped.
pub(super) fn field_lines(fields: &[(&str, String)]) -> Vec<String> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:width$}  {}", shown(value));
    fields.iter().map(line).collect()
}

pub(super) struct Column {
    title: &'static str,
    to_the_right: bool,
}

impl Column {
    /// A left-aligned column, for text.
    pub(super) const fn left(title: &'static str) -> Self {
        Self {
            title,
            to_the_right: false,
        }
    }

    /// A right-aligned column, for numbers.
    pub(super) const fn right(title: &'static str) -> Self {
        Self {
            title,
            to_the_right: true,
        }
    }
}

/// Formats a table with columns as wide as their cells. Cells may contain colours.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>]) -> Vec<String> {
    let titles: Vec<String> = columns.iter().map(|c| c.title.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&titles).chain(rows).collect();
    let width = |column: usize| -> usize {
        let widths = all.iter().filter_map(|row| row.get(column));
        widths.map(|cell| visible(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(columns).zip(&widths);
        let cells: Vec<String> = cells
            .map(|((cell, column), width)| {
                let gap = " ".repeat(width.saturating_sub(visible(cell)));
                match column.to_the_right {
                    true => format!("{gap}{cell}"),
                    false => format!("{cell}{gap}"),
                }
            })
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

/// Returns the number of visible characters in a cell.
fn visible(cell: &str) -> usize {
    let mut escaped = false;
    let mut count = 0;
    for character in cell.chars() {
        match character {
            '\x1b' => escaped = true,
            'm' if escaped => escaped = false,
            _ if escaped => {}
            _ => count += 1,
        }
    }
    count
}

/// Colours, if the output is a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paint(bool);

impl Paint {
    /// Colours if standard output is a terminal, unless the user disabled them
    /// (<https://no-color.org>).
    pub(super) fn for_stdout() -> Self {
        Self(io::stdout().is_terminal() && is_wanted())
    }

    /// As [`Self::for_stdout`], for standard error.
    pub(super) fn for_stderr() -> Self {
        Self(io::stderr().is_terminal() && is_wanted())
    }

    /// Colours the text by its severity.
    pub(super) fn severity(self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Good => 32,
            Severity::Warning => 33,
            Severity::Bad => 31,
        };
        match self.0 {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

fn is_wanted() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_painted_or_not() {
        let columns = [Column::right("validator"), Column::left("link")];
        let rows = |paint: Paint| {
            let link = paint.severity(Severity::Bad, "none");
            vec![
                vec!["0".to_owned(), "up".to_owned()],
                vec!["10".to_owned(), link],
            ]
        };
        let plain = table(&columns, &rows(Paint(false)));
        assert_eq!(
            plain,
            ["validator  link", "        0  up", "       10  none"]
        );
        let painted = table(&columns, &rows(Paint(true)));
        assert_eq!(painted[2], "       10  \u{1b}[31mnone\u{1b}[0m");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({"a": "\u{1b}[2J\u{9b}\u{202e}\u{e0041}\n", "b": [1, "é"]});
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.chars().any(|c| is_harmful(c) && c != '\n'), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value);
    }
}
