//! On what a record was measured, and what else went on there meanwhile.

use crate::record::Validity;
use serde::{Deserialize, Serialize};
use std::{fs, time::Instant};

/// More stolen time than this spoils what depends on the machine: beyond it, ratios of neighbouring
/// runs spread further than the practical floor of [`crate::gates::wall`].
pub const MOST_STEAL: f64 = 0.05;

/// Memory is told apart in steps of this: kernels reserve a little more or less of it.
const MEMORY_STEP_BYTES: u64 = 1 << 30;

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The processor's model.
    pub processor: String,
    /// How many threads can run at once.
    pub cores: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Which records are of the same machine: 16 hexadecimal digits over processor, cores and
    /// memory. A new kernel keeps the id, since a history that starts anew with every update of the
    /// system never grows; the page shows the kernel beside it.
    pub id: String,
}

impl Host {
    /// A machine with these properties.
    pub fn new(processor: &str, cores: u32, memory_bytes: u64, kernel: &str) -> Self {
        // Rounded, not cut off: sizes are just below a whole number of GiB.
        let memory = memory_bytes.saturating_add(MEMORY_STEP_BYTES / 2) / MEMORY_STEP_BYTES;
        let id = fnv1a(format!("{processor}|{cores}|{memory}").as_bytes());
        Self {
            processor: processor.to_owned(),
            cores,
            memory_bytes,
            kernel: kernel.to_owned(),
            id: format!("{id:016x}"),
        }
    }

    /// This machine. What cannot be found out is `unknown` or zero.
    pub fn this() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let (processors, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
        let processor = value_after(&processors, "model name").map_or_else(
            || format!("unknown {}", std::env::consts::ARCH),
            str::to_owned,
        );
        let kibibytes: Option<u64> = value_after(&memory, "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse().ok());
        let kernel = text("/proc/sys/kernel/osrelease");
        let kernel = match kernel.trim() {
            "" => std::env::consts::OS,
            release => release,
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self::new(
            &processor,
            u32::try_from(cores).unwrap_or(u32::MAX),
            kibibytes.unwrap_or(0).saturating_mul(1024),
            kernel,
        )
    }
}

fn value_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.split_once(':')?.1.trim())
}

/// The hash FNV-1a of 64 bits. The standard library's may change with the compiler.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What a machine did during a run. `None` where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// How long it took.
    pub seconds: f64,
    /// How much of the processor time that was wanted a hypervisor gave to others, 0 to 1. Idle
    /// time does not count: a run on one core of two loses nothing on the other.
    pub steal: Option<f64>,
    /// How much of all processor time nobody wanted, 0 to 1.
    pub idle: Option<f64>,
    /// The load average over a minute when it began.
    pub load_before: Option<f64>,
    /// The same when it ended.
    pub load_after: Option<f64>,
}

impl Conditions {
    /// Whether figures that depend on the machine can be believed.
    pub fn validity(&self, most_steal: f64) -> Validity {
        match self.steal {
            Some(steal) if steal > most_steal => Validity::Invalid(format!(
                "{:.1}% of the processor time was stolen, {:.1}% may be: repeat it on a quiet machine",
                100.0 * steal,
                100.0 * most_steal
            )),
            _ => Validity::Valid,
        }
    }
}

/// Watches the machine during a run.
#[derive(Debug)]
pub struct Watch {
    started: Instant,
    before: Option<Ticks>,
    load_before: Option<f64>,
}

impl Watch {
    /// Begins to watch.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            before: Ticks::now(),
            load_before: load(),
        }
    }

    /// What was seen since.
    pub fn finish(self) -> Conditions {
        let shares = self.before.zip(Ticks::now());
        let shares = shares.map(|(before, after)| after.shares_since(&before));
        Conditions {
            seconds: self.started.elapsed().as_secs_f64(),
            steal: shares.map(|(steal, _)| steal),
            idle: shares.map(|(_, idle)| idle),
            load_before: self.load_before,
            load_after: load(),
        }
    }
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Processor time of all cores since the machine started, in the system's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    idle: u64,
    steal: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq,
    /// softirq, steal, and then times of guests, which user and nice already contain.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let mut ticks = [0_u64; 8];
        for place in &mut ticks {
            *place = words.next()?.parse().ok()?;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
        let sum = |parts: &[u64]| {
            parts
                .iter()
                .fold(0_u64, |sum, part| sum.saturating_add(*part))
        };
        Some(Self {
            busy: sum(&[user, nice, system, irq, softirq]),
            idle: sum(&[idle, iowait]),
            steal,
        })
    }

    /// Shares of stolen and of idle time.
    fn shares_since(&self, before: &Self) -> (f64, f64) {
        // The kernel lets some of these counters step back (proc(5), iowait).
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let busy = since(self.busy, before.busy);
        let idle = since(self.idle, before.idle);
        let steal = since(self.steal, before.steal);
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        (share(steal, busy + steal), share(idle, busy + idle + steal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_what_was_wanted_and_idle_of_everything() {
        let before = Ticks::read("cpu  100 0 50 800 50 0 0 10 7 7\ncpu0 1 1").expect("ours");
        let after = Ticks::read("cpu  160 0 80 840 60 0 0 20 9 9").expect("ours");
        // 90 ticks were had, 10 stolen, 50 not wanted.
        let (steal, idle) = after.shares_since(&before);
        assert!((steal - 0.1).abs() < 1e-12, "{steal}");
        assert!((idle - 50.0 / 150.0).abs() < 1e-12, "{idle}");
        assert_eq!(before.shares_since(&after), (0.0, 0.0), "never backwards");
    }

    #[test]
    fn what_is_no_statistic_is_unknown() {
        assert_eq!(Ticks::read(""), None);
        assert_eq!(Ticks::read("cpu 1 2 3"), None);
        assert_eq!(Ticks::read("cpu0 1 2 3 4 5 6 7 8"), None);
        assert_eq!(Ticks::read("cpu 1 2 3 4 5 6 x 8"), None);
    }

    #[test]
    fn too_much_steal_is_invalid_and_says_so() {
        let with = |steal| Conditions {
            steal,
            ..Conditions::default()
        };
        assert_eq!(with(None).validity(MOST_STEAL), Validity::Valid);
        assert_eq!(with(Some(0.05)).validity(MOST_STEAL), Validity::Valid);
        let Validity::Invalid(why) = with(Some(0.071)).validity(MOST_STEAL) else {
            panic!("valid");
        };
        assert!(why.contains("7.1%") && why.contains("5.0%"), "{why}");
    }

    #[test]
    fn a_host_keeps_its_id_over_kernels_and_a_little_memory() {
        let one = Host::new("Some CPU", 2, 8_332_152 * 1024, "6.1");
        let newer = Host::new("Some CPU", 2, 8_331_900 * 1024, "6.2");
        assert_eq!(one.id, newer.id);
        assert_eq!(one.id.len(), 16);
        assert_ne!(one.id, Host::new("Some CPU", 4, 8_332_152 * 1024, "6.1").id);
        assert_ne!(one.id, Host::new("Another", 2, 8_332_152 * 1024, "6.1").id);
        // Published values of the hash: <http://www.isthe.com/chongo/tech/comp/fnv/>.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn this_machine_can_be_watched() {
        let (host, watch) = (Host::this(), Watch::start());
        assert!(host.cores > 0 && !host.processor.is_empty());
        let seen = watch.finish();
        for share in [seen.steal, seen.idle].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share), "{seen:?}");
        }
    }
}
