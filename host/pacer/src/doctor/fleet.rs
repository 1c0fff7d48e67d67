//! Fleets and where they register runners, with the repositories whose jobs they are known to be for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, RunnerDeployment, RunnerSet};
use pacer_core::scope::Scope;
use pacer_operator::target::{Target, TargetRef};

use crate::reader::Reader;

/// A RunnerDeployment or RunnerSet that says where its runners register.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    /// Kind, namespace and name.
    pub(super) title: String,
    pub(super) target: Target,
    pub(super) scope: Scope,
    /// Full names of repositories that its autoscalers name, or know jobs of.
    pub(super) repositories: BTreeSet<String>,
    /// An autoscaler of it is told of jobs by webhooks.
    pub(super) has_trigger: bool,
    /// An autoscaler of it reports jobs that wait at GitHub, with the fleet's credentials.
    pub(super) reports_jobs: bool,
}

/// What the autoscalers of a target ask for.
#[derive(Default)]
struct Asked {
    repositories: BTreeSet<String>,
    has_trigger: bool,
    reports_jobs: bool,
}

impl Fleet {
    pub(super) fn group(&self) -> Option<&str> {
        self.target.config().group()
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.target.config().credentials_secret()
    }
}

/// All fleets whose scope makes sense; the conditions of the others say what is wrong with it.
pub(super) async fn read(reader: &mut Reader) -> Vec<Fleet> {
    let deployments = reader.namespaced::<RunnerDeployment>("").await.into_iter().map(|one| Target::Deployment(Arc::new(one)));
    let mut targets: Vec<Target> = deployments.collect();
    targets.extend(reader.namespaced::<RunnerSet>("").await.into_iter().map(|one| Target::Set(Arc::new(one))));
    let autoscalers: Vec<HorizontalRunnerAutoscaler> = reader.namespaced("").await;
    let mut of_jobs = repositories_of(&reader.namespaced::<JobLedger>("").await);
    let mut known: BTreeMap<TargetRef, Asked> = BTreeMap::new();
    for autoscaler in &autoscalers {
        let Some(target) = TargetRef::of(autoscaler) else { continue };
        let key = (target.namespace.clone(), autoscaler.name_any());
        let asked = known.entry(target).or_default();
        asked.repositories.extend(of_jobs.remove(&key).unwrap_or_default());
        let metrics = autoscaler.spec.metrics.iter().flatten();
        asked.repositories.extend(metrics.flat_map(|metric| metric.repository_names.iter().flatten().cloned()));
        asked.has_trigger |= autoscaler.spec.workflow_job_trigger().is_some();
        let asks = autoscaler.annotations().contains_key(annotation::REPORT_WAITING);
        asked.reports_jobs |= asks && autoscaler.spec.credentials_secret().is_none();
    }
    let fleet = |target: Target| {
        let scope = target.config().scope().ok()?;
        let reference = target.reference();
        let Asked { repositories, has_trigger, reports_jobs } = known.remove(&reference).unwrap_or_default();
        let repositories = repositories.iter().map(|name| full_name(name, &scope)).collect();
        Some(Fleet { title: reference.to_string(), target, scope, repositories, has_trigger, reports_jobs })
    };
    targets.into_iter().filter_map(fleet).collect()
}

/// Repositories of jobs, by namespace and name of the autoscaler that knows them.
fn repositories_of(ledgers: &[JobLedger]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for ledger in ledgers {
        let key = (ledger.namespace().unwrap_or_default(), ledger.spec.autoscaler.clone());
        found.entry(key).or_default().extend(ledger.spec.workflows.values().map(|workflow| workflow.repository.clone()));
    }
    found
}

/// Autoscalers name the repositories of an organization without it.
fn full_name(name: &str, scope: &Scope) -> String {
    match scope {
        Scope::Organization(login) if !name.contains('/') => format!("{login}/{name}"),
        Scope::Repository { owner, .. } if !name.contains('/') => format!("{owner}/{name}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_named_in_full_whoever_names_them() {
        let organization = Scope::Organization("acme".to_owned());
        assert_eq!(full_name("app", &organization), "acme/app");
        assert_eq!(full_name("other/app", &organization), "other/app");
        assert_eq!(full_name("app", &Scope::Enterprise("big".to_owned())), "app");
    }
}
