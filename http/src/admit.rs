//! Whose request it is, and what it holds while it is under way.

use crate::{
    Client, Clients, FREE_BYTES, Permit, Refusal, Resource, address::forwarded_for,
    arriving::Arriving, pieces::holding,
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

/// How an interface words that it refuses something.
pub type Answers = fn(&Refusal) -> Response;

/// What admits requests.
#[derive(Clone)]
pub(crate) struct Admission {
    pub(crate) clients: Clients,
    pub(crate) refuse: Answers,
    /// Paths that are answered whatever others hold.
    pub(crate) always: &'static [&'static str],
}

/// What a request's body holds, and why no more of it was read, if so.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) permit: Permit,
    pub(crate) refused: Option<Refusal>,
}

/// An answer that has taken its room already, so that [`hold_answers`] takes none.
#[derive(Clone, Copy)]
struct Held;

/// Finds out whose request it is, takes a place for it, lets its body take room as it arrives, and
/// hands the [`Client`] on as the request's extension.
pub(crate) async fn admit(
    State(admission): State<Admission>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if admission.is_always_answered(&request) {
        // Without a client nothing is counted; the body, if there is one, is not read.
        return next.run(request.map(|_| Body::empty())).await;
    }
    let address = admission.origin(peer.ip(), &request);
    let client = match admission.clients.client(address) {
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
    let request = request.map(|body| Arriving::body(body, client, limit, room.clone()));
    let response = next.run(request).await;
    // Whoever reads the body knows only that it broke off.
    let refused = room.lock().refused.take();
    let response = match refused {
        Some(refusal) => (admission.refuse)(&refusal),
        None => response,
    };
    response.map(|body| holding(body, place))
}

/// Takes room for an answer until it is sent. A layer right above the handlers, since their answers'
/// length is no longer known when they are compressed. An answer whose length is known is in memory;
/// the others account for their pieces themselves.
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
        // It is small, so it is no way around the budget.
        Err(refusal) => refuse(&refusal),
    }
}

/// An answer whose room was taken beforehand: whatever happens, it is sent.
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

/// The answer's client, for handlers that are reached without [`admit`]: the operator's socket.
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
