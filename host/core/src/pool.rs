//! What a pool is, beside its runners, and what its decisions are told of the others of its namespace.

use std::cmp::Reverse;

use crate::policy::Attributes;
use crate::scope::Scope;

/// Where a pool belongs and how much it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOrigin<'a> {
    /// Where its runners register; none while its spec names no such place.
    pub scope: Option<Scope>,
    /// Runner group that the spec names; none or empty where it names none.
    pub group: Option<&'a str>,
    /// Image of their `runner` container.
    pub image: &'a str,
    /// What its annotation says of its priority.
    pub priority: Option<&'a str>,
}

impl PoolOrigin<'_> {
    /// The attributes of a pool that this is. A priority that is no whole number is left out.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let scope = self.scope.as_ref().map(|scope| match scope {
            Scope::Repository { owner, name } => ("repository", format!("{owner}/{name}")),
            Scope::Organization(organization) => ("organization", organization.clone()),
            Scope::Enterprise(enterprise) => ("enterprise", enterprise.clone()),
        });
        let group = self.group.filter(|group| !group.is_empty()).map(|group| ("group", group.to_owned()));
        let image = (!self.image.is_empty()).then(|| ("image", self.image.to_owned()));
        let priority = self.priority.and_then(priority).map(|priority| ("priority", priority.to_string()));
        [scope, group, image, priority].into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// What the annotation of a pool says of its priority; none where that is no whole number.
#[must_use]
pub fn priority(said: &str) -> Option<i32> {
    said.trim().parse().ok()
}

/// Other pools that are told, the most important ones first.
pub const OTHERS: usize = 32;

/// Another pool of the namespace, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherPool {
    /// `RunnerDeployment` or `RunnerSet`: a name may be that of one of each.
    pub kind: &'static str,
    /// Name of the RunnerDeployment or RunnerSet.
    pub name: String,
    /// Runners that it is to have.
    pub desired: u32,
    /// Its runners; none while they have not been counted.
    pub runners: Option<Workforce>,
    /// The most that its autoscaler may ask for; none without one.
    pub max: Option<u32>,
    /// Jobs that wait for it; none where no autoscaler counts jobs.
    pub waiting: Option<u32>,
    /// What it says of its priority.
    pub priority: Option<i32>,
}

/// Runners of a pool that are connected to GitHub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workforce {
    /// Runners that are connected, with or without a job.
    pub online: u32,
    /// Of these, those that run a job.
    pub busy: u32,
}

impl OtherPool {
    /// The one that is told first comes first: priority, one that says nothing counting as 0; then the jobs that wait; then the name.
    fn place(&self) -> impl Ord + '_ {
        let waiting = self.waiting.unwrap_or_default();
        (Reverse(self.priority.unwrap_or_default()), Reverse(waiting), &self.name, self.kind)
    }

    fn numbers(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let online = self.runners.map(|runners| runners.online);
        let busy = self.runners.map(|runners| runners.busy);
        let counts = [
            ("other-desired", Some(self.desired)),
            ("other-online", online),
            ("other-busy", busy),
            ("other-max", self.max),
            ("other-waiting", self.waiting),
        ];
        let counts = counts.into_iter().filter_map(|(key, count)| Some((key, i64::from(count?))));
        counts.chain(self.priority.map(|priority| ("other-priority", i64::from(priority))))
    }
}

/// The attributes of a pool that tell of the others of its namespace: at most [`OTHERS`] of them, and how many these leave out.
#[must_use]
pub fn others(mut pools: Vec<OtherPool>) -> Attributes {
    let omitted = pools.len().saturating_sub(OTHERS);
    let omitted = (omitted > 0).then(|| ("omitted-pools".to_owned(), omitted.to_string()));
    let count = ("other-pools".to_owned(), pools.len().to_string());
    pools.sort_by(|one, other| one.place().cmp(&other.place()));
    let told = pools
        .iter()
        .take(OTHERS)
        .flat_map(|pool| pool.numbers().map(|(key, number)| (format!("{key}:{}/{}", pool.kind, pool.name), number.to_string())));
    [count].into_iter().chain(omitted).chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(told: Attributes) -> String {
        told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pool_tells_where_it_is_registered_and_how_much_it_matters() {
        let scope = |repository, organization, enterprise| Scope::resolve(repository, organization, enterprise).ok();
        for (origin, expected) in [
            (PoolOrigin::default(), ""),
            (
                PoolOrigin { scope: scope(Some("acme/app"), None, None), image: "runner:1", ..PoolOrigin::default() },
                "repository=acme/app image=runner:1",
            ),
            (
                PoolOrigin { scope: scope(None, Some("acme"), None), group: Some("big"), priority: Some(" -5 "), image: "" },
                "organization=acme group=big priority=-5",
            ),
            (
                PoolOrigin { scope: scope(None, None, Some("corp")), group: Some(""), priority: Some("high"), image: "" },
                "enterprise=corp",
            ),
        ] {
            assert_eq!(told(origin.attributes()), expected);
        }
    }

    #[test]
    fn other_pools_are_told_in_short_and_the_important_ones_first() {
        let pool = |name: &str| OtherPool { kind: "RunnerDeployment", name: name.to_owned(), ..OtherPool::default() };
        assert_eq!(told(others(Vec::new())), "other-pools=0");
        let ruled = OtherPool {
            desired: 3,
            runners: Some(Workforce { online: 2, busy: 1 }),
            max: Some(9),
            waiting: Some(4),
            priority: Some(-1),
            ..pool("a")
        };
        let set = OtherPool { kind: "RunnerSet", waiting: Some(0), ..pool("b") };
        assert_eq!(
            told(others(vec![ruled, set, pool("b")])),
            "other-pools=3 other-desired:RunnerDeployment/b=0 other-desired:RunnerSet/b=0 other-waiting:RunnerSet/b=0 \
             other-desired:RunnerDeployment/a=3 other-online:RunnerDeployment/a=2 other-busy:RunnerDeployment/a=1 \
             other-max:RunnerDeployment/a=9 other-waiting:RunnerDeployment/a=4 other-priority:RunnerDeployment/a=-1"
        );
        let mut many: Vec<OtherPool> = (0..100).map(|number| pool(&format!("p{number:03}"))).collect();
        many.push(OtherPool { waiting: Some(1), ..pool("waits") });
        many.push(OtherPool { priority: Some(5), ..pool("vital") });
        let told = others(many);
        let head: Vec<&str> = told.iter().map(|(key, _)| key.as_str()).take(5).collect();
        let first = [
            "other-desired:RunnerDeployment/vital",
            "other-priority:RunnerDeployment/vital",
            "other-desired:RunnerDeployment/waits",
        ];
        assert_eq!(head, [&["other-pools", "omitted-pools"], &first[..]].concat());
        assert_eq!((told[0].1.as_str(), told[1].1.as_str()), ("102", "70"));
        let names = told.iter().filter(|(key, _)| key.starts_with("other-desired:")).count();
        assert_eq!(names, OTHERS);
    }
}
