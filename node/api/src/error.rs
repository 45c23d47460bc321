//! The body of every error response.

use serde::{Deserialize, Serialize};

/// The body of every error response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// An error code for programs and a message for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A short, stable name.
    pub code: String,
    pub message: String,
}
