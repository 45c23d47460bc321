//! Listening, accepting, and the limits of a connection.

use crate::{
    Answers, BACKLOG, Clients, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, Refusal, SEND_BUFFER_BYTES,
    admit::{Admission, admit},
    arriving::IncomingBody,
    clients::ConnectionSlot,
    watched::Watched,
};
use axum::{
    Router,
    extract::ConnectInfo,
    http::{HeaderValue, header},
    response::Response,
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Semaphore, mpsc, watch},
};
use tower::ServiceExt as _;

/// Pause of the accept loop after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of refused clients that are sent an answer at the same time. Further ones are
/// only disconnected.
const MAX_FAREWELLS: usize = 32;

/// How long such a client may take to read the answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// Minimum time between two log lines about refused connections.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Listens on an address, with small kernel buffers for each connection.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How long requests in progress may take once no more are accepted.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Serves a router until `shutdown` resolves. Requests in progress are then still answered, for at most
/// 0.5 s, and each connection ends. The router must have [`crate::hold_answers`] as a
/// layer and must limit the size of bodies. Handlers find a request's [`crate::Client`] in its
/// extensions.
///
/// Requests that only read one of the paths in `always` are answered whatever all clients hold.
/// They take nothing, so what they read must be small and in memory.
pub async fn serve(
    listener: TcpListener,
    clients: Clients,
    router: Router,
    refuse: Answers,
    always: &'static [&'static str],
    shutdown: impl Future<Output = ()>,
) {
    let admission = Admission {
        clients: clients.clone(),
        refuse,
        always,
    };
    let router = router.layer(axum::middleware::from_fn_with_state(admission, admit));
    let mut refusing = Refusing::new(refuse);
    let mut shutdown = pin!(shutdown);
    let (closing, closed) = watch::channel(());
    // Each connection has a sender, so that the receiver ends with the last of them.
    let (open, mut all_ended) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The client has gone, or file descriptors have temporarily run out.
            Err(error) => {
                refusing.tell(&format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match clients.seat(peer.ip()) {
            Ok(seat) => {
                let router = router.clone();
                let serving = connection(
                    stream,
                    (peer, seat),
                    clients.clone(),
                    router,
                    closed.clone(),
                );
                let open = open.clone();
                tokio::spawn(async move {
                    serving.await;
                    drop(open);
                });
            }
            Err(refusal) => refusing.refuse(stream, peer.ip(), &refusal),
        }
    }
    drop((closing, open));
    let _ = tokio::time::timeout(LAST_ANSWERS, all_ended.recv()).await;
}

/// Serves one connection until it ends, is evicted, or reaches its maximum lifetime.
async fn connection(
    stream: TcpStream,
    (peer, seat): (SocketAddr, ConnectionSlot),
    clients: Clients,
    router: Router,
    mut closed: watch::Receiver<()>,
) {
    let times = clients.limits().times;
    let _ = stream.set_nodelay(true);
    let unread = Arc::new(AtomicBool::new(false));
    let unread_here = unread.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| IncomingBody::body(body, unread_here.clone()));
        request.extensions_mut().insert(ConnectInfo(peer));
        let (answer, unread) = (router.clone().oneshot(request), unread_here.clone());
        async move {
            let mut answer = answer.await?;
            // What is left of a body that nobody has read ends the connection.
            if unread.load(Ordering::Relaxed) {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let evicted = seat.evicted.clone();
    let evicted = async move { drop(evicted.acquire().await) };
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(times.head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEAD_FIELDS)
        .serve_connection(
            TokioIo::new(Watched::new(stream, times.stall, seat, unread)),
            service,
        )
        .with_upgrades();
    let (mut serving, mut evicted) = (pin!(serving), pin!(evicted));
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = &mut evicted => {
            tracing::debug!(%peer, "a connection has made room for another client");
            return;
        }
        () = async {
            // Its sender is dropped when the server ends.
            let ends = async { while closed.changed().await.is_ok() {} };
            let _ = tokio::time::timeout(times.life, ends).await;
        } => {
            serving.as_mut().graceful_shutdown();
            let limit = async {
                match times.last_answer {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = serving => ended,
                () = evicted => return,
                () = limit => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}

/// Refuses connections.
struct Refusing {
    answers: Answers,
    farewells: Arc<Semaphore>,
    told: Option<tokio::time::Instant>,
    untold: u64,
}

impl Refusing {
    fn new(answers: Answers) -> Self {
        Self {
            answers,
            farewells: Arc::new(Semaphore::new(MAX_FAREWELLS)),
            told: None,
            untold: 0,
        }
    }

    fn refuse(&mut self, stream: TcpStream, address: IpAddr, refusal: &Refusal) {
        self.tell(&format_args!("{address}: {refusal}"));
        if let Ok(permit) = self.farewells.clone().try_acquire_owned() {
            let response = (self.answers)(refusal);
            tokio::spawn(async move {
                let _ = tokio::time::timeout(FAREWELL, farewell(stream, response)).await;
                drop(permit);
            });
        }
    }

    /// Logs a line, rate-limited.
    fn tell(&mut self, what: &std::fmt::Arguments<'_>) {
        self.untold += 1;
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            tracing::warn!(times = self.untold, "a connection is refused: {what}");
            self.told = Some(tokio::time::Instant::now());
            self.untold = 0;
        }
    }
}

/// Answers any request with the refusal, and waits until the client has read it: closing a
/// connection with unread data makes the kernel reset it, and the answer is lost.
async fn farewell(mut stream: TcpStream, response: Response) {
    let (parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_HEAD_BYTES).await else {
        return;
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {}\r\ncontent-length: {length}\r\nconnection: close\r\n",
        parts.status
    )
    .into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            answer.extend_from_slice(part);
        }
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(&body);
    if stream.write_all(&answer).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 1_024];
    while stream.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
}
