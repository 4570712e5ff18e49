//! What apps wrote, shown by its ends alone: to tokens that may not see it, and in the log.
//!
//! **Guarantee.** In SQL, `outboxd._masked()` and `outboxd._masked_origin()` show readers the same. **Limit.** Two that have
//! the same ends look alike.

use crate::config::MASK;

/// What has fewer characters shows nothing.
const SHOWN_FROM: usize = 9;
/// Characters shown at each end of what is longer.
const ENDS: usize = 2;
/// What comes after the host and port of a URL within a text.
const AFTER_A_HOST: &str = " \t\n/?#'\"`,;()<>";

/// A recipient or a key.
pub fn ends(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() < SHOWN_FROM {
        return MASK.to_owned();
    }
    let (head, tail) = (&chars[..ENDS], &chars[chars.len() - ENDS..]);
    format!("{}{MASK}{}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

/// A text in which each host that a URL names is masked: it may come from a row, and be the recipient.
pub fn hosts(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("://") {
        let end = after.find(|c| AFTER_A_HOST.contains(c)).unwrap_or(after.len());
        // A sentence may end with it.
        let named = after[..end].trim_end_matches(['.', ':']);
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let host = named.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(named, |(host, _)| host);
        shown.extend([before, "://", &ends(host), &named[host.len()..]]);
        rest = &after[named.len()..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_of_a_long_recipient_are_shown() {
        for (recipient, shown) in [
            ("+821012345678", "+8****78"),
            ("someone@example.com", "so****om"),
            ("12345678", "****"),
            ("", "****"),
            ("가나다라마바사아자차", "가나****자차"),
        ] {
            assert_eq!(ends(recipient), shown);
        }
    }

    #[test]
    fn of_a_host_in_a_text_the_ends_are_shown() {
        for (text, shown) in [
            (
                "The circuit of push at https://alice.example is open.",
                "The circuit of push at https://al****le is open.",
            ),
            ("at https://alice.example:8443.", "at https://al****le:8443."),
            ("https://[2001:db8::4711]:8443, http://10.0.0.1", "https://[2****1]:8443, http://****"),
            ("(other)", "(other)"),
            ("://", "://****"),
        ] {
            assert_eq!(hosts(text), shown);
        }
    }
}
