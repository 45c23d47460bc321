//! Responses: rendered once if they are final, with caching headers.

use super::problem::{Answer, Failure};
use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache as QuickCache};
use quorate_crypto::sha256;
use quorate_types::Height;
use serde::Serialize;

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Content security policy: the page may load only what this origin serves.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; worker-src 'self'; object-src 'none'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Which part of a block an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Detail,
    Bytes,
    Certificate,
    CertificateBytes,
}

/// A rendered answer about something final.
#[derive(Clone)]
pub(super) struct Rendered {
    body: Bytes,
    kind: HeaderValue,
    etag: HeaderValue,
}

/// Rendered answers by height and part.
pub(super) type Cache = QuickCache<(Height, Part), Rendered, ByBytes>;

/// Weighs answers by their bytes.
#[derive(Clone)]
pub(super) struct ByBytes;

impl Weighter<(Height, Part), Rendered> for ByBytes {
    fn weight(&self, _: &(Height, Part), rendered: &Rendered) -> u64 {
        rendered.body.len() as u64 + 256
    }
}

/// A cache of the given size in bytes.
pub(super) fn cache(bytes: u64) -> Cache {
    let blocks = usize::try_from(bytes / 2_048).unwrap_or(usize::MAX);
    QuickCache::with_weighter(blocks, bytes, ByBytes)
}

impl Rendered {
    /// A rendered answer. The entity tag names the block and the part, which never change.
    pub(super) fn new(id: &[u8; 32], part: Part, kind: HeaderValue, body: Vec<u8>) -> Self {
        // A weak tag, because the same content may also be sent compressed.
        let etag = format!("W/\"{}-{part:?}\"", hex::encode(&id[..16]));
        Self {
            body: body.into(),
            kind,
            etag: HeaderValue::try_from(etag).expect("hexadecimal digits and letters"),
        }
    }

    /// A rendered JSON answer.
    pub(super) fn json(id: &[u8; 32], part: Part, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("shapes have only text keys");
        Self::new(id, part, JSON, body)
    }

    /// The response; `fixed` tells whether the URL will always refer to this content. It is 304
    /// without a body if the client already has it.
    pub(super) fn respond(&self, request: &HeaderMap, fixed: bool) -> Response {
        let age = if fixed { FOR_EVER } else { ASK_AGAIN };
        let known = request
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|tag| tag.trim().as_bytes() == self.etag.as_bytes());
        let headers = [
            (header::CACHE_CONTROL, age),
            (header::ETAG, self.etag.clone()),
            (header::VARY, HeaderValue::from_static("accept")),
        ];
        if known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let kind = [(header::CONTENT_TYPE, self.kind.clone())];
        (headers, kind, self.body.clone()).into_response()
    }
}

/// A rendered JSON answer that changes soon.
pub(super) fn rendered(body: Bytes) -> Response {
    let headers = [
        (header::CACHE_CONTROL, ASK_AGAIN),
        (header::CONTENT_TYPE, JSON),
    ];
    (headers, body).into_response()
}

/// An answer that changes soon.
pub(super) fn fresh(value: &impl Serialize) -> Answer<Response> {
    let body = serde_json::to_vec(value).map_err(|error| Failure::internal(&error))?;
    Ok(rendered(body.into()))
}

/// An answer that rarely changes, but may: outcomes can be checked and corrected.
pub(super) fn changing(request: &HeaderMap, value: &impl Serialize) -> Answer<Response> {
    let body = serde_json::to_vec(value).map_err(|error| Failure::internal(&error))?;
    let rendered = Rendered::new(&sha256(&[&body]).0, Part::Detail, JSON, body);
    Ok(rendered.respond(request, false))
}

/// Whether the client wants bytes rather than JSON.
pub(super) fn wants_bytes(request: &HeaderMap) -> bool {
    let accept = request.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/octet-stream"))
}

/// Sets security headers, which every answer carries.
pub(super) fn secure(response: &mut Response) {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: HeaderValue| {
        headers.insert(name, value);
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    set(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
}
