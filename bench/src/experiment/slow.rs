//! One validator that is slow and does what it can, for a whole trial.

use super::plan::Point;
use anyhow::Context;
use quorate_links::{Emulator, Link};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

/// What its line carries.
const NARROW_BITS_PER_SECOND: u64 = 1_000_000;

/// What its messages take longer, each way.
const FAR: Duration = Duration::from_millis(300);

/// Of each period it runs a quarter.
const RUNS: Duration = Duration::from_millis(5);
const STANDS: Duration = Duration::from_millis(15);

/// What is slow about the last validator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Slow {
    /// Nothing.
    #[default]
    None,
    /// It has 1 Mbit/s each way. Needs links.
    Line,
    /// Its messages take 300 ms longer, each way. Needs links.
    Far,
    /// Its process runs a quarter of the time.
    Processor,
    /// It is not there: what the others are compared with.
    Dead,
}

impl Slow {
    pub(crate) fn needs_links(self) -> bool {
        matches!(self, Self::Line | Self::Far)
    }

    /// A link from one validator to another, if one of them is slow.
    pub(crate) fn link(self, point: &Point, from: usize, to: usize, link: Link) -> Link {
        let last = point.validators - 1;
        match self {
            Self::Far if from == last || to == last => Link {
                delay: link.delay + FAR,
                ..link
            },
            // What leaves it shares one line (`begin`); what comes has its part of one each.
            Self::Line if to == last => Link {
                bits_per_second: Some(NARROW_BITS_PER_SECOND / last as u64),
                ..link
            },
            _ => link,
        }
    }

    /// Narrows what leaves the slow one.
    pub(crate) fn begin(self, point: &Point, emulator: &Emulator) -> anyhow::Result<()> {
        if self == Self::Line {
            let line = Some(NARROW_BITS_PER_SECOND);
            emulator
                .set_egress(point.validators - 1, line)
                .context("narrowing a validator's line")?;
        }
        Ok(())
    }
}

/// Stops a process most of the time, until it is dropped.
pub(crate) struct Duty {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Duty {
    pub(crate) fn start(process: u32) -> anyhow::Result<Self> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process has a number above zero")?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                let stopped = kill_process(pid, Signal::STOP);
                std::thread::sleep(STANDS);
                // It goes on whatever happens here.
                let goes_on = kill_process(pid, Signal::CONT);
                if stopped.and(goes_on).is_err() {
                    return;
                }
                std::thread::sleep(RUNS);
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
