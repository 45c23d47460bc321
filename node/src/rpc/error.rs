//! Error responses of the API: a status, a code, a message.

use axum::{
    Json,
    extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use quorate_api::{ErrorBody, ErrorDetail};
use quorate_http::Refusal;
use quorate_storage::store::StoreError;
use std::fmt::Display;

pub(crate) type RpcResult<T> = Result<T, RpcError>;

#[derive(Debug)]
pub(crate) struct RpcError {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after_seconds: Option<u32>,
}

impl RpcError {
    fn new(status: StatusCode, code: &'static str, message: &str) -> Self {
        Self {
            status,
            code,
            message: message.to_owned(),
            retry_after_seconds: None,
        }
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn not_found(code: &'static str, message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this path takes another method",
        )
    }

    pub(crate) fn gone(message: &str) -> Self {
        Self::new(StatusCode::GONE, "pruned", message)
    }

    pub(crate) fn conflict(message: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "refused", message)
    }

    pub(crate) fn body_too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "a request's body has 1 MiB at most",
        )
    }

    pub(crate) fn unknown_name() -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown_host",
            "this validator is not served under that name: ask it by its address, or add the name \
             to `rpc.hosts`",
        )
    }

    pub(crate) fn busy(message: &str) -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message)
        }
    }

    pub(crate) fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "the body must be JSON, with `Content-Type: application/json`",
        )
    }

    pub(crate) fn not_octets() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_octets",
            "the body must be payloads, each with its length in four bytes ahead of it, with `Content-Type: \
             application/octet-stream`",
        )
    }

    pub(crate) fn orders_only() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "orders_only",
            "this chain moves no money: it orders payloads (POST /v1/payloads)",
        )
    }

    /// This part of the node ends, and with it what the request waits for.
    pub(crate) fn ending() -> Self {
        Self::unavailable(
            "stopping",
            "the node stops, or its parts are put together anew, as at a border between epochs: ask again",
        )
    }

    /// The database is not open yet.
    pub(crate) fn opening() -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::unavailable(
                "opening",
                "the node starts: it opens its database. A new one first gets the state of the genesis file, and the \
                 node's log tells how far that is",
            )
        }
    }

    pub(crate) fn unavailable(code: &'static str, message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            "the request took too long",
        )
    }

    pub(crate) fn internal(error: &impl Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the node could not answer; its log tells why",
        )
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                code: self.code.to_owned(),
                message: self.message,
            },
        };
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Refusal> for RpcError {
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

impl From<PathRejection> for RpcError {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(&rejection.body_text())
    }
}

impl From<BytesRejection> for RpcError {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::body_too_large(),
            _ => Self::bad_request("the request's body broke off"),
        }
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        Self::internal(&error)
    }
}

impl From<JsonRejection> for RpcError {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let code = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
            _ => "bad_json",
        };
        Self::new(status, code, &rejection.body_text())
    }
}

impl From<QueryRejection> for RpcError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), "bad_query", &rejection.body_text())
    }
}
