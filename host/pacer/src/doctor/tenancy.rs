//! Whether a tenancy says which namespaces may register where.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt};
use pacer_cluster::object::ObjectKey;
use pacer_core::tenancy::{self, Tenancy};
use pacer_policy::tenancy::{read, text};

use super::Checked;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use crate::default_set::config_map;
use crate::reader::Reader;

/// Said where none is asked for: that is no fault, and worth knowing.
const NONE: &str = "no tenancy is in force: every namespace may use the operator's credentials for whatever they reach (--tenancy, \
                    docs/tenancy.md)";

/// What was found when it was looked for.
pub(super) enum Looked {
    /// None is asked for.
    None,
    /// It can't be read, which was noted.
    Unread(ObjectKey),
    /// It is asked for, and nobody has made it.
    Missing(ObjectKey),
    /// What it says, or what is wrong with it.
    Read(ObjectKey, Result<Tenancy, String>),
}

pub(super) async fn look(reader: &mut Reader, installation: &Installation) -> Looked {
    // Flags that can't be read are a finding about the Deployment.
    let Ok(Some(arguments)) = installation.flags() else { return Looked::None };
    let Ok(Some(key)) = config_map("--tenancy", &arguments.tenancy, &installation.namespace) else { return Looked::None };
    let maps: Api<ConfigMap> = Api::namespaced(reader.client.clone(), &key.namespace);
    let read = match maps.get_opt(&key.name).await {
        Ok(Some(map)) => text(map.data.as_ref()).and_then(|text| read(text, &key.namespace)).map_err(|error| error.to_string()),
        Ok(None) => return Looked::Missing(key),
        Err(error) => {
            reader.unread.push(format!("ConfigMap {key}, the tenancy: {error}"));
            return Looked::Unread(key);
        }
    };
    Looked::Read(key, read)
}

pub(super) fn check(looked: &Looked) -> Checked {
    let edit = |key: &ObjectKey| {
        format!("kubectl edit configmap {} --namespace {}; docs/tenancy.md has the format", key.name, key.namespace)
    };
    let (key, wrong) = match looked {
        Looked::None => return Checked { healthy: NONE.to_owned(), findings: Vec::new() },
        Looked::Unread(key) => (key, None),
        Looked::Missing(key) => {
            let make = format!(
                "kubectl create configmap {} --namespace={} --from-file=tenancy.yaml; docs/tenancy.md has the format",
                key.name, key.namespace
            );
            (key, Some(("does not exist".to_owned(), make)))
        }
        Looked::Read(key, read) => (key, read.as_ref().err().map(|what| (what.clone(), edit(key)))),
    };
    let finding = wrong.map(|(what, cure)| Finding {
        severity: Severity::Problem,
        object: format!("ConfigMap {key}"),
        what,
        why: "the last good tenancy stays in force; where there never was one, nothing new is allowed".to_owned(),
        cure,
    });
    Checked { healthy: format!("the tenancy in ConfigMap {key} is in force"), findings: finding.into_iter().collect() }
}

/// In which namespaces credentials of namespaces lie.
#[derive(Default)]
pub(super) struct CredentialsNamespaces {
    tenancy: Tenancy,
    labels: BTreeMap<String, BTreeMap<String, String>>,
}

impl CredentialsNamespaces {
    /// As the file says; each namespace's own where there is none, or where it can't be read.
    pub(super) async fn read(reader: &mut Reader, looked: Looked) -> Self {
        let Looked::Read(_, Ok(tenancy)) = looked else { return Self::default() };
        let mut labels = BTreeMap::new();
        if tenancy.reads_labels() {
            let all: Vec<Namespace> = reader.everywhere("").await;
            labels = all.into_iter().map(|one| (one.name_any(), one.metadata.labels.unwrap_or_default())).collect();
        }
        Self { tenancy, labels }
    }

    /// The one for the credentials of a namespace.
    pub(super) fn of<'a>(&'a self, namespace: &'a str) -> &'a str {
        let known = tenancy::Namespace { name: namespace, labels: self.labels.get(namespace) };
        self.tenancy.credentials(known).ok().flatten().unwrap_or(namespace)
    }
}
