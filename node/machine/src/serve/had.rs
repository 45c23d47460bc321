//! What a peer has had already: whoever requests it again does not need it.

use super::Request;
use quorate_types::{ChunkRequest, Height, Span};
use std::collections::BTreeSet;

/// The share of the key space that a peer still needs counts in millionths.
const WHOLE: f64 = 1_000_000.0;

/// Most parts that are remembered: 60 GB of state. Of a larger one the rest counts as new.
const MAX_PARTS: usize = 1 << 16;

/// What one peer has been sent.
#[derive(Default)]
pub(super) struct Had {
    /// The newest snapshot that it requested parts of.
    snapshot: Height,
    parts: BTreeSet<Span>,
    /// How much of the key space the parts cover.
    share: f64,
    /// How much of it was sent as a whole. Changes are cheap, so they prove no progress.
    whole: f64,
    /// How much of it was sent again, since it last was the whole.
    again: f64,
    /// The first block above what it has been sent by ranges.
    range_end: Height,
}

impl Had {
    /// Whether it has had what it requests.
    pub(super) fn has(&self, request: &Request) -> bool {
        match request {
            Request::Chunk(request) if request.height == self.snapshot => {
                // Parts that overlap are worth no more than the whole.
                self.parts.contains(&request.span) || self.share + width(request) > 1.0
            }
            Request::Chunk(request) => request.height < self.snapshot,
            Request::Range(from) => *from < self.range_end,
            Request::Follow(_)
            | Request::Snapshot
            | Request::Stored(_)
            | Request::Held(_)
            | Request::Handovers(_) => false,
        }
    }

    /// How much it still needs, in millionths of the state.
    pub(super) fn left(&self) -> u32 {
        let left = (1.0 - self.whole).clamp(0.0, 1.0) * WHOLE;
        // Within 0 to a million.
        left as u32
    }

    /// Notes an answered part. Returns whether with it the peer has
    /// had the whole once more.
    pub(super) fn part(&mut self, request: &ChunkRequest) -> bool {
        if request.height > self.snapshot {
            *self = Self {
                snapshot: request.height,
                range_end: self.range_end,
                ..Self::default()
            };
        }
        if self.has(&Request::Chunk(*request)) {
            self.again += width(request);
            let has_passed = self.again >= 1.0;
            if has_passed {
                self.again -= 1.0;
            }
            return has_passed;
        }
        if self.parts.len() < MAX_PARTS {
            self.parts.insert(request.span);
        }
        self.share += width(request);
        if request.since == Height(0) {
            self.whole += width(request);
        }
        false
    }

    /// Notes an answered range of blocks.
    pub(super) fn range(&mut self, end: Height) {
        self.range_end = self.range_end.max(end);
    }
}

/// The part of the key space that a request is for.
fn width(request: &ChunkRequest) -> f64 {
    let bits = i32::try_from(request.span.bits()).unwrap_or(i32::MAX);
    2_f64.powi(-bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(height: u64, first: u8, bits: usize) -> ChunkRequest {
        let mut key = [0; 32];
        key[0] = first;
        ChunkRequest {
            height: Height(height),
            span: Span::of(&key, bits).expect("few bits"),
            since: Height(0),
        }
    }

    #[test]
    fn what_was_sent_is_had_and_the_rest_is_needed() {
        let mut had = Had::default();
        assert_eq!(had.left(), 1_000_000);
        had.part(&part(5, 0x00, 1));
        assert_eq!(had.left(), 500_000);
        assert!(had.has(&Request::Chunk(part(5, 0x00, 1))));
        assert!(!had.has(&Request::Chunk(part(5, 0x80, 1))));
        had.part(&part(5, 0x80, 1));
        // Another cut of what it has had.
        assert!(had.has(&Request::Chunk(part(5, 0x40, 2))));
        assert_eq!(had.left(), 0);
        // A newer snapshot is needed again, an older one is not.
        assert!(!had.has(&Request::Chunk(part(6, 0x00, 1))));
        assert!(had.has(&Request::Chunk(part(4, 0x00, 1))));
        had.part(&part(6, 0x00, 2));
        assert_eq!(had.left(), 750_000);
    }

    #[test]
    fn the_whole_once_more_is_another_pass() {
        let mut had = Had::default();
        let halves = [part(5, 0x00, 1), part(5, 0x80, 1)];
        let passes = |had: &mut Had| halves.iter().filter(|half| had.part(half)).count();
        assert_eq!(passes(&mut had), 0);
        for _ in 0..3 {
            assert_eq!(passes(&mut had), 1);
        }
    }

    #[test]
    fn blocks_below_the_last_range_are_had() {
        let mut had = Had::default();
        assert!(!had.has(&Request::Range(Height(1))));
        had.range(Height(100));
        assert!(had.has(&Request::Range(Height(99))));
        assert!(!had.has(&Request::Range(Height(100))));
    }
}
