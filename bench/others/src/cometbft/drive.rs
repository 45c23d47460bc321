//! Loads CometBFT and measures it: an open loop over HTTP, and one validator's blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Nodes;
use super::rpc::{POLL_MS, Rpc, Sent, transaction};
use crate::accounts::Meter;
use crate::book::{Book, Sums};
use crate::{Figures, Load};

/// How long the validators have until all follow a chain that grows.
const START_LIMIT: Duration = Duration::from_secs(90);
/// The height at which a chain counts as growing.
const START_HEIGHT: u64 = 3;
/// How often processes and memory are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Transactions sent to one validator and not answered. More wait, and it counts as their latency.
const MAX_OUTSTANDING: usize = 200;

/// Loads the validators until the measured time is accounted for.
pub(super) async fn drive(nodes: &mut Nodes, load: &Load) -> Result<Figures> {
    let client = Rpc::client()?;
    let rpcs: Arc<[Rpc]> = nodes
        .urls
        .iter()
        .map(|url| Rpc::new(client.clone(), url.clone()))
        .collect();
    let height = started(nodes, &rpcs).await?;

    let run = Run {
        rpcs,
        bytes: load.transaction_bytes,
        book: Arc::new(Mutex::new(Book::new(load)?)),
        refused: Arc::default(),
        start: Instant::now(),
    };
    // Dropping the set ends its tasks.
    let mut tasks = JoinSet::new();
    tasks.spawn(run.clone().follow(height));
    tasks.spawn(run.clone().send_all());

    let measured = run.start + load.warm_up;
    let drained = measured + load.measure;
    until(measured, nodes, &mut tasks, |_| Ok(false)).await?;
    let mut meter = Meter::begin(nodes.pids())?;
    until(drained, nodes, &mut tasks, |_| meter.look().map(|()| false)).await?;
    let (cpu, memory_mib_max) = meter.end()?;
    let end = drained + load.drain;
    until(end, nodes, &mut tasks, |_| Ok(run.book().settled())).await?;
    tasks.shutdown().await;

    let refused = lock(&run.refused).clone();
    let fresh = Book::new(load)?;
    let book = std::mem::replace(&mut *run.book(), fresh);
    let sums = book.close(run.start.elapsed());
    ensure!(
        sums.finalised > 0,
        "nothing became final in the measured time ({})",
        refused.unwrap_or_else(|| "nothing was refused".to_owned())
    );
    Ok(figures(&sums, load, cpu, memory_mib_max))
}

fn figures(sums: &Sums, load: &Load, cpu: Duration, memory_mib_max: f64) -> Figures {
    let seconds = load.measure.as_secs_f64();
    let blocks = sums.blocks as f64;
    Figures {
        offered_per_s: sums.sent as f64 / seconds,
        goodput_per_s: sums.finalised as f64 / seconds,
        unfinished_percent: sums.unfinished_percent,
        block_ms: 1e3 * seconds / blocks,
        transactions_per_block: sums.finalised as f64 / blocks,
        latency_p50_ms: sums.p50_ms,
        latency_p99_ms: sums.p99_ms,
        cpu_ms_per_block_and_node: 1e3 * cpu.as_secs_f64() / blocks / load.validators as f64,
        memory_mib_max,
    }
}

/// Waits until all validators follow a chain that grows, and tells the first one's height.
async fn started(nodes: &mut Nodes, rpcs: &[Rpc]) -> Result<u64> {
    let limit = Instant::now() + START_LIMIT;
    let mut heights = Vec::new();
    while heights.len() < rpcs.len() {
        let next = heights.len();
        nodes.check()?;
        match rpcs[next].height().await {
            Ok(height) if height >= START_HEIGHT => heights.push(height),
            last if Instant::now() >= limit => {
                let reason = match last {
                    Ok(height) => format!("it is at height {height}"),
                    Err(error) => format!("{error:#}"),
                };
                let tail = nodes.processes[next].tail();
                let seconds = START_LIMIT.as_secs();
                bail!("validator {next} is not ready after {seconds} s: {reason}; {tail}")
            }
            _ => sleep(LOOK).await,
        }
    }
    rpcs[0].height().await
}

/// Waits until then, or until `done`, while all processes and tasks go on.
async fn until(
    then: Instant,
    nodes: &mut Nodes,
    tasks: &mut JoinSet<Result<()>>,
    mut done: impl FnMut(Instant) -> Result<bool>,
) -> Result<()> {
    loop {
        let next = (Instant::now() + LOOK).min(then);
        tokio::select! {
            () = sleep_until(next) => {}
            Some(ended) = tasks.join_next() => {
                // If a validator has ended, that is the reason, and its log tells more.
                nodes.check()?;
                ended.context("a part of the generator panicked")??;
            }
        }
        nodes.check()?;
        let now = Instant::now();
        if done(now)? || now >= then {
            return Ok(());
        }
    }
}

/// What the parts of the generator share.
#[derive(Clone, Debug)]
struct Run {
    rpcs: Arc<[Rpc]>,
    bytes: usize,
    book: Arc<Mutex<Book>>,
    /// Why the first refused transaction was refused.
    refused: Arc<Mutex<Option<String>>>,
    start: Instant,
}

impl Run {
    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Sends each transaction when it is due, to all validators in turn.
    async fn send_all(self) -> Result<()> {
        let room: Vec<_> = self
            .rpcs
            .iter()
            .map(|_| Arc::new(Semaphore::new(MAX_OUTSTANDING)))
            .collect();
        let mut answers = JoinSet::new();
        let transactions = self.book().transactions();
        for (number, validator) in (0..transactions).zip((0..room.len()).cycle()) {
            let due = self.book().due(number);
            sleep_until(self.start + due).await;
            let permit = Arc::clone(&room[validator])
                .acquire_owned()
                .await
                .context("the room for answers is closed")?;
            self.book().sent(self.start.elapsed());
            let run = self.clone();
            answers.spawn(async move {
                let transaction = transaction(number, run.bytes);
                let refused = match run.rpcs[validator].send(&transaction).await {
                    Ok(Sent::Accepted) => None,
                    Ok(Sent::Refused(reason)) => Some(reason),
                    Err(error) => Some(format!("{error:#}")),
                };
                if let Some(reason) = refused {
                    lock(&run.refused).get_or_insert(reason);
                }
                drop(permit);
            });
            while answers.try_join_next().is_some() {}
        }
        while answers.join_next().await.is_some() {}
        Ok(())
    }

    /// Notes each block after `height` as soon as the first validator has it.
    async fn follow(self, height: u64) -> Result<()> {
        let mut next = height.checked_add(1).context("no height is above")?;
        loop {
            match self.rpcs[0].block(next, self.bytes).await? {
                Some(numbers) => {
                    self.book().block(self.start.elapsed(), numbers)?;
                    next += 1;
                }
                None => sleep(Duration::from_millis(POLL_MS)).await,
            }
        }
    }
}

/// What is behind these locks is whole whenever a holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
