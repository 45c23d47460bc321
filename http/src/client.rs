//! For HTTP clients: trusted certificates for https, and safe display of servers' text.

use reqwest::{Certificate, ClientBuilder, redirect::Policy};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Maximum size of a certificate file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How long an idle connection is kept for the next request. Shorter than servers keep it (their
/// [`crate::Times::head`]); otherwise a request could race with the server closing it.
const IDLE: Duration = Duration::from_secs(5);

/// Trusted root certificates for https: those of the public certificate authorities, and others
/// that the user names.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    own: Vec<Certificate>,
}

/// A certificate file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// The file cannot be read.
    #[error("cannot read the certificates in {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file holds no certificate.
    #[error("{} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)", .path.display())]
    None { path: PathBuf },
}

impl Roots {
    /// The public certificate authorities and those in a PEM file.
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

    /// An HTTP client that trusts these certificates and follows no redirects, so that a request to
    /// one server is not disclosed to another.
    pub fn client(&self) -> ClientBuilder {
        let web = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let web = web.filter_map(|root| Certificate::from_der(root).ok());
        ClientBuilder::new()
            .tls_certs_only(web.chain(self.own.iter().cloned()))
            .redirect(Policy::none())
            .pool_idle_timeout(IDLE)
    }
}

/// Escapes untrusted text for display in a terminal: control characters, line breaks included, and
/// characters that change the writing direction are replaced by their escapes.
pub fn shown(text: &str) -> String {
    escaped(text, |_| false)
}

/// Like [`shown`], but keeps line breaks and tabs.
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

/// Whether a terminal could do anything with the character other than display it (Unicode category
/// Cc and, of Cf, characters that change the writing direction or are invisible).
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
