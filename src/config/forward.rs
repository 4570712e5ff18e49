//! Which headers a channel may set, and which of a row's it sends on: names, or beginnings of names as in `x-*`.
//!
//! **Guarantee.** Neither a channel nor a row sets what frames the message, belongs to the connection or signs it; a
//! row does not say who we are either. **Limit.** All other headers are the operator's to judge.

use http::header::HeaderName;

/// Not for operators: they frame the message, belong to the connection or the signature, or every request carries them.
pub(crate) const OWN_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Never from a row: they frame the message, say who we are, or are ours.
const NEVER: [&str; 12] = [
    "authorization",
    "connection",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];
/// Nor what begins so.
const NEVER_BEGINNING: [&str; 4] = ["content-", "outboxd-", "proxy-", "webhook-"];

/// Whether no channel may send on a header of this name, in lower case.
pub(crate) fn is_never_forwarded(name: &str) -> bool {
    NEVER.contains(&name) || NEVER_BEGINNING.iter().any(|beginning| name.starts_with(beginning))
}

/// One entry of `forward_headers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// This name, in lower case.
    Name(String),
    /// Every name that begins so.
    Beginning(String),
}

impl Pattern {
    /// Reads an entry. The error is for an operator, after "names".
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let lower = text.to_ascii_lowercase();
        let (name, is_beginning) = lower.strip_suffix('*').map_or((lower.as_str(), false), |name| (name, true));
        if !(is_beginning && name.is_empty()) && HeaderName::from_bytes(name.as_bytes()).is_err() || name.contains('*')
        {
            return Err(format!(
                "{text:?}, which is no header name; write \"x-request-id\", or \"x-*\" for all that begin so"
            ));
        }
        if is_never_forwarded(name) {
            return Err(format!("{text:?}, which is never taken from a row"));
        }
        Ok(if is_beginning { Pattern::Beginning(name.to_owned()) } else { Pattern::Name(name.to_owned()) })
    }

    /// Whether it means this name, in lower case.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Name(own) => own == name,
            Pattern::Beginning(beginning) => name.starts_with(beginning.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_name_or_the_beginning_of_names() {
        for (entry, name, expected) in [
            ("X-Request-Id", "x-request-id", true),
            ("x-request-id", "x-request-id-2", false),
            ("x-*", "x-request-id", true),
            ("x-*", "y-request-id", false),
            ("*", "tenant", true),
        ] {
            assert_eq!(Pattern::parse(entry).unwrap().matches(name), expected, "{entry} {name}");
        }
        for entry in ["", "a b", "x-*-id", "**", "Authorization", "content-*", "Webhook-Id", "proxy-x", "te", "host"] {
            assert!(Pattern::parse(entry).is_err(), "{entry}");
        }
    }
}
