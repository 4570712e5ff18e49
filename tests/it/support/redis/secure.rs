//! A Redis that is reached over TLS, under a CA of its own, by a user who may do no more than outboxd needs.

use std::path::{Path, PathBuf};

use super::super::certs::{Ca, ServerCert};
use super::super::process::free_port;
use super::{RedisServer, not_started};

/// The rules that the documentation of `redis_url` gives for a user of its own.
pub fn documented_user_rules(prefix: &str) -> String {
    let docs = include_str!("../../../../src/config/redis_url.rs");
    let block = docs.split("ACL SETUSER outboxd on >secret ").nth(1).and_then(|rest| rest.split("//! ```").next());
    let words = block.expect("the rules are documented").split_whitespace().filter(|word| *word != "//!");
    words.collect::<Vec<_>>().join(" ").replace("{outboxd}", &format!("{{{prefix}}}"))
}

/// The server, its CA, and another CA that has nothing to do with it.
#[derive(Debug)]
pub struct SecureRedis {
    pub server: RedisServer,
    pub tls_port: u16,
    pub ca: PathBuf,
    pub other_ca: PathBuf,
    cert: ServerCert,
}

impl SecureRedis {
    /// Starts it with a certificate for localhost and 127.0.0.1, and further arguments of `redis-server`.
    pub fn start(args: &[&str]) -> SecureRedis {
        let redis = not_started();
        let (ca, other_ca) = (Ca::new(redis.dir(), "ca"), Ca::new(redis.dir(), "other").file);
        let cert = ca.server(redis.dir(), &["localhost", "127.0.0.1"]);
        let tls_port = free_port();
        let tls = tls_settings(&ca.file, &cert).into_iter().chain([["tls-port".into(), tls_port.to_string()]]);
        let tls: Vec<String> = tls.flat_map(|[name, value]| [format!("--{name}"), value]).collect();
        let args: Vec<&str> = tls.iter().map(String::as_str).chain(args.iter().copied()).collect();
        let server = RedisServer::start_at(redis, &args, format!("rediss://localhost:{tls_port}"));
        SecureRedis { server, tls_port, ca: ca.file, other_ca, cert }
    }

    /// What a further server needs to show the same certificate.
    pub fn tls_settings(&self) -> [[String; 2]; 4] {
        tls_settings(&self.ca, &self.cert)
    }
}

fn tls_settings(ca: &Path, cert: &ServerCert) -> [[String; 2]; 4] {
    let file = |name: &str, file: &Path| [name.to_string(), file.display().to_string()];
    [
        file("tls-ca-cert-file", ca),
        file("tls-cert-file", &cert.cert),
        file("tls-key-file", &cert.key),
        ["tls-auth-clients".into(), "no".into()],
    ]
}
