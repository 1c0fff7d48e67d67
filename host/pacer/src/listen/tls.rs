//! TLS of a server: certificate and key from files, which are read again when they change, or made for this process.
//!
//! Whoever renews a certificate writes the two files one after the other, so for a moment they don't belong together. Files that make no usable
//! pair leave the earlier one in force and are read again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at. The kubelet takes a minute or so to bring a changed Secret into a volume.
const REREAD: Duration = Duration::from_secs(30);

/// Name in a certificate that is made here. Clients can't check it: there is nobody who vouches for it.
const SUBJECT: &str = "pacer";

/// Where certificate and key come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// PEM files, the certificate with its chain.
    Files {
        /// Certificates, the server's own first.
        certificate: PathBuf,
        /// Private key: PKCS#8, PKCS#1 or SEC1.
        key: PathBuf,
    },
    /// A key and a certificate signed with it, new in each process.
    SelfSigned,
}

/// Why there is no certificate to serve with.
#[derive(Debug, Error)]
pub(crate) enum IdentityError {
    /// A file can't be read, or has no such PEM section.
    #[error("{} has no usable {what}: {cause}", file.display())]
    File {
        /// The file with the certificate or the key.
        file: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong, without what is in the file.
        cause: String,
    },
    /// Certificate and key don't belong together, or are of an unknown kind.
    #[error("the certificate in {} can't be served with the key in {}: {cause}", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        /// Why rustls refuses the pair.
        cause: rustls::Error,
    },
    /// No certificate could be made.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The library refuses its own parts.
    #[error("setting up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// A server's side of TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    identity: Identity,
}

/// The pair that new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    /// With a certificate that is there.
    ///
    /// # Errors
    ///
    /// When files make no usable pair, or none can be made.
    pub(crate) fn new(identity: Identity) -> Result<Self, IdentityError> {
        let current = Arc::new(Current(RwLock::new(Arc::new(identity.read()?))));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current, identity })
    }

    /// What makes the TLS handshake of a connection, with the certificate that is current then.
    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Takes files that have changed, until `stop`.
    pub(crate) async fn follow(self, stop: CancellationToken) -> anyhow::Result<()> {
        if self.identity == Identity::SelfSigned {
            return Ok(());
        }
        let mut failed = String::new();
        while stop.run_until_cancelled(tokio::time::sleep(REREAD)).await.is_some() {
            let identity = self.identity.clone();
            match spawn_blocking(move || identity.read()).await? {
                Ok(pair) => {
                    failed.clear();
                    if self.replace(pair) {
                        tracing::info!("the certificate has changed and is served from now on");
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    if message != failed {
                        tracing::warn!(error = message, "can't take the certificate as it is now; the one from before is served");
                    }
                    failed = message;
                }
            }
        }
        Ok(())
    }

    /// Whether it is another one than before.
    fn replace(&self, pair: CertifiedKey) -> bool {
        let mut current = self.current.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = current.cert != pair.cert;
        if is_new {
            *current = Arc::new(pair);
        }
        is_new
    }
}

impl Identity {
    fn read(&self) -> Result<CertifiedKey, IdentityError> {
        match self {
            Self::Files { certificate, key } => {
                let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let chain = chain.map_err(|error| unusable(certificate, "certificate", &error))?;
                if chain.is_empty() {
                    return Err(unusable(certificate, "certificate", &"no PEM section CERTIFICATE"));
                }
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, "private key", &error))?;
                CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|cause| IdentityError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    cause,
                })
            }
            Self::SelfSigned => {
                let made = rcgen::generate_simple_self_signed([SUBJECT.to_owned()])?;
                let private = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
                Ok(CertifiedKey::from_der(vec![made.cert.der().clone()], private, &ring::default_provider())?)
            }
        }
    }
}

fn unusable(file: &Path, what: &'static str, cause: &dyn std::fmt::Display) -> IdentityError {
    IdentityError::File { file: file.to_owned(), what, cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed([SUBJECT.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn files_are_taken_when_they_make_a_pair() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let identity = Identity::Files { certificate: certificate.clone(), key: key.clone() };
        let ((first, first_key), (second, second_key)) = (made(), made());

        let missing = identity.read().unwrap_err().to_string();
        assert!(missing.contains("tls.crt has no usable certificate"), "{missing}");
        fs::write(&certificate, "nothing").unwrap();
        fs::write(&key, &first_key).unwrap();
        let empty = identity.read().unwrap_err().to_string();
        assert!(empty.ends_with("no PEM section CERTIFICATE"), "{empty}");
        fs::write(&certificate, &first).unwrap();
        let tls = Tls::new(identity.clone()).unwrap();

        // Renewed: the key is still the old one for a moment.
        fs::write(&certificate, &second).unwrap();
        let torn = identity.read().unwrap_err().to_string();
        assert!(torn.contains("can't be served with the key in"), "{torn}");
        assert!(!torn.contains("PRIVATE"), "{torn}");
        fs::write(&key, second_key).unwrap();
        assert!(tls.replace(identity.read().unwrap()));
        assert!(!tls.replace(identity.read().unwrap()), "the same again");
    }

    #[test]
    fn certificate_is_made_where_none_is_given() {
        let pair = Identity::SelfSigned.read().unwrap();
        pair.keys_match().unwrap();
        assert_ne!(pair.cert, Identity::SelfSigned.read().unwrap().cert);
    }
}
