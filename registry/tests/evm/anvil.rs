//! A real EVM node (anvil) with the committed contract. The node's tests include this file, too.

use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(crate) const CHAIN_ID: u64 = 31_337;

/// A unit of stake, in wei.
const UNIT: u128 = 1_000_000_000;

/// More than any call needs, and less than one transaction may have (EIP-7825).
const GAS: &str = "0xf00000";

/// Tells what is not tested, so that it is seen although the test passes: what `eprintln` says is not.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

pub(crate) fn folder() -> PathBuf {
    // Cargo runs tests in the folder of their package.
    PathBuf::from("../deploy/staking")
}

/// The committed bytecode and ABI.
pub(crate) fn built() -> Value {
    let text = std::fs::read_to_string(folder().join("QuorateStaking.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn program() -> Option<PathBuf> {
    // The package's own command is a script that starts this program, and would leave it behind when it is killed.
    let packages = folder().join("node_modules/@foundry-rs");
    let packages = std::fs::read_dir(packages).into_iter().flatten().flatten();
    let mut programs = packages.map(|package| package.path().join("bin/anvil"));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut installed = std::env::split_paths(&paths).map(|path| path.join("anvil"));
    let program = programs.find(|program| program.is_file());
    program.or_else(|| installed.find(|program| program.is_file()))
}

pub(crate) struct Anvil {
    process: Child,
    pub(crate) url: String,
    http: reqwest::Client,
    /// The addresses of accounts that it has the keys of.
    pub(crate) accounts: Vec<String>,
    /// The contract's address.
    pub(crate) contract: String,
}

impl Drop for Anvil {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Anvil {
    /// With the contract; `None`, and that is told, if there is no anvil.
    pub(crate) async fn start(min_stake: u64, delay_seconds: u64) -> Option<Self> {
        let Some(program) = program() else {
            skipped("there is no anvil, so the contract runs nowhere (deploy/install-tools anvil)");
            return None;
        };
        // A block is final once there are two more, and each transaction makes one.
        let mut process = Command::new(program)
            .args(["--port", "0", "--slots-in-an-epoch", "1", "--chain-id"])
            .arg(CHAIN_ID.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = (lines.by_ref().map_while(Result::ok))
            .find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned));
        // What it prints for each request would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let mut anvil = Self {
            process,
            url: format!("http://{}", address.unwrap()),
            http: reqwest::Client::new(),
            accounts: Vec::new(),
            contract: String::new(),
        };
        let accounts = anvil.ask("eth_accounts", json!([])).await.unwrap();
        anvil.accounts = serde_json::from_value(accounts).unwrap();
        let code = built()["bytecode"].as_str().unwrap().to_owned();
        let data = format!("{code}{min_stake:064x}{delay_seconds:064x}");
        let deploy = json!({ "from": anvil.accounts[0], "data": data });
        let receipt = anvil.send(deploy).await;
        anvil.contract = receipt["contractAddress"].as_str().unwrap().to_owned();
        Some(anvil)
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let sent = self.http.post(&self.url).body(request.to_string());
        let sent = sent.header("content-type", "application/json").send().await;
        let answer = sent.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// The receipt of a transaction that succeeds.
    pub(crate) async fn send(&self, mut transaction: Value) -> Value {
        transaction["gas"] = json!(GAS);
        let hash = self.ask("eth_sendTransaction", json!([transaction])).await;
        let hash = hash.unwrap();
        loop {
            let receipt = self.ask("eth_getTransactionReceipt", json!([hash])).await;
            let receipt = receipt.unwrap();
            if !receipt.is_null() {
                assert_eq!(receipt["status"], "0x1", "{receipt}");
                return receipt;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// A call of the contract by an account, with stake.
    pub(crate) fn call(&self, by: usize, data: &str, stake: u64) -> Value {
        json!({
            "from": self.accounts[by],
            "to": self.contract,
            "data": data,
            "value": format!("{:#x}", u128::from(stake) * UNIT),
        })
    }

    /// Makes all that has happened final.
    pub(crate) async fn finish(&self) {
        self.ask("anvil_mine", json!(["0x3"])).await.unwrap();
    }
}
