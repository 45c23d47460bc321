//! What stands before an interface's routes: under which name it is asked, and for how long.

use crate::{Answers, Refusal, names};
use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
};
use std::{sync::Arc, time::Duration};

/// How an interface is served.
pub struct Front {
    /// Names under which it is asked, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may read its answers.
    pub cors_origins: Vec<String>,
    /// How it words what is refused here.
    pub refuse: Answers,
}

/// Refuses requests under foreign names, which are those of a rebound browser, and ends a request that
/// takes longer than `limit` says, until its answer begins.
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
