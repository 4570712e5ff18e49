//! The collector that spans go to: its address and headers.
//!
//! **Guarantee.** The endpoint, which `check` prints, holds no secret. **Limit.** Nobody is called: a collector that is
//! away is noticed only by lost spans.

use http::header::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::config::TelemetryConfig;
use crate::config::key::KeyPath;
use crate::config::settings::Settings;

/// Headers that frame the message.
const OWN_HEADERS: [&str; 5] = ["connection", "content-length", "content-type", "host", "transfer-encoding"];

/// Notes what is wrong with the collector.
pub(super) fn validate(settings: &mut Settings, telemetry: &TelemetryConfig) {
    let endpoint = KeyPath::dotted("telemetry.otlp_endpoint");
    if let Some(Err(what)) = telemetry.otlp_endpoint.as_deref().map(legal_endpoint) {
        settings.error(&endpoint, what);
    }
    let headers = KeyPath::dotted("telemetry.otlp_headers");
    for header in &telemetry.otlp_headers {
        if let Err(what) = legal_header(header) {
            settings.error(&headers, what);
        }
    }
    let service_name = KeyPath::dotted("telemetry.service_name");
    if telemetry.service_name.trim().is_empty() && !settings.is_wrong(&service_name) {
        settings.error(&service_name, "is empty; leave it out for \"outboxd\"");
    }
}

/// It is shown as written, so it may hold no secret.
fn legal_endpoint(text: &str) -> Result<(), String> {
    // The parser's error does not repeat the URL.
    let url = url::Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://: OTLP over HTTP, usually port 4318".into());
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("takes host, port and path only; put credentials into telemetry.otlp_headers".into());
    }
    Ok(())
}

/// Repeats nothing of what was written: without its name a token stands where the name should.
fn legal_header(header: &SecretString) -> Result<(), String> {
    let (name, value) = header
        .expose_secret()
        .split_once('=')
        .ok_or("has a header without its =; write \"authorization=Bearer …\", several as a list")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "has a header whose name is none")?;
    if let Some(own) = OWN_HEADERS.iter().find(|own| name == **own) {
        return Err(format!("has {own}, which is set by outboxd itself; leave it out"));
    }
    HeaderValue::from_str(value.trim()).map_err(|_| "has a header with a control character in its value")?;
    Ok(())
}
