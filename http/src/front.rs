//! Checks before an interface's routes: the host name, and a time limit.

use crate::{Answers, Refusal, names};
use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
};
use std::{sync::Arc, time::Duration};

/// How an interface is served.
pub struct Front {
    /// Host names that it answers to, besides IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may read its answers.
    pub cors_origins: Vec<String>,
    /// How refusals are formatted.
    pub refuse: Answers,
}

/// Refuses requests for foreign host names (see DNS rebinding in `names`), and aborts a request
/// whose answer does not begin within the `limit`.
pub fn front(
    router: Router,
    front: Front,
    limit: impl Fn(&Request) -> Duration + Clone + Send + Sync + 'static,
) -> Router {
    let refuse = front.refuse;
    let hosts: Arc<[String]> = front.hosts.into();
    let limited = move |request: Request, next: Next| {
        let limit = limit(&request);
        async move {
            let answer = tokio::time::timeout(limit, next.run(request)).await;
            answer.unwrap_or_else(|_| refuse(&Refusal::Slow))
        }
    };
    let named = move |request: Request, next: Next| {
        let checked = names::check_host(&request, &hosts);
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(refusal) => refuse(&refusal),
            }
        }
    };
    router
        .layer(from_fn(limited))
        .layer(names::cors(&front.cors_origins))
        .layer(from_fn(named))
}
