//! Reading what requests ask for.

use super::problem::Failure;
use crate::shapes::Hex;
use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use quorate_types::{Digest, Identity};
use serde::de::DeserializeOwned;

/// The query's parameters. Unknown ones are refused, so that a misspelt one is noticed.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(Failure::bad_request(&rejection.body_text())),
        }
    }
}

/// No parameters at all.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The last part of the path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(rejection) => Err(Failure::bad_request(&rejection.body_text())),
        }
    }
}

/// Thirty-two bytes in hexadecimal, with or without `0x`.
fn bytes(text: &str) -> Option<Hex> {
    text.parse().ok().filter(|hex: &Hex| hex.0.len() == 32)
}

/// A hash in hexadecimal.
pub(super) fn digest(text: &str) -> Option<Digest> {
    bytes(text).and_then(|hex| hex.digest())
}

/// An identity in hexadecimal.
pub(super) fn identity(text: &str) -> Option<Identity> {
    bytes(text).and_then(|hex| hex.identity())
}

/// A decimal number of 64 bits without sign or superfluous zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

/// An optional number in a query.
pub(super) fn optional(name: &str, text: Option<&String>) -> Result<Option<u64>, Failure> {
    text.map(|text| {
        number(text).ok_or_else(|| {
            Failure::bad_request(&format!("`{name}` must be a decimal number below 2^64"))
        })
    })
    .transpose()
}

/// How many items: 1 to 100.
pub(super) fn limit(text: Option<&String>, default: usize) -> Result<usize, Failure> {
    match optional("limit", text)? {
        None => Ok(default),
        Some(limit @ 1..=100) => Ok(usize::try_from(limit).unwrap_or(default)),
        Some(_) => Err(Failure::bad_request("`limit` must be 1 to 100")),
    }
}
