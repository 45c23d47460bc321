//! Warns about a disk that fills up, before it is full.

use quorate_machine::live::{LiveStatus, Room};
use rustix::fs::statvfs;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tracing::warn;

/// How often the free space is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Decides when to warn about little free space.
#[derive(Default)]
struct SpaceWatch {
    /// The free space when the last warning was given.
    told: Option<u64>,
}

impl SpaceWatch {
    /// Whether to warn the operator: once when little space is left, and again each time that half
    /// of the remainder is used.
    fn tells(&mut self, room: Room) -> bool {
        let (free, low) = (room.free_bytes, room.low_bytes());
        // Rearm only well above the limit, so that small fluctuations do not repeat the warning.
        if free > low + low / 4 {
            self.told = None;
        }
        let tells = match self.told {
            None => room.is_low(),
            Some(told) => free <= told / 2 && free < told,
        };
        if tells {
            self.told = Some(free);
        }
        tells
    }
}

/// Returns the size and free space of a folder's file system; `None` if the system does not report
/// them.
pub(crate) fn room_of(folder: &Path) -> Option<Room> {
    let disk = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Room {
        free_bytes: bytes(disk.f_bavail),
        size_bytes: bytes(disk.f_blocks),
    })
}

/// Monitors the file system of a data directory until dropped.
pub(crate) async fn watch(directory: PathBuf, live: Arc<LiveStatus>) {
    let mut watch = SpaceWatch::default();
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        ticks.tick().await;
        let Some(room) = room_of(&directory) else {
            continue;
        };
        live.set_room(room);
        if watch.tells(room) {
            warn!(
                folder = %directory.display(), free_mib = room.free_bytes >> 20,
                size_mib = room.size_bytes >> 20,
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
        let mut tells = |free_bytes| {
            watch.tells(Room {
                free_bytes,
                size_bytes: 100 * GIB,
            })
        };
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
        let room = |free_bytes| Room {
            free_bytes,
            size_bytes: 10 * GIB,
        };
        assert!(!room(GIB).is_low());
        assert!(room(GIB - 1).is_low());
    }
}
