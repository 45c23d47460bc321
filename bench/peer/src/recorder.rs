//! Notes when blocks become final and durable here.

use crate::{app::Watch, block::Block};
use commonware_cryptography::{Digested, Digestible as _, sha256::Digest};
use commonware_utils::sync::Mutex;
use futures::channel::oneshot;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Blocks of abandoned views are forgotten when this many are known.
const KNOWN_BLOCKS: usize = 8_192;

/// µs since the epoch.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// What was seen while measuring.
#[derive(Default)]
pub(crate) struct Seen {
    /// Blocks made final by a finalization certificate for them or for a descendant.
    pub(crate) finalized: u64,
    /// From a block's timestamp to the certificate that makes it final (sorted by [`Self::sort`]).
    pub(crate) finality_us: Vec<u64>,
    /// From a block's timestamp until block and certificate are durable and handed to execution.
    pub(crate) stored_us: Vec<u64>,
    /// The views of the first and the last finalization certificate.
    pub(crate) views: Option<(u64, u64)>,
    /// Views that were skipped.
    pub(crate) nullified: HashSet<u64>,
}

impl Seen {
    fn sort(&mut self) {
        self.finality_us.sort_unstable();
        self.stored_us.sort_unstable();
    }
}

struct Known {
    height: u64,
    timestamp_us: u64,
    parent: Digest,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Digest, Known>,
    /// Views of certificates whose block has not arrived yet.
    waiting: HashMap<Digest, u64>,
    /// The height up to which blocks are final.
    tip: u64,
    first: Option<oneshot::Sender<()>>,
    /// Nothing is counted before [`Recorder::begin`].
    seen: Option<Seen>,
}

/// A handle to what this process has seen. The calls take a lock for less than a microsecond.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

impl Recorder {
    /// The receiver resolves at the first finalization.
    pub(crate) fn new() -> (Self, oneshot::Receiver<()>) {
        let (first, receiver) = oneshot::channel();
        let state = State {
            first: Some(first),
            ..State::default()
        };
        (Self(Arc::new(Mutex::new(state))), receiver)
    }

    pub(crate) fn begin(&self) {
        self.0.lock().seen = Some(Seen::default());
    }

    pub(crate) fn end(&self) -> Seen {
        let mut seen = self.0.lock().seen.take().unwrap_or_default();
        seen.sort();
        seen
    }
}

impl Watch for Recorder {
    fn now_us(&self) -> u64 {
        now_us()
    }

    fn learn(&self, block: &Digested<Block>) {
        let mut state = self.0.lock();
        let digest = block.digest();
        let header = block.inner();
        if header.height.get() <= state.tip {
            return;
        }
        let known = Known {
            height: header.height.get(),
            timestamp_us: header.timestamp_us,
            parent: header.context.parent.1,
        };
        state.blocks.insert(digest, known);
        if let Some(view) = state.waiting.remove(&digest) {
            state.finalize(digest, view);
        }
    }

    fn finalized(&self, digest: Digest, view: u64) {
        self.0.lock().finalize(digest, view);
    }

    fn nullified(&self, view: u64) {
        if let Some(seen) = &mut self.0.lock().seen {
            seen.nullified.insert(view);
        }
    }

    fn stored(&self, block: &Digested<Block>) {
        self.learn(block);
        if let Some(seen) = &mut self.0.lock().seen {
            let built = block.inner().timestamp_us;
            seen.stored_us.push(now_us().saturating_sub(built));
        }
    }
}

impl State {
    fn finalize(&mut self, digest: Digest, view: u64) {
        let Some(height) = self.blocks.get(&digest).map(|known| known.height) else {
            // Of an older block, it is a certificate that came twice: nothing waits for long.
            self.waiting.insert(digest, view);
            return;
        };
        if height <= self.tip {
            return;
        }
        if let Some(first) = self.first.take() {
            // Nobody listens when the program is ending.
            let _ = first.send(());
        }
        let now = now_us();
        let blocks = height - self.tip;
        let mut next = Some(digest);
        while let Some(known) = next.and_then(|digest| self.blocks.remove(&digest)) {
            if known.height <= self.tip {
                break;
            }
            if let Some(seen) = &mut self.seen {
                seen.finality_us
                    .push(now.saturating_sub(known.timestamp_us));
            }
            next = Some(known.parent);
        }
        self.tip = height;
        if let Some(seen) = &mut self.seen {
            seen.finalized += blocks;
            let first = seen.views.map_or(view, |(first, _)| first);
            seen.views = Some((first, view));
        }
        if self.blocks.len() > KNOWN_BLOCKS {
            self.blocks.retain(|_, known| known.height > height);
        }
        if self.waiting.len() > KNOWN_BLOCKS {
            self.waiting.clear();
        }
    }
}
