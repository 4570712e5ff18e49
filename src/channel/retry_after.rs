//! `Retry-After`: seconds or a date, whatever a provider writes into it, as a bounded wait. It lengthens the backoff (`retry::decide`) and
//! may hold the whole origin (`channel::circuit`).

use std::time::{Duration, SystemTime};

/// Reads the header. A date in the past means no wait; what is neither seconds nor a date says nothing.
pub(super) fn parse(value: &[u8], now: SystemTime, max: Duration) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a u64 holds is still "very long".
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(wait.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_every_form_and_capped() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let hour = Duration::from_secs(3600);
        let cases: [(&[u8], Option<Duration>); 11] = [
            (b"0", Some(Duration::ZERO)),
            (b" 30 ", Some(Duration::from_secs(30))),
            (b"3601", Some(hour)),
            (b"99999999999999999999999999", Some(hour)),
            (b"Sun, 06 Nov 1994 08:50:07 GMT", Some(Duration::from_secs(30))),
            (b"Sun, 06 Nov 1994 08:00:00 GMT", Some(Duration::ZERO)),
            (b"Fri, 31 Dec 9999 23:59:59 GMT", Some(hour)),
            (b"-5", None),
            (b"soon", None),
            (b"", None),
            (b"\xff", None),
        ];
        for (value, expected) in cases {
            assert_eq!(parse(value, now, hour), expected, "{:?}", String::from_utf8_lossy(value));
        }
    }
}
