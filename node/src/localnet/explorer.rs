//! A local network's explorer, as a process.

use super::setup::Settings;
use crate::genesis::{GENESIS_FILE, TRUST_FILE};
use anyhow::Context as _;
use quorate_files::make_private_folder;
use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// How long it can take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A running explorer. It stops when this value is dropped, or when this process ends in any way.
pub struct ExplorerProcess {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl ExplorerProcess {
    /// Starts an explorer that follows all validators of a prepared folder. It serves on the first
    /// port after theirs.
    ///
    /// # Errors
    ///
    /// If the port is taken or the process cannot be started.
    pub fn start(
        binary: &Path,
        directory: &Path,
        settings: &Settings,
        upstreams: &[String],
    ) -> anyhow::Result<Self> {
        let address = settings.explorer_address();
        TcpListener::bind(address).with_context(|| format!("{address} is taken"))?;
        let data = directory.join("explorer");
        make_private_folder(&data).with_context(|| format!("cannot create {}", data.display()))?;
        let log = data.join("explorer.log");
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(binary);
        command
            .arg("explorer")
            .arg("--trust")
            .arg(directory.join(TRUST_FILE))
            .arg("--genesis")
            .arg(directory.join(GENESIS_FILE))
            .arg("--data")
            .arg(&data)
            .args(["--listen", &address.to_string(), "--stop-with-stdin"]);
        for url in upstreams {
            command.args(["--upstream", url]);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self {
            child,
            address,
            log,
        })
    }

    /// Starts it as [`Self::start`] does. If that fails, says so: the network runs without one.
    pub fn start_or_warn(
        binary: &Path,
        directory: &Path,
        settings: &Settings,
        upstreams: &[String],
    ) -> Option<Self> {
        match Self::start(binary, directory, settings, upstreams) {
            Ok(explorer) => Some(explorer),
            Err(error) => {
                eprintln!("warning: no explorer: {error:#}");
                None
            }
        }
    }

    /// Returns the URL that it serves on.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the exit status if it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it immediately, like `kill -9`.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the explorer")?;
        self.child.wait().context("cannot wait for the explorer")?;
        Ok(())
    }
}

impl Drop for ExplorerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + STOP_LIMIT;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
