//! Resource usage of a network over time, as a table and a chart: memory, disk, block time.
//!
//! Useful to find growth in long runs. Each row is one sample; the chart shows the validators'
//! resident memory, the sizes of their data directories, and the blocks per second.

use super::{figures::Sample, processes::Network};
use crate::check::folder_bytes;
use anyhow::Context as _;
use plotters::prelude::*;
use std::{
    fmt::Write as _,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// When this many rows are reached, every second one is dropped and the interval doubles: enough
/// for a chart.
const MAX_ROWS: usize = 1_200;

const SIZE: (u32, u32) = (960, 900);
const MIB: f64 = 1_048_576.0;

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    seconds: f64,
    height: u64,
    blocks_per_second: f64,
    /// Of the largest validator.
    rss_mib: f64,
    /// Of the largest data directory.
    disk_mib: f64,
    /// The part of it that is the database.
    database_mib: f64,
    validators: usize,
}

/// Records a network's resource usage.
pub struct Curve {
    path: PathBuf,
    start: Instant,
    interval: Duration,
    next: Instant,
    rows: Vec<Row>,
    last: Option<(Instant, u64)>,
}

impl Curve {
    /// Creates a recorder that draws to this SVG file, with its rows in a CSV file beside it.
    pub fn new(path: &Path) -> Self {
        let now = Instant::now();
        Self {
            path: path.to_path_buf(),
            start: now,
            interval: Duration::from_secs(1),
            next: now,
            rows: Vec::new(),
            last: None,
        }
    }

    /// Whether the next sample is due.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Records a sample. Writes the files from time to time, so that they exist even if the run is
    /// aborted.
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    pub fn record(&mut self, network: &Network, sample: &Sample) -> anyhow::Result<()> {
        let now = Instant::now();
        self.next = now + self.interval;
        let height = sample.height();
        let blocks_per_second = self.last.map_or(0.0, |(at, before)| {
            height.saturating_sub(before) as f64 / (now - at).as_secs_f64().max(0.001)
        });
        let first = self.last.replace((now, height)).is_none();
        let disk = (0..network.size())
            .map(|place| folder_bytes(&network.data_directory(place)))
            .max();
        if !first {
            self.rows.push(Row {
                seconds: (now - self.start).as_secs_f64(),
                height,
                blocks_per_second,
                rss_mib: sample.rss_mib_max(),
                disk_mib: disk.unwrap_or(0) as f64 / MIB,
                database_mib: sample.database_bytes_max() / MIB,
                validators: sample.connected().1,
            });
        }
        if self.rows.len() > MAX_ROWS {
            let mut place = 0;
            self.rows.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.interval *= 2;
        }
        if self.rows.len().is_multiple_of(60) {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the table and the chart.
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    pub fn write(&self) -> anyhow::Result<()> {
        let table = self.path.with_extension("csv");
        fs::write(&table, self.to_csv())
            .with_context(|| format!("cannot write {}", table.display()))?;
        if self.rows.len() < 2 {
            return Ok(());
        }
        let mut picture = String::new();
        draw(&self.rows, &mut picture).map_err(|error| anyhow::anyhow!("{error}"))?;
        fs::write(&self.path, picture)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn to_csv(&self) -> String {
        let mut text =
            "seconds,height,blocks_per_second,rss_mib_max,data_mib_max,database_mib_max,\
                        validators\n"
                .to_owned();
        for row in &self.rows {
            let Row {
                seconds,
                height,
                blocks_per_second,
                rss_mib,
                disk_mib,
                database_mib,
                validators,
            } = row;
            writeln!(
                text,
                "{seconds:.1},{height},{blocks_per_second:.2},{rss_mib:.2},{disk_mib:.2},\
                 {database_mib:.2},{validators}"
            )
            .expect("writing to a string never fails");
        }
        text
    }
}

type DrawError = Box<dyn std::error::Error>;

fn draw(rows: &[Row], picture: &mut String) -> Result<(), DrawError> {
    let area = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((3, 1));
    let [memory, disk, blocks] = &panels[..] else {
        return Ok(());
    };
    panel(
        memory,
        rows,
        "resident memory of the largest validator, MiB",
        |row| row.rss_mib,
    )?;
    panel(disk, rows, "largest data directory, MiB", |row| {
        row.disk_mib
    })?;
    panel(blocks, rows, "blocks per second", |row| {
        row.blocks_per_second
    })?;
    area.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    rows: &[Row],
    title: &str,
    value: impl Fn(&Row) -> f64,
) -> Result<(), DrawError> {
    let top = rows.iter().map(&value).fold(0.0, f64::max).max(1.0) * 1.1;
    let end = rows.last().map_or(1.0, |row| row.seconds).max(1.0);
    let minutes = end > 300.0;
    let scale = if minutes { 60.0 } else { 1.0 };
    let horizontal: Range<f64> = 0.0..end / scale;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(horizontal, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(if minutes { "minutes" } else { "seconds" })
        .light_line_style(WHITE)
        .draw()?;
    let points = rows.iter().map(|row| (row.seconds / scale, value(row)));
    chart.draw_series(LineSeries::new(points, &BLUE))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_becomes_a_table_and_a_picture() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("curve.svg");
        let mut curve = Curve::new(&path);
        curve.rows = (0..600)
            .map(|i| Row {
                seconds: f64::from(i),
                height: 100 * i as u64,
                blocks_per_second: 100.0,
                rss_mib: 30.0 + f64::from(i % 7),
                disk_mib: 12.0,
                database_mib: 8.0,
                validators: 4,
            })
            .collect();
        curve.write().expect("written");
        let picture = fs::read_to_string(&path).expect("there");
        assert!(picture.starts_with("<svg") && picture.contains("polyline"));
        let table = fs::read_to_string(path.with_extension("csv")).expect("there");
        assert_eq!(table.lines().count(), 601);
        assert!(table.contains("599.0,59900,100.00,34.00,12.00,8.00,4"));
    }
}
