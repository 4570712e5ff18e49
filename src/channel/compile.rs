//! From configuration to a channel: every mistake that can be seen at start is seen here.

use std::sync::Arc;

use reqwest::dns::Resolve;
use url::{Origin, Url};

use super::guard::{Guard, Guarded, Source};
use super::headers::Headers;
use super::http::Http;
use super::sign::{BadSecret, Signer};
use super::template::{Templates, Text, first_tag};
use super::{CHANNEL_WIDE, Channel};
use crate::config::ChannelConfig;

/// Where requests go.
#[derive(Debug)]
pub(super) enum Address {
    /// Always the same URL.
    Fixed {
        /// Parsed once.
        url: Url,
        /// [`CHANNEL_WIDE`], shared.
        origin: Arc<str>,
    },
    /// The operator wrote the host; data fills in the rest.
    Path {
        /// The template's name.
        template: String,
        /// What the rendered URL must not leave.
        origin: Origin,
    },
    /// Data names the host.
    Data {
        /// The template's name.
        template: String,
    },
}

/// Compiles everything. The error is a reason for an operator.
pub(super) fn channel(name: &str, config: &ChannelConfig, resolver: Arc<dyn Resolve>) -> Result<Channel, String> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        // It is part of the Idempotency-Key.
        return Err("the name must be printable ASCII without spaces".to_owned());
    }
    let mut templates = Templates::new();
    let address = address(&mut templates, &config.url)?;
    let source = match address {
        Address::Fixed { .. } | Address::Path { .. } => Source::Configuration,
        Address::Data { .. } => Source::Data,
    };
    let guard = Guard::new(config, source);
    if let Address::Fixed { url, .. } = &address {
        guard.check_url(url).map_err(|refused| refused.to_string())?;
    }
    let headers = Headers::new(&mut templates, name, config)?;
    let body = config.body.as_deref().map(|source| templates.add("body", source)).transpose()?;
    let signer = Signer::new(&config.secrets)
        .map_err(|BadSecret { position }| format!("secret {position} is not whsec_ and base64"))?;
    let http = Http::new(config, Guarded::new(guard.clone(), resolver)).map_err(|error| format!("client: {error}"))?;
    Ok(Channel { name: Arc::from(name), templates, address, headers, body, signer, guard, http })
}

fn address(templates: &mut Templates, source: &str) -> Result<Address, String> {
    match templates.add("url", source)? {
        Text::Fixed(text) => {
            let url = Url::parse(text.trim()).map_err(|error| format!("url: {error}"))?;
            Ok(Address::Fixed { url, origin: Arc::from(CHANNEL_WIDE) })
        }
        Text::Template(template) => Ok(match written_origin(source) {
            Some(origin) => Address::Path { template, origin },
            None => Address::Data { template },
        }),
    }
}

/// The origin, if all of it stands before the template's first tag: scheme, host and the slash that ends it.
fn written_origin(source: &str) -> Option<Origin> {
    let written = source[..first_tag(source)?].trim_start();
    let (scheme, rest) = written.split_once("://")?;
    let host_end = rest.find(['/', '?', '#'])?;
    if !matches!(scheme, "http" | "https") || host_end == 0 {
        return None;
    }
    Url::parse(written).ok().map(|url| url.origin()).filter(Origin::is_tuple)
}

/// `scheme://host:port`, the port always written.
pub(super) fn origin_text(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_that_stands_before_the_first_tag_is_the_operators() {
        for written in [
            "https://a.example/{{ x }}",
            "http://a.example:81?q={{ x }}",
            " https://a.example/v1/{% if x %}{% endif %}",
        ] {
            assert!(written_origin(written).is_some(), "{written}");
        }
        for data in [
            "{{ recipient }}",
            "https://{{ x }}/",
            "https://a.example{{ x }}",
            "https://a.example:{{ x }}/",
            "https://{{ x }}.a.example/",
            "{{ x }}://a.example/",
            "https://user@{{ x }}/",
            "ftp://a.example/{{ x }}",
            "https:///{{ x }}",
            "https:a.example/{{ x }}",
            "{# c #}https://a.example/",
        ] {
            assert!(written_origin(data).is_none(), "{data}");
        }
    }

    #[test]
    fn an_origin_always_names_its_port() {
        for (url, expected) in [
            ("https://A.example/x", "https://a.example:443"),
            ("http://a.example", "http://a.example:80"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(origin_text(&Url::parse(url).unwrap()), expected);
        }
    }
}
