//! SVG charts for pages that are read in light and in dark mode: no background, and greys for axes.

mod heatmap;
mod trend;

pub use heatmap::{Column, heatmap};
pub use trend::{Mark, Sample, Trend};

use plotters::prelude::*;

type DrawError = Box<dyn std::error::Error>;

const SIZE: (u32, u32) = (560, 260);

/// Distinct under red-green colour blindness, and on white as on black.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Lines with more points are drawn without dots.
const MAX_DOTS: usize = 16;

const GREY: RGBColor = RGBColor(128, 128, 128);

/// A named line.
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Its points, from left to right; NaN values are gaps.
    pub points: Vec<(f64, f64)>,
}

/// A line chart.
pub struct Chart<'a> {
    /// The heading.
    pub title: &'a str,
    /// The label of the horizontal axis.
    pub across: &'a str,
    pub lines: &'a [Line],
    /// Positions of vertical lines.
    pub marks: &'a [f64],
    /// Whether the vertical axis is logarithmic, for values that differ by orders of magnitude.
    pub logarithmic: bool,
}

impl Chart<'_> {
    /// Draws the chart. NaN values are gaps.
    ///
    /// # Errors
    ///
    /// If the drawing library fails.
    pub fn draw(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        self.draw_into(&mut svg)
            .map_err(|error| anyhow::anyhow!("drawing {:?}: {error}", self.title))?;
        Ok(svg)
    }

    fn draw_into(&self, svg: &mut String) -> Result<(), DrawError> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let right = points().map(|(x, _)| *x).fold(1e-9, f64::max);
        let heights: Vec<f64> = points()
            .map(|(_, y)| self.height(*y))
            .filter(|y| y.is_finite())
            .collect();
        let (bottom, top) = self.range(heights);
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let text = ("sans-serif", 12).into_font().color(&GREY);
        let (area, names) = area.split_horizontally(SIZE.0 - self.room_for_names());
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 15).into_font().color(&GREY))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right, bottom..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.across)
            .axis_style(GREY)
            .label_style(text.clone())
            .bold_line_style(GREY.mix(0.2))
            .light_line_style(TRANSPARENT);
        if self.logarithmic {
            mesh.y_labels((top - bottom) as usize + 1)
                .y_label_formatter(&|y| number(10_f64.powf(*y)))
                .x_label_formatter(&|x| number(*x))
                .draw()?;
        } else {
            mesh.y_label_formatter(&|y| number(*y))
                .x_label_formatter(&|x| number(*x))
                .draw()?;
        }
        for mark in self.marks {
            let line = [(*mark, bottom), (*mark, top)];
            chart.draw_series([PathElement::new(line, GREY.mix(0.6))])?;
        }
        for (row, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let height = |y: &f64| self.height(*y);
            for piece in line.points.split(|(_, y)| !height(y).is_finite()) {
                let piece = piece.iter().map(|(x, y)| (*x, height(y).min(top)));
                // Few points are measurements, each to be visible; many are a curve.
                let dots = if line.points.len() <= MAX_DOTS { 3 } else { 0 };
                chart
                    .draw_series(LineSeries::new(piece, colour.stroke_width(2)).point_size(dots))?;
            }
            if !line.name.is_empty() {
                let y = 34 + 17 * row as i32;
                names.draw(&PathElement::new([(0, y), (14, y)], colour.stroke_width(2)))?;
                names.draw(&Text::new(line.name.clone(), (20, y - 5), text.clone()))?;
            }
        }
        area.present()?;
        Ok(())
    }

    /// The position of a value on the vertical axis.
    fn height(&self, y: f64) -> f64 {
        if self.logarithmic { y.log10() } else { y }
    }

    /// The range of the vertical axis, for these heights.
    fn range(&self, mut heights: Vec<f64>) -> (f64, f64) {
        heights.sort_by(f64::total_cmp);
        let (least, most) = match (heights.first(), heights.last()) {
            (Some(least), Some(most)) => (*least, *most),
            _ => (0.0, 1.0),
        };
        if self.logarithmic {
            let bottom = least.floor();
            return (bottom, most.ceil().max(bottom + 1.0));
        }
        // A single outlier must not flatten everything else.
        let usual = heights
            .get(heights.len() * 97 / 100)
            .copied()
            .unwrap_or(1.0);
        (0.0, ((usual * 1.5).min(most) * 1.08).max(1e-9))
    }

    /// The width of the legend's names, in pixels.
    fn room_for_names(&self) -> u32 {
        let longest = self
            .lines
            .iter()
            .map(|line| line.name.chars().count())
            .max();
        match longest {
            None | Some(0) => 0,
            Some(longest) => (30 + 6 * longest as u32).min(SIZE.0 / 2),
        }
    }
}

/// Formats a number on an axis, as short as possible.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 10.0 || large == 0.0 => 0,
        middle if middle >= 0.1 => 2,
        _ => 4,
    };
    let words = format!("{value:.digits$}");
    match words.contains('.') {
        true => words.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => words,
    }
}

/// Draws a bar chart, each bar with its name and its number.
///
/// # Errors
///
/// If the drawing library fails.
pub fn bars(title: &str, items: &[(String, f64)]) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw_bars(title, items, &mut svg)
        .map_err(|error| anyhow::anyhow!("drawing {title:?}: {error}"))?;
    Ok(svg)
}

fn draw_bars(title: &str, items: &[(String, f64)], svg: &mut String) -> Result<(), DrawError> {
    let height = 40 + 24 * items.len() as u32;
    let area = SVGBackend::with_string(svg, (SIZE.0, height)).into_drawing_area();
    let heading = ("sans-serif", 15).into_font().color(&GREY);
    let text = ("sans-serif", 12).into_font().color(&GREY);
    area.draw(&Text::new(title.to_owned(), (8, 6), heading))?;
    let known = items.iter().map(|(_, value)| *value);
    let most = known.filter(|value| value.is_finite()).fold(1e-9, f64::max);
    let (left, width) = (200, f64::from(SIZE.0) - 290.0);
    for (row, ((name, value), colour)) in items.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let top = 32 + 24 * row as i32;
        area.draw(&Text::new(name.clone(), (8, top + 3), text.clone()))?;
        if value.is_finite() {
            let end = left + (width * value / most) as i32;
            let bar = [(left, top), (end.max(left + 1), top + 16)];
            area.draw(&Rectangle::new(bar, colour.filled()))?;
            let digits = if *value >= 1_000.0 { 0 } else { 2 };
            let words = format!("{value:.digits$}");
            area.draw(&Text::new(words, (end + 6, top + 3), text.clone()))?;
        }
    }
    area.present()?;
    Ok(())
}

/// A self-contained HTML page.
pub struct Page {
    body: String,
}

impl Page {
    /// A page with its title and an introduction. Text is escaped, here and below.
    pub fn new(title: &str, about: &str) -> Self {
        let (title, about) = (escape(title), escape(about));
        Self {
            body: format!(
                "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
                 content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
                 <h1>{title}</h1>\n<p>{about}</p>\n"
            ),
        }
    }

    /// A section heading.
    pub fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// A subsection heading.
    pub fn subheading(&mut self, text: &str) {
        self.body += &format!("<h3>{}</h3>\n", escape(text));
    }

    /// Preformatted text, such as commands.
    pub fn code(&mut self, text: &str) {
        self.body += &format!("<pre>{}</pre>\n", escape(text));
    }

    /// A paragraph.
    pub fn words(&mut self, text: &str) {
        self.body += &format!("<p>{}</p>\n", escape(text));
    }

    /// Charts side by side where there is room.
    pub fn pictures(&mut self, pictures: &[String]) {
        self.body += &format!("<div class=\"pictures\">{}</div>\n", pictures.concat());
    }

    /// A table; the first column names the rows, the others are numbers.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.table_with_words(head, rows, head.len());
    }

    /// A table whose columns from `from` on contain text, which is aligned left.
    pub fn table_with_words(&mut self, head: &[&str], rows: &[Vec<String>], from: usize) {
        let cells = |tag: &str, cells: Vec<String>| -> String {
            let cells = cells.iter().enumerate().map(|(column, text)| {
                let class = if column >= from {
                    " class=\"words\""
                } else {
                    ""
                };
                format!("<{tag}{class}>{}</{tag}>", escape(text))
            });
            cells.collect()
        };
        let head = cells("th", head.iter().map(|h| (*h).to_owned()).collect());
        let rows = rows
            .iter()
            .map(|row| format!("<tr>{}</tr>\n", cells("td", row.clone())));
        self.body += &format!(
            "<table><thead><tr>{head}</tr></thead><tbody>\n{}</tbody></table>\n",
            rows.collect::<String>()
        );
    }

    /// The page's HTML.
    pub fn finish(self) -> String {
        self.body + "</html>\n"
    }
}

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;\
max-width:1180px;margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.15rem;\
margin-top:2rem}.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));\
gap:.5rem}svg{width:100%;height:auto}table{border-collapse:collapse;font-variant-numeric:\
tabular-nums;display:block;overflow-x:auto}th,td{padding:.2rem .6rem;text-align:right;border-bottom:\
1px solid #8884}th:first-child,td:first-child,.words{text-align:left}h3{font-size:1rem;margin:1.5rem \
0 .3rem}pre{overflow-x:auto;padding:.5rem .8rem;background:#8881}td{vertical-align:top}table{margin:.7rem 0}@media print{\
body{max-width:none;margin:0;font-size:11px}.pictures{grid-template-columns:1fr 1fr}svg,tr{break-inside:\
avoid}h2,h3{break-after:avoid}table{display:table}pre{white-space:pre-wrap}}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_its_pictures_and_no_markup_of_others() {
        let lines = [Line {
            name: "a < b".to_owned(),
            points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, 2.0)],
        }];
        let chart = Chart {
            title: "t",
            across: "seconds",
            lines: &lines,
            marks: &[1.0],
            logarithmic: false,
        };
        let svg = chart.draw().expect("drawn");
        assert!(svg.starts_with("<svg") && svg.contains("a &lt; b"));
        let mut page = Page::new("x <script>", "");
        page.pictures(&[
            svg,
            bars("bars", &[("one".to_owned(), 2.5)]).expect("drawn"),
        ]);
        let text = page.finish();
        assert!(!text.contains("<script>") && text.contains("2.50"));
        // The SVG namespace is a name, not an address that is fetched.
        let addresses = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!addresses.contains("http"));
    }

    #[test]
    fn a_logarithmic_axis_is_labelled_with_the_values_themselves() {
        let lines = [Line {
            name: "all".to_owned(),
            points: vec![(0.0, 5.0), (1.0, 0.0), (2.0, 20_000.0)],
        }];
        let chart = Chart {
            title: "t",
            across: "x",
            lines: &lines,
            marks: &[],
            logarithmic: true,
        };
        assert_eq!(
            chart.range(vec![5_f64.log10(), 20_000_f64.log10()]),
            (0.0, 5.0)
        );
        let svg = chart.draw().expect("drawn");
        let labels: Vec<&str> = svg.lines().map(str::trim).collect();
        for label in ["1", "10", "100", "1000", "10000"] {
            assert!(labels.contains(&label), "{label} in {svg}");
        }
        // Zero is not on a logarithmic axis, and is a gap.
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn numbers_on_axes_are_short() {
        for (value, words) in [
            (8_000.0, "8000"),
            (0.0, "0"),
            (2.5, "2.5"),
            (0.05, "0.05"),
            (1.0, "1"),
        ] {
            assert_eq!(number(value), words);
        }
    }
}
