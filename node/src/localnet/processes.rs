//! The validators as child processes.
//!
//! Each child holds the reading end of a pipe as its standard input and stops when it closes (`run
//! --stop-with-stdin`). Closing the pipe is how a child is stopped, and no child outlives this
//! process, however it ends. This needs no `unsafe` process code.

use super::{
    figures::Sample,
    setup::{Settings, follower_directory},
};
use crate::{
    config::{CONFIG_FILE, FOLLOWER_FILE},
    control::CONTROL_SOCKET,
    genesis::{GENESIS_FILE, validator_directory},
};
use anyhow::{Context as _, bail};
use quorate_api::RpcClient;
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Bytes of the genesis file whose state a new validator makes in a second at least, before it responds: some 3,000
/// accounts, beside other validators that do the same.
const GENESIS_BYTES_PER_SECOND: u64 = 300_000;

/// How long a validator can take until it responds.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a validator can take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Number of log lines shown when a validator has died.
const LOG_TAIL_LINES: usize = 15;

/// How much of the log's end is searched for these lines.
const LOG_TAIL_BYTES: u64 = 64 << 10;

/// A running validator or follower, or one that has ended.
struct Validator {
    child: Option<Child>,
    log: PathBuf,
    client: RpcClient,
    operator: RpcClient,
}

/// The running validators, and the spares, which run once they are spawned.
pub struct Network {
    binary: PathBuf,
    directory: PathBuf,
    settings: Settings,
    validators: Vec<Validator>,
    followers: Vec<Validator>,
}

/// Checks that nothing else listens on the validators' ports.
///
/// # Errors
///
/// If something does, or a setting is out of range.
pub fn check_ports(settings: &Settings) -> anyhow::Result<()> {
    settings.check()?;
    for place in 0..settings.machines() {
        for address in [
            settings.p2p_address(place),
            settings.rpc_address(place),
            settings.admin_address(place),
        ] {
            check_port(address)?;
        }
    }
    for place in 0..settings.followers {
        for address in [
            settings.follower_address(place),
            settings.follower_rpc_address(place),
        ] {
            check_port(address)?;
        }
    }
    Ok(())
}

fn check_port(address: SocketAddr) -> anyhow::Result<()> {
    TcpListener::bind(address).with_context(|| match address.port() {
        ..1_024 => format!("{address} cannot be used: use a --base-port of 1024 or more"),
        _ => format!("{address} is taken: stop what uses it, or use another --base-port"),
    })?;
    Ok(())
}

impl Network {
    /// Starts all validators of a prepared folder, using the given binary. Of the spares, those are started that have run
    /// before.
    ///
    /// # Errors
    ///
    /// If a port is taken or a process cannot be started.
    pub fn start(binary: &Path, directory: &Path, settings: &Settings) -> anyhow::Result<Self> {
        Self::start_with(binary, directory, settings, |_| Vec::new())
    }

    /// Like [`Self::start`], with additional arguments for some validators.
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
            followers: Vec::new(),
        };
        check_ports(settings)?;
        for place in 0..settings.machines() {
            let own = validator_directory(directory, place);
            let control = own.join("data").join(CONTROL_SOCKET);
            network.validators.push(Validator {
                child: None,
                log: own.join("node.log"),
                client: RpcClient::new(&format!("http://{}", settings.rpc_address(place)))?,
                // Over the socket and not the address, because folders of earlier versions have no
                // admin address.
                operator: RpcClient::over_socket(&control)?,
            });
        }
        // A spare that has run before may validate by now.
        let spares = settings.validators..settings.machines();
        let begun = spares.filter(|place| network.data_directory(*place).exists());
        let begun: Vec<usize> = (0..settings.validators).chain(begun).collect();
        for place in begun {
            let own = arguments(place);
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            network.spawn(place, &own)?;
        }
        for place in 0..settings.followers {
            let own = follower_directory(directory, place);
            let control = own.join("data").join(CONTROL_SOCKET);
            network.followers.push(Validator {
                child: None,
                log: own.join("node.log"),
                client: RpcClient::new(&format!(
                    "http://{}",
                    settings.follower_rpc_address(place)
                ))?,
                operator: RpcClient::over_socket(&control)?,
            });
            network.spawn_follower(place)?;
        }
        Ok(network)
    }

    /// Starts a validator that is not running, with additional arguments.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn spawn(&mut self, place: usize, arguments: &[&str]) -> anyhow::Result<()> {
        let binary = self.binary.clone();
        self.spawn_program(&binary, place, arguments)
    }

    /// Like [`Self::spawn`], with another program whose subcommand `run` takes the same arguments.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn spawn_program(
        &mut self,
        binary: &Path,
        place: usize,
        arguments: &[&str],
    ) -> anyhow::Result<()> {
        let config = validator_directory(&self.directory, place).join(CONFIG_FILE);
        self.validators[place].start(binary, "run", &config, arguments)
    }

    /// Starts a follower that is not running.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn spawn_follower(&mut self, place: usize) -> anyhow::Result<()> {
        let config = follower_directory(&self.directory, place).join(FOLLOWER_FILE);
        self.followers[place].start(&self.binary, "follow", &config, &[])
    }

    /// Kills a follower immediately, like `kill -9`.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill_follower(&mut self, place: usize) -> anyhow::Result<()> {
        self.followers[place].kill()
    }

    /// Returns a follower's process id if it is running.
    pub fn follower_process(&self, place: usize) -> Option<u32> {
        self.followers[place].child.as_ref().map(Child::id)
    }

    pub fn follower(&self, place: usize) -> &RpcClient {
        &self.followers[place].client
    }

    /// Returns the followers' HTTP addresses.
    pub fn follower_urls(&self) -> Vec<String> {
        let urls = self.followers.iter();
        urls.map(|follower| follower.client.url().to_owned())
            .collect()
    }

    /// Waits until every running validator responds.
    ///
    /// # Errors
    ///
    /// If a validator dies or takes too long; the error includes the end of its log.
    pub async fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let genesis = fs::metadata(self.directory.join(GENESIS_FILE));
        let making_the_state = genesis.map_or(0, |file| file.len() / GENESIS_BYTES_PER_SECOND);
        let deadline = Instant::now() + START_LIMIT + Duration::from_secs(making_the_state);
        for place in self.running() {
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

    /// Waits until all validators are linked to each other. Returns whether that happened within
    /// the limit. Blocks are made as soon as a quorum is linked, but until then some validators
    /// miss the proposals of leaders that they are not linked to.
    pub async fn wait_until_linked(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let running = self.running().len();
        let others = running.saturating_sub(1) as u64;
        loop {
            let (fewest, answering) = Sample::take(self).await.connected();
            if fewest == others && answering == running {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the validators that ended unexpectedly since the last call.
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

    /// Kills a validator immediately, like `kill -9`.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        self.validators[place].kill()
    }

    /// Stops all validators and followers gracefully. Returns those that had to be killed.
    pub fn stop(&mut self) -> Vec<usize> {
        for validator in self.followers.iter_mut().chain(&mut self.validators) {
            if let Some(child) = &mut validator.child {
                drop(child.stdin.take());
            }
        }
        let deadline = Instant::now() + STOP_LIMIT;
        let mut killed = Vec::new();
        let all = self.validators.iter_mut().chain(&mut self.followers);
        for (place, validator) in all.enumerate() {
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

    pub fn client(&self, place: usize) -> &RpcClient {
        &self.validators[place].client
    }

    /// Returns a client with operator access: metrics, and full details about peers.
    pub fn operator(&self, place: usize) -> &RpcClient {
        &self.validators[place].operator
    }

    pub fn urls(&self) -> Vec<String> {
        self.validators
            .iter()
            .map(|validator| validator.client.url().to_owned())
            .collect()
    }

    /// Returns a validator's process id if it is running.
    pub fn process(&self, place: usize) -> Option<u32> {
        self.validators[place].child.as_ref().map(Child::id)
    }

    pub fn data_directory(&self, place: usize) -> PathBuf {
        crate::genesis::validator_directory(&self.directory, place).join("data")
    }

    /// Returns the validators and spares whose processes were started and have not ended, as far as is known.
    pub fn running(&self) -> Vec<usize> {
        (0..self.size())
            .filter(|place| self.process(*place).is_some())
            .collect()
    }

    /// Returns the number of validators and spares, running or not.
    pub fn size(&self) -> usize {
        self.validators.len()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the end of a validator's log.
    pub fn log_tail(&self, place: usize) -> String {
        let log = &self.validators[place].log;
        let text = end_of(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("  {}\n  (from {})", tail.join("\n  "), log.display())
    }
}

/// Returns the last [`LOG_TAIL_BYTES`] bytes of a file.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut content = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

impl Validator {
    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("cannot kill a process")?;
            child.wait().context("cannot wait for a process")?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        binary: &Path,
        command: &str,
        config: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let child = Command::new(binary)
            .args([command, "--allow-plain-keys"])
            .arg("--config")
            .arg(config)
            .arg("--stop-with-stdin")
            .args(arguments)
            // Ctrl-C is for this process, which ends its children in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        self.child = Some(child);
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop();
    }
}
