//! Control planes that tests of this process are done with, for its next ones. A start takes the API server two seconds of a processor, and half of what a
//! short test takes altogether; to empty one takes a tenth of a second.
//!
//! What a test made is deleted in etcd, as if it had never been there: no finalizer, no controller and no admission has a say. The API server learns of that by its
//! watches, as of every write, and hands it on. What can't be undone so ends the control plane instead: see [`Changes::are_undone_by_deletion`].

use std::io;
use std::path::Path;
use std::process::{Child as Process, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::Value;

use super::etcd::{Contents, Etcd};
use super::{ControlPlaneError, Options, Running, client, client_config};

/// The variable that has control planes used again where it is `reused`. Unset, each test has one of its own.
const VARIABLE: &str = "PACER_CONTROLPLANES";

/// Most that wait for a test; those of a suite are of few kinds.
const IDLE: usize = 3;

/// Longest until an emptied one stays empty.
const SETTLING: Duration = Duration::from_secs(10);

/// Pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(50);

/// Keys that the API server writes for itself, whoever uses it.
const THEIR_OWN: [&str; 3] =
    ["/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/peerserverleases/"];

/// Keys whose values the API server works into what it serves or admits, some time after they changed.
const WORKED_IN: [&str; 6] = [
    "/registry/admissionregistration.k8s.io/",
    "/registry/apiextensions.k8s.io/",
    "/registry/apiregistration.k8s.io/",
    "/registry/flowschemas/",
    "/registry/mutatingwebhookconfigurations/",
    "/registry/prioritylevelconfigurations/",
];

/// More keys than this take longer to delete than a start.
const MANY: usize = 3_000;

/// Those that wait.
static WAITING: Mutex<Vec<Arc<Running>>> = Mutex::new(Vec::new());

/// Whether tests of this process use control planes again.
pub(super) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "reused")
}

/// An emptied control plane as these options want it; none when no such one waits, or the one that did could not be emptied.
pub(super) async fn take(options: &Options) -> Option<Arc<Running>> {
    let running = {
        let mut waiting = lock();
        let place = waiting.iter().position(|running| running.options == *options)?;
        waiting.swap_remove(place)
    };
    match empty(&running).await {
        Ok(()) => Some(running),
        Err(error) => {
            told(&error);
            None
        }
    }
}

#[expect(clippy::print_stderr, reason = "it belongs to the output of the test, which is shown when that fails")]
fn told(error: &ControlPlaneError) {
    eprintln!("a control plane is not used again: {error}");
}

/// Keeps one whose test is over. Who waits for longest makes room.
pub(super) fn keep(running: Arc<Running>) {
    let mut waiting = lock();
    if waiting.len() >= IDLE {
        waiting.remove(0);
    }
    waiting.push(running);
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Arc<Running>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What makes a control plane one that others may use.
#[derive(Debug)]
pub(super) struct Reusable {
    /// What etcd held before the first test.
    contents: Contents,
    _directory: Remover,
}

impl Reusable {
    /// Of one whose first namespaces are prepared, and that nobody uses yet.
    pub(super) async fn new(etcd: &Etcd, directory: &Path) -> Result<Self, ControlPlaneError> {
        let failed = |source| ControlPlaneError::File { path: directory.to_owned(), source };
        Ok(Self { contents: contents(etcd).await?, _directory: Remover::of(directory).map_err(failed)? })
    }
}

/// What etcd holds, once nothing changes any more.
async fn contents(etcd: &Etcd) -> Result<Contents, ControlPlaneError> {
    let mut before = etcd.keys().await?;
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = etcd.keys().await?;
        if Changes::between(&before, &now).are_none() {
            return Ok(now);
        }
        before = now;
    }
}

/// How the keys of a control plane differ from what they were.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    made: Vec<String>,
    altered: Vec<String>,
}

impl Changes {
    /// Without those that the API server writes for itself.
    fn between(before: &Contents, now: &Contents) -> Self {
        let mut changes = Self::default();
        let of_users = |key: &&String| !THEIR_OWN.iter().any(|own| key.starts_with(own));
        for (key, revision) in now.iter().filter(|(key, _)| of_users(key)) {
            match before.get(key) {
                None => changes.made.push(key.clone()),
                Some(was) if was != revision => changes.altered.push(key.clone()),
                Some(_) => {}
            }
        }
        changes.altered.extend(before.keys().filter(of_users).filter(|key| !now.contains_key(*key)).cloned());
        changes
    }

    fn are_none(&self) -> bool {
        self.made.is_empty() && self.altered.is_empty()
    }

    /// Whether there is nothing left of them when what was made is deleted: nothing was altered that was there before, and nothing was made that the API
    /// server works into what it serves or admits.
    fn are_undone_by_deletion(&self) -> Result<(), String> {
        if let Some(key) = self.altered.first() {
            return Err(format!("{key} is not what it was"));
        }
        if let Some(key) = self.made.iter().find(|key| WORKED_IN.iter().any(|prefix| key.starts_with(prefix))) {
            return Err(format!("{key} was made"));
        }
        if self.made.len() > MANY {
            return Err(format!("{} objects were made", self.made.len()));
        }
        Ok(())
    }

    /// What was made, namespaces first: into one that is there, controllers put again what was deleted of it.
    fn in_order(mut self) -> Vec<String> {
        self.made.sort_by_key(|key| !key.starts_with("/registry/namespaces/"));
        self.made
    }
}

/// Deletes what its last test made, until nothing of it comes back.
async fn empty(running: &Running) -> Result<(), ControlPlaneError> {
    let failed = |problem: String| ControlPlaneError::NotEmpty { problem };
    let Some(Reusable { contents, .. }) = &running.reusable else { return Err(failed("nobody knows what it held".to_owned())) };
    let emptied = async {
        loop {
            let changes = Changes::between(contents, &running.store().keys().await?);
            if changes.are_none() {
                return Ok(());
            }
            changes.are_undone_by_deletion().map_err(failed)?;
            running.store().delete(&changes.in_order()).await?;
            seen(running).await?;
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(SETTLING, emptied).await {
        Ok(outcome) => outcome,
        Err(_) => Err(failed(format!("something comes back for {} s", SETTLING.as_secs()))),
    }
}

/// Returns when the API server has seen of every kind what etcd holds: it answers such a list when its watch has come as far.
async fn seen(running: &Running) -> Result<(), ControlPlaneError> {
    let client = client(client_config(&running.layout, &running.admin))?;
    let failed = |source| ControlPlaneError::Api { what: "cannot list what is there".to_owned(), source: Box::new(source) };
    let get = |path: &str, accept: &str| {
        let request = http::Request::get(path).header("Accept", accept).body(Vec::new());
        let client = client.clone();
        async move { client.request::<Value>(request.map_err(kube::Error::HttpError)?).await }
    };
    let mut lists = Vec::new();
    for root in ["/api", "/apis"] {
        let discovered =
            get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").await.map_err(failed)?;
        lists.extend(lists_of(&discovered));
    }
    // Names alone: definitions and roles are large.
    let names = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    try_join_all(lists.iter().map(|path| get(path, names))).await.map(drop).map_err(failed)
}

/// Paths of all that can be listed and watched, of the preferred version of each group.
fn lists_of(discovered: &Value) -> Vec<String> {
    let array = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut paths = Vec::new();
    for group in array(discovered, "items") {
        let name = group.get("metadata").map(|metadata| text(metadata, "name")).unwrap_or_default();
        let Some(version) = array(&group, "versions").into_iter().next() else { continue };
        let root = if name.is_empty() { "/api".to_owned() } else { format!("/apis/{name}") };
        for resource in array(&version, "resources") {
            if array(&resource, "verbs").iter().any(|verb| verb == "watch") {
                paths.push(format!("{root}/{}/{}", text(&version, "version"), text(&resource, "resource")));
            }
        }
    }
    paths
}

/// A process that removes a directory when this one ends, however it does: nobody drops what waits for a test that never comes.
#[derive(Debug)]
struct Remover(Process);

impl Remover {
    fn of(directory: &Path) -> io::Result<Self> {
        // It reads until the other end of its input is closed, which the system does for a process that is gone.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r never; rm -rf \"$1\"", "remover"]).arg(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // One that can't be waited for is gone.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::etcd::Revision;

    fn contents(keys: &[(&str, i64)]) -> Contents {
        keys.iter().map(|(key, revision)| ((*key).to_owned(), Revision(*revision))).collect()
    }

    #[test]
    fn what_was_made_is_deleted_namespaces_first() {
        let before =
            contents(&[("/registry/configmaps/default/kube-root-ca.crt", 3), ("/registry/leases/kube-system/apiserver-x", 4)]);
        let mut now = before.clone();
        now.extend(contents(&[
            ("/registry/actions.summerwind.dev/runners/team/a", 9),
            ("/registry/leases/kube-system/apiserver-x", 12),
            ("/registry/namespaces/team", 8),
        ]));
        let changes = Changes::between(&before, &now);
        changes.are_undone_by_deletion().unwrap();
        assert_eq!(changes.in_order(), ["/registry/namespaces/team", "/registry/actions.summerwind.dev/runners/team/a"]);
        assert!(Changes::between(&now, &now).are_none());
    }

    #[test]
    fn what_deletion_does_not_undo_ends_the_control_plane() {
        let before = contents(&[("/registry/apiextensions.k8s.io/customresourcedefinitions/runners", 3)]);
        for (now, why) in [
            (contents(&[("/registry/apiextensions.k8s.io/customresourcedefinitions/runners", 5)]), "is not what it was"),
            (contents(&[]), "is not what it was"),
            (
                contents(&[
                    ("/registry/apiextensions.k8s.io/customresourcedefinitions/runners", 3),
                    ("/registry/apiextensions.k8s.io/customresourcedefinitions/widgets", 4),
                ]),
                "was made",
            ),
        ] {
            let refused = Changes::between(&before, &now).are_undone_by_deletion().unwrap_err();
            assert!(refused.ends_with(why), "{refused}");
        }
        let many = (0..=MANY).map(|n| (format!("/registry/pods/default/{n}"), Revision(9))).collect();
        let refused = Changes::between(&Contents::new(), &many).are_undone_by_deletion().unwrap_err();
        assert_eq!(refused, "3001 objects were made");
    }

    #[test]
    fn every_kind_that_can_be_watched_is_listed_once() {
        let discovered = serde_json::json!({"items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "verbs": ["list", "watch"]}, {"resource": "bindings", "verbs": ["create"]}]}]},
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [{"resource": "statefulsets", "verbs": ["watch"]}]},
                {"version": "v1beta1", "resources": [{"resource": "statefulsets", "verbs": ["watch"]}]}]},
        ]});
        assert_eq!(lists_of(&discovered), ["/api/v1/pods", "/apis/apps/v1/statefulsets"]);
    }

    #[test]
    fn directory_is_removed_when_nobody_can_close_it_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("etcd");
        std::fs::create_dir(&inside).unwrap();
        drop(Remover::of(&inside).unwrap());
        assert!(!inside.exists());
    }
}
