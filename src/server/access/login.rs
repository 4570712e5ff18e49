//! `POST /login` and `POST /logout`: from a token to the dashboard's session and back. The pages are the dashboard's.
//!
//! **Guarantee.** A stranger's page logs nobody in or out. **Limit.** Until the instance has started nobody can log in:
//! the key that signs is in Postgres.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, Form, State};
use axum::http::header::{HeaderMap, ORIGIN, SET_COOKIE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use serde::Deserialize;

use super::guesses::By;
use super::session::{self, Transport};
use super::{Access, Proof, origin};
use crate::server::browser::{login_page, own_page, takes_html};
use crate::server::connections::Visitor;
use crate::server::problem::{Kind, Problem};

#[derive(Deserialize)]
struct Presented {
    token: String,
    /// The page that led to the login.
    #[serde(default)]
    next: String,
}

/// `POST /login`, `POST /logout`.
pub(in crate::server) fn routes(access: Arc<Access>) -> Router {
    Router::new().route("/login", post(log_in)).route("/logout", post(log_out)).with_state(access)
}

/// A page sends the form `token=…` and is led on; a program that does not take HTML gets 204 or a problem.
async fn log_in(
    State(access): State<Arc<Access>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    form: Result<Form<Presented>, FormRejection>,
) -> Result<Response, Problem> {
    origin::check(Proof::None, &Method::POST, &headers)?;
    let Form(presented) = form.map_err(|_| Problem::new(Kind::BadRequest, "send the token as a form: token=…"))?;
    let token = access.by_token(presented.token.trim().as_bytes());
    access.guesses.judge(By::Login, &visitor, token.map(|token| token.caller.name())).await;
    let Some(token) = token else {
        return match takes_html(&headers) {
            true => Ok(Redirect::to(&login_page("failed", &presented.next)).into_response()),
            false => Err(Problem::new(Kind::Unauthorized, "this is none of the tokens that outboxd knows")),
        };
    };
    visitor.is_known(Some(token.caller.name()))?;
    let cookie = session::begin(token.caller.name(), &access.key_of(token, session::PURPOSE)?, transport(&headers));
    Ok(with_cookie(cookie, &headers, own_page(&presented.next)))
}

/// A stranger's page does not log anybody out: its request comes without the cookie, but the answer would take it away.
async fn log_out(State(access): State<Arc<Access>>, headers: HeaderMap) -> Result<Response, Problem> {
    origin::check(Proof::None, &Method::POST, &headers)?;
    session::cookies(&headers).filter_map(|value| access.by_session(value)).for_each(|(_, session)| {
        access.ended.add(session);
    });
    Ok(with_cookie(session::end(transport(&headers)), &headers, "/login"))
}

fn with_cookie(cookie: HeaderValue, headers: &HeaderMap, then: &str) -> Response {
    let mut response = match takes_html(headers) {
        true => Redirect::to(then).into_response(),
        false => StatusCode::NO_CONTENT.into_response(),
    };
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

fn transport(headers: &HeaderMap) -> Transport {
    Transport::of(headers, headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()))
}
