//! Runs one system once and prints its figures as JSON.
//!
//! `one SYSTEM CACHE FOLDER [VALIDATORS [RATE [SECONDS]]]`, for instance
//! `one cometbft ~/.cache/quorate/others /tmp/cometbft 4 200 10`.

use std::env::args;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quorate_others::{Load, named};

/// From where on ports are used.
const BASE_PORT: u16 = 31_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = args().skip(1).collect();
    let given = |index: usize, name: &str| {
        let value = arguments.get(index);
        value.with_context(|| format!("{name} is missing: SYSTEM CACHE FOLDER come first"))
    };
    let system = given(0, "SYSTEM")?;
    let system = named(system).with_context(|| format!("there is no system {system}"))?;
    let (cache, folder) = (
        PathBuf::from(given(1, "CACHE")?),
        PathBuf::from(given(2, "FOLDER")?),
    );
    let load = Load {
        validators: number(arguments.get(3), 4)?,
        rate: number(arguments.get(4), 200.0)?,
        transaction_bytes: 161,
        warm_up: Duration::from_secs(3),
        measure: Duration::from_secs(number(arguments.get(5), 10)?),
        drain: Duration::from_secs(3),
    };
    let begun = Instant::now();
    let program = system.install(&cache)?;
    eprintln!("{} after {:?}", program.display(), begun.elapsed());
    let figures = system.run(&cache, &folder, BASE_PORT, &load)?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}

fn number<T: FromStr>(given: Option<&String>, otherwise: T) -> Result<T> {
    match given {
        None => Ok(otherwise),
        Some(text) => text
            .parse()
            .ok()
            .with_context(|| format!("{text} is no such number")),
    }
}
