//! State sync over links of known bandwidth, beside what these links allow.
//!
//! Each node is a process in a network namespace of its own, with this node's links, server and
//! receiver; the kernel shapes the links. A source serves a state of so many accounts; its chain does
//! not grow meanwhile. All times are from a receiver's first link to its verified, whole state.

mod commits;
mod consensus;
mod network;
mod roles;
mod spread;
mod state;

use self::{
    network::{LinkSpeed, Network},
    roles::{Fetched, Manner, RoleArgs, SharingName},
    spread::Spread,
    state::ACCOUNT_BYTES,
};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What to run. Needs root, for network namespaces.
#[derive(Args, Clone)]
pub struct TransferArgs {
    /// Accounts in the state; one is 48 bytes of a snapshot.
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u64,
    /// Bandwidth of a link in Mbit/s. The slower one of two has 70 of 100 of it.
    #[arg(long, default_value_t = 200)]
    link: u64,
    /// Run each case so many times.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run only these cases.
    #[arg(long, value_enum)]
    case: Vec<Case>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The first port of the validators of the case `consensus`.
    #[arg(long, default_value_t = 28_600)]
    base_port: u16,
    /// Folder for the databases (default: the temporary folder).
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    role: RoleArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// One receiver, one source, beside a plain TCP connection.
    Alone,
    /// A receiver beside a peer that requests the same again and again.
    Noisy,
    /// Two receivers, of which one has a slower link, the second a fifth of its time later.
    Two,
    /// Three sources, one of which sends garbage.
    Garbage,
    /// Three sources, and the only one with a fast link withholds everything.
    Near,
    /// Three sources, one of which has a link of 1 Mbit/s.
    Slow,
    /// The receiver is killed when half of the state is there.
    Kill,
    /// The receiver has an older state, of which one account of a hundred has changed.
    Delta,
    /// Three sources, one of them near, and other ways to spread requests over them: with and without
    /// garbage from the near one.
    Spread,
    /// Commits of blocks beside snapshots that are taken and served; no network.
    Commits,
    /// Four validators on this machine, beside a follower that fetches the state again and again.
    Consensus,
}

/// How long a receiver waits for the snapshots of peers that are not there.
const CHOOSING_S: f64 = 1.0;

/// The figures of one round, by name.
type Figures = BTreeMap<String, f64>;

/// Runs the cases and prints the report, or does what a process of it does.
///
/// # Errors
/// If a process fails, or namespaces are not allowed.
pub fn run(args: &TransferArgs) -> anyhow::Result<()> {
    if let Some(role) = args.role.role {
        return roles::run(&args.role, role, args.accounts);
    }
    let cases = match args.case.is_empty() {
        true => Case::value_variants(),
        false => &args.case,
    };
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .context("making a folder for the databases")?;
    let mut report = BTreeMap::new();
    for case in cases {
        let rig = match case {
            Case::Commits | Case::Consensus => None,
            _ => Some(Rig::new(args, *case, folder.path())?),
        };
        let mut rounds = Vec::new();
        for round in 1..=args.rounds {
            eprintln!("{case:?}: round {round} of {}", args.rounds);
            rounds.push(match &rig {
                Some(rig) => rig.run(*case)?,
                None if *case == Case::Commits => commits::run(args.accounts, folder.path())?,
                None => consensus::run(args.base_port)?,
            });
        }
        report.insert(format!("{case:?}").to_lowercase(), summary(&rounds));
    }
    let state_mb = (args.accounts * ACCOUNT_BYTES) as f64 / 1e6;
    let report = json!({
        "state_mb": state_mb,
        "link_mbit": args.link,
        "rounds": args.rounds,
        "cases": report,
    });
    match args.json {
        true => println!("{report:#}"),
        false => print(&report),
    }
    Ok(())
}

/// Median and worst of each figure.
fn summary(rounds: &[Figures]) -> Value {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in rounds.iter().flatten() {
        all.entry(name).or_default().push(*value);
    }
    let figure = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        json!({
            "median": values[values.len() / 2],
            "least": values[0],
            "most": values[values.len() - 1],
        })
    };
    all.into_iter()
        .map(|(name, values)| (name.to_owned(), figure(values)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn print(report: &Value) {
    println!(
        "state {} MB, links of {} Mbit/s, {} rounds: median (least to most)",
        report["state_mb"], report["link_mbit"], report["rounds"]
    );
    for (case, figures) in report["cases"].as_object().into_iter().flatten() {
        println!("{case}");
        for (name, figure) in figures.as_object().into_iter().flatten() {
            let number = |key: &str| figure[key].as_f64().unwrap_or_default();
            println!(
                "  {name:<44} {:>9.3} ({:.3} to {:.3})",
                number("median"),
                number("least"),
                number("most")
            );
        }
    }
}

/// A network with a state to serve.
struct Rig {
    args: TransferArgs,
    network: Network,
    links: Vec<LinkSpeed>,
    program: PathBuf,
    state: PathBuf,
    folder: PathBuf,
}

/// A process of a rig. Killed when dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    _folder: Option<TempDir>,
}

impl Rig {
    fn new(args: &TransferArgs, case: Case, folder: &Path) -> anyhow::Result<Self> {
        let even = |mbit| LinkSpeed {
            up: mbit,
            down: mbit,
        };
        let (link, slower) = (args.link, args.link * 7 / 10);
        let links = match case {
            Case::Alone | Case::Kill | Case::Delta | Case::Commits | Case::Consensus => {
                vec![even(link), even(link)]
            }
            Case::Noisy | Case::Two => vec![even(link), even(link), even(slower)],
            // The receiver is node 3, and its link is not what limits.
            Case::Garbage => vec![even(link / 3), even(link / 3), even(link / 3), even(link)],
            Case::Near | Case::Spread => {
                vec![even(link), even(link / 10), even(link / 10), even(link)]
            }
            Case::Slow => vec![even(1), even(link / 2), even(link / 2), even(link)],
        };
        let genesis = state::genesis(links.len());
        let state = folder.join(format!("state-{}", links.len()));
        if !state.exists() {
            state::make(&state, &genesis, args.accounts)?;
        }
        Ok(Self {
            args: args.clone(),
            network: Network::new(&links)?,
            links,
            program: std::env::current_exe().context("finding this program")?,
            state,
            folder: folder.to_owned(),
        })
    }

    fn run(&self, case: Case) -> anyhow::Result<Figures> {
        match case {
            Case::Alone => self.alone(),
            Case::Noisy => self.noisy(),
            Case::Two => self.two(),
            Case::Garbage => self.beside_liar(0, Manner::Garbage),
            Case::Near => self.beside_liar(0, Manner::Withholding),
            Case::Slow => self.beside_slow(),
            Case::Spread => self.spread(),
            Case::Kill => self.kill(),
            Case::Delta => self.delta(),
            Case::Commits | Case::Consensus => bail!("it needs no network"),
        }
    }

    fn start(&self, place: usize, role: &str, more: &[&str]) -> anyhow::Result<Process> {
        self.start_on(place, role, None, more)
    }

    fn start_on(
        &self,
        place: usize,
        role: &str,
        folder: Option<TempDir>,
        more: &[&str],
    ) -> anyhow::Result<Process> {
        let mut child = self
            .network
            .at(place, &self.program)
            .args(["transfer", "--role", role])
            .args(["--place", &place.to_string()])
            .args(["--nodes", &self.links.len().to_string()])
            .args(["--accounts", &self.args.accounts.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("starting a process of the benchmark")?;
        let output = child.stdout.take().context("its output")?;
        Ok(Process {
            input: child.stdin.take(),
            child,
            output: BufReader::new(output).lines(),
            _folder: folder,
        })
    }

    fn source(
        &self,
        place: usize,
        manner: Manner,
        sharing: SharingName,
    ) -> anyhow::Result<Process> {
        self.source_of(&self.state, place, manner, sharing)
    }

    fn source_of(
        &self,
        state: &Path,
        place: usize,
        manner: Manner,
        sharing: SharingName,
    ) -> anyhow::Result<Process> {
        let upload = self.upload(place).to_string();
        let known = |link: &LinkSpeed| payload(link.down.min(self.links[place].up)).to_string();
        let ceilings: Vec<String> = self.links.iter().map(known).collect();
        let state = state.to_string_lossy();
        let mut source = self.start(
            place,
            "source",
            &[
                "--database",
                &state,
                "--upload-mbit",
                &upload,
                "--ceilings",
                &ceilings.join(","),
                "--sharing",
                &name_of(sharing),
                "--manner",
                &name_of(manner),
            ],
        )?;
        source.wait_until_ready()?;
        Ok(source)
    }

    /// What a source may send, below what its link carries.
    fn upload(&self, place: usize) -> u64 {
        payload(self.links[place].up)
    }

    fn receiver(&self, place: usize) -> anyhow::Result<Process> {
        self.receiver_by(place, Spread::Adaptive)
    }

    fn receiver_by(&self, place: usize, spread: Spread) -> anyhow::Result<Process> {
        let folder = tempfile::tempdir_in(&self.folder)?;
        let database = folder.path().join("db").to_string_lossy().into_owned();
        let known = |(node, link): (usize, &LinkSpeed)| format!("{node}:{}", link.up);
        let sources = self
            .links
            .iter()
            .enumerate()
            .filter(|(node, _)| *node != place);
        let sources: Vec<String> = sources.map(known).collect();
        let more = [
            "--database",
            &database,
            "--source",
            &sources.join(","),
            "--spread",
            &name_of(spread),
        ];
        self.start_on(place, "receiver", Some(folder), &more)
    }

    fn alone(&self) -> anyhow::Result<Figures> {
        let mut plain = self.start(0, "tcp-source", &[])?;
        plain.wait_until_ready()?;
        let tcp = self.start(1, "tcp-sink", &[])?.fetched()?;
        drop(plain);
        let source = self.source(0, Manner::Honest, SharingName::Need)?;
        let mut receiver = self.receiver(1)?;
        let mut round_trips = Vec::new();
        let (mut first_part, mut whole) = (None, None);
        let fetched = loop {
            let fetched = receiver.next()?;
            if fetched.is_done {
                break fetched;
            }
            if fetched.parts > 0 {
                first_part.get_or_insert(fetched.took_s);
            }
            if fetched.share >= 1.0 {
                whole.get_or_insert(fetched.took_s);
            }
            round_trips.push(fetched.round_trip_ms);
        };
        round_trips.sort_by(f64::total_cmp);
        let round_trip = round_trips.get(round_trips.len() / 2);
        drop(receiver);
        let serving = source.end()?;
        let mb = fetched.bytes as f64 / 1e6;
        Ok(figures([
            ("plain TCP, s", tcp.took_s),
            ("state sync, s", fetched.took_s),
            ("first part, s", first_part.unwrap_or(fetched.took_s)),
            ("last part, s", whole.unwrap_or(fetched.took_s)),
            ("B1: state sync / plain TCP", fetched.took_s / tcp.took_s),
            ("B10: source, cores", serving / fetched.took_s),
            (
                "round trip of small messages meanwhile, ms",
                round_trip.copied().unwrap_or_default(),
            ),
            ("receiver, cores", fetched.cpu_s / fetched.took_s),
            (
                "B11: verified and written, MB per s of a core",
                mb / fetched.thread_cpu_s,
            ),
        ]))
    }

    /// Each sharing beside noise, and one receiver alone for the best.
    fn noisy(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        let source = self.source(0, Manner::Honest, SharingName::Need)?;
        let best = self.receiver(1)?.fetched()?.took_s;
        drop(source);
        all.insert("alone, s".to_owned(), best);
        let mut took = BTreeMap::new();
        for sharing in [SharingName::Static, SharingName::Uniform, SharingName::Need] {
            let _source = self.source(0, Manner::Honest, sharing)?;
            let mut noise = self.start(2, "noise", &[])?;
            noise.wait_until_ready()?;
            // Until it has had the whole once.
            let bits = (self.args.accounts * ACCOUNT_BYTES) as f64 * 8.0;
            thread::sleep(Duration::from_secs_f64(
                1.5 * bits / (self.links[2].down as f64 * 1e6),
            ));
            let fetched = self.receiver(1)?.fetched()?.took_s;
            all.insert(format!("beside noise, {}, s", name_of(sharing)), fetched);
            took.insert(name_of(sharing), fetched);
        }
        let gap = took["static"] - best;
        for sharing in ["uniform", "need"] {
            let closed = (took["static"] - took[sharing]) / gap;
            all.insert(format!("B2: gap closed, {sharing}"), closed);
        }
        Ok(all)
    }

    /// Both orders, by each sharing.
    fn two(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        let mut alone = BTreeMap::new();
        for place in [1, 2] {
            let _source = self.source(0, Manner::Honest, SharingName::Need)?;
            alone.insert(place, self.receiver(place)?.fetched()?.took_s);
        }
        all.insert("slower link alone, s".to_owned(), alone[&2]);
        for sharing in [SharingName::Static, SharingName::Uniform, SharingName::Need] {
            for (first, second, order) in [(1, 2, "fast first"), (2, 1, "slow first")] {
                let source = self.source(0, Manner::Honest, sharing)?;
                let began = Instant::now();
                let first_one = self.receiver(first)?;
                thread::sleep(Duration::from_secs_f64(alone[&2] / 5.0));
                let second_one = self.receiver(second)?;
                let second_began = began.elapsed().as_secs_f64();
                let other = thread::spawn(move || (first_one.fetched(), began.elapsed()));
                let mine = second_one.fetched()?;
                let ended = began.elapsed();
                let (theirs, theirs_ended) = other.join().expect("no panic");
                drop(source);
                let (theirs, end) = (theirs?, ended.max(theirs_ended).as_secs_f64());
                let slow = if first == 2 { &theirs } else { &mine };
                let name = name_of(sharing);
                all.insert(format!("{name}, {order}: slower, s"), slow.took_s);
                all.insert(format!("{name}, {order}: both, s"), end);
                if sharing == SharingName::Need {
                    // The link is full from the second one's beginning until both are done. How
                    // much it carries is what one receiver alone has shown.
                    let work = 2.0 * (alone[&1] - CHOOSING_S);
                    let share = self.links[first].down as f64 / self.args.link as f64;
                    let before = (second_began - CHOOSING_S) * share;
                    let bound = second_began + work - before;
                    all.insert(format!("B3, {order}: both / bound"), end / bound);
                    let ratio = slow.took_s / alone[&2];
                    all.insert(format!("B3, {order}: slower / alone"), ratio);
                }
            }
        }
        Ok(all)
    }

    /// Three sources, one of which is faulty, beside the other two alone.
    fn beside_liar(&self, liar: usize, manner: Manner) -> anyhow::Result<Figures> {
        let honest = || (1..3).map(|place| self.source(place, Manner::Honest, SharingName::Need));
        let two = honest().collect::<anyhow::Result<Vec<_>>>()?;
        let best = self.receiver(3)?.fetched()?;
        drop(two);
        let mut three = honest().collect::<anyhow::Result<Vec<_>>>()?;
        three.push(self.source(liar, manner, SharingName::Need)?);
        let fetched = self.receiver(3)?.fetched()?;
        Ok(figures([
            ("without the faulty source, s", best.took_s),
            ("with it, s", fetched.took_s),
            ("B4, B5: with it / without", fetched.took_s / best.took_s),
            ("sources that were blamed", fetched.blamed as f64),
            (
                "bytes with it / without",
                fetched.bytes as f64 / best.bytes as f64,
            ),
        ]))
    }

    /// Each way to spread requests, with honest sources and with a faulty one that is near.
    fn spread(&self) -> anyhow::Result<Figures> {
        let mut all = Figures::new();
        for (manner, what) in [(Manner::Honest, "honest"), (Manner::Garbage, "garbage")] {
            let manner = |place| if place == 0 { manner } else { Manner::Honest };
            let mut adaptive = None;
            for spread in Spread::value_variants() {
                let sources = (0..3).map(|at| self.source(at, manner(at), SharingName::Need));
                let sources = sources.collect::<anyhow::Result<Vec<_>>>()?;
                let fetched = self.receiver_by(3, *spread)?.fetched()?;
                drop(sources);
                let name = name_of(*spread);
                let of = *adaptive.get_or_insert(fetched.took_s);
                let ratio = fetched.took_s / of;
                let mb = fetched.bytes as f64 / 1e6;
                all.insert(format!("{what}, {name}, s"), fetched.took_s);
                all.insert(format!("{what}, {name}, MB"), mb);
                all.insert(format!("{what}, {name} / adaptive"), ratio);
            }
        }
        Ok(all)
    }

    fn beside_slow(&self) -> anyhow::Result<Figures> {
        let figures_of = self.beside_liar(0, Manner::Honest)?;
        let ratio = figures_of["B4, B5: with it / without"];
        Ok(figures([
            (
                "without the slow source, s",
                figures_of["without the faulty source, s"],
            ),
            ("with it, s", figures_of["with it, s"]),
            ("B12: with it / without", ratio),
            (
                "sources that were blamed",
                figures_of["sources that were blamed"],
            ),
        ]))
    }

    fn kill(&self) -> anyhow::Result<Figures> {
        let _source = self.source(0, Manner::Honest, SharingName::Need)?;
        let whole = self.receiver(1)?.fetched()?;
        let folder = tempfile::tempdir_in(&self.folder)?;
        let database = folder.path().join("db").to_string_lossy().into_owned();
        let mut killed = self.start(1, "receiver", &["--database", &database])?;
        let before = loop {
            let fetched = killed.next()?;
            if fetched.share >= 0.5 {
                break fetched;
            }
        };
        drop(killed);
        let after = self
            .start(1, "receiver", &["--database", &database])?
            .fetched()?;
        let again = (before.bytes + after.bytes) as f64 / whole.bytes as f64 - 1.0;
        Ok(figures([
            ("state when killed", before.share),
            ("B7: fetched again, of the whole", again),
        ]))
    }

    /// One account of a hundred has changed since the receiver's state.
    fn delta(&self) -> anyhow::Result<Figures> {
        let genesis = state::genesis(self.links.len());
        let changed = self.folder.join("changed");
        if !changed.exists() {
            copy(&self.state, &changed)?;
            state::change(&changed, &genesis, self.args.accounts, 100)?;
        }
        let _source = self.source_of(&changed, 0, Manner::Honest, SharingName::Need)?;
        let whole = self.receiver(1)?.fetched()?;
        let folder = tempfile::tempdir_in(&self.folder)?;
        let database = folder.path().join("db");
        copy(&self.state, &database)?;
        let database = database.to_string_lossy().into_owned();
        let fetched = self
            .start(1, "receiver", &["--database", &database])?
            .fetched()?;
        Ok(figures([
            ("whole state, MB", whole.bytes as f64 / 1e6),
            ("changes, MB", fetched.bytes as f64 / 1e6),
            (
                "B8: changes / whole",
                fetched.bytes as f64 / whole.bytes as f64,
            ),
            ("whole state, s", whole.took_s),
            ("changes, s", fetched.took_s),
        ]))
    }
}

/// Copies a database.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A value's name on the command line.
fn name_of(value: impl ValueEnum) -> String {
    let name = value.to_possible_value();
    name.map_or_else(String::new, |name| name.get_name().to_owned())
}

/// What a link carries beside the headers of its packets, in Mbit/s.
fn payload(mbit: u64) -> u64 {
    (mbit * 94 / 100).max(1)
}

fn figures<const N: usize>(figures: [(&str, f64); N]) -> Figures {
    figures
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

impl Process {
    fn line(&mut self) -> anyhow::Result<String> {
        match self.output.next() {
            Some(line) => Ok(line?),
            None => bail!("a process of the benchmark has failed"),
        }
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => bail!("a process of the benchmark says {other:?}"),
        }
    }

    fn next(&mut self) -> anyhow::Result<Fetched> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a receiver says {line:?}"))
    }

    fn fetched(mut self) -> anyhow::Result<Fetched> {
        loop {
            let fetched = self.next()?;
            if fetched.is_done {
                return Ok(fetched);
            }
        }
    }

    /// Ends a source. Returns the processor time that it took.
    fn end(mut self) -> anyhow::Result<f64> {
        drop(self.input.take());
        let line = self.line()?;
        line.parse()
            .with_context(|| format!("a source says {line:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
