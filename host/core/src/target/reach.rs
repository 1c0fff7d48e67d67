//! Where the jobs of a repository may run.

use super::{Candidate, Wanted};
use crate::scope::Scope;

/// How runners are reached from a repository, the narrowest first. Groups are searched as ARC does: the default ones first, and those of the
/// organization before those of the enterprise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Runners of the repository.
    Repository,
    /// The organization's default group.
    OrganizationDefault,
    /// The enterprise's default group.
    EnterpriseDefault,
    /// Another group of the organization.
    OrganizationGroup,
    /// Another group of the enterprise.
    EnterpriseGroup,
}

impl Reach {
    /// The reach in words for people, such as `default group of the organization`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repository => "repository",
            Self::OrganizationDefault => "default group of the organization",
            Self::EnterpriseDefault => "default group of the enterprise",
            Self::OrganizationGroup => "group of the organization",
            Self::EnterpriseGroup => "group of the enterprise",
        }
    }
}

/// Who has a runner group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The organization.
    Organization,
    /// The enterprise, which shares it with its organizations.
    Enterprise,
}

/// A runner group of an organization or an enterprise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// Whether it is a group of the organization or of the enterprise.
    pub level: Level,
    /// Its name; none for the default group.
    pub name: Option<String>,
}

/// Which runner groups a repository may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Nobody can be asked: all of them, as ARC assumes without credentials.
    Assumed,
    /// These, as GitHub says.
    Groups(Vec<Group>),
}

impl Visibility {
    /// Whether a repository may use the group of these runners.
    pub(super) fn shows(&self, candidate: &Candidate<'_>) -> bool {
        let Self::Groups(groups) = self else { return true };
        let level = match candidate.scope {
            Scope::Repository { .. } => return true,
            Scope::Organization(_) => Level::Organization,
            Scope::Enterprise(_) => Level::Enterprise,
        };
        groups.iter().any(|group| {
            group.level == level
                && match (group.name.as_deref(), custom_group(candidate)) {
                    (None, None) => true,
                    (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
                    _ => false,
                }
        })
    }
}

/// The group of these runners, unless it is the default one, which GitHub calls `Default`.
fn custom_group<'a>(candidate: &Candidate<'a>) -> Option<&'a str> {
    candidate.group.filter(|group| !group.is_empty() && !group.eq_ignore_ascii_case("default"))
}

/// How the runners are reached from the job's repository. Names of accounts and repositories have no case at GitHub.
pub(super) fn reach(wanted: &Wanted<'_>, candidate: &Candidate<'_>) -> Option<Reach> {
    let is_default = custom_group(candidate).is_none();
    match &candidate.scope {
        Scope::Repository { owner, name } => {
            let same = owner.eq_ignore_ascii_case(wanted.owner) && name.eq_ignore_ascii_case(wanted.repository);
            same.then_some(Reach::Repository)
        }
        _ if wanted.owner_is_user => None,
        Scope::Organization(organization) => organization.eq_ignore_ascii_case(wanted.owner).then_some(if is_default {
            Reach::OrganizationDefault
        } else {
            Reach::OrganizationGroup
        }),
        Scope::Enterprise(slug) => wanted
            .enterprise
            .is_some_and(|enterprise| enterprise.eq_ignore_ascii_case(slug))
            .then_some(if is_default { Reach::EnterpriseDefault } else { Reach::EnterpriseGroup }),
    }
}
