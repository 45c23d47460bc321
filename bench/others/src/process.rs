//! A process of another system: its own group, a log file, and an end with the run.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of a log's end is looked at.
const TAIL_BYTES: u64 = 8 * 1024;
/// How many lines of it an error shows.
const TAIL_LINES: usize = 12;
/// How long each shown line is at most, in characters.
const TAIL_LINE_CHARS: usize = 300;
/// How often a program that should end is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A running process. Dropping it kills its whole group.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it writes goes to `NAME.log` in `folder`.
    pub(crate) fn start(name: &str, folder: &Path, mut command: Command) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let log = folder.join(format!("{name}.log"));
        let file =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let same = file
            .try_clone()
            .with_context(|| format!("cannot open {} twice", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(same)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// That it still runs.
    ///
    /// # Errors
    /// If it has ended, with the last lines of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.exit()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended by itself ({}); {}",
                self.name,
                describe(status),
                self.tail()
            ),
        }
    }

    /// Waits for its end, at most so long. It must end well.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            match self.exit()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return self.check(),
                None if Instant::now() >= until => bail!(
                    "{} did not end within {} s; {}",
                    self.name,
                    limit.as_secs_f64(),
                    self.tail()
                ),
                None => sleep(POLL),
            }
        }
    }

    /// The last lines of its log, as part of an error.
    pub(crate) fn tail(&self) -> String {
        let path = self.log.display();
        match tail(&self.log) {
            Ok(lines) if lines.is_empty() => format!("{path} is empty"),
            Ok(lines) => format!("the end of {path}:\n{lines}"),
            Err(error) => format!("{path} cannot be read: {error}"),
        }
    }

    fn exit(&mut self) -> Result<Option<ExitStatus>> {
        let name = &self.name;
        self.child
            .try_wait()
            .with_context(|| format!("cannot tell whether {name} runs"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group outlives its leader if it has children. Errors mean that nobody is left.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program that should end by itself.
pub(crate) fn finish(name: &str, folder: &Path, command: Command, limit: Duration) -> Result<()> {
    Process::start(name, folder, command)?.wait(limit)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.chars().take(TAIL_LINE_CHARS).collect())
        .collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn ended(process: &mut Process) -> String {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Err(error) = process.check() {
                return error.to_string();
            }
            sleep(POLL);
        }
        panic!("it still runs");
    }

    #[test]
    fn a_process_that_ends_by_itself_is_an_error_with_its_last_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "for i in $(seq 40); do echo line $i; done; echo no key >&2; exit 3";
        let mut process = Process::start("node", folder.path(), shell(script)).expect("it starts");
        let error = ended(&mut process);
        assert!(error.contains("node ended by itself (status 3)"), "{error}");
        assert!(error.ends_with("line 40\nno key"), "{error}");
        assert!(!error.contains("line 20\n"), "{error}");
    }

    #[test]
    fn a_killed_process_tells_its_signal() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process =
            Process::start("node", folder.path(), shell("kill -KILL $$")).expect("it starts");
        let error = ended(&mut process);
        assert!(error.contains("(signal 9)"), "{error}");
        assert!(error.contains("is empty"), "{error}");
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Process::start("node", folder.path(), shell("sleep 300 & echo $!; wait"))
            .expect("it starts");
        let until = Instant::now() + Duration::from_secs(10);
        let child = loop {
            let text = fs::read_to_string(&process.log).expect("the log is there");
            if let Ok(pid) = text.trim().parse::<u32>() {
                break pid;
            }
            assert!(Instant::now() < until, "it told no child");
            sleep(POLL);
        };
        drop(process);
        // A zombie may wait for its new parent: it runs no longer.
        let gone = || match fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.contains(") Z ") || stat.contains(") X "),
            Err(_) => true,
        };
        while !gone() {
            assert!(Instant::now() < until, "the child lives on");
            sleep(POLL);
        }
    }

    #[test]
    fn a_program_that_does_not_end_in_time_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let limit = Duration::from_millis(100);
        let error = finish("keys", folder.path(), shell("echo slow; sleep 300"), limit)
            .expect_err("it sleeps");
        assert!(
            error.to_string().contains("did not end within 0.1 s"),
            "{error}"
        );
        assert!(error.to_string().ends_with("slow"), "{error}");
        finish(
            "keys",
            folder.path(),
            shell("exit 0"),
            Duration::from_secs(10),
        )
        .expect("it ends");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Process::start("node", folder.path(), Command::new("/nowhere/node"))
            .expect_err("there is none");
        assert!(error.to_string().contains("/nowhere/node"), "{error}");
    }
}
