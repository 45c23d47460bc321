//! Measures the cost of a link between two nodes on the loopback interface. Prints one JSON line.
//!
//! ```text
//! cargo run --release -p quorate-p2p --example link_cost
//! ```
//!
//! CPU time is that of the whole process, that is of both ends, less its idle consumption.

use bytes::Bytes;
use commonware_runtime::{
    Runner as _, Supervisor as _,
    tokio::{Config as RuntimeConfig, Context, Runner},
};
use prometheus::Registry;
use quorate_crypto::{Identity, SecretKey};
use quorate_p2p::{Config, DEFAULT_FRAME_BYTES, Lane, Links, Running, Timing, To, start_on};
use std::{
    error::Error,
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::sleep};

const SMALL_BYTES: usize = 100;
const ROUND_TRIPS: usize = 5_000;
const PACED_ROUND_TRIPS: usize = 1_000;
const PACE: Duration = Duration::from_millis(2);
const PACED_MESSAGES: u64 = 10_000;
const BURSTS: u64 = 1_000;
const BURST_MESSAGES: u64 = 20;
const BURST_PACE: Duration = Duration::from_millis(8);
const BULK_BYTES: usize = 1 << 20;
const BULK_FRAMES: u64 = 1_000;
const BULK_WINDOW: u64 = 8;

struct Node {
    links: Links,
    identity: Identity,
    _running: Running,
}

/// What has arrived at the second node, and the echoes at the first.
struct Arrivals {
    votes: AtomicU64,
    bulk: AtomicU64,
    echoes: Mutex<mpsc::Receiver<()>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let config = RuntimeConfig::new().with_storage_directory(directory.path());
    Runner::new(config).start(measure)
}

async fn measure(context: Context) -> Result<(), Box<dyn Error>> {
    let before_kib = resident_kib()?;
    let start = Instant::now();
    let (first, second, arrivals) = connect(&context).await?;
    while first.links.connected() + second.links.connected() < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    let connect_ms = start.elapsed().as_millis();
    let resident_kib = resident_kib()? - before_kib;

    let idle_percent = idle(Duration::from_secs(3)).await?;
    let to = To::One(second.identity);
    let back_to_back_us = round_trips(&first.links, &to, &arrivals, ROUND_TRIPS, None).await;
    let paced_us = round_trips(&first.links, &to, &arrivals, PACED_ROUND_TRIPS, Some(PACE)).await;

    let small = Bytes::from(vec![1; SMALL_BYTES]);
    let paced = one_way(&arrivals, idle_percent, PACED_MESSAGES, async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        for count in 0..PACED_MESSAGES {
            if count % 2 == 0 {
                ticks.tick().await;
            }
            first.links.send(Lane::Votes, &to, small.clone());
        }
    });
    let paced_cpu_us = paced.await?;
    let burst = one_way(&arrivals, idle_percent, BURSTS * BURST_MESSAGES, async {
        let mut ticks = tokio::time::interval(BURST_PACE);
        for _ in 0..BURSTS {
            ticks.tick().await;
            for _ in 0..BURST_MESSAGES {
                first.links.send(Lane::Votes, &to, small.clone());
            }
        }
    });
    let burst_cpu_us = burst.await?;
    let (bulk_mb_per_s, bulk_cpu_us_per_mb, beside_bulk_us) =
        bulk(&first.links, &to, &arrivals).await?;

    println!(
        "{{\"connect_ms\":{connect_ms},\"resident_kib_both\":{resident_kib},\
         \"idle_cpu_percent\":{idle_percent:.2},\
         \"round_trip_median_us\":{back_to_back_us},\"round_trip_paced_median_us\":{paced_us},\
         \"cpu_us_per_message_paced\":{paced_cpu_us:.1},\
         \"cpu_us_per_message_bursts\":{burst_cpu_us:.1},\
         \"bulk_mb_per_s\":{bulk_mb_per_s:.0},\"bulk_cpu_us_per_mb\":{bulk_cpu_us_per_mb:.0},\
         \"round_trip_beside_bulk_median_us\":{beside_bulk_us}}}"
    );
    Ok(())
}

/// The first node counts echoes; the second echoes frames on the control lane and counts the rest.
async fn connect(context: &Context) -> Result<(Node, Node, Arc<Arrivals>), Box<dyn Error>> {
    let (first_key, second_key) = (key(1), key(2));
    let (first_socket, second_socket) = (socket().await?, socket().await?);
    let peers = vec![
        (first_key.identity(), first_socket.local_addr()?),
        (second_key.identity(), second_socket.local_addr()?),
    ];
    let (echo, echoes) = mpsc::channel();
    let arrivals = Arc::new(Arrivals {
        votes: AtomicU64::new(0),
        bulk: AtomicU64::new(0),
        echoes: Mutex::new(echoes),
    });

    let echo = Mutex::new(echo);
    let on_first = move |_: Identity, _: Lane, _: Bytes| {
        let echo = echo.lock().expect("no panic while locked");
        // The receiver lives as long as the measurement.
        let _ = echo.send(());
    };
    let echoing: Arc<Mutex<Option<Links>>> = Arc::default();
    let (links, counted) = (echoing.clone(), arrivals.clone());
    let on_second = move |sender: Identity, _: Lane, frame: Bytes| match frame[0] {
        0 => {
            if let Some(links) = &*links.lock().expect("no panic while locked") {
                links.send(Lane::Votes, &To::One(sender), frame);
            }
        }
        1 => drop(counted.votes.fetch_add(1, Relaxed)),
        _ => drop(counted.bulk.fetch_add(1, Relaxed)),
    };

    let first = start_on(
        context.child("first"),
        first_socket,
        config(first_key.clone(), peers.clone()),
        Arc::new(on_first),
        &Registry::new(),
    )
    .await?;
    let second = start_on(
        context.child("second"),
        second_socket,
        config(second_key.clone(), peers),
        Arc::new(on_second),
        &Registry::new(),
    )
    .await?;
    *echoing.lock().expect("no panic while locked") = Some(second.0.clone());
    let node = |key: SecretKey, (links, running)| Node {
        links,
        identity: key.identity(),
        _running: running,
    };
    Ok((node(first_key, first), node(second_key, second), arrivals))
}

fn key(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32])
}

async fn socket() -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await
}

fn config(identity: SecretKey, peers: Vec<(Identity, SocketAddr)>) -> Config {
    Config {
        identity,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        namespace: b"link cost".to_vec(),
        frame_tag: *b"linkcost",
        peers: peers
            .into_iter()
            .map(|(identity, address)| (identity, address.into()))
            .collect(),
        followers: Vec::new(),
        room: 0,
        lookup: quorate_p2p::system_lookup(),
        timing: Timing::Local,
        max_frame_bytes: DEFAULT_FRAME_BYTES,
        is_fetching: false,
    }
}

/// Median round trip in µs with one message in flight. The waiting thread is not a runtime thread.
async fn round_trips(
    links: &Links,
    to: &To,
    arrivals: &Arc<Arrivals>,
    count: usize,
    pace: Option<Duration>,
) -> u128 {
    let (links, to, arrivals) = (links.clone(), to.clone(), arrivals.clone());
    let measured = tokio::task::spawn_blocking(move || {
        let echoes = arrivals.echoes.lock().expect("no panic while locked");
        let frame = Bytes::from(vec![0; SMALL_BYTES]);
        let mut times: Vec<u128> = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            links.send(Lane::Votes, &to, frame.clone());
            // One in ten thousand may be lost to a quota, so the wait has a limit.
            if echoes.recv_timeout(Duration::from_secs(1)).is_ok() {
                times.push(start.elapsed().as_micros());
            }
            std::thread::sleep(pace.unwrap_or(Duration::ZERO));
        }
        median(times)
    });
    measured.await.unwrap_or(0)
}

fn median(mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// CPU µs per message of `sending`, measured until all have arrived.
async fn one_way(
    arrivals: &Arrivals,
    idle_percent: f64,
    count: u64,
    sending: impl Future<Output = ()>,
) -> Result<f64, Box<dyn Error>> {
    let before = arrivals.votes.load(Relaxed);
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    sending.await;
    while arrivals.votes.load(Relaxed) < before + count {
        if start.elapsed() > Duration::from_secs(60) {
            return Err("messages were lost".into());
        }
        sleep(Duration::from_millis(1)).await;
    }
    let idle = start.elapsed().as_secs_f64() * idle_percent / 100.0;
    Ok((cpu_seconds()? - cpu - idle) * 1e6 / count as f64)
}

/// MB/s, CPU µs per MB, and the median round trip of concurrent votes.
async fn bulk(
    links: &Links,
    to: &To,
    arrivals: &Arc<Arrivals>,
) -> Result<(f64, f64, u128), Box<dyn Error>> {
    let frame = Bytes::from(vec![2; BULK_BYTES]);
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    let votes = round_trips(links, to, arrivals, 200, Some(Duration::from_millis(1)));
    let sending = async {
        for sent in 0..BULK_FRAMES {
            while sent >= arrivals.bulk.load(Relaxed) + BULK_WINDOW {
                tokio::task::yield_now().await;
            }
            links.send(Lane::Fetch, to, frame.clone());
        }
        while arrivals.bulk.load(Relaxed) < BULK_FRAMES {
            sleep(Duration::from_millis(1)).await;
        }
        start.elapsed().as_secs_f64()
    };
    let (beside_us, seconds) = tokio::join!(votes, sending);
    let megabytes = (BULK_FRAMES as usize * BULK_BYTES) as f64 / 1e6;
    let cpu_us = (cpu_seconds()? - cpu) * 1e6;
    Ok((megabytes / seconds, cpu_us / megabytes, beside_us))
}

async fn idle(duration: Duration) -> Result<f64, Box<dyn Error>> {
    let cpu = cpu_seconds()?;
    sleep(duration).await;
    Ok((cpu_seconds()? - cpu) / duration.as_secs_f64() * 100.0)
}

/// User and system time of this process, from `/proc/self/stat` (100 ticks per second).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().ok_or("no fields")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

fn resident_kib() -> Result<i64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no VmRSS")?.parse()?)
}
