//! Search by number or hash.

use super::{
    App, Parts,
    problem::{Answer, Failure, Problems},
    query::{self, Params},
    respond::fresh,
    views,
};
use crate::{index::IndexError, shapes::SearchHit};
use axum::{extract::State, response::Response};
use quorate_types::{Digest, Identity, View};
use serde::Deserialize;
use utoipa::IntoParams;

/// Maximum length of the search text, in bytes.
const MAX_TEXT_BYTES: usize = 128;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchQuery {
    /// A number or 64 hexadecimal digits, at most 128 bytes.
    #[param(max_length = 128, example = "42")]
    q: String,
}

/// Everything that a number or a hash may refer to. 42 may be a height and a view.
#[utoipa::path(get, path = "/v1/search", operation_id = "search", tag = "search", params(SearchQuery),
    responses((status = 200, body = Vec<SearchHit>), Problems))]
pub(super) async fn search(
    State(app): State<App>,
    Params(query): Params<SearchQuery>,
) -> Answer<Response> {
    if query.q.len() > MAX_TEXT_BYTES {
        return Err(Failure::bad_request("`q` has at most 128 bytes"));
    }
    let text = query.q.trim().to_owned();
    let hits = app.read(move |parts| {
        if let Some(number) = query::number(&text) {
            return number_hits(parts, number);
        }
        match query::digest(&text) {
            Some(digest) => digest_hits(parts, &digest),
            None => Ok(Vec::new()),
        }
    });
    fresh(&hits.await?)
}

fn number_hits(parts: &Parts, number: u64) -> Result<Vec<SearchHit>, IndexError> {
    let mut hits = Vec::new();
    let Some(extent) = parts.index.extent() else {
        return Ok(hits);
    };
    if (extent.oldest.0..=extent.tip.height.0).contains(&number) {
        hits.push(hit(
            "block",
            format!("/v1/blocks/{number}"),
            format!("Block {number}"),
        ));
    }
    let epoch = extent.tip.epoch;
    if views::find(parts, epoch, View(number))?.is_some() {
        let href = format!("/v1/views/{number}?epoch={epoch}");
        hits.push(hit("view", href, format!("View {number} of epoch {epoch}")));
    }
    let size = parts.guard.verifier().newest().size() as u64;
    if number < size {
        let href = format!("/v1/validators/{number}");
        hits.push(hit("validator", href, format!("Validator {number}")));
    }
    Ok(hits)
}

fn digest_hits(parts: &Parts, digest: &Digest) -> Result<Vec<SearchHit>, IndexError> {
    let mut hits = Vec::new();
    if let Some(height) = parts.index.height_of(digest)? {
        hits.push(hit(
            "block",
            format!("/v1/blocks/0x{digest}"),
            format!("Block {height}"),
        ));
    }
    if let Some(place) = parts.index.transaction(digest)? {
        let label = format!("Transaction {} in block {}", place.index, place.height);
        hits.push(hit(
            "transaction",
            format!("/v1/transactions/0x{digest}"),
            label,
        ));
    }
    let identity = Identity(digest.0);
    if let Some(place) = parts.guard.verifier().newest().place(&identity) {
        let label = format!("Validator {place}");
        hits.push(hit("validator", format!("/v1/validators/{place}"), label));
    }
    if !parts.index.account(&identity, None, 1)?.is_empty() {
        let label = "Account with transactions".to_owned();
        hits.push(hit("account", format!("/v1/accounts/0x{digest}"), label));
    } else if hits.is_empty() {
        // Any key may be an account; its state is proven when it is opened.
        let label = "Account, if there is one".to_owned();
        hits.push(hit("account", format!("/v1/accounts/0x{digest}"), label));
    }
    Ok(hits)
}

fn hit(kind: &str, href: String, label: String) -> SearchHit {
    SearchHit {
        kind: kind.to_owned(),
        href,
        label,
    }
}
