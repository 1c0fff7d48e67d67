//! Which further facts a policy reads.
//!
//! A fact reaches a policy as an attribute, and only one that says in `describe` that it reads the fact: the value of its attribute `reads` is
//! a list of [`Fact`]s. What nobody reads is not gathered, and a component that says nothing is told what all were told before there were
//! such facts.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Key of the attribute of a policy's description that lists what it reads.
pub const KEY: &str = "reads";

/// Facts of one kind, which are read together. docs/policies.md lists the attributes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fact {
    /// Labels of nodes that the operator may pass on, and what kind of capacity a node is.
    NodeLabels,
    /// What of a node's CPU and memory pods may use.
    NodeSize,
    /// Runners of other pools on a node.
    NodeNeighbours,
    /// What a node costs.
    NodePrice,
    /// Runners that failed within the last hour, by node and by image.
    Failures,
    /// Annotations of runners that the operator may pass on.
    Annotations,
    /// Labels of runners that the operator may pass on.
    Labels,
    /// Where the pool is registered, its image and its priority.
    Pool,
    /// The other pools of its namespace, in short.
    OtherPools,
    /// The last job of a runner.
    LastJob,
    /// Jobs that wait for the pool.
    WaitingJobs,
    /// What started the run of a job.
    Job,
    /// How many more pods of the pool the nodes take, and what the pods on nodes request.
    Room,
}

impl Fact {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::NodeLabels,
        Self::NodeSize,
        Self::NodeNeighbours,
        Self::NodePrice,
        Self::Failures,
        Self::Annotations,
        Self::Labels,
        Self::Pool,
        Self::OtherPools,
        Self::LastJob,
        Self::WaitingJobs,
        Self::Job,
        Self::Room,
    ];

    /// Its name in `reads`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeLabels => "node-labels",
            Self::NodeSize => "node-size",
            Self::NodeNeighbours => "node-neighbours",
            Self::NodePrice => "node-price",
            Self::Failures => "failures",
            Self::Annotations => "annotations",
            Self::Labels => "labels",
            Self::Pool => "pool",
            Self::OtherPools => "other-pools",
            Self::LastJob => "last-job",
            Self::WaitingJobs => "waiting-jobs",
            Self::Job => "job",
            Self::Room => "room",
        }
    }

    /// The attributes that it comes as. Capital letters stand for what differs; the keys of annotations are their own.
    #[must_use]
    pub fn attributes(self) -> &'static [&'static str] {
        match self {
            Self::NodeLabels => &["label:KEY", "capacity-type"],
            Self::NodeSize => &["allocatable-cpu-millis", "allocatable-memory-bytes"],
            Self::NodeNeighbours => &["other-runners"],
            Self::NodePrice => &["price-per-hour"],
            Self::Failures => &["failures", "image-failures"],
            Self::Annotations => &["KEY"],
            Self::Labels => &["label:KEY"],
            Self::Pool => &["repository", "organization", "enterprise", "group", "image", "priority"],
            Self::OtherPools => &[
                "other-pools",
                "omitted-pools",
                "other-desired:KIND/NAME",
                "other-online:KIND/NAME",
                "other-busy:KIND/NAME",
                "other-max:KIND/NAME",
                "other-waiting:KIND/NAME",
                "other-priority:KIND/NAME",
            ],
            Self::LastJob => &["last-job-repository", "last-job-workflow"],
            Self::WaitingJobs => &["waiting-jobs", "waiting-seconds"],
            Self::Job => &["run", "branch", "actor", "environment", "event"],
            Self::Room => {
                &["room-pods", "room-claims", "room:TYPE/CAPACITY/ZONE", "requested-cpu-millis", "requested-memory-bytes"]
            }
        }
    }

    /// Whether it may come as an attribute of this key.
    #[must_use]
    pub fn comes_as(self, key: &str) -> bool {
        self.attributes().iter().any(|named| match named.split_once(':') {
            Some((kind, _)) => key.strip_prefix(kind).is_some_and(|rest| rest.starts_with(':')),
            None if *named == "KEY" => key.contains('/'),
            None => *named == key,
        })
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a policy reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads(BTreeSet<Fact>);

impl Reads {
    /// From a declaration, whose names are separated by commas or white space; with the names that this operator does not know. A policy works
    /// without facts, so that one that reads what a newer operator tells is not refused.
    #[must_use]
    pub fn declared(text: &str) -> (Self, Vec<&str>) {
        let names = text.split(|char: char| char == ',' || char.is_whitespace()).filter(|name| !name.is_empty());
        let mut unknown = Vec::new();
        let known = names.filter_map(|name| {
            let fact = Fact::ALL.into_iter().find(|fact| fact.as_str() == name);
            unknown.extend(fact.is_none().then_some(name));
            fact
        });
        (Self(known.collect()), unknown)
    }

    /// Whether it reads a fact.
    #[must_use]
    pub fn has(&self, fact: Fact) -> bool {
        self.0.contains(&fact)
    }

    /// Whether it reads one of these.
    #[must_use]
    pub fn has_any(&self, facts: &[Fact]) -> bool {
        facts.iter().any(|fact| self.has(*fact))
    }

    /// What this one or another one reads.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }
}

impl FromIterator<Fact> for Reads {
    fn from_iter<T: IntoIterator<Item = Fact>>(facts: T) -> Self {
        Self(facts.into_iter().collect())
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|fact| fact.as_str()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::allowed::Allowed;
    use crate::demand::Waiting;
    use crate::fit::{FreeRoom, Host, Shape};
    use crate::last_job;
    use crate::ledger::{About, Origin};
    use crate::node::NodeFacts;
    use crate::policy::Attributes;
    use crate::pool::{self, OtherPool, PoolOrigin, Workforce};
    use crate::price::Prices;
    use crate::scope::Scope;

    #[test]
    fn declaration_is_read_whatever_separates_its_names() {
        for (text, expected, unknown) in [
            ("", "", vec![]),
            ("last-job", "last-job", vec![]),
            ("last-job, node-labels,node-labels", "node-labels, last-job", vec![]),
            (" node-price\nfuel-price  Pool", "node-price", vec!["fuel-price", "Pool"]),
        ] {
            let (reads, left) = Reads::declared(text);
            assert_eq!((reads.to_string().as_str(), left), (expected, unknown), "{text:?}");
        }
    }

    /// What facts are told as, of which everything is known.
    fn told() -> Vec<(Fact, Vec<String>)> {
        let keys = |attributes: Attributes| attributes.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        let node = NodeFacts {
            labels: [("node.kubernetes.io/instance-type", "m5.large"), ("karpenter.sh/capacity-type", "spot")]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            cpu_millis: Some(1),
            memory_bytes: Some(1),
            ..NodeFacts::default()
        };
        let prices = Prices::new([("m5.large".to_owned(), 0.1)].into()).unwrap();
        let allowed = Allowed { node_labels: vec!["node.kubernetes.io/instance-type".to_owned()], ..Allowed::default() };
        let of_node = |fact| (fact, keys(node.attributes(&Reads::from_iter([fact]), &allowed, &prices)));
        let scope = |repository, organization, enterprise| Scope::resolve(repository, organization, enterprise).ok();
        let of_pool = |scope| PoolOrigin { scope, group: Some("g"), image: "i", priority: Some("1") }.attributes();
        let scopes = [scope(Some("a/b"), None, None), scope(None, Some("a"), None), scope(None, None, Some("a"))];
        let about = About { repository: "a/b".into(), workflow: "w".into(), labels: [].into(), attempt: 1 };
        let text = || "t".into();
        let origin = Origin { run: Some(1), branch: text(), event: text(), actor: text(), environment: text() };
        let now = Timestamp::UNIX_EPOCH;
        let host = Host { requested: [("cpu".to_owned(), 1), ("memory".to_owned(), 1)].into(), ..Host::default() };
        let room = FreeRoom { pods: 1, shapes: [(Shape::default(), 1)].into() };
        let (runners, one) = (Some(Workforce::default()), Some(1));
        let other = OtherPool { runners, max: one, waiting: one, priority: Some(1), ..OtherPool::default() };
        vec![
            of_node(Fact::NodeLabels),
            of_node(Fact::NodeSize),
            of_node(Fact::NodePrice),
            (Fact::Pool, scopes.into_iter().flat_map(|scope| keys(of_pool(scope))).collect()),
            (Fact::OtherPools, keys(pool::others(vec![other; pool::OTHERS + 1]))),
            (Fact::LastJob, keys(last_job::attributes(&about))),
            (Fact::WaitingJobs, keys(Waiting { jobs: 1, since: Some(now) }.attributes(now))),
            (Fact::Job, keys(origin.attributes())),
            (Fact::Room, [keys(room.attributes(1)), keys(host.attributes())].concat()),
        ]
    }

    #[test]
    fn facts_come_as_the_attributes_that_are_listed() {
        for (fact, keys) in told() {
            assert!(keys.iter().all(|key| fact.comes_as(key)), "{fact}: {keys:?}");
            let kind = |key: &str| key.split_once(':').map(|(kind, _)| kind.to_owned());
            let is_told = |named: &&str| keys.iter().any(|key| key == named || kind(named).is_some() && kind(named) == kind(key));
            assert!(fact.attributes().iter().all(is_told), "{fact}: {keys:?}");
        }
        assert!(Fact::Annotations.comes_as("example.com/team") && !Fact::Annotations.comes_as("team"));
        assert!(!Fact::Room.comes_as("room") && !Fact::Labels.comes_as("label"));
    }

    #[test]
    fn every_fact_is_declared_by_its_name() {
        for fact in Fact::ALL {
            let (reads, unknown) = Reads::declared(fact.as_str());
            assert!(reads == Reads::from_iter([fact]) && reads.has(fact) && unknown.is_empty(), "{fact}");
        }
        let both = Reads::from_iter([Fact::Pool]).or(&Reads::from_iter([Fact::LastJob]));
        assert!(both.has(Fact::Pool) && both.has_any(&[Fact::Labels, Fact::LastJob]) && !both.has_any(&[Fact::Labels]));
    }
}
