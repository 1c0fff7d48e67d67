//! Runner groups as GitHub sees them.

use pacer_core::scope::Scope;
use serde::Deserialize;

use crate::call::Endpoint;
use crate::client::GitHub;
use crate::error::Error;

/// A runner group that a repository may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RunnerGroup {
    /// GitHub's id.
    pub id: u64,
    /// Name by which `spec.group` of a runner names it.
    pub name: String,
    /// Whether it is the group that runners are in unless they name another.
    pub default: bool,
    /// Whether it is the enterprise's, shared with the organization.
    #[serde(default)]
    pub inherited: bool,
}

#[derive(Deserialize)]
struct WirePage {
    runner_groups: Vec<RunnerGroup>,
}

impl GitHub {
    /// All runner groups of an organization or enterprise, in GitHub's order.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn runner_groups(&self, scope: &Scope) -> Result<Vec<RunnerGroup>, Error> {
        self.groups(scope, "per_page=100").await
    }

    /// The runner groups of an organization that one of its repositories (named without its owner) may use, in GitHub's order.
    ///
    /// GitHub Enterprise Server knows this from 3.6 on; earlier ones give all groups.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn runner_groups_visible_to(&self, organization: &str, repository: &str) -> Result<Vec<RunnerGroup>, Error> {
        let repository: String = form_urlencoded::byte_serialize(repository.as_bytes()).collect();
        let organization = Scope::Organization(organization.to_owned());
        self.groups(&organization, &format!("visible_to_repository={repository}&per_page=100")).await
    }

    async fn groups(&self, scope: &Scope, query: &str) -> Result<Vec<RunnerGroup>, Error> {
        let pages: Vec<WirePage> = self.get_all(Endpoint::ListRunnerGroups, scope, "actions/runner-groups", query).await?;
        Ok(pages.into_iter().flat_map(|page| page.runner_groups).collect())
    }
}
