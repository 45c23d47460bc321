//! For programs that ask servers: whom to believe over https, and showing what servers say.

use reqwest::{Certificate, ClientBuilder, redirect::Policy};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Most bytes of a file of certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How long a connection is kept for a next request: less than servers keep it (their
/// [`crate::Times::head`]), or a request could meet its end.
const IDLE: Duration = Duration::from_secs(5);

/// Whose certificates are believed over https: those of the web's authorities, and others that the
/// user names.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    own: Vec<Certificate>,
}

/// A file of certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// It cannot be read.
    #[error("cannot read the certificates in {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It holds none.
    #[error("{} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)", .path.display())]
    None {
        /// The file.
        path: PathBuf,
    },
}

impl Roots {
    /// The web's authorities and those in a PEM file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or holds no certificate.
    pub fn with_file(path: &Path) -> Result<Self, RootsError> {
        let read = || -> io::Result<Vec<u8>> {
            let length = fs::metadata(path)?.len();
            if length > MAX_FILE_BYTES {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            fs::read(path)
        };
        let text = read().map_err(|source| RootsError::Read {
            path: path.into(),
            source,
        })?;
        let own = Certificate::from_pem_bundle(&text).unwrap_or_default();
        if own.is_empty() {
            return Err(RootsError::None { path: path.into() });
        }
        Ok(Self { own })
    }

    /// An HTTP client that believes these, and follows no redirection: what is asked of one server
    /// is not told to another.
    pub fn client(&self) -> ClientBuilder {
        let web = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let web = web.filter_map(|root| Certificate::from_der(root).ok());
        ClientBuilder::new()
            .tls_certs_only(web.chain(self.own.iter().cloned()))
            .redirect(Policy::none())
            .pool_idle_timeout(IDLE)
    }
}

/// A text of somebody else's, so that it can be shown in a terminal: control characters and those
/// that turn the direction of writing are replaced by their escapes, line ends included.
pub fn shown(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same for several lines.
pub fn shown_lines(text: &str) -> String {
    escaped(text, |character| character == '\n' || character == '\t')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) && !keep(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Whether a terminal could do something else with a character than show it (Unicode's categories
/// Cc and, of Cf, what changes the direction of writing or is invisible).
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_escaped_and_letters_are_not() {
        assert_eq!(shown("Grüße, 你好 🙂"), "Grüße, 你好 🙂");
        assert_eq!(shown("\u{1b}[2Jx\r\n"), "\\u{1b}[2Jx\\u{d}\\u{a}");
        assert_eq!(shown("a\u{9b}31m\u{7f}"), "a\\u{9b}31m\\u{7f}");
        assert_eq!(shown("\u{202e}txt.exe"), "\\u{202e}txt.exe");
        assert_eq!(shown_lines("a\n\tb\u{7}"), "a\n\tb\\u{7}");
    }
}
