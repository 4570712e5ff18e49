//! The TLS half of a connection: which certificates pass, and words for those that do not.

use std::error::Error as StdError;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How far the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Not at all: encryption keeps listeners out, not impostors.
    Nothing,
    /// Signed by a CA that we trust.
    Ca,
    /// Also issued for the host that we called.
    Full,
}

/// Where the CAs that we trust come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// A PEM file.
    File(String),
    /// The system's store.
    System,
}

/// The settings of an encrypted connection; the error says what is wrong with the certificates named.
pub fn client_config(verify: Verify, root: Option<&Root>) -> Result<ClientConfig, String> {
    // Passed by hand, so that no other crate's choice of provider can matter here.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = match (verify, root) {
        (Verify::Nothing, _) | (_, None) => None,
        (_, Some(root)) => Some(trust(root, &provider)?),
    };
    let verifier = Verifier { verify, trust, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(config)
}

fn trust(root: &Root, provider: &Arc<CryptoProvider>) -> Result<Trust, String> {
    let (certificates, name) = match root {
        Root::System => (rustls_native_certs::load_native_certs().certs, "system"),
        Root::File(path) => (read_pem(path)?, path.as_str()),
    };
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(format!("has sslrootcert={name}, which holds no certificate that can be used"));
    }
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
        .build()
        .map_err(|error| format!("has sslrootcert={name}, which cannot be used: {error}"))?;
    Ok(Trust { chain, certificates })
}

fn read_pem(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| format!("has sslrootcert={path}, which cannot be read: {error}"))
}

/// Whom we believe.
#[derive(Debug)]
struct Trust {
    chain: Arc<WebPkiServerVerifier>,
    /// What sslrootcert holds, to recognise a server that shows one of these itself.
    certificates: Vec<CertificateDer<'static>>,
}

/// Asks as much of a certificate as sslmode says, which is less than a browser would below `verify-full`.
#[derive(Debug)]
struct Verifier {
    verify: Verify,
    /// Absent: any certificate passes.
    trust: Option<Trust>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trust) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        // A self-signed certificate that is its own sslrootcert is the usual small setup. It often says that it is a
        // CA, and the chain verifier takes no CA for a server; but being on the list is as good as being signed by it.
        let checked = if trust.certificates.contains(end_entity) {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            verify_server_name(&certificate, server_name).map(|()| ServerCertVerified::assertion())
        } else {
            trust.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        match checked {
            // The name is checked last, when the chain has already been found good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.verify != Verify::Full => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What a failed handshake means to the operator, if this error is one.
pub fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
    // The handshake's error sits inside an io::Error, which does not offer it as its source.
    let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    let error = inner.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref::<rustls::Error>())?;
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "shows a certificate that no CA in sslrootcert has signed; is it the CA of this server?".into()
        }
        rustls::Error::InvalidCertificate(
            error @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "shows a certificate for another host name ({error}); call it by that name, or use sslmode=verify-ca"
        ),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "shows a certificate that has expired".into()
        }
        rustls::Error::InvalidCertificate(error) => format!("shows a certificate that does not pass: {error}"),
        other => format!("and we could not agree on encryption: {other}"),
    })
}
