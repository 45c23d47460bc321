//! Ceremonies between real processes, and between them and participants that this test plays.

#![allow(missing_docs, clippy::unwrap_used)]

use quorate_crypto::{
    Digest, SecretKey,
    bls::{Dealing, OpeningSecret, Round, Sum},
};
use quorate_node::{
    ceremony::{
        Board, Body, Message, Plan, Step, Transcript,
        board::Outcome,
        exchange::{Shared, poll, serve},
        message::acceptance,
    },
    keys::{KeyAccess, load_identity},
};
use quorate_types::genesis::Genesis;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
};

const BINARY: &str = env!("CARGO_BIN_EXE_quorate");

/// Far more than anything takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ports of one test: peers and HTTP from the first one on, metrics from the 102nd on.
const USED_PORTS: u16 = 128;

/// Ports that nobody uses, above those of the other tests, and below those of outgoing connections.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 30) as u16;
    for _ in 0..30 {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let first = 28_800 + (start + step) % 30 * USED_PORTS;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + USED_PORTS).all(is_free) {
            return first;
        }
    }
    panic!("no free ports");
}

/// Folders of some operators, and a plan.
struct Stage {
    folder: tempfile::TempDir,
    first_port: u16,
    plan: Plan,
}

impl Stage {
    fn new(size: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let first_port = free_ports();
        let mut participants = Vec::new();
        for place in 0..size {
            let out = folder.path().join(format!("v{place}"));
            let made = quorate(&["keys", "generate", "--plain", "--json", "--out", text(&out)]);
            let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
            let identity = made["identity"].as_str().unwrap();
            participants.push(format!("{identity}@127.0.0.1:{}", first_port + 2 * place));
        }
        let mut stage = Self {
            plan: Plan::from_toml(&format!(
                "name = 'x'\ntimestamp_ms = 1\n[[participants]]\nidentity = '{}'\naddress = '127.0.0.1:1'",
                SecretKey::from_bytes(&[1; 32]).identity()
            ))
            .unwrap(),
            folder,
            first_port,
        };
        let file = stage.path("plan.toml");
        let mut arguments = vec!["genesis", "ceremony", "plan", "--name", "ours"];
        arguments.extend(["--out", text(&file), "--participant"]);
        arguments.extend(participants.iter().map(String::as_str));
        let made = quorate(&arguments);
        assert!(made.status.success(), "{made:?}");
        stage.plan = Plan::from_toml(&fs::read_to_string(&file).unwrap()).unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        assert!(said.contains(&stage.plan.digest().to_string()), "{said}");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self, place: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.first_port + 2 * place))
    }

    fn identity(&self, place: u16) -> SecretKey {
        let path = self.path(&format!("v{place}/identity.key"));
        load_identity(&path, &KeyAccess::plain()).unwrap()
    }

    /// Starts an operator's process, or starts it again.
    fn start(&self, place: u16) -> Operator {
        self.start_with(place, "plan.toml")
    }

    fn start_with(&self, place: u16, plan: &str) -> Operator {
        let out = self.path(&format!("v{place}"));
        let log = self.path(&format!("v{place}.log"));
        let file = fs::File::create(&log).unwrap();
        let child = Command::new(BINARY)
            .args(["genesis", "ceremony", "run", "--plain", "--plan"])
            .arg(self.path(plan))
            .arg("--key")
            .arg(out.join("identity.key"))
            .arg("--out")
            .arg(&out)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Operator { child, out, log }
    }

    fn genesis(&self, place: u16) -> String {
        fs::read_to_string(self.path(&format!("v{place}/genesis.json"))).unwrap()
    }
}

struct Operator {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Operator {
    fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn until_it_says(&mut self, words: &str) {
        until(&format!("{words:?} in its log"), || {
            let log = self.log();
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() || log.contains(words),
                "it ended ({ended:?}) without saying {words:?}:\n{log}"
            );
            log.contains(words)
        });
    }

    fn until_it_ends(&mut self) -> ExitStatus {
        let mut status = None;
        until("its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn expect_success(&mut self) {
        let status = self.until_it_ends();
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// What a failed process says, all of which must contain `words`.
    fn expect_failure(&mut self, words: &[&str]) {
        let status = self.until_it_ends();
        let log = self.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().last().unwrap();
        for words in words {
            assert!(last.contains(words), "no {words:?} in:\n{log}");
        }
        assert!(!self.out.join("genesis.json").exists());
        assert!(!self.out.join("ceremony.key").exists());
    }

    /// How many messages of a step are on its disk.
    fn kept(&self, step: Step) -> usize {
        let record = fs::read_to_string(self.out.join("ceremony.json")).unwrap_or_default();
        let Ok(record) = Transcript::from_json(&record) else {
            return 0;
        };
        let board = record.replay().unwrap();
        board.plan().participants.len() - board.missing(step).len()
    }

    /// The most memory that it has had, in KiB.
    fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let digits = line.unwrap().trim().split(' ').next().unwrap();
        digits.parse().unwrap()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn quorate(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A participant that signs what the test tells it to, and only then.
struct Puppet {
    place: u16,
    identity: SecretKey,
    shared: Arc<Shared>,
    secret: OpeningSecret,
    /// Serves and asks until it is dropped.
    tasks: JoinSet<()>,
}

impl Puppet {
    async fn start(stage: &Stage, place: u16, seed: u8) -> Self {
        let board = Board::new(stage.plan.clone());
        let shared = Arc::new(Shared::new(board, u32::from(place)));
        let mut tasks = JoinSet::new();
        let listener = quorate_http::listen(stage.address(place)).unwrap();
        tasks.spawn(serve(
            shared.clone(),
            listener,
            Vec::new(),
            std::future::pending(),
        ));
        for (other, participant) in (0..).zip(&stage.plan.participants) {
            if other != u32::from(place) {
                let asking = poll(shared.clone(), other, participant.address().unwrap());
                tasks.spawn(async { asking.await.unwrap() });
            }
        }
        Self {
            place,
            identity: stage.identity(place),
            shared,
            secret: OpeningSecret::random(ChaCha20Rng::from_seed([seed; 32])),
            tasks,
        }
    }

    fn show(&self, body: Body) {
        let digest = self.shared.digest();
        let message = Message::sign(&digest, u32::from(self.place), body, &self.identity);
        self.shared.board().receive(message);
    }

    fn announce(&self) {
        self.show(Body::Announcement(self.secret.key()));
    }

    fn round(&self) -> Round {
        self.until(Step::Dealing);
        self.shared.board().round().cloned().unwrap()
    }

    fn deal(&self, change: impl FnOnce(&mut Dealing)) {
        let round = self.round();
        let dealing = round.deal_fresh_but(u32::from(self.place), [7; 32], change);
        let dealing = dealing.unwrap();
        let context = round.context;
        self.show(Body::Dealing { context, dealing });
    }

    fn accept(&self) {
        until("all dealings", || self.shared.board().dealings().is_some());
        let round = self.round();
        let own = u32::from(self.place);
        let (plan, dealings) = {
            let board = self.shared.board();
            (board.plan().clone(), board.dealings().unwrap().to_vec())
        };
        let open = |one: &quorate_crypto::bls::CheckedDealing| {
            let value = one.open(&round, own, &self.secret);
            (one.dealer(), value.ok().unwrap())
        };
        let share = Sum::Fresh.share(&dealings.iter().map(open).collect::<Vec<_>>());
        let outcome = Outcome::compute(&plan, &round, &dealings).unwrap();
        let chain = outcome.chain;
        let message = acceptance(&self.shared.digest(), &chain, own);
        let share = share.unwrap().sign(&message);
        self.shared.board().settle(outcome);
        self.show(Body::Acceptance { chain, share });
    }

    fn done(&self) {
        self.until(Step::Done);
        let chain = self.shared.board().outcome().unwrap().chain;
        self.show(Body::Done(chain));
    }

    /// Waits until a step has begun for it.
    fn until(&self, step: Step) {
        until("a step", || self.shared.board().has_begun(step));
    }

    /// Waits until it has a message of somebody.
    fn until_it_has(&self, place: u32, step: Step) {
        until(&format!("{step} of {place}"), || {
            assert!(self.shared.board().fault().is_none());
            self.shared.board().message(place, step).is_some()
        });
    }

    fn expect_no_fault(&self) {
        let board = self.shared.board();
        let fault = board
            .fault()
            .map(|(_, verdict)| verdict.describe(board.plan()));
        assert_eq!(fault, None);
    }

    async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

#[test]
fn four_operators_make_a_chain_that_runs() {
    let stage = Stage::new(4);
    let mut operators: Vec<_> = (0..4).map(|place| stage.start(place)).collect();
    for operator in &mut operators {
        operator.expect_success();
    }
    let genesis = stage.genesis(0);
    for place in 0..4 {
        assert_eq!(stage.genesis(place), genesis);
        let out = stage.path(&format!("v{place}"));
        for gone in ["ceremony.key", "ceremony.json"] {
            assert!(!out.join(gone).exists(), "{gone} is still there");
        }
        let transcript = out.join("transcript.json");
        let verified = quorate(&["genesis", "ceremony", "verify", text(&transcript)]);
        assert!(verified.status.success(), "{verified:?}");
    }
    let parsed = Genesis::from_json(&genesis).unwrap();
    assert_eq!(parsed.scheme().unwrap().quorum(), 3);

    // Another genesis file is not what the transcript leads to.
    let other = stage.path("other.json");
    fs::write(&other, genesis.replace("\"ours\"", "\"hers\"")).unwrap();
    let transcript = stage.path("v0/transcript.json");
    let arguments = ["genesis", "ceremony", "verify", text(&transcript)];
    let refused = quorate(&[&arguments[..], &["--genesis", text(&other)]].concat());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("is another chain than the transcript leads to"),
        "{said}"
    );

    // Once more: it is over, and nothing is signed.
    let out = stage.path("v2");
    let key = out.join("identity.key");
    let plan = stage.path("plan.toml");
    let arguments = [
        "genesis",
        "ceremony",
        "run",
        "--plain",
        "--plan",
        text(&plan),
    ];
    let again = quorate(&[&arguments[..], &["--key", text(&key), "--out", text(&out)]].concat());
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("the ceremony is over already"), "{said}");
    assert!(said.contains(&parsed.chain_id().to_string()), "{said}");

    let validators: Vec<_> = (0..4)
        .map(|place| Validator::start(&stage, place))
        .collect();
    until("a chain that grows", || {
        validators.iter().all(|validator| validator.height() >= 3)
    });
}

struct Validator {
    child: Child,
    rpc: String,
}

impl Validator {
    fn start(stage: &Stage, place: u16) -> Self {
        let log = fs::File::create(stage.path(&format!("run{place}.log"))).unwrap();
        let child = Command::new(BINARY)
            .args(["run", "--allow-plain-keys", "--config"])
            .arg(stage.path(&format!("v{place}/validator.toml")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let rpc = format!("http://127.0.0.1:{}", stage.address(place).port() + 1);
        Self { child, rpc }
    }

    fn height(&self) -> u64 {
        let status = quorate(&["status", "--json", "--rpc", &self.rpc]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        status
            .pointer("/status/executed_height")
            .or(status.get("executed_height"))
            .and_then(|height| height.as_u64())
            .unwrap_or(0)
    }
}

impl Drop for Validator {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The third participant is the test, so that each step lasts as long as it should.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_in_any_step_goes_on() {
    let stage = Stage::new(3);
    let mut first = stage.start(0);
    let mut second = stage.start(1);
    until("an announcement on disk", || {
        first.kept(Step::Announcement) > 0
    });
    let puppet = Puppet::start(&stage, 2, 1).await;
    let restart = |operator: &mut Operator| {
        operator.kill();
        *operator = stage.start(0);
    };

    restart(&mut first);
    puppet.until_it_has(0, Step::Announcement);
    puppet.announce();
    puppet.until_it_has(0, Step::Dealing);
    restart(&mut first);
    puppet.deal(|_| {});
    puppet.until(Step::Dealing);
    until("a share on disk", || first.out.join("vote.key").exists());
    restart(&mut first);
    puppet.accept();
    puppet.until_it_has(0, Step::Acceptance);
    until("the result on disk", || {
        first.out.join("genesis.json").exists()
    });
    restart(&mut first);
    puppet.until_it_has(0, Step::Done);
    restart(&mut first);
    assert!(!first.out.join("ceremony.key").exists());
    puppet.done();
    first.expect_success();
    second.expect_success();
    puppet.expect_no_fault();
    assert_eq!(stage.genesis(0), stage.genesis(1));
    assert!(puppet.shared.board().missing(Step::Done).is_empty());
    puppet.stop().await;
}

#[test]
fn a_participant_with_another_plan_is_named_with_both_digests() {
    let stage = Stage::new(2);
    let mut other = stage.plan.clone();
    other.epoch_blocks = quorate_types::EpochLength::new(77).unwrap();
    fs::write(stage.path("other.toml"), other.to_toml().unwrap()).unwrap();
    let mut first = stage.start(0);
    let mut second = stage.start_with(1, "other.toml");
    let digests = [stage.plan.digest(), other.digest()];
    let says = |theirs: Digest, ours: Digest| {
        format!("IT HAS ANOTHER PLAN, whose digest is {theirs}; the digest of ours is {ours}")
    };
    first.until_it_says(&says(digests[1], digests[0]));
    second.until_it_says(&says(digests[0], digests[1]));
    // The folder of the other plan's ceremony is not taken for this one's.
    drop(second);
    let mut second = stage.start(1);
    let status = second.until_it_ends();
    assert!(!status.success());
    assert!(
        second.log().contains("is of a ceremony by another plan"),
        "{}",
        second.log()
    );
    // With the right plan and a new folder it goes on; the first one has lost nothing.
    fs::remove_file(stage.path("v1/ceremony.json")).unwrap();
    let mut second = stage.start(1);
    first.expect_success();
    second.expect_success();
}

#[test]
fn a_participant_that_is_missing_is_named() {
    let stage = Stage::new(3);
    let (mut first, _second) = (stage.start(0), stage.start(1));
    let address = stage.address(2);
    let short = stage.plan.participants[2].identity.short();
    first.until_it_says(&format!(
        "for participant 2 ({short}, {address}): no connection"
    ));
    let log = first.log();
    let line = log.lines().last().unwrap();
    assert!(
        line.contains("announcements: 2 of 3; waiting since 20"),
        "{line}"
    );
    // Again and again, with the time that has passed.
    let count = || first.log().matches("announcements: 2 of 3").count();
    let before = count();
    let start = Instant::now();
    until("two more lines", || count() >= before + 2);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_participant_that_announces_two_keys_is_named_with_the_proof() {
    let stage = Stage::new(3);
    let mut first = stage.start(0);
    let puppet = Puppet::start(&stage, 2, 1).await;
    puppet.announce();
    puppet.until_it_has(0, Step::Announcement);
    first.until_it_says("announcements: 2 of 3");
    puppet.stop().await;
    // To the second operator it shows another one.
    let puppet = Puppet::start(&stage, 2, 2).await;
    puppet.announce();
    let mut second = stage.start(1);
    let words = ["participant 2 (", "has signed two different announcements"];
    first.expect_failure(&words);
    second.expect_failure(&words);
    let proof = first.out.join("ceremony.json");
    let verified = quorate(&["genesis", "ceremony", "verify", text(&proof)]);
    assert!(!verified.status.success());
    let said = String::from_utf8(verified.stderr).unwrap();
    assert!(said.contains(words[0]) && said.contains(words[1]), "{said}");
    // The same after a restart: nothing is signed any more.
    drop(puppet);
    drop(second);
    let mut first = stage.start(0);
    first.until_it_says("FAILED: participant 2 (");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_participant_that_deals_twice_or_deals_a_wrong_value_is_named_by_all() {
    let stage = Stage::new(3);
    let (mut first, mut second) = (stage.start(0), stage.start(1));
    let puppet = Puppet::start(&stage, 2, 1).await;
    puppet.announce();
    puppet.deal(|dealing| dealing.sealed[1][0] ^= 1);
    let words = [
        "participant 2 (",
        "has dealt participant 1 (",
        "a value that does not fit",
    ];
    first.expect_failure(&words);
    second.expect_failure(&words);
    puppet.stop().await;

    let stage = Stage::new(3);
    let (mut first, mut second) = (stage.start(0), stage.start(1));
    let puppet = Puppet::start(&stage, 2, 1).await;
    puppet.announce();
    puppet.until_it_has(1, Step::Dealing);
    drop(second);
    puppet.deal(|_| {});
    until("its dealing at the first", || {
        first.kept(Step::Dealing) == 3 || first.out.join("vote.key").exists()
    });
    let round = puppet.round();
    puppet.stop().await;
    let puppet = Puppet::start(&stage, 2, 1).await;
    puppet.announce();
    puppet.until(Step::Dealing);
    let dealing = round.deal_fresh(2, [8; 32]).unwrap();
    let context = round.context;
    puppet.show(Body::Dealing { context, dealing });
    second = stage.start(1);
    let words = ["participant 2 (", "has signed two different dealings"];
    first.expect_failure(&words);
    second.expect_failure(&words);
}

/// What a hostile process answers to everything.
#[derive(Clone, Copy, Debug)]
enum Hostility {
    Garbage,
    OtherJson,
    Huge,
    Endless,
    Stall,
    Closed,
}

async fn be_hostile(address: SocketAddr, how: Hostility) {
    // What answered before may not have let go of the port.
    let listener = loop {
        match quorate_http::listen(address) {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let mut connections = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        connections.spawn(async move {
            let mut head = [0; 1_024];
            let _ = stream.read(&mut head).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
            match how {
                Hostility::Garbage => {
                    let garbage = [0x1b; 4_096];
                    let _ = stream.write_all(&garbage).await;
                }
                Hostility::OtherJson => {
                    let body = "{\"plan\":\"\\u001b[2J\",\"heads\":[]}";
                    let length = body.len();
                    let answer = format!("{head}content-length: {length}\r\n\r\n{body}");
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                Hostility::Huge => {
                    let answer = format!("{head}content-length: 99999999999\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.write_all(&vec![b' '; 1 << 20]).await;
                }
                Hostility::Endless => {
                    let answer = format!("{head}transfer-encoding: chunked\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
                    while stream.write_all(chunk.as_bytes()).await.is_ok() {}
                }
                Hostility::Stall => std::future::pending().await,
                Hostility::Closed => {}
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_peers_and_strangers_only_delay() {
    let stage = Stage::new(2);
    let mut first = stage.start(0);
    for (how, words) in [
        (Hostility::Garbage, "its answer broke off"),
        (
            Hostility::OtherJson,
            "its answer is none of a ceremony's process",
        ),
        (Hostility::Huge, "its answer is too large"),
        (Hostility::Endless, "its answer is too large"),
        (Hostility::Stall, "no answer in time"),
        (Hostility::Closed, "its answer broke off"),
    ] {
        let before = first.log().len();
        let hostile = tokio::spawn(be_hostile(stage.address(1), how));
        until(&format!("{how:?}: {words}"), || {
            let log = first.log();
            assert!(first.child.try_wait().unwrap().is_none(), "{how:?}: {log}");
            log[before..].contains(words)
        });
        hostile.abort();
        let _ = hostile.await;
    }
    let log = first.log();
    assert!(
        !log.contains('\u{1b}') && !log.contains("[2J"),
        "it quotes what it was sent"
    );
    assert!(
        first.peak_memory() < 200 << 10,
        "{} KiB",
        first.peak_memory()
    );

    // A stranger takes all connections that one address gets, and keeps them.
    let mut held = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        if let Ok(stream) = socket.connect(stage.address(0)).await {
            held.push(stream);
        }
    }
    assert!(held.len() >= 128);
    let mut second = stage.start(1);
    first.expect_success();
    second.expect_success();
    assert_eq!(stage.genesis(0), stage.genesis(1));
}
