//! Persistent volume claims of pods: bound when the first pod needs them, mounted while a pod exists.
//!
//! What a storage class with `WaitForFirstConsumer`, its provisioner and the kubelet do together, as far as the API server shows it: a volume is
//! made, the claim is bound to it, and a pod whose claim does not exist waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::lock;

/// A pod got a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Namespace of the claim and of the pod.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
}

/// Which pods have which claims.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The pods that have a claim now, by namespace and name of the claim.
    now: BTreeMap<(String, String), Vec<Mount>>,
    all: Vec<Mount>,
    shared: Vec<(Mount, Mount)>,
    /// The only node that reaches a claim's volume, by namespace and name of the claim.
    homes: BTreeMap<(String, String), String>,
}

impl Mounts {
    fn add(&self, mount: Mount) {
        let mut table = lock(&self.table);
        let table = &mut *table;
        let holders = table.now.entry((mount.namespace.clone(), mount.claim.clone())).or_default();
        if holders.contains(&mount) {
            return;
        }
        table.shared.extend(holders.iter().map(|other| (other.clone(), mount.clone())));
        holders.push(mount.clone());
        table.all.push(mount);
    }

    /// The pod's object is gone.
    pub(super) fn release(&self, uid: &str) {
        lock(&self.table).now.retain(|_, holders| {
            holders.retain(|mount| mount.uid != uid);
            !holders.is_empty()
        });
    }

    pub(super) fn all(&self) -> Vec<Mount> {
        lock(&self.table).all.clone()
    }

    pub(super) fn shared(&self) -> Vec<(Mount, Mount)> {
        lock(&self.table).shared.clone()
    }

    /// The nodes that a pod's volumes are bound to; it gets onto none when they differ.
    pub(super) fn homes(&self, pod: &Pod) -> BTreeSet<String> {
        let namespace = pod.namespace().unwrap_or_default();
        let table = lock(&self.table);
        claims(pod).filter_map(|claim| table.homes.get(&(namespace.clone(), claim)).cloned()).collect()
    }

    /// Binds and mounts the claims of a pod, to volumes of its node alone where it is named.
    ///
    /// # Errors
    ///
    /// A kubelet's words for why the pod has to wait.
    pub(super) async fn mount(&self, client: &Client, pod: &Pod, home: Option<&str>) -> Result<(), String> {
        let namespace = pod.namespace().unwrap_or_default();
        for claim in claims(pod) {
            if bind(client, &namespace, &claim, home).await?
                && let Some(home) = home
            {
                lock(&self.table).homes.insert((namespace.clone(), claim.clone()), home.to_owned());
            }
            let (pod, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            self.add(Mount { namespace: namespace.clone(), claim, pod, uid });
        }
        Ok(())
    }
}

/// The claims that a pod names.
fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
}

/// Binds a claim to a volume, if it has none. True when one was made.
async fn bind(client: &Client, namespace: &str, name: &str, home: Option<&str>) -> Result<bool, String> {
    let failed = |error: kube::Error| format!("cannot bind persistentvolumeclaim {name:?}: {error}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let Some(claim) = claims.get_opt(name).await.map_err(failed)? else {
        return Err(format!("persistentvolumeclaim {name:?} not found"));
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound") {
        return Ok(false);
    }
    let uid = claim.uid().unwrap_or_default();
    let spec = claim.spec.unwrap_or_default();
    let capacity = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let volume = format!("pvc-{uid}");
    let made: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": volume},
        "spec": {
            "accessModes": spec.access_modes,
            "capacity": capacity,
            "storageClassName": spec.storage_class_name,
            "hostPath": {"path": format!("/volumes/{volume}")},
            "nodeAffinity": home.map(|home| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [home]},
            ]}]}})),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid},
        },
    }))
    .map_err(|error| error.to_string())?;
    match Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        outcome => drop(outcome.map_err(failed)?),
    }
    let params = PatchParams::default();
    let named = json!({"metadata": {"uid": uid}, "spec": {"volumeName": volume}});
    claims.patch(name, &params, &Patch::Merge(&named)).await.map_err(failed)?;
    let bound = json!({"status": {"phase": "Bound", "capacity": capacity}});
    claims.patch_status(name, &params, &Patch::Merge(&bound)).await.map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(claim: &str, pod: &str) -> Mount {
        Mount { namespace: "ci".to_owned(), claim: claim.to_owned(), pod: pod.to_owned(), uid: format!("uid of {pod}") }
    }

    #[test]
    fn two_pods_on_one_claim_are_told_one_after_the_other_is_fine() {
        let mounts = Mounts::default();
        mounts.add(mount("a", "first"));
        mounts.add(mount("a", "first"));
        mounts.add(mount("b", "second"));
        mounts.release("uid of first");
        mounts.add(mount("a", "second"));
        assert_eq!(mounts.shared(), []);
        assert_eq!(mounts.all().len(), 3);
        mounts.add(mount("a", "third"));
        assert_eq!(mounts.shared(), [(mount("a", "second"), mount("a", "third"))]);
    }
}
