//! A chain whose list of validators is in files, in real processes: one is added, one is removed, files are spoiled,
//! one validator reads over HTTP, and one reads another file than the rest; all while transfers are paid. And one whose
//! list is in a staking contract.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../registry/tests/evm/anvil.rs"]
mod anvil;
mod common;

use anvil::Anvil;
use common::{BINARY, free_base_port};
use quorate_api::{ExternalJson, RegistryJson, RpcClient, SubmitRequest, to_hex};
use quorate_node::keys::{KeyAccess, load_identity};
use quorate_registry::{Format, Reading, bond_call};
use quorate_types::{Height, Identity, Memo, Transfer, genesis::Genesis};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const STAKE: u64 = 1_000_000;
const EPOCH_BLOCKS: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(120);

/// How soon an operator sees what is wrong: two seconds after the reading, which comes each 200 ms.
const SEEN_WITHIN: Duration = Duration::from_millis(2_200);

struct Chain {
    folder: tempfile::TempDir,
    base: u16,
    genesis: Genesis,
    processes: BTreeMap<usize, Child>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Chain {
    /// Four validators. The one in the place `apart` reads a file of its own, the one in the place `over_http` the
    /// common one from a server.
    fn start(apart: usize, over_http: usize) -> Self {
        Self::start_changed(apart, over_http, &[])
    }

    /// The same, with words of the genesis file replaced.
    fn start_changed(apart: usize, over_http: usize, changes: &[(&str, &str)]) -> Self {
        let mut chain = Self::make_all(changes);
        fs::copy(chain.shared(), chain.apart()).unwrap();
        chain.change(apart, |text| {
            text.replace("../registry.toml", "../apart.toml")
        });
        let url = serve(chain.shared());
        chain.reads(
            over_http,
            &format!("[registry.http]\nurls = [\"{url}\"]\ninterval = \"200ms\"\n"),
        );
        for place in 0..4 {
            chain.run(place);
        }
        chain
    }

    /// Four validators that read the common file, and do not run yet.
    fn make_all(changes: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = free_base_port(8);
        let net = folder.path().join("net");
        let made = Command::new(BINARY)
            .args([
                "testnet",
                "--plain",
                "--scheme",
                "bls-aggregate",
                "--external-registry",
            ])
            .args(["--max-validators", "7", "--unbond-epochs", "1"])
            .args([
                "--base-port",
                &base.to_string(),
                "--stake",
                &STAKE.to_string(),
            ])
            .args(["--epoch-blocks", &EPOCH_BLOCKS.to_string(), "--out"])
            .arg(&net)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut text = fs::read_to_string(net.join("genesis.json")).unwrap();
        for (old, new) in changes {
            assert!(text.contains(old), "{text}");
            text = text.replace(old, new);
        }
        fs::write(net.join("genesis.json"), &text).unwrap();
        for place in 0..4 {
            let copy = net.join(format!("validator-{place}/genesis.json"));
            fs::write(copy, &text).unwrap();
        }
        let chain = Self {
            folder,
            base,
            genesis: Genesis::from_json(&text).unwrap(),
            processes: BTreeMap::new(),
        };
        for place in 0..4 {
            chain.change(place, quick);
        }
        chain
    }

    fn change(&self, place: usize, change: impl Fn(&str) -> String) {
        let file = self.validator(place).join("validator.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, change(&text)).unwrap();
    }

    /// Replaces where a validator reads the list.
    fn reads(&self, place: usize, section: &str) {
        self.change(place, |text| {
            let at = text.find("\n[registry]").unwrap();
            format!("{}\n{section}", &text[..at])
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("net").join(name)
    }

    /// The file that all validators read but one.
    fn shared(&self) -> PathBuf {
        self.path("registry.toml")
    }

    fn apart(&self) -> PathBuf {
        self.path("apart.toml")
    }

    fn validator(&self, place: usize) -> PathBuf {
        self.path(&format!("validator-{place}"))
    }

    fn address(&self, place: usize) -> String {
        format!("127.0.0.1:{}", usize::from(self.base) + 2 * place)
    }

    fn client(&self, place: usize) -> RpcClient {
        let port = usize::from(self.base) + 2 * place + 1;
        RpcClient::new(&format!("http://127.0.0.1:{port}")).unwrap()
    }

    fn quorate(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(BINARY);
        let output = command
            .args(arguments)
            .current_dir(self.path(""))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&mut self, place: usize) {
        let folder = self.validator(place);
        let log = File::create(folder.join("node.log")).unwrap();
        let child = Command::new(BINARY)
            .args(["run", "--allow-plain-keys", "--config"])
            .arg(folder.join("validator.toml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.insert(place, child.unwrap());
    }

    fn identity(&self, place: usize) -> Identity {
        let key = self.validator(place).join("identity.key");
        load_identity(&key, &KeyAccess::plain()).unwrap().identity()
    }

    fn pay(&self, to: Identity, amount: u64) {
        let paid = self.quorate(&[
            "tx",
            "transfer",
            "--key",
            "account/identity.key",
            "--chain-id",
            &self.genesis.chain_id().to_string(),
            "--to",
            &to.to_string(),
            "--amount",
            &amount.to_string(),
            "--wait",
            "--rpc",
            &format!("http://127.0.0.1:{}", self.base + 1),
        ]);
        assert!(paid.contains("applied"), "{paid}");
    }

    /// The folder of a new validator, by the steps of docs/REGISTRY.md, and its entry.
    fn make(&self, place: usize) -> String {
        self.init(place);
        self.entry(place, &[])
    }

    fn init(&self, place: usize) {
        let folder = format!("validator-{place}");
        let peers = [1, 2].map(|peer| format!("{peer}@{}", self.address(peer)));
        let address = self.address(place);
        self.quorate(&[
            "init",
            "--genesis",
            "genesis.json",
            "--peer",
            &peers[0],
            &peers[1],
            "--address",
            &address,
            "--plain",
            "--out",
            &folder,
        ]);
        let file = self.validator(place).join("validator.toml");
        let text = quick(&fs::read_to_string(&file).unwrap());
        fs::write(
            &file,
            text.replace("\"registry.toml\"", "\"../registry.toml\""),
        )
        .unwrap();
        self.quorate(&["config", "check", file.to_str().unwrap()]);
    }

    fn entry(&self, place: usize, more: &[&str]) -> String {
        let folder = format!("validator-{place}");
        let address = self.address(place);
        let stake = (2 * STAKE).to_string();
        let arguments = [
            "registry",
            "entry",
            "--genesis",
            "genesis.json",
            "--key",
            &format!("{folder}/identity.key"),
            "--vote-key",
            &format!("{folder}/vote.key"),
            "--stake",
            &stake,
            "--address",
            &address,
            "--name",
            "five",
        ];
        self.quorate(&[&arguments, more].concat())
    }

    async fn registry(&self, place: usize) -> Option<RegistryJson> {
        self.client(place).registry().await.ok()
    }

    async fn external(&self, place: usize) -> ExternalJson {
        let registry = self.client(place).registry().await.unwrap();
        registry.external.unwrap()
    }

    async fn wait_for(&self, what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            assert!(started.elapsed() < patience, "{what}: {}", self.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until these are the validators, and all of them vote.
    async fn wait_for_set(&self, seen_by: usize, places: &[usize]) {
        let mut wanted: Vec<Identity> = places.iter().map(|place| self.identity(*place)).collect();
        wanted.sort_unstable();
        self.wait_for(&format!("validators {places:?}"), PATIENCE, async || {
            let Some(registry) = self.registry(seen_by).await else {
                return false;
            };
            let mut acting: Vec<_> = registry.acting.iter().map(|one| one.identity).collect();
            acting.sort_unstable();
            acting == wanted
        })
        .await;
        self.wait_for(&format!("votes of {places:?}"), PATIENCE, async || {
            let status = self.client(seen_by).status().await.ok();
            let verdict = status.and_then(|status| status.verdict);
            verdict.is_some_and(|verdict| verdict.voters == places.len())
        })
        .await;
    }

    /// Waits for more blocks than two epochs have.
    async fn two_epochs(&self, seen_by: usize) {
        let height = async || {
            let status = self.client(seen_by).status().await.ok();
            status.map_or(Height(0), |status| status.executed_height)
        };
        let from = height().await;
        self.wait_for("two epochs", PATIENCE, async || {
            height().await.0 > from.0 + 2 * EPOCH_BLOCKS
        })
        .await;
    }

    fn logs(&self) -> String {
        let tails = self.processes.keys().map(|place| {
            let log = self.log(*place);
            let lines: Vec<&str> = log.lines().rev().take(12).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            format!("\nvalidator {place}:\n{}", lines.join("\n"))
        });
        tails.collect()
    }

    fn log(&self, place: usize) -> String {
        fs::read_to_string(self.validator(place).join("node.log")).unwrap_or_default()
    }

    async fn metric(&self, place: usize, name: &str) -> String {
        let socket = self.validator(place).join("data/control.sock");
        let client = RpcClient::over_socket(&socket).unwrap();
        let metrics = client.metrics().await.unwrap();
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    }
}

/// Blocks as fast as they come, readings each 200 ms, and no port for metrics.
fn quick(text: &str) -> String {
    let text = text.replace("# idle_interval = \"1s\"", "idle_interval = \"0ms\"");
    let text = text.replace("# interval = \"1s\"", "interval = \"200ms\"");
    let text = text.replace(
        "# min_block_interval = \"0ms\"",
        "min_block_interval = \"20ms\"",
    );
    let admin = text.find("[admin]").unwrap();
    let after = text[admin..].find("listen").unwrap() + admin;
    let end = text[after..].find('\n').unwrap() + after;
    format!("{}{}", &text[..admin], &text[end..])
}

/// The text without the entry of an identity.
fn without(text: &str, identity: &Identity) -> String {
    let mut entries: Vec<&str> = text.split("[[validators]]").collect();
    entries.retain(|entry| !entry.contains(&identity.to_string()));
    entries.join("[[validators]]")
}

/// Serves a file over HTTP, as JSON if it is TOML, for as long as the test runs. Returns its URL.
fn serve(file: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/validators.json", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let body = as_json(&file);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

fn as_json(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    match toml::from_str::<toml::Value>(&text) {
        Ok(list) => serde_json::to_string(&list).unwrap(),
        Err(_) => "garbage".to_owned(),
    }
}

/// Replaces a file as a whole, so that nobody reads half of it.
fn replace(path: &PathBuf, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Pays one unit 20 times a second until it is stopped. Returns how many were paid.
async fn load(
    client: RpcClient,
    chain: quorate_types::ChainId,
    key: PathBuf,
    stop: Arc<AtomicBool>,
) -> u64 {
    let secret = load_identity(&key, &KeyAccess::plain()).unwrap();
    let mut nonce = 0;
    while !stop.load(Ordering::Relaxed) {
        let transfer = Transfer {
            chain_tag: chain.tag(),
            sender: secret.identity(),
            nonce,
            to: common::payee(),
            amount: 1,
            fee: 1,
            memo: Memo::NONE,
        };
        let request = SubmitRequest {
            hex: vec![to_hex(&transfer.sign(&chain, &secret))],
            ..SubmitRequest::default()
        };
        // It is sent again until it was accepted: the node may be between two sets of validators.
        if let Ok(answer) = client.submit(&request).await
            && answer.results.iter().all(|result| result.error.is_none())
        {
            nonce += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    nonce
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_quorum_reads_takes_effect_and_nothing_else() {
    const APART: usize = 3;
    const OVER_HTTP: usize = 2;
    let mut chain = Chain::start(APART, OVER_HTTP);
    chain.wait_for_set(1, &[0, 1, 2, 3]).await;
    // The addresses of the first four come with the first reports.
    chain
        .wait_for("the addresses", PATIENCE, async || {
            let registry = chain.registry(1).await.unwrap();
            registry
                .bonds
                .iter()
                .all(|bond| !bond.address.as_str().is_empty())
        })
        .await;
    chain.quorate(&["keys", "generate", "--plain", "--out", "payer"]);
    let payer = chain.path("payer/identity.key");
    let payer_identity = load_identity(&payer, &KeyAccess::plain())
        .unwrap()
        .identity();
    chain.pay(payer_identity, 100_000);
    let stop = Arc::new(AtomicBool::new(false));
    let (id, at) = (chain.genesis.chain_id(), chain.client(1));
    let paying = tokio::spawn(load(at, id, payer, stop.clone()));

    // A fifth is listed, joins at a border, and votes.
    let entry = chain.make(4);
    chain.pay(chain.identity(4), 100_000);
    chain.run(4);
    let four = fs::read_to_string(chain.shared()).unwrap();
    let five = format!("{four}\n{entry}");
    replace(&chain.shared(), &five);
    replace(&chain.apart(), &five);
    chain.wait_for_set(1, &[0, 1, 2, 3, 4]).await;

    // The first one is removed, and leaves.
    let fewer = without(&five, &chain.identity(0));
    replace(&chain.shared(), &fewer);
    replace(&chain.apart(), &fewer);
    chain.wait_for_set(1, &[1, 2, 3, 4]).await;
    let bonds = chain.registry(1).await.unwrap().bonds;
    assert_eq!(bonds.len(), 4);

    // Garbage changes nothing, and shows everywhere.
    replace(&chain.shared(), &format!("{fewer}\ngarbage"));
    for place in [1, 2, 4] {
        chain
            .wait_for("trouble with the file", SEEN_WITHIN, async || {
                let trouble = chain.external(place).await.trouble;
                trouble.is_some_and(|trouble| trouble.contains("not a list of validators"))
            })
            .await;
        let source = "quorate_registry_trouble{part=\"source\"}";
        assert_eq!(chain.metric(place, source).await, "1");
        let log = chain.log(place);
        assert!(log.contains("trouble with the external registry"), "{log}");
    }
    let url = format!("http://127.0.0.1:{}", chain.base + 3);
    let shown = chain.quorate(&["registry", "list", "--rpc", &url]);
    assert!(
        shown.contains("not in order") && shown.contains("at line"),
        "{shown}"
    );
    assert!(!shown.contains("garbage"), "a wrong file may hold a key");
    chain.two_epochs(1).await;
    assert_eq!(chain.registry(1).await.unwrap().bonds, bonds);
    replace(&chain.shared(), &fewer);
    chain
        .wait_for("the file to be in order", SEEN_WITHIN, async || {
            chain.external(1).await.trouble.is_none()
        })
        .await;

    // One validator reads a file in which another has been given more stake, one has left and one is back. What the
    // others read takes effect meanwhile, but not what it alone reads.
    let lies = five.replace("stake = 2000000", "stake = 9000000");
    replace(&chain.apart(), &without(&lies, &chain.identity(1)));
    chain
        .wait_for("the lies to be reported", PATIENCE, async || {
            let seen = chain.external(APART).await.differences;
            seen.len() == 3 && seen.iter().map(|one| one.reporters).sum::<usize>() == 1
        })
        .await;
    replace(
        &chain.shared(),
        &fewer.replace("name = \"five\"", "name = \"fifth\""),
    );
    chain
        .wait_for("the new name", PATIENCE, async || {
            let bonds = chain.registry(1).await.unwrap().bonds;
            bonds.iter().any(|bond| bond.name.as_str() == "fifth")
        })
        .await;
    chain.two_epochs(1).await;
    let registry = chain.registry(1).await.unwrap();
    assert_eq!(registry.acting.len(), 4);
    let mut stakes: Vec<u64> = registry.bonds.iter().map(|bond| bond.stake).collect();
    stakes.sort_unstable();
    assert_eq!(stakes, [STAKE, STAKE, STAKE, 2 * STAKE]);
    assert_eq!(chain.external(1).await.differences, []);

    // Every transfer was applied, at all of them.
    stop.store(true, Ordering::Relaxed);
    let paid = paying.await.unwrap();
    assert!(paid > 100, "{paid}");
    for place in [0, 1, 2, 3, 4] {
        chain
            .wait_for("all transfers", PATIENCE, async || {
                let account = chain.client(place).account(&common::payee(), false).await;
                account.is_ok_and(|account| account.balance == paid)
            })
            .await;
    }
}

/// The first four bytes of a call's data, by the name of the function and the types of its parameters.
async fn selector(anvil: &Anvil, function: &str) -> String {
    let name = format!("0x{}", hex::encode(function));
    let hash = anvil
        .ask("web3_sha3", serde_json::json!([name]))
        .await
        .unwrap();
    hash.as_str().unwrap()[..10].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn validators_follow_a_contract_on_a_real_evm_node() {
    let Some(anvil) = Anvil::start(1, 60).await else {
        return;
    };
    let mut chain = Chain::make_all(&[]);
    // One endpoint that is there, and one that is not: one of two is not more than half, so the second is the same node
    // by another name, and the third is away.
    let port = anvil.url.rsplit(':').next().unwrap();
    let section = format!(
        "[registry.evm]\nurls = [\"{}\", \"http://localhost:{port}/?a-key\", \"http://127.0.0.1:1/\"]\n\
         contract = \"{}\"\nchain_id = {}\ninterval = \"200ms\"\n",
        anvil.url,
        anvil.contract,
        anvil::CHAIN_ID
    );
    // The genesis validators bond, each by an account of its own.
    let text = fs::read_to_string(chain.shared()).unwrap();
    let terms = quorate_registry::Terms {
        chain_name: chain.genesis.name.clone(),
        min_stake: 1,
    };
    let listed = Reading::parse(&text, Format::Toml, &terms, None).unwrap();
    for (by, (identity, entry)) in listed.entries.iter().enumerate() {
        let data = format!("0x{}", hex::encode(bond_call(identity, entry)));
        anvil.send(anvil.call(by, &data, entry.stake)).await;
    }
    anvil.finish().await;
    for place in 0..4 {
        chain.reads(place, &section);
        chain.run(place);
    }
    chain.wait_for_set(1, &[0, 1, 2, 3]).await;
    chain
        .wait_for("the list", PATIENCE, async || {
            let external = chain.external(1).await;
            external.entries == Some(4) && external.trouble.is_none()
        })
        .await;
    let block = chain.external(1).await.block.unwrap();

    // A fifth bonds, and somebody with a proof for another identity.
    chain.init(4);
    chain.reads(4, &section);
    let data = chain.entry(4, &["--calldata"]);
    anvil.send(anvil.call(5, data.trim(), 2 * STAKE)).await;
    let stranger = Identity([9; 32]);
    let (_, copied) = listed.entries.first_key_value().unwrap();
    let data = format!("0x{}", hex::encode(bond_call(&stranger, copied)));
    anvil.send(anvil.call(6, &data, 9 * STAKE)).await;
    anvil.finish().await;
    chain.pay(chain.identity(4), 100_000);
    chain.run(4);
    chain.wait_for_set(1, &[0, 1, 2, 3, 4]).await;

    // What operators see: each endpoint with its block, who is left out, and no key of an account.
    let external = chain.external(1).await;
    assert_eq!((external.trouble, external.entries), (None, Some(5)));
    assert!(external.block.unwrap() > block);
    let blocks: Vec<_> = external.sources.iter().map(|source| source.block).collect();
    assert!(blocks[0].is_some() && blocks[0] == blocks[1] && blocks[2].is_none());
    assert!(external.sources[2].trouble.is_some());
    let left_out = external.left_out;
    assert!(left_out.len() == 1 && left_out[0].validator == stranger);
    let url = format!("http://127.0.0.1:{}", chain.base + 3);
    let shown = chain.quorate(&["registry", "list", "--rpc", &url]);
    for words in [
        format!(
            "external registry: 5 validators, read 0 s ago, block {}",
            external.block.unwrap()
        ),
        format!(
            "source http://localhost:{port}: read 0 s ago, block {}; good",
            blocks[1].unwrap()
        ),
        "source http://127.0.0.1:1: never read; ".to_owned(),
        format!("left out: validator {stranger}: the proof of possession"),
    ] {
        assert!(shown.contains(&words), "{words}: {shown}");
    }
    assert!(!shown.contains("a-key") && !chain.log(1).contains("a-key"));

    // One leaves.
    let gone = chain.identity(0);
    let by = listed.entries.keys().position(|identity| *identity == gone);
    let unbond = selector(&anvil, "unbond(bytes32,uint64)").await;
    let data = format!("{unbond}{gone}{STAKE:064x}");
    anvil.send(anvil.call(by.unwrap(), &data, 0)).await;
    anvil.finish().await;
    chain.wait_for_set(1, &[1, 2, 3, 4]).await;

    // The node goes away: that is seen in time, and the chain goes on.
    drop(anvil);
    for place in [1, 2, 4] {
        chain
            .wait_for("trouble with the endpoints", SEEN_WITHIN, async || {
                let trouble = chain.external(place).await.trouble;
                trouble.is_some_and(|trouble| trouble.contains("2 of 3 sources must say the same"))
            })
            .await;
    }
    chain.two_epochs(1).await;
    assert_eq!(chain.external(1).await.entries, Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_cannot_pay_for_reports_is_named_until_it_can() {
    let none = [("\"balance\": 1000000\n", "\"balance\": 0\n")];
    let chain = Chain::start_changed(3, 2, &none);
    chain.wait_for_set(1, &[0, 1, 2, 3]).await;
    // All four differ from what the genesis file says.
    for list in [chain.shared(), chain.apart()] {
        let text = fs::read_to_string(&list).unwrap();
        let richer = text.replace(
            &format!("stake = {STAKE}"),
            &format!("stake = {}", STAKE + 1),
        );
        assert_ne!(richer, text);
        fs::write(&list, richer).unwrap();
    }
    let own = chain.identity(1);
    chain
        .wait_for("the trouble", PATIENCE, async || {
            let external = chain.external(1).await;
            let named = external.report_trouble.is_some_and(|trouble| {
                trouble.contains(&own.to_string()) && trouble.contains("cannot pay")
            });
            named && external.trouble.is_none() && external.differences.len() == 4
        })
        .await;
    let reports = "quorate_registry_trouble{part=\"reports\"}";
    assert_eq!(chain.metric(1, reports).await, "1");
    assert_eq!(chain.metric(1, "quorate_registry_reports_total").await, "0");
    for place in 0..4 {
        chain.pay(chain.identity(place), 100_000);
    }
    chain
        .wait_for("reports", PATIENCE, async || {
            let external = chain.external(1).await;
            external.report_trouble.is_none() && external.differences.is_empty()
        })
        .await;
    assert_eq!(chain.metric(1, reports).await, "0");
}

#[test]
fn a_source_that_cannot_be_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("net");
    let made = Command::new(BINARY)
        .args([
            "testnet",
            "--plain",
            "--scheme",
            "bls-aggregate",
            "--stake",
            "1000000",
            "--out",
        ])
        .arg(&out)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let config = out.join("validator-0/validator.toml");
    let text = fs::read_to_string(&config).unwrap();
    let check = |section: &str| {
        fs::write(&config, format!("{text}\n{section}\n")).unwrap();
        let checked = Command::new(BINARY)
            .args(["config", "check"])
            .arg(&config)
            .output()
            .unwrap();
        assert!(!checked.status.success());
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    let native = check("[registry]\nfile = \"registry.toml\"");
    assert!(
        native.contains("`registry`") && native.contains("registry.external"),
        "{native}"
    );
    let evm = "[registry.evm]\nurls = [\"http://x\"]\nchain_id = 1\n\
               contract = \"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\"";
    for (section, key) in [
        ("[registry]", "`registry.file`"),
        ("[registry.http]\nurls = []", "`registry.http.urls`"),
        (
            "[registry.http]\nurls = [\"ftp://x\"]",
            "`registry.http.urls`",
        ),
        (
            "[registry.http]\nurls = [\"http://a:b@x\"]",
            "`registry.http.urls`",
        ),
        (
            "[registry.http]\nurls = [\"http://x\", \"http://x\"]",
            "`registry.http.urls`",
        ),
        (
            "[registry.http]\nurls = [\"http://x\", \"http://y\"]\nagree = 1",
            "`registry.http.agree`",
        ),
        (
            "[registry.http]\nurls = [\"http://x\"]\ntimeout = \"1ms\"",
            "`registry.http.timeout`",
        ),
        (
            "[registry]\nfile = \"x\"\ninterval = \"0ms\"",
            "`registry.interval`",
        ),
        (
            "[registry]\ninterval = \"1s\"\n[registry.http]\nurls = [\"http://x\"]",
            "`registry.interval`",
        ),
        (
            &format!("[registry.http]\nurls = [\"http://x\"]\n{evm}"),
            "`registry.evm`",
        ),
        (
            &format!("[registry]\nfile = \"x\"\n{evm}"),
            "`registry.file`",
        ),
        (&evm.replace("http://x", "x"), "`registry.evm.urls`"),
        (
            &evm.replace("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x1"),
            "`registry.evm.contract`",
        ),
        // A letter of the wrong case, and no contract.
        (&evm.replace("BeAed", "BeAeD"), "`registry.evm.contract`"),
        (
            &evm.replace("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", &"0".repeat(40)),
            "`registry.evm.contract`",
        ),
        (
            &evm.replace("chain_id = 1", "chain_id = 0"),
            "`registry.evm.chain_id`",
        ),
        (&format!("{evm}\nagree = 2"), "`registry.evm.agree`"),
        (
            &format!("{evm}\ninterval = \"6m\""),
            "`registry.evm.interval`",
        ),
        (
            &format!("{evm}\ntimeout = \"100ms\""),
            "`registry.evm.timeout`",
        ),
    ] {
        let error = check(section);
        assert!(
            error.contains(key) && error.contains("validator.toml"),
            "{section}: {error}"
        );
    }
}
