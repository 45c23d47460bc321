//! The API while no part of the node serves it: while it opens its database, which can take a minute if it makes the
//! state of a large genesis file or repairs what a killed process left behind, and between state sync and what follows.

use super::error::RpcError;
use axum::{
    Json, Router,
    extract::Request,
    http::{HeaderValue, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};

/// Says that the process lives, and refuses everything else.
pub(crate) fn router(refusal: fn() -> RpcError) -> Router {
    let alive = get(|| async { Json(serde_json::json!({"alive": true})) });
    Router::new()
        .route("/v1/health", alive)
        .fallback(async move || refusal())
        .layer(from_fn(close))
}

/// The next request of this client is for what is served then.
async fn close(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}
