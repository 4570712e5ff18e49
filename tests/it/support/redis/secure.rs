//! A Redis that is reached over TLS, under a CA of its own, by a user who may do no more than outboxd needs.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::super::process::{free_port, leash};
use super::RedisServer;

/// The rules that the documentation of `redis_url` gives for a user of its own.
pub fn documented_user_rules(prefix: &str) -> String {
    let docs = include_str!("../../../../src/config/redis_url.rs");
    let block = docs.split("ACL SETUSER outboxd on >secret ").nth(1).and_then(|rest| rest.split("//! ```").next());
    let words = block.expect("the rules are documented").split_whitespace().filter(|word| *word != "//!");
    words.collect::<Vec<_>>().join(" ").replace("{outboxd}", &format!("{{{prefix}}}"))
}

/// The server and its CA.
#[derive(Debug)]
pub struct SecureRedis {
    pub server: RedisServer,
    pub tls_port: u16,
    pub ca_file: PathBuf,
    cert_file: PathBuf,
    key_file: PathBuf,
}

impl SecureRedis {
    /// Starts it with a certificate for localhost and 127.0.0.1.
    pub fn start() -> SecureRedis {
        let leash = leash("redis-tls");
        let mut ca = CertificateParams::new(Vec::new()).expect("good parameters");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("a CA");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
        let certificate =
            CertificateParams::new(names).and_then(|params| params.signed_by(&key, &ca)).expect("a certificate");
        let write = |name: &str, pem: String| {
            let file = leash.dir().join(name);
            std::fs::write(&file, pem).expect("a writable directory");
            file
        };
        let ca_file = write("ca.pem", ca.pem());
        let cert_file = write("cert.pem", certificate.pem());
        let key_file = write("key.pem", key.serialize_pem());
        let (port, tls_port) = (free_port(), free_port());
        let tls = tls_settings([&ca_file, &cert_file, &key_file]);
        let own = [["port", &port.to_string()], ["tls-port", &tls_port.to_string()], ["save", ""]];
        let own = own.map(|setting| setting.map(ToString::to_string));
        let args = own.iter().chain(&tls).flat_map(|[name, value]| [format!("--{name}"), value.clone()]).collect();
        let server = RedisServer::start_at(port, args, format!("rediss://localhost:{tls_port}"), leash);
        SecureRedis { server, tls_port, ca_file, cert_file, key_file }
    }

    /// What a further server needs to show the same certificate.
    pub fn tls_settings(&self) -> [[String; 2]; 4] {
        tls_settings([&self.ca_file, &self.cert_file, &self.key_file])
    }
}

fn tls_settings([ca, cert, key]: [&PathBuf; 3]) -> [[String; 2]; 4] {
    let file = |name: &str, file: &PathBuf| [name.to_string(), file.display().to_string()];
    [
        file("tls-ca-cert-file", ca),
        file("tls-cert-file", cert),
        file("tls-key-file", key),
        ["tls-auth-clients".into(), "no".into()],
    ]
}
