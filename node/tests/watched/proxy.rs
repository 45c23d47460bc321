//! What is between an explorer and a validator: lets everything through, little, nothing, or something else.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
};

/// Bytes at a time, and what a slow one carries in a second.
const PIECE: usize = 4_096;
const SLOW_PIECES: u64 = 12;

/// So many hexadecimal digits in a row are an identifier, a block or a certificate.
const LONG_RUN: usize = 90;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Open,
    Slow,
    Shut,
    /// A digit of each answer's long hexadecimal texts is another one.
    Lying,
}

pub struct Proxy {
    way: Arc<AtomicU8>,
    pub url: String,
}

impl Proxy {
    pub async fn start(upstream: &str) -> Self {
        let upstream = upstream.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let way = Arc::new(AtomicU8::new(Way::Open as u8));
        let held = way.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&upstream).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(carry(from_client, to_server, Arc::new(AtomicU8::new(0))));
                tokio::spawn(carry(from_server, to_client, held.clone()));
            }
        });
        Self { way, url }
    }

    pub fn set(&self, way: Way) {
        self.way.store(way as u8, Relaxed);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Arc<AtomicU8>) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let is = |wanted: Way| way.load(Relaxed) == wanted as u8;
        while is(Way::Shut) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        if is(Way::Slow) {
            tokio::time::sleep(std::time::Duration::from_millis(1_000 / SLOW_PIECES)).await;
        }
        if is(Way::Lying) {
            lie(&mut piece[..length]);
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

fn lie(text: &mut [u8]) {
    let mut run = 0;
    for byte in text {
        run = if byte.is_ascii_hexdigit() { run + 1 } else { 0 };
        if run == LONG_RUN {
            *byte = if *byte == b'0' { b'1' } else { b'0' };
        }
    }
}
