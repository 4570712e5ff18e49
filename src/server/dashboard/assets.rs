//! The style sheet and the script. Their address holds a hash of what they say, so a browser keeps them for good.
//!
//! **Guarantee.** A page never gets the style or script of another version. **Limit.** One that was opened before an
//! upgrade must be reloaded.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::server::problem::{Kind, Problem};

const STYLE: &str = include_str!("assets/app.css");
const SCRIPT: &str = include_str!("assets/app.js");

pub(super) static STYLE_PATH: LazyLock<String> = LazyLock::new(|| path(STYLE, "css"));
pub(super) static SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| path(SCRIPT, "js"));

fn path(text: &str, extension: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let name: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("/assets/{name}.{extension}")
}

/// `/assets/{name}`
pub(super) async fn show(Path(name): Path<String>) -> Response {
    let path = format!("/assets/{name}");
    let (kind, text) = if path == *STYLE_PATH {
        ("text/css; charset=utf-8", STYLE)
    } else if path == *SCRIPT_PATH {
        ("text/javascript; charset=utf-8", SCRIPT)
    } else {
        return Problem::new(Kind::NotFound, "there is no such file; reload the page").into_response();
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], text).into_response()
}
