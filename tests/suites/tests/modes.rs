//! Modes that few fleets use, on the real API server with RBAC enforced: jobs in pods of their own, runners that report what they do, runners
//! that are only registered, and what runners say of their jobs.

mod at_work;
mod hook;
mod job_pods;
mod registration;

use anyhow::Result;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pacer_harness::world::World;
use pacer_suites::NAMESPACE;

/// The API server as a service account of the fleets' namespace sees it, with a token of its own.
///
/// # Errors
///
/// When there is no such account.
async fn as_account(world: &World, name: &str) -> Result<Client> {
    let path = world.plane.kubeconfig_for_service_account(NAMESPACE, name).await?;
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Whether the API server refused for want of a right.
fn is_forbidden<T>(outcome: Result<T, kube::Error>) -> bool {
    matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403)
}
