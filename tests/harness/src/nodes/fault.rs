//! Troubles that a test prepares for pods that are yet to start.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::watch;

use super::lock;

/// What goes wrong when a pod starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The runner's image cannot be pulled: `ErrImagePull`, then `ImagePullBackOff`, until healed.
    ImagePull,
    /// The container cannot be made: `CreateContainerConfigError` with this message, until healed.
    ContainerConfig(String),
    /// The agent starts and never registers, until healed.
    NeverRegisters,
    /// The agent's process ends with this code instead of registering.
    ExitsAtOnce(i32),
    /// The kubelet refuses the pod at admission: phase `Failed` with this reason, such as `OutOfcpu`, and no container in its status.
    Refused(&'static str),
    /// The pod takes this much longer to start.
    SlowStart(Duration),
}

/// Which pods a trouble meets; all of the given conditions hold for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only names that start so.
    pub name_prefix: String,
    /// Only with these labels.
    pub labels: BTreeMap<String, String>,
    /// At most so many pods, the first ones.
    pub at_most: Option<usize>,
}

impl Affected {
    /// Every pod.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The next `count` pods.
    #[must_use]
    pub fn next(count: usize) -> Self {
        Self { at_most: Some(count), ..Self::default() }
    }

    /// Pods of one namespace.
    #[must_use]
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    fn includes(&self, pod: &Pod) -> bool {
        self.at_most != Some(0)
            && self.namespace.as_ref().is_none_or(|namespace| pod.namespace().as_ref() == Some(namespace))
            && pod.name_any().starts_with(&self.name_prefix)
            && self.labels.iter().all(|(name, value)| pod.labels().get(name) == Some(value))
    }
}

/// Identifies an injected trouble, to heal it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TroubleId(u64);

/// All troubles that are not healed.
#[derive(Debug)]
pub(super) struct Troubles {
    active: Mutex<BTreeMap<TroubleId, (Affected, Trouble)>>,
    healed: watch::Sender<u64>,
}

impl Default for Troubles {
    fn default() -> Self {
        Self { active: Mutex::default(), healed: watch::channel(0).0 }
    }
}

impl Troubles {
    pub(super) fn inject(&self, affected: Affected, trouble: Trouble) -> TroubleId {
        let mut active = lock(&self.active);
        let id = TroubleId(active.last_key_value().map_or(0, |(id, _)| id.0) + 1);
        active.insert(id, (affected, trouble));
        id
    }

    pub(super) fn heal(&self, id: TroubleId) {
        lock(&self.active).remove(&id);
        self.healed.send_modify(|count| *count += 1);
    }

    /// The oldest trouble that meets this pod.
    pub(super) fn meet(&self, pod: &Pod) -> Option<(TroubleId, Trouble)> {
        let mut active = lock(&self.active);
        let (id, (affected, trouble)) = active.iter_mut().find(|(_, (affected, _))| affected.includes(pod))?;
        if let Some(left) = &mut affected.at_most {
            *left -= 1;
        }
        Some((*id, trouble.clone()))
    }

    pub(super) fn is_active(&self, id: TroubleId) -> bool {
        lock(&self.active).contains_key(&id)
    }

    pub(super) async fn healed(&self, id: TroubleId) {
        let mut healed = self.healed.subscribe();
        // The sender lives as long as `self`.
        let _ = healed.wait_for(|_| !self.is_active(id)).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    fn pod(namespace: &str, name: &str) -> Pod {
        let metadata = ObjectMeta { namespace: Some(namespace.into()), name: Some(name.into()), ..ObjectMeta::default() };
        Pod { metadata, ..Pod::default() }
    }

    #[test]
    fn a_trouble_meets_only_whom_it_should() {
        let troubles = Troubles::default();
        let affected = Affected { name_prefix: "bad-".into(), at_most: Some(2), ..Affected::namespace("ci") };
        let id = troubles.inject(affected, Trouble::ImagePull);
        for other in [pod("ci", "good"), pod("other", "bad-1")] {
            assert_eq!(troubles.meet(&other), None);
        }
        for name in ["bad-1", "bad-2"] {
            assert_eq!(troubles.meet(&pod("ci", name)), Some((id, Trouble::ImagePull)));
        }
        assert_eq!(troubles.meet(&pod("ci", "bad-3")), None, "the third is one too many");
    }

    #[tokio::test]
    async fn healing_wakes_those_who_wait() {
        let troubles = Troubles::default();
        let id = troubles.inject(Affected::all(), Trouble::NeverRegisters);
        tokio::join!(troubles.healed(id), async { troubles.heal(id) });
        troubles.healed(id).await;
    }
}
