//! A request of any of the four decisions, and its answer.

use std::collections::BTreeSet;

use pacer_core::policy::{
    CapacityPlan, CapacityRequest, Choice, Node, Pool, RecoverRequest, Recovery, RestartRequest, ScaleDownRequest, Verdict,
};
use serde::Serialize;
use serde_json::Value;

use crate::component::Digest;
use crate::decision::Decision;
use crate::rehearsal;

/// The same about whichever of the four requests it is.
macro_rules! each {
    ($inquiry:expr, $request:ident => $said:expr) => {
        match $inquiry {
            Inquiry::ScaleDown($request) => $said,
            Inquiry::Restart($request) => $said,
            Inquiry::Capacity($request) => $said,
            Inquiry::Recover($request) => $said,
        }
    };
}

pub(crate) use each;

/// A request of any of the four decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Inquiry {
    /// Which idle runners go first?
    ScaleDown(ScaleDownRequest),
    /// What to do about runners that are not well?
    Restart(RestartRequest),
    /// Which reservations should exist?
    Capacity(CapacityRequest),
    /// Shall jobs that died with their runners run again?
    Recover(RecoverRequest),
}

/// An answer that passed [`pacer_core::gate`]; as JSON in the contract's terms.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Who goes, in this order.
    ScaleDown(Vec<Choice>),
    /// What happens to whom.
    Restart(Vec<Verdict>),
    /// What is held for which jobs.
    Capacity(CapacityPlan),
    /// Which jobs run again.
    Recover(Vec<Recovery>),
}

impl Inquiry {
    /// An ordinary request about so many things, like those that policies are rehearsed with.
    #[must_use]
    pub fn typical(decision: Decision, items: u32) -> Self {
        match decision {
            Decision::ScaleDown => Self::ScaleDown(rehearsal::scale_down_of(items)),
            Decision::Restart => Self::Restart(rehearsal::restart_of(items)),
            Decision::Capacity => Self::Capacity(rehearsal::capacity_of(items)),
            Decision::Recover => Self::Recover(rehearsal::recover_of(items)),
        }
    }

    /// Why no operator ever asks this: things without a name or with the same one, places that do not exist, bounds that exclude each other.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let (nodes, places, what): (&[Node], Vec<Option<u32>>, &str) = match self {
            Self::ScaleDown(request) => (&request.nodes, request.candidates.iter().map(|one| one.node).collect(), "candidates"),
            Self::Restart(request) => (&request.nodes, request.subjects.iter().map(|one| one.node).collect(), "subjects"),
            Self::Capacity(_) => (&[], Vec::new(), "reservations"),
            Self::Recover(request) => (&request.nodes, request.jobs.iter().map(|one| one.node).collect(), "jobs"),
        };
        let ids = match self {
            Self::Capacity(request) => request.reservations.iter().map(|held| held.id.as_str()).collect(),
            Self::ScaleDown(_) | Self::Restart(_) | Self::Recover(_) => self.names(),
        };
        let pool = self.pool();
        let bounds = pool.min_replicas.zip(pool.max_replicas).filter(|(min, max)| min > max);
        if let Some((min, max)) = bounds {
            return Some(format!("pool.min-replicas is {min} and pool.max-replicas {max}"));
        }
        let mut seen = BTreeSet::new();
        for (at, id) in ids.into_iter().enumerate() {
            if id.is_empty() {
                return Some(format!("{what}[{at}] has no name"));
            }
            if !seen.insert(id) {
                return Some(format!("{what}[{at}] is {id}, and so is one before it"));
            }
        }
        if let Self::Capacity(request) = self {
            let mut seen = BTreeSet::new();
            if let Some((at, job)) = request.jobs.iter().enumerate().find(|(_, job)| !seen.insert(job.id)) {
                return Some(format!("jobs[{at}] is {}, and so is one before it", job.id));
            }
        }
        for (at, place) in places.into_iter().enumerate() {
            if let Some(place) = place.filter(|place| usize::try_from(*place).map_or(true, |place| place >= nodes.len())) {
                return Some(format!("{what}[{at}].node is {place}, and there are {} nodes, counted from 0", nodes.len()));
            }
        }
        let full = nodes.iter().enumerate().find(|(_, node)| node.busy > node.runners);
        full.map(|(at, node)| format!("nodes[{at}] has {} busy runners of {}", node.busy, node.runners))
    }

    /// Which decision it is about.
    #[must_use]
    pub fn decision(&self) -> Decision {
        match self {
            Self::ScaleDown(_) => Decision::ScaleDown,
            Self::Restart(_) => Decision::Restart,
            Self::Capacity(_) => Decision::Capacity,
            Self::Recover(_) => Decision::Recover,
        }
    }

    /// SHA-256 of the request as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_json(self)
    }

    /// Reads what [`Inquiry`] writes, whose JSON does not say which decision it is about.
    ///
    /// # Errors
    ///
    /// The field that is wrong, or that this version does not know.
    pub fn read(decision: Decision, json: Value) -> Result<Self, serde_json::Error> {
        Ok(match decision {
            Decision::ScaleDown => Self::ScaleDown(serde_json::from_value(json)?),
            Decision::Restart => Self::Restart(serde_json::from_value(json)?),
            Decision::Capacity => Self::Capacity(serde_json::from_value(json)?),
            Decision::Recover => Self::Recover(serde_json::from_value(json)?),
        })
    }

    /// What the request tells about the pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        each!(self, request => &request.pool)
    }

    /// When it was asked: Unix time in seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        each!(self, request => request.now)
    }

    /// Names of the runners it is about, in the order of their indices; those that jobs died with for recover, none for capacity.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::ScaleDown(request) => request.candidates.iter().map(|candidate| candidate.name.as_str()).collect(),
            Self::Restart(request) => request.subjects.iter().map(|subject| subject.name.as_str()).collect(),
            Self::Recover(request) => request.jobs.iter().map(|job| job.runner.as_str()).collect(),
            Self::Capacity(_) => Vec::new(),
        }
    }

    /// The settings in the request itself.
    #[must_use]
    pub fn settings(&self) -> &str {
        each!(self, request => &request.settings)
    }
}

impl Answer {
    /// SHA-256 of the answer as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_json(self)
    }

    /// Reads what [`Answer`] writes, whose JSON does not say which decision it belongs to.
    ///
    /// # Errors
    ///
    /// The field that is wrong, or that this version does not know.
    pub fn read(decision: Decision, json: Value) -> Result<Self, serde_json::Error> {
        Ok(match decision {
            Decision::ScaleDown => Self::ScaleDown(serde_json::from_value(json)?),
            Decision::Restart => Self::Restart(serde_json::from_value(json)?),
            Decision::Capacity => Self::Capacity(serde_json::from_value(json)?),
            Decision::Recover => Self::Recover(serde_json::from_value(json)?),
        })
    }
}

impl From<Vec<Choice>> for Answer {
    fn from(choices: Vec<Choice>) -> Self {
        Self::ScaleDown(choices)
    }
}

impl From<Vec<Verdict>> for Answer {
    fn from(verdicts: Vec<Verdict>) -> Self {
        Self::Restart(verdicts)
    }
}

impl From<Vec<Recovery>> for Answer {
    fn from(recoveries: Vec<Recovery>) -> Self {
        Self::Recover(recoveries)
    }
}

impl From<CapacityPlan> for Answer {
    fn from(plan: CapacityPlan) -> Self {
        Self::Capacity(plan)
    }
}

#[cfg(test)]
mod tests {
    use pacer_core::policy::{Candidate, Job, Subject};

    use super::*;

    #[test]
    fn impossible_requests_are_told_from_possible_ones() {
        for decision in Decision::ALL {
            for items in [0, 1, 24] {
                assert_eq!(Inquiry::typical(decision, items).contradiction(), None, "{decision} of {items}");
            }
        }
        let candidate = |name: &str, node| Candidate { name: name.to_owned(), node, ..Candidate::default() };
        let scale_down = |candidates| Inquiry::ScaleDown(ScaleDownRequest { candidates, ..ScaleDownRequest::default() });
        let node = |runners, busy| Node { name: "n".to_owned(), runners, busy, ..Node::default() };
        let job = |id| Job { id, ..Job::default() };
        let pool = Pool { min_replicas: Some(3), max_replicas: Some(2), ..Pool::default() };
        for (inquiry, words) in [
            (scale_down(vec![candidate("a", None), candidate("a", None)]), "candidates[1] is a, and so is one before it"),
            (scale_down(vec![candidate("", None)]), "candidates[0] has no name"),
            (scale_down(vec![candidate("a", Some(0))]), "candidates[0].node is 0, and there are 0 nodes, counted from 0"),
            (
                Inquiry::ScaleDown(ScaleDownRequest { nodes: vec![node(1, 2)], ..ScaleDownRequest::default() }),
                "nodes[0] has 2 busy runners of 1",
            ),
            (
                Inquiry::Restart(RestartRequest { subjects: vec![Subject::default()], ..RestartRequest::default() }),
                "subjects[0] has no name",
            ),
            (
                Inquiry::Capacity(CapacityRequest { jobs: vec![job(7), job(7)], ..CapacityRequest::default() }),
                "jobs[1] is 7, and so is one before it",
            ),
            (
                Inquiry::Capacity(CapacityRequest { pool, ..CapacityRequest::default() }),
                "pool.min-replicas is 3 and pool.max-replicas 2",
            ),
        ] {
            assert_eq!(inquiry.contradiction().as_deref(), Some(words));
        }
    }
}
