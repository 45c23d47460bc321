//! `quorate localnet --show-registry`, `--storm` and `--exchange`: a local network whose validators change, with load.

use super::output::{field_lines, print_json, print_lines};
use crate::{
    config::load_genesis,
    genesis::GENESIS_FILE,
    localnet::{
        Changes, EpochRow, ExplorerProcess, Network, Settings, Watcher,
        changes::{Say, name_of, names_of},
        chronicle::{Chronicle, median},
        setup,
    },
};
use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use quorate_api::ClientError;
use quorate_explorer::{client::ExplorerClient, shapes::OutcomeChecks};
use quorate_load::{Load, LoadConfig, LoadCounters, LoadPlan, LoadReport};
use quorate_types::{Digest, Identity};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often the view is refreshed.
const VIEW_INTERVAL: Duration = Duration::from_millis(200);

/// How long transfers on their way may take at the end, and after which time an accepted one is lost.
const TRANSFER_LIMIT: Duration = Duration::from_secs(60);

/// How long the explorer may take at the end to check the newest blocks.
const EXPLORER_LIMIT: Duration = Duration::from_secs(10);

/// How long it may take until the registry is told at the start.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How the validators change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Four become seven, then five, and the first four are replaced.
    Show,
    /// At random, from this seed.
    Storm { seed: u64, lasts: Option<Duration> },
    /// As many at once as may be faulty.
    Exchange { lasts: Option<Duration> },
}

/// A network with changing validators, and its load.
pub(super) struct Changing {
    pub(super) how: How,
    pub(super) dir: PathBuf,
    /// Transfers per second.
    pub(super) load: f64,
    pub(super) json: bool,
    /// Whether an explorer runs, which executes every block and so finds out who validates.
    pub(super) explorer: bool,
}

/// The JSON object that `--json` prints.
#[derive(Serialize)]
struct Report {
    /// Whether everything that was planned has happened.
    complete: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    epochs: u64,
    set_changes: usize,
    /// Borders at which as many validators were replaced as may be faulty: all but a quorum.
    replaced_all_but_a_quorum: usize,
    first_height: u64,
    last_height: u64,
    /// Heights that no machine had a block of.
    missing_heights: u64,
    /// Gaps and contradictions between machines.
    contradictions: u64,
    faults: Vec<String>,
    median_interval_ms: Option<f64>,
    /// The longest time from the last block of an epoch to the next block, where validators changed.
    longest_at_change_ms: Option<f64>,
    /// The same where none changed.
    longest_at_other_border_ms: Option<f64>,
    /// Borders that took more than twice the median.
    slow_borders: usize,
    /// The longest time between two blocks of an epoch.
    longest_within_epoch_ms: Option<f64>,
    operations: u64,
    kills: u64,
    tx_offered: u64,
    /// Transfers that a validator accepted.
    tx_submitted: u64,
    /// Of those, the ones that are applied.
    tx_applied: u64,
    tx_failed: u64,
    tx_refused: u64,
    /// Accepted, and not final at the end.
    tx_lost: u64,
    /// Final at the end, and not a minute after they were accepted, or not told of: a machine was stopped meanwhile.
    tx_late: u64,
    /// Neither final nor lost at the end.
    tx_unfinished: u64,
    /// What each machine says of some of these at the end.
    unsettled: Vec<Unsettled>,
    /// How far the explorer has checked the blocks at the end; none without one.
    explorer: Option<OutcomeChecks>,
    /// The validators of the newest epoch, as the explorer shows them at the end.
    explorer_set: Option<ShownSet>,
    rows: Vec<EpochRow>,
}

/// A transfer that was accepted and did not become final in time.
#[derive(Serialize)]
struct Unsettled {
    id: Digest,
    /// Its state at each machine, by the machines' names.
    says: BTreeMap<String, String>,
    /// Whether a machine has it in a block after all, for instance one that was stopped for a while.
    #[serde(skip)]
    came_late: bool,
}

/// Asks all machines what became of these transfers.
async fn unsettled(changes: &Changes, ids: &[Digest]) -> Vec<Unsettled> {
    let mut told = Vec::new();
    for id in ids {
        let mut says = BTreeMap::new();
        let mut came_late = false;
        for place in changes.network.running() {
            let answer = changes
                .network
                .client(place)
                .transaction(id, Duration::ZERO);
            let answer = answer.await;
            came_late |= matches!(&answer, Ok(result) if result.height.is_some());
            let state = match answer {
                Ok(result) => match (result.outcome, result.height, result.waits_for_nonce) {
                    (Some(outcome), Some(height), _) => format!("{outcome} in block {height}"),
                    (_, _, Some(nonce)) => format!("waits for nonce {nonce}"),
                    _ => format!("{:?}", result.state).to_lowercase(),
                },
                Err(ClientError::Refused { code, .. }) => code,
                Err(error) => error.to_string(),
            };
            says.insert(name_of(place), state);
        }
        told.push(Unsettled {
            id: *id,
            says,
            came_late,
        });
    }
    told
}

/// The validators of an epoch by their places, ascending.
#[derive(serde::Serialize)]
struct ShownSet {
    epoch: u64,
    validators: Vec<usize>,
}

/// Whom an explorer shows as the validators of the newest epoch.
async fn shown_set(explorer: &ExplorerProcess, identities: &[Identity]) -> Option<ShownSet> {
    let client = ExplorerClient::new(&explorer.url()).ok()?;
    let set = client.validators().await.ok()?;
    let shown = set.data.iter().filter_map(|one| one.identity.identity());
    let shown: BTreeSet<Identity> = shown.collect();
    let places = identities.iter().enumerate();
    let places = places.filter(|(_, identity)| shown.contains(*identity));
    Some(ShownSet {
        epoch: set.epoch.0,
        validators: places.map(|(place, _)| place).collect(),
    })
}

/// How far an explorer has checked the blocks, once it has checked the one at a height or has had some time for it.
async fn checks(explorer: &ExplorerProcess, height: u64) -> Option<OutcomeChecks> {
    let client = ExplorerClient::new(&explorer.url()).ok()?;
    let deadline = Instant::now() + EXPLORER_LIMIT;
    loop {
        let status = client.status().await;
        let outcomes = status.ok().map(|status| status.outcomes);
        let is_done = (outcomes.as_ref())
            .is_some_and(|one| one.checked_to.0 >= height || one.state == "diverged");
        if is_done || Instant::now() > deadline {
            return outcomes;
        }
        tokio::time::sleep(VIEW_INTERVAL).await;
    }
}

impl Changing {
    pub(super) async fn run(self, settings: &Settings) -> anyhow::Result<()> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let genesis = load_genesis(&self.dir.join(GENESIS_FILE))?;
        let mut network = Network::start(&binary, &self.dir, settings)?;
        network.wait_until_up().await?;
        let machines = (0..network.size())
            .map(|place| {
                let url = network.client(place).url().to_owned();
                Ok((setup::identity_of(&self.dir, place)?, url))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let from = self.first_height(&network).await?;
        let identities: Vec<Identity> = machines.iter().map(|(one, _)| *one).collect();
        let watcher = Watcher::start(&machines, settings.epoch_blocks, from)?;
        let mut ready = watcher.ready();
        let known = ready.wait_for(|ready| !ready.is_empty());
        match tokio::time::timeout(START_LIMIT, known).await {
            Ok(told) => drop(told.context("the registry's reader ended")?),
            Err(_) => bail!("no validator tells the registry\n{}", network.log_tail(0)),
        }
        let explorer = match self.explorer {
            true => ExplorerProcess::start_or_warn(&binary, &self.dir, settings, &network.urls()),
            false => None,
        };
        self.greet(&network, explorer.as_ref());
        let (stop, stopped) = watch::channel(false);
        let load = Load::new(LoadPlan {
            drain: TRANSFER_LIMIT,
            used: Some(ready),
            ..LoadPlan::from(LoadConfig {
                urls: machines.into_iter().map(|(_, url)| url).collect(),
                chain: genesis.chain_id(),
                accounts: setup::load_accounts(&self.dir, settings.accounts)?,
                rate: self.load,
            })
        })?;
        let counters = load.counters();
        let load = tokio::spawn(load.run(stopped));
        let chronicle = watcher.shared();
        let view = tokio::spawn(show_rows(chronicle.clone(), counters));
        let chain = genesis.chain_id();
        let mut changes = Changes::new(network, watcher, &binary, &self.dir, chain, say())?;
        let outcome = self.play(&mut changes).await;
        let _ = stop.send(true);
        let load = load.await.context("the load generator failed")?;
        // What went wrong first is what is told.
        let outcome = match outcome {
            Ok(()) => changes.settle().await,
            Err(error) => Err(error),
        };
        view.abort();
        clear_line();
        let unsettled = unsettled(&changes, &load.unsettled).await;
        let last = changes.watcher().chronicle().tip();
        let checks = match &explorer {
            Some(explorer) => checks(explorer, last.map_or(0, |(height, _)| height)).await,
            None => None,
        };
        let explorer_set = match &explorer {
            Some(explorer) => shown_set(explorer, &identities).await,
            None => None,
        };
        drop(explorer);
        let report = Report {
            explorer: checks,
            explorer_set,
            ..self.report(&changes, &load, unsettled, outcome.as_ref().err())
        };
        for place in changes.network.stop() {
            eprintln!(
                "warning: {} did not stop in time and was killed",
                name_of(place)
            );
        }
        self.print(&report)?;
        outcome?;
        report.verdict()
    }

    /// Plays what was asked for, until Ctrl-C.
    async fn play(&self, changes: &mut Changes) -> anyhow::Result<()> {
        let interrupted = tokio::signal::ctrl_c();
        match self.how {
            How::Show => tokio::select! {
                done = changes.show() => done,
                _ = interrupted => bail!("interrupted before its end"),
            },
            // A storm without an end is ended by Ctrl-C.
            How::Storm { seed, lasts } => tokio::select! {
                done = changes.storm(seed, lasts) => done,
                _ = interrupted => Ok(()),
            },
            How::Exchange { lasts } => tokio::select! {
                done = changes.exchange(lasts) => done,
                _ = interrupted => Ok(()),
            },
        }
    }

    /// The first height to read: the first block, or the next one of a chain that is there already.
    async fn first_height(&self, network: &Network) -> anyhow::Result<u64> {
        let mut height = 0;
        for place in network.running() {
            let status = network.client(place).status().await?;
            height = status.executed_height.0.max(height);
        }
        Ok(match self.how {
            How::Show => 1,
            How::Storm { .. } | How::Exchange { .. } => height + 1,
        })
    }

    fn greet(&self, network: &Network, explorer: Option<&ExplorerProcess>) {
        for place in network.running() {
            eprintln!("{}: {}", name_of(place), network.client(place).url());
        }
        if let Some(explorer) = explorer {
            eprintln!("explorer: {}", explorer.url());
        }
        eprintln!("files and logs: {}", self.dir.display());
        if let How::Storm { seed, .. } = self.how {
            eprintln!("seed of this storm: {seed} (--seed {seed} makes the same choices)");
        }
        eprintln!("Ctrl-C stops.\n");
        eprintln!("{HEADING}");
    }

    fn report(
        &self,
        changes: &Changes,
        load: &LoadReport,
        unsettled: Vec<Unsettled>,
        failure: Option<&anyhow::Error>,
    ) -> Report {
        let chronicle = changes.watcher().chronicle();
        let rows = chronicle.rows();
        let (faults, contradictions) = chronicle.faults();
        let longest =
            |of: &dyn Fn(&EpochRow) -> Option<f64>| rows.iter().filter_map(of).reduce(f64::max);
        let medians = rows.iter().filter_map(|row| row.median_interval_ms);
        let median = median(medians.collect());
        let is_slow = |row: &&EpochRow| {
            let border = row.border_interval_ms.zip(median);
            border.is_some_and(|(border, median)| border > 2.0 * median)
        };
        let load = &load.total;
        // Those that count as lost come first.
        let lost =
            usize::try_from(load.lost).map_or(unsettled.len(), |lost| lost.min(unsettled.len()));
        let late = |some: &[Unsettled]| some.iter().filter(|one| one.came_late).count() as u64;
        let (late, late_at_the_end) = (late(&unsettled[..lost]), late(&unsettled[lost..]));
        Report {
            complete: failure.is_none(),
            // The logs that follow are for people.
            failure: failure.and_then(|error| error.to_string().lines().next().map(str::to_owned)),
            seed: match self.how {
                How::Show | How::Exchange { .. } => None,
                How::Storm { seed, .. } => Some(seed),
            },
            epochs: rows.len() as u64,
            replaced_all_but_a_quorum: rows.iter().filter(|row| row.replaces_most()).count(),
            set_changes: rows.iter().filter(|row| row.changes()).count(),
            first_height: chronicle.from(),
            last_height: chronicle.tip().map_or(0, |(height, _)| height),
            missing_heights: chronicle.missing_heights(),
            contradictions,
            faults: faults.to_vec(),
            median_interval_ms: median,
            slow_borders: rows.iter().filter(is_slow).count(),
            longest_at_change_ms: longest(&|row| row.border_interval_ms.filter(|_| row.changes())),
            longest_at_other_border_ms: longest(&|row| {
                row.border_interval_ms.filter(|_| !row.changes())
            }),
            longest_within_epoch_ms: longest(&|row| row.longest_interval_ms),
            operations: changes.operations,
            kills: changes.kills,
            tx_offered: load.offered,
            tx_submitted: load.submitted,
            tx_applied: load.finalized,
            tx_failed: load.failed,
            tx_refused: load.refused,
            tx_lost: load.lost.saturating_sub(late),
            tx_late: late + late_at_the_end,
            tx_unfinished: load.unfinished.saturating_sub(late_at_the_end),
            unsettled,
            explorer: None,
            explorer_set: None,
            rows,
        }
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        if self.json {
            return print_json(report);
        }
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        let sets: Vec<String> = report
            .rows
            .iter()
            .enumerate()
            .filter(|(index, row)| *index == 0 || row.changes())
            .map(|(_, row)| format!("  from epoch {}: {}", row.epoch, names_of(&row.validators)))
            .collect();
        let mut lines = field_lines(&[
            (
                "epochs",
                format!(
                    "{}, {} changes of the validators, {} of all but a quorum",
                    report.epochs, report.set_changes, report.replaced_all_but_a_quorum
                ),
            ),
            (
                "operations",
                format!(
                    "{} applied; {} processes killed",
                    report.operations, report.kills
                ),
            ),
            (
                "heights",
                format!(
                    "{} to {}: {} missing, {} contradictions between machines",
                    report.first_height,
                    report.last_height,
                    report.missing_heights,
                    report.contradictions
                ),
            ),
            (
                "block interval",
                format!(
                    "median {}; at most {} where validators change, {} at other borders, {} within an epoch; {} borders \
                     took more than twice the median",
                    ms(report.median_interval_ms),
                    ms(report.longest_at_change_ms),
                    ms(report.longest_at_other_border_ms),
                    ms(report.longest_within_epoch_ms),
                    report.slow_borders
                ),
            ),
            (
                "transfers",
                format!(
                    "{} accepted, {} applied in time, {} late, {} failed, {} lost, {} not final; {} refused",
                    report.tx_submitted,
                    report.tx_applied,
                    report.tx_late,
                    report.tx_failed,
                    report.tx_lost,
                    report.tx_unfinished,
                    report.tx_refused
                ),
            ),
        ]);
        if let Some(checks) = &report.explorer {
            lines.extend(field_lines(&[(
                "explorer",
                format!(
                    "outcomes {} to block {}, {} told wrong",
                    checks.state, checks.checked_to, checks.corrected
                ),
            )]));
        }
        lines.push("validators".to_owned());
        lines.extend(sets);
        lines.extend(report.faults.iter().cloned());
        for Unsettled { id, says, .. } in &report.unsettled {
            let each: Vec<String> = says
                .iter()
                .map(|(who, what)| format!("{who}: {what}"))
                .collect();
            lines.push(format!("transfer {id}: {}", each.join("; ")));
        }
        print_lines(&lines)
    }
}

impl Report {
    /// # Errors
    ///
    /// If a block or an accepted transfer is missing, or machines contradict each other or the explorer.
    fn verdict(&self) -> anyhow::Result<()> {
        let problems = [
            (self.missing_heights, "heights have no block"),
            (
                self.contradictions,
                "gaps or contradictions between machines",
            ),
            (self.tx_lost, "accepted transfers are lost"),
            (self.tx_unfinished, "transfers are not final"),
            (self.tx_failed, "transfers are final and failed"),
        ];
        let problems = problems.iter().filter(|(count, _)| *count > 0);
        let mut problems: Vec<String> = problems
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if let Some(checks) = &self.explorer
            && (checks.state != "executed" || checks.corrected.0 > 0)
        {
            problems.push("the explorer and the validators disagree on the state".to_owned());
        }
        if let Some(ShownSet { epoch, validators }) = &self.explorer_set
            && let Some(row) = self.rows.iter().find(|row| row.epoch == *epoch)
            && !row
                .validators
                .iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .eq(validators)
        {
            problems.push(format!(
                "the explorer shows {} as the validators of epoch {epoch}, and they are {}",
                names_of(validators),
                names_of(&row.validators)
            ));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => bail!("{}", problems.join(", ")),
        }
    }
}

const HEADING: &str = "epoch       heights  interval   border  applied  validators";

/// A finished epoch, as a line.
fn line_of(row: &EpochRow) -> String {
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
    let heights = format!("{}-{}", row.first_height, row.last_height);
    let mut line = format!(
        "{:>5} {heights:>13} {:>9} {:>8} {:>8}  {}  {}",
        row.epoch,
        ms(row.median_interval_ms),
        ms(row.border_interval_ms),
        row.applied,
        row.validators.len(),
        names_of(&row.validators)
    );
    for (sign, places) in [("+", &row.joined), ("-", &row.left)] {
        for place in places {
            line.push_str(&format!(" {sign}{}", name_of(*place)));
        }
    }
    line
}

/// What goes on in the epoch that is not over yet, as a line.
fn line_of_now(chronicle: &Chronicle, counters: &LoadCounters) -> String {
    let Some((tip, since)) = chronicle.tip() else {
        return String::new();
    };
    let acting = chronicle.acting();
    let next = match chronicle.coming() {
        None => "next: open".to_owned(),
        Some(coming) if coming == acting => "next: the same".to_owned(),
        Some(coming) => {
            let list = |sign: &str, some: &BTreeSet<usize>, others: &BTreeSet<usize>| {
                let names = some.difference(others);
                let names = names.map(|place| format!(" {sign}{}", name_of(*place)));
                names.collect::<String>()
            };
            format!(
                "next:{}{}",
                list("+", &coming, &acting),
                list("-", &acting, &coming)
            )
        }
    };
    format!(
        "epoch {}  height {tip}  {} act: {}  {next}  last block {:.1} s ago  transfers {} accepted, {} applied, {} lost",
        chronicle.epoch(),
        acting.len(),
        names_of(&acting),
        since.elapsed().as_secs_f64(),
        counters.submitted.load(Relaxed),
        counters.finalized.load(Relaxed),
        counters.lost.load(Relaxed)
    )
}

/// Prints each epoch when it is over. On a terminal, a line below shows what goes on.
async fn show_rows(chronicle: Arc<Mutex<Chronicle>>, counters: Arc<LoadCounters>) {
    let terminal = std::io::stderr().is_terminal();
    let mut next = None;
    loop {
        let (rows, now) = {
            let chronicle = chronicle.lock();
            let current = chronicle.epoch();
            let from = *next.get_or_insert(current);
            next = Some(current);
            let rows: Vec<EpochRow> = (from..current)
                .filter_map(|epoch| chronicle.row(epoch))
                .collect();
            (rows, line_of_now(&chronicle, &counters))
        };
        for row in &rows {
            clear_line();
            eprintln!("{}", line_of(row));
        }
        if terminal {
            eprint!("\r\x1b[2K{now}");
            let _ = std::io::stderr().flush();
        }
        tokio::time::sleep(VIEW_INTERVAL).await;
    }
}

/// On a terminal, clears the line that shows what goes on.
fn clear_line() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}

fn say() -> Say {
    let start = Instant::now();
    Box::new(move |text| {
        clear_line();
        eprintln!("{:>6.1} s  {text}", start.elapsed().as_secs_f64());
    })
}
