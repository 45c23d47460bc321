//! The validators as processes.
//!
//! Each child holds the reading end of a pipe and stops when the pipe closes. So closing it is how
//! a child is told to stop, and no child outlives this process, however it ends.

use super::{figures::Sample, setup::Settings};
use crate::{config::CONFIG_FILE, control::CONTROL_SOCKET, genesis::validator_directory};
use anyhow::{Context as _, bail};
use quorate_load::RpcClient;
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// How long a validator may take to start answering.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a validator may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Lines of a log that are shown when its validator has died.
const LOG_TAIL_LINES: usize = 15;

/// The end of a log in which these lines are looked for.
const LOG_TAIL_BYTES: u64 = 64 << 10;

/// A running validator, or one that has ended.
struct Validator {
    child: Option<Child>,
    log: PathBuf,
    client: RpcClient,
    operator: RpcClient,
}

/// The running validators.
pub struct Network {
    binary: PathBuf,
    directory: PathBuf,
    settings: Settings,
    validators: Vec<Validator>,
}

impl Network {
    /// Starts all validators of a prepared folder with this program's binary.
    ///
    /// # Errors
    ///
    /// If a port is taken or a process cannot be started.
    pub fn start(binary: &Path, directory: &Path, settings: &Settings) -> anyhow::Result<Self> {
        Self::start_with(binary, directory, settings, |_| Vec::new())
    }

    /// The same, with further arguments for some validators.
    ///
    /// # Errors
    ///
    /// As for [`Self::start`].
    pub fn start_with(
        binary: &Path,
        directory: &Path,
        settings: &Settings,
        arguments: impl Fn(usize) -> Vec<String>,
    ) -> anyhow::Result<Self> {
        let mut network = Self {
            binary: binary.to_path_buf(),
            directory: directory.to_path_buf(),
            settings: settings.clone(),
            validators: Vec::new(),
        };
        for place in 0..settings.validators {
            for address in [
                settings.p2p_address(place),
                settings.rpc_address(place),
                settings.admin_address(place),
            ] {
                TcpListener::bind(address).with_context(|| {
                    format!("{address} is taken: stop what uses it, or use another --base-port")
                })?;
            }
            let own = validator_directory(directory, place);
            let control = own.join("data").join(CONTROL_SOCKET);
            network.validators.push(Validator {
                child: None,
                log: own.join("node.log"),
                client: RpcClient::new(&format!("http://{}", settings.rpc_address(place)))?,
                // Not by its address: folders of earlier versions have none for it.
                operator: RpcClient::over_socket(&control)?,
            });
        }
        for place in 0..settings.validators {
            let own = arguments(place);
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            network.spawn(place, &own)?;
        }
        Ok(network)
    }

    /// Starts one validator that is not running, with further arguments.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn spawn(&mut self, place: usize, arguments: &[&str]) -> anyhow::Result<()> {
        let own = validator_directory(&self.directory, place);
        let validator = &mut self.validators[place];
        let log = File::options()
            .create(true)
            .append(true)
            .open(&validator.log)
            .with_context(|| format!("cannot write {}", validator.log.display()))?;
        let child = Command::new(&self.binary)
            .args(["run", "--allow-plain-keys"])
            .arg("--config")
            .arg(own.join(CONFIG_FILE))
            .arg("--stop-with-stdin")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        validator.child = Some(child);
        Ok(())
    }

    /// Waits until every running validator answers.
    ///
    /// # Errors
    ///
    /// If one dies or takes too long; with the end of its log.
    pub async fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        for place in 0..self.validators.len() {
            while self.validators[place].client.status().await.is_err() {
                if let Some((dead, status)) = self.newly_dead().into_iter().next() {
                    bail!(
                        "validator {dead} ended ({status}):\n{}",
                        self.log_tail(dead)
                    );
                }
                if Instant::now() > deadline {
                    bail!(
                        "validator {place} does not answer:\n{}",
                        self.log_tail(place)
                    );
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Waits until each validator has a link to each other, and tells whether that came in time.
    /// Blocks come as soon as a quorum is linked, but then leaders are missed that others do not hear.
    pub async fn wait_until_linked(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let others = self.validators.len().saturating_sub(1) as u64;
        loop {
            let (fewest, answering) = Sample::take(self).await.connected();
            if fewest == others && answering == self.validators.len() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Validators that ended since the last call without being asked to.
    pub fn newly_dead(&mut self) -> Vec<(usize, ExitStatus)> {
        let mut dead = Vec::new();
        for (place, validator) in self.validators.iter_mut().enumerate() {
            let ended = validator
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok()?);
            if let Some(status) = ended {
                validator.child = None;
                dead.push((place, status));
            }
        }
        dead
    }

    /// Kills a validator at once, as `kill -9` does.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.validators[place].child.take() {
            child.kill().context("cannot kill a validator")?;
            child.wait().context("cannot wait for a validator")?;
        }
        Ok(())
    }

    /// Stops all validators cleanly. Returns those that had to be killed.
    pub fn stop(&mut self) -> Vec<usize> {
        for validator in &mut self.validators {
            if let Some(child) = &mut validator.child {
                drop(child.stdin.take());
            }
        }
        let deadline = Instant::now() + STOP_LIMIT;
        let mut killed = Vec::new();
        for (place, validator) in self.validators.iter_mut().enumerate() {
            let Some(mut child) = validator.child.take() else {
                continue;
            };
            while let Ok(None) = child.try_wait() {
                if Instant::now() > deadline {
                    let _ = child.kill();
                    let _ = child.wait();
                    killed.push(place);
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        killed
    }

    /// A client of a validator.
    pub fn client(&self, place: usize) -> &RpcClient {
        &self.validators[place].client
    }

    /// A client with an operator's rights: metrics, and everything about peers.
    pub fn operator(&self, place: usize) -> &RpcClient {
        &self.validators[place].operator
    }

    /// The validators' URLs.
    pub fn urls(&self) -> Vec<String> {
        self.validators
            .iter()
            .map(|validator| validator.client.url().to_owned())
            .collect()
    }

    /// A running validator's process id.
    pub fn process(&self, place: usize) -> Option<u32> {
        self.validators[place].child.as_ref().map(Child::id)
    }

    /// Where a validator keeps what is durable.
    pub fn data_directory(&self, place: usize) -> PathBuf {
        crate::genesis::validator_directory(&self.directory, place).join("data")
    }

    /// How many validators there are, running or not.
    pub fn size(&self) -> usize {
        self.validators.len()
    }

    /// How the network was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The end of a validator's log.
    pub fn log_tail(&self, place: usize) -> String {
        let log = &self.validators[place].log;
        let text = end_of(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("  {}\n  (from {})", tail.join("\n  "), log.display())
    }
}

/// The last bytes of a file.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut content = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop();
    }
}
