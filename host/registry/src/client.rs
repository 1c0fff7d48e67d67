//! One pull from beginning to end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use pacer_connect::{Client, ProxyRules};
use pacer_core::reference::{Reference, is_loopback};
use ring::digest::{SHA256, digest};

use crate::bundle::{self, Artifact};
use crate::credentials::{Credentials, server};
use crate::error::PullError;
use crate::exchange::{Exchange, Wanted};
use crate::manifest::{self, Blob, Form, INDEX_BYTES, MANIFEST_BYTES};
use crate::signature::VerificationKeys;

/// What one pull may take, with everything that belongs to it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Largest text that is signed, in bytes.
const PAYLOAD_BYTES: usize = 16 << 10;

/// A module as it lies in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its bytes. Nobody has looked into them.
    pub bytes: Bytes,
    /// What they are, as the registry says.
    pub form: Form,
    /// The key that it is signed by, by the SHA-256 of its DER; none where no key is configured.
    pub signer: Option<String>,
}

/// All registries: the connections to them, and what their modules have to be signed by.
#[derive(Clone)]
pub struct Registries {
    /// Made by the first pull, so that nobody who uses no registry needs certificate authorities.
    client: Arc<OnceLock<Client>>,
    authorities: Option<PathBuf>,
    proxy: ProxyRules,
    is_loopback_called: bool,
    keys: VerificationKeys,
    largest: usize,
}

impl Registries {
    /// Over real connections, with the system's certificate authorities. Modules have to be signed by one of the keys, and may have `largest`
    /// bytes. Registries on this machine are refused.
    #[must_use]
    pub fn new(keys: VerificationKeys, largest: usize) -> Self {
        Self {
            client: Arc::default(),
            authorities: None,
            proxy: ProxyRules::Environment,
            is_loopback_called: false,
            keys,
            largest,
        }
    }

    /// The certificate authorities in this file count too.
    #[must_use]
    pub fn with_authorities(self, file: PathBuf) -> Self {
        Self { authorities: Some(file), ..self }
    }

    /// Registries on this machine are called too, without TLS. Whoever names one gets what answers there to such requests.
    #[must_use]
    pub fn with_loopback(self) -> Self {
        Self { is_loopback_called: true, ..self }
    }

    fn client(&self) -> Result<&Client, PullError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Where no authorities are, registries on this machine can be used all the same, and others say what is missing.
        let client = pacer_connect::client(self.authorities.as_deref(), &self.proxy, false)
            .map_err(|error| PullError::NoConnections { why: error.to_string() })?;
        Ok(self.client.get_or_init(|| client))
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
        if is_loopback(&server) && !self.is_loopback_called {
            return Err(PullError::Loopback { registry: reference.registry().to_owned() });
        }
        let login = credentials.of(reference);
        let exchange = &mut Exchange {
            client: self.client()?,
            registry: reference.registry(),
            server,
            repository,
            login,
            authorization: None,
        };
        let wanted = Wanted { what: "manifest", accept: manifest::ACCEPT, most: MANIFEST_BYTES };
        let written = exchange.get(&format!("manifests/{}", reference.digest()), wanted).await?;
        checked(exchange, &written, reference.digits(), wanted.what)?;
        let (module, form) = manifest::module(&written)?;
        // Before the module, which is much larger.
        let signer = if self.keys.is_empty() { None } else { Some(self.signer(exchange, reference, &written).await?) };
        Ok(Module { bytes: blob(exchange, &module, "module", self.largest).await?, form, signer })
    }

    /// The key that an artifact is signed by.
    async fn signer(&self, exchange: &mut Exchange<'_>, reference: &Reference, manifest: &[u8]) -> Result<String, PullError> {
        let mut is_signed = false;
        if let Some(signatures) = signatures(exchange, reference).await? {
            for signed in signatures {
                is_signed = true;
                let Some(payload) = undamaged(blob(exchange, &signed.payload, "signature", PAYLOAD_BYTES).await)? else {
                    continue;
                };
                if let Some(signer) = self.keys.signer(&payload, &signed.signature, &reference.digest()) {
                    return Ok(signer.to_owned());
                }
            }
        }
        for of in referrers(exchange, reference).await? {
            for bundle in bundles(exchange, &of).await? {
                is_signed = true;
                let Some(bundle) = undamaged(blob(exchange, &bundle, "signature", bundle::BYTES).await)? else { continue };
                let signed = bundle::signatures(&bundle, Artifact { manifest, digits: reference.digits() });
                if let Some(signer) = signed.iter().find_map(|one| self.keys.signer_of(&one.message, &one.signature)) {
                    return Ok(signer.to_owned());
                }
            }
        }
        if is_signed {
            return Err(PullError::Signature);
        }
        let artifact = format!("{}/{}@{}", reference.registry(), reference.repository(), reference.digest());
        Err(PullError::Unsigned { artifact })
    }
}

/// Signatures at the tag beside an artifact; none where there is no such tag.
async fn signatures(exchange: &mut Exchange<'_>, reference: &Reference) -> Result<Option<Vec<manifest::Signed>>, PullError> {
    let wanted = Wanted { what: "signature", accept: manifest::ACCEPT, most: MANIFEST_BYTES };
    match exchange.get(&format!("manifests/sha256-{}.sig", reference.digits()), wanted).await {
        Err(PullError::NotFound { .. }) => Ok(None),
        other => manifest::signatures(&other?).map(Some).map_err(|_| PullError::Signature),
    }
}

/// What refers to an artifact and may be a signature of it: as the registry tells, or as a tag does where registries tell nothing.
/// (<https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#listing-referrers>)
async fn referrers(exchange: &mut Exchange<'_>, reference: &Reference) -> Result<Vec<Blob>, PullError> {
    let wanted = Wanted { what: "list of signatures", accept: manifest::ACCEPT_INDEX, most: INDEX_BYTES };
    let told = match exchange.get(&format!("referrers/{}", reference.digest()), wanted).await {
        Err(PullError::NotFound { .. } | PullError::Status { .. }) => {
            match exchange.get(&format!("manifests/sha256-{}", reference.digits()), wanted).await {
                Err(PullError::NotFound { .. }) => return Ok(Vec::new()),
                other => other?,
            }
        }
        other => other?,
    };
    // A list that can't be read names no signature.
    Ok(manifest::referrers(&told).unwrap_or_default())
}

/// The bundles of an artifact that refers to another one.
async fn bundles(exchange: &mut Exchange<'_>, of: &Blob) -> Result<Vec<Blob>, PullError> {
    let wanted = Wanted { what: "signature", accept: manifest::ACCEPT, most: MANIFEST_BYTES };
    let got = exchange.get(&format!("manifests/sha256:{}", of.digest), wanted).await;
    let checked = got.and_then(|written| checked(exchange, &written, &of.digest, wanted.what).map(|()| written));
    let written = undamaged(checked)?;
    Ok(written.and_then(|written| manifest::bundles(&written).ok()).unwrap_or_default())
}

/// One signature that is damaged does not spoil the others.
fn undamaged(got: Result<Bytes, PullError>) -> Result<Option<Bytes>, PullError> {
    match got {
        Err(PullError::NotFound { .. } | PullError::TooLarge { .. } | PullError::Digest { .. }) => Ok(None),
        other => other.map(Some),
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
