//! A staking contract (`deploy/staking`) as the source, read through several endpoints of Ethereum JSON-RPC.
//!
//! An endpoint is believed as little as any other source, so `agree` of them must say the same. That they can say the
//! same although each is at a block of its own, all are read at one block:
//!
//! 1. Each endpoint says which chain it serves and which of its blocks is final (tag `finalized`). One that serves
//!    another chain, or whose final block is below one that it named before, does not count.
//! 2. The block that is read is the highest one that `agree` of the endpoints have reached.
//! 3. Endpoints that have reached it say its hash, and the contract's list in its state, named by that hash. Hash and
//!    list of `agree` must be equal. If they are not, the next lower block that an endpoint has named is read in the same
//!    way: who claims a block that nobody has would otherwise set the mark so high that too few honest ones reach it.
//!
//! - *The block never goes back*: none is read below one that `agree` endpoints have agreed on. So whoever feeds this
//!   validator an old state of the chain is noticed, and one who was lied to by too many endpoints at once has to be
//!   started again.
//! - *A list is read twice at the same block before it counts*, unlike files and servers, which are read again at
//!   whatever they say then. Otherwise a contract that changes more often than it is read would never be followed. From
//!   the third time on the block is not asked for its list again, since its answer cannot be another one; an endpoint
//!   that says something else about the same block is a liar.
//! - *Anybody can bond*, so an entry whose owner has put nonsense there is left out instead of spoiling the list
//!   ([`crate::Reading::of_contract`]).
//! - Proofs of possession are verified for a list that `agree` endpoints say, once for all of them. An endpoint that
//!   makes lists up costs no more than their size.

pub(crate) mod abi;
mod rpc;

use crate::{
    reading::{Flaw, MAX_ENTRIES, Proofs, Reading, Terms},
    source::{SourceError, unreadable},
};
use abi::{Listed, PAGE_ENTRIES};
use alloy_primitives::Address;
use futures_util::future::{join_all, try_join, try_join_all};
use quorate_crypto::Digest;
use rpc::{Block, Rpc};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// How many blocks an endpoint may be behind those that are read before that is a trouble: two of Ethereum's epochs.
/// Endpoints learn of a final block some seconds apart.
const MAX_LAG_BLOCKS: u64 = 64;

/// A contract's list at a block.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) digest: Digest,
    pub(crate) listed: Vec<Listed>,
}

/// What an endpoint says in one round.
pub(crate) struct Answer {
    /// Its newest final block.
    pub(crate) block: Option<u64>,
    /// Its list at the block that is read; `None` if it is on its way there.
    pub(crate) said: Said,
}

type Said = Result<Option<Arc<List>>, SourceError>;

/// A contract and its endpoints.
pub(crate) struct Evm {
    contract: Address,
    chain_id: u64,
    agree: usize,
    timeout: Duration,
    endpoints: Vec<Endpoint>,
    /// The block of this round.
    reading: Option<u64>,
    /// The newest block that enough endpoints agreed on.
    agreed: Option<u64>,
    /// The block that is read once more.
    held: Option<u64>,
    proofs: Proofs,
    /// What the newest list that was agreed on comes to.
    judged: Option<(Digest, Result<Arc<Reading>, Flaw>)>,
}

struct Endpoint {
    name: String,
    rpc: Rpc,
    /// The final block that it named last.
    named: Option<Block>,
    heard: Option<Heard>,
}

/// What an endpoint has said of a block.
struct Heard {
    block: Block,
    list: Arc<List>,
    times: u32,
}

impl Evm {
    /// # Errors
    ///
    /// If a URL is none, or no HTTP client can be made.
    pub(crate) fn new(
        urls: &[String],
        contract: Address,
        chain_id: u64,
        agree: usize,
        timeout: Duration,
    ) -> Result<Self, SourceError> {
        let mut endpoints: Vec<Endpoint> = Vec::with_capacity(urls.len());
        for url in urls {
            let rpc = Rpc::new(url, timeout)?;
            let origin = rpc.shown();
            let same = endpoints.iter().filter(|one| one.rpc.shown() == origin);
            let name = match same.count() {
                0 => origin,
                others => format!("{origin} ({})", others + 1),
            };
            endpoints.push(Endpoint {
                name,
                rpc,
                named: None,
                heard: None,
            });
        }
        Ok(Self {
            contract,
            chain_id,
            agree,
            timeout,
            endpoints,
            reading: None,
            agreed: None,
            held: None,
            proofs: Proofs::default(),
            judged: None,
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.endpoints.iter().map(|endpoint| endpoint.name.clone())
    }

    /// The block that was read last.
    pub(crate) fn block(&self) -> Option<u64> {
        self.reading
    }

    /// That enough endpoints agreed on the block that was read last.
    pub(crate) fn agreed(&mut self) {
        self.agreed = self.reading;
    }

    /// Whether the next round reads the same block.
    pub(crate) fn hold(&mut self, holds: bool) {
        self.held = self.reading.filter(|_| holds);
    }

    /// Asks all endpoints once. It takes half the time-out for the final blocks, half of it for the lists, and as long
    /// again where they do not agree at first.
    pub(crate) async fn read(&mut self) -> Vec<Answer> {
        let heads = self.heads().await;
        let newest = self.newest(&heads);
        let mut said: Vec<Said> = (heads.iter())
            .map(|head| match (head, newest) {
                (Err(error), _) => Err(error.clone()),
                (Ok(head), Some(newest)) if head.saturating_add(MAX_LAG_BLOCKS) < newest => {
                    Err(SourceError::Behind {
                        block: *head,
                        others: newest,
                    })
                }
                (Ok(_), _) => Ok(None),
            })
            .collect();
        self.reading = None;
        let deadline = Instant::now() + self.timeout;
        for target in self.targets(&heads) {
            self.reading = Some(target);
            let limit = deadline.saturating_duration_since(Instant::now());
            self.lists(target, limit.min(self.timeout / 2), &heads, &mut said)
                .await;
            if self.do_agree(&said) {
                break;
            }
        }
        let named = self.endpoints.iter().map(|endpoint| endpoint.named);
        let answers = named.map(|named| named.map(|head| head.number));
        (answers.zip(said))
            .map(|(block, said)| Answer { block, said })
            .collect()
    }

    /// The newest final blocks.
    async fn heads(&mut self) -> Vec<Result<u64, SourceError>> {
        let (chain_id, limit) = (self.chain_id, self.timeout / 2);
        let heads = self.endpoints.iter().map(|endpoint| {
            let rpc = &endpoint.rpc;
            within(limit, async {
                let (found, block) = try_join(rpc.chain_id(), rpc.final_block()).await?;
                if found != chain_id {
                    return Err(SourceError::WrongChain {
                        found,
                        wanted: chain_id,
                    });
                }
                Ok(block)
            })
        });
        let heads = join_all(heads).await.into_iter();
        (self.endpoints.iter_mut().zip(heads))
            .map(|(endpoint, head)| endpoint.forward(head?))
            .collect()
    }

    /// Asks all that have reached a block for their list there, unless they have failed before.
    async fn lists(
        &mut self,
        target: u64,
        limit: Duration,
        heads: &[Result<u64, SourceError>],
        said: &mut [Said],
    ) {
        let contract = self.contract;
        let endpoints = self.endpoints.iter_mut().zip(heads).zip(said);
        let asked = endpoints.filter(|((_, head), said)| {
            let has_reached = head.as_ref().is_ok_and(|head| *head >= target);
            has_reached && said.is_ok()
        });
        let asked = asked.map(|((endpoint, _), said)| async move {
            let list = within(limit, endpoint.list(contract, target)).await;
            *said = list.map(Some);
        });
        join_all(asked).await;
    }

    fn do_agree(&self, said: &[Said]) -> bool {
        let lists = || said.iter().flatten().flatten();
        lists().any(|one| {
            let same = lists().filter(|other| other.digest == one.digest);
            same.count() >= self.agree
        })
    }

    /// The final blocks that count, the highest first: none below the one that was agreed on.
    fn counting(&self, heads: &[Result<u64, SourceError>]) -> Vec<u64> {
        let numbers = heads.iter().flatten().copied();
        let mut numbers: Vec<u64> = numbers.filter(|one| Some(*one) >= self.agreed).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        numbers
    }

    /// The blocks to read, until there is agreement: from the highest one that enough endpoints have reached. Where there
    /// are too few endpoints it is the one that all of these have reached: they cannot agree, but it is seen whether they
    /// can be read.
    fn targets(&self, heads: &[Result<u64, SourceError>]) -> Vec<u64> {
        if let Some(held) = self.held {
            // It was agreed on, so that none that counts is below it.
            return vec![held];
        }
        let numbers = self.counting(heads);
        let enough = self.agree.min(numbers.len());
        let mut targets = numbers[enough.saturating_sub(1)..].to_vec();
        targets.dedup();
        targets
    }

    /// What others are behind of.
    fn newest(&self, heads: &[Result<u64, SourceError>]) -> Option<u64> {
        let reached = self
            .counting(heads)
            .get(self.agree.saturating_sub(1))
            .copied();
        reached.or(self.agreed)
    }

    /// Makes a reading of a list that enough endpoints agree on.
    pub(crate) async fn judge(
        &mut self,
        list: &Arc<List>,
        terms: &Terms,
    ) -> Result<Arc<Reading>, SourceError> {
        if let Some((digest, outcome)) = &self.judged
            && *digest == list.digest
        {
            return Ok(outcome.clone()?);
        }
        let (list, terms, digest) = (list.clone(), terms.clone(), list.digest);
        let mut proofs = std::mem::take(&mut self.proofs);
        let judging = tokio::task::spawn_blocking(move || {
            let reading = Reading::of_contract(&list.listed, &terms, &mut proofs);
            (reading.map(Arc::new), proofs)
        });
        let (outcome, proofs) = judging.await.map_err(|error| unreadable(&error))?;
        self.proofs = proofs;
        self.judged = Some((digest, outcome.clone()));
        Ok(outcome?)
    }
}

impl Endpoint {
    /// Its final block's number, unless it is below one that it named, or whose list it has said.
    fn forward(&mut self, head: Block) -> Result<u64, SourceError> {
        let named = self.named.map(|named| named.number);
        let said = self.heard.as_ref().map(|heard| heard.block.number);
        let before = named.max(said).unwrap_or(0);
        // What it names now is what it is measured by the next time: one mistake must not disqualify it for ever.
        self.named = Some(head);
        if head.number < before {
            return Err(SourceError::WentBack {
                block: head.number,
                before,
            });
        }
        Ok(head.number)
    }

    async fn list(&mut self, contract: Address, target: u64) -> Result<Arc<List>, SourceError> {
        let block = match (&self.named, &self.heard) {
            (Some(named), _) if named.number == target => *named,
            (_, Some(heard)) if heard.block.number == target => heard.block,
            _ => self.rpc.block_at(target).await?,
        };
        let before = (self.heard.as_mut()).filter(|heard| heard.block.number == target);
        if let Some(heard) = &before
            && heard.block == block
            && heard.times >= 2
        {
            return Ok(heard.list.clone());
        }
        let listed = read_list(&self.rpc, &contract, &block).await?;
        let digest = abi::digest(&block.hash.0, &listed);
        if let Some(heard) = before {
            if heard.list.digest == digest {
                heard.times += 1;
                return Ok(heard.list.clone());
            }
            self.heard = Some(Heard::new(block, digest, listed));
            return Err(SourceError::Contradiction(target));
        }
        let heard = Heard::new(block, digest, listed);
        let list = heard.list.clone();
        self.heard = Some(heard);
        Ok(list)
    }
}

impl Heard {
    fn new(block: Block, digest: Digest, listed: Vec<Listed>) -> Self {
        Self {
            block,
            list: Arc::new(List { digest, listed }),
            times: 1,
        }
    }
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let done = tokio::time::timeout(limit, step).await;
    done.unwrap_or(Err(SourceError::Slow(limit)))
}

/// The contract's whole list in the state after a block, page by page.
async fn read_list(
    rpc: &Rpc,
    contract: &Address,
    block: &Block,
) -> Result<Vec<Listed>, SourceError> {
    let count = rpc.call(contract, &abi::count_call(), &block.hash).await?;
    let count = abi::count(&count).ok_or(SourceError::NoContract)?;
    if count > MAX_ENTRIES {
        return Err(Flaw::TooMany(count).into());
    }
    let pages = (0..count).step_by(PAGE_ENTRIES).map(|from| async move {
        let to = count.min(from + PAGE_ENTRIES);
        let call = abi::entries_call(from, to);
        let page = rpc.call(contract, &call, &block.hash).await?;
        abi::entries(&page, to - from).ok_or(SourceError::NoContract)
    });
    let pages = try_join_all(pages).await?;
    let listed: Vec<Listed> = pages.into_iter().flatten().collect();
    let mut seen: BTreeMap<_, ()> = BTreeMap::new();
    for one in &listed {
        if seen.insert(one.identity, ()).is_some() {
            return Err(Flaw::Doubled(one.identity).into());
        }
    }
    Ok(listed)
}
