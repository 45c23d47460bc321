//! Printing results.

use anyhow::Context as _;
use quorate_http::client::{is_harmful, shown, shown_lines};
use serde::Serialize;
use std::io::{self, Write as _};

/// Prints one JSON object, indented, to standard output.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write the result as JSON")?;
    let text = escape_json(&text);
    print_lines(&[text])
}

/// JSON leaves some characters as they are that steer terminals. They stand in its strings only, and
/// mean the same there when they are escaped.
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

/// Prints lines to standard output, with whatever could steer a terminal escaped. That the reader went away (`| head`) is no error.
pub(super) fn print_lines(lines: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = lines
        .iter()
        .try_for_each(|line| writeln!(out, "{}", shown_lines(line.as_ref())))
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
        .map(|(name, value)| format!("{name:width$}  {}", shown(value)))
        .collect();
    print_lines(&lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({"a": "\u{1b}[2J\u{9b}\u{202e}\u{e0041}\n", "b": [1, "é"]});
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.chars().any(|c| is_harmful(c) && c != '\n'), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value);
    }
}
