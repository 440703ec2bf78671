//! Whom TLS trusts: the system's roots, and the files that the user named beside them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::{ClientConfig, RootCertStore};

use crate::base::limits::MAX_CA_FILE_BYTES;
use crate::upstream::verify::Verifier;

/// Roots beside those of the system.
#[derive(Clone, Debug, Default)]
pub struct ExtraRoots {
    /// Certificates out of files, each parsed already.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Folders of certificates, read when TLS is needed.
    pub folders: Vec<PathBuf>,
    /// Whether `SSL_CERT_FILE` or `SSL_CERT_DIR` is set: the library then takes them for the
    /// system's roots, which must be looked for by their own names.
    pub hides_system: bool,
}

/// Why a file of certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    /// It can't be read.
    #[error("can't be read: {0}")]
    Read(io::Error),
    /// It is larger than any bundle.
    #[error("is larger than {MAX_CA_FILE_BYTES} bytes")]
    TooLarge,
    /// It isn't PEM, or an entry is broken off or damaged.
    #[error("certificate {number} is damaged: {words}")]
    Pem {
        /// Which one, counted from 1.
        number: usize,
        /// What is wrong with it.
        words: String,
    },
    /// It has no certificate.
    #[error("has no certificate (a line -----BEGIN CERTIFICATE-----)")]
    Empty,
}

/// TLS can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Neither the system nor the user has a root that can be used.
    #[error("no usable root certificate on this system; name a file of them with --ca-file")]
    NoRoots,
    /// The protocol versions don't fit the provider.
    #[error("TLS can't be set up")]
    Provider(#[from] rustls::Error),
    /// The verifier can't be built.
    #[error("TLS can't be set up")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    /// The thread that reads the roots failed.
    #[error("reading the root certificates failed")]
    Reader(#[from] tokio::task::JoinError),
}

/// Reads the certificates of a PEM file. Text and other sections between them don't matter.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user named, not a workspace file"
)]
pub fn read_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_CA_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(CaFileError::Read)?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size > MAX_CA_FILE_BYTES) {
        return Err(CaFileError::TooLarge);
    }
    parse(&bytes)
}

fn parse(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let mut found = Vec::new();
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let number = found.len() + 1;
        let damaged = |words: String| CaFileError::Pem { number, words };
        let certificate = certificate.map_err(|error| damaged(of_pem(&error)))?;
        store
            .add(certificate.clone())
            .map_err(|error| damaged(error.to_string()))?;
        found.push(certificate);
    }
    if found.is_empty() {
        return Err(CaFileError::Empty);
    }
    Ok(found)
}

fn of_pem(error: &PemError) -> String {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's own words do for the rest"
    )]
    match error {
        PemError::MissingSectionEnd { .. } => "its END line is missing".to_owned(),
        PemError::IllegalSectionStart { .. } => "its BEGIN line is broken".to_owned(),
        other => other.to_string(),
    }
}

/// Reads all roots. Takes some milliseconds: off the path of a start.
pub fn config(extra: &ExtraRoots) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut usable = 0;
    let mut add = |certificates: Vec<CertificateDer<'static>>| {
        usable += roots.add_parsable_certificates(certificates).0;
    };
    add(extra.certificates.clone());
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "some root certificates can't be read");
    }
    add(found.certs);
    if extra.hides_system {
        for file in SYSTEM_BUNDLES.map(Path::new) {
            if file.exists() {
                add(rustls_native_certs::load_certs_from_paths(Some(file), None).certs);
                break;
            }
        }
    }
    for folder in &extra.folders {
        add(rustls_native_certs::load_certs_from_paths(None, Some(folder)).certs);
    }
    if usable == 0 {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()?;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // only in that it can say more: the verifier of the library decides
        .with_custom_certificate_verifier(Arc::new(Verifier::new(verifier)))
        .with_no_client_auth())
}

/// Where Linux distributions keep their roots (Debian, Fedora, openSUSE, Alpine).
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> String {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        made.cert.pem()
    }

    #[test]
    fn bundles_with_odd_text_are_read_whole() {
        let (one, two) = (certificate(), certificate().replace('\n', "\r\n"));
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let bundle =
            format!("# Acme\n  Issuer: CN=\u{e9}\n{one}\n\n{key}subject=x\r\n{two}trailing");
        assert_eq!(parse(bundle.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn damage_is_told_with_the_number_of_the_certificate() {
        let told = |pem: &str| parse(pem.as_bytes()).unwrap_err().to_string();
        let good = certificate();
        let (cut, _) = good.split_once("-----END").unwrap();
        assert_eq!(
            told(&format!("{good}{cut}")),
            "certificate 2 is damaged: its END line is missing"
        );
        let filler = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(told(&format!("{good}{filler}{good}")).starts_with("certificate 2 is damaged: "));
        let scrambled = "-----BEGIN CERTIFICATE-----\n!\u{7}!\n-----END CERTIFICATE-----\n";
        assert!(told(scrambled).starts_with("certificate 1 is damaged: "));
        for empty in ["", "not a certificate"] {
            assert!(told(empty).starts_with("has no certificate"));
        }
    }

    #[test]
    fn files_that_can_not_be_read_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path| read_file(path).unwrap_err().to_string();
        assert!(told(&folder.path().join("none")).starts_with("can't be read: No such file"));
        assert!(told(folder.path()).starts_with("can't be read: Is a directory"));
    }
}
