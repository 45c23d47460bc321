//! Links between the validators' processes: what an experiment's file says of them, and the files
//! of the validators changed so that each dials the others through them.

use anyhow::{Context, ensure};
use quorate_links::{Emulator, Link, Regions, accuracy};
use quorate_node::{
    config::{CONFIG_FILE, parse_duration},
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
pub(crate) enum Wires {
    /// The same delay between all.
    Even(Duration),
    /// Validators are dealt to regions in turn.
    Regions(Regions),
}

impl Wires {
    /// Reads `none`, `us`, `world`, or a delay one way such as `10ms`.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Option<Self>> {
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

    fn link(&self, from: usize, to: usize) -> Link {
        match self {
            Self::Even(delay) => Link::with_delay(*delay),
            Self::Regions(regions) => regions.link(from, to),
        }
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
        Emulator::start(targets.collect(), |from, to| self.link(from, to), seed)
            .context("starting the links")
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
        let mut text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
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
