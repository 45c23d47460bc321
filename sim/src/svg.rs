//! A run as a picture: a lane for each host, time from left to right, messages between the lanes.

use crate::trace::{Line, What};
use std::fmt::Write;

const LANE: f64 = 90.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const PER_MS: f64 = 18.0;

/// Draws what happened from one time to another, in microseconds.
pub fn draw(lines: &[Line], hosts: usize, from_us: u64, until_us: u64, title: &str) -> String {
    let x = |us: u64| LEFT + (us.saturating_sub(from_us)) as f64 / 1_000.0 * PER_MS;
    let y = |host: usize| TOP + LANE * (host as f64 + 0.5);
    let width = x(until_us) + 40.0;
    let height = TOP + LANE * hosts as f64 + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">{}</text>\n",
        escape(title)
    );
    let step = 5_000;
    let mut tick = from_us.div_ceil(step) * step;
    while tick <= until_us {
        let at = x(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#eee\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#888\">{} ms</text>",
            height - 30.0,
            height - 15.0,
            tick / 1_000
        );
        tick += step;
    }
    for host in 0..hosts {
        let at = y(host);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{width:.1}\" y2=\"{at:.1}\" stroke=\"#bbb\"/>\
             <text x=\"10\" y=\"{:.1}\" font-size=\"12\">host {host}</text>",
            at + 4.0
        );
    }
    let mut entered = vec![String::new(); hosts];
    for line in lines {
        if line.at_us < from_us || line.at_us > until_us || line.host >= hosts {
            continue;
        }
        let (at, level) = (x(line.at_us), y(line.host));
        let text = escape(&line.text);
        // In the picture the number says it.
        let short = text.split(' ').nth(1).unwrap_or(&text);
        let _ = match line.what {
            What::Sent { to, arrives_us } if to < hosts => writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{level:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" \
                 stroke=\"{}\" stroke-opacity=\"0.55\"><title>{text}</title></line>",
                x(arrives_us),
                y(to),
                colour(&line.text)
            ),
            What::Entered => {
                if entered[line.host] == line.text {
                    continue;
                }
                entered[line.host].clone_from(&line.text);
                mark(&mut svg, at, level, "#1f77b4", short, -6.0)
            }
            What::Executed => mark(&mut svg, at, level, "#2ca02c", short, 14.0),
            What::Fault => mark(&mut svg, at, level, "#d62728", &text, -18.0),
            What::Blamed => mark(&mut svg, at, level, "#9467bd", &text, 26.0),
            What::Note => mark(&mut svg, at, level, "#000000", &text, -30.0),
            What::Sent { .. } => Ok(()),
        };
    }
    svg.push_str("</svg>\n");
    svg
}

fn mark(
    svg: &mut String,
    x: f64,
    y: f64,
    colour: &str,
    text: &str,
    offset: f64,
) -> std::fmt::Result {
    writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{colour}\">{text}</text>",
        y + offset
    )
}

fn colour(text: &str) -> &'static str {
    if text.starts_with("proposal") {
        "#ff7f0e"
    } else if text.starts_with("notarize") {
        "#1f77b4"
    } else if text.starts_with("nullify") {
        "#d62728"
    } else if text.starts_with("finalize") {
        "#2ca02c"
    } else {
        "#999999"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scenario::Scenario, world::Simulation};
    use std::time::Duration;

    #[test]
    fn a_picture_holds_the_lanes_and_what_happened_in_the_span() {
        let mut scenario = Scenario::new(1, 4, Duration::from_millis(60));
        scenario.transfers_per_second = 0;
        let mut simulation = Simulation::watched(scenario, true);
        simulation.run_watched(|_, _, _| {}).expect("a quiet run");
        let svg = draw(&simulation.lines(), 4, 0, 30_000, "a < b");
        for expected in ["host 3", "a &lt; b", "proposal", "0.2</text>", "</svg>"] {
            assert!(svg.contains(expected), "{expected} is missing");
        }
        assert!(!svg.contains("60 ms"));
    }
}
