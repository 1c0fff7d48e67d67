//! Registration tokens: one Secret per namespace, credentials and scope, from which runner pods read theirs.
//!
//! A token is read when a container starts, so a Secret only has to be fresh while pods are about to start: it is made or renewed by whoever
//! is about to make a pod or watches one that has not started, and an idle fleet causes no writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use pacer_api::names::annotation;
use pacer_cluster::answer::{ignore_not_found, status};
use pacer_cluster::fence::{Fence, NotLeader};
use pacer_core::scope::Scope;
use pacer_github::{ClientId, RegistrationToken};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::access::Access;
use crate::error::Error;
use crate::pod::{Held, TokenSource};

/// A token is renewed when it has less than this left; ARC's margin. GitHub issues them for an hour.
const MARGIN: SignedDuration = SignedDuration::from_mins(30);

/// Key within the Secret.
const KEY: &str = "token";

/// Marks the Secrets that hold registration tokens, so that unused ones can be found.
pub const TOKEN_LABEL: &str = "actions.summerwind.dev/registration-token";

/// Whoever finds a token being renewed waits for it so long; a GitHub that is slow must not hold more than one reconcile.
const PATIENCE: Duration = Duration::from_millis(250);

/// What is known about one Secret, behind its own lock: one request per Secret at a time, and no waiting for others.
#[derive(Default)]
struct Known {
    expires_at: Option<Timestamp>,
    refusal: Option<Refusal>,
    /// What GitHub gave and the API server has not taken.
    unwritten: Option<Unwritten>,
}

/// A token that is in no Secret yet. It is good for as long as it would be there, and so no other one is asked for.
struct Unwritten {
    token: RegistrationToken,
    /// Credentials that were changed have tokens of their own.
    client: ClientId,
}

type Slot = Arc<Mutex<Known>>;

/// GitHub gave none. All who want the token get the same answer for a while: each of them asking would only multiply the calls.
struct Refusal {
    error: pacer_github::Error,
    /// Credentials that were mended are another client.
    client: ClientId,
    until: Instant,
    times: u32,
}

impl Refusal {
    fn new(error: pacer_github::Error, client: ClientId, times: u32) -> Self {
        let first = Duration::from_secs(if error.is_transient() { 1 } else { 5 });
        let pause = first.saturating_mul(1 << times.min(6)).min(Duration::from_secs(60));
        let pause = error.retry_after().map_or(pause, |told| told.max(pause));
        // To wait for a turn is no failure.
        let (pause, times) = error.deferral().map_or((pause, times.saturating_add(1)), |wait| (wait, times));
        let now = Instant::now();
        Self { error, client, until: now.checked_add(pause).unwrap_or(now), times }
    }
}

/// Who needs a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A runner.
    Now,
    /// No runner, but one that is made soon would: a fleet whose runners come and go with their jobs. It stays for as long as its token is good.
    Soon,
    /// Nobody.
    Never,
}

/// Makes, renews and removes the Secrets.
pub struct Tokens {
    client: Client,
    fence: Fence,
    /// By namespace and name.
    known: Mutex<HashMap<(String, String), Slot>>,
}

impl Tokens {
    /// No token known yet.
    #[must_use]
    pub fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence, known: Mutex::default() }
    }

    /// The Secret for a scope and credentials.
    #[must_use]
    pub fn source(access: &Access) -> TokenSource {
        TokenSource { holds: Held::Token, name: Self::name(access.credentials_key(), access.scope()), key: KEY.to_owned() }
    }

    /// Name of the Secret for a scope and credentials.
    #[must_use]
    pub fn name(credentials_key: &str, scope: &Scope) -> String {
        let digest = Sha256::digest(format!("{credentials_key}\n{scope}"));
        let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("runner-registration-{short}")
    }

    /// Makes sure that the Secret holds a token that is good for a while. None while somebody else sees to it, or GitHub is too slow for one
    /// more to wait: to be asked again after [`NEXT_PERMIT`](crate::access::NEXT_PERMIT).
    ///
    /// # Errors
    ///
    /// When GitHub gives none or the API server does not take it.
    pub async fn ensure(&self, namespace: &str, access: &Access, now: Timestamp) -> Result<Option<TokenSource>, Error> {
        let source = Self::source(access);
        let slot = {
            let mut known = self.known.lock().await;
            known.entry((namespace.to_owned(), source.name.clone())).or_default().clone()
        };
        let Ok(mut known) = tokio::time::timeout(PATIENCE, slot.lock()).await else { return Ok(None) };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        if known.expires_at.is_none() {
            known.expires_at = secrets.get_opt(&source.name).await?.as_ref().and_then(expires_at);
        }
        if known.expires_at.is_some_and(|expiry| expiry.duration_since(now) > MARGIN) {
            return Ok(Some(source));
        }
        let client = access.github().id();
        let refusal = known.refusal.take_if(|refusal| refusal.client != *client || refusal.until <= Instant::now());
        if let Some(refusal) = &known.refusal {
            return Err(refusal.error.clone().into());
        }
        if !self.fence.holds() {
            return Err(NotLeader.into());
        }
        let is_good = |held: &Unwritten| held.client == *client && held.token.expires_at.duration_since(now) > MARGIN;
        let token = match known.unwritten.take().filter(is_good) {
            Some(held) => held.token,
            None => {
                let Some(_permit) = access.permit() else { return Ok(None) };
                match access.github().create_registration_token(access.scope()).await {
                    Ok(token) => token,
                    Err(error) => {
                        let times = refusal.filter(|refusal| refusal.client == *client).map_or(0, |refusal| refusal.times);
                        known.refusal = Some(Refusal::new(error.clone(), client.clone(), times));
                        return Err(error.into());
                    }
                }
            }
        };
        known.unwritten = Some(Unwritten { token: token.clone(), client: client.clone() });
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
        *known = Known { expires_at: Some(token.expires_at), ..Known::default() };
        Ok(Some(source))
    }

    /// Forgets what is known about a Secret, after a pod could not read it: the next [`Self::ensure`] looks at the cluster.
    pub async fn doubt(&self, namespace: &str, name: &str) {
        self.known.lock().await.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Deletes the Secrets that nobody needs any more, and forgets those that were never written. `needs` looks who needs which at the moment of
    /// its call, in one namespace or in all, and says so by namespace and name.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn sweep<N>(&self, scope: Option<&str>, needs: impl Fn(Option<&str>) -> N, now: Timestamp) -> Result<usize, Error>
    where
        N: Fn(&str, &str) -> Need,
    {
        let need = needs(None);
        let is_needed = |(namespace, name): &(String, String)| need(namespace, name) != Need::Never;
        self.known.lock().await.retain(|secret, slot| is_needed(secret) || slot.try_lock().is_err());
        let all: Api<Secret> = match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let listed = all.list_metadata(&ListParams::default().labels(&format!("{TOKEN_LABEL}=true"))).await?;
        // What was made meanwhile is listed as well.
        let need = needs(None);
        let mut deleted = 0;
        for secret in listed {
            let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
            let is_kept = |need: Need| match need {
                Need::Now => true,
                Need::Soon => expires_at(&secret).is_some_and(|expiry| expiry > now),
                Need::Never => false,
            };
            if is_kept(need(&namespace, &name)) {
                continue;
            }
            let slot = self.known.lock().await.entry((namespace.clone(), name.clone())).or_default().clone();
            // It is being renewed for somebody. Whoever begins to need it from here on waits, and finds it gone.
            let Ok(mut known) = slot.try_lock() else { continue };
            // The deletions before this one took their time.
            if is_kept(needs(Some(&namespace))(&namespace, &name)) {
                continue;
            }
            *known = Known::default();
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            ignore_not_found(secrets.delete(&name, &kube::api::DeleteParams::default()).await)?;
            tracing::info!(namespace, secret = name, "unused registration token deleted");
            deleted += 1;
        }
        Ok(deleted)
    }
}

fn expires_at(secret: &impl ResourceExt) -> Option<Timestamp> {
    secret.annotations().get(annotation::TOKEN_EXPIRES_AT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use pacer_api::RunnerConfig;
    use serde_json::json;

    use super::*;
    use crate::access::{Accesses, fixture};

    /// An API server without Secrets, that refuses new ones for as long as it is told to.
    fn server(refuses: &Arc<AtomicBool>) -> Client {
        let refuses = refuses.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let status = |code, reason| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "exceeded quota"});
            let (code, answer) = match *request.method() {
                Method::GET if request.uri().path().ends_with("/secrets") => (
                    StatusCode::OK,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": []}),
                ),
                Method::GET => (StatusCode::NOT_FOUND, status(404, "NotFound")),
                _ if refuses.load(Ordering::Relaxed) => (StatusCode::FORBIDDEN, status(403, "Forbidden")),
                _ => (StatusCode::CREATED, json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}})),
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        Client::new(service, "ci")
    }

    /// Tokens on a server that refuses them, access to a repository of a GitHub that counts what it is asked, and what keeps that access.
    async fn tokens(refuses: &Arc<AtomicBool>, asked: &Arc<AtomicUsize>) -> (Tokens, Access, Accesses) {
        let client = server(refuses);
        let accesses = fixture::accesses(client.clone(), fixture::github(asked));
        let config = RunnerConfig { repository: Some("acme/app".to_owned()), ..RunnerConfig::default() };
        let access = accesses.get("ci", &config).await.unwrap();
        (Tokens::new(client, Fence::open()), access, accesses)
    }

    #[tokio::test]
    async fn token_that_the_api_server_refused_is_written_at_the_next_try() {
        let (refuses, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (tokens, access, _accesses) = tokens(&refuses, &asked).await;
        let now = Timestamp::now();
        for _ in 0..5 {
            assert!(tokens.ensure("ci", &access, now).await.is_err());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "one token is tried again and again");
        let later = now + SignedDuration::from_mins(31);
        assert!(tokens.ensure("ci", &access, later).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 2, "the first is about to expire");
        refuses.store(false, Ordering::Relaxed);
        assert!(tokens.ensure("ci", &access, now).await.unwrap().is_some());
        assert!(tokens.ensure("ci", &access, now).await.unwrap().is_some());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// An API server with one Secret, that counts deletions.
    fn server_with_secret(deleted: &Arc<AtomicUsize>) -> Client {
        let deleted = deleted.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = match *request.method() {
                Method::DELETE => {
                    deleted.fetch_add(1, Ordering::Relaxed);
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
                }
                _ => {
                    let meta = json!({"name": "runner-registration-a", "namespace": "ci"});
                    let secret = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [secret]})
                }
            };
            let answer = Response::builder().status(StatusCode::OK).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        Client::new(service, "ci")
    }

    #[tokio::test]
    async fn secret_that_somebody_has_begun_to_need_is_not_deleted() {
        // Nobody needs it for so many looks: before the list, after it, and right before the deletion.
        for (looks, expected) in [(0, 0), (1, 0), (2, 0), (3, 1)] {
            let (deleted, looked) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
            let tokens = Tokens::new(server_with_secret(&deleted), Fence::open());
            let needs = |_: Option<&str>| {
                let need = if looked.fetch_add(1, Ordering::Relaxed) < looks { Need::Never } else { Need::Now };
                move |_: &str, _: &str| need
            };
            assert_eq!(tokens.sweep(None, needs, Timestamp::now()).await.unwrap(), expected, "{looks}");
            assert_eq!(deleted.load(Ordering::Relaxed), expected, "{looks}");
        }
    }

    #[tokio::test]
    async fn secret_whose_token_is_being_renewed_is_not_deleted() {
        let deleted = Arc::new(AtomicUsize::new(0));
        let tokens = Tokens::new(server_with_secret(&deleted), Fence::open());
        let slot = Slot::default();
        tokens.known.lock().await.insert(("ci".to_owned(), "runner-registration-a".to_owned()), slot.clone());
        let renewed = slot.lock().await;
        let never = |_: Option<&str>| |_: &str, _: &str| Need::Never;
        assert_eq!(tokens.sweep(None, never, Timestamp::now()).await.unwrap(), 0);
        drop(renewed);
        assert_eq!(tokens.sweep(None, never, Timestamp::now()).await.unwrap(), 1);
        assert_eq!(deleted.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn secret_that_nobody_needs_is_forgotten_although_it_was_never_written() {
        let (refuses, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (tokens, access, _accesses) = tokens(&refuses, &asked).await;
        let now = Timestamp::now();
        assert!(tokens.ensure("ci", &access, now).await.is_err());
        for (need, known) in [(Need::Now, 1), (Need::Soon, 1), (Need::Never, 0)] {
            tokens.sweep(None, |_| move |_: &str, _: &str| need, now).await.unwrap();
            assert_eq!(tokens.known.lock().await.len(), known, "{need:?}");
        }
    }
}
