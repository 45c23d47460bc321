//! Sources that are wrong, slow or contradictory: nothing of it becomes a reading, and each says why.
#![allow(missing_docs, clippy::unwrap_used)]

use quorate_crypto::{Identity, bls::VoteSecret};
use quorate_registry::{
    Format, MAX_ENTRIES, MAX_SOURCE_BYTES, Reader, Reading, SourceConfig, Terms, View, to_toml,
};
use quorate_types::{BondName, ExternalEntry, Possession, VoteKey};
use rand::SeedableRng as _;
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

type Entries = BTreeMap<Identity, ExternalEntry>;

fn terms() -> Terms {
    Terms {
        chain_name: "test".to_owned(),
        min_stake: 100,
    }
}

fn entry(number: u8, stake: u64) -> (Identity, ExternalEntry) {
    let identity = Identity([number + 1; 32]);
    let seed = rand::rngs::StdRng::seed_from_u64(u64::from(number));
    let secret = VoteSecret::random(seed);
    let entry = ExternalEntry {
        stake,
        vote_key: VoteKey(secret.public_key()),
        possession: Possession(secret.prove_possession("test", &identity.0)),
        address: format!("host-{number}:1").parse().unwrap(),
        name: BondName::default(),
    };
    (identity, entry)
}

fn entries(count: u8) -> Entries {
    (0..count).map(|number| entry(number, 100)).collect()
}

fn json(entries: &Entries) -> String {
    let table: toml::Value = toml::from_str(&to_toml(entries).unwrap()).unwrap();
    serde_json::to_string(&table).unwrap()
}

fn flaw(text: &str) -> String {
    let parsed = Reading::parse(text, Format::Json, &terms(), None);
    parsed.unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read_and_small_stakes_do_not_count() {
    let mut all = entries(5);
    let text = to_toml(&all).unwrap();
    let read = Reading::parse(&text, Format::Toml, &terms(), None).unwrap();
    assert_eq!(read.entries, all);
    let same = Reading::parse(&json(&all), Format::Json, &terms(), None).unwrap();
    assert_eq!(same, read);
    let (small, _) = entry(4, 0);
    all.get_mut(&small).unwrap().stake = 99;
    let fewer = Reading::parse(&json(&all), Format::Json, &terms(), None).unwrap();
    assert_eq!(fewer.entries, entries(4));
    assert_ne!(fewer.digest, read.digest);
    // It is shown, and whoever lists it agrees with whoever does not.
    assert_eq!(fewer.too_small, [(small, 99)].into());
    let without = Reading::parse(&json(&entries(4)), Format::Json, &terms(), None).unwrap();
    assert_eq!((without.digest, without.too_small.len()), (fewer.digest, 0));
}

#[test]
fn each_flaw_spoils_the_whole_list_and_is_named() {
    assert_eq!(flaw(" \n"), "it is empty");
    for garbage in [
        "[]",
        "{}",
        "{\"validators\": 7}",
        "<html>",
        "\u{0}",
        "{\"validators\": []} x",
    ] {
        assert!(
            flaw(garbage).contains("not a list of validators"),
            "{garbage:?}"
        );
    }
    assert!(flaw("{\"validators\": []}").contains("only 0"));
    assert!(flaw(&json(&entries(3))).contains("fewer than 4"));
    let good = json(&entries(4));
    let more = good.replacen("\"stake\"", "\"colour\":\"red\",\"stake\"", 1);
    assert!(flaw(&more).contains("unknown field"));
    assert!(flaw(&good.replacen("100", "-1", 1)).contains("not a list"));
    assert!(flaw(&good.replacen("100", "1e30", 1)).contains("not a list"));
    assert!(flaw(&good.replacen("host-1:1", "host-1", 1)).contains("host:port"));
    assert!(flaw(&good.replacen("host-1:1", "host-1:0", 1)).contains("host:port"));
    // An identity twice, a key twice, another's proof, and identities that nobody has.
    let row = |number: u8| {
        json(&[entry(number, 100)].into())
            .replace("{\"validators\":[", "")
            .replace("]}", "")
    };
    let list = |rows: &[String]| format!("{{\"validators\":[{}]}}", rows.join(","));
    let mut rows: Vec<String> = (0..4).map(row).collect();
    rows.push(row(0));
    assert!(flaw(&list(&rows)).contains("is there twice"));
    let other = Identity([9; 32]).to_string();
    rows[4] = row(0).replace(&Identity([1; 32]).to_string(), &other);
    assert!(flaw(&list(&rows)).contains("same vote key"));
    let (_, stranger) = entry(7, 100);
    let (_, own) = entry(0, 100);
    rows.truncate(4);
    rows[0] = rows[0].replace(
        &own.possession.to_string(),
        &stranger.possession.to_string(),
    );
    assert!(flaw(&list(&rows)).contains("proof of possession"));
    for nobody in [Identity([0; 32]), quorate_types::REGISTRY] {
        rows[0] = row(0).replace(&Identity([1; 32]).to_string(), &nobody.to_string());
        assert!(flaw(&list(&rows)).contains("no validator's identity"));
    }
    let many: Vec<String> = (0..=MAX_ENTRIES).map(|_| row(0)).collect();
    assert!(flaw(&list(&many)).contains("at most 1024"));
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
    reader: Reader,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.json");
        let config = SourceConfig::File {
            path: path.clone(),
            interval: Duration::from_millis(100),
        };
        Self {
            _folder: folder,
            path,
            reader: Reader::new(&config, terms()).unwrap(),
        }
    }

    async fn says(&mut self, text: &str) -> View {
        fs::write(&self.path, text).unwrap();
        self.reader.read(7).await.clone()
    }
}

fn count(view: &View) -> Option<usize> {
    view.reading.as_ref().map(|reading| reading.entries.len())
}

/// Whoever names the wrong file must not publish what is in it.
#[test]
fn nothing_that_a_source_says_is_quoted() {
    const SECRET: &str = "fa4cde4c00112233";
    for (format, text) in [
        (
            Format::Toml,
            format!("quorate-identity-key:{SECRET}{SECRET}{SECRET}"),
        ),
        (Format::Toml, format!("\n\n{SECRET}")),
        (Format::Toml, format!("{SECRET} = 1")),
        (Format::Toml, format!("password = \"{SECRET}\"")),
        (Format::Toml, format!("validators = \"{SECRET}\"")),
        (
            Format::Toml,
            format!("[[validators]]\nidentity = \"{SECRET}\""),
        ),
        (Format::Toml, format!("[[validators]]\nstake = '{SECRET}'")),
        (Format::Toml, format!("\"{SECRET}\"")),
        (Format::Json, SECRET.to_owned()),
        (Format::Json, format!("{{\"{SECRET}\": 1}}")),
        (Format::Json, format!("{{\"validators\": \"{SECRET}\"}}")),
        (
            Format::Json,
            format!("{{\"validators\": [{{\"identity\": \"{SECRET}\"}}]}}"),
        ),
        (
            Format::Json,
            format!("{{\"validators\": [{{\"stake\": \"a`b{SECRET}\\\"\"}}]}}"),
        ),
    ] {
        let told = Reading::parse(&text, format, &terms(), None).unwrap_err();
        let told = told.to_string();
        assert!(told.contains("line"), "{text}: {told}");
        assert!(!told.contains(&SECRET[..6]), "{text}: {told}");
    }
    let missing = flaw("{\"validators\": [{\"stake\": 7}]}");
    assert!(missing.contains("missing field `identity`"), "{missing}");
}

#[tokio::test]
async fn a_pipe_is_refused_and_the_file_in_its_place_is_read() {
    let mut file = File::new();
    let four = json(&entries(4));
    file.says(&four).await;
    file.says(&four).await;
    fs::remove_file(&file.path).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&file.path)
        .status();
    assert!(made.unwrap().success());
    let view = file.reader.read(8).await.clone();
    assert_eq!(count(&view), Some(4));
    assert!(view.trouble.unwrap().contains("no regular file"));
    fs::remove_file(&file.path).unwrap();
    assert_eq!(file.says(&four).await.trouble, None);
}

#[tokio::test]
async fn a_file_counts_once_it_was_read_twice_and_stays_when_it_is_spoiled() {
    let mut file = File::new();
    let view = file.reader.read(1).await.clone();
    assert!(view.trouble.unwrap().contains("cannot read"));
    let (four, five) = (json(&entries(4)), json(&entries(5)));
    assert_eq!(count(&file.says(&four).await), None);
    assert_eq!(count(&file.says(&four).await), Some(4));
    // Half-written, then whole.
    let view = file.says(&five[..five.len() / 2]).await;
    assert_eq!(count(&view), Some(4));
    assert!(view.trouble.unwrap().contains("not a list"));
    assert_eq!(count(&file.says(&five).await), Some(4));
    let view = file.says(&five).await;
    assert_eq!((count(&view), view.trouble), (Some(5), None));
    // Empty, gone, endless, not a file.
    let view = file.says("").await;
    assert!(view.trouble.is_some());
    fs::remove_file(&file.path).unwrap();
    let view = file.reader.read(9).await.clone();
    assert!(view.trouble.unwrap().contains("cannot read"));
    let huge = " ".repeat(MAX_SOURCE_BYTES as usize + 1);
    let view = file.says(&huge).await;
    assert!(view.trouble.unwrap().contains("too large"));
    fs::remove_file(&file.path).unwrap();
    fs::create_dir(&file.path).unwrap();
    let view = file.reader.read(9).await.clone();
    assert!(view.trouble.is_some());
    assert_eq!((count(&view), view.read_at_ms), (Some(5), Some(7)));
}

#[tokio::test]
async fn a_file_that_flaps_is_never_taken_over_and_says_so() {
    let mut file = File::new();
    let (four, five, six) = (json(&entries(4)), json(&entries(5)), json(&entries(6)));
    file.says(&four).await;
    file.says(&four).await;
    let mut last = None;
    for round in 0..10 {
        let view = file.says([&five, &six, &four][round % 3]).await;
        assert_eq!(count(&view), Some(4), "{round}");
        last = view.trouble;
    }
    assert!(last.unwrap().contains("something else at each"));
    file.says(&six).await;
    let view = file.says(&six).await;
    assert_eq!((count(&view), view.trouble), (Some(6), None));
}

/// What a server does with a connection.
#[derive(Clone)]
enum Way {
    Answers(String),
    /// With an ETag that it never changes, whatever it says.
    SameTag(String),
    /// Not modified, whether asked or not.
    NotModified,
    Status(u16),
    Stalls,
    /// A header without an end.
    EndlessHeader,
    /// More than may be read, in pieces and without a length.
    Huge,
    /// Claims a length and sends half of it.
    Truncates(String),
    Closes,
    NotUtf8,
    /// To another place.
    Redirects(String),
}

struct Server {
    url: String,
    way: Arc<Mutex<Way>>,
    /// Bytes that it could send of a huge body.
    sent: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/validators.json", listener.local_addr().unwrap());
        let way = Arc::new(Mutex::new(way));
        let sent = Arc::new(AtomicUsize::new(0));
        let (ways, counter) = (way.clone(), sent.clone());
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let way = ways.lock().unwrap().clone();
                tokio::spawn(serve(stream, way, counter.clone()));
            }
        });
        Self {
            url,
            way,
            sent,
            task,
        }
    }

    fn now(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }
}

async fn serve(mut stream: tokio::net::TcpStream, way: Way, sent: Arc<AtomicUsize>) {
    let mut request = vec![0; 4_096];
    let read = stream.read(&mut request).await.unwrap_or(0);
    let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
    let answer = |head: &str, body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{head}\r\n{body}",
            body.len()
        )
    };
    let text = match way {
        Way::Answers(body) => answer("", &body),
        Way::SameTag(body) => match request.contains("if-none-match: \"one\"") {
            true => "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
            false => answer("etag: \"one\"\r\n", &body),
        },
        Way::NotModified => "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
        Way::Status(status) => format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n"),
        Way::Redirects(to) => {
            format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
        }
        Way::Truncates(body) => {
            let half = &body[..body.len() / 2];
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}",
                body.len()
            )
        }
        Way::Closes => return,
        Way::Stalls => return std::future::pending().await,
        Way::NotUtf8 => {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe")
                .await;
            return;
        }
        Way::EndlessHeader => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
            loop {
                if stream
                    .write_all(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
        Way::Huge => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let piece = vec![b' '; 64 << 10];
            while stream.write_all(&piece).await.is_ok() {
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            return;
        }
    };
    let _ = stream.write_all(text.as_bytes()).await;
}

fn http(servers: &[&Server], agree: usize) -> Reader {
    let config = SourceConfig::Http {
        urls: servers.iter().map(|server| server.url.clone()).collect(),
        agree,
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(500),
    };
    Reader::new(&config, terms()).unwrap()
}

#[tokio::test]
async fn a_server_that_misbehaves_changes_nothing_and_is_told_within_its_timeout() {
    let good = json(&entries(4));
    let server = Server::start(Way::Answers(good.clone())).await;
    let mut reader = http(&[&server], 1);
    reader.read(1).await;
    assert_eq!(count(reader.read(2).await), Some(4));
    let other = Server::start(Way::Answers(json(&entries(9)))).await;
    let ways = [
        (Way::Status(500), "HTTP 500"),
        (Way::Status(204), "HTTP 204"),
        (Way::Redirects(other.url.clone()), "HTTP 302"),
        (Way::NotModified, "was not asked"),
        (Way::Stalls, ""),
        (Way::EndlessHeader, ""),
        (Way::Huge, "more than the 1048576 bytes"),
        (Way::Truncates(json(&entries(5))), ""),
        (Way::Closes, ""),
        (Way::NotUtf8, "no text"),
        (Way::Answers("<html>".to_owned()), "not a list"),
        (Way::Answers(json(&entries(3))), "fewer than 4"),
    ];
    for (way, words) in ways {
        server.now(way);
        for _ in 0..2 {
            let started = Instant::now();
            let view = reader.read(3).await.clone();
            assert!(started.elapsed() < Duration::from_secs(2));
            let trouble = view.trouble.clone().unwrap();
            assert!(
                trouble.contains(words) && !trouble.is_empty(),
                "{words}: {trouble}"
            );
            assert_eq!(
                (count(&view), view.read_at_ms),
                (Some(4), Some(2)),
                "{trouble}"
            );
        }
    }
    assert!(
        server.sent.load(Ordering::Relaxed) < 16 << 20,
        "it was read on and on"
    );
    server.now(Way::Answers(good));
    let view = reader.read(5).await;
    assert_eq!((view.trouble.clone(), view.read_at_ms), (None, Some(5)));
}

#[tokio::test]
async fn a_tag_saves_the_body_and_a_wrong_one_only_keeps_the_old_list() {
    let server = Server::start(Way::SameTag(json(&entries(4)))).await;
    let mut reader = http(&[&server], 1);
    reader.read(1).await;
    let view = reader.read(2).await;
    assert_eq!((count(view), view.trouble.clone()), (Some(4), None));
    server.now(Way::SameTag(json(&entries(5))));
    for at in 3..6 {
        assert_eq!(count(reader.read(at).await), Some(4));
    }
    // Another tag, or none: the list is read.
    server.now(Way::Answers(json(&entries(5))));
    reader.read(7).await;
    assert_eq!(count(reader.read(8).await), Some(5));
}

#[tokio::test]
async fn of_three_servers_two_must_agree() {
    let (four, five, six) = (json(&entries(4)), json(&entries(5)), json(&entries(6)));
    let servers = [
        Server::start(Way::Answers(four.clone())).await,
        Server::start(Way::Answers(four.clone())).await,
        Server::start(Way::Answers(six.clone())).await,
    ];
    let [a, b, c] = &servers;
    let mut reader = http(&[a, b, c], 2);
    reader.read(1).await;
    let view = reader.read(2).await.clone();
    assert_eq!(count(&view), Some(4), "one lies");
    assert_eq!(view.trouble, None);
    let told = view.sources[2].trouble.clone().unwrap();
    assert!(told.contains("differs from what 2 others say"), "{told}");
    assert!(view.sources[0].trouble.is_none() && view.sources[1].trouble.is_none());
    a.now(Way::Stalls);
    let view = reader.read(3).await.clone();
    assert_eq!(count(&view), Some(4));
    assert!(
        view.trouble
            .unwrap()
            .contains("2 of 3 sources must say the same")
    );
    assert!(view.sources[0].trouble.is_some() && view.sources[1].trouble.is_none());
    // All differ; then two are together again, one of them twice in a row the same.
    a.now(Way::Answers(five.clone()));
    assert!(reader.read(4).await.trouble.is_some());
    b.now(Way::Answers(five));
    reader.read(5).await;
    let view = reader.read(6).await;
    assert_eq!((count(view), view.trouble.clone()), (Some(5), None));
}

#[tokio::test]
async fn two_of_three_that_flap_together_are_not_followed() {
    let (four, five) = (json(&entries(4)), json(&entries(5)));
    let servers = [
        Server::start(Way::Answers(four.clone())).await,
        Server::start(Way::Answers(four.clone())).await,
    ];
    let mut reader = http(&[&servers[0], &servers[1]], 2);
    reader.read(1).await;
    reader.read(2).await;
    let mut trouble = None;
    for round in 0..8 {
        for server in &servers {
            server.now(Way::Answers([&five, &four][round % 2].clone()));
        }
        let view = reader.read(3).await;
        assert_eq!(count(view), Some(4));
        trouble = view.trouble.clone();
    }
    assert!(trouble.unwrap().contains("something else"));
}
