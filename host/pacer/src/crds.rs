//! `pacer crds`: prints the definitions of all kinds, or installs them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt as _};
use pacer_api::crd;

use crate::cluster::{self, Cluster, ClusterArguments};
use crate::report::Report;

/// Who the API server says has set the fields of the definitions.
const FIELD_MANAGER: &str = "pacer-crds";

/// Longest wait until the API server serves a kind that was installed.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Arguments of `pacer crds`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What to do with the definitions; prints them where nothing is said.
#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Installs the definitions, or updates those of another version or of ARC to this version. Changes no objects.
    Apply(ClusterArguments),
}

/// `pacer crds`.
pub(crate) fn main(arguments: &Arguments) -> Result<Report> {
    match &arguments.verb {
        None => Ok(Report::text(crd::yaml()?)),
        Some(Verb::Apply(arguments)) => cluster::with(arguments, async |cluster| apply(&cluster).await),
    }
}

async fn apply(cluster: &Cluster) -> Result<Report> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut text = String::new();
    for definition in crd::all()? {
        let name = definition.name_any();
        let before = api.get_opt(&name).await.with_context(|| format!("reading CustomResourceDefinition {name}"))?;
        // Fields that another installer has set are this version's now: `kubectl apply` would leave both in conflict.
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let after = api.patch(&name, &parameters, &Patch::Apply(&definition)).await;
        let after = after.with_context(|| format!("applying CustomResourceDefinition {name}"))?;
        let served = await_condition(api.clone(), &name, conditions::is_crd_established());
        let served = tokio::time::timeout(ESTABLISHED, served).await;
        served.with_context(|| format!("the API server does not serve {name}; kubectl describe crd {name} says why"))??;
        let outcome = match before {
            None => "installed",
            Some(before) if before.resource_version() == after.resource_version() => "unchanged",
            Some(_) => "renewed",
        };
        text.push_str(&format!("{name} {outcome}\n"));
    }
    Ok(Report::text(text))
}
