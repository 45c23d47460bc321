use super::{
    App, Parts,
    blocks::extent,
    problem::{Answer, Failure, Problems},
    query::{self, Name, Params},
    respond::fresh,
    views::EpochQuery,
};
use crate::{
    answers,
    index::IndexError,
    shapes::{
        EvidenceItem, HandoverItem, Handovers, Hex, Number, Participation, ValidatorDetail,
        ValidatorSet,
    },
};
use axum::{extract::State, response::Response};
use quorate_crypto::bls::SchemeKind;
use quorate_types::{Epoch, Evidence, ValidatorIndex};
use serde::Deserialize;
use utoipa::IntoParams;

/// The validators of an epoch, with statistics of that epoch.
#[utoipa::path(get, path = "/v1/validators", operation_id = "validators", tag = "validators", params(EpochQuery),
    responses((status = 200, body = ValidatorSet), Problems))]
pub(super) async fn list(
    State(app): State<App>,
    Params(query): Params<EpochQuery>,
) -> Answer<Response> {
    let epoch = epoch(&app, &query)?;
    let set = app.read(move |parts| {
        let evidence = parts.index.evidence()?;
        let committee = parts.guard.verifier().committees().of(epoch);
        let data = committee
            .places()
            .map(|place| detail(parts, epoch, place, &evidence))
            .collect::<Result<_, IndexError>>()?;
        Ok(ValidatorSet {
            epoch: Number(epoch.0),
            scheme: parts.guard.trust().scheme.clone(),
            quorum: u32::try_from(committee.quorum()).unwrap_or(u32::MAX),
            data,
        })
    });
    fresh(&set.await?)
}

/// A validator by its index in the committee or its identity.
#[utoipa::path(get, path = "/v1/validators/{which}", operation_id = "validator", tag = "validators",
    params(("which" = query::ValidatorParameter, Path, description = "Place in the committee, or identity"), EpochQuery),
    responses((status = 200, body = ValidatorDetail), Problems))]
pub(super) async fn one(
    State(app): State<App>,
    Name(which): Name,
    Params(query): Params<EpochQuery>,
) -> Answer<Response> {
    let epoch = epoch(&app, &query)?;
    let committee = app.parts().guard.verifier().committees().of(epoch);
    let named = query::identity(&which).map(|identity| committee.place(&identity));
    let place = match named {
        Some(place) => place,
        None => {
            let number = query::number(&which).ok_or_else(|| {
                Failure::bad_request(
                    "a validator is named by its place or its identity (64 hexadecimal digits)",
                )
            })?;
            let place = u32::try_from(number).ok().map(ValidatorIndex);
            place.filter(|place| committee.identity(*place).is_some())
        }
    };
    let place = place.ok_or_else(|| {
        Failure::not_found(
            "unknown_validator",
            &format!("there are {} validators", committee.size()),
        )
    })?;
    let found = app.read(move |parts| detail(parts, epoch, place, &parts.index.evidence()?));
    fresh(&found.await?)
}

/// Number of characters of handovers from which on an answer takes no more of them.
const HANDOVERS_LENGTH: usize = 128 << 10;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AfterQuery {
    /// The epoch whose validators are known.
    #[param(value_type = query::NumberParameter)]
    after: String,
}

/// The changes of the validators after an epoch, with which a light client moves from a trust file's validators to
/// later ones: the oldest first, as many as fit; none if there are none.
#[utoipa::path(get, path = "/v1/handovers", operation_id = "handovers", tag = "validators", params(AfterQuery),
    responses((status = 200, body = Handovers), Problems))]
pub(super) async fn handovers(
    State(app): State<App>,
    Params(query): Params<AfterQuery>,
) -> Answer<Response> {
    let after = query::number(&query.after).map(Epoch);
    let after = after.ok_or_else(|| Failure::bad_request("`after` is the number of an epoch"))?;
    let newest = extent(&app)?.tip.epoch;
    let held = app.parts().guard.handovers(after, HANDOVERS_LENGTH);
    let handovers = held.into_iter().map(|(epoch, handover)| HandoverItem {
        epoch: epoch.0,
        handover,
    });
    fresh(&Handovers {
        epoch: newest.0,
        handovers: handovers.collect(),
    })
}

fn epoch(app: &App, query: &EpochQuery) -> Answer<Epoch> {
    let newest = extent(app)?.tip.epoch;
    let epoch = query::optional("epoch", query.epoch.as_ref())?.map_or(newest, Epoch);
    if epoch > newest {
        return Err(Failure::not_found(
            "unknown_epoch",
            &format!("the newest epoch with a final block is {newest}"),
        ));
    }
    Ok(epoch)
}

fn detail(
    parts: &Parts,
    epoch: Epoch,
    place: ValidatorIndex,
    evidence: &[Evidence],
) -> Result<ValidatorDetail, IndexError> {
    let member = parts.guard.member(epoch, place);
    let count = parts.index.leader_count(epoch, place)?;
    let opinion = parts.opinions.of(place.0);
    let (source, signed) = match parts.guard.verifier().scheme() {
        SchemeKind::BlsAggregate => ("certificate", Some(parts.index.signed(epoch, place)?)),
        SchemeKind::BlsThreshold => ("observed", None),
    };
    let bonds = parts.checks.registry().ok().map(|(state, _)| state);
    let held = bonds.as_ref().zip(member.as_ref());
    let held = held.and_then(|(state, (identity, _))| state.bonds.get(identity));
    let against = evidence.iter().filter(|pair| {
        let signer = (parts.guard).member(pair.first.subject.epoch, pair.first.signer);
        signer.map(|(identity, _)| identity) == member.as_ref().map(|(identity, _)| *identity)
    });
    Ok(ValidatorDetail {
        index: place.0,
        identity: member
            .as_ref()
            .map_or_else(Hex::default, |(identity, _)| (*identity).into()),
        vote_key: member
            .as_ref()
            .and_then(|(_, key)| key.parse().ok())
            .unwrap_or_default(),
        votes: 1,
        stake: held.map(|held| Number(held.bond.stake)),
        led: Number(count.led),
        blocks: Number(count.blocks),
        missed: Number(count.led.saturating_sub(count.blocks)),
        nullified: Number(parts.index.nullified_by(epoch, place)?),
        participation: Participation {
            source: source.to_owned(),
            signed: signed.map(|(signed, _)| Number(signed)),
            of: signed.map(|(_, of)| Number(of)),
            percent: signed
                .filter(|(_, of)| *of > 0)
                .map(|(signed, of)| signed as f64 * 100.0 / of as f64),
            last_vote: opinion.last_vote.map(position),
            newest_vote: parts.opinions.newest_vote().map(position),
        },
        evidence: against.map(item).collect(),
        blocked: parts.opinions.blocked(place.0),
    })
}

fn position((epoch, view): (u64, u64)) -> [Number; 2] {
    [Number(epoch), Number(view)]
}

fn item(pair: &Evidence) -> EvidenceItem {
    let subject = &pair.first.subject;
    EvidenceItem {
        id: pair.id().into(),
        validator: pair.first.signer.0,
        conflict: pair.conflict().map_or("none", |c| c.name()).to_owned(),
        epoch: Number(subject.epoch.0),
        view: Number(subject.view.0),
        hex: answers::encoding(pair),
    }
}
