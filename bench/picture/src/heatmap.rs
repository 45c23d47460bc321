//! Where values lie over time: a column per moment, darker where more of them are.

use super::{DrawError, GREY, SIZE, number};
use plotters::prelude::*;

/// Rows of a heatmap, from the least value to the greatest, each a fixed ratio above the last.
const ROWS: usize = 24;

/// One column: values at which known parts of all are reached, such as (0.5, median).
pub struct Column {
    /// The moment.
    pub at: f64,
    /// Parts of all, growing, with the value that this part is at most.
    pub quantiles: Vec<(f64, f64)>,
}

/// Draws columns with a logarithmic axis of values. Between known quantiles values are taken as
/// spread evenly on that axis.
///
/// # Errors
///
/// If the drawing library fails.
pub fn heatmap(
    title: &str,
    across: &str,
    columns: &[Column],
    marks: &[f64],
) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(title, across, columns, marks, &mut svg)
        .map_err(|error| anyhow::anyhow!("drawing {title:?}: {error}"))?;
    Ok(svg)
}

fn draw(
    title: &str,
    across: &str,
    columns: &[Column],
    marks: &[f64],
    svg: &mut String,
) -> Result<(), DrawError> {
    let values = || columns.iter().flat_map(|c| &c.quantiles).map(|(_, v)| *v);
    // Without values there must still be a finite axis: one without an end is drawn for ever.
    let known = || values().filter(|value| value.is_finite());
    let least = known().reduce(f64::min).unwrap_or(1.0).max(0.1) * 0.8;
    let most = known().fold(least * 10.0, f64::max) * 1.05;
    let right = columns.iter().map(|c| c.at).fold(1e-9, f64::max);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let text = ("sans-serif", 12).into_font().color(&GREY);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 15).into_font().color(&GREY))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, (least..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(across)
        .axis_style(GREY)
        .label_style(text)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.2))
        .y_labels(4)
        .y_label_formatter(&|y| number(*y))
        .x_label_formatter(&|x| number(*x))
        .draw()?;
    let step = (most / least).powf(1.0 / ROWS as f64);
    let mut before = 0.0;
    for column in columns {
        for row in 0..ROWS {
            let (low, high) = (
                least * step.powi(row as i32),
                least * step.powi(row as i32 + 1),
            );
            let share = part_below(&column.quantiles, high) - part_below(&column.quantiles, low);
            if share > 1e-6 {
                // The root lets the few slow ones be seen beside the many fast ones.
                let colour = RGBColor(0, 114, 178).mix(share.sqrt().clamp(0.05, 1.0));
                let corners = [(before, low), (column.at, high)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            }
        }
        before = column.at;
    }
    for mark in marks {
        let line = [(*mark, least), (*mark, most)];
        chart.draw_series([PathElement::new(line, GREY.mix(0.8))])?;
    }
    area.present()?;
    Ok(())
}

/// Which part of all is at most `value`.
fn part_below(quantiles: &[(f64, f64)], value: f64) -> f64 {
    let after = quantiles.partition_point(|(_, at)| *at <= value);
    let (low_part, low) = match after {
        0 => (
            0.0,
            quantiles.first().map_or(f64::INFINITY, |(_, at)| at * 0.7),
        ),
        _ => quantiles[after - 1],
    };
    let Some((high_part, high)) = quantiles.get(after) else {
        return low_part;
    };
    if value <= low {
        return low_part;
    }
    let along = (value / low).ln() / (high / low).ln();
    low_part + (high_part - low_part) * along.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_the_value_and_meet_the_known_ones() {
        let known = [(0.5, 10.0), (0.9, 20.0), (1.0, 100.0)];
        assert_eq!(part_below(&known, 1.0), 0.0);
        assert!((part_below(&known, 10.0) - 0.5).abs() < 1e-9);
        assert!((part_below(&known, 20.0) - 0.9).abs() < 1e-9);
        assert_eq!(part_below(&known, 500.0), 1.0);
        let parts: Vec<f64> = (1..120).map(|v| part_below(&known, f64::from(v))).collect();
        assert!(parts.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(part_below(&[], 5.0), 0.0);
    }

    #[test]
    fn a_map_is_drawn_even_without_values() {
        let columns = [
            Column {
                at: 1.0,
                quantiles: vec![(0.5, 10.0), (1.0, 300.0)],
            },
            Column {
                at: 2.0,
                quantiles: Vec::new(),
            },
        ];
        let svg = heatmap("t", "seconds", &columns, &[1.5]).expect("drawn");
        assert!(svg.matches("<rect").count() > 3);
        heatmap("t", "seconds", &[], &[]).expect("drawn");
    }
}
