//! Conditions in the statuses of the five kinds.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// Condition types that the operator writes; each kind uses the ones that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// The spec makes sense and its references resolve.
    Accepted,
    /// As many runners as wanted are there and of the current revision.
    Ready,
    /// The number of runners is on its way to the wanted number, or says why it is not.
    Scaling,
    /// The runner is left as it is for a human to look at, and replaced by none.
    Quarantined,
    /// Its removal waits for something: a job, GitHub, a listing (Runner). The reason says for what.
    Stopping,
    /// The runners of an autoscaler's target may be where its spec says, and their credentials have shown it: it gets webhooks' jobs.
    ScopeProved,
    /// Jobs that wait for long are reported at GitHub, as an annotation of the autoscaler asks for.
    WaitingReported,
    /// The policy set that the object names passed staging.
    PolicyAccepted,
    /// The policy set that the object names decides.
    PolicyActive,
    /// The shipped policy decides because the object's own failed.
    PolicyDegraded,
    /// The processes that run the object's policies are locked in by the kernel.
    PolicyIsolated,
}

impl ConditionType {
    /// The value of `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Ready => "Ready",
            Self::Scaling => "Scaling",
            Self::Quarantined => "Quarantined",
            Self::Stopping => "Stopping",
            Self::ScopeProved => "ScopeProved",
            Self::WaitingReported => "WaitingReported",
            Self::PolicyAccepted => "PolicyAccepted",
            Self::PolicyActive => "PolicyActive",
            Self::PolicyDegraded => "PolicyDegraded",
            Self::PolicyIsolated => "PolicyIsolated",
        }
    }
}

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// `True`: the condition holds.
    True,
    /// `False`: the condition does not hold.
    False,
    /// `Unknown`: it is not known yet whether the condition holds.
    Unknown,
}

impl Verdict {
    /// The value of `status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// What is to be said about an object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// What it is about.
    pub type_: ConditionType,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why: one CamelCase word of a closed set.
    pub reason: &'a str,
    /// For humans: what happened, to which object, why, what to do next.
    pub message: &'a str,
    /// `metadata.generation` of the object that was looked at.
    pub generation: Option<i64>,
}

/// Puts `statement` into `conditions`, keeping them sorted by type.
///
/// `lastTransitionTime` moves to `now` only when the verdict changes, so saying the same again changes nothing. Returns whether anything
/// changed.
pub fn put(conditions: &mut Vec<Condition>, statement: &Statement<'_>, now: Timestamp) -> bool {
    let type_ = statement.type_.as_str();
    let old = conditions.iter().position(|condition| condition.type_ == type_);
    let since = old
        .and_then(|index| conditions.get(index))
        .filter(|condition| condition.status == statement.verdict.as_str())
        .map(|condition| condition.last_transition_time.clone());
    let new = Condition {
        type_: type_.to_owned(),
        status: statement.verdict.as_str().to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message.to_owned(),
        observed_generation: statement.generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match old.and_then(|index| conditions.get_mut(index)) {
        Some(old) if *old == new => false,
        Some(old) => {
            *old = new;
            true
        }
        None => {
            conditions.push(new);
            conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
            true
        }
    }
}

/// Takes the condition of that type away. Returns whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: ConditionType) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_.as_str());
    conditions.len() != before
}

/// The condition of that type.
#[must_use]
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Whether the condition of that type is there and `True`.
#[must_use]
pub fn holds(conditions: &[Condition], type_: ConditionType) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Verdict::True.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(verdict: Verdict, message: &str) -> Statement<'_> {
        Statement { type_: ConditionType::Ready, verdict, reason: "Because", message, generation: Some(3) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_follows_the_verdict_only() {
        let mut conditions = Vec::new();
        assert!(put(&mut conditions, &statement(Verdict::True, "a"), at(1)));
        assert!(!put(&mut conditions, &statement(Verdict::True, "a"), at(2)));
        assert!(put(&mut conditions, &statement(Verdict::True, "b"), at(3)));
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert!(put(&mut conditions, &statement(Verdict::False, "b"), at(4)));
        assert_eq!(conditions[0].last_transition_time, Time(at(4)));
        assert_eq!(conditions.len(), 1);
        assert!(!holds(&conditions, ConditionType::Ready));
    }

    #[test]
    fn conditions_are_sorted_and_can_be_withdrawn() {
        let mut conditions = Vec::new();
        for type_ in [ConditionType::Scaling, ConditionType::Accepted, ConditionType::Ready] {
            put(&mut conditions, &Statement { type_, ..statement(Verdict::True, "") }, at(1));
        }
        let types: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Accepted", "Ready", "Scaling"]);
        assert!(remove(&mut conditions, ConditionType::Ready));
        assert!(!remove(&mut conditions, ConditionType::Ready));
        assert!(holds(&conditions, ConditionType::Scaling));
    }
}
