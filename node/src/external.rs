//! A registry outside the chain: reads it, compares it with the state, and reports what differs.
//!
//! The reading is the `quorate_registry` crate's, what to report is [`quorate_machine::reports`]'; here is the task
//! that joins them, pays for the reports out of the validator's own account, and says what is wrong: in the log, as a
//! metric, and in `GET /v1/registry`.

use crate::{
    config::NodeConfig,
    own_account::{Fate, NotSent, OwnAccount},
};
use anyhow::Context as _;
use parking_lot::RwLock;
use quorate_api::{DifferenceJson, ExternalJson, ExternalSourceJson, LeftOutJson, TooSmallJson};
use quorate_machine::{
    clock::now_ms,
    live::LiveStatus,
    metrics::NodeMetrics,
    reports::{Known, Plan, plan},
};
use quorate_registry::{Reader, SourceConfig, Terms, View};
use quorate_types::{Digest, ExternalRules, Identity, Operation, Outcome, registry::report_slot};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use tracing::{info, warn};

/// How often the state is compared with the last reading.
const COMPARE_INTERVAL: Duration = Duration::from_millis(500);

/// How long nothing is reported after a report that the chain has refused: each costs a fee.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Most differences, and most entries that are left out, that are shown.
const MAX_SHOWN: usize = 100;

/// What a node knows of a registry outside its chain, over all parts that it takes in the chain. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct External {
    /// Made by the first part that reads.
    reader: Arc<Mutex<Option<Reader>>>,
    shown: Arc<RwLock<ExternalJson>>,
}

/// What the task works with.
pub(crate) struct ExternalParts {
    pub(crate) account: OwnAccount,
    pub(crate) live: Arc<LiveStatus>,
    pub(crate) metrics: Arc<NodeMetrics>,
    /// Whether this node votes, and so reports.
    pub(crate) votes: bool,
}

impl External {
    /// What operators see.
    pub(crate) fn shown(&self) -> ExternalJson {
        self.shown.read().clone()
    }

    /// Reads, compares and reports until it is dropped. Ends at once on a chain without such a registry.
    pub(crate) async fn run(self, config: NodeConfig, parts: ExternalParts) {
        let Some(rules) = config.genesis.registry else {
            return;
        };
        let Some(external) = rules.external else {
            return;
        };
        let Some(source) = config.registry.clone() else {
            if parts.votes {
                self.has_no_source(&config, &parts);
            }
            return;
        };
        let terms = Terms {
            chain_name: config.genesis.name.clone(),
            min_stake: rules.min_stake,
        };
        let (view, views) = tokio::sync::watch::channel(View::default());
        let reading = self.clone().read(source, terms, view);
        let reporter = Reporter {
            board: self.clone(),
            rules: external,
            parts,
            config,
            pending: None,
            paused_until: None,
            trouble: None,
        };
        tokio::join!(reading, reporter.run(views));
    }

    fn has_no_source(&self, config: &NodeConfig, parts: &ExternalParts) {
        let trouble = format!(
            "no source is configured, so this validator reports nothing: set `file`, `http` or `evm` under [registry] in {}",
            config.path.display()
        );
        warn!(trouble, "the external registry is not read");
        parts.metrics.registry.source_trouble(true);
        parts.live.set_registry_troubles(vec![note(&trouble)]);
        self.shown.write().trouble = Some(trouble);
    }

    async fn read(
        self,
        source: SourceConfig,
        terms: Terms,
        view: tokio::sync::watch::Sender<View>,
    ) {
        let mut kept = self.reader.lock().await;
        if kept.is_none() {
            match Reader::new(&source, terms) {
                Ok(reader) => *kept = Some(reader),
                Err(error) => {
                    warn!(%error, "the external registry cannot be read");
                    self.shown.write().trouble = Some(error.to_string());
                    return;
                }
            }
        }
        let Some(reader) = kept.as_mut() else { return };
        let mut ticks = tokio::time::interval(source.interval());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let seen = reader.read(now_ms()).await.clone();
            view.send_replace(seen);
        }
    }
}

/// Compares readings with the state, and reports.
struct Reporter {
    board: External,
    rules: ExternalRules,
    parts: ExternalParts,
    config: NodeConfig,
    /// A report that is in the mempool or was.
    pending: Option<Digest>,
    paused_until: Option<Instant>,
    /// Why reports cannot be made.
    trouble: Option<String>,
}

impl Reporter {
    async fn run(mut self, mut views: tokio::sync::watch::Receiver<View>) {
        let mut ticks = tokio::time::interval(COMPARE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = views.changed() => {
                    if changed.is_err() {
                        // The reader could not be made, which is shown.
                        return std::future::pending().await;
                    }
                }
            }
            let view = views.borrow_and_update().clone();
            if view.sources.is_empty() {
                continue;
            }
            // The database is read on this thread: some rows, all in its cache.
            match self.compare(&view) {
                Ok(plan) => self.show(&view, &plan),
                Err(error) => {
                    warn!(%error, "the external registry cannot be compared with the state")
                }
            }
        }
    }

    fn own(&self) -> Identity {
        self.config.identity.identity()
    }

    fn compare(&mut self, view: &View) -> anyhow::Result<Plan> {
        let Some(reading) = &view.reading else {
            return Ok(Plan::default());
        };
        let length = self.config.genesis.epoch_blocks;
        let epoch = length.epoch_of(self.parts.account.store.tip().height.next());
        let acting = self.parts.live.committees().set(epoch);
        let acting = acting.context("the epoch's validators are not known")?;
        let mut reports = Vec::with_capacity(acting.members().len());
        for place in 0..acting.members().len() {
            let slot = self.parts.account.store.account(&report_slot(place))?;
            reports.push(slot.and_then(|slot| slot.report));
        }
        let known = Known {
            epoch,
            rules: self.rules,
            acting: &acting,
            bonds: &self.parts.account.store.bonds()?,
            reports: &reports,
        };
        let plan = plan(&self.own(), &reading.entries, &known);
        self.look_at_pending()?;
        let is_paused = self
            .paused_until
            .is_some_and(|until| Instant::now() < until);
        // What is not confirmed any more is kept, but is no ground for a report.
        let is_confirmed = view.trouble.is_none();
        let report = plan.report.as_ref();
        match report.filter(|_| self.parts.votes && is_confirmed) {
            _ if is_paused => {}
            Some(report) if self.pending.is_none() => self.trouble = self.submit(report)?,
            Some(_) => {}
            None => self.trouble = None,
        }
        Ok(plan)
    }

    /// Learns what became of the last report, once it is no longer in the mempool.
    fn look_at_pending(&mut self) -> anyhow::Result<()> {
        let Some(id) = self.pending else {
            return Ok(());
        };
        let fate = self.parts.account.fate(&id)?;
        if !matches!(fate, Fate::Waits) {
            self.pending = None;
        }
        match fate {
            Fate::Final(_, Some(Outcome::Failed(failure))) => {
                let name = Outcome::Failed(failure).name();
                let trouble = format!("the chain has refused a report: {name}");
                warn!(%id, outcome = name, "a report was refused");
                self.trouble = Some(trouble);
                self.paused_until = Some(Instant::now() + REFUSED_PAUSE);
            }
            Fate::Final(..) => self.trouble = None,
            // What was dropped is made again.
            Fate::Waits | Fate::Dropped => {}
        }
        Ok(())
    }

    /// Puts a report into the mempool. Returns why it cannot.
    fn submit(&mut self, report: &Operation) -> anyhow::Result<Option<String>> {
        let id = match self.parts.account.send(&self.config, report)? {
            Ok(id) => id,
            // Without the balance, which changes with each block that the validator leads: the same trouble is told once.
            Err(NotSent::CannotPay(fee)) => {
                let own = self.own();
                return Ok(Some(format!(
                    "this validator's account {own} cannot pay {fee} for a report: pay it some \
                     (`quorate tx transfer --to {own}`)"
                )));
            }
            Err(NotSent::Refused(refusal)) => {
                return Ok(Some(format!("the mempool refuses a report: {refusal}")));
            }
        };
        if let Operation::Report { validator, entry } = report {
            let stake = entry.as_ref().map(|entry| entry.stake);
            info!(%validator, stake, %id, "reports what the external registry says");
        }
        self.parts.metrics.registry.reports.inc();
        self.pending = Some(id);
        Ok(None)
    }

    fn show(&self, view: &View, plan: &Plan) {
        let trouble = view.trouble.clone();
        let now = ExternalJson {
            trouble: trouble.clone(),
            report_trouble: self.trouble.clone(),
            read_at_ms: view.read_at_ms,
            block: view.block,
            entries: view.reading.as_ref().map(|reading| reading.entries.len()),
            too_small: (view.reading.iter())
                .flat_map(|reading| &reading.too_small)
                .take(MAX_SHOWN)
                .map(|(validator, stake)| TooSmallJson {
                    validator: *validator,
                    stake: *stake,
                })
                .collect(),
            sources: (view.sources.iter())
                .map(|source| ExternalSourceJson {
                    name: source.name.clone(),
                    block: source.block,
                    last_good_ms: source.last_good_ms,
                    entries: source.entries,
                    trouble: source.trouble.clone(),
                })
                .collect(),
            left_out: (view.reading.iter())
                .flat_map(|reading| reading.left_out.iter())
                .take(MAX_SHOWN)
                .map(|(validator, flaw)| LeftOutJson {
                    validator: *validator,
                    why: flaw.to_string(),
                })
                .collect(),
            differences: (plan.differences.iter().take(MAX_SHOWN))
                .map(|one| DifferenceJson {
                    validator: one.validator,
                    kind: one.kind.name().to_owned(),
                    reporters: one.reporters,
                })
                .collect(),
        };
        let metrics = &self.parts.metrics.registry;
        metrics.source_trouble(now.trouble.is_some());
        metrics.report_trouble(now.report_trouble.is_some());
        let troubles = now.trouble.iter().chain(&now.report_trouble);
        let notes = troubles.map(|trouble| note(trouble)).collect();
        self.parts.live.set_registry_troubles(notes);
        metrics.differences.set(plan.differences.len() as i64);
        let read_at = now.read_at_ms.unwrap_or(0) as f64 / 1_000.0;
        metrics.read_seconds.set(read_at);
        let before = std::mem::replace(&mut *self.board.shown.write(), now.clone());
        tell("the external registry", &before.trouble, &now.trouble);
        tell("reports", &before.report_trouble, &now.report_trouble);
        for (old, new) in before.sources.iter().zip(&now.sources) {
            if now.sources.len() > 1 {
                tell(&new.name, &old.trouble, &new.trouble);
            }
        }
    }
}

/// What the status says of a trouble.
fn note(trouble: &str) -> String {
    format!("the external registry: {trouble} (`quorate registry list` shows all of it)")
}

/// Logs a trouble that is new, another or over.
fn tell(what: &str, before: &Option<String>, now: &Option<String>) {
    match (before, now) {
        (before, Some(trouble)) if before.as_ref() != Some(trouble) => {
            warn!(what, trouble, "trouble with the external registry");
        }
        (Some(_), None) => info!(what, "in order again"),
        _ => {}
    }
}
