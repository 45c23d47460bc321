//! Streams of events, as server-sent events and over WebSocket.
//!
//! A stream that begins at a height first reads history from the index, then the ring of
//! [`crate::hub`]. Every final block is sent exactly once and in order, whichever explorer serves
//! the stream, because heights identify the events. If a client reads too slowly, the ring
//! overwrites unread events: the client is told which heights it has missed, and stays connected.

use super::{
    App,
    problem::{Answer, Failure, Problems},
    query::{self, Params},
};
use crate::{
    answers::{self, json},
    hub::{Event, Topic},
    shapes::{AccountTransaction, GapEvent, Number, PrunedEvent, StreamEvent, TransactionEvent},
};
use axum::{
    body::Body,
    extract::{
        State, WebSocketUpgrade,
        ws::{Message, Utf8Bytes, WebSocket, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use quorate_http::{Client, Place, Resource};
use quorate_types::{Height, Identity};
use serde::Deserialize;
use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::{broadcast, broadcast::error::RecvError};
use utoipa::IntoParams;

/// Number of historical blocks per read.
const HISTORY_BLOCKS: u64 = 32;

/// Interval of keep-alive messages on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a WebSocket client may read nothing of what is sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a WebSocket client's message; its content is ignored.
const MAX_CLIENT_MESSAGE_BYTES: usize = 4_096;

/// The content of a stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// A comma-separated list of `finalized`, `notarized`, `nullified` and `stats`. Default:
    /// `finalized`.
    #[param(value_type = Option<query::TopicsParameter>)]
    topics: Option<String>,
    /// The first height to send, at most 2^63. Default: only blocks that become final from now on.
    #[param(value_type = Option<query::NumberParameter>)]
    from_height: Option<String>,
    /// Only the transactions of this account, each as a `transaction` event. Replaces `topics`.
    #[param(value_type = Option<query::HashParameter>)]
    account: Option<String>,
}

/// Events as server-sent events. A final block's event has its height as id, so browsers resume
/// automatically with `Last-Event-ID`.
#[utoipa::path(get, path = "/v1/stream/sse", operation_id = "stream_sse", tag = "streams",
    params(StreamQuery,
           ("Last-Event-ID" = Option<query::NumberParameter>, Header, description = "The height that came last")),
    responses((status = 200, content_type = "text/event-stream", body = StreamEvent,
                description = "Events; `data` of each is one of these objects, named by `type` and by `event`"), Problems))]
pub(super) async fn sse(
    State(app): State<App>,
    client: Client,
    Params(query): Params<StreamQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let last = headers.get("last-event-id");
    let last = last
        .map(|last| {
            let number = last.to_str().ok().and_then(query::number);
            number.ok_or_else(|| Failure::bad_request("`Last-Event-ID` must be a height"))
        })
        .transpose()?;
    let reader = Reader::open(&app, &client, &query, last)?;
    let events = stream::unfold(reader, async |mut reader| {
        let chunk = match tokio::time::timeout(KEEP_ALIVE, reader.next()).await {
            Ok(event) => event?.sse(),
            Err(_) => Bytes::from_static(b": alive\n\n"),
        };
        Some((Ok::<_, Infallible>(chunk), reader))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (headers, Body::from_stream(events)).into_response();
    // Prevents buffering proxies from holding events back.
    let buffering = HeaderValue::from_static("no");
    response
        .headers_mut()
        .insert("x-accel-buffering", buffering);
    Ok(response)
}

/// Events over WebSocket, one JSON object in each text message.
#[utoipa::path(get, path = "/v1/stream/ws", operation_id = "stream_ws", tag = "streams", params(StreamQuery),
    responses((status = 101, description = "The connection is a WebSocket now; each text message is one of these objects", body = StreamEvent), Problems))]
pub(super) async fn ws(
    State(app): State<App>,
    client: Client,
    Params(query): Params<StreamQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade = upgrade.map_err(|rejection| Failure::bad_request(&rejection.body_text()))?;
    let reader = Reader::open(&app, &client, &query, None)?;
    Ok(upgrade
        .max_message_size(MAX_CLIENT_MESSAGE_BYTES)
        .max_frame_size(MAX_CLIENT_MESSAGE_BYTES)
        .on_upgrade(|socket| drive(socket, reader)))
}

async fn drive(mut socket: WebSocket, mut reader: Reader) {
    loop {
        let message = tokio::select! {
            event = reader.next() => match event {
                Some(event) => Message::Text(event.text()),
                None => return,
            },
            said = socket.recv() => match said {
                // The library answers pings; other messages are ignored.
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => Message::Ping(Bytes::new()),
        };
        match tokio::time::timeout(SEND_TIMEOUT, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// A message to send.
enum Item {
    Shared(Arc<Event>),
    Own { kind: &'static str, text: String },
}

impl Item {
    fn sse(self) -> Bytes {
        match self {
            Self::Shared(event) => event.sse.clone(),
            Self::Own { kind, text } => Bytes::from(format!("event: {kind}\ndata: {text}\n\n")),
        }
    }

    fn text(self) -> Utf8Bytes {
        match self {
            Self::Shared(event) => event.text.clone(),
            Self::Own { text, .. } => Utf8Bytes::from(text),
        }
    }
}

/// A stream's position in the events.
struct Reader {
    app: App,
    topics: Vec<Topic>,
    account: Option<Identity>,
    ring: broadcast::Receiver<Arc<Event>>,
    /// Historical events read but not sent yet.
    history: VecDeque<Item>,
    /// While reading history: the next height to read.
    reading: Option<Height>,
    /// A block in which the account's transactions are to be looked up.
    looking: Option<Height>,
    /// The height of the next event, if known.
    due: Option<Height>,
    place: Arc<Place>,
}

impl Reader {
    fn open(app: &App, client: &Client, query: &StreamQuery, last: Option<u64>) -> Answer<Self> {
        let account = query.account.as_deref().map(parse_account).transpose()?;
        if account.is_some() && query.topics.is_some() {
            return Err(Failure::bad_request("give `account` or `topics`, not both"));
        }
        let topics = parse_topics(query.topics.as_deref())?;
        let from = query::optional("from_height", query.from_height.as_ref())?;
        // What the browser has already received takes precedence over where the page began.
        let from = last.map(|last| last.saturating_add(1)).or(from);
        if from.is_some_and(|from| from > u64::MAX / 2) {
            return Err(Failure::bad_request("no chain is as long as `from_height`"));
        }
        let place = Arc::new(client.place(Resource::Streams)?);
        let finalized = topics.contains(&Topic::Finalized);
        let reading = from.filter(|_| finalized).map(|from| Height(from.max(1)));
        Ok(Self {
            ring: app.parts().hub.subscribe(),
            app: app.clone(),
            topics,
            account,
            history: VecDeque::new(),
            reading,
            looking: None,
            due: None,
            place,
        })
    }

    /// The next item to send; `None` if the explorer stops or another client needs this place.
    /// Cancel-safe.
    async fn next(&mut self) -> Option<Item> {
        let place = self.place.clone();
        place.until_gone(self.following()).await?
    }

    async fn following(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.history.pop_front() {
                return Some(item);
            }
            if let (Some(account), Some(height)) = (self.account, self.looking) {
                let found = self.own_transactions(account, height.0..=height.0).await?;
                self.looking = None;
                self.history.extend(found);
                continue;
            }
            if let Some(height) = self.reading {
                self.read_history(height).await?;
                continue;
            }
            match self.ring.recv().await {
                Ok(event) => {
                    if let Some(item) = self.take(event) {
                        return Some(item);
                    }
                }
                // The next final block shows which ones are missing.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The events of the account's transactions in a range of blocks.
    async fn own_transactions(
        &self,
        account: Identity,
        heights: std::ops::RangeInclusive<u64>,
    ) -> Option<Vec<Item>> {
        let found = self.app.read(move |parts| {
            let mut events = Vec::new();
            for height in heights {
                for found in parts.index.account_in(&account, Height(height))? {
                    let transaction =
                        answers::transaction_at(&parts.index, &parts.checks, found.place)?;
                    events.extend(transaction.map(|transaction| {
                        json(&TransactionEvent {
                            kind: "transaction".to_owned(),
                            transaction: AccountTransaction {
                                transaction,
                                role: found.role.name().to_owned(),
                            },
                        })
                    }));
                }
            }
            Ok(events)
        });
        let texts = found.await.ok()?.into_iter();
        let kind = "transaction";
        Some(texts.map(|text| Item::Own { kind, text }).collect())
    }

    /// Reads some blocks of history, or switches to the ring at its end.
    async fn read_history(&mut self, from: Height) -> Option<()> {
        let oldest = self.app.parts().index.extent().map(|extent| extent.oldest);
        if let Some(oldest) = oldest.filter(|oldest| from < *oldest) {
            self.reading = Some(oldest);
            let text = json(&PrunedEvent {
                kind: "pruned".to_owned(),
                oldest: Number(oldest.0),
            });
            self.history.push_back(Item::Own {
                kind: "pruned",
                text,
            });
            return Some(());
        }
        // Subscribes before reading the tip, so that all later blocks will be in the ring.
        let ring = self.app.parts().hub.subscribe();
        let tip = *self.app.parts().hub.tip().borrow();
        if from > tip {
            self.ring = ring;
            self.reading = None;
            self.due = Some(from);
            return Some(());
        }
        let to = Height(tip.0.min(from.0.saturating_add(HISTORY_BLOCKS - 1)));
        if let Some(account) = self.account {
            let found = self.own_transactions(account, from.0..=to.0).await?;
            self.history.extend(found);
            self.reading = Some(to.next());
            return Some(());
        }
        let events = self.app.read(move |parts| {
            (from.0..=to.0)
                .map(|height| answers::finalized_event(&parts.index, &parts.guard, Height(height)))
                .collect::<Result<Vec<_>, _>>()
        });
        // A failing index also stops the explorer.
        let events = events.await.ok()?;
        for (height, text) in (from.0..).zip(events) {
            let event = Event::new(Topic::Finalized, Some(Height(height)), text?);
            self.history.push_back(Item::Shared(Arc::new(event)));
        }
        self.reading = Some(to.next());
        Some(())
    }

    /// The item to send for an event of the ring.
    fn take(&mut self, event: Arc<Event>) -> Option<Item> {
        if !self.topics.contains(&event.topic) {
            return None;
        }
        let Some(height) = event.height else {
            return Some(Item::Shared(event));
        };
        let due = self.due.unwrap_or(height);
        if height < due {
            return None;
        }
        if self.account.is_some() {
            // Blocks that the stream missed are in the index.
            if height == due {
                self.looking = Some(height);
                self.due = Some(height.next());
            } else {
                self.reading = Some(due);
            }
            return None;
        }
        self.due = Some(height.next());
        if height == due {
            return Some(Item::Shared(event));
        }
        self.app.parts().metrics.stream_gaps.inc();
        let text = json(&GapEvent {
            kind: "gap".to_owned(),
            from: Number(due.0),
            to: Number(height.0 - 1),
        });
        self.history.push_back(Item::Shared(event));
        Some(Item::Own { kind: "gap", text })
    }
}

fn parse_account(text: &str) -> Answer<Identity> {
    query::identity(text).ok_or_else(|| Failure::bad_request("`account` is 64 hexadecimal digits"))
}

fn parse_topics(text: Option<&str>) -> Answer<Vec<Topic>> {
    let Some(text) = text else {
        return Ok(vec![Topic::Finalized]);
    };
    // One of each is enough; some duplicates are tolerated.
    if text.split(',').count() > 2 * Topic::ALL.len() {
        return Err(Failure::bad_request(
            "`topics` names each topic once at most",
        ));
    }
    text.split(',')
        .map(|name| {
            let topic = Topic::ALL.into_iter().find(|topic| topic.name() == name);
            topic.ok_or_else(|| {
                Failure::bad_request(
                    "`topics` are finalized, notarized, nullified and stats, with commas between",
                )
            })
        })
        .collect()
}
