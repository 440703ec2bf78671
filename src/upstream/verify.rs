//! The upstream's certificate: verified as rustls does, and an unknown issuer told by its name.

use std::fmt;
use std::sync::Arc;

use memchr::memmem;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::upstream::fault::MAX_NAME;

/// Verifies with `inner`; adds nothing but words.
#[derive(Debug)]
pub struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
}

/// The certificate leads to nobody that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIssuer {
    /// The common name of the last issuer of the chain.
    pub name: Option<String>,
}

impl Verifier {
    /// Gives words to what `inner` finds.
    pub fn new(inner: Arc<WebPkiServerVerifier>) -> Self {
        Self { inner }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                let last = intermediates.last().unwrap_or(end_entity);
                let name = issuer(last);
                let other = OtherError(Arc::new(UnknownIssuer { name }));
                Err(CertificateError::Other(other).into())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// The common name of a certificate's issuer: in DER the issuer comes before the subject, so it is
/// in the first one that follows. An issuer without a common name gives the subject's, or none.
fn issuer(certificate: &[u8]) -> Option<String> {
    let at = memmem::find(certificate, &COMMON_NAME)? + COMMON_NAME.len();
    // Tag, length, text. A name of 128 bytes or more has a longer length: not worth reading.
    let length = certificate
        .get(at + 1)
        .copied()
        .filter(|length| *length < 128)?;
    let text = certificate.get(at + 2..at + 2 + usize::from(length))?;
    let text = String::from_utf8_lossy(text);
    Some(
        text.chars()
            .filter(|c| !c.is_control())
            .take(MAX_NAME)
            .collect(),
    )
}

/// The object identifier 2.5.4.3 in DER.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

impl fmt::Display for UnknownIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "unknown issuer CN={name}"),
            None => f.write_str("unknown issuer"),
        }
    }
}

impl std::error::Error for UnknownIssuer {}
