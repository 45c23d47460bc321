//! A connection whose client must keep reading what it is sent, and can read its last answer.

use crate::clients::ConnectionSlot;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

/// Rate at which a client earns back patience: this many bytes per second of patience.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// How long the rest of an unread body is read and discarded, after the answer.
const LINGER: Duration = Duration::from_secs(2);

/// How fast: this much after each pause, so 4 MiB/s.
const LINGER_BYTES: usize = 64 << 10;
const LINGER_PAUSE: Duration = Duration::from_millis(16);

/// A stream whose writes fail once its client's patience budget is used up. Waiting for the client
/// spends it; reading by the client earns it back, up to the initial amount.
pub(crate) struct Watched {
    stream: TcpStream,
    limit: Duration,
    patience: Duration,
    waiting: Option<Waiting>,
    /// Resolves when the connection is evicted, even if it has since been upgraded to another
    /// protocol.
    evicted: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Whether a part of the last request's body has not been read.
    unread: Arc<AtomicBool>,
    lingering: Option<Lingering>,
    /// Held while the connection is open.
    _seat: ConnectionSlot,
}

struct Waiting {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

/// The end of a connection whose client still sends. Closing a connection with unread data makes
/// the kernel reset it, and the client may lose the answer. So the client is told that nothing more
/// comes, and what it sends is discarded until it has read the answer and closes, too.
struct Lingering {
    end: Pin<Box<Sleep>>,
    pause: Pin<Box<Sleep>>,
    discarded: Box<[u8]>,
}

impl Lingering {
    fn new() -> Self {
        Self {
            end: Box::pin(tokio::time::sleep(LINGER)),
            pause: Box::pin(tokio::time::sleep(Duration::ZERO)),
            discarded: vec![0; LINGER_BYTES].into(),
        }
    }

    fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            ready!(self.pause.as_mut().poll(cx));
            let mut buffer = ReadBuf::new(&mut self.discarded);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
            self.pause.as_mut().reset(Instant::now() + LINGER_PAUSE);
        }
    }
}

impl Watched {
    pub(crate) fn new(
        stream: TcpStream,
        limit: Duration,
        seat: ConnectionSlot,
        unread: Arc<AtomicBool>,
    ) -> Self {
        let evicted = seat.evicted.clone();
        Self {
            stream,
            limit,
            patience: limit,
            waiting: None,
            evicted: Some(Box::pin(async move { drop(evicted.acquire().await) })),
            unread,
            lingering: None,
            _seat: seat,
        }
    }

    fn wrote(&mut self, bytes: usize) {
        if let Some(waiting) = self.waiting.take() {
            self.patience = self.patience.saturating_sub(waiting.since.elapsed());
        }
        let micros = (bytes as u64).saturating_mul(1_000_000) / BYTES_PER_SECOND;
        let earned = Duration::from_micros(micros);
        self.patience = self.patience.saturating_add(earned).min(self.limit);
    }

    /// Called while the client reads nothing.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: Instant::now(),
            end: Box::pin(tokio::time::sleep(patience)),
        });
        ready!(waiting.end.as_mut().poll(cx));
        let message = "the client does not take in its answer";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }

    fn after(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.wrote(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.wait(cx),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let evicted = match &mut self.evicted {
            Some(evicted) => evicted.as_mut().poll(cx).is_ready(),
            None => true,
        };
        if evicted {
            self.evicted = None;
            let message = "the connection makes room for another client";
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                message,
            )));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after(cx, written)
    }

    /// Makes the server copy what it writes into its own small buffer: a slice of a large answer
    /// would keep all of it in memory.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = this.lingering.get_or_insert_with(Lingering::new);
        lingering.poll(&mut this.stream, cx).map(Ok)
    }
}
