//! One real validator among a thousand, of whose votes every one is signed for real: the consensus
//! machine and its cryptography, without the others' computing. Its own views are not among those that
//! are run.
//!
//! The first third of the views is quiet; then a third of the committee forges, all at once or a few
//! more in each view of the second third.

use super::run::{MODES, Onset};
use anyhow::{Context, bail, ensure};
use quorate_consensus::{
    Config, Engine, Input, Job, Moment, Output, Own, Timing, Tip, VoteChecking, Worker,
};
use quorate_crypto::bls::{HashedMessage, PartialSignature, Scheme, VoteSecret, deal};
use quorate_types::{
    Block, ChainId, Committee, Committees, Digest, Epoch, EpochLength, Header, Height, Identity,
    Message, Proposal, Subject, ValidatorIndex, View, Vote, VoteKind,
    genesis::{BlockLimits, Protocol},
    limits::{MAX_BLOCK_BYTES, MAX_BLOCK_TRANSACTIONS},
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;
use serde_json::{Value, json};
use std::{
    io::{IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};

const CHAIN: ChainId = ChainId(Digest([3; 32]));

/// How many views are run in a mode. Eager verification takes seconds for each.
const fn views(checking: VoteChecking) -> u64 {
    match checking {
        VoteChecking::Together => 24,
        VoteChecking::TogetherUnblocked => 9,
        VoteChecking::Eager => 3,
    }
}

/// What one view took at the receiver.
pub(super) struct Passed {
    checking: &'static str,
    onset: Onset,
    view: u64,
    /// How many forge by now.
    forging: usize,
    /// Time of checks and searches.
    check_ms: f64,
    pairing_checks: u64,
    /// Combined checks that failed.
    failed: u64,
    /// How many the receiver has blocked by the view's end.
    blocked: usize,
}

/// The committee's keys.
struct Keys {
    scheme: Scheme,
    secrets: Vec<Arc<VoteSecret>>,
    committee: Committee,
}

/// The receiver and what it is told.
struct Receiver<'a> {
    keys: &'a Keys,
    engine: Engine,
    worker: Worker,
    now: Moment,
    parent: Option<Arc<Block>>,
    spent: Duration,
    seed: u64,
}

impl Receiver<'_> {
    fn new(keys: &Keys, checking: VoteChecking) -> anyhow::Result<Receiver<'_>> {
        let place = keys.committee.size() - 1;
        let config = Config {
            chain: CHAIN,
            protocol: Protocol::Simplex,
            committees: Committees::fixed(keys.committee.clone()),
            own: Some(Own {
                place: ValidatorIndex(u32::try_from(place)?),
                secret: keys.secrets[place].clone(),
            }),
            epoch_length: EpochLength::DEFAULT,
            limits: BlockLimits {
                max_transactions: MAX_BLOCK_TRANSACTIONS,
                max_bytes: MAX_BLOCK_BYTES,
            },
            // Time stands nearly still: nothing here is about time-outs.
            timing: Timing::default(),
            checking,
            sentences: Vec::new(),
            evidence: Vec::new(),
            silent_before: Epoch(0),
            nonce: None,
            fresh: false,
            goes_on: false,
            seen: Vec::new(),
            survivors: None,
            pardons: Vec::new(),
        };
        let now = Moment(0);
        let (engine, first) = Engine::recover(config, Tip::genesis(), Vec::new(), now)?;
        let mut receiver = Receiver {
            keys,
            engine,
            worker: Worker::new(CHAIN, keys.scheme.clone()),
            now,
            parent: None,
            spent: Duration::ZERO,
            seed: 0,
        };
        receiver.carry_out(first)?;
        Ok(receiver)
    }

    fn take(&mut self, input: Input) -> anyhow::Result<()> {
        let output = self.engine.step(self.now, input);
        self.carry_out(output)
    }

    fn carry_out(&mut self, output: Output) -> anyhow::Result<()> {
        if let Some(why) = output.fatal {
            bail!("the receiver stopped: {why}");
        }
        ensure!(output.build.is_none(), "the receiver was to lead");
        self.compute(output.jobs)?;
        for request in output.validate {
            self.take(Input::Validated {
                view: request.view,
                block: request.block.id(),
                valid: true,
            })?;
        }
        if let Some(newest) = output.finalized.last() {
            let height = newest.block.height();
            self.take(Input::Executed { height })?;
        }
        Ok(())
    }

    fn compute(&mut self, jobs: Vec<Job>) -> anyhow::Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.seed += 1;
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&self.seed.to_be_bytes());
        let start = Instant::now();
        let verdicts = self.worker.run(jobs, seed);
        self.spent += start.elapsed();
        for (job, verdict) in verdicts {
            self.take(Input::Checked { job, verdict })?;
        }
        Ok(())
    }

    /// A leader's empty block on the last one.
    fn propose(&mut self, view: View) -> anyhow::Result<Arc<Block>> {
        let (parent, parent_view, height) = match &self.parent {
            Some(parent) => (parent.id(), parent.header().view, parent.height().0 + 1),
            None => (Digest::ZERO, View(0), 1),
        };
        let header = Header {
            chain: CHAIN,
            epoch: Epoch(0),
            view,
            height: Height(height),
            parent,
            parent_view,
            timestamp_ms: height,
            executed_height: Height(0),
            state_root: Digest::ZERO,
            body_root: Header::body_root_of(&[]),
        };
        let block = Arc::new(Block::new(header, Vec::new()).context("an empty block")?);
        self.parent = Some(block.clone());
        let proposal = Proposal {
            epoch: Epoch(0),
            view,
            block: block.clone(),
            parent_certificate: None,
            certificates: Vec::new(),
        };
        self.take(Input::Frame {
            from: self.keys.committee.leader(view),
            messages: vec![Message::Proposal(Box::new(proposal))],
        })?;
        Ok(block)
    }

    /// The others' votes of one kind, in this order; forgers sign something else.
    fn hear(
        &mut self,
        kind: VoteKind,
        block: &Block,
        order: &[usize],
        forges: &dyn Fn(usize) -> bool,
    ) -> anyhow::Result<()> {
        let subject = Subject {
            epoch: Epoch(0),
            view: block.header().view,
            kind,
            payload: block.id(),
        };
        let message = HashedMessage::new(&subject.signed_bytes(&CHAIN));
        let other = HashedMessage::new(b"another message");
        for place in order {
            let said = if forges(*place) { &other } else { &message };
            let signature: PartialSignature = self.keys.secrets[*place].sign(said);
            let signer = ValidatorIndex(u32::try_from(*place)?);
            self.now = self.now.after(Duration::from_micros(1));
            self.take(Input::Frame {
                from: signer,
                messages: vec![Message::Vote(Vote {
                    subject,
                    signer,
                    signature,
                })],
            })?;
        }
        Ok(())
    }
}

fn run_one(
    keys: &Keys,
    (checking, name): (VoteChecking, &'static str),
    onset: Onset,
) -> anyhow::Result<Vec<Passed>> {
    let views = views(checking);
    let size = keys.committee.size();
    // Neither the receiver nor who leads here forges: the experiment is about votes.
    let first = size / 2;
    let faults = (size - 1) / 3;
    ensure!(
        first + faults < size && views < first as u64,
        "a committee of {size} is too small for {views} views with honest leaders"
    );
    let begins = onset.begins(faults, views as f64);
    let mut receiver = Receiver::new(keys, checking)?;
    let mut rng = ChaCha20Rng::from_seed([4; 32]);
    let mut order: Vec<usize> = (0..size - 1).collect();
    let mut passed = Vec::new();
    for view in 1..=views {
        let forging = begins.iter().filter(|at| **at < view as f64).count();
        let forges = |place: usize| (first..first + forging).contains(&place);
        receiver.spent = Duration::ZERO;
        receiver.worker.take_counts();
        let block = receiver.propose(View(view))?;
        for kind in [VoteKind::Notarize, VoteKind::Finalize] {
            order.shuffle(&mut rng);
            receiver.hear(kind, &block, &order, &forges)?;
        }
        ensure!(
            receiver.engine.tip().id == block.id(),
            "view {view} did not become final with {forging} forgers"
        );
        let blocked = receiver.engine.blocked();
        let wronged = blocked.iter().filter(|place| !forges(place.0.as_usize()));
        ensure!(wronged.count() == 0, "an honest validator was blocked");
        let counts = receiver.worker.take_counts();
        passed.push(Passed {
            checking: name,
            onset,
            view,
            forging,
            check_ms: receiver.spent.as_secs_f64() * 1e3,
            pairing_checks: counts.pairing_checks,
            failed: counts.spoiled,
            blocked: blocked.len(),
        });
    }
    Ok(passed)
}

/// Runs it and prints a line for each mode.
pub(super) fn run(validators: u32) -> anyhow::Result<Vec<Passed>> {
    let (keys, secrets) = deal(validators, ChaCha20Rng::from_seed([8; 32]));
    let identities = (0..validators).map(|place| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&place.to_be_bytes());
        Identity(bytes)
    });
    let keys = Keys {
        scheme: Scheme::threshold(&keys)?,
        secrets: secrets.into_iter().map(Arc::new).collect(),
        committee: Committee::new(Epoch(0), identities.collect())?,
    };
    println!(
        "
one real receiver of {validators} validators' votes; check time in ms, pairing checks and \
         failed checks of a view: quiet, the worst, the last"
    );
    let mut all = Vec::new();
    for mode in MODES {
        for onset in Onset::ALL {
            if std::io::stderr().is_terminal() {
                eprint!("{} {} …\r", mode.1, onset.name());
                let _ = std::io::stderr().flush();
            }
            let passed = run_one(&keys, mode, onset)?;
            let worst = passed
                .iter()
                .max_by(|a, b| a.check_ms.total_cmp(&b.check_ms));
            let shown = [passed.first(), worst, passed.last()];
            let shown = shown.into_iter().flatten().map(Passed::words);
            let disturbed = passed.iter().filter(|view| view.failed > 0).count();
            println!(
                "{:<10} {:<11} {}   disturbed {disturbed} of {} views, {} failed checks",
                mode.1,
                onset.name(),
                shown.collect::<Vec<_>>().join(" | "),
                passed.len(),
                passed.iter().map(|view| view.failed).sum::<u64>(),
            );
            all.extend(passed);
        }
    }
    Ok(all)
}

impl Passed {
    fn words(&self) -> String {
        let Self {
            check_ms,
            pairing_checks,
            failed,
            ..
        } = self;
        format!("{check_ms:>9.1} {pairing_checks:>6} {failed:>4}")
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "checking": self.checking,
            "onset": self.onset.name(),
            "view": self.view,
            "forging": self.forging,
            "check_ms": self.check_ms,
            "pairing_checks": self.pairing_checks,
            "failed_checks": self.failed,
            "blocked": self.blocked,
        })
    }

    /// Which curve it belongs to, and its point: the view, and milliseconds of checks.
    pub(super) fn point(&self) -> (String, f64, f64) {
        let curve = format!("{}, {}", self.checking, self.onset.name());
        (curve, self.view as f64, self.check_ms)
    }
}
