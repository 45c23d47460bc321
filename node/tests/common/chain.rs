//! A chain with a registry in real processes, by the commands that docs/REGISTRY.md names.

use super::{BINARY, LAB, free_base_port};
use quorate_api::{BlocksJson, RegistryJson, RpcClient, StatusJson, from_hex};
use quorate_types::{Epoch, Handover, Height, Identity, ValidatorSet, genesis::Genesis};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

pub const STAKE: u64 = 1_000_000;
/// Short epochs, and longer ones where there must be time to pass shares on.
pub const EPOCH_BLOCKS: [(&str, &str); 2] = [("bls-aggregate", "40"), ("bls-threshold", "320")];
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Validators of a chain with a registry, run by the commands of docs/REGISTRY.md.
pub struct Chain {
    pub folder: tempfile::TempDir,
    pub base: u16,
    /// The chain's id.
    pub id: String,
    /// Whether the validators share a vote key.
    pub shares: bool,
    /// Whether who bonds gets a seat although nobody leaves.
    pub free_seats: bool,
    pub processes: BTreeMap<usize, Child>,
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
    /// Four validators with a registry, and blocks as fast as they come.
    pub fn start(shares: bool) -> Self {
        Self::start_with(shares, 4, "20ms")
    }

    pub fn start_with(shares: bool, validators: usize, block_interval: &str) -> Self {
        Self::start_as(shares, validators, block_interval, &[])
    }

    /// With more options of `quorate testnet`.
    pub fn start_as(shares: bool, validators: usize, block_interval: &str, more: &[&str]) -> Self {
        let (scheme, epoch) = EPOCH_BLOCKS[usize::from(shares)];
        let mut chain = Self {
            shares,
            free_seats: !more.contains(&"--max-validators"),
            folder: tempfile::tempdir().unwrap(),
            base: free_base_port(validators + 4),
            id: String::new(),
            processes: BTreeMap::new(),
        };
        let out = chain.path("net");
        let (base, stake) = (chain.base.to_string(), STAKE.to_string());
        let count = validators.to_string();
        let options = [
            ("--out", out.to_str().unwrap()),
            ("--scheme", scheme),
            ("--base-port", &base),
            ("--validators", &count),
            ("--stake", &stake),
            ("--epoch-blocks", epoch),
            ("--max-validators", "10"),
            ("--unbond-epochs", "1"),
        ];
        let options = options.iter().filter(|(name, _)| !more.contains(name));
        let mut arguments = vec!["testnet", "--plain"];
        arguments.extend(options.flat_map(|(name, value)| [*name, *value]));
        arguments.extend(more);
        chain.quorate(&arguments);
        chain.id = genesis(&chain.path("net/genesis.json"))
            .chain_id()
            .to_string();
        for place in 0..validators {
            let file = chain.validator(place).join("validator.toml");
            let text = quick(&fs::read_to_string(&file).unwrap());
            fs::write(
                &file,
                text.replace("\"20ms\"", &format!("\"{block_interval}\"")),
            )
            .unwrap();
            chain.run(place);
        }
        chain
    }

    pub fn kill(&mut self, place: usize) {
        let mut process = self.processes.remove(&place).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn validator(&self, place: usize) -> PathBuf {
        self.path("net").join(format!("validator-{place}"))
    }

    pub fn address(&self, place: usize) -> String {
        format!("127.0.0.1:{}", usize::from(self.base) + 2 * place)
    }

    pub fn url(&self, place: usize) -> String {
        format!(
            "http://127.0.0.1:{}",
            usize::from(self.base) + 2 * place + 1
        )
    }

    pub fn try_quorate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    pub fn quorate(&self, arguments: &[&str]) -> String {
        self.checked(arguments, self.try_quorate(arguments))
    }

    fn checked(&self, arguments: &[&str], output: Output) -> String {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn run(&mut self, place: usize) {
        self.run_program(Path::new(BINARY), place, &[]);
    }

    /// Runs a validator that misbehaves.
    pub fn misbehave(&mut self, place: usize, fault: &str) {
        self.run_program(Path::new(LAB), place, &["--misbehave", fault]);
    }

    fn run_program(&mut self, program: &Path, place: usize, more: &[&str]) {
        let folder = self.validator(place);
        let log = File::options()
            .append(true)
            .create(true)
            .open(folder.join("node.log"))
            .unwrap();
        let child = Command::new(program)
            .args(["run", "--allow-plain-keys", "--config"])
            .arg(folder.join("validator.toml"))
            .args(more)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.processes.insert(place, child.unwrap());
    }

    pub fn identity(&self, place: usize) -> Identity {
        let key = self.validator(place).join("identity.key");
        let shown = self.quorate(&["keys", "show", key.to_str().unwrap()]);
        shown
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .unwrap()
    }

    /// Pays an account, by way of a validator.
    pub fn pay(&self, by: usize, to: Identity, amount: u64) {
        let (to, amount) = (to.to_string(), amount.to_string());
        let paid = self.quorate(&[
            "tx",
            "transfer",
            "--key",
            "net/account/identity.key",
            "--chain-id",
            &self.id,
            "--to",
            &to,
            "--amount",
            &amount,
            "--wait",
            "--rpc",
            &self.url(by),
        ]);
        assert!(paid.contains("applied"), "{paid}");
    }

    /// An operation of a validator's account, by way of another validator.
    pub fn operate(&self, by: usize, place: usize, operation: &[&str]) -> String {
        let key = self.validator(place).join("identity.key");
        let url = self.url(by);
        let mut arguments = vec!["registry"];
        arguments.extend(operation);
        arguments.extend([
            "--key",
            key.to_str().unwrap(),
            "--chain-id",
            &self.id,
            "--rpc",
            &url,
        ]);
        // The validator passes shares on from the same account, and may have used the nonce meanwhile.
        let output = self.try_quorate(&arguments);
        match String::from_utf8_lossy(&output.stderr).contains("(nonce_used)") {
            true => self.quorate(&arguments),
            false => self.checked(&arguments, output),
        }
    }

    /// A new validator, by the steps of docs/REGISTRY.md. It knows two of the others.
    pub fn join(&mut self, by: usize, place: usize) {
        self.bond(by, place);
        self.run(place);
    }

    /// The same, up to where its machine would be started.
    pub fn bond(&mut self, by: usize, place: usize) {
        let folder = self.validator(place);
        let peers = [1, 3].map(|peer| format!("{peer}@{}", self.address(peer)));
        let next_steps = self.quorate(&[
            "init",
            "--genesis",
            "net/genesis.json",
            "--peer",
            &peers[0],
            &peers[1],
            "--address",
            &self.address(place),
            "--plain",
            "--out",
            folder.to_str().unwrap(),
        ]);
        assert_eq!(
            next_steps.contains("--vote-key"),
            !self.shares,
            "{next_steps}"
        );
        let file = folder.join("validator.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, quick(&text)).unwrap();
        self.quorate(&["config", "check", file.to_str().unwrap()]);
        self.pay(by, self.identity(place), STAKE + 100_000);
        let (stake, name, address) = (STAKE.to_string(), format!("v{place}"), self.address(place));
        let key = folder.join("vote.key");
        let vote_key = ["--vote-key", key.to_str().unwrap()];
        let mut bond = vec![
            "bond",
            "--stake",
            &stake,
            "--address",
            &address,
            "--name",
            &name,
        ];
        bond.extend(vote_key.iter().filter(|_| !self.shares));
        let foreseen = self.operate(by, place, &[&bond[..], &["--dry-run"]].concat());
        assert!(foreseen.contains("it would be applied"), "{foreseen}");
        let own = self.identity(place).to_string();
        assert!(!self.free_seats || foreseen.contains(&own), "{foreseen}");
        let bonded = self.operate(by, place, &[&bond[..], &["--wait"]].concat());
        assert!(bonded.contains("applied"), "{bonded}");
    }

    pub fn client(&self, place: usize) -> RpcClient {
        RpcClient::new(&self.url(place)).unwrap()
    }

    pub async fn status(&self, place: usize) -> Option<StatusJson> {
        self.client(place).status().await.ok()
    }

    pub async fn registry(&self, place: usize) -> Option<RegistryJson> {
        self.client(place).registry().await.ok()
    }

    pub async fn wait_for(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !holds().await {
            assert!(started.elapsed() < PATIENCE, "{what}: {}", self.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until these are the validators, and all of them vote.
    pub async fn wait_for_set(&self, seen_by: usize, places: &[usize]) {
        let mut wanted: Vec<Identity> = places.iter().map(|place| self.identity(*place)).collect();
        wanted.sort_unstable();
        self.wait_for(&format!("validators {places:?}"), async || {
            let Some(registry) = self.registry(seen_by).await else {
                return false;
            };
            let mut acting: Vec<_> = registry
                .acting
                .iter()
                .map(|member| member.identity)
                .collect();
            acting.sort_unstable();
            acting == wanted
        })
        .await;
        self.wait_for(&format!("votes of {places:?}"), async || {
            let status = self.status(seen_by).await;
            let verdict = status.and_then(|status| status.verdict);
            verdict.is_some_and(|verdict| verdict.voters == places.len())
        })
        .await;
    }

    pub fn logs(&self) -> String {
        let tails = self.processes.keys().map(|place| {
            let log =
                fs::read_to_string(self.validator(*place).join("node.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            format!(
                "\nvalidator {place}:\n{}",
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        });
        tails.collect()
    }

    /// Who knows only the genesis file's validators verifies blocks of later ones, by what a node serves.
    pub fn is_verified_from_outside(&self, by: usize, height: Height) {
        let (url, newest) = (self.url(by), height.to_string());
        let block = |which: &str, trust: &str| {
            self.try_quorate(&["block", which, "--verify", "--trust", trust, "--rpc", &url])
        };
        for which in ["5", &newest] {
            let shown = block(which, "net/trust.json");
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            assert!(text.contains("a quorum finalised"), "{which}: {shown:?}");
        }
        let account = self.identity(4).to_string();
        let shown = self.quorate(&[
            "account",
            &account,
            "--trust",
            "net/trust.json",
            "--rpc",
            &url,
        ]);
        assert!(shown.contains("verified"), "{shown}");
        fs::copy(self.path("net/trust.json"), self.path("moved.json")).unwrap();
        let moved = self.quorate(&["trust", "update", "moved.json", "--rpc", &url]);
        assert!(moved.contains("(it was 0)"), "{moved}");
        assert!(block(&newest, "moved.json").status.success());
        let old = block("5", "moved.json");
        let error = String::from_utf8_lossy(&old.stderr).into_owned();
        assert!(!old.status.success(), "block 5 is of before");
        assert!(error.contains("later validators"), "{error}");
    }

    /// A node that has lost its data gets the state from a file, and goes on from there.
    pub fn starts_from_a_file(&mut self, place: usize, of: usize) {
        let mut process = self.processes.remove(&place).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        fs::remove_dir_all(self.validator(place).join("data")).unwrap();
        let config = |place| self.validator(place).join("validator.toml");
        let (from, to) = (config(of), config(place));
        self.quorate(&[
            "snapshot",
            "export",
            "--config",
            from.to_str().unwrap(),
            "s.snapshot",
        ]);
        self.quorate(&[
            "snapshot",
            "import",
            "--config",
            to.to_str().unwrap(),
            "--allow-plain-keys",
            "s.snapshot",
        ]);
        self.run(place);
    }

    /// The ids of all blocks up to a height.
    pub async fn ids(&self, place: usize, up_to: Height) -> Vec<String> {
        let mut ids = Vec::new();
        while (ids.len() as u64) < up_to.0 {
            let next = ids.len() as u64 + 1;
            let blocks: BlocksJson = self
                .client(place)
                .blocks(Height(next), 100, Duration::ZERO)
                .await
                .unwrap();
            ids.extend(blocks.blocks.iter().map(|block| block.id.to_string()));
        }
        ids.truncate(up_to.0 as usize);
        ids
    }

    /// The validators since the genesis file's, by a node's handovers. Their certificates differ from node to
    /// node: each names the quorum that it has heard.
    pub async fn sets(&self, place: usize) -> Vec<ValidatorSet> {
        let handovers = self.client(place).all_handovers(Epoch(0)).await.unwrap();
        handovers
            .iter()
            .map(|text| from_hex::<Handover>("a handover", text).unwrap().set)
            .collect()
    }

    pub async fn balance(&self, place: usize, of: Identity) -> u64 {
        self.client(place)
            .account(&of, false)
            .await
            .unwrap()
            .balance
    }
}

/// Blocks as fast as they come, and no port for metrics.
pub fn quick(text: &str) -> String {
    let text = text.replace("# idle_interval = \"1s\"", "idle_interval = \"0ms\"");
    let text = text.replace(
        "# min_block_interval = \"0ms\"",
        "min_block_interval = \"20ms\"",
    );
    let admin = text.find("[admin]").unwrap();
    let after = text[admin..].find("listen").unwrap() + admin;
    let end = text[after..].find('\n').unwrap() + after;
    format!("{}{}", &text[..admin], &text[end..])
}

pub fn genesis(path: &Path) -> Genesis {
    Genesis::from_json(&fs::read_to_string(path).unwrap()).unwrap()
}
