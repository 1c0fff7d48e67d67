//! Scopes, identifiers and the accounts that hold runners.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
};

macro_rules! identifier {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

identifier! {
    /// A runner's registration; survives `--replace`, never reused.
    RunnerId,
    /// A workflow job; later jobs have higher numbers.
    JobId,
    /// A workflow run.
    RunId,
    /// A runner group; unique over all accounts. Runners of repositories report group 1.
    GroupId,
    /// A registered webhook.
    HookId,
    /// One attempt to deliver an event to a webhook.
    DeliveryId,
}

/// Where runners are registered. GitHub compares names without regard to case, and so does the simulation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `owner/name`.
    Repository {
        /// Login of the organization or user.
        owner: String,
        /// Name without the owner.
        name: String,
    },
    /// Organization login (or, as the owner of repositories only, a user's).
    Organization(String),
    /// Enterprise slug.
    Enterprise(String),
}

/// A path that names no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no scope: expected owner/repository, an organization or enterprises/slug")]
pub struct NoScope(pub String);

impl Scope {
    /// The repository `owner/name`.
    #[must_use]
    pub fn repository(owner: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Repository { owner: owner.into(), name: name.into() }
    }

    /// The organization `login`.
    #[must_use]
    pub fn organization(login: impl Into<String>) -> Self {
        Self::Organization(login.into())
    }

    /// The enterprise `slug`.
    #[must_use]
    pub fn enterprise(slug: impl Into<String>) -> Self {
        Self::Enterprise(slug.into())
    }

    /// What identifies the scope in the index: its path in lower case.
    pub(super) fn key(&self) -> String {
        self.to_string().to_lowercase()
    }

    /// Path of the scope's REST resources below the API base, without slashes at the ends.
    pub(super) fn api_path(&self) -> String {
        match self {
            Self::Repository { owner, name } => format!("repos/{owner}/{name}"),
            Self::Organization(login) => format!("orgs/{login}"),
            Self::Enterprise(slug) => format!("enterprises/{slug}"),
        }
    }
}

/// The path by which a runner's configuration names the scope: `owner/name`, `login`, `enterprises/slug`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository { owner, name } => write!(f, "{owner}/{name}"),
            Self::Organization(login) => f.write_str(login),
            Self::Enterprise(slug) => write!(f, "enterprises/{slug}"),
        }
    }
}

impl FromStr for Scope {
    type Err = NoScope;

    fn from_str(path: &str) -> Result<Self, NoScope> {
        let mut parts = path.trim_matches('/').split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("enterprises"), Some(slug), None) if !slug.is_empty() => Ok(Self::enterprise(slug)),
            (Some(login), None, None) if !login.is_empty() => Ok(Self::organization(login)),
            (Some(owner), Some(name), None) if !owner.is_empty() && !name.is_empty() => Ok(Self::repository(owner, name)),
            _ => Err(NoScope(path.to_owned())),
        }
    }
}

/// Which repositories (of an organization's group) or organizations (of an enterprise's) may use a runner group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupVisibility {
    /// All repositories, or all organizations.
    All,
    /// Those named: repository names without the owner, or organization logins.
    Selected(BTreeSet<String>),
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) name: String,
    pub(super) visibility: GroupVisibility,
    pub(super) default: bool,
}

impl Group {
    /// The name of the group that every account has.
    pub(super) const DEFAULT: &'static str = "Default";
    /// What GitHub reports for runners of repositories, which have no groups.
    pub(super) const OF_REPOSITORIES: GroupId = GroupId(1);

    pub(super) fn admits(&self, name: &str) -> bool {
        match &self.visibility {
            GroupVisibility::All => true,
            GroupVisibility::Selected(names) => names.iter().any(|selected| selected.eq_ignore_ascii_case(name)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PlaceId(usize);

/// A scope that exists, with what is registered there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) scope: Scope,
    /// The account's or repository's own number at GitHub.
    pub(super) number: u64,
    pub(super) user: bool,
    pub(super) parent: Option<PlaceId>,
    pub(super) groups: Vec<Group>,
    pub(super) runners: BTreeSet<super::RunnerId>,
    /// By name in lower case.
    pub(super) names: HashMap<String, super::RunnerId>,
    /// Changes whenever an answer about this place may change.
    pub(super) version: u64,
}

impl Place {
    pub(super) fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }
}

/// All scopes that exist.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    places: Vec<Place>,
    index: HashMap<String, PlaceId>,
    groups: u64,
}

impl Accounts {
    pub(super) fn find(&self, scope: &Scope) -> Option<PlaceId> {
        self.index.get(&scope.key()).copied()
    }

    /// Takes a scope away: nothing is found under its name any more.
    pub(super) fn remove(&mut self, scope: &Scope) -> Option<PlaceId> {
        self.index.remove(&scope.key())
    }

    pub(super) fn find_number(&self, number: u64) -> Option<PlaceId> {
        self.places.iter().position(|place| place.number == number).map(PlaceId)
    }

    pub(super) fn get(&self, id: PlaceId) -> Option<&Place> {
        self.places.get(id.0)
    }

    /// Repositories of an organization.
    pub(super) fn repositories_of(&self, owner: PlaceId) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| matches!(place.scope, Scope::Repository { .. }) && place.parent == Some(owner))
    }

    pub(super) fn get_mut(&mut self, id: PlaceId) -> Option<&mut Place> {
        self.places.get_mut(id.0)
    }

    /// The scope's place, made (with its owner) where it does not exist.
    pub(super) fn ensure(&mut self, scope: &Scope) -> PlaceId {
        if let Some(id) = self.find(scope) {
            return id;
        }
        let parent = match scope {
            Scope::Repository { owner, .. } => Some(self.ensure(&Scope::organization(owner))),
            Scope::Organization(_) | Scope::Enterprise(_) => None,
        };
        let groups = match scope {
            Scope::Repository { .. } => Vec::new(),
            Scope::Organization(_) | Scope::Enterprise(_) => vec![Group {
                id: self.next_group(),
                name: Group::DEFAULT.to_owned(),
                visibility: GroupVisibility::All,
                default: true,
            }],
        };
        let id = PlaceId(self.places.len());
        self.places.push(Place {
            scope: scope.clone(),
            number: 186_853_000 + id.0 as u64,
            user: false,
            parent,
            groups,
            runners: BTreeSet::new(),
            names: HashMap::new(),
            version: 0,
        });
        self.index.insert(scope.key(), id);
        id
    }

    pub(super) fn add_group(&mut self, scope: &Scope, name: &str, visibility: GroupVisibility) -> GroupId {
        let id = self.next_group();
        let place = self.ensure(scope);
        if let Some(place) = self.get_mut(place) {
            place.groups.push(Group { id, name: name.to_owned(), visibility, default: false });
            place.version += 1;
        }
        id
    }

    fn next_group(&mut self) -> GroupId {
        self.groups += 1;
        GroupId(self.groups)
    }

    pub(super) fn touch(&mut self, id: PlaceId) {
        if let Some(place) = self.get_mut(id) {
            place.version += 1;
        }
    }

    pub(super) fn touch_all(&mut self) {
        for place in &mut self.places {
            place.version += 1;
        }
    }

    /// The place and those above it: repository, organization, enterprise.
    pub(super) fn lineage(&self, id: PlaceId) -> impl Iterator<Item = PlaceId> {
        std::iter::successors(Some(id), |id| self.get(*id)?.parent)
    }

    /// Whether a group of `place` may run jobs of `repository`, which is `place` itself or below it.
    pub(super) fn admits(&self, place: PlaceId, group: GroupId, repository: PlaceId) -> bool {
        if place == repository {
            return true;
        }
        // What the group names is the level just below its own: repositories for organizations, organizations for enterprises.
        let below = self.lineage(repository).find(|id| self.get(*id).is_some_and(|below| below.parent == Some(place)));
        let Some(below) = below.and_then(|id| self.get(id)) else { return false };
        let name = match &below.scope {
            Scope::Repository { name, .. } => name,
            Scope::Organization(login) => login,
            Scope::Enterprise(slug) => slug,
        };
        self.get(place).and_then(|place| place.group(group)).is_some_and(|group| group.admits(name))
    }
}
