//! Many tenants in one cluster: an organization each, with a token and a Secret of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pacer_harness::github::{Effect, Fault, FaultId, Person, Routes, Scope, View};
use pacer_harness::world::World;
use serde_json::{Value, json};

use crate::{NAMESPACE, apply};

/// An organization with a token, a Secret and a RunnerDeployment of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Of the organization, of its user at GitHub, of the Secret and of the RunnerDeployment.
    pub name: String,
    /// The tenant's organization at the simulated GitHub.
    pub scope: Scope,
    /// Its personal access token.
    pub token: String,
}

impl Tenant {
    /// A tenant with its organization, user and Secret.
    ///
    /// # Errors
    ///
    /// When the API server does not take the Secret.
    pub async fn new(world: &World, name: &str) -> Result<Self> {
        let scope = Scope::organization(name);
        world.github.add(&scope);
        let token = world.github.add_pat(Person::admin(name).seeing([scope.clone()]));
        let tenant = Self { name: name.to_owned(), scope, token };
        tenant.put_token(world, &tenant.token).await?;
        Ok(tenant)
    }

    /// So many of them, named `tenant-0` and so on.
    ///
    /// # Errors
    ///
    /// As [`Tenant::new`].
    pub async fn several(world: &World, count: u32) -> Result<Vec<Self>> {
        let mut tenants = Vec::new();
        for number in 0..count {
            tenants.push(Self::new(world, &format!("tenant-{number}")).await?);
        }
        Ok(tenants)
    }

    /// Puts a token into its Secret.
    ///
    /// # Errors
    ///
    /// When the API server does not take it.
    pub async fn put_token(&self, world: &World, token: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name, "namespace": NAMESPACE},
            "stringData": {"github_token": token},
        });
        apply(world, &secret).await
    }

    /// A new token for its user.
    #[must_use]
    pub fn another_token(&self, world: &World) -> String {
        world.github.add_pat(Person::admin(&self.name).seeing([self.scope.clone()]))
    }

    /// Manifest of its RunnerDeployment, whose runners use the tenant's Secret.
    #[must_use]
    pub fn deployment(&self, replicas: u32) -> Value {
        json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"replicas": replicas, "template": {"spec": {
                "organization": self.name, "labels": [self.name],
                "githubAPICredentialsFrom": {"secretRef": {"name": self.name}},
            }}},
        })
    }

    /// Makes GitHub answer it so much later, until the fault is cleared.
    #[must_use]
    pub fn slow_down(&self, world: &World, delay: Duration) -> FaultId {
        world.github.inject(Fault::new(Routes::all().scope(self.scope.clone()), Effect::Delay(delay)).always())
    }

    fn has_online(&self, view: &View<'_>, wanted: usize) -> bool {
        let registered = view.registrations(&self.scope);
        registered.len() == wanted && registered.iter().all(|runner| runner.online)
    }
}

/// Waits until each of these tenants has exactly so many runners, all online; says how long that took.
///
/// # Errors
///
/// With the state of the world, when they are not within `patience`.
pub async fn online(world: &World, tenants: &[&Tenant], wanted: usize, patience: Duration) -> Result<Duration> {
    let began = Instant::now();
    let reached = |view: &View<'_>| tenants.iter().all(|tenant| tenant.has_online(view, wanted));
    let outcome = world.github.wait_for(patience, reached).await;
    world.check(outcome).await.with_context(|| format!("waiting for {wanted} runners of each of {} tenants", tenants.len()))?;
    Ok(began.elapsed())
}
