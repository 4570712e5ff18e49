//! Deliveries a second with the faults marked, as an SVG that needs nothing else.

use std::fmt::Write as _;
use std::time::Duration;

use super::evidence::{Evidence, Micros, Outcome};
use super::plan::Kind;
use super::recovery;
use super::world::Happened;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 170.0;
const TOP: f64 = 40.0;
const HEIGHT: f64 = 260.0;
const ROW: f64 = 16.0;
const COLORS: [&str; 4] = ["#c0392b", "#8e44ad", "#d35400", "#16a085"];

/// Draws it.
pub(super) fn draw(title: &str, evidence: &Evidence, happened: &[Happened], span: Duration) -> String {
    let seconds = evidence.arrivals.last().map_or(0, |arrival| arrival.at / 1_000_000).max(span.as_secs()) as usize + 1;
    let committed = evidence.writes.iter().filter(|write| write.outcome == Outcome::Committed).map(|write| write.ended);
    let (delivered, committed) =
        (per_second(recovery::first_arrivals(evidence).into_iter(), seconds), per_second(committed, seconds));
    let most = delivered.iter().chain(&committed).copied().max().unwrap_or(1).max(1);
    let mut kinds: Vec<Kind> = happened.iter().map(|fault| fault.fault.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let height = TOP + HEIGHT + 30.0 + ROW * kinds.len() as f64 + 20.0;
    let x = |at_s: f64| LEFT + at_s / seconds as f64 * (WIDTH - LEFT - 20.0);
    let y = |count: usize| TOP + HEIGHT * (1.0 - count as f64 / most as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for (row, kind) in kinds.iter().enumerate() {
        let row_y = TOP + HEIGHT + 30.0 + ROW * row as f64;
        let color = COLORS[row % COLORS.len()];
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{kind}</text>", LEFT - 8.0, row_y + 11.0);
        for fault in happened.iter().filter(|fault| fault.fault.kind == *kind) {
            let from = x(fault.began as f64 / 1e6);
            let wide = (x(fault.healed.unwrap_or(fault.began) as f64 / 1e6) - from).max(2.0);
            let bar = |y: f64, height: f64, opacity: f64| {
                format!(
                    "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\" fill=\"{color}\" \
                     opacity=\"{opacity}\"/>\n"
                )
            };
            svg.push_str(&bar(TOP, HEIGHT, 0.08));
            svg.push_str(&bar(row_y, ROW - 4.0, 0.8));
        }
    }
    for share in 0..=4 {
        let count = most * share / 4;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2}\" y=\"{1:.1}\" text-anchor=\"end\">{count}/s</text>",
            WIDTH - 20.0,
            y(count),
            LEFT - 8.0
        );
        let at = seconds as f64 * share as f64 / 4.0;
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{at:.0} s</text>", x(at), TOP + HEIGHT + 16.0);
    }
    for (counts, color) in [(&committed, "#bbbbbb"), (&delivered, "#1f5fa8")] {
        let points: Vec<String> = (0..).zip(counts).map(|(s, n)| format!("{:.1},{:.1}", x(s.into()), y(*n))).collect();
        let _ = writeln!(svg, "<polyline fill=\"none\" stroke=\"{color}\" points=\"{}\"/>", points.join(" "));
    }
    svg.push_str("</svg>\n");
    svg
}

fn per_second(times: impl Iterator<Item = Micros>, seconds: usize) -> Vec<usize> {
    let mut counts = vec![0; seconds];
    for at in times {
        counts[usize::try_from(at / 1_000_000).unwrap_or(0).min(seconds - 1)] += 1;
    }
    counts
}
