//! Errors, as `application/problem+json` (RFC 9457).

use crate::shapes::Problem;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use quorate_http::Refusal;
use std::fmt::Display;
use utoipa::IntoResponses;

pub(super) type Answer<T> = Result<T, Failure>;

#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retry_after_seconds: Option<u32>,
}

/// The errors that any route may return, for the OpenAPI document.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(super) enum Problems {
    /// The request is malformed; `detail` says why.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(#[to_schema] Problem),
    /// There is no such resource.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(#[to_schema] Problem),
    /// Too many requests of this kind are in progress; `Retry-After` says when to retry.
    #[response(status = 429, content_type = "application/problem+json")]
    Busy(#[to_schema] Problem),
    /// An internal error; the explorer's log has the details.
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(#[to_schema] Problem),
    /// Not available yet, or no validator answers.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] Problem),
}

/// The error of routes into history, for the OpenAPI document.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(super) enum PrunedProblem {
    /// The requested data is older than this explorer's history.
    #[response(status = 410, content_type = "application/problem+json")]
    Pruned(#[to_schema] Problem),
}

impl Failure {
    fn new(status: StatusCode, code: &'static str, detail: &str) -> Self {
        Self {
            status,
            code,
            detail: detail.to_owned(),
            retry_after_seconds: None,
        }
    }

    pub(super) fn bad_request(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(super) fn not_found(code: &'static str, detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this interface is only read: GET and HEAD; signed transfers are posted to /v1/transactions",
        )
    }

    pub(super) fn pruned(detail: &str) -> Self {
        Self::new(StatusCode::GONE, "pruned", detail)
    }

    pub(super) fn unknown_name() -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown_host",
            "this explorer is not served under that name: ask it by its address, or start it with \
             --host NAME",
        )
    }

    pub(super) fn busy(detail: &str) -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail)
        }
    }

    pub(super) fn unavailable(code: &'static str, detail: &str) -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
        }
    }

    pub(super) fn too_slow() -> Self {
        Self::unavailable("timeout", "the answer took too long")
    }

    /// The cause is only logged: it contains file names, which clients must not see.
    pub(super) fn internal(error: &dyn Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the explorer has failed; its log tells why",
        )
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Slow => Self::too_slow(),
            Refusal::NoHost => Self::bad_request(&refusal.to_string()),
            Refusal::UnknownHost => Self::unknown_name(),
            busy => Self {
                retry_after_seconds: busy.retry_after_seconds(),
                ..Self::busy(&busy.to_string())
            },
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = Problem {
            kind: format!("/docs#{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            code: self.code.to_owned(),
            detail: self.detail,
        };
        let body = serde_json::to_vec(&problem).expect("a problem has only text keys");
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
