//! Accounts. Validators supply balances with a proof, which is verified before it is shown.

use super::{
    App, Parts,
    problem::{Answer, Failure, Problems},
    query::{self, Name, Nothing, Params},
    respond::fresh,
};
use crate::{
    answers,
    index::{IndexError, TransactionPlace},
    shapes::{
        AccountDetail, AccountPage, AccountProof, AccountTransaction, Hex, LeafEntry, Number,
    },
    upstream::Upstream,
    verify::ProvenAccount,
};
use axum::{extract::State, response::Response};
use commonware_codec::Encode;
use quick_cache::sync::Cache;
use quorate_http::{Client, Permit, Resource};
use quorate_types::{Height, Identity, state_key};
use serde::Deserialize;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use utoipa::IntoParams;

/// How long a proof is reused before a newer one is requested.
const PROOF_LASTS: Duration = Duration::from_secs(1);

/// Number of cached proofs.
const MAX_PROOFS: usize = 1_024;

/// Maximum number of blocks by which a proven state may be behind the tip.
const MAX_PROOF_AGE: u64 = 256;

/// How long an upstream may take before the next one is also asked.
const HEDGE: Duration = Duration::from_millis(500);

/// Default of `limit`.
const DEFAULT_TRANSACTIONS: usize = 20;

/// Recently shown proofs.
pub(super) type ProofCache = Cache<Identity, (Instant, Arc<ProvenAccount>)>;

pub(super) fn proof_cache() -> ProofCache {
    Cache::new(MAX_PROOFS)
}

/// An account, with a proof of its state or of its absence.
///
/// Validators prove it with the next final header that contains their newest state, which takes a
/// few block times.
#[utoipa::path(get, path = "/v1/accounts/{identity}", operation_id = "account", tag = "accounts",
    params(("identity" = query::HashParameter, Path, description = "The account: an ed25519 public key")),
    responses((status = 200, body = AccountDetail), Problems))]
pub(super) async fn one(
    State(app): State<App>,
    client: Client,
    Name(identity): Name,
    Params(Nothing {}): Params<Nothing>,
) -> Answer<Response> {
    let identity = parse(&identity)?;
    let held = app.inner.proofs.get(&identity);
    if let Some((at, proven)) = held
        && at.elapsed() < PROOF_LASTS
    {
        return fresh(&detail(app.parts(), &identity, &proven));
    }
    let tip = app.parts().index.extent().map_or(0, |e| e.tip.height.0);
    let (_room, upstreams) = willing(&app, &client)?;
    let asking = app.clone();
    let proven = first_answer(upstreams, move |upstream| {
        let app = asking.clone();
        async move { prove(&app, &upstream, identity, tip).await }
    });
    let proven = proven.await.map(Arc::new).ok_or_else(|| {
        Failure::unavailable(
            "no_proof",
            "no validator has given a proof that verifies; try again",
        )
    })?;
    let proofs = &app.inner.proofs;
    proofs.insert(identity, (Instant::now(), proven.clone()));
    fresh(&detail(app.parts(), &identity, &proven))
}

/// A validator's proof of an account, if it gives one that verifies.
async fn prove(
    app: &App,
    upstream: &Upstream,
    identity: Identity,
    tip: u64,
) -> Option<ProvenAccount> {
    let answer = upstream.prove(&identity).await.ok()?;
    let guard = app.parts().guard.clone();
    let verified = tokio::task::spawn_blocking(move || guard.account(&identity, &answer));
    let proven = verified.await.ok()?.ok()?;
    // An old state is not a lie, but not what was requested.
    let state: Height = proven.header.executed_height;
    (state.0.saturating_add(MAX_PROOF_AGE) >= tip).then_some(proven)
}

/// The first answer from any of these upstreams. They are asked in order; the next one is asked as
/// soon as one has no answer, or has taken [`HEDGE`].
pub(super) async fn first_answer<T, F>(
    upstreams: Vec<Upstream>,
    ask: impl Fn(Upstream) -> F,
) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = Option<T>> + Send + 'static,
{
    let mut upstreams = upstreams.into_iter();
    // Dropping this cancels the requests still in flight.
    let mut asked = JoinSet::new();
    loop {
        let next = upstreams.next();
        let is_last = next.is_none();
        if let Some(upstream) = next {
            asked.spawn(ask(upstream));
        }
        let hedge = async {
            if is_last {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(HEDGE).await;
        };
        tokio::select! {
            answered = asked.join_next() => match answered {
                Some(Ok(Some(answer))) => return Some(answer),
                Some(_) => {}
                None if is_last => return None,
                None => {}
            },
            () = hedge => {}
        }
    }
}

fn detail(parts: &Parts, identity: &Identity, proven: &ProvenAccount) -> AccountDetail {
    let account = proven.account.clone().unwrap_or_default();
    let header = &proven.header;
    let proof = &proven.proof;
    AccountDetail {
        identity: (*identity).into(),
        exists: proven.account.is_some(),
        balance: Number(account.balance),
        nonce: Number(account.nonce),
        bond: account.bond.as_deref().map(answers::bond),
        jailed: account.bond.as_ref().and_then(|_| {
            let (state, _) = parts.checks.registry().ok()?;
            Some(state.bonds.get(identity)?.is_jailed(state.epoch))
        }),
        proof: AccountProof {
            key: state_key(identity).into(),
            value: proven
                .account
                .as_ref()
                .map(|account| Hex(account.encode().to_vec())),
            siblings: proof.siblings().iter().copied().map(Hex::from).collect(),
            leaf: proof
                .entries()
                .iter()
                .map(|entry| LeafEntry {
                    key: Hex(entry.key.to_vec()),
                    value: Hex(entry.value.clone()),
                })
                .collect(),
            encoded: answers::encoding(proof),
            anchor: answers::anchor(header, &proven.certificate),
            executed_height: Number(header.executed_height.0),
            root: header.state_root.into(),
            root_field: "state_root".to_owned(),
        },
    }
}

/// The upstreams that may be asked for one request, the followed one first. The returned permit
/// limits the number of such requests.
pub(super) fn willing(app: &App, client: &Client) -> Answer<(Permit, Vec<Upstream>)> {
    let room = client.take(Resource::Waiting, 1)?;
    let states = app.parts().hub.upstreams();
    let state = |upstream: &Upstream| {
        let found = states.iter().find(|state| state.url == upstream.url());
        found.map_or("standby", |found| found.state.as_str())
    };
    let mut upstreams = app.parts().upstreams.clone();
    upstreams.retain(|upstream| state(upstream) != "lying");
    upstreams.sort_by_key(|upstream| match state(upstream) {
        _ if upstream.has_failed() => 3,
        "following" => 0,
        "standby" => 1,
        _ => 2,
    });
    Ok((room, upstreams))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TransactionsQuery {
    /// Number of transactions, 1 to 100. Default: 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    /// Only transactions before this position: `HEIGHT.INDEX`.
    #[param(value_type = Option<query::PlaceParameter>)]
    before: Option<String>,
}

/// The transactions of an account in this explorer's history, newest first.
#[utoipa::path(get, path = "/v1/accounts/{identity}/transactions", operation_id = "account_transactions", tag = "accounts",
    params(("identity" = query::HashParameter, Path, description = "The account: an ed25519 public key"),
           TransactionsQuery),
    responses((status = 200, body = AccountPage), Problems))]
pub(super) async fn transactions(
    State(app): State<App>,
    Name(name): Name,
    Params(query): Params<TransactionsQuery>,
) -> Answer<Response> {
    let identity = parse(&name)?;
    let limit = query::limit(query.limit.as_ref(), DEFAULT_TRANSACTIONS)?;
    let before = query.before.as_deref().map(parse_place).transpose()?;
    let page = app.read(move |parts| {
        let places = parts.index.account(&identity, before, limit)?;
        let mut data = Vec::with_capacity(places.len());
        for found in &places {
            if let Some(transaction) =
                answers::transaction_at(&parts.index, &parts.checks, found.place)?
            {
                data.push(AccountTransaction {
                    transaction,
                    role: found.role.name().to_owned(),
                });
            }
        }
        let last = places.last().filter(|_| places.len() == limit);
        let next = last.map(|last| {
            let TransactionPlace { height, index } = last.place;
            format!("/v1/accounts/{identity}/transactions?limit={limit}&before={height}.{index}")
        });
        Ok::<_, IndexError>(AccountPage { data, next })
    });
    fresh(&page.await?)
}

pub(super) fn parse_place(text: &str) -> Answer<TransactionPlace> {
    let place = text.split_once('.').and_then(|(height, index)| {
        Some(TransactionPlace {
            height: Height(query::number(height)?),
            index: u32::try_from(query::number(index).filter(|index| *index < 1_000_000_000)?)
                .ok()?,
        })
    });
    place.ok_or_else(|| Failure::bad_request("`before` must be HEIGHT.INDEX"))
}

fn parse(identity: &str) -> Answer<Identity> {
    query::identity(identity)
        .ok_or_else(|| Failure::bad_request("an account is named by 64 hexadecimal digits"))
}
