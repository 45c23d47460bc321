//! Which client a request belongs to, and what it holds while it is in progress.

use crate::{
    Client, Clients, FREE_BYTES, Permit, Refusal, Resource, address::forwarded_for,
    arriving::MeteredBody, pieces::holding,
};
use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use http_body::Body as _;
use parking_lot::Mutex;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// How an interface formats a refusal.
pub type Answers = fn(&Refusal) -> Response;

/// Admits requests.
#[derive(Clone)]
pub(crate) struct Admission {
    pub(crate) clients: Clients,
    pub(crate) refuse: Answers,
    /// Paths that are answered whatever others hold.
    pub(crate) always: &'static [&'static str],
}

/// What a request's body holds and, if reading it was refused, why.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) permit: Permit,
    pub(crate) refused: Option<Refusal>,
}

/// Marks an answer that has already taken its room, so that [`hold_answers`] takes none.
#[derive(Clone, Copy)]
struct Held;

/// Determines a request's client, takes a place for it, charges its body as it arrives, and adds
/// the [`Client`] to the request's extensions.
pub(crate) async fn admit(
    State(admission): State<Admission>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let address = admission.origin(peer.ip(), &request);
    let client = admission.clients.client(address);
    if let Ok(client) = &client {
        client.pace().await;
    }
    if admission.is_always_answered(&request) {
        // Nothing is charged; a body, if present, is not read.
        return next.run(request.map(|_| Body::empty())).await;
    }
    let client = match client {
        Ok(client) => client,
        Err(refusal) => return (admission.refuse)(&refusal),
    };
    let place = match client.take(Resource::Requests, 1) {
        Ok(place) => place,
        Err(refusal) => return (admission.refuse)(&refusal),
    };
    request.extensions_mut().insert(client.clone());
    request.extensions_mut().insert(admission.refuse);
    let room = Arc::<Mutex<Room>>::default();
    let limit = admission.clients.limits().times.body;
    let request = request.map(|body| MeteredBody::body(body, client, limit, room.clone()));
    let response = next.run(request).await;
    // The reader of the body sees only that it broke off.
    let refused = room.lock().refused.take();
    let response = match refused {
        Some(refusal) => (admission.refuse)(&refusal),
        None => response,
    };
    response.map(|body| holding(body, place))
}

/// Takes room for an answer until it is sent. Must be a layer directly above the handlers, because
/// an answer's length is no longer known once it is compressed. An answer of known length is in
/// memory; others account for their pieces themselves.
pub async fn hold_answers(request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Client>().cloned();
    let refuse = request.extensions().get::<Answers>().copied();
    let response = next.run(request).await;
    let (Some(client), Some(refuse)) = (client, refuse) else {
        return response;
    };
    if response.extensions().get::<Held>().is_some() {
        return response;
    }
    let length = response.body().size_hint().exact().unwrap_or(0);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length <= FREE_BYTES {
        return response;
    }
    match client.take(Resource::Bytes, length) {
        Ok(room) => response.map(|body| holding(body, room)),
        // The refusal is small, so it does not bypass the limit.
        Err(refusal) => refuse(&refusal),
    }
}

/// Marks an answer whose room was taken beforehand; it is always sent.
pub fn held(response: Response, room: Permit) -> Response {
    let mut response = response.map(|body| holding(body, room));
    response.extensions_mut().insert(Held);
    response
}

impl Admission {
    fn origin(&self, peer: IpAddr, request: &Request<Body>) -> IpAddr {
        let trusted = &self.clients.limits().trusted_proxies;
        if !trusted.contains(&peer.to_canonical()) {
            return peer;
        }
        forwarded_for(request.headers(), trusted).unwrap_or(peer)
    }

    fn is_always_answered(&self, request: &Request) -> bool {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        reads && self.always.contains(&request.uri().path())
    }
}

/// The request's client; the operator for handlers reached without [`admit`] (the control socket).
impl<S: Sync> axum::extract::FromRequestParts<S> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _state: &S,
    ) -> Result<Self, Self::Rejection> {
        let client = parts.extensions.get::<Self>();
        Ok(client.cloned().unwrap_or_else(Self::operator))
    }
}
