//! From configuration to a channel: every error that can be seen at start is seen here.

use std::sync::Arc;

use ::http::Uri;
use reqwest::dns::Resolve;
use url::{Origin, Url};

use super::answer::Answers;
use super::connections::Connections;
use super::guard::{Guard, Guarded, Source};
use super::headers::Headers;
use super::http::{Egress, Http};
use super::sign::{BadSecret, Signer};
use super::template::{Templates, Text, first_tag};
use super::{CHANNEL_WIDE, Channel};
use crate::config::{ChannelConfig, template};

/// Where requests go.
#[derive(Debug)]
pub(super) enum Address {
    /// Always the same URL.
    Fixed {
        /// Parsed once.
        url: Arc<Url>,
        /// [`CHANNEL_WIDE`], shared.
        origin: Arc<str>,
    },
    /// The operator wrote the host; data fills in the rest.
    Path {
        /// The template's name.
        template: String,
        /// What stands before the first tag: the rendered URL must not leave it, as `..` in data might.
        written: Written,
    },
    /// Data names the host.
    Data {
        /// The template's name.
        template: String,
    },
}

/// The part of a URL that the operator wrote.
#[derive(Debug)]
pub(super) struct Written {
    origin: Origin,
    path: String,
}

impl Written {
    pub(super) fn holds(&self, url: &Url) -> bool {
        url.origin() == self.origin && url.path().starts_with(&self.path)
    }
}

/// Compiles everything. The error is a reason for an operator.
pub(super) fn channel(
    name: &str,
    config: &ChannelConfig,
    resolver: Arc<dyn Resolve>,
    connections: Arc<Connections>,
) -> Result<Channel, String> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        // It is part of the Idempotency-Key.
        return Err("the name must be printable ASCII without spaces".to_owned());
    }
    let mut templates = Templates::new(template::REQUEST).with(&config.with);
    let (address, guard) = address(&mut templates, config)?;
    let url_reads_payload = templates.read("payload");
    let headers = Headers::new(&mut templates, name, config)?;
    let body = config.body.as_deref().map(|source| templates.add("body", source)).transpose()?;
    let signer = Signer::new(&config.secret)
        .map_err(|BadSecret { position }| format!("secret {position} is not whsec_ and base64"))?;
    let egress = egress(config, &guard)?;
    let resolver = Guarded::new(guard.clone(), resolver, egress.proxy_name());
    let name = Arc::from(name);
    let answers = Answers::new(&name, config)?;
    let http = Http::new(config, Arc::new(resolver), egress, answers, connections)
        .map_err(|error| format!("client: {error}"))?;
    let method = config.method;
    Ok(Channel { name, method, templates, address, headers, body, signer, guard, http, url_reads_payload })
}

fn address(templates: &mut Templates, config: &ChannelConfig) -> Result<(Address, Guard), String> {
    match templates.add("url", &config.url)? {
        Text::Fixed(text) => {
            let url = Url::parse(text.trim()).map_err(|error| format!("url: {error}"))?;
            let guard = Guard::new(config, Source::Configuration);
            guard.check_url(&url).map_err(|refused| refused.to_string())?;
            Uri::try_from(url.as_str()).map_err(|_| "url: a host or path that no request can hold".to_owned())?;
            Ok((Address::Fixed { url: Arc::new(url), origin: Arc::from(CHANNEL_WIDE) }, guard))
        }
        Text::Template(template) => Ok(match written(&config.url) {
            Some(written) => (Address::Path { template, written }, Guard::new(config, Source::Configuration)),
            None => (Address::Data { template }, Guard::new(config, Source::Data)),
        }),
    }
}

/// The channel's own proxy, else the environment's. Where the guard checks names the environment is not asked: a
/// variable that is set for the whole machine must not replace it.
fn egress(config: &ChannelConfig, guard: &Guard) -> Result<Egress, String> {
    match &config.proxy {
        Some(url) => Egress::proxy(url),
        None if guard.checks_names() => Ok(Egress::Direct),
        None => Ok(Egress::Environment),
    }
}

/// What the operator wrote, if it includes all of the origin: scheme, host and the slash that ends it.
fn written(source: &str) -> Option<Written> {
    let text = source[..first_tag(source)?].trim_start();
    let (scheme, rest) = text.split_once("://")?;
    let host_end = rest.find(['/', '?', '#'])?;
    if !matches!(scheme, "http" | "https") || host_end == 0 {
        return None;
    }
    let url = Url::parse(text).ok().filter(|url| url.origin().is_tuple())?;
    Some(Written { origin: url.origin(), path: url.path().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_that_stands_before_the_first_tag_is_the_operators() {
        for source in [
            "https://a.example/{{ x }}",
            "http://a.example:81?q={{ x }}",
            " https://a.example/v1/{% if x %}{% endif %}",
        ] {
            assert!(written(source).is_some(), "{source}");
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
            assert!(written(data).is_none(), "{data}");
        }
    }

    #[test]
    fn data_cannot_climb_out_of_the_written_path() {
        let written = written("https://a.example/v1/users/{{ recipient }}/send").unwrap();
        for (recipient, expected) in
            [("1", true), ("a/../b", true), ("..", false), ("%2e%2E", false), ("../../x", false)]
        {
            let url = Url::parse(&format!("https://a.example/v1/users/{recipient}/send")).unwrap();
            assert_eq!(written.holds(&url), expected, "{recipient}");
        }
    }
}
