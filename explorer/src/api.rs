//! The HTTP interface. `docs/EXPLORER.md` describes it for its users, `/v1/openapi.json` for
//! programs.
//!
//! RocksDB is read on a few blocking threads. Final data is rendered once and kept in memory up to
//! [`CACHE_BYTES`]. Connections, request heads, queries, streams and requests to validators are
//! bounded; above a bound the client gets an error that says so.

mod accounts;
mod blocks;
mod chain;
mod docs;
mod page;
mod problem;
mod query;
mod registry;
mod respond;
mod search;
mod server;
mod streams;
mod transactions;
mod validators;
mod views;

pub(crate) use server::serve;

use crate::{
    Config,
    check::Progress,
    hub::Hub,
    index::{Index, IndexError},
    metrics::Metrics,
    observe::Opinions,
    upstream::Upstream,
    verify::Guard,
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    middleware::Next,
    response::{IntoResponse as _, Response},
    routing::get,
};
use problem::{Answer, Failure};
use quorate_http::{Clients, Resource, announced_length};
use respond::Cache;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Maximum size of cached rendered answers.
const CACHE_BYTES: u64 = 64 << 20;

/// Concurrent requests that read the index; others wait.
const MAX_BLOCKING: usize = 8;

/// Maximum length of a query, in bytes.
const MAX_QUERY_BYTES: usize = 512;

/// The interface's shared state.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

/// The handles behind [`App`].
pub struct Parts {
    pub guard: Arc<Guard>,
    pub index: Index,
    pub hub: Arc<Hub>,
    pub opinions: Arc<Opinions>,
    /// The validators, for account proofs and pending transactions.
    pub upstreams: Vec<Upstream>,
    /// How far outcomes have been checked.
    pub checks: Arc<Progress>,
    pub metrics: Arc<Metrics>,
}

struct Inner {
    parts: Parts,
    cache: Cache,
    proofs: accounts::ProofCache,
    clients: Clients,
    blocking: Semaphore,
    stats: chain::StatsCache,
    registry: registry::RegistryCache,
    openapi: std::sync::OnceLock<String>,
}

impl App {
    pub fn new(parts: Parts, config: &Config) -> Self {
        Self {
            inner: Arc::new(Inner {
                cache: respond::cache(CACHE_BYTES),
                proofs: accounts::proof_cache(),
                blocking: Semaphore::new(MAX_BLOCKING),
                clients: Clients::new(server::limits(config)),
                stats: chain::StatsCache::default(),
                registry: registry::RegistryCache::default(),
                openapi: std::sync::OnceLock::new(),
                parts,
            }),
        }
    }

    fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    /// Reads the index on a blocking thread, with bounded concurrency.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Parts) -> Result<T, IndexError> + Send + 'static,
    ) -> Answer<T> {
        let permit = self.inner.blocking.acquire().await;
        let app = self.clone();
        let result = tokio::task::spawn_blocking(move || work(app.parts())).await;
        drop(permit);
        let result = result.map_err(|error| Failure::internal(&error))?;
        result.map_err(|error| Failure::internal(&error))
    }
}

/// General part of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Quorate explorer",
        description = "Final blocks of one chain, verified with its trust file, with what anybody needs \
        to verify them again. Numbers of 64 bits are decimal text, bytes are hexadecimal text after \
        `0x`. What is final never changes and may be cached for ever."
    ),
    components(schemas(
        query::BlockParameter,
        query::HashParameter,
        query::NumberParameter,
        query::PlaceParameter,
        query::TopicsParameter,
        query::ValidatorParameter,
    ))
)]
struct Document;

/// All routes and the OpenAPI document.
fn routes() -> (Router<App>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(blocks::list))
        .routes(routes!(blocks::one))
        .routes(routes!(blocks::certificate))
        .routes(routes!(blocks::transactions))
        .routes(routes!(transactions::list, transactions::submit))
        .routes(routes!(transactions::one))
        .routes(routes!(transactions::proof))
        .routes(routes!(accounts::one))
        .routes(routes!(accounts::transactions))
        .routes(routes!(views::one))
        .routes(routes!(validators::list))
        .routes(routes!(validators::one))
        .routes(routes!(validators::handovers))
        .routes(routes!(registry::registry))
        .routes(routes!(chain::status))
        .routes(routes!(chain::stats))
        .routes(routes!(chain::history))
        .routes(routes!(chain::trust))
        .routes(routes!(chain::bootstrap))
        .routes(routes!(search::search))
        .routes(routes!(streams::sse))
        .routes(routes!(streams::ws))
        .split_for_parts()
}

/// The OpenAPI document, as JSON.
pub fn openapi_json() -> String {
    let (_, document) = routes();
    document
        .to_pretty_json()
        .expect("the document has only text keys")
}

/// The OpenAPI document's schemas without its paths, as JSON. The web page's types are generated
/// from it.
pub fn schemas_json() -> String {
    let (_, mut document) = routes();
    document.paths = utoipa::openapi::Paths::new();
    document
        .to_pretty_json()
        .expect("the document has only text keys")
}

/// The complete service.
pub fn router(app: App) -> Router {
    let (routes, document) = routes();
    let json = document.to_json().expect("the document has only text keys");
    let _ = app.inner.openapi.set(json);
    let docs = docs::page(&document);
    let machine = |prefix: &str| {
        Router::new()
            .route(&format!("{prefix}/health"), get(chain::health))
            .route(&format!("{prefix}/ready"), get(chain::ready))
            .route(&format!("{prefix}/metrics"), get(chain::metrics))
    };
    Router::new()
        .merge(routes)
        .merge(machine(""))
        .merge(machine("/v1"))
        .route("/v1/openapi.json", get(chain::openapi))
        .route(
            "/docs",
            get(move || std::future::ready(docs::answer(docs.clone()))),
        )
        .route("/docs.css", get(docs::style))
        .fallback(page::serve)
        .method_not_allowed_fallback(|| async { Failure::method_not_allowed() })
        .layer(DefaultBodyLimit::max(transactions::MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard))
        .layer(axum::middleware::from_fn(quorate_http::hold_answers))
        .layer(CompressionLayer::new())
        .with_state(app)
}

/// Rejects overlong requests before anything else looks at them, counts requests, and sets
/// `nosniff` and other security headers on every answer.
async fn guard(
    axum::extract::State(app): axum::extract::State<App>,
    request: Request,
    next: Next,
) -> Response {
    let metrics = &app.parts().metrics;
    metrics.requests.inc();
    let length = request.uri().query().map_or(0, str::len);
    let body_length = announced_length(request.headers());
    let mut response = if length > MAX_QUERY_BYTES {
        Failure::bad_request(&format!("a query has at most {MAX_QUERY_BYTES} bytes"))
            .into_response()
    } else if body_length.is_some_and(|length| length > transactions::MAX_BODY_BYTES as u64) {
        let most = transactions::MAX_BODY_BYTES >> 10;
        Failure::bad_request(&format!("a body has at most {most} KiB")).into_response()
    } else {
        next.run(request).await
    };
    if response.status().is_server_error() {
        metrics.server_errors.inc();
    } else if response.status().is_client_error() {
        metrics.client_errors.inc();
    }
    respond::secure(&mut response);
    response
}

/// Number of open streams.
fn open_streams(app: &App) -> u32 {
    let parts = app.parts();
    let open = app.inner.clients.taken(Resource::Streams);
    parts.metrics.streams.set(i64::try_from(open).unwrap_or(0));
    u32::try_from(open).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_types_are_generated_from_these_schemas() {
        let generated = include_str!("../page/src/data/schema.ts");
        let named = generated
            .lines()
            .find_map(|line| line.strip_prefix("// SHA-256 of the schemas: "));
        let hash = quorate_crypto::sha256(&[schemas_json().as_bytes()]).to_string();
        assert_eq!(named, Some(hash.as_str()), "run `make page-types`");
    }
}
