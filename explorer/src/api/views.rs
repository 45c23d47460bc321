use super::{
    App, Parts,
    blocks::extent,
    problem::{Answer, Failure, Problems, PrunedProblem},
    query::{self, Name, Params},
    respond::fresh,
};
use crate::{
    answers,
    index::IndexError,
    shapes::{Number, ViewDetail},
};
use axum::{extract::State, response::Response};
use quorate_types::{Epoch, View};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EpochQuery {
    /// The epoch. Default: the newest one.
    #[param(value_type = Option<query::NumberParameter>)]
    pub(super) epoch: Option<String>,
}

/// A view: its block, or how it ended without one.
#[utoipa::path(get, path = "/v1/views/{view}", operation_id = "view", tag = "views",
    params(("view" = query::NumberParameter, Path, description = "The view within the epoch"), EpochQuery),
    responses((status = 200, body = ViewDetail), Problems, PrunedProblem))]
pub(super) async fn one(
    State(app): State<App>,
    Name(view): Name,
    Params(query): Params<EpochQuery>,
) -> Answer<Response> {
    let extent = extent(&app)?;
    let epoch = query::optional("epoch", query.epoch.as_ref())?;
    let epoch = epoch.map_or(extent.tip.epoch, Epoch);
    let view = query::number(&view)
        .map(View)
        .ok_or_else(|| Failure::bad_request("a view is a decimal number of at most 19 digits"))?;
    let found = app.read(move |parts| find(parts, epoch, view)).await?;
    fresh(&found.ok_or_else(|| {
        Failure::not_found(
            "unknown_view",
            &format!("nothing final is known of view {epoch}.{view}"),
        )
    })?)
}

/// What is known about a view; `None` if it may still produce a block, or lies before the history.
pub(super) fn find(
    parts: &Parts,
    epoch: Epoch,
    view: View,
) -> Result<Option<ViewDetail>, IndexError> {
    let index = &parts.index;
    let mut detail = ViewDetail {
        epoch: Number(epoch.0),
        view: Number(view.0),
        leader: parts.guard.leader(epoch, view).0,
        state: "skipped".to_owned(),
        block: None,
        certificate: None,
        reason: None,
        source: "chain".to_owned(),
    };
    if let Some(height) = index.height_in(epoch, parts.guard.proposed_in(epoch, view))? {
        let certificate = index.finality(height)?.and_then(|(_, own)| own);
        detail.state = "finalized".to_owned();
        detail.block = answers::summary(index, &parts.guard, height)?;
        if let Some(certificate) = certificate {
            detail.certificate = Some(answers::encoding(&certificate));
            detail.source = "certificate".to_owned();
        }
        return Ok(Some(detail));
    }
    if let Some(nullified) = index.nullified(epoch, view)? {
        detail.state = "nullified".to_owned();
        detail.certificate = Some(answers::encoding(&nullified.certificate));
        detail.reason = Some(nullified.reason);
        detail.source = "certificate".to_owned();
        return Ok(Some(detail));
    }
    // A later block skips it if that block's parent was notarized in an earlier view.
    let Some(height) = index.next_in(epoch, view)? else {
        return Ok(None);
    };
    let later = answers::header(index, height)?;
    let passed = later.is_some_and(|later| later.parent_view < view && view.0 > 0);
    Ok(passed.then_some(detail))
}
