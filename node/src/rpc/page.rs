//! The live page: charts of this validator for a browser, from its own `/v1/status` and `/metrics`.
//!
//! It is a single file, compiled in. Its content security policy allows its own script and style by
//! their hashes, and requests to this node only, so it loads nothing from elsewhere and runs no
//! injected code.

use axum::{
    http::header,
    response::{Html, IntoResponse},
};
use quorate_crypto::sha256;
use std::sync::LazyLock;

const PAGE: &str = include_str!("page.html");

/// The content security policy.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash_of("script"),
        hash_of("style")
    )
});

/// Serves the page.
pub(super) async fn page() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(PAGE))
}

/// Returns the SHA-256 of the page's only element of this name, in the form used in a policy.
fn hash_of(element: &str) -> String {
    let (start, end) = (format!("<{element}>"), format!("</{element}>"));
    let (_, rest) = PAGE.split_once(&start).expect("the page has one of it");
    let (content, rest) = rest.split_once(&end).expect("it is closed");
    assert!(!rest.contains(&start), "the page has only one of it");
    base64(&sha256(&[content.as_bytes()]).0)
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) & 63;
            let held = place <= chunk.len();
            text.push(if held {
                char::from(ALPHABET[six as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn the_page_asks_nobody_else() {
        assert!(!PAGE.contains("//cdn") && !PAGE.contains("http:") && !PAGE.contains("https:"));
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(!PAGE.contains("style=") && !PAGE.contains("innerHTML"));
        assert!(PAGE.len() < 40_000, "{} bytes", PAGE.len());
    }
}
