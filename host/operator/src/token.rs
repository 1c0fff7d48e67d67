//! Registration tokens: one Secret per namespace, credentials and scope, from which runner pods read theirs.
//!
//! A token is read when a container starts, so a Secret only has to be fresh while pods are about to start: it is made or renewed by whoever
//! is about to make a pod or watches one that has not started, and an idle fleet causes no writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use pacer_api::names::annotation;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::access::Access;
use crate::error::{Error, gone_is_fine, status};
use crate::fence::{Fence, NotLeader};
use crate::pod::TokenSource;

/// A token is renewed when it has less than this left; ARC's margin. GitHub issues them for an hour.
const MARGIN: SignedDuration = SignedDuration::from_mins(30);

/// Key within the Secret.
const KEY: &str = "token";

/// Marks the Secrets that hold registration tokens, so that unused ones can be found.
pub const TOKEN_LABEL: &str = "actions.summerwind.dev/registration-token";

/// Expiry of one Secret's token, behind its own lock: one request per Secret at a time, and no waiting for others.
type Expiry = Arc<Mutex<Option<Timestamp>>>;

/// Makes, renews and removes the Secrets.
pub struct Tokens {
    client: Client,
    fence: Fence,
    /// By namespace and name.
    known: Mutex<HashMap<(String, String), Expiry>>,
}

impl Tokens {
    /// No token known yet.
    #[must_use]
    pub fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence, known: Mutex::default() }
    }

    /// Name of the Secret for a scope and credentials.
    #[must_use]
    pub fn source(access: &Access) -> TokenSource {
        let digest = Sha256::digest(format!("{}\n{}", access.credentials_key(), access.scope()));
        let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        TokenSource { name: format!("runner-registration-{short}"), key: KEY.to_owned() }
    }

    /// Makes sure that the Secret holds a token that is good for a while.
    ///
    /// # Errors
    ///
    /// When GitHub gives none or the API server does not take it.
    pub async fn ensure(&self, namespace: &str, access: &Access, now: Timestamp) -> Result<TokenSource, Error> {
        let source = Self::source(access);
        let entry = {
            let mut known = self.known.lock().await;
            known.entry((namespace.to_owned(), source.name.clone())).or_default().clone()
        };
        let mut expiry = entry.lock().await;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        if expiry.is_none() {
            *expiry = secrets.get_opt(&source.name).await?.as_ref().and_then(expires_at);
        }
        if expiry.is_some_and(|expiry| expiry.duration_since(now) > MARGIN) {
            return Ok(source);
        }
        if !self.fence.holds() {
            return Err(NotLeader.into());
        }
        let token = access.github().create_registration_token(access.scope()).await?;
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(source.name.clone()),
                labels: Some(BTreeMap::from([(TOKEN_LABEL.to_owned(), "true".to_owned())])),
                annotations: Some(BTreeMap::from([
                    (annotation::TOKEN_EXPIRES_AT.to_owned(), token.expires_at.to_string()),
                    ("actions.summerwind.dev/scope".to_owned(), access.scope().to_string()),
                ])),
                ..ObjectMeta::default()
            },
            string_data: Some(BTreeMap::from([(KEY.to_owned(), token.token.expose().to_owned())])),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Err(error) if status(&error).is_some_and(kube::core::Status::is_already_exists) => {
                secrets.patch(&source.name, &PatchParams::default(), &Patch::Merge(&secret)).await?;
            }
            other => {
                other?;
            }
        }
        tracing::info!(namespace, secret = %source.name, scope = %access.scope(), expires_at = %token.expires_at, "registration token renewed");
        *expiry = Some(token.expires_at);
        Ok(source)
    }

    /// Forgets what is known about a Secret, after a pod could not read it: the next [`Self::ensure`] looks at the cluster.
    pub async fn doubt(&self, namespace: &str, name: &str) {
        self.known.lock().await.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Deletes the Secrets that nobody in `used` needs any more.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn sweep(&self, scope: Option<&str>, used: impl Fn(&str, &str) -> bool) -> Result<usize, Error> {
        let all: Api<Secret> = match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let listed = all.list_metadata(&ListParams::default().labels(&format!("{TOKEN_LABEL}=true"))).await?;
        let mut deleted = 0;
        for secret in listed {
            let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
            if used(&namespace, &name) {
                continue;
            }
            let entry = self.known.lock().await.remove(&(namespace.clone(), name.clone()));
            drop(entry);
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            gone_is_fine(secrets.delete(&name, &kube::api::DeleteParams::default()).await)?;
            tracing::info!(namespace, secret = name, "unused registration token deleted");
            deleted += 1;
        }
        Ok(deleted)
    }
}

fn expires_at(secret: &Secret) -> Option<Timestamp> {
    secret.annotations().get(annotation::TOKEN_EXPIRES_AT)?.parse().ok()
}
