//! Asking for a secret at the terminal.
//!
//! The terminal does not echo the input, and its settings are always restored: meanwhile, Ctrl-C
//! arrives as a character and not as a signal, which would end the process before that.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::{
    fs::File,
    io::{self, Read, Write as _},
};
use zeroize::Zeroizing;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const CTRL_U: u8 = 21;
const DELETE: u8 = 127;

/// Size limit of a line.
const MAX_LINE_BYTES: usize = 4 << 10;

/// Turns off the terminal's echo until dropped.
struct Silent<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Silent<'a> {
    fn new(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        let off = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        silent.local_modes.remove(off);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Prompts for a line at the terminal without echo.
///
/// # Errors
///
/// If there is no terminal, on I/O errors, or on Ctrl-C.
pub(super) fn prompt(text: &str) -> io::Result<Zeroizing<String>> {
    let terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let mut screen = &terminal;
    let line = {
        // Turn the echo off before the prompt is shown, since users type only after it.
        let _silent = Silent::new(&terminal)?;
        screen.write_all(text.as_bytes())?;
        read_line(&terminal)
    };
    screen.write_all(b"\n")?;
    line
}

fn read_line(mut keys: impl Read) -> io::Result<Zeroizing<String>> {
    // Full capacity from the start: growing would leave copies of the secret in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE_BYTES));
    loop {
        let mut key = [0];
        if keys.read(&mut key)? == 0 {
            break;
        }
        match key[0] {
            b'\n' | b'\r' => break,
            CTRL_C => return Err(io::Error::new(io::ErrorKind::Interrupted, "Ctrl-C")),
            CTRL_D if line.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                let start = line.iter().rposition(|byte| byte & 0xc0 != 0x80);
                line.truncate(start.unwrap_or(0));
            }
            0..32 => {}
            byte if line.len() < MAX_LINE_BYTES => line.push(byte),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is too long",
                ));
            }
        }
    }
    let text = std::str::from_utf8(&line);
    let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_edit_the_line() {
        for (keys, line) in [
            (&b"secret\nmore"[..], "secret"),
            (b"secret", "secret"),
            ("stra\u{df}e\u{7f}\u{7f}\u{df}e\n".as_bytes(), "stra\u{df}e"),
            (b"\x7f\x08a\n", "a"),
            (b"wrong\x15right\r", "right"),
            (b"\n", ""),
        ] {
            let read = read_line(keys).expect("a line");
            assert_eq!(read.as_str(), line);
        }
    }

    #[test]
    fn it_can_be_given_up() {
        let kind = |keys: &[u8]| read_line(keys).err().map(|error| error.kind());
        assert_eq!(kind(b"sec\x03ret\n"), Some(io::ErrorKind::Interrupted));
        assert_eq!(kind(b"\x04"), Some(io::ErrorKind::UnexpectedEof));
        assert_eq!(kind(b"\xff\n"), Some(io::ErrorKind::InvalidData));
        let long = vec![b'a'; MAX_LINE_BYTES + 1];
        assert_eq!(kind(&long), Some(io::ErrorKind::InvalidInput));
    }
}
