//! One pull from beginning to end.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use pacer_connect::{Client, ConnectError, ProxyRules};
use pacer_core::reference::Reference;
use ring::digest::{SHA256, digest};

use crate::credentials::{Credentials, server};
use crate::error::PullError;
use crate::exchange::{Exchange, Wanted};
use crate::manifest::{self, Blob, MANIFEST_BYTES};
use crate::signature::VerificationKeys;

/// What one pull may take, with everything that belongs to it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Largest text that is signed, in bytes.
const PAYLOAD_BYTES: usize = 16 << 10;

/// A module as it lies in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its bytes, plain or compressed. Nobody has looked into them.
    pub bytes: Bytes,
    /// The key that it is signed by, by the SHA-256 of its DER; none where no key is configured.
    pub signer: Option<String>,
}

/// All registries: the connections to them, and what their modules have to be signed by.
#[derive(Clone)]
pub struct Registries {
    client: Client,
    keys: VerificationKeys,
    largest: usize,
}

impl Registries {
    /// Over real connections. The system's certificate authorities count, and those in `authorities` too. A module may have `largest` bytes.
    ///
    /// # Errors
    ///
    /// When the authorities can't be read, or TLS can't be set up.
    pub fn new(authorities: Option<&Path>, keys: VerificationKeys, largest: usize) -> Result<Self, ConnectError> {
        // Where no authorities are, registries on this machine can be used all the same, and others say what is missing.
        let client = pacer_connect::client(authorities, &ProxyRules::Environment, false)?;
        Ok(Self { client, keys, largest })
    }

    /// What modules have to be signed by.
    #[must_use]
    pub fn keys(&self) -> &VerificationKeys {
        &self.keys
    }

    /// Gets the module that a reference names, within half a minute.
    ///
    /// # Errors
    ///
    /// When it can't be had, is another one than its digest says, or is not signed as it has to be.
    pub async fn pull(&self, reference: &Reference, credentials: &Credentials) -> Result<Module, PullError> {
        let late = |_| PullError::Deadline { registry: reference.registry().to_owned(), most: DEADLINE };
        tokio::time::timeout(DEADLINE, self.pull_unbounded(reference, credentials)).await.map_err(late)?
    }

    async fn pull_unbounded(&self, reference: &Reference, credentials: &Credentials) -> Result<Module, PullError> {
        let (server, repository) = server(reference);
        let login = credentials.of(reference);
        let exchange = &mut Exchange {
            client: &self.client,
            registry: reference.registry(),
            server,
            repository,
            login,
            authorization: None,
        };
        let wanted = Wanted { what: "manifest", accept: manifest::ACCEPT, most: MANIFEST_BYTES };
        let written = exchange.get(&format!("manifests/{}", reference.digest()), wanted).await?;
        checked(exchange, &written, reference.digits(), wanted.what)?;
        let module = manifest::module(&written)?;
        // Before the module, which is much larger.
        let signer = if self.keys.is_empty() { None } else { Some(self.signer(exchange, reference).await?) };
        Ok(Module { bytes: blob(exchange, &module, "module", self.largest).await?, signer })
    }

    /// The key that an artifact is signed by.
    async fn signer(&self, exchange: &mut Exchange<'_>, reference: &Reference) -> Result<String, PullError> {
        let wanted = Wanted { what: "signature", accept: manifest::ACCEPT, most: MANIFEST_BYTES };
        let unsigned = || PullError::Unsigned {
            artifact: format!("{}/{}@{}", reference.registry(), reference.repository(), reference.digest()),
        };
        let written = match exchange.get(&format!("manifests/sha256-{}.sig", reference.digits()), wanted).await {
            Err(PullError::NotFound { .. }) => return Err(unsigned()),
            other => other?,
        };
        let signatures = manifest::signatures(&written).map_err(|_| PullError::Signature)?;
        if signatures.is_empty() {
            return Err(unsigned());
        }
        for signed in signatures {
            // One that is damaged does not spoil the others.
            let payload = match blob(exchange, &signed.payload, "signature", PAYLOAD_BYTES).await {
                Err(PullError::NotFound { .. } | PullError::TooLarge { .. } | PullError::Digest { .. }) => continue,
                other => other?,
            };
            if let Some(signer) = self.keys.signer(&payload, &signed.signature, &reference.digest()) {
                return Ok(signer.to_owned());
            }
        }
        Err(PullError::Signature)
    }
}

/// Bytes by their digest.
async fn blob(exchange: &mut Exchange<'_>, blob: &Blob, what: &'static str, most: usize) -> Result<Bytes, PullError> {
    if usize::try_from(blob.size).map_or(true, |size| size > most) {
        return Err(PullError::TooLarge { what, most });
    }
    let wanted = Wanted { what, accept: "*/*", most };
    let bytes = exchange.get(&format!("blobs/sha256:{}", blob.digest), wanted).await?;
    checked(exchange, &bytes, &blob.digest, what)?;
    Ok(bytes)
}

fn checked(exchange: &Exchange<'_>, bytes: &[u8], digits: &str, what: &'static str) -> Result<(), PullError> {
    if hex::encode(digest(&SHA256, bytes)) == digits {
        return Ok(());
    }
    Err(PullError::Digest { registry: exchange.registry.to_owned(), what })
}

#[cfg(test)]
mod tests;
