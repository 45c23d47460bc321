//! One simulated validator: the node's own parts, over a simulated disk and clock, each run when the
//! world says so.

use crate::{
    clock::{ClockFault, SimClock},
    crypto::Authority,
    disk::SimDisk,
    scenario::{Costs, Scenario},
};
use bytes::Bytes;
use quorate_consensus::{Job, JobId, Moment, Own, Verdict, VoteSigner, Work};
use quorate_crypto::bls::{HashedMessage, PartialSignature};
use quorate_lanes::{Lane, To};
use quorate_machine::validate::Waiting;
use quorate_machine::{
    directory::{Directory, PeerIndex},
    executor::{AccountProof, ProofRefused, Retention},
    machine::{
        ConsensusConfig, Durables, Machine, Settings, Surroundings, begin_after_loss,
        bundles_folder, journal_folder,
    },
    mempool::MempoolLimits,
    metrics::NodeMetrics,
    offenders::OFFENDERS_FILE,
    outlet::Wire,
    payloads::{PayloadKeeper, Submitted},
    replica::{Cut, Cutter, Event},
    serve::Upload,
    sync::{SaveInPlace, StateSync, SyncParts},
};
use quorate_storage::{bundles::BundleLog, disk::Disk as _, journal::Journal, store::Store};
use quorate_types::{
    Bundle, Committee, Committees, Digest, Epoch, Height, Identity, Nonce, ValidatorIndex,
    genesis::{ApplicationKind, Genesis},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::oneshot;

/// How long the library refuses a cut link.
const CUT_LASTS: Duration = Duration::from_secs(60);

/// How soon a block is looked at again whose named state is not reached.
const VALIDATE_AGAIN: Duration = Duration::from_millis(2);

/// The journal is rewritten after so many bytes: often, since that is where crashes bite.
const REWRITE_BYTES: u64 = 24 << 10;

/// Nothing is removed of the log of bundles, and its segments are short: crashes bite where one ends.
const BUNDLE_BYTES: u64 = 1 << 30;
const SEGMENT_BYTES: u64 = 24 << 10;

/// The parts of a validator, each with a thread of its own in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Replica,
    Crypto,
    Validator,
    Executor,
    Server,
    Ingest,
    Keeper,
    Payloads,
}

pub(crate) const PARTS: [Part; 8] = [
    Part::Replica,
    Part::Crypto,
    Part::Validator,
    Part::Executor,
    Part::Server,
    Part::Ingest,
    Part::Keeper,
    Part::Payloads,
];

/// A frame that left a validator.
pub(crate) struct Sent {
    pub(crate) at: Moment,
    pub(crate) lane: Lane,
    pub(crate) to: To,
    pub(crate) bytes: Bytes,
}

/// What a validator does to the world.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) sent: Vec<Sent>,
    /// Whose frames are refused, and until when.
    pub(crate) cuts: BTreeMap<Identity, Moment>,
}

/// A validator that runs.
pub(crate) struct Running {
    pub(crate) machine: Machine,
    pub(crate) store: Store,
    /// Blocks whose named state is not reached yet.
    pub(crate) waiting: Vec<Waiting>,
    /// What the crypto pool works on.
    pub(crate) checking: Option<Vec<(JobId, Verdict)>>,
    /// How long it takes.
    pub(crate) checking_takes: Duration,
    /// Checks that failed so far.
    pub(crate) bisected: u64,
    /// The epoch that it was in when it was last looked at.
    pub(crate) epoch: Epoch,
    /// Transactions of clients that wait for their answer.
    pub(crate) asking: Vec<(Digest, oneshot::Receiver<()>)>,
    /// Payloads of clients that wait for their answers.
    pub(crate) submitted: Vec<(Bundle, Submitted)>,
    /// A proof that a client waits for, and of whose account.
    pub(crate) proof: Option<(Identity, Proof)>,
}

type Proof = oneshot::Receiver<Result<AccountProof, ProofRefused>>;

impl Running {
    /// How many combined checks have failed of those under way.
    pub(crate) fn spoiled(&self) -> u32 {
        let verdicts = self.checking.iter().flatten();
        let spoiled = verdicts.filter(|(_, v)| matches!(v, Verdict::Certified(Err(_))));
        spoiled.count() as u32
    }
}

/// One validator. Twins have two of these.
pub(crate) struct Host {
    pub(crate) validator: usize,
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) outbox: Arc<Mutex<Outbox>>,
    pub(crate) running: Option<Box<Running>>,
    /// It fetches the state instead.
    pub(crate) syncing: Option<Box<StateSync>>,
    /// Whether it is to fetch the state when it starts.
    wants_state: bool,
    /// How many looks in a row found it far behind.
    pub(crate) far_looks: u32,
    /// Counts lives, so that what was meant for a former one is dropped.
    pub(crate) life: u64,
    /// When each part runs next.
    pub(crate) planned: [Option<Moment>; PARTS.len()],
    /// When each part is free again.
    pub(crate) busy: [Moment; PARTS.len()],
    /// Whether it has ever voted.
    pub(crate) has_voted: bool,
    /// Whether its journal was ever lost, or replaced by a copy.
    pub(crate) lost_journal: bool,
    /// Whether its journal was lost and the new one may not say so yet: what the mark beside a vote key
    /// says.
    lost: bool,
    /// An old copy of its journal.
    copy: Vec<(PathBuf, Vec<u8>)>,
    /// Whether it stopped by itself.
    pub(crate) halted: bool,
    pub(crate) signer: Arc<dyn VoteSigner>,
}

/// What all validators of a world share.
pub(crate) struct Chain {
    pub(crate) genesis: Arc<Genesis>,
    pub(crate) committee: Committee,
    pub(crate) authority: Arc<Authority>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The network of a host, and the cutting of its links.
pub(crate) fn wire(
    outbox: &Arc<Mutex<Outbox>>,
    clock: &Arc<SimClock>,
    disk: &SimDisk,
) -> (Wire, Cutter) {
    let (sending, sent_at, disk) = (outbox.clone(), clock.clone(), disk.clone());
    let wire: Wire = Arc::new(move |lane, to, bytes| {
        // Nothing leaves a machine without power.
        if !disk.has_crashed() {
            lock(&sending).sent.push(Sent {
                at: sent_at.world(),
                lane,
                to: to.clone(),
                bytes,
            });
        }
    });
    let (outbox, clock) = (outbox.clone(), clock.clone());
    let cut: Cutter = Arc::new(move |identity, what| {
        let mut outbox = lock(&outbox);
        match what {
            Cut::Off => {
                let until = clock.world().after(CUT_LASTS);
                outbox.cuts.insert(identity, until);
            }
            Cut::Allowed => drop(outbox.cuts.remove(&identity)),
        }
    });
    (wire, cut)
}

/// What a check takes, when nothing is wrong with what it checks. `combined` says whether a combined check shares the
/// pairing of one that was charged before.
fn cost_of(work: &Work, combined: &mut bool, costs: &Costs) -> Duration {
    let times = |one: Duration, items: usize| one * u32::try_from(items).unwrap_or(u32::MAX);
    match work {
        Work::Certify(_) if std::mem::replace(combined, true) => costs.certify_beside,
        Work::Certify(_) => costs.certify,
        Work::VerifyCertificates(certificates) => match certificates.len() {
            0 => Duration::ZERO,
            items => costs.certificate + times(costs.certificate_beside, items - 1),
        },
        Work::VerifyVotes(votes) => times(costs.vote, votes.len()),
    }
}

/// A signer whose work takes its validator's time.
struct Working {
    signer: Arc<dyn VoteSigner>,
    clock: Arc<SimClock>,
    takes: Duration,
}

impl VoteSigner for Working {
    fn sign_vote(&self, message: &[u8]) -> (PartialSignature, Option<Arc<HashedMessage>>) {
        self.clock.work(self.takes);
        self.signer.sign_vote(message)
    }
}

fn data_dir() -> PathBuf {
    PathBuf::from("/validator")
}

impl Host {
    pub(crate) fn new(scenario: &Scenario, chain: &Chain, validator: usize, seed: u64) -> Self {
        let fault: ClockFault = scenario.clocks.get(&validator).copied().unwrap_or_default();
        let clock = Arc::new(SimClock::new(fault));
        Self {
            validator,
            disk: SimDisk::new(seed, clock.clone(), scenario.sync),
            clock,
            outbox: Arc::default(),
            running: None,
            syncing: None,
            wants_state: false,
            far_looks: 0,
            life: 0,
            planned: [None; PARTS.len()],
            busy: [Moment(0); PARTS.len()],
            has_voted: false,
            lost_journal: false,
            lost: false,
            copy: Vec::new(),
            halted: false,
            signer: chain.authority.signer(validator, 0),
        }
    }

    /// Starts from what is on disk. On `Ok`, the replica has begun.
    pub(crate) fn start(
        &mut self,
        scenario: &Scenario,
        chain: &Chain,
        now: Moment,
    ) -> Result<(), String> {
        self.life += 1;
        self.far_looks = 0;
        self.halted = false;
        self.planned = [None; PARTS.len()];
        self.busy = [now; PARTS.len()];
        self.clock.set(now);
        *lock(&self.outbox) = Outbox::default();
        match self.open_sync(scenario, chain) {
            Ok(None) => {}
            Ok(Some(sync)) => {
                self.syncing = Some(Box::new(sync));
                return Ok(());
            }
            Err(error) => return Err(format!("{error:#}")),
        }
        match self.open(scenario, chain) {
            Ok(running) => {
                self.running = Some(Box::new(running));
                self.busy[Part::Replica as usize] = self.clock.world();
                Ok(())
            }
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// Whether its process runs.
    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some() || self.syncing.is_some()
    }

    /// Its process ends.
    pub(crate) fn stop(&mut self) {
        self.running = None;
        self.syncing = None;
        self.wants_state = false;
    }

    /// It takes no part any more, until it has fetched the state of a recent block.
    pub(crate) fn fetch_state(&mut self) {
        self.stop();
        self.wants_state = true;
    }

    /// Stops, and loses the list of offenders.
    pub(crate) fn forget_offenders(&mut self) {
        self.stop();
        // There is none until the first offence.
        let _ = self.disk.remove(&data_dir().join(OFFENDERS_FILE));
    }

    /// Stops, and loses its journal.
    pub(crate) fn lose_journal(&mut self) {
        self.stop();
        self.lost_journal = true;
        self.disk.replace_files(&journal_folder(&data_dir()), &[]);
    }

    /// Copies its journal.
    pub(crate) fn copy_journal(&mut self) {
        self.copy = self.disk.files(&journal_folder(&data_dir()));
    }

    /// Stops, and has the copy in the place of its journal.
    pub(crate) fn restore_journal(&mut self) {
        self.stop();
        self.lost_journal = true;
        self.disk
            .replace_files(&journal_folder(&data_dir()), &self.copy);
    }

    /// State sync, if it is due or was interrupted.
    fn open_sync(
        &mut self,
        scenario: &Scenario,
        chain: &Chain,
    ) -> anyhow::Result<Option<StateSync>> {
        if scenario.snapshot_interval == 0 {
            return Ok(None);
        }
        let disk = Arc::new(self.disk.clone());
        let path = Path::new("/validator/db");
        let (store, _) = Store::open_on(disk, path, &chain.genesis)?;
        let wanted = std::mem::take(&mut self.wants_state);
        if !wanted && !store.is_syncing()? {
            return Ok(None);
        }
        let (wire, cut) = wire(&self.outbox, &self.clock, &self.disk);
        let authority = chain.authority.clone();
        let mut sync = StateSync::new(SyncParts {
            chain: chain.genesis.chain_id(),
            peers: Directory::of_validator(&chain.committee, &[]),
            own: Some(PeerIndex(self.validator)),
            faults: chain.committee.faults(),
            saver: Box::new(SaveInPlace(store.clone())),
            store,
            clock: self.clock.clone(),
            wire,
            cut,
            verify: Box::new(move |certificate| {
                let work = Work::VerifyCertificates(vec![certificate.clone()]);
                let id = JobId(0);
                let (_, verdict) = authority.work(Job { id, work }, [0; 32]);
                matches!(verdict, Verdict::Verified(valid) if valid == [true])
            }),
            validators: None,
            may_ask: None,
        })?;
        for identity in chain.committee.identities() {
            if chain
                .committee
                .place(identity)
                .map(ValidatorIndex::as_usize)
                != Some(self.validator)
            {
                sync.linked(*identity, true);
            }
        }
        Ok(Some(sync))
    }

    fn open(&mut self, scenario: &Scenario, chain: &Chain) -> anyhow::Result<Running> {
        let disk = Arc::new(self.disk.clone());
        let path = Path::new("/validator/db");
        let (store, tree) = Store::open_on(disk.clone(), path, &chain.genesis)?;
        let folder = journal_folder(&data_dir());
        let (mut journal, mut recovered) =
            Journal::open_on(disk.clone(), &folder, chain.genesis.chain_id())?;
        journal.rewrite_after(REWRITE_BYTES);
        self.lost |= recovered.created && self.has_voted;
        if self.lost {
            self.lost_journal = true;
            begin_after_loss(&mut journal, &mut recovered.records)?;
            self.lost = false;
        }
        let bundles = match chain.genesis.application {
            ApplicationKind::Ledger => None,
            ApplicationKind::OrderOnly => {
                let folder = bundles_folder(&data_dir());
                let id = chain.genesis.chain_id();
                let (mut log, _) = BundleLog::open(disk.clone(), &folder, id, BUNDLE_BYTES)?;
                log.end_segments_at(SEGMENT_BYTES);
                Some(log)
            }
        };
        let honest = scenario.is_honest(self.validator);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.life.to_be_bytes());
        nonce[8..].copy_from_slice(&(scenario.seed ^ self.validator as u64).to_be_bytes());
        let (wire, cut) = wire(&self.outbox, &self.clock, &self.disk);
        let stored = store.tip().height;
        let mut machine = Machine::assemble(
            Settings {
                genesis: chain.genesis.clone(),
                committees: Committees::fixed(chain.committee.clone()),
                own: Own {
                    place: ValidatorIndex(u32::try_from(self.validator)?),
                    secret: Arc::new(Working {
                        signer: self.signer.clone(),
                        clock: self.clock.clone(),
                        takes: scenario.costs_of(self.validator).sign,
                    }),
                },
                identity: crate::stock::identity_key(self.validator),
                consensus: ConsensusConfig {
                    timing: scenario.timing,
                    finalize_linger: scenario.linger,
                    min_block_interval: scenario.block_interval,
                    penalty_lasts: scenario.penalty_lasts,
                    checking: scenario.checking,
                    filtering: true,
                },
                followers: Vec::new(),
                mempool: MempoolLimits {
                    max_transactions: 1_000,
                    max_bytes: 1 << 20,
                    max_per_sender: 200,
                    stranded_lasts: scenario.stranded_lasts,
                },
                retention: scenario
                    .retention
                    .map(|blocks| Retention { blocks, time: None }),
                snapshot_interval: scenario.snapshot_interval,
                upload: Upload::default(),
                data_dir: data_dir(),
            },
            Durables {
                disk,
                store: store.clone(),
                tree,
                journal,
                records: recovered.records,
                silent_before: Epoch(0),
                nonce: honest.then_some(Nonce(nonce)),
                fresh: false,
                predecessor: None,
                inherited: None,
                survivors: None,
                bundles,
            },
            Surroundings {
                clock: self.clock.clone(),
                wire,
                // Messages to send leave at once.
                in_flight: Arc::new(|_, _| 0),
                cut,
                metrics: Arc::new(NodeMetrics::register(&prometheus::Registry::new())?),
            },
        )?;
        let first = std::mem::take(&mut machine.first);
        let told = (machine.live.epoch(), machine.live.finalized_height());
        let least = chain.genesis.epoch_blocks.epoch_of(stored.next());
        assert!(
            told >= (least, stored),
            "clients are told of {told:?} before the first step"
        );
        machine.replica.begin(first)?;
        machine.replica.settle()?;
        Ok(Running {
            epoch: machine.replica.engine().epoch(),
            machine,
            store,
            waiting: Vec::new(),
            checking: None,
            checking_takes: Duration::ZERO,
            bisected: 0,
            asking: Vec::new(),
            submitted: Vec::new(),
            proof: None,
        })
    }

    /// Loses everything that is not on disk.
    pub(crate) fn crash(&mut self) {
        self.stop();
        self.disk.crash();
        lock(&self.outbox).sent.clear();
    }

    /// The height on disk.
    pub(crate) fn height(&self) -> Height {
        self.running
            .as_ref()
            .map_or(Height(0), |running| running.store.tip().height)
    }

    /// When a part has something to do, if it has: at once, or later.
    pub(crate) fn due(&self, part: Part, now: Moment) -> Option<Moment> {
        let running = self.running.as_ref()?;
        let machine = &running.machine;
        let at_once = |has_work: bool| has_work.then_some(now);
        match part {
            Part::Replica => {
                let wake = self.clock.world_at(machine.replica.wake_at());
                Some(if machine.events.is_empty() { wake } else { now })
            }
            Part::Crypto => at_once(running.checking.is_none() && !machine.jobs.is_empty()),
            Part::Validator => match (machine.proposals.is_empty(), running.waiting.is_empty()) {
                (false, _) => Some(now),
                (true, false) => Some(now.after(VALIDATE_AGAIN)),
                (true, true) => None,
            },
            Part::Executor => at_once(machine.executor.has_work()),
            Part::Server => machine.server.due().map(|due| self.clock.world_at(due)),
            Part::Ingest => at_once(machine.ingest.has_work()),
            Part::Keeper => at_once(!machine.kept.is_empty()),
            Part::Payloads => {
                let due = machine.payloads.as_ref()?.due()?;
                Some(self.clock.world_at(due))
            }
        }
    }

    /// Runs a part. Returns what it could not go on for.
    pub(crate) fn run(
        &mut self,
        part: Part,
        authority: &Authority,
        costs: &Costs,
        seed: [u8; 32],
    ) -> anyhow::Result<()> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let Running {
            machine,
            waiting,
            checking,
            checking_takes,
            ..
        } = &mut **running;
        match part {
            Part::Replica => {
                if machine.events.is_empty() {
                    machine.replica.tick()?;
                } else {
                    machine.replica.take_all(machine.events.try_iter())?;
                }
                machine.replica.settle()
            }
            Part::Crypto => {
                let jobs = machine.jobs.try_iter().flatten();
                *checking_takes = costs.checks;
                let (mut verdicts, mut combined) = (Vec::new(), false);
                for job in jobs {
                    let takes = cost_of(&job.work, &mut combined, costs);
                    let (id, verdict) = authority.work(job, seed);
                    let spoiled = matches!(verdict, Verdict::Certified(Err(_)));
                    *checking_takes += takes;
                    *checking_takes += if spoiled {
                        costs.search
                    } else {
                        Duration::ZERO
                    };
                    verdicts.push((id, verdict));
                }
                *checking = Some(verdicts);
                Ok(())
            }
            Part::Validator => {
                use quorate_machine::clock::Clock as _;
                let now = self.clock.now();
                waiting.extend(
                    machine
                        .proposals
                        .try_iter()
                        .map(|request| Waiting::new(request, now)),
                );
                for event in machine.validator.look(waiting)? {
                    // The replica is here as long as its queue is.
                    let _ = machine.to_replica.send(event);
                }
                Ok(())
            }
            Part::Executor => machine.executor.run_waiting(),
            Part::Server => machine.server.serve_waiting(),
            Part::Ingest => machine.ingest.take_waiting(),
            Part::Keeper => machine.keeper.keep(machine.kept.try_iter()),
            Part::Payloads => {
                let payloads = machine.payloads.as_mut();
                payloads.map_or(Ok(()), PayloadKeeper::work)
            }
        }
    }

    /// The crypto pool hands its answers over.
    pub(crate) fn hand_over(&mut self) {
        if let Some(running) = &mut self.running
            && let Some(verdicts) = running.checking.take()
        {
            let _ = running.machine.to_replica.send(Event::Checked(verdicts));
        }
    }
}
