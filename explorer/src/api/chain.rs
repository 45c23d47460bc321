//! The chain as a whole, and the explorer's status.

use super::{
    App,
    blocks::extent,
    open_streams,
    problem::{Answer, Failure, Problems},
    query::{self, Nothing, Params},
    respond::{fresh, rendered},
};
use crate::{
    answers,
    index::{Period, Sums},
    shapes::{Bootstrap, ChainInfo, History, HistoryPoint, Number, Stats, Status, Tip, Totals},
};
use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use utoipa::IntoParams;

/// Supported windows of the statistics.
const WINDOWS: [(&str, Duration); 3] = [
    ("1m", Duration::from_secs(60)),
    ("10m", Duration::from_secs(600)),
    ("1h", Duration::from_secs(3_600)),
];

/// The explorer's status.
#[utoipa::path(get, path = "/v1/status", operation_id = "status", tag = "chain",
    responses((status = 200, body = Status), Problems))]
pub(super) async fn status(
    State(app): State<App>,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    let parts = app.parts();
    let trust = parts.guard.trust();
    let extent = parts.index.extent();
    let age = parts
        .hub
        .tip_age()
        .unwrap_or_else(|| parts.hub.started().elapsed());
    let (claimed, caught_up) = parts.hub.claimed();
    let height = extent.map_or(0, |extent| extent.tip.height.0);
    let transactions = app.read(|parts| parts.index.transaction_count()).await?;
    let executed = parts.checks.totals();
    fresh(&Status {
        chain: ChainInfo {
            name: trust.name.clone(),
            chain_id: trust.chain_id.0.into(),
            scheme: trust.scheme.clone(),
            protocol: trust.protocol.name().to_owned(),
            validators: u32::try_from(trust.validators.len()).unwrap_or(u32::MAX),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tip: extent.map(|extent| Tip {
            height: Number(height),
            id: extent.tip.id().into(),
            epoch: Number(extent.tip.epoch.0),
            view: Number(extent.tip.view.0),
            age_ms: millis(age),
        }),
        oldest: extent.map(|extent| Number(extent.oldest.0)),
        lag: Number(claimed.0.saturating_sub(height)),
        caught_up: caught_up && parts.hub.followed().is_some(),
        patience_ms: millis(parts.hub.patience()),
        totals: Totals {
            transactions: Number(transactions),
            accounts: executed.map(|(accounts, _)| Number(accounts)),
            supply: executed.map(|(_, supply)| Number(supply)),
        },
        outcomes: parts.checks.shown(),
        upstreams: parts.hub.upstreams(),
        uptime_ms: millis(parts.hub.started().elapsed()),
        streams: open_streams(&app),
    })
}

fn millis(duration: Duration) -> Number {
    Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsQuery {
    /// `1m`, `10m` or `1h`. Default: `1m`.
    #[param(pattern = "^(1m|10m|1h)$", example = "1m")]
    window: Option<String>,
}

/// Statistics of the newest blocks, by this explorer's own clock.
#[utoipa::path(get, path = "/v1/stats", operation_id = "stats", tag = "chain", params(StatsQuery),
    responses((status = 200, body = Stats), Problems))]
pub(super) async fn stats(
    State(app): State<App>,
    Params(query): Params<StatsQuery>,
) -> Answer<Response> {
    let asked = query.window.as_deref().unwrap_or("1m");
    let place = WINDOWS.iter().position(|(name, _)| *name == asked);
    let place = place.ok_or_else(|| Failure::bad_request("`window` must be 1m, 10m or 1h"))?;
    let (name, window) = WINDOWS[place];
    // One request computes the statistics; concurrent requests wait for the result.
    let mut held = app.inner.stats.held[place].lock().await;
    if let Some((at, body)) = &*held
        && at.elapsed() < STATS_LAST
    {
        return Ok(rendered(body.clone()));
    }
    let stats = app
        .read(move |parts| Ok(parts.hub.stats(name, window)))
        .await?;
    let body = serde_json::to_vec(&stats).map_err(|error| Failure::internal(&error))?;
    let body = Bytes::from(body);
    *held = Some((Instant::now(), body.clone()));
    Ok(rendered(body))
}

/// How long statistics are reused; no figure changes much in that time.
const STATS_LAST: Duration = Duration::from_millis(100);

/// The last statistics, by window.
#[derive(Default)]
pub(super) struct StatsCache {
    held: [tokio::sync::Mutex<Option<(Instant, Bytes)>>; WINDOWS.len()],
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// `minute`, `hour` or `day`. Default: `hour`.
    #[param(pattern = "^(minute|hour|day)$", example = "hour")]
    step: Option<String>,
    /// Number of periods up to the newest block, 1 to 1,000. Default: 168.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// Number of blocks and transactions in each minute, hour or day, by the leaders' clocks.
#[utoipa::path(get, path = "/v1/history", operation_id = "history", tag = "chain", params(HistoryQuery),
    responses((status = 200, body = History), Problems))]
pub(super) async fn history(
    State(app): State<App>,
    Params(query): Params<HistoryQuery>,
) -> Answer<Response> {
    let name = query.step.as_deref().unwrap_or("hour");
    let period = Period::ALL.into_iter().find(|one| one.name() == name);
    let period =
        period.ok_or_else(|| Failure::bad_request("`step` must be minute, hour or day"))?;
    let limit = match query::optional("limit", query.limit.as_ref())? {
        None => 168,
        Some(limit @ 1..=1_000) => limit,
        Some(_) => return Err(Failure::bad_request("`limit` must be 1 to 1000")),
    };
    let until = extent(&app)?.tip.timestamp_ms;
    let found = app.read(move |parts| parts.index.history(period, until, limit));
    let point = |(time_ms, sums): (u64, Sums)| HistoryPoint {
        time_ms: Number(time_ms),
        blocks: Number(sums.blocks),
        transactions: Number(sums.transactions),
        bytes: Number(sums.bytes),
    };
    fresh(&History {
        step: period.name().to_owned(),
        step_ms: Number(period.millis()),
        data: found.await?.into_iter().map(point).collect(),
    })
}

/// The trust file with which everything here was verified.
#[utoipa::path(get, path = "/v1/trust", operation_id = "trust", tag = "chain",
    responses((status = 200, body = Object, description = "The trust file's content"), Problems))]
pub(super) async fn trust(
    State(app): State<App>,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    fresh(app.parts().guard.trust())
}

/// The starting point of a light client: the trust file's content and the newest final header.
#[utoipa::path(get, path = "/v1/light/bootstrap", operation_id = "light_bootstrap", tag = "chain",
    responses((status = 200, body = Bootstrap), Problems))]
pub(super) async fn bootstrap(
    State(app): State<App>,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    extent(&app)?;
    let latest = app.read(|parts| answers::latest(&parts.index)).await?;
    let latest = latest.ok_or_else(|| Failure::internal(&"the newest block is missing"))?;
    let trust: Value = serde_json::to_value(app.parts().guard.trust())
        .map_err(|error| Failure::internal(&error))?;
    fresh(&Bootstrap { trust, latest })
}

/// Liveness: the process is running.
pub(super) async fn health() -> Json<Value> {
    Json(json!({"alive": true}))
}

/// Readiness: the newest block is recent, and none is missing.
pub(super) async fn ready(State(app): State<App>) -> Answer<Json<Value>> {
    let extent = extent(&app)?;
    let hub = &app.parts().hub;
    let patience = hub.patience();
    let age = hub.tip_age().filter(|age| *age <= patience);
    let (_, caught_up) = hub.claimed();
    if age.is_none() || !caught_up {
        return Err(Failure::unavailable(
            "not_ready",
            &format!(
                "the newest block that was verified is {}; {}",
                extent.tip.height,
                if caught_up {
                    format!("nothing came after it for {} s", patience.as_secs())
                } else {
                    "more are being fetched".to_owned()
                }
            ),
        ));
    }
    Ok(Json(
        json!({"ready": true, "height": extent.tip.height.to_string()}),
    ))
}

pub(super) async fn metrics(State(app): State<App>) -> Response {
    let parts = app.parts();
    let metrics = &parts.metrics;
    let as_i64 = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    open_streams(&app);
    let height = parts.index.extent().map_or(0, |extent| extent.tip.height.0);
    metrics.tip_height.set(as_i64(height));
    metrics.claimed_height.set(as_i64(parts.hub.claimed().0.0));
    let age = parts.hub.tip_age().unwrap_or_default();
    metrics.tip_age_seconds.set(age.as_secs_f64());
    let upstreams = parts.hub.upstreams();
    let lying = upstreams
        .iter()
        .filter(|upstream| upstream.state == "lying");
    metrics.lying_upstreams.set(as_i64(lying.count() as u64));
    let diverged = parts.checks.shown().diverged_at.is_some();
    metrics.diverged.set(i64::from(diverged));
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, metrics.text()).into_response()
}

/// The OpenAPI document.
pub(super) async fn openapi(State(app): State<App>) -> Response {
    let text = app.inner.openapi.get().cloned().unwrap_or_default();
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, text).into_response()
}
