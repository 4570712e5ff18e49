//! How numbers, spans and times are written for people. Numbers carry their unit, times their zone.
//!
//! **Guarantee.** A number never stands without its unit, nor a time without its zone. **Limit.** English and UTC; the
//! script shows local times.

use chrono::{DateTime, Utc};
use serde_json::Value;

/// A time as Postgres writes it into JSON.
pub(super) fn time(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str()?.parse().ok()
}

/// 1234567 as `1,234,567`.
pub(super) fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if n < 0 {
        text.push('−');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A span in its two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`.
pub(super) fn span(seconds: f64) -> String {
    // Beyond all calendars is still a number.
    let whole = seconds.max(0.0).round().min(1e12) as i64;
    let (unit, small, parts) = match whole {
        0 if seconds > 0.0 => return format!("{} ms", (seconds * 1e3).round()),
        ..60 => return format!("{whole} s"),
        60..3600 => ("min", "s", (whole / 60, whole % 60)),
        3600..86_400 => ("h", "min", (whole / 3600, whole % 3600 / 60)),
        _ => ("d", "h", (whole / 86_400, whole % 86_400 / 3600)),
    };
    match parts {
        (large, 0) => format!("{} {unit}", count(large)),
        (large, rest) => format!("{} {unit} {rest} {small}", count(large)),
    }
}

/// Milliseconds: `0.4 ms`, `12 ms`, `1.2 s`, `2 min 3 s`.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        ..0.995 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        ..9_950.0 => format!("{:.1} s", ms / 1e3),
        _ => span(ms / 1e3),
    }
}

/// How long ago, or how soon: `3 min ago`, `in 2 h`.
pub(super) fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - at).as_seconds_f64();
    // One unit is enough for something that is past: the exact time is in the title.
    let coarse = |seconds: f64| {
        let whole = seconds.abs().round().min(1e12) as i64;
        match whole {
            ..60 => format!("{whole} s"),
            60..3600 => format!("{} min", whole / 60),
            3600..172_800 => format!("{} h", whole / 3600),
            _ => format!("{} d", count(whole / 86_400)),
        }
    };
    match seconds {
        ..=-0.5 => format!("in {}", coarse(seconds)),
        ..0.5 => "now".to_owned(),
        _ => format!("{} ago", coarse(seconds)),
    }
}

/// `2026-01-31 12:00:05 UTC`.
pub(super) fn exact(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The time of day, with the day unless it is today: `12:00:05 UTC`, `30 Jan 12:00:05 UTC`.
pub(super) fn clock(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let is_today = at.date_naive() == now.date_naive();
    at.format(if is_today { "%H:%M:%S UTC" } else { "%-d %b %H:%M:%S UTC" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_spans_two_units() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (-1_234_567, "−1,234,567")] {
            assert_eq!(count(n), text);
        }
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.25, "250 ms"),
            (59.4, "59 s"),
            (60.0, "1 min"),
            (200.0, "3 min 20 s"),
            (7_500.0, "2 h 5 min"),
            (356_400.0, "4 d 3 h"),
            (-5.0, "0 s"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
        for (ms, text) in [(0.4, "0.4 ms"), (12.3, "12 ms"), (1_234.0, "1.2 s"), (123_000.0, "2 min 3 s")] {
            assert_eq!(milliseconds(ms), text, "{ms}");
        }
    }

    #[test]
    fn times_are_told_from_now_and_with_their_zone() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let at = |seconds: i64| DateTime::from_timestamp(1_800_000_000 - seconds, 0).unwrap();
        for (ago, text) in [(0, "now"), (5, "5 s ago"), (190, "3 min ago"), (-7_300, "in 2 h"), (864_000, "10 d ago")] {
            assert_eq!(relative(at(ago), now), text);
        }
        assert_eq!(exact(now), "2027-01-15 08:00:00 UTC");
        assert_eq!(clock(now, now), "08:00:00 UTC");
        assert_eq!(clock(at(86_400), now), "14 Jan 08:00:00 UTC");
    }
}
