//! Running an experiment: its trials in random order, those that are done left out.

use super::{
    plan::{MAX_FILE_BYTES, Plan, Point, Search},
    trial::{self, Place, Trial},
};
use anyhow::{Context, bail};
use quorate_files::read_text;
use rand::{SeedableRng as _, seq::SliceRandom as _};
use rand_chacha::ChaCha8Rng;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The experiment's file, kept with its results.
pub(crate) const PLAN_FILE: &str = "experiment.toml";

/// Goodput below this part of what is offered is too little, whatever the latencies.
const ENOUGH: f64 = 0.97;

/// Most bytes of a trial's file.
const MAX_TRIAL_BYTES: u64 = 64 << 20;

/// Where trials run and where their results go.
pub(crate) struct Runner<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) results: &'a Path,
    pub(crate) place: Place<'a>,
}

/// Makes the folder of results, or sees to it that it is this experiment's.
pub(crate) fn prepare(file: &Path, results: &Path) -> anyhow::Result<()> {
    let text = read_text(file, MAX_FILE_BYTES)?;
    fs::create_dir_all(results).with_context(|| format!("making {}", results.display()))?;
    let kept = results.join(PLAN_FILE);
    match read_text(&kept, MAX_FILE_BYTES) {
        Ok(there) if there == text => return Ok(()),
        // Its first trial failed, perhaps since something in the file was wrong.
        Ok(_) if trials(results)?.is_empty() => {}
        Ok(_) => bail!(
            "{} holds results of another version of {}: give another --out, or delete it",
            results.display(),
            file.display()
        ),
        Err(error) if error.is_missing() => {}
        Err(error) => return Err(error.into()),
    }
    fs::write(&kept, text).with_context(|| format!("writing {}", kept.display()))
}

/// All trials of a folder of results, by name.
pub(crate) fn read_all(results: &Path) -> anyhow::Result<Vec<Trial>> {
    trials(results)?.iter().map(|path| read(path)).collect()
}

fn trials(results: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(results).with_context(|| format!("reading {}", results.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> anyhow::Result<Trial> {
    let name = path.display();
    let text = read_text(path, MAX_TRIAL_BYTES)?;
    let trial: Trial = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no trial: delete it to run it again"))?;
    if trial.format != trial::FORMAT {
        bail!(
            "{name} has format {}, not {}: delete it to run it again",
            trial.format,
            trial::FORMAT
        );
    }
    Ok(trial)
}

impl Runner<'_> {
    /// Runs everything that is not done.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed);
        let mut all: Vec<(Point, u32)> = self
            .plan
            .points()
            .into_iter()
            .flat_map(|point| (1..=self.plan.repeats).map(move |repeat| (point.clone(), repeat)))
            .collect();
        // What drifts on the machine meanwhile must not look like a parameter's work.
        all.shuffle(&mut rng);
        let (count, begun) = (all.len(), Instant::now());
        for (done, (point, repeat)) in all.into_iter().enumerate() {
            let left = match done {
                0 => String::new(),
                _ => {
                    let each = begun.elapsed() / done as u32;
                    format!(", {} left", minutes(each * (count - done) as u32))
                }
            };
            eprint!("[{}/{count}{left}] ", done + 1);
            match &self.plan.search {
                Some(search) => self.search(search, &point, repeat)?,
                None => {
                    self.trial(&point, repeat)?;
                }
            }
        }
        Ok(())
    }

    /// A trial's result; runs it if there is none.
    fn trial(&self, point: &Point, repeat: u32) -> anyhow::Result<Trial> {
        let name = point.name();
        let path = self.results.join(format!("{name},repeat={repeat}.json"));
        if path.exists() {
            eprintln!("{name}, {repeat}: done before");
            return read(&path);
        }
        eprint!("{name}, {repeat}: ");
        let trial = trial::run(self.plan, point, repeat, &self.place)
            .with_context(|| format!("{name}, repetition {repeat}"))?;
        trial::write(&trial, &path)?;
        eprintln!("{}", in_short(&trial));
        Ok(trial)
    }

    /// Doubles the rate until the bound is broken, then halves what is between.
    fn search(&self, search: &Search, point: &Point, repeat: u32) -> anyhow::Result<()> {
        eprintln!("looking for the highest rate");
        let holds = |rate: f64| -> anyhow::Result<bool> {
            let mut point = point.clone();
            point.rate = rate.round();
            Ok(keeps(search, &self.trial(&point, repeat)?))
        };
        let (mut low, mut high) = (0.0, search.from);
        while holds(high)? {
            low = high;
            if high >= search.to {
                return Ok(());
            }
            high = (high * 2.0).min(search.to);
        }
        if low == 0.0 {
            return Ok(());
        }
        while high / low > search.within {
            let middle = (low * high).sqrt();
            match holds(middle)? {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(())
    }
}

/// Whether a trial kept the bound.
pub(crate) fn keeps(search: &Search, trial: &Trial) -> bool {
    let figure = |name: &str| trial.figures.get(name).copied();
    let latency =
        figure("latency_p99_ms").is_some_and(|ms| ms <= search.p99_below.as_secs_f64() * 1e3);
    let enough = figure("goodput")
        .zip(figure("offered"))
        .is_some_and(|(good, offered)| good >= offered * ENOUGH);
    latency && enough
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=90 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

/// A trial in a few words.
fn in_short(trial: &Trial) -> String {
    let figure = |name: &str| trial.figures.get(name).copied().unwrap_or(f64::NAN);
    let blocks = format!(
        "block {:.1} ms, finality p99 {:.0} ms",
        figure("block_ms"),
        figure("finality_p99_ms")
    );
    if figure("offered") > 0.0 {
        format!(
            "{:.0} of {:.0} transfers/s, latency p99 {:.0} ms, {blocks}",
            figure("goodput"),
            figure("offered"),
            figure("latency_p99_ms")
        )
    } else {
        format!("no load, {blocks}")
    }
}
