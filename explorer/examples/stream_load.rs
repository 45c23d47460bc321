//! Load test of streams: `stream_load URL 1000 100 20` opens 1,000 streams of an explorer, 100 of
//! which never read, for 20 seconds. It prints the number of events, the time between the first and
//! the last stream that received the same block, and the gaps. Built by `cargo build --release
//! --workspace --example stream_load`, into `examples` beside the binary.

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// When a height was first and last received, and by how many streams.
type Seen = Arc<Mutex<BTreeMap<u64, (Instant, Instant, usize)>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().ok_or("URL STREAMS SILENT SECONDS")?;
    let mut number = || arguments.next().and_then(|text| text.parse::<usize>().ok());
    let (streams, silent) = (number().unwrap_or(1_000), number().unwrap_or(0));
    let seconds = number().unwrap_or(20) as u64;
    let address = url.trim_start_matches("http://").to_owned();
    let seen = Seen::default();
    let gaps = Arc::new(Mutex::new(0_usize));
    let mut tasks = Vec::new();
    for place in 0..streams {
        let mut stream = TcpStream::connect(&address).await?;
        let request = format!("GET /v1/stream/sse HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        if !status.ends_with(b"200") {
            return Err(format!("stream {place}: {}", String::from_utf8_lossy(&status)).into());
        }
        let (seen, gaps) = (seen.clone(), gaps.clone());
        tasks.push(tokio::spawn(async move {
            if place < silent {
                std::future::pending::<()>().await;
            }
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "event: gap" {
                    *gaps.lock().expect("no panic") += 1;
                }
                let height = line.strip_prefix("id: ").and_then(|id| id.parse().ok());
                if let Some(height) = height {
                    let now = Instant::now();
                    let mut seen = seen.lock().expect("no panic");
                    let entry = seen.entry(height).or_insert((now, now, 0));
                    entry.1 = now;
                    entry.2 += 1;
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let seen = seen.lock().expect("no panic");
    let reading = streams - silent;
    let whole: Vec<_> = seen
        .values()
        .filter(|(.., count)| *count == reading)
        .collect();
    let mut spread: Vec<_> = whole
        .iter()
        .map(|(first, last, _)| *last - *first)
        .collect();
    spread.sort_unstable();
    let events: usize = seen.values().map(|(.., count)| count).sum();
    println!(
        "{streams} streams, {silent} silent: {events} events of {} blocks ({} to all); from the first \
         to the last stream p50 {:?}, p99 {:?}; {} gaps",
        seen.len(),
        whole.len(),
        spread.get(spread.len() / 2).copied().unwrap_or_default(),
        spread
            .get(spread.len() * 99 / 100)
            .copied()
            .unwrap_or_default(),
        gaps.lock().expect("no panic"),
    );
    Ok(())
}
