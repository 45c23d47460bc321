//! What the machines of a network say about a chain whose validators change: the blocks of each, when the first
//! of them had each block, and the registry.
//!
//! The blocks of all machines are compared, so that a gap or a contradiction is noticed.

use parking_lot::{Mutex, MutexGuard};
use quorate_api::{BlockSummaryJson, RegistryJson, RpcClient};
use quorate_types::{Digest, EpochLength, Height, Identity};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet};

/// How long one request waits for a block.
const BLOCK_WAIT: Duration = Duration::from_millis(500);

/// How long a machine may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The most blocks in one answer.
const BLOCKS: u64 = 100;

/// How long the reader of a machine that does not validate pauses: what it says is only compared.
const PAUSE: Duration = Duration::from_millis(500);

/// How long to wait after a failed request.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Blocks that a machine in sync may lack.
const IN_SYNC: u64 = 40;

/// How often the registry is asked for.
const REGISTRY_INTERVAL: Duration = Duration::from_millis(150);

/// The most faults that are described; further ones are counted.
const MAX_FAULTS: usize = 20;

/// A block as it was first seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: Digest,
    at: Instant,
    applied: u64,
}

/// What happened in an epoch.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct EpochRow {
    pub epoch: u64,
    pub first_height: u64,
    pub last_height: u64,
    /// The places of its validators.
    pub validators: Vec<usize>,
    /// Those of them that were no validators of the epoch before.
    pub joined: Vec<usize>,
    /// Validators of the epoch before that are none of this one.
    pub left: Vec<usize>,
    /// The median time from one block to the next, without the first block.
    pub median_interval_ms: Option<f64>,
    /// The time from the last block of the epoch before to the first of this one.
    pub border_interval_ms: Option<f64>,
    /// The longest time from one block of this epoch to the next.
    pub longest_interval_ms: Option<f64>,
    /// Transactions that were applied.
    pub applied: u64,
}

impl EpochRow {
    /// Whether its validators are others than those of the epoch before.
    pub fn changes(&self) -> bool {
        !(self.joined.is_empty() && self.left.is_empty())
    }

    /// Whether all but a quorum of the validators of the epoch before were replaced by others.
    pub fn replaces_most(&self) -> bool {
        let before = self.validators.len() + self.left.len() - self.joined.len();
        let faults = before.saturating_sub(1) / 3;
        faults > 0 && self.left.len() >= faults && self.joined.len() == self.left.len()
    }
}

/// All that was read so far.
pub struct Chronicle {
    epoch_length: EpochLength,
    identities: Vec<Identity>,
    /// The first height that is read.
    from: u64,
    blocks: BTreeMap<u64, Seen>,
    /// The height up to which each machine's blocks were read.
    read: Vec<u64>,
    registry: Option<RegistryJson>,
    /// The validators of each epoch.
    sets: BTreeMap<u64, Vec<usize>>,
    /// Gaps and contradictions.
    faults: Vec<String>,
    fault_count: u64,
}

impl Chronicle {
    fn new(identities: Vec<Identity>, epoch_length: EpochLength, from: u64) -> Self {
        Self {
            epoch_length,
            read: vec![from.saturating_sub(1); identities.len()],
            identities,
            from,
            blocks: BTreeMap::new(),
            registry: None,
            sets: BTreeMap::new(),
            faults: Vec::new(),
            fault_count: 0,
        }
    }

    fn fault(&mut self, text: String) {
        self.fault_count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(text);
        }
    }

    /// Records blocks of a machine, which should be the next ones.
    fn take_blocks(&mut self, place: usize, blocks: &[BlockSummaryJson], now: Instant) {
        for block in blocks {
            let (height, expected) = (block.height.0, self.read[place] + 1);
            if height < expected {
                continue;
            }
            if height > expected {
                self.fault(format!(
                    "machine {place} has block {height} after {}",
                    self.read[place]
                ));
            }
            self.read[place] = height;
            let applied = block
                .outcomes
                .iter()
                .filter(|outcome| *outcome == "applied");
            let seen = Seen {
                id: block.id,
                at: now,
                applied: applied.count() as u64,
            };
            let first = *self.blocks.entry(height).or_insert(seen);
            if first.id != block.id {
                self.fault(format!(
                    "block {height} is {} at machine {place}, and {} at another one",
                    block.id, first.id
                ));
            }
        }
    }

    fn take_registry(&mut self, registry: RegistryJson) {
        let newest = self.registry.as_ref();
        if newest.is_some_and(|newest| newest.executed_height > registry.executed_height) {
            return;
        }
        let acting = registry.acting.iter().map(|member| member.identity);
        let acting = self.places(acting);
        self.sets.insert(registry.epoch.0, acting);
        self.registry = Some(registry);
    }

    fn places(&self, identities: impl Iterator<Item = Identity>) -> Vec<usize> {
        let place = |identity| self.identities.iter().position(|known| *known == identity);
        identities.filter_map(place).collect()
    }

    pub fn registry(&self) -> Option<&RegistryJson> {
        self.registry.as_ref()
    }

    /// The places of the validators of this epoch.
    pub fn acting(&self) -> BTreeSet<usize> {
        let registry = self.registry.as_ref();
        let acting = registry.into_iter().flat_map(|registry| &registry.acting);
        self.places(acting.map(|member| member.identity))
            .into_iter()
            .collect()
    }

    /// Whether a machine has nearly all blocks.
    pub fn is_in_sync(&self, place: usize) -> bool {
        self.read[place] + IN_SYNC >= self.tip().map_or(0, |(height, _)| height)
    }

    /// The validators of this epoch that are in sync. A client sends to these.
    fn ready(&self) -> BTreeSet<usize> {
        let acting = self.acting().into_iter();
        acting.filter(|place| self.is_in_sync(*place)).collect()
    }

    /// The places of the validators of the next epoch, once they are fixed.
    pub fn coming(&self) -> Option<BTreeSet<usize>> {
        let coming = self.registry.as_ref()?.coming.as_ref()?;
        let identities = coming.iter().map(|member| member.identity);
        Some(self.places(identities).into_iter().collect())
    }

    /// The greatest height that any machine has shown, and when it did.
    pub fn tip(&self) -> Option<(u64, Instant)> {
        let (height, seen) = self.blocks.last_key_value()?;
        Some((*height, seen.at))
    }

    /// Whether the newest block is in the second half of its epoch.
    pub fn is_in_second_half(&self) -> bool {
        let tip = Height(self.tip().map_or(0, |(height, _)| height));
        tip >= self
            .epoch_length
            .fixing_height(self.epoch_length.epoch_of(tip))
    }

    /// The first height that is read.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The height up to which a machine's blocks were read.
    pub fn read(&self, place: usize) -> u64 {
        self.read[place]
    }

    /// Gaps and contradictions, and how many there are.
    pub fn faults(&self) -> (&[String], u64) {
        (&self.faults, self.fault_count)
    }

    /// Heights without a block between the first and the last one.
    pub fn missing_heights(&self) -> u64 {
        let span = self
            .tip()
            .map_or(0, |(tip, _)| (tip + 1).saturating_sub(self.from));
        span - self.blocks.len() as u64
    }

    fn epoch_of(&self, height: u64) -> u64 {
        self.epoch_length.epoch_of(Height(height)).0
    }

    /// The epoch of the next block.
    pub fn epoch(&self) -> u64 {
        self.epoch_of(self.tip().map_or(1, |(height, _)| height + 1))
    }

    /// The epochs of which a block and the validators were seen.
    pub fn rows(&self) -> Vec<EpochRow> {
        let epochs = match (self.blocks.first_key_value(), self.blocks.last_key_value()) {
            (Some((first, _)), Some((last, _))) => self.epoch_of(*first)..=self.epoch_of(*last),
            _ => return Vec::new(),
        };
        epochs.filter_map(|epoch| self.row(epoch)).collect()
    }

    /// What happened in an epoch; `None` if nothing of it was seen.
    pub fn row(&self, epoch: u64) -> Option<EpochRow> {
        let length = self.epoch_length.blocks();
        let heights = epoch * length + 1..=(epoch + 1) * length;
        let mut blocks = self.blocks.range(heights).peekable();
        let (first_height, first) = blocks.peek().map(|(height, seen)| (**height, **seen))?;
        let validators = self.sets.get(&epoch)?.clone();
        let before = epoch
            .checked_sub(1)
            .and_then(|before| self.sets.get(&before));
        let without = |some: &[usize], others: &[usize]| -> Vec<usize> {
            let missing = some.iter().filter(|place| !others.contains(place));
            missing.copied().collect()
        };
        let (joined, left) = before.map_or((Vec::new(), Vec::new()), |before| {
            (without(&validators, before), without(before, &validators))
        });
        let (mut last_height, mut last_at) = (first_height, first.at);
        let mut applied = 0;
        let mut intervals = Vec::new();
        for (height, seen) in blocks {
            applied += seen.applied;
            if *height > first_height {
                intervals.push(milliseconds(last_at, seen.at));
            }
            (last_height, last_at) = (*height, seen.at);
        }
        let border = first_height
            .checked_sub(1)
            .and_then(|height| self.blocks.get(&height));
        Some(EpochRow {
            epoch,
            first_height,
            last_height,
            validators,
            joined,
            left,
            border_interval_ms: border.map(|border| milliseconds(border.at, first.at)),
            longest_interval_ms: intervals.iter().copied().reduce(f64::max),
            median_interval_ms: median(intervals),
            applied,
        })
    }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1_000.0
}

/// The median of these values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Reads what the machines say, as long as it lives.
pub struct Watcher {
    chronicle: Arc<Mutex<Chronicle>>,
    ready: watch::Receiver<BTreeSet<usize>>,
    _tasks: JoinSet<()>,
}

impl Watcher {
    /// Starts to read. `machines` are the identities and URLs by their places.
    ///
    /// # Errors
    ///
    /// If the system gives no HTTP client.
    pub fn start(
        machines: &[(Identity, String)],
        epoch_length: EpochLength,
        from: u64,
    ) -> anyhow::Result<Self> {
        let identities = machines.iter().map(|(identity, _)| *identity).collect();
        let chronicle = Chronicle::new(identities, epoch_length, from);
        let chronicle = Arc::new(Mutex::new(chronicle));
        let clients = machines
            .iter()
            .map(|(_, url)| RpcClient::with_timeout(url, ANSWER_LIMIT))
            .collect::<Result<Vec<_>, _>>()?;
        let mut tasks = JoinSet::new();
        for (place, client) in clients.iter().enumerate() {
            tasks.spawn(read_blocks(chronicle.clone(), client.clone(), place));
        }
        let (told, ready) = watch::channel(BTreeSet::new());
        tasks.spawn(read_registry(chronicle.clone(), clients, told));
        Ok(Self {
            chronicle,
            ready,
            _tasks: tasks,
        })
    }

    pub fn chronicle(&self) -> MutexGuard<'_, Chronicle> {
        self.chronicle.lock()
    }

    /// The same for tasks of their own.
    pub fn shared(&self) -> Arc<Mutex<Chronicle>> {
        self.chronicle.clone()
    }

    /// The places of the validators that act now and are in sync, as they change.
    pub fn ready(&self) -> watch::Receiver<BTreeSet<usize>> {
        self.ready.clone()
    }
}

async fn read_blocks(chronicle: Arc<Mutex<Chronicle>>, client: RpcClient, place: usize) {
    loop {
        let next = chronicle.lock().read(place) + 1;
        let pause = match client.blocks(Height(next), BLOCKS, BLOCK_WAIT).await {
            Ok(answer) => {
                let mut chronicle = chronicle.lock();
                chronicle.take_blocks(place, &answer.blocks, Instant::now());
                let is_full = answer.blocks.len() as u64 == BLOCKS;
                match is_full || chronicle.acting().contains(&place) {
                    true => Duration::ZERO,
                    false => PAUSE,
                }
            }
            Err(_) => ASK_AGAIN,
        };
        tokio::time::sleep(pause).await;
    }
}

/// Asks the acting validators in turn, and tells who acts and is in sync.
async fn read_registry(
    chronicle: Arc<Mutex<Chronicle>>,
    clients: Vec<RpcClient>,
    ready: watch::Sender<BTreeSet<usize>>,
) {
    for turn in 0_usize.. {
        let asked = {
            let places: Vec<usize> = chronicle.lock().acting().into_iter().collect();
            match places.is_empty() {
                true => turn % clients.len(),
                false => places[turn % places.len()],
            }
        };
        if let Ok(registry) = clients[asked].registry().await {
            let mut chronicle = chronicle.lock();
            chronicle.take_registry(registry);
            let now = chronicle.ready();
            ready.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
        tokio::time::sleep(REGISTRY_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(height: u64, id: u8) -> BlockSummaryJson {
        BlockSummaryJson {
            height: Height(height),
            id: Digest([id; 32]),
            timestamp_ms: 0,
            transactions: Vec::new(),
            outcomes: vec!["applied".to_owned(), "no_registry".to_owned()],
        }
    }

    fn chronicle() -> Chronicle {
        let length = EpochLength::new(2).expect("not zero");
        let identities = vec![Identity([1; 32]), Identity([2; 32])];
        let mut chronicle = Chronicle::new(identities, length, 1);
        chronicle.sets = BTreeMap::from([(0, vec![0]), (1, vec![1])]);
        chronicle
    }

    #[test]
    fn a_row_tells_of_an_epoch_and_of_the_border_before_it() {
        let mut chronicle = chronicle();
        let start = Instant::now();
        for (height, ms) in [(1, 0), (2, 50), (3, 1_050), (4, 1_090)] {
            let at = start + Duration::from_millis(ms);
            chronicle.take_blocks(0, &[block(height, height as u8)], at);
            chronicle.take_blocks(
                1,
                &[block(height, height as u8)],
                at + Duration::from_secs(9),
            );
        }
        let row = chronicle.row(1).expect("it was seen");
        assert_eq!((row.first_height, row.last_height, row.applied), (3, 4, 2));
        assert!(row.changes() && !row.replaces_most(), "one of one");
        assert_eq!((row.joined.clone(), row.left.clone()), (vec![1], vec![0]));
        assert_eq!(row.border_interval_ms, Some(1_000.0));
        assert_eq!(row.median_interval_ms, Some(40.0));
        assert_eq!(chronicle.rows().len(), 2);
        assert_eq!(chronicle.faults().1, 0);
        assert_eq!(chronicle.missing_heights(), 0);
        assert_eq!(chronicle.epoch(), 2);
        assert!(chronicle.is_in_second_half());
    }

    #[test]
    fn all_but_a_quorum_are_as_many_as_may_be_faulty() {
        let row = |validators: usize, joined: &[usize], left: &[usize]| EpochRow {
            validators: (0..validators).collect(),
            joined: joined.to_vec(),
            left: left.to_vec(),
            ..chronicle_row()
        };
        assert!(row(4, &[3], &[9]).replaces_most());
        assert!(row(7, &[5, 6], &[8, 9]).replaces_most());
        assert!(!row(7, &[6], &[9]).replaces_most());
        assert!(!row(5, &[3, 4], &[9]).replaces_most(), "it grows");
        assert!(!row(4, &[], &[9]).replaces_most(), "it shrinks");
    }

    fn chronicle_row() -> EpochRow {
        let mut chronicle = chronicle();
        chronicle.take_blocks(0, &[block(1, 1)], Instant::now());
        chronicle.row(0).expect("it was seen")
    }

    #[test]
    fn gaps_and_contradictions_are_noticed() {
        let mut chronicle = chronicle();
        let now = Instant::now();
        chronicle.take_blocks(0, &[block(1, 1), block(2, 2), block(4, 4)], now);
        assert_eq!(chronicle.faults().1, 1, "block 3 is missing");
        assert_eq!(chronicle.missing_heights(), 1);
        chronicle.take_blocks(1, &[block(1, 1), block(2, 7)], now);
        assert_eq!(chronicle.faults().1, 2, "block 2 is another one");
        assert_eq!((chronicle.read(0), chronicle.read(1)), (4, 2));
    }
}
