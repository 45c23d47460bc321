//! What is simulated: who takes part, how the links, disks and clocks are, and what goes wrong
//! when.

use crate::{
    adversary::Attack, clock::ClockFault, crypto::Cryptography, disk::Mishap, network::Links,
};
use quorate_consensus::{Timing, VoteChecking};
use quorate_crypto::bls::SchemeKind;
use quorate_types::{
    EpochLength,
    genesis::{ApplicationKind, Protocol, Turns},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Something that goes wrong, or right again, at a point in virtual time. Validators are named by
/// their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// These validators crash.
    Crash(Vec<usize>),
    /// These validators start again from their disks.
    Restart(Vec<usize>),
    /// A mishap strikes at so many disk operations from now; a crash restarts after the given time.
    Disk {
        /// Whose disk.
        validator: usize,
        /// Operations from now; 1 is the next.
        after: u64,
        /// What happens.
        mishap: Mishap,
        /// How long a validator that stopped by it stays away.
        away: Duration,
    },
    /// A validator's disk has no more room.
    Full(usize),
    /// It has again, and the validator starts if it had stopped.
    Room(usize),
    /// A validator stops, and its database is gone; its journal is not.
    LoseDatabase(usize),
    /// A validator stops, and its journal is gone.
    LoseJournal(usize),
    /// A validator's journal is copied.
    CopyJournal(usize),
    /// A validator stops, and the copy is put in its journal's place.
    RestoreJournal(usize),
    /// A validator stops, and its list of offenders is gone.
    Forget(usize),
    /// Validators hear only those of their own group; who is in none hears nobody.
    Partition(Vec<Vec<usize>>),
    /// Frames of the first do not reach the second any more.
    Cut(usize, usize),
    /// These two have no link any more, and know it. A crash is noticed as well; a partition or a cut
    /// is not, since nothing tells a broken line from a silent peer.
    Unlink(usize, usize),
    /// These two have a link again.
    Link(usize, usize),
    /// All links work, nothing is lost, hosts that are down start, and no mishap is planned any
    /// more.
    Heal,
    /// All hear all again; nothing else changes.
    Join,
}

/// How long the validators' computing takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Signing a vote.
    pub sign: Duration,
    /// Whatever the crypto pool does at once.
    pub checks: Duration,
    /// On top of it, a combined check of a quorum, good or bad.
    pub certify: Duration,
    /// Each further one that shares its pairing check.
    pub certify_beside: Duration,
    /// Finding the invalid votes of a check.
    pub search: Duration,
    /// A certificate.
    pub certificate: Duration,
    /// Each further one that is verified with it.
    pub certificate_beside: Duration,
    /// Each vote that is verified alone.
    pub vote: Duration,
    /// Checking a proposed block, serving, and taking transactions.
    pub block: Duration,
    /// Executing what is final, however much it is.
    pub execute: Duration,
}

impl Costs {
    /// This many times as much.
    fn times(&self, times: u32) -> Self {
        Self {
            sign: self.sign * times,
            checks: self.checks * times,
            certify: self.certify * times,
            certify_beside: self.certify_beside * times,
            search: self.search * times,
            certificate: self.certificate * times,
            certificate_beside: self.certificate_beside * times,
            vote: self.vote * times,
            block: self.block * times,
            execute: self.execute * times,
        }
    }
}

impl Default for Costs {
    /// Rough ones.
    fn default() -> Self {
        Self {
            sign: Duration::ZERO,
            checks: Duration::from_micros(900),
            certify: Duration::ZERO,
            certify_beside: Duration::ZERO,
            search: Duration::ZERO,
            certificate: Duration::ZERO,
            certificate_beside: Duration::ZERO,
            vote: Duration::ZERO,
            block: Duration::from_micros(200),
            execute: Duration::from_micros(200),
        }
    }
}

/// The scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The source of all chance.
    pub seed: u64,
    /// How many validators.
    pub validators: usize,
    /// How long it lasts.
    pub duration: Duration,
    /// The consensus protocol.
    pub protocol: Protocol,
    /// What the chain's transactions are.
    pub application: ApplicationKind,
    /// Turns as on a chain with a registry whose epochs have so many blocks; otherwise as without one.
    pub turns_fit: Option<EpochLength>,
    /// The vote scheme.
    pub scheme: SchemeKind,
    /// Whether the scheme is BLS or the cheap one.
    pub cryptography: Cryptography,
    /// How many blocks an epoch has.
    pub epoch_blocks: u64,
    /// How long the validators wait for what.
    pub timing: Timing,
    /// The least time between blocks.
    pub block_interval: Duration,
    /// How many blocks the validators keep.
    pub retention: Option<u64>,
    /// How the links are.
    pub links: Links,
    /// How long a sync takes.
    pub sync: Duration,
    /// How long computing takes. Of it, scenario files tell of execution only.
    pub costs: Costs,
    /// Validators whose processors take so many times as long. Not written down either.
    pub slow_processors: BTreeMap<usize, u32>,
    /// How votes are checked. Not written down either.
    pub checking: VoteChecking,
    /// After how many blocks each validator keeps a snapshot; 0 for never, and then nobody fetches the
    /// state.
    pub snapshot_interval: u64,
    /// How long a finalize vote waits for company.
    pub linger: Duration,
    /// How long the signer of an invalid vote stays blocked.
    pub penalty_lasts: Duration,
    /// Whose clocks are wrong.
    pub clocks: BTreeMap<usize, ClockFault>,
    /// The misbehaving validators, and how each misbehaves.
    pub byzantine: BTreeMap<usize, BTreeSet<Attack>>,
    /// Faults, by when they happen.
    pub faults: Vec<(Duration, Fault)>,
    /// How often, of 100 times that a validator enters an epoch, it or (every fifth time) all of
    /// them crash within some milliseconds.
    pub border_crashes_percent: u32,
    /// Transactions that clients submit in a second; on a chain that only orders, payloads.
    pub transfers_per_second: u32,
    /// How long a transaction may wait for a nonce before it. Not written down in scenario files.
    pub stranded_lasts: Duration,
    /// Whether the validators must go on within [`Scenario::patience`] after the last
    /// [`Fault::Heal`].
    pub must_recover: bool,
    /// The run is over when all honest validators are at this height, and it is a violation if they
    /// are not by the end.
    pub goal: Option<u64>,
    /// From when on the time to the next final block is measured, if not from healing.
    pub mark: Option<Duration>,
}

/// How long fetching a small state may take: the answers of peers that say nothing are waited for.
const STATE_SYNC_LASTS: Duration = Duration::from_secs(15);

/// Virtual time goes by in microseconds; so do the times of scenario files.
pub(crate) fn whole_micros(duration: Duration) -> Duration {
    Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// The timers of a network whose messages take at most this long.
pub fn timing_for(bound: Duration) -> Timing {
    let unit = bound.max(Duration::from_millis(5));
    Timing {
        leader_timeout: unit * 2,
        view_timeout: unit * 4,
        max_timeout: unit * 64,
        resend_interval: unit,
        fetch_timeout: whole_micros(unit * 5 / 2),
        idle_interval: Duration::ZERO,
    }
}

impl Scenario {
    /// How many views in a row each validator leads.
    pub fn turns(&self) -> Turns {
        Turns {
            protocol: self.protocol,
            epoch_blocks: self.turns_fit,
        }
    }

    /// A quiet network: 1 to 5 ms, no faults. The scheme goes with the seed, so that every test with
    /// several seeds runs for both.
    pub fn new(seed: u64, validators: usize, duration: Duration) -> Self {
        Self {
            seed,
            validators,
            duration,
            protocol: Protocol::Simplex,
            application: ApplicationKind::Ledger,
            turns_fit: None,
            scheme: SchemeKind::ALL[(seed % 2) as usize],
            cryptography: Cryptography::Cheap,
            epoch_blocks: 1_000_000,
            timing: Timing {
                leader_timeout: Duration::from_millis(100),
                view_timeout: Duration::from_millis(200),
                max_timeout: Duration::from_secs(1),
                resend_interval: Duration::from_millis(100),
                fetch_timeout: Duration::from_millis(50),
                idle_interval: Duration::ZERO,
            },
            block_interval: Duration::ZERO,
            retention: None,
            links: Links::good(),
            sync: Duration::from_micros(800),
            costs: Costs::default(),
            slow_processors: BTreeMap::new(),
            checking: VoteChecking::default(),
            snapshot_interval: 0,
            linger: Duration::from_millis(2),
            penalty_lasts: Duration::from_secs(3_600),
            clocks: BTreeMap::new(),
            byzantine: BTreeMap::new(),
            faults: Vec::new(),
            border_crashes_percent: 0,
            transfers_per_second: 50,
            stranded_lasts: Duration::from_secs(2),
            must_recover: false,
            goal: None,
            mark: None,
        }
    }

    /// Crashes, restarts and partitions at random in the first two thirds of the time; then all is
    /// healed.
    pub fn with_random_faults(mut self) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0xfa17);
        let end = self.duration * 2 / 3;
        let mut at = Duration::from_millis(200);
        while at < end {
            let victim = rng.random_range(0..self.validators);
            let fault = match rng.random_range(0..6) {
                0 | 1 => Fault::Crash(vec![victim]),
                2 => Fault::Restart(self.all()),
                3 => Fault::Crash(self.all()),
                4 => {
                    let (one, other) = (0..self.validators).partition(|_| rng.random_bool(0.5));
                    Fault::Partition(vec![one, other])
                }
                _ => Fault::Join,
            };
            if fault == Fault::Crash(self.all()) {
                let soon = at + Duration::from_millis(rng.random_range(1..100));
                self.faults.push((soon, Fault::Restart(self.all())));
            }
            self.faults.push((at, fault));
            at += Duration::from_millis(rng.random_range(20..600));
        }
        self.faults.push((end, Fault::Heal));
        self.faults.sort_by_key(|(at, _)| *at);
        self.must_recover = true;
        self
    }

    /// When all was healed, if it was.
    pub fn healed_at(&self) -> Option<Duration> {
        let heals = self.faults.iter().filter(|(_, f)| *f == Fault::Heal);
        heals.map(|(at, _)| *at).max()
    }

    /// How long after healing every honest validator may take to finalise new blocks, with
    /// Byzantine ones about: some views with their time-outs, and what catching up takes.
    pub fn patience(&self) -> Duration {
        let state_sync = match self.snapshot_interval {
            0 => Duration::ZERO,
            _ => STATE_SYNC_LASTS,
        };
        let f = u32::try_from((self.validators - 1) / 3).expect("few validators");
        let blocks = self.timing.max_timeout * (2 * f + 4) + self.timing.idle_interval * 6;
        blocks + self.links.bound() * 20 + Duration::from_secs(2) + state_sync
    }

    /// Whether no certified block of an honest leader may be abandoned: with chained HotStuff, while all that is wrong
    /// is that one of at least seven is dead, or silent, from the beginning.
    pub(crate) fn abandons_nothing(&self) -> bool {
        let silent = BTreeSet::from([Attack::Silent]);
        let mut faulty: BTreeSet<usize> = self.byzantine.keys().copied().collect();
        let dead = self.faults.iter().all(|(at, fault)| match fault {
            Fault::Crash(victims) if at.is_zero() => {
                faulty.extend(victims);
                true
            }
            _ => false,
        });
        self.protocol == Protocol::HotstuffChained
            && self.validators >= 7
            && faulty.len() <= 1
            && dead
            && self.byzantine.values().all(|attacks| *attacks == silent)
            && self.border_crashes_percent == 0
            && self.clocks.is_empty()
            && self.slow_processors.is_empty()
            && self.links.are_reliable()
            && self.timing.leader_timeout >= self.links.bound() * 2
    }

    /// Validators that behave, whatever happens to their messages.
    pub fn is_honest(&self, validator: usize) -> bool {
        !self.byzantine.contains_key(&validator)
    }

    /// What computing takes for a validator.
    pub fn costs_of(&self, validator: usize) -> Costs {
        let times = self.slow_processors.get(&validator).copied();
        self.costs.times(times.unwrap_or(1))
    }

    /// Everybody.
    pub fn all(&self) -> Vec<usize> {
        (0..self.validators).collect()
    }
}
