//! Response bodies in small frames: a slow client ties up only the part of its answer that is in
//! memory, and holds a permit for it.

use crate::{MAX_FRAME_BYTES, Permit};
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A body that is sent in frames of [`MAX_FRAME_BYTES`] and holds a permit until its last byte is
/// handed over or the client is gone.
pub fn holding(body: Body, permit: Permit) -> Body {
    Body::new(Holding {
        body,
        rest: Bytes::new(),
        _permit: permit,
    })
}

struct Holding {
    body: Body,
    /// Bytes of the body that are not handed over yet.
    rest: Bytes,
    _permit: Permit,
}

impl http_body::Body for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(MAX_FRAME_BYTES);
        let next = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(rest));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, stream};

    #[tokio::test]
    async fn a_body_goes_out_in_small_frames_and_an_error_ends_it() {
        let piece = Bytes::from(vec![7; 2 * MAX_FRAME_BYTES + 5]);
        let pieces = stream::iter([Ok(piece), Ok(Bytes::from_static(b"end")), Err("broken")]);
        let body = holding(Body::from_stream(pieces), Permit::default());
        let mut frames = body.into_data_stream();
        let mut lengths = Vec::new();
        while let Some(Ok(frame)) = frames.next().await {
            lengths.push(frame.len());
        }
        assert_eq!(lengths, [MAX_FRAME_BYTES, MAX_FRAME_BYTES, 5, 3]);
    }

    #[test]
    fn its_length_is_known_beforehand() {
        let body = holding(Body::from(vec![7; 3 * MAX_FRAME_BYTES]), Permit::default());
        let expected = Some(3 * MAX_FRAME_BYTES as u64);
        assert_eq!(http_body::Body::size_hint(&body).exact(), expected);
    }
}
