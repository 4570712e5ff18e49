//! Charts of the last hour, drawn here as SVG: nothing to load, nothing to run. Colours are classes, because the pages'
//! policy allows no style attributes; labels are HTML beside the picture, so that they keep their size on any screen.
//!
//! **Guarantee.** There are 60 minutes, whatever was counted. **Limit.** Longer spans are for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::words;

/// Minutes in a chart.
const MINUTES: usize = 60;
/// A minute's width and the picture's height, in the picture's own units.
const STEP: usize = 10;
const HEIGHT: f64 = 120.0;

#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Minute {
    queued: Option<i64>,
    sent: i64,
    failed: i64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Latency {
    p50_ms: f64,
    p99_ms: f64,
}

/// One value for each of the last 60 minutes, oldest first.
fn by_minute<T: for<'a> Deserialize<'a>>(rows: &Value, newest: DateTime<Utc>) -> Vec<(DateTime<Utc>, Option<T>)> {
    let mut found: BTreeMap<DateTime<Utc>, T> = BTreeMap::new();
    for row in rows.as_array().into_iter().flatten() {
        let minute = words::time(&row["minute"]);
        if let (Some(minute), Ok(value)) = (minute, T::deserialize(row)) {
            found.insert(minute, value);
        }
    }
    let minute = |back: usize| newest - TimeDelta::minutes(i64::try_from(back).unwrap_or(0));
    (0..MINUTES).rev().map(minute).map(|minute| (minute, found.remove(&minute))).collect()
}

/// What was sent and given up, as bars, and what became due, as a line.
pub(super) fn throughput(rows: &Value, newest: DateTime<Utc>) -> String {
    let minutes: Vec<(DateTime<Utc>, Minute)> =
        by_minute(rows, newest).into_iter().map(|(at, minute)| (at, minute.unwrap_or_default())).collect();
    let tallest = minutes.iter().map(|(_, m)| (m.sent + m.failed).max(m.queued.unwrap_or(0))).max().unwrap_or(0);
    let top = round_up(tallest);
    let y = |n: i64| HEIGHT - n as f64 / top as f64 * HEIGHT;
    let (mut sent, mut failed, mut queued, mut points) = (String::new(), String::new(), String::new(), Vec::new());
    for (at, (minute, m)) in minutes.iter().enumerate() {
        let x = at * STEP;
        bar(&mut sent, x, y(m.sent), HEIGHT);
        bar(&mut failed, x, y(m.sent + m.failed), y(m.sent));
        let due = y(m.queued.unwrap_or(0));
        // Infallible: it writes into a String.
        let _ = write!(queued, "{}{x} {due:.1}h{STEP}", if at == 0 { 'M' } else { 'L' });
        let told = [("due", m.queued.unwrap_or(0)), ("sent", m.sent), ("failed", m.failed)];
        let told = told.map(|(name, n)| format!("{} {name}", words::count(n))).join(";");
        points.push(format!("{};{told}", minute.format("%H:%M UTC")));
    }
    let total = |of: fn(&Minute) -> i64| words::count(minutes.iter().map(|(_, m)| of(m)).sum());
    let label = format!("Last hour: {} sent, {} failed", total(|m| m.sent), total(|m| m.failed));
    let picture = format!(
        "<path class=\"b-sent\" d=\"{sent}\"/><path class=\"b-failed\" d=\"{failed}\"/><path class=\"l l-queued\" d=\"{queued}\"/>"
    );
    let keys = [("k-sent", "", "sent"), ("k-failed", "", "failed"), ("k-queued", " dash", "became due")];
    let axis = [words::count(top), words::count(top / 2), "0".to_owned()];
    figure("Throughput, per minute", &label, &keys, &picture, &points.join("|"), &axis)
}

/// From `notify()` to SENT, on a scale of powers of ten: milliseconds and minutes in one picture.
pub(super) fn latency(rows: &Value, newest: DateTime<Utc>) -> String {
    let minutes: Vec<(DateTime<Utc>, Option<Latency>)> = by_minute(rows, newest);
    let known = || minutes.iter().filter_map(|(_, latency)| *latency);
    let low = known().map(|l| l.p50_ms).fold(f64::INFINITY, f64::min).clamp(0.1, 1e7).log10().floor();
    let high = known().map(|l| l.p99_ms).fold(0.0, f64::max).clamp(0.1, 1e9).log10().ceil();
    let (low, high) =
        if low.is_finite() && known().next().is_some() { (low, even(low, high.max(low + 2.0))) } else { (0.0, 4.0) };
    let y = |ms: f64| HEIGHT - (ms.max(0.1).log10() - low) / (high - low) * HEIGHT;
    let mut points = Vec::new();
    let mut paths = [String::new(), String::new()];
    let mut is_joined = false;
    for (at, (minute, latency)) in minutes.iter().enumerate() {
        let told = match latency {
            Some(l) => format!("p50 {};p99 {}", words::milliseconds(l.p50_ms), words::milliseconds(l.p99_ms)),
            None => "nothing was sent".to_owned(),
        };
        points.push(format!("{};{told}", minute.format("%H:%M UTC")));
        if let Some(l) = latency {
            for (path, ms) in paths.iter_mut().zip([l.p50_ms, l.p99_ms]) {
                // A single minute is a short line, so that it is seen.
                let _ = write!(path, "{}{} {:.1}h{STEP}", if is_joined { 'L' } else { 'M' }, at * STEP, y(ms));
            }
        }
        is_joined = latency.is_some();
    }
    let last = known().next_back();
    let label = match last {
        Some(l) => format!(
            "Last minute with traffic: p50 {}, p99 {}",
            words::milliseconds(l.p50_ms),
            words::milliseconds(l.p99_ms)
        ),
        None => "Nothing was sent in the last hour".to_owned(),
    };
    let [p50, p99] = paths;
    let picture = format!("<path class=\"l l-p99\" d=\"{p99}\"/><path class=\"l l-p50\" d=\"{p50}\"/>");
    let keys = [("k-p50", " dash", "p50"), ("k-p99", " dash", "p99")];
    let axis = [high, (high + low) / 2.0, low].map(|power| match power {
        ..3.0 => words::milliseconds(10f64.powf(power)),
        _ => format!("{} s", words::count(10f64.powf(power - 3.0) as i64)),
    });
    figure("Latency, notify to sent", &label, &keys, &picture, &points.join("|"), &axis)
}

/// So that the middle of the scale is a power of ten too.
fn even(low: f64, high: f64) -> f64 {
    if (high - low) % 2.0 == 0.0 { high } else { high + 1.0 }
}

fn bar(path: &mut String, x: usize, top: f64, bottom: f64) {
    if bottom - top > 0.05 {
        let _ = write!(path, "M{} {top:.1}h{}V{bottom:.1}h-{}z", x + 1, STEP - 2, STEP - 2);
    }
}

fn figure(
    title: &str,
    label: &str,
    keys: &[(&str, &str, &str)],
    picture: &str,
    points: &str,
    axis: &[String; 3],
) -> String {
    let keys: String = keys
        .iter()
        .map(|(class, line, name)| format!("<span class=\"key {class}{line}\"><i></i><span>{name}</span></span>"))
        .collect();
    let width = MINUTES * STEP;
    let grid: String =
        [0.5, HEIGHT / 2.0, HEIGHT - 0.5].map(|y| format!("<path class=\"grid\" d=\"M0 {y}h{width}\"/>")).concat();
    let [top, middle, bottom] = axis;
    format!(
        "<figure class=\"card chart\"><figcaption class=\"over\"><h2>{title}</h2>{keys}</figcaption><div class=\"plot\">\
         <svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\" data-points=\"{points}\">\
         {grid}{picture}</svg><div class=\"y\" aria-hidden=\"true\"><span>{top}</span><span>{middle}</span><span>{bottom}</span></div>\
         <div class=\"x\" aria-hidden=\"true\"><span>60 min ago</span><span>45</span><span>30</span><span>15</span><span>now</span></div></div></figure>"
    )
}

/// The next 1, 2 or 5 with zeros; at least 10.
fn round_up(n: i64) -> i64 {
    let mut step = 10;
    loop {
        for top in [step, 2 * step, 5 * step] {
            if n <= top {
                return top;
            }
        }
        if step > i64::MAX / 100 {
            return i64::MAX;
        }
        step *= 10;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn newest() -> DateTime<Utc> {
        "2026-11-18T06:41:00+00:00".parse().unwrap()
    }

    #[test]
    fn an_hour_has_60_minutes_whatever_was_counted() {
        let rows = json!([{"minute": "2026-11-18T06:40:00+00:00", "queued": null, "sent": 12, "failed": 3, "retried": 0},
                          {"minute": "2026-11-17T06:40:00+00:00", "queued": 1, "sent": 99, "failed": 0, "retried": 0}]);
        let chart = throughput(&rows, newest());
        assert!(chart.contains("Last hour: 12 sent, 3 failed"), "{chart}");
        assert_eq!(chart.split('|').count(), 60);
        assert!(chart.contains("06:40 UTC;0 due;12 sent;3 failed"), "{chart}");
        assert!(!chart.contains("style"), "the pages' policy allows no style attributes");
        assert_eq!(throughput(&Value::Null, newest()).matches("NaN").count(), 0);
    }

    #[test]
    fn latency_has_gaps_where_nothing_was_sent() {
        let minute =
            |at: &str| json!({"minute": format!("2026-11-18T06:{at}:00+00:00"), "p50_ms": 8.0, "p99_ms": 950.0});
        let chart = latency(&json!([minute("10"), minute("11"), minute("30")]), newest());
        let line = chart.split("l-p50\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 1), "{line}");
        assert!(
            chart.contains("<span>1 ms</span>")
                || chart.contains("<span>1.0 ms</span>")
                || chart.contains("<span>10 s</span>"),
            "{chart}"
        );
        assert!(latency(&Value::Null, newest()).contains("Nothing was sent in the last hour"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (n, top) in [(0, 10), (10, 10), (11, 20), (41, 50), (51, 100), (1_200, 2_000), (i64::MAX, i64::MAX)] {
            assert_eq!(round_up(n), top);
        }
    }
}
