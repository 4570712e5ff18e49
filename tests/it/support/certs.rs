//! A certificate authority of the tests' own.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

/// A CA that signs server certificates, and its certificate as a file.
#[derive(Debug)]
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The CA's own certificate, PEM.
    pub file: PathBuf,
}

/// A server's certificate and key, PEM files.
#[derive(Debug)]
pub struct ServerCert {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Ca {
    /// Makes a CA whose certificate is `dir/name.pem`.
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file }
    }

    /// Signs a certificate for these host names and addresses.
    pub fn server(&self, dir: &Path, names: &[&str]) -> ServerCert {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        write(dir, &cert, &key)
    }
}

/// A certificate that signs itself and says that it is a CA, as `openssl req -x509` makes them.
pub fn self_signed(dir: &Path, name: &str) -> ServerCert {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write(dir, &params.self_signed(&key).unwrap(), &key)
}

fn write(dir: &Path, cert: &Certificate, key: &KeyPair) -> ServerCert {
    let files = ServerCert { cert: dir.join("server.pem"), key: dir.join("server.key") };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}
