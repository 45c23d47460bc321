//! Finds where history begins: as far back as any upstream delivers blocks that verify.
//!
//! All upstreams are asked at the same time, so one that hangs costs a short wait once, and one
//! that has nothing, or says so, costs nothing. The oldest block that an upstream reports is only
//! the starting point for requests: a validator that prunes has often pruned that block by the time
//! of the request. It is then asked again, with a growing margin.

use crate::{
    follow::RANGE_BLOCKS,
    task::blocking,
    upstream::{Upstream, UpstreamError},
    verify::{FinalBlock, Guard},
};
use quorate_types::Height;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// Once one upstream has delivered, how long others that may have older blocks are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time limit for all of them together.
const LONGEST: Duration = Duration::from_secs(12);

/// The first margin above a bound that has moved, in blocks; doubled at each further attempt.
const FIRST_MARGIN: u64 = 16;

/// Maximum number of attempts per upstream for the range at its bound.
const ATTEMPTS: u32 = 12;

/// A verified first range.
pub(crate) struct Beginning {
    /// The upstream that delivered it.
    pub(crate) source: usize,
    pub(crate) blocks: Vec<FinalBlock>,
    /// The newest height that the source claims.
    pub(crate) claimed: Height,
}

/// Asks all upstreams for the oldest blocks that they keep, above `after` if given. Returns the
/// oldest range that verifies, and the upstreams that gave no usable answer.
pub(crate) async fn begin(
    guard: &Arc<Guard>,
    upstreams: Vec<(usize, Upstream)>,
    after: Option<Height>,
) -> (Option<Beginning>, Vec<(usize, UpstreamError)>) {
    let mut asked = JoinSet::new();
    for (source, upstream) in upstreams {
        let guard = guard.clone();
        asked.spawn(async move { (source, first_range(source, &upstream, guard, after).await) });
    }
    let mut best: Option<Beginning> = None;
    let mut refused = Vec::new();
    let mut deadline = tokio::time::Instant::now() + LONGEST;
    while let Ok(Some(answered)) = tokio::time::timeout_at(deadline, asked.join_next()).await {
        match answered {
            Ok((_, Ok(Some(found)))) => {
                if best.is_none() {
                    deadline = tokio::time::Instant::now() + PATIENCE;
                }
                let older = best
                    .as_ref()
                    .is_none_or(|best| found.first() < best.first());
                if older {
                    best = Some(found);
                }
            }
            Ok((_, Ok(None))) => {}
            Ok((source, Err(error))) => refused.push((source, error)),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    (best, refused)
}

impl Beginning {
    fn first(&self) -> Option<Height> {
        self.blocks.first().map(|block| block.block.height())
    }
}

/// The oldest blocks that an upstream delivers; `None` if it delivers none.
async fn first_range(
    source: usize,
    upstream: &Upstream,
    guard: Arc<Guard>,
    after: Option<Height>,
) -> Result<Option<Beginning>, UpstreamError> {
    let mut margin = 0;
    let mut error = UpstreamError::Failed("its oldest blocks are pruned too fast".to_owned());
    for _ in 0..ATTEMPTS {
        let status = upstream.status().await?;
        let least = after.map_or(1, |tip| tip.0.saturating_add(1));
        let least = least.max(guard.first_height().0);
        let bound = status.first_height.0.max(least);
        // Never beyond the existing blocks: at worst, a short history begins in its middle.
        let most = status.executed_height.0.saturating_sub(bound) / 2;
        let from = Height(bound.saturating_add(margin.min(most)));
        match upstream.chain(from, RANGE_BLOCKS, Duration::ZERO).await {
            Ok(answer) => {
                let claimed = answer.executed_height;
                let answer = Arc::new(answer);
                let verify = || {
                    let (guard, answer) = (guard.clone(), answer.clone());
                    blocking(move || guard.blocks(&answer, from, None, rand::random()))
                };
                let mut verified = verify().await;
                if verified.is_err() && guard.learn(upstream).await {
                    verified = verify().await;
                }
                let verified = verified?;
                if let Some(last) = verified.last() {
                    guard.keep_up(last.block.header().epoch, upstream).await?;
                }
                let found = (!verified.is_empty()).then_some(Beginning {
                    source,
                    blocks: verified,
                    claimed,
                });
                return Ok(found);
            }
            Err(pruned @ UpstreamError::Pruned(_)) => {
                error = pruned;
                margin = (2 * margin).max(FIRST_MARGIN);
            }
            Err(error) => return Err(error),
        }
    }
    Err(error)
}
