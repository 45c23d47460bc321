//! Counts the instructions that a program executes, with valgrind's callgrind.
//!
//! A count repeats to a few parts in ten thousand where a time repeats to a few in a hundred. It
//! repeats best with the same environment, the same arguments and one thread: the length of the
//! environment moves the stack, and waiting for a contended lock costs instructions.

use quorate_files::read_bounded;
use std::{
    fs,
    io::{self, Read as _, Seek as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Callgrind is 50 times slower than the program. After this time the program is considered hung.
pub const MAX_RUN: Duration = Duration::from_secs(30 * 60);

/// The largest profile that is read, in bytes.
const MAX_PROFILE_BYTES: u64 = 512 << 20;

/// How much of the program's output an error includes, in bytes.
const MAX_WORDS_BYTES: u64 = 2_000;

/// The interval for checking whether the program has exited.
const POLL: Duration = Duration::from_millis(20);

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// Valgrind is not installed.
    #[error("valgrind is not installed: on Debian, apt-get install valgrind")]
    Missing,
    /// A file operation failed, or the process could not be managed.
    #[error("{doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        source: io::Error,
    },
    /// The program, or valgrind, failed.
    #[error("{program} under valgrind ended with {status}: {words}")]
    Failed {
        program: String,
        status: ExitStatus,
        /// The end of its output.
        words: String,
    },
    /// The program did not end in time.
    #[error("{program} under valgrind ran longer than {} s", MAX_RUN.as_secs())]
    Endless { program: String },
    /// The profile contains no count.
    #[error("the profile {problem}; does this valgrind write another format?")]
    Profile { problem: String },
}

/// Counts the instructions that this command executes. Its program, arguments, folder and
/// environment are kept; its output is discarded.
///
/// # Errors
///
/// If valgrind is missing, or it or the program fails, or exits without a profile.
pub fn instructions(command: &Command) -> Result<u64, CallgrindError> {
    let failed = |doing| move |source| CallgrindError::System { doing, source };
    let folder = tempfile::tempdir().map_err(failed("making a folder for the profile"))?;
    let profile = folder.path().join("profile");
    let mut said = tempfile::tempfile().map_err(failed("making a file for the output"))?;
    let mut valgrind = under_valgrind(command, &profile);
    // A file, since nobody reads a pipe meanwhile.
    let errors = said
        .try_clone()
        .map_err(failed("making a file for the output"))?;
    valgrind
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    let program = command.get_program().to_string_lossy().into_owned();
    let status = run(valgrind, &program)?;
    if !status.success() {
        return Err(CallgrindError::Failed {
            program,
            status,
            words: end_of(&mut said).map_err(failed("reading the output"))?,
        });
    }
    // Function names may be any bytes.
    let text = read_bounded(&profile, MAX_PROFILE_BYTES)
        .map_err(|error| failed("reading the profile")(error.into()))?;
    read_profile(&String::from_utf8_lossy(&text))
}

fn under_valgrind(command: &Command, profile: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    let mut out = std::ffi::OsString::from("--callgrind-out-file=");
    out.push(profile);
    valgrind.arg("--tool=callgrind").arg(out);
    valgrind.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => valgrind.env(name, value),
            None => valgrind.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        valgrind.current_dir(folder);
    }
    valgrind
}

fn run(mut valgrind: Command, program: &str) -> Result<ExitStatus, CallgrindError> {
    let waiting = |source| CallgrindError::System {
        doing: "waiting for valgrind",
        source,
    };
    let mut child = valgrind.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CallgrindError::Missing,
        _ => CallgrindError::System {
            doing: "starting valgrind",
            source,
        },
    })?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(waiting)? {
            return Ok(status);
        }
        if started.elapsed() > MAX_RUN {
            child.kill().map_err(waiting)?;
            child.wait().map_err(waiting)?;
            return Err(CallgrindError::Endless {
                program: program.to_owned(),
            });
        }
        thread::sleep(POLL);
    }
}

fn end_of(said: &mut fs::File) -> io::Result<String> {
    let length = said.metadata()?.len();
    said.seek(io::SeekFrom::Start(length.saturating_sub(MAX_WORDS_BYTES)))?;
    let mut words = Vec::new();
    said.take(MAX_WORDS_BYTES).read_to_end(&mut words)?;
    Ok(String::from_utf8_lossy(&words).trim().to_owned())
}

/// The instruction count of a profile, summed over its parts (Callgrind Format Specification,
/// valgrind's manual, chapter "Callgrind format"): `events:` names the columns, and each part has
/// its sums as `summary:` before the costs and as `totals:` after them.
///
/// # Errors
///
/// If it has no such line, or a part has no sum.
pub fn read_profile(text: &str) -> Result<u64, CallgrindError> {
    let wrong = |problem: &str| CallgrindError::Profile {
        problem: problem.to_owned(),
    };
    let mut column = None;
    // The sums of the current part: the line before the costs, and the one after them.
    let (mut before, mut after) = (None, None);
    let mut sum: Option<u64> = None;
    let mut add = |part: Option<u64>| match part {
        Some(part) => {
            let so_far = sum.unwrap_or(0).checked_add(part);
            sum = Some(so_far.ok_or_else(|| wrong("counts more than 64 bits hold"))?);
            Ok(())
        }
        None => Ok(()),
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let mut words = value.split_whitespace();
        match key {
            "events" => column = words.position(|word| word == "Ir"),
            "part" => add(after.take().or(before.take()))?,
            "summary" | "totals" => {
                let column = column.ok_or_else(|| wrong("does not say which event is Ir"))?;
                let number = words.nth(column).and_then(|word| word.parse().ok());
                let number: u64 = number.ok_or_else(|| wrong("has a sum that is no number"))?;
                match key {
                    "summary" => before = Some(number),
                    _ => after = Some(number),
                }
            }
            _ => {}
        }
    }
    add(after.or(before))?;
    sum.ok_or_else(|| wrong("has neither a summary nor totals"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_their_column() {
        let one = "# callgrind format\nversion: 1\npart: 1\nevents: Ir\nsummary: 126743\n\nfl=(1)\n\
                   fn=(1) a: b\n0 5\ntotals: 126743\n";
        assert_eq!(read_profile(one).expect("a profile"), 126_743);
        let many = "events: Dr Ir Bc\nsummary: 7 42 9\n";
        assert_eq!(read_profile(many).expect("a profile"), 42);
    }

    #[test]
    fn parts_are_summed_and_totals_go_before_summaries() {
        let parts = "events: Ir\npart: 1\nsummary: 10\n0 1\ntotals: 11\npart: 2\nsummary: 20\n0 2\n\
                     part: 3\n0 1\ntotals: 5\n";
        assert_eq!(read_profile(parts).expect("a profile"), 36);
    }

    #[test]
    fn what_has_no_count_is_refused() {
        let refused = |text: &str| read_profile(text).expect_err("no profile").to_string();
        assert!(refused("").contains("neither"));
        assert!(refused("events: Dr\nsummary: 5\n").contains("which event"));
        assert!(refused("summary: 5\n").contains("which event"));
        assert!(refused("events: Ir\nsummary: -5\n").contains("no number"));
        assert!(refused("events: Dr Ir\ntotals: 5\n").contains("no number"));
        let huge = format!(
            "events: Ir\npart: 1\ntotals: {0}\npart: 2\ntotals: {0}\n",
            u64::MAX
        );
        assert!(refused(&huge).contains("64 bits"));
    }

    /// Lets the test pass without valgrind too, and then prints the error.
    fn real(command: &Command) -> Option<Result<u64, CallgrindError>> {
        match instructions(command) {
            Err(error @ CallgrindError::Missing) => {
                println!("not tried: {error}");
                None
            }
            other => Some(other),
        }
    }

    #[test]
    fn a_real_program_is_counted() {
        let Some(counted) = real(&Command::new("/bin/true")) else {
            return;
        };
        let counted = counted.expect("a count");
        assert!((10_000..100_000_000).contains(&counted), "{counted}");
    }

    #[test]
    fn a_program_that_fails_has_no_count() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo broken >&2; exit \"$CODE\""])
            .env("CODE", "3");
        let Some(counted) = real(&command) else {
            return;
        };
        let error = counted.expect_err("it failed").to_string();
        assert!(
            error.contains("/bin/sh") && error.contains("broken"),
            "{error}"
        );
        assert!(error.contains('3'), "{error}");
    }
}
