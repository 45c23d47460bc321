//! Request bodies. Received bytes are charged; bytes that are only announced are not.

use crate::{Client, FREE_BYTES, Refusal, Resource, admit::Room};
use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Sleep;

/// How fast unwanted bodies are read from each client: one piece of at most
/// [`crate::MAX_HEAD_BYTES`] after each pause, so about 1 MiB/s.
const UNWANTED_PAUSE: Duration = Duration::from_millis(16);

/// How much of an unwanted body is read. A longer one ends with its connection.
const UNWANTED_BYTES: usize = 1 << 20;

/// A request's body that notes whether it has been read to its end.
pub(crate) struct IncomingBody {
    body: Incoming,
    unread: Arc<AtomicBool>,
}

impl IncomingBody {
    pub(crate) fn body(body: Incoming, unread: Arc<AtomicBool>) -> Body {
        let ended = http_body::Body::is_end_stream(&body);
        unread.store(!ended, Ordering::Relaxed);
        match ended {
            true => Body::new(body),
            false => Body::new(Self { body, unread }),
        }
    }
}

impl http_body::Body for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.unread.store(false, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that takes room for each piece beyond [`FREE_BYTES`] as it arrives, until its request is
/// answered. It breaks off when there is no room or when it takes too long.
pub(crate) struct MeteredBody {
    body: Body,
    client: Client,
    limit: Duration,
    /// Bytes that may still arrive without taking room.
    free: usize,
    /// The deadline; set at the first wait for the client.
    end: Option<Pin<Box<Sleep>>>,
    room: Arc<Mutex<Room>>,
}

impl MeteredBody {
    pub(crate) fn body(
        body: Body,
        client: Client,
        limit: Duration,
        room: Arc<Mutex<Room>>,
    ) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        Body::new(Self {
            body,
            client,
            limit,
            free: FREE_BYTES,
            end: None,
            room,
        })
    }

    fn refuse(&self, refusal: Refusal) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.room.lock().refused = Some(refusal);
        Poll::Ready(Some(Err(axum::Error::new(refusal))))
    }
}

impl http_body::Body for MeteredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let limit = self.limit;
                let end = self
                    .end
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                return match end.as_mut().poll(cx) {
                    Poll::Ready(()) => self.refuse(Refusal::Slow),
                    Poll::Pending => Poll::Pending,
                };
            }
        };
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let charged = bytes.saturating_sub(self.free);
            self.free = self.free.saturating_sub(bytes);
            match self.client.take(Resource::Bytes, charged) {
                Ok(permit) => self.room.lock().permit.add(permit),
                Err(refusal) => return self.refuse(refusal),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The length of the body that a request announces.
pub fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(header::CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}

/// Reads and discards the body of a refused request. Otherwise the client could not read the
/// answer, because closing a connection with unread data makes the kernel reset it. One body per
/// client at a time, and slowly, so that a client that is always refused costs little.
pub async fn forget_body(client: &Client, body: Body) {
    let mut pieces = body.into_data_stream();
    let Some(_turn) = client.forgetting().await else {
        return;
    };
    let mut left = UNWANTED_BYTES;
    while let Some(Ok(piece)) = pieces.next().await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            return;
        }
        tokio::time::sleep(UNWANTED_PAUSE).await;
    }
}
