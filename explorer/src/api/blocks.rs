use super::{
    App, Parts,
    problem::{Answer, Failure, Problems, PrunedProblem},
    query::{self, Name, Nothing, Params},
    respond::{OCTETS, Part, Rendered, changing, fresh, wants_bytes},
};
use crate::{
    answers,
    index::{Extent, IndexError},
    shapes::{BlockCertificate, BlockDetail, BlockPage, Number, TransactionPage},
};
use axum::{extract::State, http::HeaderMap, response::Response};
use commonware_codec::Encode;
use quorate_types::Height;
use serde::Deserialize;
use utoipa::IntoParams;

/// Default of `limit`.
const DEFAULT_BLOCKS: usize = 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Number of blocks, 1 to 100. Default: 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// Only blocks below this height, newest first.
    #[param(value_type = Option<query::NumberParameter>)]
    before: Option<String>,
    /// Only blocks above this height, oldest first, also in combination with `before`.
    #[param(value_type = Option<query::NumberParameter>)]
    after: Option<String>,
}

/// The newest blocks, or those below or above a height.
#[utoipa::path(get, path = "/v1/blocks", operation_id = "blocks", tag = "blocks", params(ListQuery),
    responses((status = 200, body = BlockPage), Problems, PrunedProblem))]
pub(super) async fn list(
    State(app): State<App>,
    Params(query): Params<ListQuery>,
) -> Answer<Response> {
    let limit = query::limit(query.limit.as_ref(), DEFAULT_BLOCKS)?;
    let before = query::optional("before", query.before.as_ref())?;
    let after = query::optional("after", query.after.as_ref())?;
    let extent = extent(&app)?;
    let (oldest, tip) = (extent.oldest.0, extent.tip.height.0);
    if before.is_some_and(|before| before <= oldest && oldest > 1 && before > 1) {
        return Err(pruned(&extent));
    }
    let count = limit as u64;
    let end = before.unwrap_or(u64::MAX).min(tip.saturating_add(1));
    let start = after.map_or(0, |after| after.saturating_add(1)).max(oldest);
    // Heights to show, and the page's first and last height in ascending order.
    let (low, high) = if after.is_some() {
        (start, start.saturating_add(count).min(end))
    } else {
        (end.saturating_sub(count).max(start), end)
    };
    let mut data = app
        .read(move |parts| {
            (low..high)
                .filter_map(|height| {
                    answers::summary(&parts.index, &parts.guard, Height(height)).transpose()
                })
                .collect::<Result<Vec<_>, IndexError>>()
        })
        .await?;
    // Both links keep the page's order, and neither page overlaps with this one.
    let shown = low < high;
    let (prev, next) = if after.is_some() {
        let bound = before.map_or(String::new(), |before| format!("&before={before}"));
        let next = (shown && high < end)
            .then(|| format!("/v1/blocks?limit={limit}&after={}{bound}", high - 1));
        let below = count.min(low.saturating_sub(oldest));
        let prev = (shown && below > 0)
            .then(|| format!("/v1/blocks?limit={below}&after={}", low - below - 1));
        (prev, next)
    } else {
        data.reverse();
        let next =
            (shown && low > oldest).then(|| format!("/v1/blocks?limit={limit}&before={low}"));
        let above = count.min((tip + 1).saturating_sub(high));
        let prev = (shown && above > 0)
            .then(|| format!("/v1/blocks?limit={above}&before={}", high + above));
        (prev, next)
    };
    fresh(&BlockPage {
        data,
        prev,
        next,
        tip: Number(tip),
    })
}

/// A block by its height, its id, or `latest`.
///
/// With `Accept: application/octet-stream`, returns the encoding: header, number of transactions,
/// transactions. The header's SHA-256 is the block's id.
#[utoipa::path(get, path = "/v1/blocks/{which}", operation_id = "block", tag = "blocks",
    params(("which" = query::BlockParameter, Path, description = "Height, id, or `latest`")),
    responses((status = 200, content((BlockDetail = "application/json"),
                                     (Vec<u8> = "application/octet-stream"))),
              (status = 304, description = "The client has it"), Problems, PrunedProblem))]
pub(super) async fn one(
    State(app): State<App>,
    Name(which): Name,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
) -> Answer<Response> {
    let part = if wants_bytes(&headers) {
        Part::Bytes
    } else {
        Part::Detail
    };
    serve(&app, &which, part, &headers).await
}

/// Proof that a block is final: its finalization, or a descendant's with the headers in between.
///
/// With `Accept: application/octet-stream`, returns the encoded finalization.
#[utoipa::path(get, path = "/v1/blocks/{which}/certificate", operation_id = "block_certificate", tag = "blocks",
    params(("which" = query::BlockParameter, Path, description = "Height, id, or `latest`")),
    responses((status = 200, content((BlockCertificate = "application/json"),
                                     (Vec<u8> = "application/octet-stream"))),
              (status = 304, description = "The client has it"), Problems, PrunedProblem))]
pub(super) async fn certificate(
    State(app): State<App>,
    Name(which): Name,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
) -> Answer<Response> {
    let part = if wants_bytes(&headers) {
        Part::CertificateBytes
    } else {
        Part::Certificate
    };
    serve(&app, &which, part, &headers).await
}

async fn serve(app: &App, which: &str, part: Part, headers: &HeaderMap) -> Answer<Response> {
    let height = resolve(app, which).await?;
    let fixed = which != "latest";
    if let Some(rendered) = app.inner.cache.get(&(height, part)) {
        return Ok(rendered.respond(headers, fixed));
    }
    let rendered = app
        .read(move |parts| render(parts, height, part))
        .await?
        .ok_or_else(|| Failure::internal(&format!("block {height} is missing")))?;
    app.inner.cache.insert((height, part), rendered.clone());
    Ok(rendered.respond(headers, fixed))
}

fn render(parts: &Parts, height: Height, part: Part) -> Result<Option<Rendered>, IndexError> {
    let (index, guard) = (&parts.index, &parts.guard);
    let Some(header) = answers::header(index, height)? else {
        return Ok(None);
    };
    let id = header.id().0;
    Ok(match part {
        Part::Detail => {
            answers::block(index, guard, height)?.map(|detail| Rendered::json(&id, part, &detail))
        }
        Part::Bytes => index
            .block_bytes(height)?
            .map(|bytes| Rendered::new(&id, part, OCTETS, bytes)),
        Part::Certificate => answers::certificate(index, guard, height)?
            .map(|certificate| Rendered::json(&id, part, &certificate)),
        Part::CertificateBytes => {
            let own = index.finality(height)?;
            let by = own.as_ref().map_or(height, |(by, _)| *by);
            let finalizer = index.finality(by)?;
            finalizer
                .and_then(|(_, certificate)| certificate)
                .map(|c| Rendered::new(&id, part, OCTETS, c.encode().to_vec()))
        }
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TransactionsQuery {
    /// Number of transactions, 1 to 100. Default: 100.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// Only transactions after this index in the block.
    #[param(value_type = Option<query::NumberParameter>)]
    after: Option<String>,
}

/// The transactions of a block, in order.
#[utoipa::path(get, path = "/v1/blocks/{which}/transactions", operation_id = "block_transactions", tag = "blocks",
    params(("which" = query::BlockParameter, Path, description = "Height, id, or `latest`"),
           TransactionsQuery),
    responses((status = 200, body = TransactionPage), Problems, PrunedProblem))]
pub(super) async fn transactions(
    State(app): State<App>,
    Name(which): Name,
    Params(query): Params<TransactionsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let limit = query::limit(query.limit.as_ref(), 100)?;
    let after = query::optional("after", query.after.as_ref())?;
    let height = resolve(&app, &which).await?;
    // No block holds so many transactions that an index does not fit.
    let first = after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX));
    let first = first.saturating_add(usize::from(after.is_some()));
    let page = app
        .read(move |parts| transactions_of(parts, height, first, limit))
        .await?
        .ok_or_else(|| Failure::internal(&format!("block {height} is missing")))?;
    changing(&headers, &page)
}

fn transactions_of(
    parts: &Parts,
    height: Height,
    first: usize,
    limit: usize,
) -> Result<Option<TransactionPage>, IndexError> {
    let Some(block) = parts.index.block(height)? else {
        return Ok(None);
    };
    let outcomes = parts.index.outcomes(height)?;
    let all = block.transactions().iter().zip(&outcomes).zip(0_u32..);
    let data: Vec<_> = all
        .skip(first)
        .take(limit)
        .map(|((transaction, outcome), index)| {
            answers::transaction(transaction, block.header(), index, *outcome, &parts.checks)
        })
        .collect();
    let last = data.last().map(|transaction| transaction.index);
    let total = block.transactions().len();
    let next = last
        .filter(|last| (*last as usize) + 1 < total)
        .map(|last| format!("/v1/blocks/{height}/transactions?limit={limit}&after={last}"));
    Ok(Some(TransactionPage {
        data,
        next,
        total: u32::try_from(total).unwrap_or(u32::MAX),
    }))
}

/// The range of blocks in the index, or an error if it is empty.
pub(super) fn extent(app: &App) -> Answer<Extent> {
    app.parts()
        .index
        .extent()
        .ok_or_else(|| Failure::unavailable("not_ready", "no final block has been verified yet"))
}

/// Resolves a height, id or `latest` to a height in the index.
async fn resolve(app: &App, which: &str) -> Answer<Height> {
    let extent = extent(app)?;
    if which == "latest" {
        return Ok(extent.tip.height);
    }
    if let Some(id) = query::digest(which) {
        let height = app.read(move |parts| parts.index.height_of(&id)).await?;
        return height
            .ok_or_else(|| Failure::not_found("unknown_block", "no final block has this id"));
    }
    let height = query::number(which).ok_or_else(|| {
        Failure::bad_request(
            "a block is named by its height, its id (64 hexadecimal digits), or `latest`",
        )
    })?;
    if height > extent.tip.height.0 || height == 0 {
        return Err(Failure::not_found(
            "unknown_block",
            &format!(
                "there is no final block {height}; the newest is {}",
                extent.tip.height
            ),
        ));
    }
    // History before a gap is still there.
    if height < extent.oldest.0 {
        let found = app.read(move |parts| answers::header(&parts.index, Height(height)));
        if found.await?.is_none() {
            return Err(pruned(&extent));
        }
    }
    Ok(Height(height))
}

fn pruned(extent: &Extent) -> Failure {
    Failure::pruned(&format!(
        "this explorer's history begins at block {}; ask one that keeps more",
        extent.oldest
    ))
}
