//! What happened, as a hash over all of it, and as lines for people if they want to read them.

use quorate_consensus::Moment;
use quorate_crypto::sha256;
use quorate_types::Digest;

/// Lines that are kept; later ones are counted only.
const MAX_LINES: usize = 1_000_000;

/// One thing that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in microseconds.
    pub at_us: u64,
    /// Which host did it, or had it done to it.
    pub host: usize,
    /// What.
    pub what: What,
    /// In words.
    pub text: String,
}

/// Kinds of lines, for pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A message left for another host; it arrives then.
    Sent {
        /// The receivers.
        to: usize,
        /// When it arrives, in microseconds.
        arrives_us: u64,
    },
    /// A view began.
    Entered,
    /// A block was executed.
    Executed,
    /// A fault.
    Fault,
    /// A validator was blocked or convicted.
    Blamed,
    /// Anything else.
    Note,
}

/// The trace of one run.
#[derive(Default)]
pub(crate) struct Trace {
    hash: [u8; 32],
    pub(crate) lines: Option<Vec<Line>>,
}

impl Trace {
    pub(crate) fn new(readable: bool) -> Self {
        Self {
            hash: [0; 32],
            lines: readable.then(Vec::new),
        }
    }

    /// Adds something that happened to the hash.
    pub(crate) fn note(&mut self, now: Moment, parts: &[&[u8]]) {
        let now = now.0.to_be_bytes();
        let mut all: Vec<&[u8]> = Vec::with_capacity(parts.len() + 2);
        all.push(&self.hash);
        all.push(&now);
        all.extend(parts);
        self.hash = sha256(&all).0;
    }

    /// Adds a line, if lines are wanted.
    pub(crate) fn line(
        &mut self,
        now: Moment,
        host: usize,
        what: What,
        text: impl FnOnce() -> String,
    ) {
        if let Some(lines) = &mut self.lines
            && lines.len() < MAX_LINES
        {
            lines.push(Line {
                at_us: now.0,
                host,
                what,
                text: text(),
            });
        }
    }

    pub(crate) fn hash(&self) -> Digest {
        Digest(self.hash)
    }
}
