//! What the API server says of a node.

use jiff::Timestamp;

/// Taints by which nodes announce that they are about to go, whoever takes them away.
const LEAVING: [&str; 11] = [
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
    "node.kubernetes.io/unschedulable",
];

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `kubectl cordon`, or the beginning of `kubectl drain`.
    pub cordoned: bool,
    /// Its object is being deleted.
    pub deleting: bool,
    /// Keys of its taints.
    pub taints: Vec<String>,
}

impl NodeFacts {
    /// Whether it takes no more pods, and those that are on it had better leave.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.cordoned || self.deleting || self.taints.iter().any(|taint| LEAVING.contains(&taint.as_str()))
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
}
