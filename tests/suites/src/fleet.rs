//! A fleet of either kind: a RunnerDeployment, or a RunnerSet whose runners have a volume each.
//!
//! What both must live through is written once, over [`Kind`].

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use pacer_api::{RunnerDeployment, RunnerSet};
use pacer_harness::world::World;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{NAMESPACE, apply, deployment, put};

/// What a RunnerSet says of its claims.
const RETENTION: &str = "persistentVolumeClaimRetentionPolicy";

/// Makes a test of each kind out of `async fn name(kind: Kind) -> Result<()>`.
#[macro_export]
macro_rules! for_both_kinds {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use $crate::fleet::Kind;

            #[tokio::test(flavor = "multi_thread")]
            async fn runner_deployment() -> anyhow::Result<()> {
                super::$test(Kind::RunnerDeployment).await
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn runner_set() -> anyhow::Result<()> {
                super::$test(Kind::RunnerSet).await
            }
        }
    )+};
}

/// What fleets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A RunnerDeployment.
    RunnerDeployment,
    /// A RunnerSet with a `volumeClaimTemplate`.
    RunnerSet,
}

impl Kind {
    /// A fleet of this kind, as people write it. A RunnerSet keeps no more claims than it has runners, and none when it is gone.
    #[must_use]
    pub fn fleet(self, name: &str, replicas: u32) -> Fleet {
        let manifest = match self {
            Self::RunnerDeployment => deployment(name, replicas),
            Self::RunnerSet => {
                let few = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
                put(with_volumes(runner_set(name, replicas)), "/spec", RETENTION, few)
            }
        };
        Fleet { kind: self, name: name.to_owned(), manifest }
    }

    /// The kind as manifests name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunnerDeployment => "RunnerDeployment",
            Self::RunnerSet => "RunnerSet",
        }
    }
}

/// A RunnerSet as people write it.
#[must_use]
pub fn runner_set(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "RunnerSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "repository": "acme/app",
            "labels": [name],
            "selector": {"matchLabels": {"app": name}},
            "serviceName": "workers",
            "template": {"metadata": {"labels": {"app": name}}},
        },
    })
}

/// The same RunnerSet with a cache on a volume.
#[must_use]
pub fn with_volumes(set: Value) -> Value {
    let container = json!({"name": "runner", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]});
    let set = put(set, "/spec/template", "spec", json!({"containers": [container]}));
    let claim = json!({
        "metadata": {"name": "cache"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    put(set, "/spec", "volumeClaimTemplates", json!([claim]))
}

/// A RunnerDeployment or RunnerSet with its name and its manifest.
#[derive(Clone, Debug)]
pub struct Fleet {
    kind: Kind,
    name: String,
    manifest: Value,
}

impl Fleet {
    /// Name of the RunnerDeployment or RunnerSet.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same in another namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        self.put("/metadata", "namespace", json!(namespace))
    }

    /// The same with a field of what GitHub and the runner image are told.
    #[must_use]
    pub fn with(self, field: &str, value: Value) -> Self {
        match self.kind {
            Kind::RunnerDeployment => self.put("/spec/template/spec", field, value),
            Kind::RunnerSet => self.put("/spec", field, value),
        }
    }

    /// The same with a field of its pods.
    #[must_use]
    pub fn with_pod(self, field: &str, value: Value) -> Self {
        self.put("/spec/template/spec", field, value)
    }

    /// The same whose claims stay whatever happens, if it has any.
    #[must_use]
    pub fn retaining(self) -> Self {
        match self.kind {
            Kind::RunnerDeployment => self,
            Kind::RunnerSet => self.put("/spec", RETENTION, json!({})),
        }
    }

    fn put(mut self, place: &str, field: &str, value: Value) -> Self {
        self.manifest = put(self.manifest, place, field, value);
        self
    }

    /// Makes it, or makes it like this again.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn apply(&self, world: &World) -> Result<()> {
        apply(world, &self.manifest).await
    }

    /// Sets the wanted number through the scale subresource, as `kubectl scale` does.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn scale(&self, world: &World, replicas: u32) -> Result<()> {
        match self.kind {
            Kind::RunnerDeployment => scale::<RunnerDeployment>(world, &self.name, replicas).await,
            Kind::RunnerSet => scale::<RunnerSet>(world, &self.name, replicas).await,
        }
    }

    /// Gives it another template, whose runners have the annotation `revision`.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn renew(&self, world: &World, revision: &str) -> Result<()> {
        let spec = json!({"template": {"metadata": {"annotations": {"revision": revision}}}});
        match self.kind {
            Kind::RunnerDeployment => change::<RunnerDeployment>(world, &self.name, &spec).await,
            Kind::RunnerSet => change::<RunnerSet>(world, &self.name, &spec).await,
        }
    }

    /// Deletes it and leaves the rest to the garbage collector.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn delete(&self, world: &World) -> Result<()> {
        match self.kind {
            Kind::RunnerDeployment => crate::delete::<RunnerDeployment>(world, &self.name).await,
            Kind::RunnerSet => crate::delete::<RunnerSet>(world, &self.name).await,
        }
    }

    /// How an autoscaler names it.
    #[must_use]
    pub fn reference(&self) -> Value {
        json!({"kind": self.kind.as_str(), "name": self.name})
    }
}

async fn scale<K>(world: &World, name: &str, replicas: u32) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    crate::api::<K>(world).patch_scale(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Changes the spec of an object.
///
/// # Errors
///
/// When the API server refuses.
pub async fn change<K>(world: &World, name: &str, spec: &Value) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects: Api<K> = crate::api(world);
    objects.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
    Ok(())
}
