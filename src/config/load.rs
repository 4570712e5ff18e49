//! Loading: the file, then the environment, then flags; later ones win, and all errors are told together.
//!
//! **Guarantee.** But for the file nothing is read behind the caller's back: the environment is handed in. **Limit.** A
//! configuration is read once, at start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::env::Env;
use super::error::{Error, Errors, Origin};
use super::key::{Key, KeyPath};
use super::settings::{NAMED, Settings, Shown};
use super::value::Given;
use super::{Config, DEFAULT_ROUTE, DatabaseConfig, QueueKind, Role, conninfo, env, file, validate};

/// Where the file is searched for when nobody names one, in this order.
pub const DEFAULT_FILES: [&str; 2] = ["outboxd.toml", "/etc/outboxd/outboxd.toml"];

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that `--config` names; absent: `OUTBOXD_CONFIG`, else the first of [`DEFAULT_FILES`] that exists.
    pub file: Option<PathBuf>,
    /// The environment.
    pub env: Env,
    /// `--set KEY=VALUE`: a dotted path and its value, written as in the environment.
    pub overrides: Vec<(String, String)>,
}

impl Sources {
    /// The process's own environment, and nothing else yet.
    pub fn of_process() -> Self {
        // A variable that is not Unicode cannot be one of ours.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { env: std::env::vars_os().filter_map(text).collect(), ..Self::default() }
    }
}

/// A configuration and how it came about.
#[derive(Debug)]
pub struct Loaded {
    /// What the program is told.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Every value in use and where it came from, secrets masked.
    pub shown: Vec<Shown>,
}

impl Loaded {
    /// Whether this instance can do what `--role` asks of it. Loading does not check it, because `migrate` and others
    /// get by with a database alone.
    pub fn validate_roles(&self, roles: &BTreeSet<Role>) -> Result<(), Errors> {
        let mut errors = Vec::new();
        let mut note = |path: Option<KeyPath>, what: String| errors.push(Error { origin: None, path, what });
        let missing = Role::CARRIERS.iter().filter(|role| !roles.contains(role));
        let missing: Vec<&str> = missing.map(|role| role.name()).collect();
        if self.config.queue.kind == QueueKind::Memory && !missing.is_empty() {
            let what = format!(
                "is memory, which carries nothing between processes, but --role leaves out {}; set redis_url, or run \
                 all roles in one process",
                missing.join(", ")
            );
            note(Some(KeyPath::dotted("queue.kind")), what);
        }
        if roles.contains(&Role::Worker) && self.config.routes.is_empty() {
            let what = "no route leads anywhere: add a [channels.NAME] with its url, and [routes.default] with \
                        channels = [\"NAME\"]";
            note(None, what.into());
        }
        if errors.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            let files = DEFAULT_FILES.join(", ");
            let what = format!("no configuration file was found ({files}, or what --config names)");
            errors.push(Error { origin: None, path: None, what });
        }
        Err(Errors(errors))
    }
}

/// What a command needs that works with the database alone.
#[derive(Debug)]
pub struct Database {
    /// Where the record lives.
    pub url: SecretString,
    /// `[database]`
    pub settings: DatabaseConfig,
    /// What of the URL is not used.
    pub warnings: Vec<String>,
}

/// Loads and validates.
pub fn load(sources: &Sources) -> Result<Loaded, Errors> {
    let (settings, config, file) = read(sources);
    if settings.errors.is_empty() {
        return Ok(Loaded { config, file, shown: settings.shown() });
    }
    Err(Errors::sorted(settings.errors))
}

/// Loads what commands need that work with the database alone. Channels, routes, Redis and their secrets may be wrong
/// or missing: whoever reads or acts need not hold them.
pub fn load_database(sources: &Sources) -> Result<Database, Errors> {
    let (mut settings, config, _) = read(sources);
    // A name that is misspelt may be the reason why the URL is missing, so then everything is told.
    if !settings.errors.iter().any(is_missing_database) {
        settings.errors.retain(is_about_database);
    }
    if !settings.errors.is_empty() {
        return Err(Errors::sorted(settings.errors));
    }
    let warnings = conninfo::warnings(config.database_url.expose_secret(), config.database.pooler);
    Ok(Database { url: config.database_url, settings: config.database, warnings })
}

/// The defaults, with a token, a channel and a route called `default`: where tests and benches begin.
pub fn defaults() -> Config {
    let mut settings = Settings::default();
    NAMED.iter().for_each(|section| settings.mention(&KeyPath(vec![(*section).into(), DEFAULT_ROUTE.into()])));
    settings.fill();
    settings.config()
}

/// Reads all sources and notes all that is wrong.
fn read(sources: &Sources) -> (Settings, Config, Option<PathBuf>) {
    let mut settings = Settings::default();
    let file = find_file(sources);
    let file_is_whole = file.as_ref().is_none_or(|path| read_file(&mut settings, path, &sources.env));
    env::read(&mut settings, &sources.env);
    for (path, value) in &sources.overrides {
        take_override(&mut settings, path, value);
    }
    settings.fill();
    let config = settings.config();
    if file_is_whole {
        settings.note_missing();
        validate::config(&mut settings, &config);
    }
    // The first thing that many will see.
    for error in settings.errors.iter_mut().filter(|error| file.is_none() && is_missing_database(error)) {
        error.what = format!(
            "is missing, and there is no configuration file ({}): set \
             DATABASE_URL=postgres://user:password@host/database, or write a file, beginning from outboxd.example.toml",
            DEFAULT_FILES.join(" or ")
        );
    }
    (settings, config, file)
}

fn find_file(sources: &Sources) -> Option<PathBuf> {
    let named = sources.env.get("OUTBOXD_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
    sources.file.clone().or(named).or_else(|| DEFAULT_FILES.iter().map(PathBuf::from).find(|path| path.exists()))
}

fn read_file(settings: &mut Settings, path: &Path, env: &Env) -> bool {
    match std::fs::read_to_string(path) {
        Ok(text) => file::read(settings, path, &text, env),
        Err(error) => {
            let what = format!("the configuration file {} could not be read: {error}", path.display());
            settings.errors.push(Error { origin: None, path: None, what });
            false
        }
    }
}

fn take_override(settings: &mut Settings, text: &str, value: &str) {
    let path = override_path(text);
    match Key::find(&path) {
        Some(key) => settings.give(key, path, &Given::open(value), value, Origin::Flag),
        None => settings.wrong(Origin::Flag, path.clone(), file::unknown(&path)),
    }
}

/// A dotted path; a part that holds dots itself is quoted, as in TOML: `routes."order.paid".max_attempts`.
fn override_path(text: &str) -> KeyPath {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c => parts.last_mut().into_iter().for_each(|part| part.push(c)),
        }
    }
    KeyPath(parts)
}

fn is_missing_database(error: &Error) -> bool {
    error.origin.is_none() && error.path == Some(KeyPath::dotted("database_url"))
}

/// What hides the URL or the settings of the connection: an error of theirs, or of the file as a whole.
fn is_about_database(error: &Error) -> bool {
    match (&error.path, &error.origin) {
        // Whoever typed it means this command.
        (_, Some(Origin::Flag)) => true,
        (Some(path), _) => path.0.first().is_some_and(|part| part == "database_url" || part == "database"),
        (None, origin) => !matches!(origin, Some(Origin::Env(_))),
    }
}
