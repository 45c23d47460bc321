//! A line on the terminal that tells how far the run is.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How often the line is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// The case, its round, and how much of the round is done. Where the error output is no terminal, it
/// gets a line at the beginning and at the end of each round instead.
pub(super) struct Progress {
    is_terminal: bool,
    now: Mutex<Now>,
}

struct Now {
    /// The case and its round.
    round: String,
    /// Steps of the round: a transfer is one.
    steps: f64,
    done: f64,
    began: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    pub(super) fn start() -> Arc<Self> {
        Arc::new(Self {
            is_terminal: std::io::stderr().is_terminal(),
            now: Mutex::new(Now {
                round: String::new(),
                steps: 1.0,
                done: 0.0,
                began: Instant::now(),
                drawn: None,
            }),
        })
    }

    /// A round of so many steps begins.
    pub(super) fn begin(&self, case: &str, round: usize, rounds: usize, steps: f64) {
        let mut now = self.now();
        *now = Now {
            round: format!("{case}: round {round} of {rounds}"),
            steps,
            done: 0.0,
            began: Instant::now(),
            drawn: None,
        };
        if self.is_terminal {
            now.draw();
        } else {
            eprintln!("{}", now.round);
        }
    }

    /// So much of a step is done.
    pub(super) fn add(&self, steps: f64) {
        let mut now = self.now();
        now.done += steps;
        let is_due = now
            .drawn
            .is_none_or(|drawn| drawn.elapsed() >= DRAW_INTERVAL);
        if self.is_terminal && is_due {
            now.draw();
        }
    }

    /// The round is over.
    pub(super) fn end(&self) {
        let now = self.now();
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        let took = now.began.elapsed().as_secs_f64();
        eprintln!("{start}{}: took {took:.1} s", now.round);
    }

    /// Says what is prepared, and how much of it is done.
    pub(super) fn prepare(&self, what: &str, share: f64) {
        let mut now = self.now();
        let is_due = now
            .drawn
            .is_none_or(|drawn| drawn.elapsed() >= DRAW_INTERVAL);
        if self.is_terminal && (is_due || share >= 1.0) {
            now.drawn = Some(Instant::now());
            show(&format!("{what}: {:.0} %", share * 100.0));
        } else if !self.is_terminal && share >= 1.0 {
            eprintln!("{what}: done");
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        let percent = (self.done / self.steps).clamp(0.0, 1.0) * 100.0;
        let seconds = self.began.elapsed().as_secs();
        show(&format!("{}: {percent:.0} %, {seconds} s", self.round));
    }
}

/// Replaces the line. A terminal that is gone is no reason to stop the run.
fn show(line: &str) {
    let mut out = std::io::stderr();
    let _ = write!(out, "\r\x1b[K{line}");
    let _ = out.flush();
}
