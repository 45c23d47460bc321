//! One figure over time: points with intervals, in front of a band of usual values.

use crate::{COLOURS, DrawError, GREY, SIZE, escape};
use plotters::{coord::Shift, prelude::*};

/// Width of one label below the chart, in pixels.
const LABEL_WIDTH: u32 = 76;

/// Width of the scale left of the chart, in pixels.
const SCALE_WIDTH: u32 = 62;

/// Quantiles of the points that certainly lie within the scale: single outliers are drawn at its
/// edge and do not flatten the others.
const SURE: (f64, f64) = (0.03, 0.97);

/// How far the scale reaches beyond these quantiles at most, in multiples of their distance.
const ROOM: f64 = 8.0;

/// The radius of a circle, and of the area that shows a point's tooltip.
const RADIUS: i32 = 3;
const SURFACE: i32 = 8;

/// A point's shape, which says more than its colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A dot.
    Usual,
    /// A green diamond.
    Better,
    /// A red triangle.
    Worse,
    /// A hollow circle, which the line skips: it does not count.
    Hollow,
}

/// One point in time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The label below it, if there is room; at most eight letters fit.
    pub label: String,
    /// The tooltip.
    pub words: String,
    pub value: f64,
    /// The confidence interval.
    pub interval: Option<(f64, f64)>,
    /// The usual range at this time.
    pub band: Option<(f64, f64)>,
    pub mark: Mark,
}

/// A figure over time. The scale does not begin at zero.
#[derive(Clone, Debug)]
pub struct Trend<'a> {
    /// The heading.
    pub title: &'a str,
    /// From the oldest to the newest.
    pub samples: &'a [Sample],
}

impl Trend<'_> {
    /// Draws the chart.
    ///
    /// # Errors
    ///
    /// If the drawing library fails.
    pub fn draw(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        let places = self
            .draw_into(&mut svg)
            .map_err(|error| anyhow::anyhow!("drawing {:?}: {error}", self.title))?;
        // The drawing library has no tooltips; every browser shows an SVG title.
        let surfaces = self.samples.iter().zip(places).map(|(sample, (x, y))| {
            let words = escape(&sample.words);
            format!(
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"{SURFACE}\" fill=\"transparent\">\
                 <title>{words}</title></circle>\n"
            )
        });
        let end = svg.rfind("</svg>").unwrap_or(svg.len());
        svg.insert_str(end, &surfaces.collect::<String>());
        Ok(svg)
    }

    /// Draws, and returns the positions of the points.
    fn draw_into(&self, svg: &mut String) -> Result<Vec<(i32, i32)>, DrawError> {
        let (bottom, top) = self.scale();
        let right = self.samples.len().max(1) as f64 - 0.5;
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let text = ("sans-serif", 12).into_font().color(&GREY);
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 15).into_font().color(&GREY))
            .margin(8)
            .margin_right(20)
            .x_label_area_size(26)
            .y_label_area_size(SCALE_WIDTH)
            .build_cartesian_2d(-0.5..right, bottom..top)?;
        let most = ((SIZE.0 - SCALE_WIDTH) / LABEL_WIDTH) as usize;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(most)
            .x_label_formatter(&|x| self.label_at(*x))
            .y_labels(6)
            .y_label_formatter(&|y| tick(*y, bottom, top))
            .axis_style(GREY)
            .label_style(text)
            .bold_line_style(GREY.mix(0.2))
            .light_line_style(TRANSPARENT)
            .draw()?;
        let within = |y: f64| y.clamp(bottom, top);
        for outline in self.bands() {
            let outline: Vec<_> = outline.into_iter().map(|(x, y)| (x, within(y))).collect();
            chart.draw_series([Polygon::new(outline, GREY.mix(0.22))])?;
        }
        let numbered = || self.samples.iter().enumerate().map(|(i, s)| (i as f64, s));
        let line = numbered().filter(|(_, s)| s.mark != Mark::Hollow && s.value.is_finite());
        let line = line.map(|(x, sample)| (x, within(sample.value)));
        chart.draw_series(LineSeries::new(line, COLOURS[0].mix(0.8).stroke_width(1)))?;
        for (x, sample) in numbered() {
            if let Some((lower, upper)) = sample.interval {
                let whisker = [(x, within(lower)), (x, within(upper))];
                chart.draw_series([PathElement::new(whisker, COLOURS[0].mix(0.7))])?;
            }
        }
        let places: Vec<(i32, i32)> = numbered()
            .map(|(x, sample)| chart.backend_coord(&(x, within(sample.value))))
            .collect();
        for (sample, place) in self.samples.iter().zip(&places) {
            if sample.value.is_finite() {
                draw_mark(&area, sample.mark, *place)?;
            }
        }
        area.present()?;
        Ok(places)
    }

    /// The range of the scale.
    fn scale(&self) -> (f64, f64) {
        let finite = |value: &f64| value.is_finite();
        let counted = || self.samples.iter().filter(|s| s.mark != Mark::Hollow);
        let mut values: Vec<f64> = counted().map(|s| s.value).filter(finite).collect();
        values.sort_by(f64::total_cmp);
        let Some((first, last)) = values.first().copied().zip(values.last().copied()) else {
            return (0.0, 1.0);
        };
        let at = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (values[place as usize], values[place.ceil() as usize]);
            below + place.fract() * (above - below)
        };
        let (low, high) = (at(SURE.0), at(SURE.1));
        // Bands and intervals are included, but may not flatten the points either.
        let around = |pick: fn(&Sample) -> Option<(f64, f64)>| {
            let ends = counted().filter_map(pick).flat_map(|(a, b)| [a, b]);
            ends.filter(finite).collect::<Vec<_>>()
        };
        let mut ends = around(|sample| sample.band);
        ends.extend(around(|sample| sample.interval));
        let span = (high - low).max(0.02 * low.abs().max(high.abs()));
        let room = ROOM * span;
        let lowest = ends.iter().copied().fold(first, f64::min);
        let highest = ends.iter().copied().fold(last, f64::max);
        let (low, high) = (lowest.max(low - room), highest.min(high + room));
        let margin = (0.08 * (high - low)).max(0.005 * low.abs().max(high.abs()));
        let margin = if margin > 0.0 { margin } else { 1.0 };
        (low - margin, high + margin)
    }

    fn label_at(&self, x: f64) -> String {
        let nearest = x.round();
        let is_point = (x - nearest).abs() < 1e-6 && nearest >= 0.0;
        let sample = is_point.then(|| self.samples.get(nearest as usize));
        sample.flatten().map_or(String::new(), |s| s.label.clone())
    }

    /// The band's outlines, one for each run of samples that have one.
    fn bands(&self) -> Vec<Vec<(f64, f64)>> {
        let numbered: Vec<(usize, &Sample)> = self.samples.iter().enumerate().collect();
        let runs = numbered.split(|(_, sample)| sample.band.is_none());
        let runs = runs.filter(|run| !run.is_empty()).map(|run| {
            let edge = |upper: bool| {
                run.iter().flat_map(move |(place, sample)| {
                    let (low, high) = sample.band.unwrap_or_default();
                    let y = if upper { high } else { low };
                    [(*place as f64 - 0.5, y), (*place as f64 + 0.5, y)]
                })
            };
            let back: Vec<(f64, f64)> = edge(false).collect();
            edge(true).chain(back.into_iter().rev()).collect()
        });
        runs.collect()
    }
}

fn draw_mark(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    mark: Mark,
    (x, y): (i32, i32),
) -> Result<(), DrawError> {
    match mark {
        Mark::Usual => area.draw(&Circle::new((x, y), RADIUS, COLOURS[0].filled()))?,
        Mark::Better => {
            let corners = vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
            area.draw(&Polygon::new(corners, COLOURS[2].filled()))?;
        }
        Mark::Worse => {
            let corners = vec![(x, y - 7), (x + 7, y + 5), (x - 7, y + 5)];
            area.draw(&Polygon::new(corners, COLOURS[1].filled()))?;
        }
        Mark::Hollow => area.draw(&Circle::new((x, y), RADIUS + 1, GREY.stroke_width(1)))?,
    }
    Ok(())
}

/// A number at the scale, with enough digits to distinguish it from its neighbours.
fn tick(value: f64, bottom: f64, top: f64) -> String {
    let largest = bottom.abs().max(top.abs());
    let units = [(1e9, "G"), (1e6, "M"), (1e4, "k"), (0.0, "")];
    let (from, name) = units
        .into_iter()
        .find(|(from, _)| largest >= *from)
        .unwrap_or((0.0, ""));
    let unit = match name {
        "k" => 1e3,
        "" => 1.0,
        _ => from,
    };
    let step = (top - bottom) / unit / 6.0;
    let places = (1.0 - step.log10().floor()).clamp(0.0, 9.0) as usize;
    // Steps are 1, 2 or 5 times a power of ten, and seldom need the last digit.
    let text = format!("{:.*}", places, value / unit);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64, mark: Mark) -> Sample {
        Sample {
            label: "c0ffee1".to_owned(),
            words: format!("<{value}>"),
            value,
            interval: None,
            band: Some((9.0, 11.0)),
            mark,
        }
    }

    #[test]
    fn every_point_has_its_look_and_its_words() {
        let samples = [
            sample(10.0, Mark::Usual),
            sample(12.5, Mark::Worse),
            sample(8.5, Mark::Better),
            sample(9.5, Mark::Hollow),
        ];
        let title = "t < 1";
        let svg = Trend {
            title,
            samples: &samples,
        }
        .draw()
        .expect("drawn");
        // The band, the triangle and the diamond.
        assert_eq!(svg.matches("<polygon").count(), 3, "{svg}");
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(svg.contains("&lt;12.5&gt;") && svg.contains("t &lt; 1"));
        assert!(svg.contains("c0ffee1") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn neither_an_outlier_nor_what_does_not_count_flattens_the_rest() {
        let mut samples = vec![sample(10.0, Mark::Usual); 60];
        samples.push(sample(9_000.0, Mark::Worse));
        samples.push(sample(1e9, Mark::Hollow));
        let scale = |samples: &[Sample]| Trend { title: "", samples }.scale();
        let (bottom, top) = scale(&samples);
        assert!(bottom > 5.0 && top < 30.0, "{bottom} {top}");
        // But a lasting change is shown.
        samples.extend(vec![sample(40.0, Mark::Usual); 5]);
        let (_, top) = scale(&samples);
        assert!(top >= 40.0, "{top}");
    }

    #[test]
    fn nothing_one_point_and_equal_points_can_be_drawn() {
        let mut alone = sample(0.0, Mark::Usual);
        alone.band = None;
        let not = sample(f64::NAN, Mark::Usual);
        for samples in [&[][..], &[alone.clone()], &[alone.clone(), alone], &[not]] {
            let svg = Trend { title: "", samples }.draw().expect("drawn");
            assert!(svg.contains("<svg"));
        }
    }

    #[test]
    fn a_scale_is_read_to_its_steps() {
        assert_eq!(tick(1.05, 0.9, 1.2), "1.05");
        assert_eq!(tick(12_340_000.0, 12_300_000.0, 12_400_000.0), "12.34M");
        assert_eq!(tick(20_000.0, 0.0, 60_000.0), "20k");
        assert_eq!(tick(200.0, 0.0, 600.0), "200");
        assert_eq!(tick(0.0, -1.0, 1.0), "0");
    }
}
