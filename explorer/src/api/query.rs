//! Parsing of requests.

use super::problem::Failure;
use crate::shapes::Hex;
use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use quorate_types::{Digest, Identity};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

/// Query parameters. Unknown ones are rejected, so that typos are noticed.
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

/// No query parameters.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The last segment of the path.
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

/// Defines a parameter type for the OpenAPI document: a name, a pattern and an example.
macro_rules! parameter {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $example:literal) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .pattern(Some($pattern))
                    .examples([$example])
                    .into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

parameter! {
    /// A decimal number below 10^19.
    NumberParameter, "^(0|[1-9][0-9]{0,18})$", "1"
}
parameter! {
    /// A hash or an identity.
    HashParameter, "^(0x)?[0-9a-fA-F]{64}$",
    "0x0000000000000000000000000000000000000000000000000000000000000000"
}
parameter! {
    /// A block by its height, its id, or `latest`.
    BlockParameter, "^(latest|0|[1-9][0-9]{0,18}|(0x)?[0-9a-fA-F]{64})$", "latest"
}
parameter! {
    /// A validator by its index in the committee, or its identity.
    ValidatorParameter, "^(0|[1-9][0-9]{0,18}|(0x)?[0-9a-fA-F]{64})$", "0"
}
parameter! {
    /// A position in the chain: `HEIGHT.INDEX`.
    PlaceParameter, "^(0|[1-9][0-9]{0,18})[.](0|[1-9][0-9]{0,8})$", "7.0"
}
parameter! {
    /// Comma-separated topics.
    TopicsParameter,
    "^(finalized|notarized|nullified|stats)(,(finalized|notarized|nullified|stats)){0,7}$",
    "finalized,stats"
}

/// 32 bytes in hexadecimal, with or without `0x`.
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

/// A decimal number of at most 19 digits without sign or leading zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    (canonical && text.len() <= 19)
        .then(|| text.parse().ok())
        .flatten()
}

/// An optional number in a query.
pub(super) fn optional(name: &str, text: Option<&String>) -> Result<Option<u64>, Failure> {
    text.map(|text| {
        number(text).ok_or_else(|| {
            Failure::bad_request(&format!(
                "`{name}` must be a decimal number of at most 19 digits"
            ))
        })
    })
    .transpose()
}

/// The number of items: 1 to 100.
pub(super) fn limit(text: Option<&String>, default: usize) -> Result<usize, Failure> {
    match optional("limit", text)? {
        None => Ok(default),
        Some(limit @ 1..=100) => Ok(usize::try_from(limit).unwrap_or(default)),
        Some(_) => Err(Failure::bad_request("`limit` must be 1 to 100")),
    }
}
