//! Who runners are at the API server, where they talk to it themselves: [`crate::pod::GeneratedAccess`] says what for, this makes it so.
//!
//! | for | account | granted | made | gone |
//! | --- | --- | --- | --- | --- |
//! | job pods (`containerMode: kubernetes`) | one per RunnerDeployment or set | a ClusterRole of the installation, bound in the namespace | before the first pod | with the set, once no pod uses it |
//! | the status hook, and stand-alone Runners | one per Runner | to patch the status of that Runner | before its pod | with the Runner |
//!
//! What job pods need is never the operator's to use: it may *bind* the one ClusterRole, and that is all.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::{NamespaceResourceScope, Status};
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::{annotation, label};
use pacer_cluster::answer::{ignore_not_found, status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::pod::{Account, GeneratedAccess, SharedAccount};

/// A shared account that was found in order is not looked at again before this, however many pods are made for it meanwhile.
const CHECKED: Duration = Duration::from_secs(60);

/// Why a runner has no account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Somebody else's object has the name.
    #[error(
        "{kind} {namespace}/{name} exists and is not the operator's, or was changed: delete or rename it, or name a service account of your \
         own in serviceAccountName"
    )]
    Taken {
        /// Kind of the object that has the name: ServiceAccount, Role or RoleBinding.
        kind: String,
        /// Namespace of that object.
        namespace: String,
        /// Name of that object.
        name: String,
    },
    /// The right to read every Secret of a namespace would be one to read the operator's.
    #[error(
        "runners with containerMode kubernetes may read every Secret of their namespace and execute in its pods, and {namespace} is the \
         operator's own: move these runners to another namespace, or name a service account of your own in serviceAccountName"
    )]
    OwnNamespace {
        /// The operator's namespace, in which the runners are.
        namespace: String,
    },
    /// The operator lacks the right.
    #[error(
        "the operator may not make the service account that these runners need ({message}): install its ClusterRoles pacer-access and \
         pacer-job-pods, or name a service account of your own in serviceAccountName"
    )]
    Forbidden {
        /// What the API server said.
        message: String,
    },
    /// The API server refused for another reason or did not answer.
    #[error("Kubernetes API: {0}")]
    Kube(#[from] Box<kube::Error>),
}

impl From<kube::Error> for AccountError {
    fn from(error: kube::Error) -> Self {
        match status(&error) {
            Some(answer) if answer.is_forbidden() => Self::Forbidden { message: answer.message.clone() },
            _ => Self::Kube(Box::new(error)),
        }
    }
}

/// When a shared account was last found in order, behind its own lock: made once, and nobody waits for another one.
type Checked = Arc<Mutex<Option<Instant>>>;

/// Makes and removes accounts.
pub struct Accounts {
    client: Client,
    /// ClusterRole of job pods.
    job_pods: String,
    /// The operator's namespace, in which nobody gets that.
    own: String,
    /// Shared ones, by namespace and name.
    known: Mutex<HashMap<(String, String), Checked>>,
    /// There may be shared ones in the cluster.
    any: AtomicBool,
}

impl Accounts {
    /// No account known yet. `job_pods` is the name of the ClusterRole that runners in container mode `kubernetes` are bound to, and `own` the
    /// operator's namespace, where its credentials lie.
    #[must_use]
    pub fn new(client: Client, job_pods: String, own: String) -> Self {
        Self { client, job_pods, own, known: Mutex::default(), any: AtomicBool::new(true) }
    }

    /// Makes sure that a Runner's account exists, and returns its name.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub async fn ensure(
        &self,
        runner: &Runner,
        access: GeneratedAccess,
        set: Option<&SharedAccount>,
    ) -> Result<String, AccountError> {
        if access.job_pods && runner.namespace().as_deref() == Some(self.own.as_str()) {
            return Err(AccountError::OwnNamespace { namespace: self.own.clone() });
        }
        let account = access.account(runner, set, &self.job_pods);
        let (namespace, name) = (account.account.namespace().unwrap_or_default(), account.account.name_any());
        if !account.shared {
            self.make_all(&account).await?;
            return Ok(name);
        }
        let entry = self.known.lock().await.entry((namespace, name.clone())).or_default().clone();
        let mut checked = entry.lock().await;
        if checked.is_none_or(|at| at.elapsed() >= CHECKED) {
            self.any.store(true, Ordering::Relaxed);
            self.make_all(&account).await?;
            *checked = Some(Instant::now());
        }
        Ok(name)
    }

    /// Forgets that an account was in order, after a pod could not use it: the next [`Self::ensure`] looks at the cluster.
    pub async fn doubt(&self, namespace: &str, name: &str) {
        self.known.lock().await.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Deletes the shared accounts that nobody needs any more, and forgets those that somebody else deleted. `uses` looks which are used at the moment
    /// of its call, in one namespace or in all, and says so by namespace and name.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn sweep<U>(&self, namespace: Option<&str>, uses: impl Fn(Option<&str>) -> U) -> Result<(), kube::Error>
    where
        U: Fn(&str, &str) -> bool,
    {
        let is_used = uses(None);
        // One that is being made stays: whoever makes it holds its slot.
        self.known.lock().await.retain(|(namespace, name), slot| is_used(namespace, name) || slot.try_lock().is_err());
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.any.store(false, Ordering::Relaxed);
        let outcome = self.sweep_all(namespace, &uses).await;
        if !matches!(outcome, Ok(0)) {
            self.any.store(true, Ordering::Relaxed);
        }
        outcome.map(drop)
    }

    /// Returns how many are left.
    async fn sweep_all<U>(&self, namespace: Option<&str>, uses: &impl Fn(Option<&str>) -> U) -> Result<usize, kube::Error>
    where
        U: Fn(&str, &str) -> bool,
    {
        // The right goes before who had it.
        let bindings = self.sweep_kind::<RoleBinding, U>(namespace, uses).await?;
        Ok(bindings + self.sweep_kind::<ServiceAccount, U>(namespace, uses).await?)
    }

    async fn sweep_kind<K, U>(&self, namespace: Option<&str>, uses: &impl Fn(Option<&str>) -> U) -> Result<usize, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        U: Fn(&str, &str) -> bool,
    {
        let all: Api<K> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let listed = all.list_metadata(&ListParams::default().labels(&format!("{}=true", label::JOB_PODS_ACCOUNT))).await?;
        // What was made meanwhile is listed as well.
        let is_used = uses(None);
        let mut left = 0;
        for found in listed {
            let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
            if is_used(&namespace, &name) {
                left += 1;
                continue;
            }
            let slot = self.known.lock().await.entry((namespace.clone(), name.clone())).or_default().clone();
            // It is being made for a pod. Whoever begins to need it from here on waits, and finds it gone.
            let checked = slot.try_lock().ok();
            // The deletions before this one took their time. The token of a pod names the UID of its account, so that making the account again does not help.
            let Some(mut checked) = checked.filter(|_| !uses(Some(&namespace))(&namespace, &name)) else {
                left += 1;
                continue;
            };
            *checked = None;
            let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
            let only_this = DeleteParams {
                preconditions: Some(Preconditions { uid: found.uid(), resource_version: None }),
                ..DeleteParams::default()
            };
            ignore_not_found(api.delete(&name, &only_this).await)?;
            tracing::info!(namespace, name, kind = %K::kind(&()), "account of runners that are gone deleted");
        }
        Ok(left)
    }

    async fn make_all(&self, wanted: &Account) -> Result<(), AccountError> {
        let look_first = wanted.shared;
        self.make(&wanted.account, look_first, |_| true).await?;
        if let Some(role) = &wanted.role {
            self.make(role, look_first, |found| found.rules == role.rules).await?;
        }
        for binding in &wanted.bindings {
            let same = |found: &RoleBinding| found.role_ref == binding.role_ref && found.subjects == binding.subjects;
            self.make(binding, look_first, same).await?;
        }
        Ok(())
    }

    /// Makes one object, unless it is there as it should be.
    async fn make<K>(&self, wanted: &K, look_first: bool, same: impl Fn(&K) -> bool) -> Result<(), AccountError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let mut found = if look_first { api.get_opt(&name).await? } else { None };
        if found.is_none() {
            match api.create(&PostParams::default(), wanted).await {
                Ok(_) => return Ok(()),
                // An earlier try, or another process.
                Err(error) if status(&error).is_some_and(Status::is_already_exists) => found = Some(api.get(&name).await?),
                Err(error) => return Err(error.into()),
            }
        }
        match found {
            Some(found) if is_same_owner(found.meta(), wanted.meta()) && same(&found) => Ok(()),
            _ => Err(AccountError::Taken { kind: K::kind(&()).into_owned(), namespace, name }),
        }
    }
}

/// Whether an object was made for whom we would make it: the Runner with that UID, or the set of that kind and name.
fn is_same_owner(found: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let uid = |meta: &ObjectMeta| meta.owner_references.as_ref().and_then(|owners| owners.first()).map(|owner| owner.uid.clone());
    let made_for = |meta: &ObjectMeta| meta.annotations.as_ref().and_then(|all| all.get(annotation::MADE_FOR).cloned());
    match uid(wanted) {
        Some(owner) => uid(found) == Some(owner),
        None => made_for(found).is_some() && made_for(found) == made_for(wanted),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn account_that_nobody_needs_is_forgotten_although_somebody_else_deleted_it() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let accounts = Accounts::new(Client::new(silent, "own"), "pacer-job-pods".to_owned(), "own".to_owned());
        accounts.any.store(false, Ordering::Relaxed);
        for name in ["web", "gone"] {
            accounts.known.lock().await.entry(("ci".to_owned(), name.to_owned())).or_default();
        }
        accounts.sweep(None, |_: Option<&str>| |_: &str, name: &str| name == "web").await.unwrap();
        let known = accounts.known.lock().await;
        assert_eq!(known.keys().collect::<Vec<_>>(), [&("ci".to_owned(), "web".to_owned())]);
    }

    #[tokio::test]
    async fn account_that_somebody_has_begun_to_need_is_not_deleted() {
        // Nobody needs it for so many looks: at the beginning; after the list of bindings, and before the binding goes; the same for the account.
        for (looks, expected) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
            let (deleted, looked) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
            let count = deleted.clone();
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let answer = match *request.method() {
                    http::Method::DELETE => {
                        count.fetch_add(1, Ordering::Relaxed);
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
                    }
                    _ => {
                        let meta = json!({"name": "web", "namespace": "ci", "uid": "1"});
                        let found = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
                        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [found]})
                    }
                };
                let answer = http::Response::new(kube::client::Body::from(answer.to_string().into_bytes()));
                async move { Ok::<_, kube::Error>(answer) }
            });
            let accounts = Accounts::new(Client::new(service, "own"), "pacer-job-pods".to_owned(), "own".to_owned());
            let uses = |_: Option<&str>| {
                let is_used = looked.fetch_add(1, Ordering::Relaxed) >= looks;
                move |_: &str, _: &str| is_used
            };
            accounts.sweep(None, uses).await.unwrap();
            assert_eq!(deleted.load(Ordering::Relaxed), expected, "{looks}");
        }
    }

    #[test]
    fn only_what_was_made_for_the_same_owner_is_used() {
        let owned = |uid: &str| ObjectMeta {
            owner_references: Some(vec![OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }]),
            ..ObjectMeta::default()
        };
        let marked = |owner: &str| ObjectMeta {
            annotations: Some([(annotation::MADE_FOR.to_owned(), owner.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let users = ObjectMeta::default();
        for (found, wanted, expected) in [
            (owned("a"), owned("a"), true),
            (owned("b"), owned("a"), false),
            (users.clone(), owned("a"), false),
            (marked("RunnerDeployment/x"), owned("a"), false),
            (marked("RunnerDeployment/x"), marked("RunnerDeployment/x"), true),
            (marked("RunnerReplicaSet/x"), marked("RunnerDeployment/x"), false),
            (users, marked("RunnerDeployment/x"), false),
        ] {
            assert_eq!(is_same_owner(&found, &wanted), expected, "{found:?} for {wanted:?}");
        }
    }
}
