//! Understanding a database URL, or libpq's `key=value` form, with the TLS parameters that the driver does not know.
//!
//! An app's URL often serves several tools, each with parameters of its own. What no tool but its own understands is
//! left aside and told; what bears on security and is not known is refused.
//!
//! **Guarantee.** No error and no warning repeats a value. **Limit.** Client certificates are not supported, and
//! libpq's own files (`service`, `passfile`) are not read.

use tokio_postgres::config::SslMode;

use super::suggest::did_you_mean;
use crate::tls::postgres::{Root, Verify};

/// What the driver takes itself.
const DRIVERS_OWN: [&str; 18] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

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
    /// Parameters of other tools, by name, as they were left aside.
    ignored: Vec<String>,
    /// Some tool is told that a transaction-mode pooler stands in between.
    says_pgbouncer: bool,
}

/// Understands a connection string; the error says what is wrong, never quoting a password.
pub(crate) fn parse(text: &str) -> Result<Conninfo, String> {
    let (rest, aside) = match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => split_url(text)?,
        Some((scheme, _)) => {
            return Err(format!("begins with {scheme}://; write postgres://user:password@host/database"));
        }
        None => split_pairs(text)?,
    };
    let is_torn = text.contains("://") && (is_torn(&rest) || aside.ignored.iter().any(|name| name.contains('@')));
    let mut config: tokio_postgres::Config = match rest.parse() {
        _ if is_torn => return Err(format!("is torn apart by a character of its user or password; {PERCENT}")),
        Ok(config) => config,
        Err(error) => return Err(explain(&error)),
    };
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("names no host; write postgres://user:password@host/database".into());
    }
    if config.get_application_name().is_none() {
        config.application_name("outboxd");
    }
    let Aside { tls, ignored, says_pgbouncer } = aside;
    let (mode, verify, root) = tls.decide()?;
    config.ssl_mode(mode);
    Ok(Conninfo { config, verify, root, ignored, says_pgbouncer })
}

/// What of a database URL is not used, with what to set instead; names only, for a value may be a secret.
pub(crate) fn warnings(text: &str, pooler: bool) -> Vec<String> {
    let Ok(info) = parse(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    if !info.ignored.is_empty() {
        let mut instead: Vec<&str> = (info.ignored.iter())
            .filter_map(|name| INSTEAD.iter().find(|(known, _)| known == name).map(|(_, setting)| *setting))
            .collect();
        instead.dedup();
        let hint = if instead.is_empty() { String::new() } else { format!("; set {} instead", instead.join(", ")) };
        warnings
            .push(format!("database_url has parameters of other tools, ignored: {}{hint}", info.ignored.join(", ")));
    }
    if info.says_pgbouncer && !pooler {
        warnings.push(
            "database_url says pgbouncer=true: if it leads to a transaction-mode pooler, set database.pooler = true \
             (OUTBOXD_DATABASE_POOLER=true)"
                .into(),
        );
    }
    warnings
}

/// The pairs of libpq's `key=value` form; values may be quoted, and `\` escapes.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(pairs);
        }
        let mut name = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            name.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') || name.is_empty() {
            return Err("is neither a URL (postgres://…) nor a list of key=value pairs".into());
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        pairs.push((name, pair_value(&mut chars)?));
    }
}

fn pair_value(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let quoted = chars.next_if_eq(&'\'').is_some();
    let mut value = String::new();
    while let Some(c) = chars.next_if(|c| quoted || !c.is_whitespace()) {
        match c {
            '\'' if quoted => return Ok(value),
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    if quoted { Err("has a quote that does not end".into()) } else { Ok(value) }
}

/// The parameters that the driver does not know, set aside.
#[derive(Debug, Default)]
struct Aside {
    tls: TlsParameters,
    ignored: Vec<String>,
    says_pgbouncer: bool,
}

#[derive(Debug, Default)]
struct TlsParameters {
    mode: Option<String>,
    /// `ssl=true`, as drivers of other languages write it; `sslmode` says more.
    ssl: bool,
    root: Option<String>,
}

impl Aside {
    /// Takes the parameter, unless it is the driver's.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            name if DRIVERS_OWN.contains(&name) => return Ok(false),
            "sslmode" => self.tls.mode = Some(value.to_owned()),
            "sslrootcert" => self.tls.root = Some(value.to_owned()).filter(|path| !path.is_empty()),
            "sslcert" | "sslkey" => return Err(format!("has {name}: client certificates are not supported")),
            "ssl" if matches!(value, "true" | "1") => self.tls.ssl = true,
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
}

impl TlsParameters {
    fn decide(self) -> Result<(SslMode, Verify, Option<Root>), String> {
        let root = self.root.map(|path| if path == "system" { Root::System } else { Root::File(path) });
        let mode = self.mode.as_deref().unwrap_or(if self.ssl { "require" } else { "prefer" });
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
                return Err(format!(
                    "has sslmode={other}; it takes disable, prefer, require, verify-ca or verify-full"
                ));
            }
        })
    }
}

/// Whether more than one @ stands before the hosts' end: one of them belongs to the password.
fn is_torn(url: &str) -> bool {
    url.split('?').next().is_some_and(|before| before.matches('@').count() > 1)
}

/// Sets what is not the driver's aside; the rest is as it was.
fn split_url(text: &str) -> Result<(String, Aside), String> {
    let mut aside = Aside::default();
    let Some((before, query)) = text.split_once('?') else {
        return Ok((text.to_owned(), aside));
    };
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let decoded = url::form_urlencoded::parse(pair.replace('+', "%2B").as_bytes()).into_owned().next();
        let (name, value) = decoded.unwrap_or_default();
        if !aside.take(&name, &value)? {
            kept.push(pair);
        }
    }
    let rest = if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) };
    Ok((rest, aside))
}

/// Sets what is not the driver's aside; the rest is quoted anew.
fn split_pairs(text: &str) -> Result<(String, Aside), String> {
    let mut aside = Aside::default();
    let mut kept = Vec::new();
    for (name, value) in pairs(text)? {
        if !aside.take(&name, &value)? {
            let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
            kept.push(format!("{name}='{escaped}'"));
        }
    }
    Ok((kept.join(" "), aside))
}

/// The driver's own words, which name the parameter at fault and never its value.
fn explain(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    format!("is not understood: {cause}")
}
