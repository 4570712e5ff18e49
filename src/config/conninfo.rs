//! Understanding a database URL, or libpq's `key=value` form, with the TLS parameters that the driver does not know;
//! and printing such a text without its password.
//!
//! An app's URL often serves several tools, each with parameters of its own. What no tool but its own understands is
//! left aside and told; what bears on security and is not known is refused.
//!
//! **Guarantee.** No error and no warning repeats a value, and a password does not show, however it is written.
//! **Limit.** Client certificates are not supported, and libpq's own files (`service`, `passfile`) are not read. A
//! secret in the path of a URL shows.

use tokio_postgres::config::SslMode;

use super::error::did_you_mean;
use crate::tls::postgres::{Root, Verify};

/// What the driver takes itself.
const DRIVERS_OWN: &str = "application_name channel_binding connect_timeout dbname host hostaddr keepalives \
    keepalives_idle keepalives_interval keepalives_retries load_balance_hosts options password port sslnegotiation \
    target_session_attrs tcp_user_timeout user";

/// Where outboxd has a setting for what another tool's parameter says.
const INSTEAD: [(&str, &str); 5] = [
    ("pool", "database.pool_size"),
    ("pool_size", "database.pool_size"),
    ("connection_limit", "database.pool_size"),
    ("statement_timeout", "database.statement_timeout"),
    ("sslaccept", "sslmode=verify-full"),
];

/// What a user or password of a URL cannot hold as it is.
pub(super) const PERCENT: &str = "write @ there as %40, / as %2F, ? as %3F, # as %23, % as %25";

/// A connection string, understood.
#[derive(Debug)]
pub(crate) struct Conninfo {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) verify: Verify,
    /// Absent when nothing is verified.
    pub(crate) root: Option<Root>,
    aside: Aside,
}

/// Understands a connection string; the error says what is wrong, never quoting a password.
pub(crate) fn parse(text: &str) -> Result<Conninfo, String> {
    let mut aside = Aside::default();
    let own = match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => aside.split_url(text)?,
        Some((scheme, _)) => {
            return Err(format!("begins with {scheme}://; write postgres://user:password@host/database"));
        }
        None => aside.split_pairs(text)?,
    };
    // More than one @ before the hosts' end: one of them belongs to the password.
    let is_torn = own.split('?').next().is_some_and(|before| before.matches('@').count() > 1);
    if text.contains("://") && (is_torn || aside.ignored.iter().any(|name| name.contains('@'))) {
        return Err(format!("is torn apart by a character of its user or password; {PERCENT}"));
    }
    let mut config: tokio_postgres::Config = own.parse().map_err(|error: tokio_postgres::Error| {
        // The driver's own words name the parameter at fault and never its value.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("is not understood: {cause}")
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("names no host; write postgres://user:password@host/database".into());
    }
    if config.get_application_name().is_none() {
        config.application_name("outboxd");
    }
    let (mode, verify, root) = aside.tls()?;
    config.ssl_mode(mode);
    Ok(Conninfo { config, verify, root, aside })
}

/// What of a database URL is not used, with what to set instead; names only, for a value may be a secret.
pub(crate) fn warnings(text: &str, pooler: bool) -> Vec<String> {
    let Ok(Conninfo { aside, .. }) = parse(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    if !aside.ignored.is_empty() {
        let setting = |name: &String| INSTEAD.iter().find(|(known, _)| known == name).map(|(_, setting)| *setting);
        let mut instead: Vec<&str> = aside.ignored.iter().filter_map(setting).collect();
        instead.dedup();
        let hint = if instead.is_empty() { String::new() } else { format!("; set {} instead", instead.join(", ")) };
        let ignored = aside.ignored.join(", ");
        warnings.push(format!("database_url has parameters of other tools, ignored: {ignored}{hint}"));
    }
    if aside.says_pgbouncer && !pooler {
        let what = "database_url says pgbouncer=true: if it leads to a transaction-mode pooler, set database.pooler = true \
                    (OUTBOXD_DATABASE_POOLER=true)";
        warnings.push(what.into());
    }
    warnings
}

/// The pairs of libpq's `key=value` form; values may be quoted, and `\` escapes.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let (mut pairs, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').map(|(name, after)| (name.trim_end(), after)).unwrap_or_default();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err("is neither a URL (postgres://…) nor a list of key=value pairs".into());
        }
        let (value, after) = pair_value(after.trim_start())?;
        pairs.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// The value that the text begins with, and what follows it.
fn pair_value(text: &str) -> Result<(String, &str), String> {
    let is_quoted = text.starts_with('\'');
    let (mut value, mut chars) = (String::new(), text[usize::from(is_quoted)..].chars());
    while let Some(c) = chars.next() {
        match c {
            '\'' if is_quoted => return Ok((value, chars.as_str())),
            c if c.is_whitespace() && !is_quoted => return Ok((value, chars.as_str())),
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    if is_quoted { Err("has a quote that does not end".into()) } else { Ok((value, "")) }
}

/// The parameters that the driver does not know, set aside.
#[derive(Debug, Default)]
struct Aside {
    sslmode: Option<String>,
    /// `ssl=true`, as drivers of other languages write it; `sslmode` says more.
    ssl: bool,
    sslrootcert: Option<String>,
    /// Of other tools, by name.
    ignored: Vec<String>,
    /// Some tool is told that a transaction-mode pooler stands in between.
    says_pgbouncer: bool,
}

impl Aside {
    /// Takes the parameter, unless it is the driver's.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            name if DRIVERS_OWN.split(' ').any(|own| own == name) => return Ok(false),
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.sslrootcert = Some(value.to_owned()).filter(|path| !path.is_empty()),
            "sslcert" | "sslkey" => return Err(format!("has {name}: client certificates are not supported")),
            "ssl" if matches!(value, "true" | "1") => self.ssl = true,
            "sslaccept" | "ssl" => self.ignored.push(name.to_owned()),
            // To leave such a one aside would mean less security than somebody asked for.
            name if name.starts_with("ssl") || name.starts_with("require") => {
                let hint = did_you_mean(name, ["sslmode", "sslrootcert", "sslnegotiation"]);
                return Err(format!("has {name}, which outboxd does not know{hint}"));
            }
            name => {
                self.says_pgbouncer |= name == "pgbouncer" && value == "true";
                self.ignored.push(name.to_owned());
            }
        }
        Ok(true)
    }

    /// What is the driver's of a URL, as it was.
    fn split_url(&mut self, text: &str) -> Result<String, String> {
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        let mut own = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let decoded = url::form_urlencoded::parse(pair.replace('+', "%2B").as_bytes()).into_owned().next();
            let (name, value) = decoded.unwrap_or_default();
            if !self.take(&name, &value)? {
                own.push(pair);
            }
        }
        Ok(if own.is_empty() { before.to_owned() } else { format!("{before}?{}", own.join("&")) })
    }

    /// What is the driver's of a list of pairs, quoted anew.
    fn split_pairs(&mut self, text: &str) -> Result<String, String> {
        let mut own = Vec::new();
        for (name, value) in pairs(text)? {
            if !self.take(&name, &value)? {
                own.push(format!("{name}='{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
            }
        }
        Ok(own.join(" "))
    }

    fn tls(&self) -> Result<(SslMode, Verify, Option<Root>), String> {
        let named = |path: &str| if path == "system" { Root::System } else { Root::File(path.to_owned()) };
        let root = self.sslrootcert.as_deref().map(named);
        let mode = self.sslmode.as_deref().unwrap_or(if self.ssl { "require" } else { "prefer" });
        if root == Some(Root::System) && !matches!(mode, "verify-full" | "disable") {
            return Err(format!(
                "has sslrootcert=system with sslmode={mode}: any holder of a public certificate would pass; use \
                 sslmode=verify-full"
            ));
        }
        let if_root = if root.is_some() { Verify::Ca } else { Verify::Nothing };
        Ok(match mode {
            "disable" => (SslMode::Disable, Verify::Nothing, None),
            "allow" | "prefer" => (SslMode::Prefer, if_root, root),
            // The second is node-postgres's word for it.
            "require" | "no-verify" => (SslMode::Require, if_root, root),
            "verify-ca" if root.is_none() => return Err("has sslmode=verify-ca without sslrootcert=FILE".into()),
            "verify-ca" => (SslMode::Require, Verify::Ca, root),
            "verify-full" => (SslMode::Require, Verify::Full, Some(root.unwrap_or(Root::System))),
            other => {
                let known = "disable, prefer, require, verify-ca or verify-full";
                return Err(format!("has sslmode={other}; it takes {known}"));
            }
        })
    }
}

/// What stands in for a secret.
pub const MASK: &str = "****";

/// A connection URL, or a `key=value` connection string, without its password.
///
/// Rather hides too much than too little: a password may hold an unescaped `@`, `/` or `?`, so everything up to the
/// last `@` counts as credentials.
pub fn mask(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return mask_pairs(text);
    };
    let masked = match rest.rsplit_once('@') {
        Some((credentials, host)) => match credentials.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{host}"),
            None => format!("{credentials}@{host}"),
        },
        None => rest.to_owned(),
    };
    format!("{scheme}://{}", mask_query(&masked))
}

/// Masks parameters of a URL's query that hold a password.
fn mask_query(text: &str) -> String {
    let Some((before, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let one = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    format!("{before}?{}", query.split('&').map(one).collect::<Vec<_>>().join("&"))
}

fn mask_pairs(text: &str) -> String {
    let Ok(pairs) = pairs(text) else {
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
    use super::mask;

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
            assert_eq!(mask(written), shown);
        }
    }
}
