//! Printing what holds a secret.
//!
//! **Guarantee.** A password does not show, however it is written. **Limit.** Secrets are known by where they stand and
//! by the names of parameters: one in the path of a URL shows.

use crate::config::conninfo;

/// What stands in for a secret.
pub const MASK: &str = "****";

/// A connection URL, or a `key=value` connection string, without its password.
///
/// Rather hides too much than too little: a password may hold an unescaped `@`, `/` or `?`, so everything up to the
/// last `@` counts as credentials.
pub fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return key_values(text);
    };
    let masked = match rest.rsplit_once('@') {
        Some((credentials, host)) => match credentials.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{host}"),
            None => format!("{credentials}@{host}"),
        },
        None => rest.to_owned(),
    };
    format!("{scheme}://{}", query(&masked))
}

/// Masks parameters of a URL's query that hold a password.
fn query(text: &str) -> String {
    let Some((before, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let one = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    format!("{before}?{}", query.split('&').map(one).collect::<Vec<_>>().join("&"))
}

fn key_values(text: &str) -> String {
    let Ok(pairs) = conninfo::pairs(text) else {
        return MASK.to_owned();
    };
    let one = |(name, value): (String, String)| match is_secret(&name) {
        true => format!("{name}={MASK}"),
        false => format!("{name}={value}"),
    };
    pairs.into_iter().map(one).collect::<Vec<_>>().join(" ")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "token", "secret", "key"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn a_password_never_shows_however_it_is_written() {
        for (written, shown) in [
            ("postgres://app:hunter2@db:5432/app", "postgres://app:****@db:5432/app"),
            ("postgres://app:hun@t/e?r2@db/app", "postgres://app:****@db/app"),
            ("redis://:hunter2@cache:6379,other:6379/0", "redis://:****@cache:6379,other:6379/0"),
            ("postgres://db/app?user=a&password=hunter2", "postgres://db/app?user=a&password=****"),
            ("host=db user=app password='hunter 2'", "host=db user=app password=****"),
            ("postgres://db/app", "postgres://db/app"),
            ("hunter2", "****"),
        ] {
            assert_eq!(url(written), shown);
        }
    }
}
