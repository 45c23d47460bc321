//! Telling of a disk that fills up before it is full.

use rustix::fs::statvfs;
use std::{path::PathBuf, time::Duration};
use tracing::warn;

/// How often is looked.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Free bytes below which the operator is told, on a large disk.
const LOW_BYTES: u64 = 2 << 30;

/// The same on a small one, as a part of it.
const LOW_PART: u64 = 10;

/// Watches the free room of a file system.
#[derive(Default)]
struct SpaceWatch {
    /// What was free when it was last told.
    told: Option<u64>,
}

impl SpaceWatch {
    /// Whether the operator is to be told: once when little is left, and again each time that half
    /// of that is gone.
    fn tells(&mut self, free: u64, size: u64) -> bool {
        let low = LOW_BYTES.min(size / LOW_PART);
        // Not again for what comes and goes.
        if free > low + low / 4 {
            self.told = None;
        }
        let tells = match self.told {
            None => free < low,
            Some(told) => free <= told / 2 && free < told,
        };
        if tells {
            self.told = Some(free);
        }
        tells
    }
}

/// Looks at the file system of a data directory until it is dropped.
pub(crate) async fn watch(directory: PathBuf) {
    let mut watch = SpaceWatch::default();
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        ticks.tick().await;
        let Ok(disk) = statvfs(&directory) else {
            continue;
        };
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        let (free, size) = (bytes(disk.f_bavail), bytes(disk.f_blocks));
        if watch.tells(free, size) {
            warn!(
                folder = %directory.display(), free_mib = free >> 20, size_mib = size >> 20,
                "the disk of the data directory fills up; on a full one the validator stops. Make \
                 room, or set `storage.retention_blocks` or `storage.retention_time`"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_disk_that_fills_up_is_told_of_once_and_again_at_each_halving() {
        let mut watch = SpaceWatch::default();
        let mut tells = |free| watch.tells(free, 100 * GIB);
        assert!(!tells(2 * GIB));
        assert!(tells(2 * GIB - 1));
        assert!(!tells(GIB));
        assert!(tells(GIB - 1));
        assert!(!tells(GIB / 2));
        assert!(!tells(2 * GIB), "what comes and goes");
        assert!(tells(GIB / 4));
        assert!(!tells(3 * GIB));
        assert!(tells(GIB), "anew");
        assert!(tells(0));
        assert!(!tells(0), "nothing is left to halve");
    }

    #[test]
    fn on_a_small_disk_a_tenth_counts() {
        let mut watch = SpaceWatch::default();
        assert!(!watch.tells(GIB, 10 * GIB));
        assert!(watch.tells(GIB - 1, 10 * GIB));
    }
}
