//! One validator without its threads. Sockets, clocks, files and threads are given to it.
//!
//! The node drives it by threads over the operating system's files and sockets. The simulator
//! drives it step by step, in virtual time, over a network and disks of its own. Both run this
//! code.

mod parts;
mod recovery;

use self::{
    parts::{ReplicaQueues, Shared},
    recovery::recover,
};
use crate::{
    accounts::Accounts,
    clock::Clock,
    conduct::Conduct,
    executor::{Executor, ExecutorHandle, Retention},
    follow::KnownUpstreams,
    ingest::{FORWARDED, Forwarder, Ingest},
    inlet::Inlet,
    keeper::{Keep, Keeper},
    live::LiveStatus,
    mempool::{Mempool, MempoolLimits},
    metrics::NodeMetrics,
    outlet::{InFlight, Wire},
    payloads::PayloadKeeper,
    replica::{Cutter, Event, Replica},
    serve::{Server, Unanswered, Upload},
    snapshots::Snapshots,
    turns::turns,
    validate::Validator,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use quorate_consensus::{Job, Output, Own, Timing, ValidateRequest, VoteChecking};
use quorate_crypto::SecretKey;
use quorate_storage::{
    bundles::BundleLog,
    disk::Disk,
    journal::{Journal, JournalError},
    store::Store,
    tree::{TableRows, Tree},
};
use quorate_types::{
    Committees, Epoch, Identity, Nonce, Position, Record, Silence, Vote, genesis::Genesis,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The settings of a validator.
pub struct Settings {
    pub genesis: Arc<Genesis>,
    pub committees: Committees,
    pub own: Own,
    pub identity: SecretKey,
    pub consensus: ConsensusConfig,
    pub mempool: MempoolLimits,
    /// Which blocks to keep; `None` for all.
    pub retention: Option<Retention>,
    /// Nodes that follow this one.
    pub followers: Vec<Identity>,
    /// Blocks between snapshots of the state; 0 for none.
    pub snapshot_interval: u64,
    /// What peers that fetch from this validator get.
    pub upload: Upload,
    /// Where it keeps its small files.
    pub data_dir: PathBuf,
}

/// The consensus settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsensusConfig {
    pub timing: Timing,
    /// How long finalize votes wait for the next view's notarize vote, to be sent together: 0 to
    /// 100 ms.
    pub finalize_linger: Duration,
    /// The least time between a parent's timestamp and its child's: 0 to 1 min.
    pub min_block_interval: Duration,
    /// How long a validator stays blocked for something invalid: 1 min to 8,760 h. Proven
    /// equivocation stays blocked until the operator lifts it.
    pub penalty_lasts: Duration,
    /// How votes are checked; no setting for operators.
    pub checking: VoteChecking,
    /// Whether blocks leave out what their unexecuted ancestors hold. They always do but in one experiment: no setting
    /// for operators.
    pub filtering: bool,
}

impl Default for ConsensusConfig {
    fn default() -> Self {
        Self {
            timing: Timing {
                idle_interval: Duration::from_secs(1),
                ..Timing::default()
            },
            finalize_linger: Duration::ZERO,
            min_block_interval: Duration::ZERO,
            penalty_lasts: Duration::from_secs(24 * 3_600),
            checking: VoteChecking::default(),
            filtering: true,
        }
    }
}

/// What is known of a process whose parts are assembled anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// Whether it voted until the epoch was over.
    pub voted: bool,
}

/// A vote journal that stays open while the parts of a process are assembled anew for another epoch, so that none of it is read or
/// written over at the border.
pub struct KeptJournal {
    pub journal: Journal,
    /// What recovery needs of it: the records that it would be rewritten with.
    pub records: Vec<Record>,
    /// Whether nothing here says that the key was used before.
    pub fresh: bool,
}

/// What the parts of a process leave to those that are assembled after them, with the same database and clock. The
/// requests of clients that are in progress may go on using it.
#[derive(Clone)]
pub struct Inherited {
    pub mempool: Arc<Mempool>,
    pub accounts: Accounts,
    pub snapshots: Arc<Snapshots>,
    pub upstreams: KnownUpstreams,
    pub unanswered: Unanswered,
    pub seen: SeenVotes,
}

/// The newest vote of each other validator that the engines of a process have seen (R28): written when one ends.
#[derive(Clone, Default)]
pub struct SeenVotes(Arc<Mutex<Vec<Vote>>>);

impl SeenVotes {
    pub(crate) fn keep(&self, votes: Vec<Vote>) {
        *self.0.lock() = votes;
    }

    pub(crate) fn kept(&self) -> Vec<Vote> {
        self.0.lock().clone()
    }
}

/// What parts begin with.
pub(crate) struct TakenUp {
    pub(crate) accounts: Accounts,
    /// None yet, or those that the parts before have taken.
    pub(crate) snapshots: Arc<Snapshots>,
    /// The mempool, if there is one.
    pub(crate) mempool: Option<Arc<Mempool>>,
    pub(crate) upstreams: KnownUpstreams,
    pub(crate) unanswered: Unanswered,
    pub(crate) seen: SeenVotes,
}

impl Inherited {
    /// What to go on with. Accounts and snapshots are those of one database.
    pub(crate) fn taken_up(
        inherited: Option<Self>,
        store: &Store,
        clock: &Arc<dyn Clock>,
    ) -> TakenUp {
        let of_this_database = |left: &Self| left.accounts.are_of(store);
        let (accounts, snapshots) = match &inherited {
            Some(left) if of_this_database(left) => (left.accounts.clone(), left.snapshots.clone()),
            _ => (
                Accounts::new(store.clone()),
                Arc::new(Snapshots::new(clock.clone())),
            ),
        };
        TakenUp {
            accounts,
            snapshots,
            upstreams: (inherited.as_ref())
                .map_or_else(Default::default, |left| left.upstreams.clone()),
            unanswered: (inherited.as_ref())
                .map_or_else(Default::default, |left| left.unanswered.clone()),
            seen: (inherited.as_ref()).map_or_else(Default::default, |left| left.seen.clone()),
            mempool: inherited.map(|left| left.mempool),
        }
    }
}

/// What is durable, already opened.
pub struct Durables {
    /// The file system of the small files.
    pub disk: Arc<dyn Disk>,
    pub store: Store,
    pub tree: Tree<TableRows>,
    pub journal: Journal,
    /// The journal's records.
    pub records: Vec<Record>,
    /// The first epoch in which to vote.
    pub silent_before: Epoch,
    /// Random, new at each start. Without it no peer is asked what this key has voted before.
    pub nonce: Option<Nonce>,
    /// Whether nothing on this machine says that the vote key was used before.
    pub fresh: bool,
    /// What the parts before these, in the same process, say.
    pub predecessor: Option<Predecessor>,
    /// What they leave behind.
    pub inherited: Option<Inherited>,
    /// The view of all validators with a journal, as the operator states it.
    pub survivors: Option<Position>,
    /// The payloads of a chain that only orders.
    pub bundles: Option<BundleLog>,
}

/// What a validator needs from outside.
pub struct Surroundings {
    pub clock: Arc<dyn Clock>,
    /// Sends frames to peers.
    pub wire: Wire,
    /// Returns the unsent bytes.
    pub in_flight: InFlight,
    /// Cuts links.
    pub cut: Cutter,
    pub metrics: Arc<NodeMetrics>,
}

/// A validator in parts, each for a thread of its own, with the queues between them.
///
/// Queues to the replica are unbounded, but their inputs are bounded: frames per peer by the inlet,
/// answers by the engine's own requests.
pub struct Machine {
    /// Owns the consensus engine and the journal.
    pub replica: Replica,
    /// What the replica must do first.
    pub first: Output,
    /// The replica's queue.
    pub events: Receiver<Event>,
    /// The sender of `events`.
    pub to_replica: Sender<Event>,
    /// Cryptographic checks for the crypto thread; answered by [`Event::Checked`].
    pub jobs: Receiver<Vec<Job>>,
    /// Checks proposed blocks.
    pub validator: Validator,
    /// Blocks to check.
    pub proposals: Receiver<ValidateRequest>,
    /// Serves blocks to peers.
    pub server: Server,
    /// Accepts forwarded transactions.
    pub ingest: Ingest,
    /// Forwards transactions.
    pub forwarder: Forwarder,
    /// Receives frames from peers.
    pub inlet: Inlet,
    /// Scores peers by how they behave on their links.
    pub conduct: Arc<Conduct>,
    /// Executes final blocks.
    pub executor: Executor,
    /// The executor's handle.
    pub executed: ExecutorHandle,
    pub accounts: Accounts,
    pub mempool: Arc<Mempool>,
    /// Stores clients' transactions on disk.
    pub keeper: Keeper,
    /// Requests to the keeper.
    pub kept: Receiver<Keep>,
    /// The sender of `kept`.
    pub to_keeper: Sender<Keep>,
    /// What clients and operators are shown.
    pub live: Arc<LiveStatus>,
    /// The states that peers are served from.
    pub snapshots: Arc<Snapshots>,
    /// Stores and sends payloads, on a chain that only orders.
    pub payloads: Option<PayloadKeeper>,
}

/// The folder of the log of bundles in a data directory.
pub fn bundles_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("bundles")
}

/// The journal's folder in a data directory.
pub fn journal_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("journal")
}

/// Makes a new journal say in its first record that an earlier journal of its key was lost.
pub fn begin_after_loss(
    journal: &mut Journal,
    records: &mut Vec<Record>,
) -> Result<(), JournalError> {
    let told = |record: &Record| matches!(record, Record::Silence(_));
    if records.iter().any(told) {
        return Ok(());
    }
    let record = Record::Silence(Silence::Unknown);
    journal.append(&record)?;
    let _synced = journal.release(())?;
    records.push(record);
    Ok(())
}

impl Machine {
    /// What these parts leave to the next ones.
    pub fn leaves(&self) -> Inherited {
        Inherited {
            mempool: self.mempool.clone(),
            accounts: self.accounts.clone(),
            snapshots: self.snapshots.clone(),
            upstreams: KnownUpstreams::default(),
            unanswered: self.server.unanswered(),
            seen: self.replica.seen(),
        }
    }

    /// Assembles a validator from what is durable.
    ///
    /// # Errors
    ///
    /// If that cannot be read, or is inconsistent.
    pub fn assemble(
        settings: Settings,
        mut durables: Durables,
        around: Surroundings,
    ) -> anyhow::Result<Self> {
        let recovered = recover(&settings, &mut durables, &*around.clock)?;
        let Durables {
            store,
            tree,
            journal,
            inherited,
            bundles,
            ..
        } = durables;
        let size = settings.committees.known().size() + settings.followers.len();
        let (to_replica, events) = unbounded();
        let (to_pool, jobs) = unbounded();
        let (to_validator, proposals) = unbounded();
        let (to_ingest, forwarded) = turns(size, FORWARDED);
        // Bounded by the mempool, which holds whatever is to be stored.
        let (to_keeper, kept) = unbounded();

        let first = recovered.first;
        let stored = (store, inherited);
        let mut shared = Shared::new(settings, around, stored, &recovered.engine, to_replica)?;
        let (to_server, waiting_requests) = shared.requests();
        let payloads = bundles.map(|log| shared.open_payloads(log)).transpose()?;
        let (executor, executed) = shared.executor(tree, to_server.clone())?;
        let inlet = shared.inlet(to_server.clone(), to_ingest);
        let validator = shared.validator(executed.clone());
        let server = shared.server(waiting_requests);
        let keeper = shared.keeper();
        let ingest = shared.ingest(forwarded);
        let forwarder = shared.forwarder();
        let neighbours = shared.neighbours(
            ReplicaQueues {
                jobs: to_pool,
                validator: to_validator,
                requests: to_server,
                executor: executed.clone(),
            },
            recovered.offenders,
            recovered.evidence,
        );
        let config = shared.replica_config();
        let replica = Replica::new(config, recovered.engine, journal, neighbours, shared.seen);
        Ok(Self {
            replica,
            first,
            events,
            to_replica: shared.to_replica,
            jobs,
            validator,
            proposals,
            server,
            ingest,
            forwarder,
            inlet,
            conduct: shared.conduct,
            executor,
            executed,
            accounts: shared.accounts,
            mempool: shared.mempool,
            keeper,
            kept,
            to_keeper,
            live: shared.live,
            snapshots: shared.snapshots,
            payloads,
        })
    }
}
