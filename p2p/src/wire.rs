//! The network's runtime: the tokio runtime, except for the sockets and the clock (see
//! [`crate::clock`]).
//!
//! The runtime's own sockets have four problems. (1) They bind inside the library, which panics
//! when the address is in use. (2) They let the kernel buffer 4 MB of frames that a vote can no
//! longer overtake; here `TCP_NOTSENT_LOWAT` keeps unsent data in the library's queues, where
//! priorities work. (3) A peer that stops reading or goes silent holds its link for a minute. (4) A
//! failing `accept` (no file descriptors left) becomes a busy loop.

use crate::clock::steady_now;
use bytes::BufMut as _;
use commonware_runtime::{
    Clock, Error, Handle, IoBufMut, IoBufs, Listener, Metrics, Name, Network, Resolver, Sink,
    SinkOf, Spawner, Stream, StreamOf, Supervisor,
    signal::Signal,
    telemetry::metrics::{Metric, Registered},
    tokio::Context,
};
use governor::clock::{Clock as GovernorClock, ReasonablyRealtime};
use parking_lot::Mutex;
use rand::rand_core::{TryCryptoRng, TryRng};
use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt as _, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
    time::{sleep, timeout},
};

/// Size of each connection's read buffer: about 100 votes. Larger frames bypass it.
pub(crate) const READ_BUFFER_BYTES: usize = 16 << 10;

/// The kernel accepts more data from a connection when fewer bytes than this are unsent. Data below
/// this mark cannot be overtaken: 5 ms at 100 Mbit/s.
const UNSENT_LOW_WATER_BYTES: u32 = 64 << 10;

/// A connection yields to other tasks after this many bytes. Tokio would count 128 reads of any
/// size: with blocks coming in fast, a received vote then waited for 40 MiB of them.
const YIELD_BYTES: usize = 128 << 10;

/// Pause after a failed `accept`. The usual cause, no file descriptors left, does not go away at
/// once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// Time to connect.
    pub(crate) connect: Duration,
    /// Maximum time without receiving a byte.
    pub(crate) idle: Duration,
    /// Maximum time without a byte being accepted for sending.
    pub(crate) stall: Duration,
}

/// The runtime with this crate's sockets.
pub(crate) struct Wire {
    context: Context,
    patience: Patience,
    /// The socket that [`Network::bind`] returns, once.
    listener: Arc<Mutex<Option<WireListener>>>,
}

/// A listening socket, opened before the network starts.
pub(crate) struct WireListener {
    listener: TcpListener,
    patience: Patience,
    /// Dropped with the socket, which tells the holder of the other end that the address is free
    /// again.
    _closed: oneshot::Sender<Infallible>,
}

/// The sending half of a connection.
pub(crate) struct WireSink {
    half: OwnedWriteHalf,
    stall: Duration,
    usable: bool,
}

/// The receiving half of a connection.
pub(crate) struct WireStream {
    reader: BufReader<OwnedReadHalf>,
    idle: Duration,
    /// Bytes received since the last yield.
    unyielded_bytes: usize,
    usable: bool,
}

impl Wire {
    /// Wraps the runtime. The receiver resolves when the listening socket is closed.
    pub(crate) fn new(
        context: Context,
        listener: TcpListener,
        patience: Patience,
    ) -> (Self, oneshot::Receiver<Infallible>) {
        let (closed, when_closed) = oneshot::channel();
        let listener = WireListener {
            listener,
            patience,
            _closed: closed,
        };
        let wire = Self {
            context,
            patience,
            listener: Arc::new(Mutex::new(Some(listener))),
        };
        (wire, when_closed)
    }

    fn with(&self, context: Context) -> Self {
        Self {
            context,
            patience: self.patience,
            listener: self.listener.clone(),
        }
    }
}

/// Sets a connection's options and splits it into halves.
fn open(stream: TcpStream, patience: Patience) -> io::Result<(WireSink, WireStream)> {
    stream.set_nodelay(true)?;
    // A closed link is reset at once: its remaining frames are not needed, and a restarted node can
    // bind its address again.
    stream.set_zero_linger()?;
    socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_LOW_WATER_BYTES)?;
    let (read, write) = stream.into_split();
    let sink = WireSink {
        half: write,
        stall: patience.stall,
        usable: true,
    };
    let stream = WireStream {
        reader: BufReader::with_capacity(READ_BUFFER_BYTES, read),
        idle: patience.idle,
        unyielded_bytes: 0,
        usable: true,
    };
    Ok((sink, stream))
}

impl Network for Wire {
    type Listener = WireListener;

    async fn bind(&self, _: SocketAddr) -> Result<WireListener, Error> {
        self.listener.lock().take().ok_or(Error::BindFailed)
    }

    async fn dial(&self, address: SocketAddr) -> Result<(SinkOf<Self>, StreamOf<Self>), Error> {
        let stream = timeout(self.patience.connect, TcpStream::connect(address))
            .await
            .map_err(|_| Error::Timeout)?
            .map_err(|_| Error::ConnectionFailed)?;
        open(stream, self.patience).map_err(|_| Error::ConnectionFailed)
    }
}

impl Listener for WireListener {
    type Sink = WireSink;
    type Stream = WireStream;

    async fn accept(&mut self) -> Result<(SocketAddr, WireSink, WireStream), Error> {
        let accepted = self
            .listener
            .accept()
            .await
            .and_then(|(stream, address)| Ok((address, open(stream, self.patience)?)));
        match accepted {
            Ok((address, (sink, stream))) => {
                // A dual-stack socket reports 1.2.3.4 as ::ffff:1.2.3.4, which does not match the
                // list of peers.
                let ip = address.ip().to_canonical();
                Ok((SocketAddr::new(ip, address.port()), sink, stream))
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                Err(error.into())
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl WireSink {
    /// The timeout applies to each step, so that a large frame over a slow link is not a failure.
    async fn write_all(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match self.half.try_write(bytes) {
                Ok(0) => return Err(Error::SendFailed),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(self.stall, self.half.writable())
                        .await
                        .map_err(|_| Error::Timeout)?
                        .map_err(|_| Error::SendFailed)?;
                }
                Err(_) => return Err(Error::SendFailed),
            }
        }
        Ok(())
    }
}

impl Sink for WireSink {
    async fn send(&mut self, bytes: impl Into<IoBufs> + Send) -> Result<(), Error> {
        // Unusable until this send is complete, so a cancelled send poisons the link.
        if !std::mem::replace(&mut self.usable, false) {
            return Err(Error::Closed);
        }
        // Records are already one buffer; only the handshake's small messages are joined here.
        let bytes = bytes.into().coalesce();
        self.write_all(bytes.as_ref()).await?;
        self.usable = true;
        Ok(())
    }
}

impl Stream for WireStream {
    async fn recv(&mut self, length: usize) -> Result<IoBufs, Error> {
        if !std::mem::replace(&mut self.usable, false) {
            return Err(Error::Closed);
        }
        self.unyielded_bytes += length;
        if self.unyielded_bytes > YIELD_BYTES {
            self.unyielded_bytes = 0;
            tokio::task::yield_now().await;
        }
        let mut buffer = IoBufMut::with_capacity(length);
        if self.reader.buffer().len() >= length {
            buffer.put_slice(&self.reader.buffer()[..length]);
            tokio::io::AsyncBufReadExt::consume(&mut self.reader, length);
        }
        while buffer.len() < length {
            let missing = length - buffer.len();
            let mut rest = (&mut buffer).limit(missing);
            let read = timeout(self.idle, self.reader.read_buf(&mut rest))
                .await
                .map_err(|_| Error::Timeout)?
                .map_err(|_| Error::RecvFailed)?;
            if read == 0 {
                return Err(Error::RecvFailed);
            }
        }
        self.usable = true;
        Ok(IoBufs::from(buffer.freeze()))
    }

    fn peek(&self, max_length: usize) -> &[u8] {
        let buffered = self.reader.buffer();
        &buffered[..buffered.len().min(max_length)]
    }
}

impl Supervisor for Wire {
    fn name(&self) -> Name {
        self.context.name()
    }

    fn child(&self, label: &'static str) -> Self {
        self.with(self.context.child(label))
    }

    fn with_attribute(self, key: &'static str, value: impl fmt::Display) -> Self {
        let Self {
            context,
            patience,
            listener,
        } = self;
        Self {
            context: context.with_attribute(key, value),
            patience,
            listener,
        }
    }
}

impl Spawner for Wire {
    fn shared(mut self, blocking: bool) -> Self {
        self.context = self.context.shared(blocking);
        self
    }

    fn dedicated(mut self) -> Self {
        self.context = self.context.dedicated();
        self
    }

    fn spawn<F, Fut, T>(self, task: F) -> Handle<T>
    where
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let Self {
            context,
            patience,
            listener,
        } = self;
        context.spawn(move |context| {
            task(Self {
                context,
                patience,
                listener,
            })
        })
    }

    async fn stop(self, value: i32, limit: Option<Duration>) -> Result<(), Error> {
        self.context.stop(value, limit).await
    }

    fn stopped(&self) -> Signal {
        self.context.stopped()
    }
}

impl Metrics for Wire {
    fn register<N: Into<String>, H: Into<String>, M: Metric>(
        &self,
        name: N,
        help: H,
        metric: M,
    ) -> Registered<M> {
        self.context.register(name, help, metric)
    }

    fn encode(&self) -> String {
        self.context.encode()
    }
}

impl Resolver for Wire {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        self.context.resolve(host).await
    }
}

impl Clock for Wire {
    fn current(&self) -> SystemTime {
        steady_now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        sleep(duration)
    }

    fn sleep_until(
        &self,
        deadline: SystemTime,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        sleep(deadline.duration_since(steady_now()).unwrap_or_default())
    }
}

impl GovernorClock for Wire {
    type Instant = SystemTime;

    fn now(&self) -> SystemTime {
        steady_now()
    }
}

impl ReasonablyRealtime for Wire {}

impl TryRng for Wire {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.context.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.context.try_next_u64()
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), Infallible> {
        self.context.try_fill_bytes(destination)
    }
}

impl TryCryptoRng for Wire {}
