//! What the API server says of a node.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::allowed::Allowed;
use crate::policy::Attributes;
use crate::price::Prices;
use crate::reads::{Fact, Reads};

/// Taints by which nodes announce that they are about to go, whoever takes them away.
const LEAVING: [&str; 10] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];

/// The taint of a cordoned node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `kubectl cordon`, or the beginning of `kubectl drain`.
    pub cordoned: bool,
    /// Its object is being deleted.
    pub deleting: bool,
    /// Its kubelet says that it is ready, and still reports.
    pub ready: bool,
    /// Keys of its taints.
    pub taints: Vec<String>,
    /// Its labels, as far as anybody reads them.
    pub labels: BTreeMap<String, String>,
    /// What pods may use of its CPU, in thousandths of one.
    pub cpu_millis: Option<u64>,
    /// What pods may use of its memory, in bytes.
    pub memory_bytes: Option<u64>,
}

/// Label that says in which zone a node is.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Label that says what machine a node is.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Labels by which clouds and Karpenter say that a node may be taken away at any moment, each with the value that says so.
const SPOT: [(&str, &str); 6] = [
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("cloud.google.com/gke-provisioning", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
];

/// Labels that policies may see where nobody says otherwise: zone, region, instance type, and the kind of capacity as clouds and Karpenter
/// write it. Separated by commas, as in `--policy-node-labels`.
pub const LABELS: &str = "topology.kubernetes.io/zone,topology.kubernetes.io/region,node.kubernetes.io/instance-type,\
    karpenter.sh/capacity-type,eks.amazonaws.com/capacityType,cloud.google.com/gke-spot,cloud.google.com/gke-preemptible,\
    cloud.google.com/gke-provisioning,kubernetes.azure.com/scalesetpriority";

/// Whether a label of a node is of use, where these may be passed on.
#[must_use]
pub fn is_read(label: &str, allowed: &Allowed) -> bool {
    label == INSTANCE_TYPE || SPOT.iter().any(|(key, _)| *key == label) || allowed.node_labels.iter().any(|key| key == label)
}

impl NodeFacts {
    /// Whether it takes no more pods, and those that are on it had better leave.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.cordoned || self.taints.iter().any(|taint| taint == CORDONED) || self.is_leaving()
    }

    /// Whether somebody has announced that it is about to go. A cordon alone, and the taint that comes with one, announce nothing.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        let announces = |taint: &String| LEAVING.contains(&taint.as_str());
        self.deleting || self.taints.iter().any(announces)
    }

    /// Its zone, where that label is among those that may be passed on.
    #[must_use]
    pub fn zone<'a>(&'a self, allowed: &Allowed) -> Option<&'a str> {
        self.passed_on(ZONE, allowed)
    }

    /// Its instance type, where that label is among those that may be passed on.
    #[must_use]
    pub fn instance_type<'a>(&'a self, allowed: &Allowed) -> Option<&'a str> {
        self.passed_on(INSTANCE_TYPE, allowed)
    }

    fn passed_on<'a>(&'a self, label: &str, allowed: &Allowed) -> Option<&'a str> {
        self.labels.get(label).filter(|_| allowed.node_labels.iter().any(|key| key == label)).map(String::as_str)
    }

    /// `spot` where its labels say that it may be taken away at any moment, `on-demand` where they say otherwise; none where they say nothing.
    #[must_use]
    pub fn capacity_type(&self) -> Option<&'static str> {
        let mut said = SPOT.iter().filter_map(|(key, spot)| Some(self.labels.get(*key)?.eq_ignore_ascii_case(spot))).peekable();
        said.peek()?;
        Some(if said.any(|spot| spot) { "spot" } else { "on-demand" })
    }

    /// What it costs per hour, by its instance type and the kind of its capacity; none where there is no price of it.
    #[must_use]
    pub fn price(&self, prices: &Prices) -> Option<f64> {
        prices.of(self.labels.get(INSTANCE_TYPE)?, self.capacity_type())
    }

    /// The attributes of a node that these facts are.
    #[must_use]
    pub fn attributes(&self, reads: &Reads, allowed: &Allowed, prices: &Prices) -> Attributes {
        let mut told = Attributes::new();
        let mut tell = |key: &str, value: Option<String>| told.extend(value.map(|value| (key.to_owned(), value)));
        if reads.has(Fact::NodeLabels) {
            tell("capacity-type", self.capacity_type().map(str::to_owned));
        }
        if reads.has(Fact::NodeSize) {
            tell("allocatable-cpu-millis", self.cpu_millis.map(|cpu| cpu.to_string()));
            tell("allocatable-memory-bytes", self.memory_bytes.map(|memory| memory.to_string()));
        }
        if reads.has(Fact::NodePrice) {
            tell("price-per-hour", self.price(prices).map(|price| price.to_string()));
        }
        if reads.has(Fact::NodeLabels) {
            told.extend(allowed.of_node(&self.labels));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_leaving_when_cordoned_deleted_or_tainted() {
        let tainted = |key: &str| NodeFacts { taints: vec!["dedicated".into(), key.into()], ..NodeFacts::default() };
        for (facts, expected) in [
            (NodeFacts::default(), false),
            (NodeFacts { cordoned: true, ..NodeFacts::default() }, true),
            (NodeFacts { deleting: true, ..NodeFacts::default() }, true),
            (tainted("ToBeDeletedByClusterAutoscaler"), true),
            (tainted("karpenter.sh/disrupted"), true),
            (tainted("aws-node-termination-handler/spot-itn"), true),
            // Only a thought of the autoscaler's, which may pass.
            (tainted("DeletionCandidateOfClusterAutoscaler"), false),
            (tainted("node.kubernetes.io/memory-pressure"), false),
        ] {
            assert_eq!(facts.is_draining(), expected, "{facts:?}");
        }
    }

    fn labelled(labels: &[(&str, &str)]) -> NodeFacts {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeFacts { labels, ..NodeFacts::default() }
    }

    #[test]
    fn capacity_type_is_told_whatever_cloud_labelled_the_node() {
        for (labels, expected) in [
            (&[][..], None),
            (&[("topology.kubernetes.io/zone", "a")], None),
            (&[("karpenter.sh/capacity-type", "spot")], Some("spot")),
            (&[("karpenter.sh/capacity-type", "on-demand")], Some("on-demand")),
            (&[("karpenter.sh/capacity-type", "reserved")], Some("on-demand")),
            (&[("eks.amazonaws.com/capacityType", "SPOT")], Some("spot")),
            (&[("eks.amazonaws.com/capacityType", "ON_DEMAND")], Some("on-demand")),
            (&[("cloud.google.com/gke-spot", "true")], Some("spot")),
            (&[("cloud.google.com/gke-preemptible", "true")], Some("spot")),
            (&[("cloud.google.com/gke-provisioning", "standard")], Some("on-demand")),
            (&[("cloud.google.com/gke-provisioning", "standard"), ("cloud.google.com/gke-spot", "true")], Some("spot")),
            (&[("kubernetes.azure.com/scalesetpriority", "spot")], Some("spot")),
        ] {
            assert_eq!(labelled(labels).capacity_type(), expected, "{labels:?}");
        }
    }

    #[test]
    fn attributes_are_those_that_are_read_and_known() {
        let allowed = Allowed { node_labels: LABELS.split(',').map(str::to_owned).collect(), ..Allowed::default() };
        let prices = Prices::new([("m5.large".to_owned(), 0.096), ("m5.large/spot".to_owned(), 0.035)].into()).unwrap();
        let labels = [(INSTANCE_TYPE, "m5.large"), ("karpenter.sh/capacity-type", "spot"), ("team", "web")];
        let node = NodeFacts { cpu_millis: Some(3_920), memory_bytes: Some(1 << 30), ..labelled(&labels) };
        let told = |node: &NodeFacts, facts: &[Fact]| {
            let told = node.attributes(&facts.iter().copied().collect(), &allowed, &prices);
            told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        for (facts, expected) in [
            (&[][..], ""),
            (&[Fact::Pool, Fact::Failures], ""),
            (
                &[Fact::NodeLabels],
                "capacity-type=spot label:karpenter.sh/capacity-type=spot label:node.kubernetes.io/instance-type=m5.large",
            ),
            (&[Fact::NodeSize], "allocatable-cpu-millis=3920 allocatable-memory-bytes=1073741824"),
            (&[Fact::NodePrice], "price-per-hour=0.035"),
        ] {
            assert_eq!(told(&node, facts), expected, "{facts:?}");
        }
        assert_eq!(told(&NodeFacts::default(), &[Fact::NodeLabels, Fact::NodeSize, Fact::NodePrice]), "");
        assert_eq!(told(&labelled(&[(INSTANCE_TYPE, "m5.metal")]), &[Fact::NodePrice]), "", "no price is known");
    }

    #[test]
    fn labels_that_nobody_reads_are_not_kept() {
        let allowed = Allowed { node_labels: vec!["team".to_owned()], ..Allowed::default() };
        for (label, expected) in [(INSTANCE_TYPE, true), ("cloud.google.com/gke-spot", true), ("team", true), ("owner", false)] {
            assert_eq!(is_read(label, &allowed), expected, "{label}");
        }
    }
}
