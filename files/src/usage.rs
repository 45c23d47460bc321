//! What the kernel says that a process has used.

use std::{fs, io, time::Duration};

/// Clock ticks per second in `/proc`, on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time of all its threads.
    pub cpu: Duration,
    /// Memory that it holds now.
    pub resident_bytes: u64,
    /// The most that it has held.
    pub peak_resident_bytes: u64,
}

impl Usage {
    /// Looks at a process.
    ///
    /// # Errors
    ///
    /// If there is none with this number, or the kernel's files have another form.
    pub fn of(process: u32) -> io::Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            let text = fs::read_to_string(&path);
            text.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        let usage = || {
            Some(Self {
                cpu: cpu(&stat)?,
                resident_bytes: bytes(&status, "VmRSS:")?,
                peak_resident_bytes: bytes(&status, "VmHWM:")?,
            })
        };
        let unknown = || io::Error::other(format!("/proc/{process} is not of the known form"));
        usage().ok_or_else(unknown)
    }
}

/// Fields 14 and 15 of `/proc/PID/stat`. Field 2, the name, may hold spaces and brackets, so counting
/// begins behind its last bracket.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
}

/// A line of `/proc/PID/status`, which is in KiB.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "812 (a (b) c d) S 1 812 812 0 -1 4194304 901 0 3 0 250 50 7 8 20 0 9 0 100 1 2";

    #[test]
    fn user_and_system_time_are_added_and_those_of_children_left_out() {
        assert_eq!(cpu(STAT), Some(Duration::from_secs(3)));
    }

    #[test]
    fn odd_accounts_give_nothing() {
        for stat in [
            "",
            "812 a S 1",
            "812 (a) S 1 2",
            "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 1",
        ] {
            assert_eq!(cpu(stat), None, "{stat}");
        }
        assert_eq!(bytes("VmHWM:\t  90 kB\n", "VmRSS:"), None);
        assert_eq!(bytes("VmRSS:\t  9x kB\n", "VmRSS:"), None);
    }

    #[test]
    fn memory_is_told_in_bytes_now_and_at_most() {
        let status = "Name:\ta\nVmHWM:\t  90 kB\nVmRSS:\t   64 kB\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(65_536));
        assert_eq!(bytes(status, "VmHWM:"), Some(92_160));
    }

    #[test]
    fn memory_that_was_given_back_stays_in_the_peak() {
        let me = std::process::id();
        let before = Usage::of(me).expect("this process is there");
        let large = 64 << 20;
        let used: u8 = std::hint::black_box(vec![1_u8; large])
            .iter()
            .fold(0, |a, b| a ^ b);
        let after = Usage::of(me).expect("this process is there");
        assert!(
            after.peak_resident_bytes >= before.resident_bytes + large as u64 / 2,
            "{used}"
        );
        assert!(after.peak_resident_bytes >= after.resident_bytes);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let error = Usage::of(u32::MAX).expect_err("no process has this number");
        assert!(
            error.to_string().contains("/proc/4294967295/stat"),
            "{error}"
        );
    }
}
