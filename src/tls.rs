//! TLS: whom we trust. HTTP clients use the system's trust store; Postgres ([`postgres`]) what its URL says.
//!
//! **Guarantee.** No certificate goes unverified unless a URL of Postgres says so (`sslmode`). **Limit.** The trust
//! store is read once: a new root certificate needs a restart.
//!
//! May change: the crypto provider. Must not: a way to switch verification off for providers.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

pub mod postgres;

/// Speaks HTTP/2 where the server does. The trust store is read once for all clients.
pub fn client_config() -> Result<ClientConfig, rustls::Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, ignored) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            // Servers over plain http still work, so this is no reason to stop.
            tracing::warn!(ignored, errors = ?found.errors, "no trusted root certificates found: https will fail");
        }
        Arc::new(roots)
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}
