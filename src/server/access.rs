//! Who asks, and what they may do.
//!
//! One middleware, [`identify`], finds out who asks and puts a [`Caller`] into the request: by `Authorization: Bearer`,
//! by the dashboard's session cookie, or, where no token is configured, as `local`. Routes say what they need with
//! [`require`], and handlers take a `Caller` as an argument.
//!
//! | | tokens configured | none (loopback only) |
//! |---|---|---|
//! | bearer token | its name and scope | not checked |
//! | session cookie | the name and scope of the token it was made with | not checked |
//! | neither | nobody: 401 | `local`, who may do everything |
//!
//! What a browser may be made to send by a stranger's page is refused by [`origin`]; wrong tokens are slowed by
//! [`guesses`].
//!
//! **Guarantee.** Where tokens are configured nobody reads or acts without one, and neither memory nor timing tells
//! one. **Limit.** Tokens are those of the configuration: a new one needs a restart.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Extension, FromRequestParts, OptionalFromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hmac::Mac as _;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::connections::Visitor;
use super::problem::{Kind, Problem};
use crate::config::{Config, HTTP_TOKEN, LOCAL, Scope, TokenConfig};

mod guesses;
mod login;
mod origin;
mod session;
mod signature;
mod ticket;

use guesses::{By, Guesses};
pub(super) use login::routes;
pub(super) use origin::is_local;
use session::Known;
use signature::Key;

/// Between looks whether a session has ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Caller(Arc<Rights>);

/// What a token is good for.
#[derive(Debug)]
struct Rights {
    name: String,
    scope: Scope,
    topics: Option<Vec<String>>,
    payloads: bool,
}

impl Caller {
    /// The token's name, `http_token` or `local`: who acted, in `outboxd.audit`.
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// What it may do.
    pub(super) fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Whether it sees payloads, headers and whole recipients.
    pub(super) fn may_see_payloads(&self) -> bool {
        self.0.payloads
    }

    /// What decides what it is shown: those of whom this is alike see alike.
    pub(super) fn sight(&self) -> String {
        let Rights { name, scope, topics, payloads } = &*self.0;
        let of_topics = topics.as_ref().map_or("", |_| name);
        format!("{} {payloads} {of_topics}", scope.name())
    }

    /// Patterns of LIKE, one of which a topic must match; `None`: every topic is its own.
    pub(super) fn topics(&self) -> Option<Vec<String>> {
        let pattern = |topic: &String| {
            let (name, rest) = topic.strip_suffix('*').map_or((topic.as_str(), ""), |beginning| (beginning, "%"));
            let literal = name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            format!("{literal}{rest}")
        };
        self.0.topics.as_ref().map(|topics| topics.iter().map(pattern).collect())
    }

    /// Its only topic, if it has one and that is a whole name.
    pub(super) fn only_topic(&self) -> Option<&str> {
        match self.0.topics.as_deref() {
            Some([topic]) if !topic.ends_with('*') => Some(topic),
            _ => None,
        }
    }

    /// Whether it may read, write to, listen to or act on this topic.
    pub(super) fn may_use_topic(&self, topic: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => topic == pattern,
        };
        self.0.topics.as_ref().is_none_or(|topics| topics.iter().any(matches))
    }

    /// Whether it may do that (`read`, `write to`, `listen to`, `act on`) with this topic, else the problem that says so.
    pub(super) fn check_topic(&self, doing: &str, topic: &str) -> Result<(), Problem> {
        if self.may_use_topic(topic) {
            return Ok(());
        }
        let name = self.name();
        let detail = format!("the token {name:?} may not {doing} the topic {topic:?} (tokens.{name}.topics)");
        Err(Problem::new(Kind::Forbidden, detail))
    }

    /// Whether it may do what needs this scope, else the problem that says so.
    pub(super) fn check(&self, needed: Scope) -> Result<(), Problem> {
        if self.scope().covers(needed) {
            return Ok(());
        }
        let detail = format!(
            "the token {:?} has scope {}; this needs {} (tokens.{}.scope)",
            self.name(),
            self.scope().name(),
            needed.name(),
            self.name()
        );
        Err(Problem::new(Kind::Forbidden, detail))
    }
}

/// 401 without a caller.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Problem> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| nobody(&parts.headers))
    }
}

/// `None` without a caller.
impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Caller>, Infallible> {
        Ok(parts.extensions.get::<Caller>().cloned())
    }
}

/// All tokens. Only keyed hashes of them are kept, and hashes are compared in constant time, so that neither memory nor
/// timing tells one.
pub(super) struct Access {
    hasher: Key,
    tokens: Vec<Token>,
    /// Who asks while there are no tokens.
    local: Caller,
    /// Signs their tickets.
    local_tickets: Key,
    /// Known once the instance has started.
    installation: SigningKey,
    guesses: Guesses,
    ended: session::Ended,
}

/// The key of this installation, as soon as Postgres has told it.
pub(super) type SigningKey = Arc<OnceLock<SecretSlice<u8>>>;

struct Token {
    hash: [u8; 32],
    /// What it signs with is made from this and the installation's key.
    key: Key,
    caller: Caller,
}

impl Token {
    fn new(hasher: &Key, secret: &SecretString, rights: Rights) -> Token {
        Token {
            hash: hasher.mac(secret.expose_secret().as_bytes()).finalize().into_bytes().into(),
            key: Key::of_token(&rights.name, secret),
            caller: Caller(Arc::new(rights)),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tokens.iter().map(|token| &token.caller)).finish()
    }
}

impl Access {
    pub(super) fn new(config: &Config, installation: SigningKey) -> Access {
        let hasher = Key::random();
        let of_config = |(name, given): (&String, &TokenConfig)| {
            let (topics, payloads) = (given.topics.clone(), given.payloads);
            Token::new(&hasher, &given.token, Rights { name: name.clone(), scope: given.scope, topics, payloads })
        };
        let http_token = config.http_token.as_ref().map(|secret| Token::new(&hasher, secret, everything(HTTP_TOKEN)));
        let tokens = http_token.into_iter().chain(config.tokens.iter().map(of_config)).collect();
        let local = Caller(Arc::new(everything(LOCAL)));
        let (guesses, ended) = Default::default();
        Access { hasher, tokens, local, local_tickets: Key::random(), installation, guesses, ended }
    }

    /// What signs for this token.
    fn key_of(&self, token: &Token, purpose: &str) -> Result<Key, Problem> {
        let starts = || Problem::new(Kind::Unavailable, "outboxd starts; try again");
        Ok(token.key.in_installation(self.installation.get().ok_or_else(starts)?, purpose))
    }

    /// Whether everybody who reaches us may do everything.
    pub(super) fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token that this is. All are compared, so that the time does not tell which.
    fn by_token(&self, given: &[u8]) -> Option<&Token> {
        let given = self.hasher.mac(given);
        let matches = |token: &&Token| given.clone().verify_slice(&token.hash).is_ok();
        self.tokens.iter().fold(None, |found, token| found.or(Some(token).filter(matches)))
    }

    /// Who asks, whether a browser added that by itself, and by which session.
    fn caller(&self, headers: &HeaderMap) -> Option<(Caller, Proof, Option<Known>)> {
        if self.is_open() {
            return Some((self.local.clone(), Proof::None, None));
        }
        if headers.contains_key(AUTHORIZATION) {
            let token = self.by_token(bearer(headers)?)?;
            return Some((token.caller.clone(), Proof::Bearer, None));
        }
        let (caller, session) = session::cookies(headers).find_map(|value| self.by_session(value))?;
        Some((caller, Proof::Cookie, Some(session)))
    }

    /// The same, told when a token that is presented may be told right or wrong. All that looks at one asks here.
    async fn judged(&self, headers: &HeaderMap, visitor: &Visitor) -> Option<(Caller, Proof, Option<Known>)> {
        let found = self.caller(headers);
        if !self.is_open() && bearer(headers).is_some() {
            self.guesses.judge(By::Bearer, visitor, found.as_ref().map(|(caller, ..)| caller.name())).await;
        }
        found
    }

    /// The token whose requests are counted together; `None`: there are no tokens, and nobody to leave a share to.
    pub(super) fn token_of<'a>(&self, caller: &'a Caller) -> Option<&'a str> {
        (!self.is_open()).then(|| caller.name())
    }

    /// Who opens a WebSocket without a ticket. A page may, if it is ours or of one of these origins.
    pub(super) async fn listener(
        self: &Arc<Access>,
        headers: &HeaderMap,
        allowed_origins: &[String],
        visitor: &Visitor,
    ) -> Result<(Caller, Standing), Problem> {
        let (caller, proof, session) = self.judged(headers, visitor).await.ok_or_else(|| nobody(headers))?;
        origin::check_socket(proof, headers, allowed_origins)?;
        Ok((caller, Standing { access: Arc::clone(self), session }))
    }

    fn by_session(&self, value: &str) -> Option<(Caller, Known)> {
        let session = session::Session::parse(value)?;
        let token = self.tokens.iter().find(|token| token.caller.name() == session.name())?;
        let known = session.known(&self.key_of(token, session::PURPOSE).ok()?)?;
        (!self.ended.holds(&known)).then(|| (token.caller.clone(), known))
    }
}

/// Whether who asked may still do so; streams end with it.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    access: Arc<Access>,
    /// `None`: it showed a token, which holds as long as this process.
    session: Option<Known>,
}

impl Standing {
    /// Waits until who asked may no longer do so.
    pub(super) async fn ended(&self) {
        let Some(session) = &self.session else { return std::future::pending().await };
        while !session.is_over() && !self.access.ended.holds(session) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// How a caller showed who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// There are no tokens.
    None,
    /// A browser does not add it by itself.
    Bearer,
    /// A browser adds it to whatever a page makes it ask.
    Cookie,
}

fn everything(name: &str) -> Rights {
    Rights { name: name.to_owned(), scope: Scope::Operate, topics: None, payloads: true }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

pub(super) fn nobody(headers: &HeaderMap) -> Problem {
    let detail = match headers.contains_key(AUTHORIZATION) {
        true => "the token is none that is configured here: Authorization: Bearer <token>",
        false => "present a token: Authorization: Bearer <token>",
    };
    Problem::new(Kind::Unauthorized, detail)
}

/// Finds out who asks; refuses what a stranger's page made a browser ask.
pub(super) async fn identify(
    State(access): State<Arc<Access>>,
    Extension(visitor): Extension<Visitor>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some((caller, proof, session)) = access.judged(request.headers(), &visitor).await {
        let is_fine = origin::check(proof, request.method(), request.headers());
        if let Err(problem) = is_fine.and_then(|()| visitor.is_known(access.token_of(&caller))) {
            return problem.into_response();
        }
        request.extensions_mut().insert(Standing { access, session });
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// Lets those pass who may do what needs this scope. For `middleware::from_fn_with_state(Scope::Read, access::require)`.
pub(super) async fn require(State(needed): State<Scope>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().ok_or_else(|| nobody(request.headers()));
    match caller.and_then(|caller| caller.check(needed)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests;
