//! The dashboard: what is wrong, what to do about it, and the buttons that do it.
//!
//! Pages are drawn here, from one statement each, and are whole without JavaScript; forms are posts that lead back. The
//! script adds live updates, keys and the theme. Nothing is loaded from elsewhere, and the pages' policy forbids it.
//!
//! | module | what |
//! |---|---|
//! | `page` | which page is asked for, and what it reads |
//! | `part` | lists that are read a page at a time, the worst first, or by name |
//! | `snapshots` | one snapshot of a page for all who watch it; the last one while Postgres is away |
//! | `view`, `notification` | from what was found to what a template shows |
//! | `render`, `words`, `chart` | HTML, numbers and times, SVG |
//! | `live` | the parts that changed, as server-sent events |
//! | `action`, `bulk` | what the buttons do |
//!
//! **Guarantee.** Who may not act sees no button, and the server refuses the request too. **Limit.** Pages show what the
//! views show: with a large backlog, counts as of the last snapshot.
//!
//! May change: pages, their words and their order. Must not: an action that SQL does not have, a page that needs the
//! script, or anything that is loaded from elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, SET_COOKIE};
use axum::http::request;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use minijinja::context;
use minijinja::value::Value as Context;
use tokio_util::sync::CancellationToken;

use self::page::{NAVIGATION, Page};
use self::snapshots::{Shown, Snapshots};
use self::view::Viewer;
use super::access::{self, Caller};
use super::browser::{cookies, login_page, own_page, takes_html};
use super::problem::{Kind, Problem};
use super::share::Shares;
use super::{Parts, Readiness};
use crate::config::{ChannelConfig, Config, LOCAL, Scope};

mod action;
mod assets;
mod bulk;
mod chart;
mod listing;
mod live;
mod notification;
mod page;
mod part;
mod render;
mod snapshots;
mod view;
mod words;

/// How old what a page shows may be when it is opened.
const AGE_MAX: Duration = Duration::from_millis(500);
/// How old what the navigation says of the first page may be.
const ALERT_AGE_MAX: Duration = Duration::from_secs(5);
/// What a page may load and do: our own style, script and forms.
const POLICY: (HeaderName, &str) = (
    CONTENT_SECURITY_POLICY,
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);
const THEME_COOKIE: &str = "outboxd_theme";
const FLASH_COOKIE: &str = "outboxd_said";

/// What the pages stand on.
#[derive(Debug)]
pub(super) struct Dashboard {
    readiness: Arc<Readiness>,
    snapshots: Snapshots,
    listeners: Shares,
    /// The channels' limits, in words.
    limits: BTreeMap<String, String>,
    stop: CancellationToken,
    began: Instant,
}

/// A page's body, cut into parts.
#[derive(Debug)]
struct Drawn {
    status: StatusCode,
    title: String,
    parts: Vec<(String, String)>,
    /// What the first page has to say: `critical`, `warn` or `ok`.
    alert: &'static str,
}

/// The pages; they end with `stop`.
pub(super) fn routes(config: &Config, readiness: Arc<Readiness>, stop: CancellationToken) -> Router {
    let limits = config.channels.iter().map(|(name, channel)| (name.clone(), limits(channel))).collect();
    let listeners = Shares::new(live::LISTENERS_MAX);
    let began = Instant::now();
    let dashboard = Arc::new(Dashboard { readiness, snapshots: Snapshots::default(), listeners, limits, stop, began });
    let mut pages = Router::new().route("/notifications/{id}", get(show)).route("/bulk/{id}", get(show));
    for (path, ..) in NAVIGATION {
        pages = pages.route(path, get(show));
    }
    let acting = Router::new()
        .route("/bulk/new", get(bulk::preview))
        .route("/bulk", post(bulk::start))
        .route("/act/{verb}", post(action::act))
        .route_layer(middleware::from_fn_with_state(Scope::Operate, admit));
    pages
        .route("/live", get(live::listen))
        .route_layer(middleware::from_fn_with_state(Scope::Read, admit))
        .merge(acting)
        .route("/login", get(login))
        .route("/theme", post(action::theme))
        .route("/assets/{name}", get(assets::show))
        .with_state(dashboard)
}

/// Lets those in who may; leads people to the login, and tells programs.
async fn admit(State(needed): State<Scope>, request: Request, next: Next) -> Response {
    let is_person = takes_html(request.headers());
    let theme = cookie(request.headers(), THEME_COOKIE);
    match request.extensions().get::<Caller>() {
        None if is_person => lead_to_login(&request),
        None => access::nobody(request.headers()).into_response(),
        Some(caller) => match caller.check(needed) {
            Ok(()) => next.run(request).await,
            Err(_) if is_person => {
                let needs = needed.name();
                let text =
                    format!("The token {:?} has scope {}; this needs {needs}.", caller.name(), caller.scope().name());
                alone(StatusCode::FORBIDDEN, context! { title => "Not with this token", text, theme })
            }
            Err(problem) => problem.into_response(),
        },
    }
}

/// The login leads back to the page that was asked for.
fn lead_to_login(request: &Request) -> Response {
    let page = request.uri().path_and_query().filter(|_| request.method() == Method::GET);
    Redirect::to(&login_page("", page.map_or("/", |page| page.as_str()))).into_response()
}

/// Every page.
async fn show(State(dashboard): State<Arc<Dashboard>>, caller: Caller, request: request::Parts) -> Response {
    let uri = &request.uri;
    let here = uri.path_and_query().map_or("/", |whole| whole.as_str()).to_owned();
    let viewer = Viewer { caller, here };
    let Some(page) = Page::parse(uri.path(), uri.query().unwrap_or_default()) else {
        let drawn = Drawn { alert: dashboard.alert(&viewer).await, ..not_found() };
        return dashboard.page(drawn, "", false, &viewer, &request);
    };
    if page == Page::Now && viewer.caller.topics().is_some() {
        // It is about all topics; this is the first page of a token that reads some.
        return Redirect::to("/notifications").into_response();
    }
    let drawn = dashboard.draw(&page, &viewer, AGE_MAX).await;
    dashboard.page(drawn, page.section(), page.is_live(), &viewer, &request)
}

/// `/login`: asks for a token, where there are some.
async fn login(caller: Option<Caller>, uri: Uri, headers: HeaderMap) -> Response {
    let asked: BTreeMap<_, _> = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect();
    let next = own_page(asked.get("next").map_or("/", |next| next)).to_owned();
    if caller.is_some() {
        return Redirect::to(&next).into_response();
    }
    let problem = asked.contains_key("failed").then_some("This is none of the tokens that outboxd knows.");
    let theme = cookie(&headers, THEME_COOKIE);
    alone(StatusCode::OK, context! { title => "Log in", login => true, problem, next, theme })
}

impl Dashboard {
    /// What a page says now, or said last.
    async fn draw(&self, page: &Page, viewer: &Viewer, age_max: Duration) -> Drawn {
        let drawn = self.draw_body(page, viewer, age_max).await;
        match drawn.alert {
            // Postgres was asked just now.
            "critical" => drawn,
            _ => Drawn { alert: self.alert(viewer).await, ..drawn },
        }
    }

    /// What the first page has to say, whoever opened it last.
    async fn alert(&self, viewer: &Viewer) -> &'static str {
        if Page::Now.check(&viewer.caller).is_err() {
            return "ok";
        }
        let Some(parts) = self.readiness.parts_now() else { return "ok" };
        let Shown { snapshot, trouble } = self.snapshot(&Page::Now, parts, viewer, ALERT_AGE_MAX).await;
        match snapshot {
            _ if trouble.is_some() => "critical",
            Some(snapshot) => view::worst(&snapshot.found["health"]),
            None => "ok",
        }
    }

    /// What is known of a page, by those who may see it. Nothing else asks for snapshots.
    async fn snapshot(&self, page: &Page, parts: &Parts, viewer: &Viewer, age_max: Duration) -> Shown {
        let caller = &viewer.caller;
        match page.check(caller) {
            Ok(()) => {
                let read = Box::pin(page.read(&parts.store, caller));
                self.snapshots.get(page.name(caller), age_max, read).await
            }
            Err(problem) => Shown { snapshot: None, trouble: Some(problem) },
        }
    }

    async fn draw_body(&self, page: &Page, viewer: &Viewer, age_max: Duration) -> Drawn {
        let Some(parts) = self.readiness.parts_now() else {
            return nothing(
                "This instance is starting",
                "It has not reached Postgres yet, or the schema waits for a migration. Its log says more.",
            );
        };
        let Shown { snapshot, trouble } = self.snapshot(page, parts, viewer, age_max).await;
        let Some(snapshot) = snapshot else {
            return match trouble {
                Some(problem) if problem.kind() != Kind::Unavailable => {
                    Drawn { status: problem.status(), ..nothing("This cannot be shown", problem.detail()) }
                }
                _ => {
                    let text = "Nothing of this page was seen before, so there is nothing to show. Committed notifications are safe and go on as soon as it is back.";
                    Drawn { alert: "critical", ..nothing("Postgres does not answer", text) }
                }
            };
        };
        let why = trouble.map(|trouble| why(&trouble));
        let Some(view) = view::view(page, &snapshot, why, viewer, &self.limits) else { return not_found() };
        let stale =
            why.map(|why| render::note("t-bad", &format!("{why}."), &snapshot.at.to_rfc3339())).unwrap_or_default();
        let body = render::render(view.template, view.context);
        let mut parts = vec![("stale".to_owned(), stale)];
        parts.extend(render::parts(&body));
        Drawn { status: StatusCode::OK, title: view.title, parts, alert: why.map_or("ok", |_| "critical") }
    }

    /// A body in its frame.
    fn page(&self, drawn: Drawn, section: &str, is_live: bool, viewer: &Viewer, request: &request::Parts) -> Response {
        let icon_color = match drawn.alert {
            "critical" => "%23c9372c",
            "warn" => "%23b7791f",
            _ => "%233451c6",
        };
        let live: Option<String> = is_live.then(|| {
            let page: String = url::form_urlencoded::byte_serialize(viewer.here.as_bytes()).collect();
            format!("/live?page={page}")
        });
        let may_see = |path: &str| Page::parse(path, "").is_some_and(|page| page.check(&viewer.caller).is_ok());
        let entries = NAVIGATION.into_iter().filter(|(path, ..)| may_see(path));
        let nav: Vec<Context> = entries.map(|(path, name, key, gap)| context! { path, name, key, gap }).collect();
        let is_named = viewer.caller.name() != LOCAL;
        let flash = cookie(&request.headers, FLASH_COOKIE).and_then(|text| flash(&text));
        let q = url::form_urlencoded::parse(viewer.here.split_once('?').map_or("", |(_, query)| query).as_bytes())
            .find(|(name, _)| name == "q")
            .map(|(_, q)| q.into_owned());
        let html = render::render(
            "layout.html",
            context! {
                title => drawn.title, body => render::joined(&drawn.parts), nav, active => section, live, icon_color,
                alert => render::alert(drawn.alert), flash => flash.clone(), q => q.unwrap_or_default(),
                caller => is_named.then(|| viewer.caller.name()), scope => viewer.caller.scope().name(), here => viewer.here.clone(),
                theme => cookie(&request.headers, THEME_COOKIE), css => &*assets::STYLE_PATH, js => &*assets::SCRIPT_PATH,
            },
        );
        let mut response = (drawn.status, [POLICY], Html(html)).into_response();
        // It is said once: to whoever reads the page, not to a script that asks whether it is there.
        if flash.is_some() && request.method == Method::GET {
            let gone = format!("{FLASH_COOKIE}=; Path=/; Max-Age=0; SameSite=Strict");
            response.headers_mut().extend(gone.parse().ok().map(|gone| (SET_COOKIE, gone)));
        }
        response
    }
}

/// A page without the frame.
fn alone(status: StatusCode, context: Context) -> Response {
    let html = render::render("alone.html", context! { css => &*assets::STYLE_PATH, ..context });
    (status, [POLICY], Html(html)).into_response()
}

fn nothing(title: &str, text: &str) -> Drawn {
    let (title_html, text) = (minijinja::HtmlEscape(title), minijinja::HtmlEscape(text));
    let part = format!("<div class=\"empty\"><strong>{title_html}</strong>{text}</div>");
    let parts = vec![("stale".to_owned(), String::new()), ("part-0".to_owned(), part)];
    Drawn { status: StatusCode::SERVICE_UNAVAILABLE, title: title.to_owned(), parts, alert: "ok" }
}

fn not_found() -> Drawn {
    let drawn = nothing("Not found", "There is no such page, or what it was about is past its retention.");
    Drawn { status: StatusCode::NOT_FOUND, ..drawn }
}

/// Why a page's values are not of now.
fn why(trouble: &Problem) -> &'static str {
    match trouble.kind() {
        Kind::Unavailable => "Postgres does not answer",
        _ => "This page could not be read; the log says why",
    }
}

/// A channel's limits, in words.
fn limits(channel: &ChannelConfig) -> String {
    let mut limits = Vec::new();
    if let Some(limit) = channel.rate_limit {
        let per = match limit.per.as_secs() {
            1 => "a second".to_owned(),
            60 => "a minute".to_owned(),
            _ => format!("per {}", words::span(limit.per.as_secs_f64())),
        };
        limits.push(format!("{} {per}", words::count(limit.count.into())));
    }
    if let Some(most) = channel.max_in_flight {
        limits.push(format!("{most} at a time"));
    }
    limits.push(format!("timeout {}", words::span(channel.timeout.as_secs_f64())));
    limits.join(", ")
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    cookies(headers).find(|(given, _)| *given == name).map(|(_, value)| value.to_owned())
}

/// What an action said, as its cookie holds it: a tone and a text.
fn flash(value: &str) -> Option<Context> {
    let (tone, text) = url::form_urlencoded::parse(value.as_bytes()).next()?;
    let tone = if tone == "bad" { "t-bad" } else { "t-ok" };
    Some(context! { tone, text => text.into_owned() })
}
