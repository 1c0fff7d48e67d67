//! `pacer doctor --bundle`: what somebody who helps from afar has to see, in one file.
//!
//! Secrets are never read for it. What people may have written elsewhere, such as a token in a variable of a runner, is taken out; see
//! [`redaction`]. Names of repositories, jobs, nodes and images stay: without them nothing can be found.

mod redaction;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::LogParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use pacer_api::names::{API_VERSION, annotation, label};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Report;
use super::installation::Installation;
use crate::reader::Reader;

/// Objects of a kind at most, so that a bundle of a large installation can still be sent.
const LISTED: usize = 2_000;

/// Lines of each log.
const LINES: i64 = 5_000;

/// Files by their paths.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    files: BTreeMap<String, String>,
}

/// Reads what goes into it. What can't be read is noted by the reader.
pub(super) async fn gather(reader: &mut Reader, installation: &Installation) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.add::<RunnerDeployment>(reader).await;
    bundle.add::<RunnerSet>(reader).await;
    bundle.add::<RunnerReplicaSet>(reader).await;
    bundle.add::<Runner>(reader).await;
    bundle.add::<HorizontalRunnerAutoscaler>(reader).await;
    bundle.add::<JobLedger>(reader).await;
    bundle.add::<PersistentVolumeClaim>(reader).await;
    let pods: Vec<Pod> = reader.namespaced(label::RUNNER_POD).await;
    bundle.put("runner-pods", reader, pods);
    let nodes: Vec<Node> = reader.everywhere("").await;
    bundle.put("nodes", reader, nodes);
    let events: Vec<Event> = reader.namespaced("").await;
    let ours = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|object| object.api_version.as_deref());
        regarding == Some(API_VERSION) || event.metadata.namespace.as_deref() == Some(installation.namespace.as_str())
    };
    bundle.put("events", reader, events.into_iter().filter(ours).collect());

    let deployments: Vec<Deployment> = reader.of_namespace(&installation.namespace).await;
    bundle.put("operator/deployments", reader, deployments);
    let leases: Vec<Lease> = reader.of_namespace(&installation.namespace).await;
    bundle.put("operator/leases", reader, leases);
    let maps: Vec<ConfigMap> = reader.namespaced("").await;
    let policy_sets: Vec<Value> =
        maps.iter().filter(|map| map.annotations().contains_key(annotation::POLICY_STATUS)).map(outline).collect();
    bundle.put("policy-sets", reader, policy_sets);
    let pods: Vec<Pod> = reader.of_namespace(&installation.namespace).await;
    for pod in &pods {
        bundle.logs(reader, installation, pod).await;
    }
    bundle.put("operator/pods", reader, pods);
    bundle
}

/// A policy set without its components and settings, which are its owner's.
fn outline(set: &ConfigMap) -> Value {
    let text = set.data.iter().flatten().map(|(key, text)| (key, text.len()));
    let binary = set.binary_data.iter().flatten().map(|(key, bytes)| (key, bytes.0.len()));
    let sizes: BTreeMap<_, _> = text.chain(binary).collect();
    json!({"metadata": &set.metadata, "bytes": sizes})
}

impl Bundle {
    async fn add<K>(&mut self, reader: &mut Reader)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let objects: Vec<K> = reader.namespaced("").await;
        self.put(&K::plural(&()), reader, objects);
    }

    fn put<T: Serialize>(&mut self, name: &str, reader: &mut Reader, objects: Vec<T>) {
        if objects.len() > LISTED {
            reader.unread.push(format!("{name}: the bundle has {LISTED} of {}", objects.len()));
        }
        let objects: Vec<Value> = objects
            .into_iter()
            .take(LISTED)
            .filter_map(|object| serde_json::to_value(object).ok())
            .map(|mut object| {
                redaction::redact(&mut object);
                object
            })
            .collect();
        self.files.insert(format!("{name}.json"), format!("{:#}\n", Value::Array(objects)));
    }

    /// The log of a pod of the operator, also of the container that ran before.
    async fn logs(&mut self, reader: &mut Reader, installation: &Installation, pod: &Pod) {
        let api: Api<Pod> = Api::namespaced(reader.client.clone(), &installation.namespace);
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let restarted = statuses.map(|status| status.restart_count).any(|count| count > 0);
        for previous in [false, true].into_iter().filter(|previous| !previous || restarted) {
            let parameters = LogParams { previous, tail_lines: Some(LINES), timestamps: true, ..LogParams::default() };
            let name = pod.name_any();
            match api.logs(&name, &parameters).await {
                Ok(log) => {
                    let path = format!("operator/logs/{name}{}.log", if previous { "-previous" } else { "" });
                    self.files.insert(path, redaction::scrub(&log));
                }
                Err(error) => reader.unread.push(format!("the log of pod {}/{name}: {error}", installation.namespace)),
            }
        }
    }

    /// Writes it as a compressed archive with one folder.
    pub(super) fn write(mut self, report: &Report, path: &Path) -> Result<()> {
        let mut found = serde_json::to_value(report)?;
        redaction::redact(&mut found);
        self.files.insert("doctor.json".to_owned(), format!("{found:#}\n"));
        self.files.insert("doctor.txt".to_owned(), redaction::scrub(&report.text()));
        self.files.insert("version.txt".to_owned(), format!("pacer {}\n", env!("CARGO_PKG_VERSION")));
        let file = File::create_new(path)
            .with_context(|| format!("creating {}; an existing file is not written over", path.display()))?;
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for (name, text) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len().try_into()?);
            header.set_mode(0o600);
            archive
                .append_data(&mut header, format!("pacer-bundle/{name}"), text.as_bytes())
                .with_context(|| format!("writing {}", path.display()))?;
        }
        archive.into_inner()?.finish().with_context(|| format!("writing {}", path.display()))?;
        Ok(())
    }
}
