//! Counting allocations, for programs that measure how many a block takes.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: &quorate_history::alloc::Counting = &quorate_history::alloc::COUNTING;
//!
//! let list = || std::hint::black_box(vec![1_u8; 1_000]);
//! let (list, spent) = quorate_history::alloc::count(list);
//! assert_eq!((spent.allocations, spent.bytes), (1, 1_000));
//! # drop(list);
//! ```
//!
//! The allocator is `stats_alloc`'s over the system's: an allocator is `unsafe` code, of which this
//! project has none outside of its cryptography. It costs a few nanoseconds per allocation, so no
//! time is measured by a program that counts.

use stats_alloc::StatsAlloc;
use std::{alloc::System, ops::Sub};

/// The one that [`now`] and [`count`] read. They see nothing if another one is installed.
pub use stats_alloc::INSTRUMENTED_SYSTEM as COUNTING;

/// An allocator that counts; see the module for how to install it.
pub type Counting = StatsAlloc<System>;

/// What was asked of the allocator, by all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// How often memory was asked for; growing and shrinking count as asking.
    pub allocations: u64,
    /// Bytes that were asked for; growing counts what came on top.
    pub bytes: u64,
}

impl Sub for Allocations {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        // The counters are read one by one while others count; a moment's difference is no panic.
        Self {
            allocations: self.allocations.saturating_sub(earlier.allocations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// What was asked for since the program started.
pub fn now() -> Allocations {
    let stats = COUNTING.stats();
    Allocations {
        allocations: (stats.allocations as u64).wrapping_add(stats.reallocations as u64),
        bytes: stats.bytes_allocated as u64,
    }
}

/// What was asked for while this ran, by whichever thread.
pub fn count<T>(run: impl FnOnce() -> T) -> (T, Allocations) {
    let before = now();
    let result = run();
    (result, now() - before)
}
