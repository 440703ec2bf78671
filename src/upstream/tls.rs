//! TLS towards the upstream: rustls with the system's roots.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// TLS can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system has no root that can be used.
    #[error("no usable root certificate on this system")]
    NoRoots,
    /// The protocol versions don't fit the provider.
    #[error("TLS can't be set up")]
    Provider(#[from] rustls::Error),
}

/// Reads the system's roots. Takes some milliseconds: off the path of a start.
pub fn config() -> Result<ClientConfig, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    for error in found.errors {
        tracing::warn!(%error, "some root certificates can't be read");
    }
    if usable == 0 {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
