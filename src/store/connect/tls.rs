//! The TLS half of a connection: which certificates pass, and words for those that do not.

use std::error::Error as StdError;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::conninfo::{Root, Verify};

/// The settings of an encrypted connection; the error says what is wrong with the certificates named.
pub(super) fn client_config(verify: Verify, root: Option<&Root>) -> Result<ClientConfig, String> {
    // Passed by hand, so that no other crate's choice of provider can matter here.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = match (verify, root) {
        (Verify::Nothing, _) | (_, None) => None,
        (_, Some(root)) => Some(chain_verifier(root, &provider)?),
    };
    let verifier: Arc<dyn ServerCertVerifier> = match (verify, chain) {
        (Verify::Full, Some(chain)) => chain,
        (_, chain) => Arc::new(Lenient { chain, provider: provider.clone() }),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(config)
}

fn chain_verifier(root: &Root, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let store = Arc::new(roots(root)?);
    WebPkiServerVerifier::builder_with_provider(store, provider.clone())
        .build()
        .map_err(|error| format!("has an sslrootcert that cannot be used: {error}"))
}

fn roots(root: &Root) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match root {
        Root::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(
                    "has sslrootcert=system, but the system has no CA certificates (package ca-certificates)".into()
                );
            }
        }
        Root::File(path) => {
            let wrong =
                |error: &dyn std::fmt::Display| format!("has sslrootcert={path}, which cannot be used: {error}");
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                store.add(certificate).map_err(|error| wrong(&error))?;
            }
            if store.is_empty() {
                return Err(wrong(&"it holds no certificate"));
            }
        }
    }
    Ok(store)
}

/// Asks less than a browser would: a chain to a CA at most, no host name.
#[derive(Debug)]
struct Lenient {
    /// Absent: any certificate passes.
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when the chain has already been found good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
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
pub(super) fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
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
