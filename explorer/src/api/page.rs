//! The web page, which is embedded in the program.

use super::problem::Failure;
use axum::{
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use quorate_crypto::sha256;
use std::{collections::HashMap, sync::LazyLock};

/// The files of the built page: names and contents. Empty if the page was not built.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Shown if the page was not built.
const PLACEHOLDER: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>Quorate explorer</title>
<link rel=\"stylesheet\" href=\"/docs.css\">
<main>
<h1>Quorate explorer</h1>
<p>This program was built without its web page. To build it with the page:
<code>npm --prefix explorer/page ci &amp;&amp; npm --prefix explorer/page run build</code>, then cargo
again.</p>
<p>The interface is there: <a href=\"/docs\">its description</a>, <a href=\"/v1/status\">how the
explorer is</a>, <a href=\"/v1/blocks\">the newest blocks</a>.</p>
</main>
";

struct File {
    bytes: &'static [u8],
    kind: HeaderValue,
    etag: HeaderValue,
    /// The file's name changes with its content.
    hashed: bool,
}

static PAGE: LazyLock<HashMap<&'static str, File>> = LazyLock::new(|| {
    let file = |(name, bytes): &(&'static str, &'static [u8])| {
        let etag = format!("W/\"{}\"", sha256(&[bytes]).short());
        let file = File {
            bytes,
            kind: HeaderValue::from_static(kind_of(name)),
            etag: HeaderValue::try_from(etag).expect("hexadecimal digits"),
            hashed: name.starts_with("assets/"),
        };
        (*name, file)
    };
    let placeholder = [("index.html", PLACEHOLDER.as_bytes())];
    let files = if FILES.is_empty() {
        &placeholder[..]
    } else {
        FILES
    };
    files.iter().map(file).collect()
});

/// Serves a file of the page; for other addresses, browsers get the page itself, which handles its
/// own routes.
pub(super) async fn serve(method: Method, uri: Uri, request: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return Failure::method_not_allowed().into_response();
    }
    let path = uri.path().trim_start_matches('/');
    let accept = request.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let browser = accept.is_some_and(|accept| accept.contains("text/html"));
    if browser && let Some(place) = place_of(path) {
        let location = HeaderValue::try_from(place).expect("letters and digits");
        return (StatusCode::FOUND, [(header::LOCATION, location)]).into_response();
    }
    let is_page = path.is_empty() || (browser && !path.contains('.') && !path.starts_with("v1/"));
    let name = if is_page { "index.html" } else { path };
    match PAGE.get(name) {
        Some(file) => file.respond(&request),
        None => Failure::not_found("unknown_path", "there is nothing at this path").into_response(),
    }
}

/// The page's route for an address such as `/blocks/100`. It is relative, because the page may be
/// served below any path.
fn place_of(path: &str) -> Option<String> {
    let mut parts = path.trim_end_matches('/').split('/');
    let (kind, which) = (parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    let one = |name: &str| which.map(|which| format!("{name}/{which}"));
    let place = match kind {
        "block" | "blocks" => one("block").unwrap_or_else(|| "blocks".to_owned()),
        "tx" | "transaction" | "transactions" => {
            one("tx").unwrap_or_else(|| "transactions".to_owned())
        }
        "account" | "accounts" => one("account")?,
        "view" | "views" => one("view")?,
        "validator" | "validators" => one("validator").unwrap_or_else(|| "validators".to_owned()),
        "faults" | "trust" | "history" if which.is_none() => kind.to_owned(),
        _ => return None,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'/' || byte == b'.';
    let up = if which.is_some() { "../" } else { "./" };
    place.bytes().all(plain).then(|| format!("{up}#/{place}"))
}

impl File {
    fn respond(&self, request: &HeaderMap) -> Response {
        let age = if self.hashed {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let headers = [
            (header::CACHE_CONTROL, HeaderValue::from_static(age)),
            (header::ETAG, self.etag.clone()),
        ];
        if request.get(header::IF_NONE_MATCH) == Some(&self.etag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let kind = [(header::CONTENT_TYPE, self.kind.clone())];
        (headers, kind, self.bytes).into_response()
    }
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        Some("webmanifest") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}
