//! What the kernel says that processes have used.

use std::time::Duration;

use anyhow::Result;
use quorate_files::Usage;

const MIB: f64 = 1024.0 * 1024.0;

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
    let usages = pids.iter().map(|pid| Ok(Usage::of(*pid)?));
    usages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
