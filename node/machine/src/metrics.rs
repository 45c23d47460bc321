//! The node's own metrics. Benchmarks and dashboards read these, never the log.

mod payloads;
mod registry;
mod sync;
mod verdict;

use self::verdict::VerdictMetrics;
pub use self::{payloads::PayloadMetrics, registry::RegistryMetrics, sync::SyncMetrics};
use crate::conduct::Fault;
use crate::mempool::MempoolLimits;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};
use quorate_api::verdict::VerdictJson;
use quorate_consensus::{Counters, DropReason, Dropped, Missing, Offence, WorkCounts};
use quorate_types::{
    Committee, Committees, Header, Identity, Outcome, ValidatorIndex, genesis::Genesis,
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Every metric of the node but those of the links, which register their own.
#[allow(
    missing_docs,
    reason = "each metric has a help text where it is registered"
)]
pub struct NodeMetrics {
    pub(crate) view: IntGauge,
    pub(crate) finalized_height: IntGauge,
    pub(crate) executed_height: IntGauge,
    pub(crate) block_interval: Histogram,
    pub(crate) finality: Histogram,
    pub(crate) journal_sync: Histogram,
    pub journal_bytes: IntGauge,
    pub(crate) views: IntCounter,
    pub(crate) epoch: IntGauge,
    pub database_bytes: IntGauge,
    pub pruned_below: IntGauge,
    pub(crate) transactions: IntCounter,
    pub(crate) blocked: IntGauge,
    pub(crate) probation: IntGauge,
    pub(crate) evidence: IntCounter,
    pub(crate) sentences: IntCounterVec,
    pub mempool_transactions: IntGauge,
    pub mempool_bytes: IntGauge,
    pub start_seconds: Gauge,
    pub clock_ahead: Gauge,
    pub(crate) database_syncs: IntCounter,
    pub(crate) kept_syncs: IntCounter,
    failed: IntCounterVec,
    pub network_height: IntGauge,
    pub behind: IntGauge,
    pub block_timestamp: Gauge,
    pub cpu_seconds: Counter,
    pub resident_bytes: IntGauge,
    pub rpc_connections: IntGauge,
    pub rpc_in_flight_bytes: IntGauge,
    pub rpc_refused: IntCounter,
    pub in_vain: IntCounter,
    pub disk_free_bytes: IntGauge,
    pub disk_bytes: IntGauge,
    mempool_room: IntGauge,
    mempool_room_bytes: IntGauge,
    validators: IntGauge,
    quorum: IntGauge,
    turns: IntCounterVec,
    missed_turns: IntCounterVec,
    info: IntGaugeVec,
    certificates: IntCounter,
    pairing_checks: IntCounter,
    spoiled: IntCounter,
    bisections: IntCounter,
    nullified: IntCounter,
    skipped: IntCounter,
    submitted: IntCounterVec,
    dropped: IntCounterVec,
    pub(crate) faults: IntCounterVec,
    pub(crate) cuts: IntCounterVec,
    dropped_by_engine: IntCounterVec,
    waits: IntCounterVec,
    verdict: VerdictMetrics,
    pub sync: SyncMetrics,
    pub registry: RegistryMetrics,
    pub payloads: PayloadMetrics,
    last: Mutex<Counters>,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why frames are dropped before the replica sees them. Each counter exists from the start, so that
/// its first increase shows.
const FRAME_DROPS: [&str; 18] = [
    "unknown_peer",
    "undecodable",
    "wrong_lane",
    "cut",
    "muted",
    "not_the_leader",
    "too_many",
    "too_late",
    "unasked",
    "unknown_kind",
    "replica_queue_full",
    "request_queue_full",
    "transaction_queue_full",
    "bundle_queue_full",
    "bundle_of_nobody",
    "bundle_does_not_fit",
    "invalid_transaction",
    "refused_transaction",
];

/// The answers to submitted transactions.
const ANSWERS: [&str; 17] = [
    "pending",
    "finalized",
    "busy",
    "mempool_full",
    "too_large",
    "sender_full",
    "stale_nonce",
    "nonce_taken",
    "nonce_too_far",
    "cannot_pay_fee",
    "wrong_chain",
    "bad_signature",
    "not_verified",
    "already_known",
    "fee_too_low",
    "small_order_key",
    "outdated",
];

/// Most turns that are counted as missed between two final blocks.
const MAX_MISSED_TURNS: u64 = 10_000;

/// Bucket bounds in seconds, 100 µs to about 70 s, each a sixth above the one before: fine enough
/// to read quantiles from.
fn buckets() -> Vec<f64> {
    prometheus::exponential_buckets(0.000_1, 7.0 / 6.0, 88).expect("a factor above one")
}

/// What a node has counted and timed, over all parts that it takes in the chain.
#[derive(Default)]
pub struct Lasting {
    kept: Mutex<HashMap<String, Kept>>,
    /// The validators that the places in labels stand for.
    members: Mutex<Vec<Identity>>,
}

/// Counted by the places of leaders.
const TURNS: &str = "quorate_consensus_turns_total";
const MISSED_TURNS: &str = "quorate_consensus_missed_turns_total";

#[derive(Clone)]
enum Kept {
    Counter(IntCounter),
    Labelled(IntCounterVec),
    Seconds(Counter),
    Histogram(Histogram),
}

impl Lasting {
    /// Forgets what belongs to places that are somebody else's now.
    fn place(&self, committee: &Committee) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if *members != committee.identities() {
            *members = committee.identities().to_vec();
            let mut kept = self.kept();
            kept.remove(TURNS);
            kept.remove(MISSED_TURNS);
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metric of this name, made if it is the first time.
    fn take(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Kept, prometheus::Error>,
    ) -> Result<Kept, prometheus::Error> {
        if let Some(kept) = self.kept().get(name) {
            return Ok(kept.clone());
        }
        let made = make()?;
        self.kept().insert(name.to_owned(), made.clone());
        Ok(made)
    }
}

impl NodeMetrics {
    /// Registers all metrics.
    ///
    /// # Errors
    ///
    /// If a metric is registered there already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Self::with(registry, &Lasting::default())
    }

    /// Registers all metrics, of which those that count and time go on from what was counted before.
    ///
    /// # Errors
    ///
    /// If a metric is registered there already.
    pub fn going_on(
        registry: &Registry,
        lasting: &Lasting,
        committee: &Committee,
    ) -> Result<Self, prometheus::Error> {
        lasting.place(committee);
        Self::with(registry, lasting)
    }

    fn with(registry: &Registry, lasting: &Lasting) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let make = || Ok(Kept::Counter(IntCounter::new(name, help)?));
            let Kept::Counter(metric) = lasting.take(name, make)? else {
                return Err(prometheus::Error::AlreadyReg);
            };
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let fraction = |name: &str, help: &str| -> Result<Gauge, prometheus::Error> {
            let metric = Gauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let labelled =
            |name: &str, help: &str, label: &str| -> Result<IntCounterVec, prometheus::Error> {
                let make = || {
                    let made = IntCounterVec::new(Opts::new(name, help), &[label])?;
                    Ok(Kept::Labelled(made))
                };
                let Kept::Labelled(metric) = lasting.take(name, make)? else {
                    return Err(prometheus::Error::AlreadyReg);
                };
                registry.register(Box::new(metric.clone()))?;
                Ok(metric)
            };
        let histogram = |name: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let make = || {
                let options = HistogramOpts::new(name, help).buckets(buckets());
                Ok(Kept::Histogram(Histogram::with_opts(options)?))
            };
            let Kept::Histogram(metric) = lasting.take(name, make)? else {
                return Err(prometheus::Error::AlreadyReg);
            };
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let name = "quorate_process_cpu_seconds_total";
        let help = "Processor time of this process, in the program and in the kernel for it";
        let make = || Ok(Kept::Seconds(Counter::new(name, help)?));
        let Kept::Seconds(cpu_seconds) = lasting.take(name, make)? else {
            return Err(prometheus::Error::AlreadyReg);
        };
        registry.register(Box::new(cpu_seconds.clone()))?;
        let info = IntGaugeVec::new(
            Opts::new(
                "quorate_node_info",
                "1, with the node's version, chain, protocol, vote scheme and place in the committee",
            ),
            &["version", "chain", "protocol", "scheme", "validator"],
        )?;
        registry.register(Box::new(info.clone()))?;
        let metrics = Self {
            view: gauge("quorate_consensus_view", "The current view")?,
            finalized_height: gauge(
                "quorate_consensus_finalized_height",
                "The newest final block's height",
            )?,
            executed_height: gauge(
                "quorate_executor_height",
                "The newest executed and stored block's height",
            )?,
            block_interval: histogram(
                "quorate_consensus_block_interval_seconds",
                "Time between one final block and the next, as this validator learned of them; blocks that become final at once share it equally",
            )?,
            finality: histogram(
                "quorate_consensus_finality_seconds",
                "From this validator's sending of a proposal to its own finalisation of it",
            )?,
            journal_sync: histogram(
                "quorate_journal_sync_seconds",
                "Time of one sync of the vote journal",
            )?,
            views: counter(
                "quorate_consensus_views_total",
                "Views entered, in all epochs",
            )?,
            epoch: gauge("quorate_consensus_epoch", "The current epoch")?,
            database_bytes: gauge(
                "quorate_storage_database_bytes",
                "Bytes of the database's files, its log included",
            )?,
            pruned_below: gauge(
                "quorate_storage_pruned_below_height",
                "The height below which blocks are forgotten",
            )?,
            journal_bytes: gauge("quorate_journal_bytes", "Size of the vote journal")?,
            transactions: counter(
                "quorate_executor_transactions_total",
                "Transactions in final blocks that were executed",
            )?,
            blocked: gauge(
                "quorate_consensus_blocked_validators",
                "Validators blocked by this one",
            )?,
            probation: gauge(
                "quorate_consensus_validators_on_probation",
                "Validators whose votes are verified one by one",
            )?,
            evidence: counter(
                "quorate_consensus_evidence_total",
                "Verified pairs of conflicting votes",
            )?,
            sentences: labelled(
                "quorate_consensus_offences_total",
                "Offences for which a validator was blocked",
                "offence",
            )?,
            mempool_transactions: gauge(
                "quorate_mempool_transactions",
                "Transactions in the mempool",
            )?,
            mempool_bytes: gauge("quorate_mempool_bytes", "Bytes in the mempool")?,
            start_seconds: fraction(
                "quorate_node_start_seconds",
                "When the node started, in seconds since 1970",
            )?,
            clock_ahead: fraction(
                "quorate_clock_ahead_seconds",
                "By how much this clock is ahead of the other validators', NaN while that is not known",
            )?,
            network_height: gauge(
                "quorate_consensus_network_height",
                "The height that f + 1 validators claim to be final, so that one honest one does",
            )?,
            behind: gauge(
                "quorate_consensus_behind",
                "1 while final blocks are missing here and are being fetched, otherwise 0",
            )?,
            block_timestamp: fraction(
                "quorate_executor_block_timestamp_seconds",
                "The newest executed block's timestamp, in seconds since 1970",
            )?,
            cpu_seconds,
            rpc_connections: gauge(
                "quorate_rpc_connections",
                "Open connections to the public HTTP interface",
            )?,
            rpc_in_flight_bytes: gauge(
                "quorate_rpc_in_flight_bytes",
                "Bytes of HTTP requests and answers in memory",
            )?,
            rpc_refused: counter(
                "quorate_rpc_refused_total",
                "Connections and requests over HTTP that were refused, since a client or all had their share",
            )?,
            in_vain: counter(
                "quorate_rpc_in_vain_signatures_total",
                "Signatures of clients that were looked at in vain: bad ones, and those looked at again because of them",
            )?,
            resident_bytes: gauge(
                "quorate_process_resident_memory_bytes",
                "Memory of this process that is in RAM",
            )?,
            disk_free_bytes: gauge(
                "quorate_storage_disk_free_bytes",
                "Bytes that this process may still write to the file system of its data directory",
            )?,
            disk_bytes: gauge(
                "quorate_storage_disk_size_bytes",
                "Size of the file system of the data directory",
            )?,
            mempool_room: gauge(
                "quorate_mempool_max_transactions",
                "How many transactions the mempool has room for",
            )?,
            mempool_room_bytes: gauge(
                "quorate_mempool_max_bytes",
                "How many bytes of transactions the mempool has room for",
            )?,
            validators: gauge(
                "quorate_consensus_validators",
                "Validators in the committee, this one included",
            )?,
            quorum: gauge(
                "quorate_consensus_quorum_validators",
                "Validators that a quorum takes, this one included",
            )?,
            turns: labelled(
                TURNS,
                "Turns as leader, by the place of the leader",
                "leader",
            )?,
            missed_turns: labelled(
                MISSED_TURNS,
                "Turns that brought no block into the final chain or were cut short, by the place of their leader",
                "leader",
            )?,
            info,
            database_syncs: counter(
                "quorate_storage_syncs_total",
                "Batches of executed blocks that were synced to the database",
            )?,
            kept_syncs: counter(
                "quorate_mempool_syncs_total",
                "Syncs that made clients' transactions safe from a crash, before they were told",
            )?,
            failed: labelled(
                "quorate_executor_failed_transactions_total",
                "Transactions in final blocks that were not applied, by what became of them",
                "outcome",
            )?,
            certificates: counter(
                "quorate_crypto_certificates_total",
                "Certificates made from votes or verified",
            )?,
            pairing_checks: counter(
                "quorate_crypto_pairing_checks_total",
                "Pairing equations evaluated for votes and certificates",
            )?,
            spoiled: counter(
                "quorate_crypto_spoiled_checks_total",
                "Checks of a quorum's combined votes that failed",
            )?,
            bisections: counter(
                "quorate_crypto_bisections_total",
                "Batches with an invalid signature that were split in two",
            )?,
            nullified: counter(
                "quorate_consensus_nullify_votes_total",
                "Views in which this validator voted nullify",
            )?,
            skipped: counter(
                "quorate_consensus_skipped_leaders_total",
                "Views given up at once because the leader was silent or blocked",
            )?,
            submitted: labelled(
                "quorate_rpc_submitted_transactions_total",
                "Transactions that clients submitted, by what they were told",
                "answer",
            )?,
            dropped: labelled(
                "quorate_node_frames_dropped_total",
                "Frames from peers that were dropped before the replica saw them",
                "reason",
            )?,
            faults: labelled(
                "quorate_node_peer_faults_total",
                "What peers sent that no validator sends",
                "fault",
            )?,
            cuts: labelled(
                "quorate_node_peers_cut_total",
                "Times that a peer was cut or muted for a while, by what it sent last",
                "fault",
            )?,
            dropped_by_engine: labelled(
                "quorate_consensus_messages_dropped_total",
                "Messages from peers that the consensus machine dropped",
                "reason",
            )?,
            waits: labelled(
                "quorate_consensus_waits_total",
                "Times that a proposal could not be made or voted for yet, by what was missing",
                "missing",
            )?,
            verdict: VerdictMetrics::register(registry)?,
            sync: SyncMetrics::register(registry, &counter)?,
            registry: RegistryMetrics::register(registry)?,
            payloads: PayloadMetrics::register(registry)?,
            last: Mutex::default(),
        };
        for answer in ANSWERS {
            metrics.submitted.with_label_values(&[answer]);
        }
        for outcome in Outcome::ALL.iter().filter(|o| **o != Outcome::Applied) {
            metrics.failed.with_label_values(&[outcome.name()]);
        }
        for reason in FRAME_DROPS {
            metrics.dropped.with_label_values(&[reason]);
        }
        for fault in Fault::ALL {
            metrics.faults.with_label_values(&[fault.name()]);
            metrics.cuts.with_label_values(&[fault.name()]);
        }
        for reason in DropReason::LABELS {
            metrics.dropped_by_engine.with_label_values(&[reason]);
        }
        for missing in Missing::LABELS {
            metrics.waits.with_label_values(&[missing]);
        }
        for offence in Offence::ALL {
            metrics.sentences.with_label_values(&[offence.name()]);
        }
        Ok(metrics)
    }

    /// Sets the metrics that do not change while the node runs.
    pub fn introduce(
        &self,
        genesis: &Genesis,
        committee: &Committee,
        own: Option<ValidatorIndex>,
        room: &MempoolLimits,
    ) {
        self.verdict.introduce(committee, own.is_some());
        if own.is_some() {
            self.validators.set(committee.size() as i64);
            self.quorum.set(committee.quorum() as i64);
            for place in committee.places() {
                let place = place.0.to_string();
                self.turns.with_label_values(&[&place]);
                self.missed_turns.with_label_values(&[&place]);
            }
        }
        self.mempool_room.set(room.max_transactions as i64);
        self.mempool_room_bytes.set(room.max_bytes as i64);
        let own = own.map_or(String::new(), |own| own.0.to_string());
        self.info
            .with_label_values(&[
                VERSION,
                &genesis.name,
                genesis.protocol.name(),
                &genesis.scheme,
                &own,
            ])
            .set(1);
    }

    /// A follower counts the nodes that it follows, and itself; it needs one of them. So the alerts about
    /// missing links hold for it as well.
    pub fn introduce_follower(&self, upstreams: usize) {
        self.validators.set(upstreams as i64 + 1);
        self.quorum.set(2);
    }

    /// Publishes the verdict.
    pub fn judged(&self, verdict: &VerdictJson, own: Option<ValidatorIndex>, usual: Duration) {
        self.verdict.show(verdict, own, usual);
    }

    /// Publishes whether there is no link to a validator because of the clocks.
    pub fn clock_refused(&self, validator: ValidatorIndex, refused: bool) {
        self.verdict.clock_refused(validator, refused);
    }

    /// Observes the mean finality of own proposals since the last call.
    pub fn mean_finality(&self) -> Box<dyn FnMut() -> Option<Duration> + Send> {
        let finality = self.finality.clone();
        let mut last = (0, 0.0);
        Box::new(move || {
            let now = (finality.get_sample_count(), finality.get_sample_sum());
            let (count, sum) = (now.0 - last.0, now.1 - last.1);
            last = now;
            (count > 0).then(|| Duration::from_secs_f64((sum / count as f64).max(0.0)))
        })
    }

    /// Counts the turns from a final block's parent to the block, and which of them their leaders have missed.
    pub(crate) fn count_turns(&self, header: &Header, committees: &Committees) {
        let committee = committees.of(header.epoch);
        let count = |turns: &IntCounterVec, turn: quorate_types::View| {
            let leader = committee.leader(turn).0.to_string();
            turns.with_label_values(&[&leader]).inc();
        };
        if let Some(turn) = committee.turn_cut_short(header.parent_view, header.view) {
            count(&self.missed_turns, turn);
        }
        let last = committee.turn_of(header.view);
        let mut turn = committee.turn_after(header.parent_view);
        for _ in 0..MAX_MISSED_TURNS {
            if turn >= last {
                break;
            }
            count(&self.turns, turn);
            count(&self.missed_turns, turn);
            turn = committee.turn_after(turn);
        }
        if committee.turn_of(header.parent_view) < last {
            count(&self.turns, last);
        }
    }

    /// Counts a final block's transactions, and those that were not applied.
    pub(crate) fn executed(&self, outcomes: &[Outcome]) {
        self.transactions.inc_by(outcomes.len() as u64);
        for outcome in outcomes.iter().filter(|o| **o != Outcome::Applied) {
            self.failed.with_label_values(&[outcome.name()]).inc();
        }
    }

    /// Counts submitted transactions. The answers are those of [`ANSWERS`].
    pub fn submitted(&self, answer: &str, transactions: usize) {
        let counter = self.submitted.with_label_values(&[answer]);
        counter.inc_by(transactions as u64);
    }

    /// Counts a dropped frame. The reasons are those of [`FRAME_DROPS`].
    pub(crate) fn dropped(&self, reason: &'static str) {
        self.dropped.with_label_values(&[reason]).inc();
    }

    /// Frames dropped so far.
    #[cfg(test)]
    pub(crate) fn dropped_so_far(&self, reason: &str) -> u64 {
        self.dropped.with_label_values(&[reason]).get()
    }

    /// Adds the work of a crypto thread.
    pub fn worked(&self, done: WorkCounts) {
        self.certificates.inc_by(done.certificates);
        self.pairing_checks.inc_by(done.pairing_checks);
        self.spoiled.inc_by(done.spoiled);
        self.bisections.inc_by(done.bisections);
    }

    /// Takes over the engine's totals.
    pub(crate) fn stepped(&self, now: Counters) {
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        if now == *last {
            return;
        }
        self.nullified.inc_by(now.nullified - last.nullified);
        self.skipped.inc_by(now.skipped - last.skipped);
        *last = now;
    }

    /// Counts what a step dropped, and what its view waits for.
    pub(crate) fn left_out(&self, dropped: &[Dropped], missing: Option<Missing>) {
        for dropped in dropped {
            let reason = dropped.reason.label();
            self.dropped_by_engine.with_label_values(&[reason]).inc();
        }
        if let Some(missing) = missing {
            self.waits.with_label_values(&[missing.label()]).inc();
        }
    }

    pub(crate) fn observe(histogram: &Histogram, duration: Duration) {
        histogram.observe(duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::VoteKey;

    #[test]
    fn a_turn_is_missed_that_brought_no_block_or_was_cut_short() {
        use quorate_types::{
            ChainId, Digest, Epoch, Height, View,
            genesis::{Protocol, Turns},
        };
        let identities = (0..4).map(|number| Identity([number; 32])).collect();
        let committee = Committee::new(Epoch(0), identities).expect("distinct");
        let counted = |protocol, blocks: &[(u64, u64)]| {
            let metrics = NodeMetrics::register(&Registry::new()).expect("a registry of its own");
            let committees = Committees::fixed(committee.with_turns(Turns::of(protocol)));
            for (parent_view, view) in blocks {
                let header = Header {
                    chain: ChainId(Digest::ZERO),
                    epoch: Epoch(0),
                    view: View(*view),
                    height: Height(1),
                    parent: Digest::ZERO,
                    parent_view: View(*parent_view),
                    timestamp_ms: 0,
                    executed_height: Height(0),
                    state_root: Digest::ZERO,
                    body_root: Digest::ZERO,
                };
                metrics.count_turns(&header, &committees);
            }
            ["0", "1", "2", "3"].map(|place| {
                let of = |turns: &IntCounterVec| turns.with_label_values(&[place]).get();
                (of(&metrics.turns), of(&metrics.missed_turns))
            })
        };
        let simplex = counted(Protocol::Simplex, &[(0, 1), (1, 2), (2, 4), (4, 5)]);
        assert_eq!(simplex, [(1, 0), (2, 0), (1, 0), (1, 1)]);
        let basic = counted(Protocol::HotstuffBasic, &[(0, 1), (1, 7), (7, 10)]);
        assert_eq!(basic, [(1, 0), (1, 0), (1, 1), (1, 0)]);
        let pbft = counted(
            Protocol::Pbft,
            &[(0, 1), (1, 2), (2, 301), (301, 302), (400, 401)],
        );
        assert_eq!(pbft, [(1, 0), (2, 1), (1, 1), (1, 1)]);
    }

    #[test]
    fn what_is_counted_goes_on_over_parts_and_places_are_counted_anew_for_others() {
        let committee = |first: u8| {
            let members = [first, 2, 3, 4].map(|number| quorate_types::Member {
                identity: Identity([number; 32]),
                vote_key: VoteKey([number; 96]),
                address: Default::default(),
                name: Default::default(),
            });
            let set = quorate_types::ValidatorSet::of_members(Default::default(), members.into());
            set.committee().expect("a committee")
        };
        let lasting = Lasting::default();
        let part = |first: u8| {
            let registry = Registry::new();
            let metrics = NodeMetrics::going_on(&registry, &lasting, &committee(first));
            (registry, metrics.expect("a registry of its own"))
        };
        let (_, before) = part(1);
        before.transactions.inc_by(5);
        before.block_interval.observe(1.0);
        before.missed_turns.with_label_values(&["0"]).inc_by(3);
        before.blocked.set(2);
        let (registry, after) = part(1);
        after.transactions.inc();
        let missed = |metrics: &NodeMetrics| metrics.missed_turns.with_label_values(&["0"]).get();
        assert_eq!((after.transactions.get(), missed(&after)), (6, 3));
        assert_eq!(after.block_interval.get_sample_count(), 1);
        // What it says of the present is this part's.
        assert_eq!(after.blocked.get(), 0);
        let shown = registry.gather();
        let name = "quorate_executor_transactions_total";
        let family = shown.iter().find(|family| family.name() == name);
        assert_eq!(
            family.expect("it is shown").get_metric()[0]
                .get_counter()
                .get_value(),
            6.0
        );
        // Each sync counts from zero.
        let mut progress = crate::sync::Progress::new(quorate_consensus::Moment(0));
        progress.bytes = 7;
        after.sync.show(&progress);
        after.sync.show(&progress);
        let (registry, next) = part(1);
        next.sync.show(&progress);
        let shown = registry.gather();
        let name = "quorate_sync_received_bytes_total";
        let family = shown.iter().find(|family| family.name() == name);
        let family = family.expect("it is shown").get_metric();
        assert_eq!(family[0].get_counter().get_value(), 14.0);
        let (_, others) = part(9);
        assert_eq!((others.transactions.get(), missed(&others)), (6, 0));
    }
}
