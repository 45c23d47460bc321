//! Errors as the interface's users see them: a status, a code, a sentence.

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use quorate_load::api::{ErrorBody, ErrorDetail};
use quorate_storage::store::StoreError;
use std::fmt::Display;

pub(crate) type RpcResult<T> = Result<T, RpcError>;

#[derive(Debug)]
pub(crate) struct RpcError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl RpcError {
    fn new(status: StatusCode, code: &'static str, message: &str) -> Self {
        Self {
            status,
            code,
            message: message.to_owned(),
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

    pub(crate) fn busy(message: &str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message)
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
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
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
