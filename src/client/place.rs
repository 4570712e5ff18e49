//! Where a request goes, in the forms in which HTTP wants it, made once from its URL.

use std::sync::Arc;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use rustls::pki_types::{DnsName, ServerName};
use url::{Host, Position, Url};

use super::handover::Tracked;

/// An origin and a path. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    server: Arc<Server>,
    path: PathAndQuery,
}

/// What requests to one origin have in common.
#[derive(Debug)]
struct Server {
    /// `scheme://host:port`, the port always written.
    origin: Arc<str>,
    scheme: Scheme,
    /// The port only if it is not the scheme's own.
    authority: Authority,
    header: HeaderValue,
    host: Host,
    port: u16,
}

/// The URL cannot be called over HTTP.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPlace(&'static str);

impl Place {
    /// User name, password and fragment are left out.
    pub(crate) fn new(url: &Url) -> Result<Place, NoPlace> {
        let scheme = match url.scheme() {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return Err(NoPlace("neither http nor https")),
        };
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(NoPlace("no host"));
        };
        let text = &url[Position::BeforeHost..Position::AfterPort];
        let server = Server {
            origin: Arc::from(format!("{scheme}://{host}:{port}")),
            scheme,
            authority: Authority::try_from(text).map_err(|_| NoPlace("a host that no request can name"))?,
            header: HeaderValue::from_str(text).map_err(|_| NoPlace("a host that no header can hold"))?,
            host: host.to_owned(),
            port,
        };
        let path = PathAndQuery::try_from(&url[Position::BeforePath..Position::AfterQuery])
            .map_err(|_| NoPlace("a path that no request can hold"))?;
        Ok(Place { server: Arc::new(server), path })
    }

    /// `scheme://host:port`, the port always written.
    pub(crate) fn origin(&self) -> &Arc<str> {
        &self.server.origin
    }

    pub(super) fn host(&self) -> &Host {
        &self.server.host
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port
    }

    pub(super) fn is_secure(&self) -> bool {
        self.server.scheme == Scheme::HTTPS
    }

    /// Whom the certificate must name.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
        Ok(match &self.server.host {
            Host::Domain(name) => ServerName::DnsName(DnsName::try_from(name.clone())?),
            Host::Ipv4(ip) => ServerName::from(std::net::IpAddr::V4(*ip)),
            Host::Ipv6(ip) => ServerName::from(std::net::IpAddr::V6(*ip)),
        })
    }

    /// The path alone, and the host as a header.
    pub(super) fn address_http1(&self, request: &mut Request<Tracked>) {
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = Uri::from(self.path.clone());
        request.headers_mut().insert(HOST, self.server.header.clone());
    }

    /// Everything in the pseudo-headers.
    pub(super) fn address_http2(&self, request: &mut Request<Tracked>) {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.server.scheme.clone());
        parts.authority = Some(self.server.authority.clone());
        parts.path_and_query = Some(self.path.clone());
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::from_parts(parts).expect("a scheme, an authority and a path make a URI");
        request.headers_mut().remove(HOST);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::super::handover::Handover;
    use super::*;

    fn place(url: &str) -> Place {
        Place::new(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn an_origin_always_names_its_port() {
        for (url, expected) in [
            ("https://A.example/x", "https://a.example:443"),
            ("http://a.example", "http://a.example:80"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(&**place(url).origin(), expected);
        }
    }

    #[test]
    fn a_request_names_its_port_only_if_it_is_not_the_schemes_own() {
        for (url, host, path) in [
            ("https://a.example:443/x?y=1#z", "a.example", "/x?y=1"),
            ("https://u:p@a.example:80", "a.example:80", "/"),
            ("http://a.example:80/?", "a.example", "/?"),
            ("http://[::1]:8080/%7B%22{}|^[]'`\\", "[::1]:8080", "/%7B%22%7B%7D|^[]'%60/"),
            ("http://a.example/?q={}|^`'\"\\", "a.example", "/?q={}|^`%27%22\\"),
            ("http://münchen.example/ü?ü", "xn--mnchen-3ya.example", "/%C3%BC?%C3%BC"),
        ] {
            let place = place(url);
            let (_, body) = Handover::new(Instant::now(), Bytes::new());
            let mut request = Request::new(body);
            place.address_http1(&mut request);
            assert_eq!((request.headers()[HOST].to_str().unwrap(), request.uri().to_string().as_str()), (host, path));
            place.address_http2(&mut request);
            assert_eq!(request.headers().get(HOST), None);
            assert_eq!(request.uri().to_string(), format!("{}://{host}{path}", Url::parse(url).unwrap().scheme()));
        }
    }

    #[test]
    fn other_schemes_have_no_place() {
        for url in ["ftp://a.example/", "mailto:a@a.example", "file:///x"] {
            assert!(Place::new(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
    }
}
