//! Days in virtual time: what four whole validators hold in memory, as a curve.
//!
//! ```text
//! cargo run --release -p quorate-sim --example soak -- HOURS [CSV-FILE]
//! ```
//!
//! Four validators on links of a quarter of a second, a view about every 0.7 s, epochs of 500
//! blocks; one of them equivocates, another breaks and heals now and then, single ones and all of
//! them crash. Allocations are real and counted; what the world around the machines keeps is
//! pruned, so what grows is theirs. Their databases, pruned too, lie in memory here.

#![allow(unsafe_code)]

use quorate_consensus::Timing;
use quorate_sim::{Attack, Fault, Latency, Scenario, Simulation};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Counts what is allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let hours: u64 = arguments
        .next()
        .and_then(|hours| hours.parse().ok())
        .expect("the number of hours");
    let file = arguments.next();
    let mut scenario = Scenario::new(1, 4, Duration::from_secs(hours * 3_600));
    scenario.links.latency =
        Latency::Between(Duration::from_millis(150), Duration::from_millis(350));
    scenario.transfers_per_second = 1;
    scenario.timing = Timing {
        leader_timeout: Duration::from_secs(2),
        view_timeout: Duration::from_secs(4),
        max_timeout: Duration::from_secs(30),
        resend_interval: Duration::from_secs(2),
        fetch_timeout: Duration::from_secs(1),
        idle_interval: Duration::ZERO,
    };
    scenario.epoch_blocks = 500;
    scenario.border_crashes_percent = 10;
    scenario.retention = Some(500);
    // One in twenty minutes of each hour forges, and is believed again an hour later.
    let glitch = Attack::Glitch(600_000, 1_800_000);
    scenario.byzantine.insert(3, [glitch].into());
    for hour in 0..hours {
        let at = |minutes: u64| Duration::from_secs(hour * 3_600 + minutes * 60);
        let one = vec![(hour % 3) as usize];
        scenario.faults.extend([
            (at(10), Fault::Crash(one.clone())),
            (at(14), Fault::Restart(one)),
            (at(30), Fault::Crash(vec![0, 1, 2, 3])),
            (at(31), Fault::Restart(vec![0, 1, 2, 3])),
            (at(40), Fault::Partition(vec![vec![0, 1], vec![2, 3]])),
            (at(43), Fault::Join),
        ]);
    }
    let start = Instant::now();
    let mut rows = String::from("virtual_hours,held_mib,height,epoch,real_seconds\n");
    let mut next = Duration::ZERO;
    let mut simulation = Simulation::new(scenario);
    let report = simulation.run_watched(|now, height, epoch| {
        if now < next {
            return;
        }
        next = now + Duration::from_secs(600);
        let held = HELD.load(Relaxed) as f64 / 1_048_576.0;
        let hours = now.as_secs_f64() / 3_600.0;
        let real = start.elapsed().as_secs_f64();
        let row = format!("{hours:.2},{held:.3},{height},{epoch},{real:.1}\n");
        eprint!("{row}");
        rows.push_str(&row);
    });
    match report {
        Ok(report) => println!("{report:?}"),
        Err(violation) => {
            eprintln!("{}", violation.0);
            std::process::exit(1);
        }
    }
    if let Some(file) = file {
        fs::write(file, rows).expect("the file can be written");
    }
}
