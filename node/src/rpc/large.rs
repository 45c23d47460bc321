//! Answers that may be large: made piece by piece, as the client takes them in.
//!
//! A client that does not read costs what is in memory of its answer, which counts against its
//! budget before the answer begins. So an answer that has begun is never refused half-way.

use super::{RpcParts, RpcState, error::RpcResult};
use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use quorate_http::{Client, Resource, pieces::holding};
use std::io;

/// Small pieces are gathered until they have so many bytes. An answer that has no more is sent
/// whole.
const GATHERED_BYTES: usize = 64 << 10;

/// Makes the next piece of an answer, on a blocking thread; `None` at its end.
type Pieces = Box<dyn FnMut(&RpcParts) -> RpcResult<Option<Vec<u8>>> + Send>;

/// An answer that is about to be made.
pub(super) struct Large {
    /// How many bytes the pieces hold in memory while they are sent, each piece included.
    held: usize,
    pieces: Pieces,
}

impl Large {
    /// A JSON text of `head`, items with commas between, and `tail`. Each item is made when it is
    /// its turn; it may be several values with commas between.
    pub(super) fn list(
        held: usize,
        head: String,
        mut items: impl FnMut(&RpcParts) -> RpcResult<Option<Vec<u8>>> + Send + 'static,
        tail: impl FnOnce() -> String + Send + 'static,
    ) -> Self {
        let mut head = Some(head);
        let mut tail = Some(tail);
        let pieces = move |parts: &RpcParts| {
            let Some(end) = tail.take() else {
                return Ok(None);
            };
            let begin = head.take();
            let Some(item) = items(parts)? else {
                return Ok(Some((begin.unwrap_or_default() + &end()).into_bytes()));
            };
            tail = Some(end);
            let mut piece = begin.map_or_else(|| vec![b','], String::into_bytes);
            piece.extend_from_slice(&item);
            Ok(Some(piece))
        };
        Self {
            held,
            pieces: Box::new(pieces),
        }
    }

    /// The next pieces together, and whether these are the last.
    fn gather(&mut self, parts: &RpcParts) -> RpcResult<(Vec<u8>, bool)> {
        let mut gathered = Vec::new();
        while gathered.len() < GATHERED_BYTES {
            match (self.pieces)(parts)? {
                Some(piece) if gathered.is_empty() => gathered = piece,
                Some(piece) => gathered.extend_from_slice(&piece),
                None => return Ok((gathered, true)),
            }
        }
        Ok((gathered, false))
    }
}

/// Answers with what `make` prepares, on a blocking thread.
pub(super) async fn answer(
    state: &RpcState,
    client: &Client,
    make: impl FnOnce(&RpcParts) -> RpcResult<Large> + Send + 'static,
) -> RpcResult<Response> {
    let prepare = move |parts: &RpcParts| {
        let mut large = make(parts)?;
        let (first, done) = large.gather(parts)?;
        Ok((large, first, done))
    };
    let (large, first, done) = state.reading(client, prepare).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    if done {
        // Whoever admits requests counts what is sent whole.
        return Ok((kind, first).into_response());
    }
    let room = client.take(Resource::Bytes, large.held + GATHERED_BYTES)?;
    let rest = Rest {
        state: state.clone(),
        client: client.clone(),
        large: Some(large),
    };
    let rest = stream::unfold((rest, Some(first)), async |(mut rest, first)| {
        let piece = match first {
            Some(first) => Ok(first),
            None => rest.next().await?,
        };
        Some((piece.map(Bytes::from), (rest, None)))
    });
    Ok((kind, holding(Body::from_stream(rest), room)).into_response())
}

/// What is still to come of an answer.
struct Rest {
    state: RpcState,
    client: Client,
    large: Option<Large>,
}

impl Rest {
    async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        let mut large = self.large.take()?;
        let make = move |parts: &RpcParts| {
            let (piece, done) = large.gather(parts)?;
            Ok((piece, (!done).then_some(large)))
        };
        match self.state.reading(&self.client, make).await {
            Ok((piece, large)) => {
                self.large = large;
                Some(Ok(piece))
            }
            // The answer has begun, so all that is left is to break it off.
            Err(error) => Some(Err(io::Error::other(format!("{error:?}")))),
        }
    }
}
