//! A network of namespaces with a state to serve, and the processes that run in it.

use super::{
    Case, TransferArgs,
    distance::Distances,
    network::{LinkSpeed, Network},
    progress::Progress,
    report::Figures,
    roles::{Fetched, Manner, SharingName},
    spread::Spread,
    state,
};
use anyhow::{Context, bail};
use clap::ValueEnum;
use std::{
    fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::Arc,
};
use tempfile::TempDir;

/// The round trip to sources that are far away, in ms.
const FAR_MS: u64 = 100;

/// A near source has one of so many parts of a far one's round trip.
const NEAR_PART: u64 = 10;

/// A network with a state to serve.
pub(super) struct Rig {
    pub(super) args: TransferArgs,
    pub(super) links: Vec<LinkSpeed>,
    pub(super) state: PathBuf,
    pub(super) folder: PathBuf,
    program: PathBuf,
    progress: Arc<Progress>,
    distances: Distances,
    /// What delays, if anything is far away. It ends before the network.
    delays: Vec<Process>,
    network: Network,
}

/// A process of a rig. Killed when dropped.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    progress: Arc<Progress>,
    /// How much of its transfer the progress knows of.
    told: f64,
    _folder: Option<TempDir>,
}

impl Rig {
    pub(super) fn new(
        args: &TransferArgs,
        case: Case,
        folder: &Path,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let links = links(case, args.link, args.rtt);
        let genesis = state::genesis(links.len());
        let state = folder.join(format!("state-{}", links.len()));
        if !state.exists() {
            state::make(&state, &genesis, args.accounts, progress)?;
        }
        let mut rig = Self {
            args: args.clone(),
            network: Network::new(&links)?,
            distances: Distances::of(&links),
            delays: Vec::new(),
            links,
            program: std::env::current_exe().context("finding this program")?,
            progress: progress.clone(),
            state,
            folder: folder.to_owned(),
        };
        if rig.distances.any() {
            // Node 0 dials nobody.
            for place in 1..rig.links.len() {
                let mut delay = rig.start(place, "delay", &[])?;
                delay.wait_until_ready()?;
                rig.delays.push(delay);
            }
        }
        Ok(rig)
    }

    pub(super) fn run(&self, case: Case) -> anyhow::Result<Figures> {
        match case {
            Case::Alone => self.alone(),
            Case::Far => self.far(),
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

    pub(super) fn start(&self, place: usize, role: &str, more: &[&str]) -> anyhow::Result<Process> {
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
            .args(["--link", &self.args.link.to_string()])
            .args(["--distances", &self.distances.text()])
            .args(more)
            // It is killed, and its temporary files go with those of the benchmark.
            .env("TMPDIR", &self.folder)
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
            progress: self.progress.clone(),
            told: 0.0,
            _folder: folder,
        })
    }

    pub(super) fn source(
        &self,
        place: usize,
        manner: Manner,
        sharing: SharingName,
    ) -> anyhow::Result<Process> {
        self.source_of(&self.state, place, manner, sharing)
    }

    pub(super) fn source_of(
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

    pub(super) fn receiver(&self, place: usize) -> anyhow::Result<Process> {
        self.receiver_by(place, Spread::Adaptive)
    }

    pub(super) fn receiver_by(&self, place: usize, spread: Spread) -> anyhow::Result<Process> {
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
}

/// The nodes of a case: their bandwidth, and how far away they are. The last one receives.
fn links(case: Case, link: u64, rtt: Option<u64>) -> Vec<LinkSpeed> {
    let default_ms = match case {
        Case::Far | Case::Near | Case::Spread => FAR_MS,
        _ => 0,
    };
    let round_trip_ms = rtt.unwrap_or(default_ms);
    let source = |mbit| LinkSpeed {
        up: mbit,
        down: mbit,
        round_trip_ms,
    };
    let near = |mbit| LinkSpeed {
        round_trip_ms: round_trip_ms / NEAR_PART,
        ..source(mbit)
    };
    let receiver = |mbit| LinkSpeed {
        round_trip_ms: 0,
        ..source(mbit)
    };
    match case {
        Case::Alone | Case::Kill | Case::Delta | Case::Commits | Case::Consensus => {
            vec![source(link), receiver(link)]
        }
        // Two receivers, or a receiver and noise.
        Case::Noisy | Case::Two => vec![source(link), receiver(link), receiver(link * 7 / 10)],
        // In those below, the receiver's link is not what limits, but for the far sources.
        Case::Far => vec![source(link), source(link), source(link), receiver(link)],
        Case::Garbage => {
            let third = source(link / 3);
            vec![third, third, third, receiver(link)]
        }
        Case::Near | Case::Spread => {
            let far = source(link / 10);
            vec![near(link), far, far, receiver(link)]
        }
        Case::Slow => {
            let half = source(link / 2);
            vec![source(1), half, half, receiver(link)]
        }
    }
}

/// Copies a database.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
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
pub(super) fn name_of(value: impl ValueEnum) -> String {
    let name = value.to_possible_value();
    name.map_or_else(String::new, |name| name.get_name().to_owned())
}

/// What a link carries beside the headers of its packets, in Mbit/s.
fn payload(mbit: u64) -> u64 {
    (mbit * 94 / 100).max(1)
}

impl Process {
    fn line(&mut self) -> anyhow::Result<String> {
        match self.output.next() {
            Some(line) => Ok(line?),
            None => bail!("a process of the benchmark has failed"),
        }
    }

    pub(super) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => bail!("a process of the benchmark says {other:?}"),
        }
    }

    pub(super) fn next(&mut self) -> anyhow::Result<Fetched> {
        let line = self.line()?;
        let fetched: Fetched =
            serde_json::from_str(&line).with_context(|| format!("a receiver says {line:?}"))?;
        let share = if fetched.is_done { 1.0 } else { fetched.share };
        self.progress.add(share - self.told);
        self.told = share;
        Ok(fetched)
    }

    pub(super) fn fetched(mut self) -> anyhow::Result<Fetched> {
        loop {
            let fetched = self.next()?;
            if fetched.is_done {
                return Ok(fetched);
            }
        }
    }

    /// Ends a source. Returns the processor time that it took.
    pub(super) fn end(mut self) -> anyhow::Result<f64> {
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
