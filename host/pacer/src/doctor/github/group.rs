//! Whether runner groups exist, and are open to the repositories whose jobs their runners are for.

use std::collections::{BTreeMap, BTreeSet};

use pacer_core::scope::Scope;
use pacer_github::{GitHub, RunnerGroup};

use super::Reached;
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::fleet::Fleet;
use crate::reader::Reader;

/// Most repositories that are asked about; each costs a call.
const REPOSITORIES: usize = 50;

pub(super) async fn check(reader: &mut Reader, reached: &[Reached<'_>]) -> Checked {
    let mut findings = Vec::new();
    let mut asked = 0;
    for Reached { github, fleets } in reached {
        let mut organizations: BTreeMap<&str, Vec<&Fleet>> = BTreeMap::new();
        for fleet in fleets {
            if let Scope::Organization(login) = &fleet.scope {
                organizations.entry(login).or_default().push(fleet);
            }
        }
        for (organization, fleets) in organizations {
            findings.extend(missing(reader, github, organization, &fleets).await);
            let repositories: BTreeSet<&str> =
                fleets.iter().flat_map(|fleet| fleet.repositories.iter().filter_map(|name| below(name, organization))).collect();
            for repository in repositories {
                if asked == REPOSITORIES {
                    reader.unread.push(format!("runner groups: no more than {REPOSITORIES} repositories are asked about"));
                    return checked(findings);
                }
                asked += 1;
                match github.runner_groups_visible_to(organization, repository).await {
                    Ok(open) => {
                        let closed = |fleet: &&Fleet| closed(github, fleet, organization, repository, &open);
                        findings.extend(fleets.iter().filter_map(closed));
                    }
                    // A repository that is gone has no jobs.
                    Err(error) if error.status() == Some(404) => {}
                    Err(error) => reader.unread.push(format!("runner groups of {organization}: {error:#}")),
                }
            }
        }
    }
    checked(findings)
}

fn checked(findings: Vec<Finding>) -> Checked {
    Checked { healthy: "runner groups exist and are open to the repositories that are known of".to_owned(), findings }
}

/// Fleets whose group the organization does not have.
async fn missing(reader: &mut Reader, github: &GitHub, organization: &str, fleets: &[&Fleet]) -> Vec<Finding> {
    let named: Vec<(&Fleet, &str)> = fleets.iter().filter_map(|fleet| Some((*fleet, fleet.group()?))).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let groups = match github.runner_groups(&Scope::Organization(organization.to_owned())).await {
        Ok(groups) => groups,
        Err(error) => {
            reader.unread.push(format!("runner groups of {organization}: {error:#}"));
            return Vec::new();
        }
    };
    let is_missing = |name: &str| !groups.iter().any(|group| group.name.eq_ignore_ascii_case(name));
    let finding = |(fleet, group): (&Fleet, &str)| Finding {
        severity: Severity::Problem,
        object: fleet.title.clone(),
        what: format!("names the runner group {group:?}, which organization {organization} does not have"),
        why: "its runners cannot register".to_owned(),
        cure: format!("make the group at {}, or name another in `group`", page(github, organization)),
    };
    named.into_iter().filter(|(_, group)| is_missing(group)).map(finding).collect()
}

/// What is wrong where a repository may not use a fleet's group.
fn closed(github: &GitHub, fleet: &Fleet, organization: &str, repository: &str, open: &[RunnerGroup]) -> Option<Finding> {
    if !fleet.repositories.iter().any(|name| below(name, organization) == Some(repository)) {
        return None;
    }
    let is_open = open.iter().any(|group| match fleet.group() {
        Some(name) => group.name.eq_ignore_ascii_case(name),
        None => group.default,
    });
    let group = fleet.group().map_or("the default group".to_owned(), |name| format!("group {name:?}"));
    (!is_open).then(|| Finding {
        severity: Severity::Problem,
        object: fleet.title.clone(),
        what: format!("its runners are in {group}, which repository {organization}/{repository} may not use"),
        why: "jobs of that repository wait although runners are idle".to_owned(),
        cure: format!("open the group to the repository at {}, or name another in `group`", page(github, organization)),
    })
}

/// Where people change groups.
fn page(github: &GitHub, organization: &str) -> String {
    format!("{}/organizations/{organization}/settings/actions/runner-groups", github.endpoints().runners().trim_end_matches('/'))
}

/// Name of a repository without its organization; none of another one.
fn below<'a>(full: &'a str, organization: &str) -> Option<&'a str> {
    let (owner, name) = full.split_once('/')?;
    owner.eq_ignore_ascii_case(organization).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_repositories_of_the_organization_can_be_in_its_groups() {
        assert_eq!(below("Acme/app", "acme"), Some("app"));
        assert_eq!(below("other/app", "acme"), None);
        assert_eq!(below("app", "acme"), None);
    }
}
