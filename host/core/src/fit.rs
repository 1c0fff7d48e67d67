//! How many more pods of a kind the nodes that exist take now, as far as requests, selectors and taints say.
//!
//! Three of the scheduler's filters are followed: resources (with the number of pods of a node), node selector and required node affinity, and taints.
//! What it leaves out makes the number an upper bound: topology spread, affinity between pods, volumes and their zones, host ports, preemption,
//! and what a pod group needs at once. Nodes that an autoscaler would add are not counted either.

use std::collections::BTreeMap;

use crate::policy::Attributes;

/// Amounts by the name of a resource: thousandths of `cpu`, pods of `pods`, and units of everything else.
pub type Amounts = BTreeMap<String, u64>;

/// The resource that every pod takes one of.
pub const PODS: &str = "pods";

/// Pods that are counted at most: nobody makes more at once.
pub const MOST: u32 = 1_000;

/// Shapes that are told, those with the most room first.
pub const SHAPES: usize = 32;

/// The effect of a taint. One that only advises, `PreferNoSchedule`, keeps nobody away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It takes no new pods.
    NoSchedule,
    /// It keeps no pods either.
    NoExecute,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key that a toleration has to have, unless it has none.
    pub key: String,
    /// Its value; empty for none.
    pub value: String,
    /// Whether it keeps away new pods only, or those that run as well.
    pub effect: Effect,
}

/// What a pod says that it bears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// Key of the taint; none for any.
    pub key: Option<String>,
    /// Value of the taint; none for any.
    pub value: Option<String>,
    /// Effect of the taint; none for any.
    pub effect: Option<Effect>,
}

impl Toleration {
    fn bears(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

/// What a label of a node has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The label has one of these values.
    In(Vec<String>),
    /// None of these; a node without the label is as good.
    NotIn(Vec<String>),
    /// The node has the label, whatever its value.
    Exists,
    /// The node does not have the label.
    DoesNotExist,
    /// A whole number above this one.
    Above(i64),
    /// A whole number below this one.
    Below(i64),
}

impl Demand {
    fn is_met(&self, label: Option<&String>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self {
            Self::In(values) => label.is_some_and(|label| values.contains(label)),
            Self::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::Above(least) => number().is_some_and(|number| number > *least),
            Self::Below(most) => number().is_some_and(|number| number < *most),
        }
    }
}

/// Labels and what they have to be, all of them.
pub type Term = Vec<(String, Demand)>;

/// The pod that one more runner would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// What it requests; one of [`PODS`] among it.
    pub requests: Amounts,
    /// Its node selector: labels that the node has to have, with their values.
    pub selector: BTreeMap<String, String>,
    /// Its required node affinity: one of these terms has to hold; none where it has none.
    pub terms: Option<Vec<Term>>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
}

/// What policies are told of a node's kind; none of what its labels do not say, or may not be passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Value of the node's label `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// `spot` or `on-demand`.
    pub capacity_type: Option<String>,
    /// Value of the node's label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

/// A node as the scheduler sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its instance type, capacity type and zone, as policies are told.
    pub shape: Shape,
    /// It takes no new pods, or is about to go.
    pub closed: bool,
    /// Labels of the node, which the selector and the affinity of a pod are compared with.
    pub labels: BTreeMap<String, String>,
    /// Taints that keep pods away; those that only advise are left out.
    pub taints: Vec<Taint>,
    /// What its pods may use.
    pub allocatable: Amounts,
    /// What the pods on it request, all together.
    pub requested: Amounts,
}

impl Host {
    fn admits(&self, wish: &Wish) -> bool {
        let label = |key: &String| self.labels.get(key);
        let holds = |term: &Term| !term.is_empty() && term.iter().all(|(key, demand)| demand.is_met(label(key)));
        !self.closed
            && wish.selector.iter().all(|(key, value)| label(key) == Some(value))
            && wish.terms.as_ref().is_none_or(|terms| terms.iter().any(holds))
            && self.taints.iter().all(|taint| wish.tolerations.iter().any(|toleration| toleration.bears(taint)))
    }

    /// The contract's attributes of a node that say what its pods request. None of what they request nothing of.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let told = [("requested-cpu-millis", "cpu"), ("requested-memory-bytes", "memory")];
        let told =
            told.into_iter().filter_map(|(key, resource)| Some((key.to_owned(), self.requested.get(resource)?.to_string())));
        told.collect()
    }

    /// How many such pods fit on it.
    fn takes(&self, wish: &Wish) -> u32 {
        if !self.admits(wish) {
            return 0;
        }
        let amount = |all: &Amounts, resource: &str| all.get(resource).copied().unwrap_or_default();
        let fitting = wish.requests.iter().filter(|(_, wanted)| **wanted > 0).map(|(resource, wanted)| {
            let free = amount(&self.allocatable, resource).saturating_sub(amount(&self.requested, resource));
            free.checked_div(*wanted).unwrap_or_default()
        });
        fitting.min().map_or(0, |pods| u32::try_from(pods).unwrap_or(MOST).min(MOST))
    }
}

/// Room for pods of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeRoom {
    /// How many such pods fit on all nodes together, [`MOST`] at most.
    pub pods: u32,
    /// By shape, where there is some.
    pub shapes: BTreeMap<Shape, u32>,
}

impl FreeRoom {
    /// Counts how many pods like `wish` these nodes still take.
    #[must_use]
    pub fn on<'a>(hosts: impl IntoIterator<Item = &'a Host>, wish: &Wish) -> Self {
        let mut room = Self::default();
        for host in hosts {
            let pods = host.takes(wish);
            if pods > 0 {
                room.pods = room.pods.saturating_add(pods).min(MOST);
                let of_shape = room.shapes.entry(host.shape.clone()).or_default();
                *of_shape = of_shape.saturating_add(pods).min(MOST);
            }
        }
        room
    }

    /// The contract's attributes of a pool that say so. So many of its runners have no place on a node yet: they `claim` some of the room.
    #[must_use]
    pub fn attributes(&self, claims: u32) -> Attributes {
        let mut told = vec![("room-pods".to_owned(), self.pods.to_string()), ("room-claims".to_owned(), claims.to_string())];
        let mut shapes: Vec<(&Shape, u32)> = self.shapes.iter().map(|(shape, pods)| (shape, *pods)).collect();
        shapes.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        let part = |part: &Option<String>| part.as_deref().unwrap_or("-").to_owned();
        told.extend(shapes.into_iter().take(SHAPES).map(|(shape, pods)| {
            let parts = [&shape.instance_type, &shape.capacity_type, &shape.zone].map(part);
            (format!("room:{}", parts.join("/")), pods.to_string())
        }));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(all: &[(&str, u64)]) -> Amounts {
        all.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect()
    }

    /// 4 CPUs, 16 GiB, 10 pods, of which 1 CPU, 4 GiB and 2 pods are taken.
    fn host() -> Host {
        Host {
            allocatable: amounts(&[("cpu", 4_000), ("memory", 16 << 30), (PODS, 10)]),
            requested: amounts(&[("cpu", 1_000), ("memory", 4 << 30), (PODS, 2)]),
            ..Host::default()
        }
    }

    fn wish(requests: &[(&str, u64)]) -> Wish {
        Wish { requests: amounts(&[requests, &[(PODS, 1)]].concat()), ..Wish::default() }
    }

    fn strings(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn a_node_tells_what_its_pods_request() {
        let told = |key: &str, value: u64| (key.to_owned(), value.to_string());
        assert_eq!(host().attributes(), [told("requested-cpu-millis", 1_000), told("requested-memory-bytes", 4 << 30)]);
        assert_eq!(Host::default().attributes(), []);
    }

    #[test]
    fn a_node_takes_as_many_pods_as_its_scarcest_resource_allows() {
        for (requests, expected) in [
            (&[][..], 8),
            (&[("cpu", 500)], 6),
            (&[("cpu", 500), ("memory", 3 << 30)], 4),
            (&[("cpu", 3_000)], 1),
            (&[("cpu", 3_001)], 0),
            (&[("cpu", 0)], 8),
            (&[("cpu", 100), ("nvidia.com/gpu", 1)], 0),
        ] {
            assert_eq!(host().takes(&wish(requests)), expected, "{requests:?}");
        }
        let overcommitted = Host { requested: amounts(&[("cpu", 9_000), (PODS, 2)]), ..host() };
        assert_eq!(overcommitted.takes(&wish(&[("cpu", 1)])), 0);
        assert_eq!(Host { closed: true, ..host() }.takes(&wish(&[])), 0, "it is cordoned");
        assert_eq!(Host::default().takes(&wish(&[])), 0, "its kubelet has reported nothing yet");
    }

    #[test]
    fn a_node_takes_pods_whose_selector_and_affinity_its_labels_meet() {
        let labels = [("zone", "a"), ("cores", "16")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let host = Host { labels, ..host() };
        let term = |key: &str, demand: Demand| vec![(key.to_owned(), demand)];
        let selector = |value: &str| Wish { selector: [("zone".to_owned(), value.to_owned())].into(), ..wish(&[]) };
        assert_eq!((host.takes(&selector("a")), host.takes(&selector("b"))), (8, 0));
        for (terms, expected) in [
            (None, true),
            // As the scheduler has it: no term matches nothing, and neither does an empty one.
            (Some(vec![]), false),
            (Some(vec![vec![]]), false),
            (Some(vec![term("zone", Demand::In(strings(&["a", "b"])))]), true),
            (Some(vec![term("zone", Demand::In(strings(&["b"])))]), false),
            (Some(vec![term("zone", Demand::NotIn(strings(&["b"])))]), true),
            (Some(vec![term("pool", Demand::NotIn(strings(&["b"])))]), true),
            (Some(vec![term("zone", Demand::Exists)]), true),
            (Some(vec![term("pool", Demand::Exists)]), false),
            (Some(vec![term("pool", Demand::DoesNotExist)]), true),
            (Some(vec![term("cores", Demand::Above(8))]), true),
            (Some(vec![term("cores", Demand::Above(16))]), false),
            (Some(vec![term("cores", Demand::Below(17))]), true),
            (Some(vec![term("zone", Demand::Below(17))]), false),
            (Some(vec![term("pool", Demand::Exists), term("zone", Demand::Exists)]), true),
            (Some(vec![[term("pool", Demand::Exists), term("zone", Demand::Exists)].concat()]), false),
        ] {
            let wish = Wish { terms: terms.clone(), ..wish(&[]) };
            assert_eq!(host.takes(&wish) > 0, expected, "{terms:?}");
        }
    }

    #[test]
    fn a_tainted_node_takes_pods_that_bear_all_of_its_taints() {
        let taint = |key: &str, effect| Taint { key: key.to_owned(), value: "ci".to_owned(), effect };
        let tolerated = |key: Option<&str>, value: Option<&str>, effect| Toleration {
            key: key.map(str::to_owned),
            value: value.map(str::to_owned),
            effect,
        };
        let one = vec![taint("team", Effect::NoSchedule)];
        let two = vec![taint("team", Effect::NoSchedule), taint("gpu", Effect::NoExecute)];
        for (taints, tolerations, expected) in [
            (&one, vec![], false),
            (&one, vec![tolerated(Some("team"), Some("ci"), Some(Effect::NoSchedule))], true),
            (&one, vec![tolerated(Some("team"), None, None)], true),
            (&one, vec![tolerated(Some("team"), Some("web"), None)], false),
            (&one, vec![tolerated(Some("team"), None, Some(Effect::NoExecute))], false),
            (&one, vec![tolerated(None, None, None)], true),
            (&two, vec![tolerated(Some("team"), None, None)], false),
            (&two, vec![tolerated(Some("team"), None, None), tolerated(Some("gpu"), None, None)], true),
        ] {
            let host = Host { taints: taints.clone(), ..host() };
            let wish = Wish { tolerations: tolerations.clone(), ..wish(&[]) };
            assert_eq!(host.takes(&wish) > 0, expected, "{taints:?} {tolerations:?}");
        }
    }

    #[test]
    fn room_is_told_by_shape_and_with_those_who_claim_it() {
        let shaped = |machine: &str, kind: &str, zone: Option<&str>| Host {
            shape: Shape {
                instance_type: Some(machine.to_owned()),
                capacity_type: Some(kind.to_owned()),
                zone: zone.map(str::to_owned),
            },
            ..host()
        };
        let full = Host { requested: host().allocatable, ..shaped("m5.large", "spot", Some("c")) };
        let hosts = [
            shaped("m5.large", "spot", Some("a")),
            shaped("c5.large", "on-demand", None),
            shaped("c5.large", "on-demand", None),
            full,
        ];
        let told = |requests: &[(&str, u64)], claims: u32| {
            let told = FreeRoom::on(&hosts, &wish(requests)).attributes(claims);
            told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(&[("cpu", 1_000)], 0), "room-pods=9 room-claims=0 room:c5.large/on-demand/-=6 room:m5.large/spot/a=3");
        assert_eq!(told(&[("cpu", 1_000)], 4), "room-pods=9 room-claims=4 room:c5.large/on-demand/-=6 room:m5.large/spot/a=3");
        assert_eq!(told(&[("cpu", 8_000)], 2), "room-pods=0 room-claims=2");
        let many: Vec<Host> = (0..500).map(|number| shaped(&format!("m{number}"), "spot", None)).collect();
        let room = FreeRoom::on(&many, &wish(&[]));
        assert_eq!((room.pods, room.attributes(0).len()), (MOST, 2 + SHAPES));
    }
}
