//! What the kernel says that processes have used.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

const MIB: f64 = 1024.0 * 1024.0;

/// What one process has used until now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and system time of all its threads.
    pub(crate) cpu: Duration,
    /// Memory that it holds now.
    pub(crate) resident_bytes: u64,
}

impl Usage {
    /// Reads the accounts of process `pid`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        Ok(Self {
            cpu: cpu(&read("stat")?, rustix::param::clock_ticks_per_second())
                .with_context(|| format!("/proc/{pid}/stat is not of the known form"))?,
            resident_bytes: resident_bytes(&read("status")?)
                .with_context(|| format!("/proc/{pid}/status tells no VmRSS"))?,
        })
    }
}

/// Fields 14 and 15 of `/proc/PID/stat`. Field 2, the name, may hold spaces and brackets, so counting
/// begins behind its last bracket.
fn cpu(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    (ticks_per_second > 0).then(|| Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// `VmRSS` of `/proc/PID/status`, which is in KiB.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Watches several processes over the measured time.
#[derive(Debug)]
pub(crate) struct Meter {
    pids: Vec<u32>,
    begun: Vec<Usage>,
    resident_max: u64,
}

impl Meter {
    /// Begins the measured time.
    pub(crate) fn begin(pids: Vec<u32>) -> Result<Self> {
        let begun = usages(&pids)?;
        let mut meter = Self {
            pids,
            begun: begun.clone(),
            resident_max: 0,
        };
        meter.note(&begun);
        Ok(meter)
    }

    /// Looks at the memory. To be called a few times a second.
    pub(crate) fn look(&mut self) -> Result<()> {
        let now = usages(&self.pids)?;
        self.note(&now);
        Ok(())
    }

    /// Ends the measured time: the CPU time of all together, and the memory of the largest in MiB.
    pub(crate) fn end(mut self) -> Result<(Duration, f64)> {
        let now = usages(&self.pids)?;
        self.note(&now);
        let cpu = now
            .iter()
            .zip(&self.begun)
            .map(|(now, begun)| now.cpu.saturating_sub(begun.cpu))
            .sum();
        Ok((cpu, self.resident_max as f64 / MIB))
    }

    fn note(&mut self, usages: &[Usage]) {
        let largest = usages.iter().map(|usage| usage.resident_bytes).max();
        self.resident_max = self.resident_max.max(largest.unwrap_or(0));
    }
}

fn usages(pids: &[u32]) -> Result<Vec<Usage>> {
    pids.iter().map(|pid| Usage::of(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "812 (a (b) c d) S 1 812 812 0 -1 4194304 901 0 3 0 250 50 7 8 20 0 9 0 100 1 2";

    #[test]
    fn user_and_system_time_are_added_and_those_of_children_left_out() {
        assert_eq!(cpu(STAT, 100), Some(Duration::from_secs(3)));
    }

    #[test]
    fn odd_accounts_give_nothing() {
        for stat in [
            "",
            "812 a S 1",
            "812 (a) S 1 2",
            "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 1",
        ] {
            assert_eq!(cpu(stat, 100), None, "{stat}");
        }
        assert_eq!(cpu(STAT, 0), None);
        assert_eq!(resident_bytes("VmHWM:\t  90 kB\n"), None);
        assert_eq!(resident_bytes("VmRSS:\t  9x kB\n"), None);
    }

    #[test]
    fn resident_memory_is_told_in_bytes() {
        let status = "Name:\ta\nVmHWM:\t  90 kB\nVmRSS:\t   64 kB\n";
        assert_eq!(resident_bytes(status), Some(65_536));
    }

    #[test]
    fn a_meter_counts_what_was_used_since_it_began() {
        let me = std::process::id();
        let before = Usage::of(me).expect("this process has accounts");
        assert!(before.resident_bytes > 100_000);
        let mut meter = Meter::begin(vec![me]).expect("this process has accounts");
        let mut sum = 0_u64;
        while Usage::of(me).expect("it has").cpu < before.cpu + Duration::from_millis(50) {
            sum = (0..100_000_u64).fold(sum, |sum, k| sum.rotate_left(3) ^ k);
        }
        meter.look().expect("it has accounts");
        let (cpu, mib) = meter.end().expect("it has accounts");
        assert!(cpu >= Duration::from_millis(30), "{cpu:?} {sum}");
        assert!(mib > 0.1, "{mib}");
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
