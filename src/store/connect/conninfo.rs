//! Understanding a database URL, or libpq's `key=value` form, with the TLS parameters that the driver does not know.

use tokio_postgres::config::SslMode;

/// How far the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    /// Not at all: encryption keeps listeners out, not impostors.
    Nothing,
    /// Signed by a CA that we trust.
    Ca,
    /// Also issued for the host that we called.
    Full,
}

/// Where the CAs that we trust come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// A PEM file.
    File(String),
    /// The system's store.
    System,
}

/// A connection string, understood.
#[derive(Debug)]
pub(super) struct Conninfo {
    pub(super) config: tokio_postgres::Config,
    pub(super) verify: Verify,
    /// Absent when nothing is verified.
    pub(super) root: Option<Root>,
}

/// Understands a connection string; the error says what is wrong, never quoting a password.
pub(super) fn parse(text: &str) -> Result<Conninfo, String> {
    let (rest, tls) = match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => split_url(text)?,
        Some((scheme, _)) => {
            return Err(format!("begins with {scheme}://; write postgres://user:password@host/database"));
        }
        None => split_pairs(text)?,
    };
    let mut config: tokio_postgres::Config = rest.parse().map_err(|error| explain(&error))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("names no host; write postgres://user:password@host/database".into());
    }
    if config.get_application_name().is_none() {
        config.application_name("outboxd");
    }
    let (mode, verify, root) = tls.decide()?;
    config.ssl_mode(mode);
    Ok(Conninfo { config, verify, root })
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
struct TlsParameters {
    mode: Option<String>,
    root: Option<String>,
}

impl TlsParameters {
    /// Keeps the parameter if it is one of these.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.to_owned()).filter(|path| !path.is_empty()),
            "sslcert" | "sslkey" => return Err(format!("has {name}: client certificates are not supported")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn decide(self) -> Result<(SslMode, Verify, Option<Root>), String> {
        let root = self.root.map(|path| if path == "system" { Root::System } else { Root::File(path) });
        let mode = self.mode.as_deref().unwrap_or("prefer");
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
            "require" => (SslMode::Require, if_root, root),
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

/// Sets the TLS parameters of a URL aside; the rest is as it was.
fn split_url(text: &str) -> Result<(String, TlsParameters), String> {
    let mut tls = TlsParameters::default();
    let Some((before, query)) = text.split_once('?') else {
        return Ok((text.to_owned(), tls));
    };
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let decoded = url::form_urlencoded::parse(pair.replace('+', "%2B").as_bytes()).into_owned().next();
        let (name, value) = decoded.unwrap_or_default();
        if !tls.take(&name, &value)? {
            kept.push(pair);
        }
    }
    let rest = if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) };
    Ok((rest, tls))
}

/// Sets the TLS parameters of a `key=value` string aside; the rest is quoted anew.
fn split_pairs(text: &str) -> Result<(String, TlsParameters), String> {
    let mut tls = TlsParameters::default();
    let mut kept = Vec::new();
    for (name, value) in pairs(text)? {
        if !tls.take(&name, &value)? {
            let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
            kept.push(format!("{name}='{escaped}'"));
        }
    }
    Ok((kept.join(" "), tls))
}

/// The driver's own words, which name the parameter at fault and never its value.
fn explain(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    format!("is not understood: {cause}")
}
