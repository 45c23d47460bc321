//! Links between the validators' processes: what an experiment's file says of them, and the files
//! of the validators changed so that each dials the others through them.

use super::plan::Point;
use anyhow::{Context, bail, ensure};
use quorate_files::read_text;
use quorate_links::{Emulator, Link, Regions, accuracy};
use quorate_node::{
    config::{CONFIG_FILE, MAX_CONFIG_BYTES, parse_duration},
    genesis::validator_directory,
    localnet::Settings,
};
use std::{fs, path::Path, time::Duration};

/// Longest delay, one way.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Round trips with which the links' own error is measured.
const PINGS: usize = 50;

/// What is between validators.
#[derive(Clone, Debug)]
pub(crate) struct Wires {
    delays: Delays,
    jitter: Duration,
    bits_per_second: Option<u64>,
    loss: f64,
    slow_start: bool,
    /// Whose last validator may be slow.
    point: Point,
}

#[derive(Clone, Debug)]
enum Delays {
    /// The same between all.
    Even(Duration),
    /// Validators are dealt to regions in turn.
    Regions(Regions),
}

impl Delays {
    /// Reads `none`, `us`, `world`, or a delay one way such as `10ms`.
    fn parse(text: &str) -> anyhow::Result<Option<Self>> {
        match text {
            "none" => Ok(None),
            "us" => Ok(Some(Self::Regions(Regions::united_states()))),
            "world" => Ok(Some(Self::Regions(Regions::world()))),
            _ => {
                let delay = parse_duration(text).map_err(|_| {
                    anyhow::anyhow!(
                        "`links` must be none, us, world, or a delay one way such as 10ms, not {text:?}"
                    )
                })?;
                ensure!(delay <= MAX_DELAY, "`links` must be at most {MAX_DELAY:?}");
                Ok(Some(Self::Even(delay)))
            }
        }
    }
}

impl Wires {
    /// What a trial asks for; `None` for nothing between the validators.
    pub(crate) fn of(point: &Point) -> anyhow::Result<Option<Self>> {
        let jitter = parse_duration(&point.jitter)
            .map_err(|error| anyhow::anyhow!("`jitter` {:?}: {error}", point.jitter))?;
        let megabits = point.bandwidth;
        ensure!(
            megabits == 0.0 || (0.01..=100_000.0).contains(&megabits),
            "`bandwidth` must be 0 or 0.01 to 100000 megabits per second, not {megabits}"
        );
        let Some(delays) = Delays::parse(&point.links)? else {
            if !jitter.is_zero() || megabits > 0.0 || point.loss != 0.0 {
                bail!("`jitter`, `bandwidth` and `loss` need `links`, such as \"1ms\"");
            }
            return Ok(None);
        };
        let wires = Self {
            delays,
            jitter,
            bits_per_second: (megabits > 0.0).then_some((megabits * 1e6) as u64),
            loss: point.loss,
            slow_start: point.slow_start,
            point: point.clone(),
        };
        wires.link(0, 1).check()?;
        Ok(Some(wires))
    }

    fn link(&self, from: usize, to: usize) -> Link {
        let delays = match &self.delays {
            Delays::Even(delay) => Link::with_delay(*delay),
            Delays::Regions(regions) => regions.link(from, to),
        };
        let link = Link {
            jitter: self.jitter,
            bits_per_second: self.bits_per_second,
            loss: self.loss,
            slow_start: self.slow_start,
            ..delays
        };
        self.point.slow.link(&self.point, from, to, link)
    }

    /// What error the links have on this machine now, in words.
    pub(crate) fn exactness(&self) -> anyhow::Result<String> {
        let measured =
            accuracy(&self.link(0, 1), PINGS).context("measuring the links' own error")?;
        Ok(measured.to_string())
    }

    /// Starts links to all validators.
    pub(crate) fn start(&self, settings: &Settings, seed: u64) -> anyhow::Result<Emulator> {
        let targets = (0..settings.validators).map(|place| settings.p2p_address(place));
        let emulator = Emulator::start(targets.collect(), |from, to| self.link(from, to), seed)
            .context("starting the links")?;
        self.point.slow.begin(&self.point, &emulator)?;
        Ok(emulator)
    }
}

/// Lets each validator dial the others through the links.
pub(crate) fn redirect(
    folder: &Path,
    settings: &Settings,
    emulator: &Emulator,
) -> anyhow::Result<()> {
    for from in 0..settings.validators {
        let path = validator_directory(folder, from).join(CONFIG_FILE);
        let mut text = read_text(&path, MAX_CONFIG_BYTES)?;
        for to in (0..settings.validators).filter(|to| *to != from) {
            let direct = format!("address = \"{}\"\n", settings.p2p_address(to));
            let through = format!("address = \"{}\"\n", emulator.address(from, to));
            ensure!(
                text.contains(&direct),
                "{} does not name validator {to}",
                path.display()
            );
            text = text.replace(&direct, &through);
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
