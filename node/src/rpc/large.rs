//! Responses that may be large, generated piece by piece as the client reads them.
//!
//! A client that does not read occupies only the memory of the pieces that are held, which is
//! charged to its budget before the response begins. So a response is never refused after it has
//! begun.

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

/// Small pieces are collected up to this many bytes. A response that is no larger is sent as a
/// whole.
const GATHERED_BYTES: usize = 64 << 10;

/// Generates the next piece of a response, on a blocking thread; `None` at the end.
type Pieces = Box<dyn FnMut(&RpcParts) -> RpcResult<Option<Vec<u8>>> + Send>;

/// A response before it is generated.
pub(super) struct Large {
    /// The number of bytes of memory held while sending, including the current piece.
    held: usize,
    pieces: Pieces,
}

impl Large {
    /// A JSON text that consists of `head`, comma-separated items, and `tail`. Each item is
    /// generated when it is sent; it may consist of several comma-separated values.
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

    /// Returns the next pieces as one, and whether they are the last.
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

/// Responds with what `make` prepares on a blocking thread.
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
        // Responses that are sent as a whole are already counted by request admission.
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

/// The remainder of a response.
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
            // The response has begun, so an error can only abort it.
            Err(error) => Some(Err(io::Error::other(format!("{error:?}")))),
        }
    }
}
