//! Conditions of an object that asks for a policy set.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_policy::{Isolation, IsolationLevel};

use crate::{MOST, Phase, PolicySets, View};

/// Those of an object that asks for a policy set.
const TYPES: [ConditionType; 4] =
    [ConditionType::PolicyAccepted, ConditionType::PolicyActive, ConditionType::PolicyDegraded, ConditionType::PolicyIsolated];

/// Puts `PolicyAccepted`, `PolicyActive`, `PolicyDegraded` and, where policies run, `PolicyIsolated` into the conditions of an object of this
/// namespace that asks for the set of this name, or takes them away when it asks for none.
pub fn put(
    conditions: &mut Vec<Condition>,
    policies: &PolicySets,
    namespace: &str,
    asked: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let Some(name) = asked.map(str::trim).filter(|name| !name.is_empty()) else {
        for type_ in TYPES {
            condition::remove(conditions, type_);
        }
        return;
    };
    let degraded: Vec<(String, String)> = policies
        .generation_for(namespace, Some(name))
        .degraded()
        .into_iter()
        .map(|(decision, standing)| (decision.to_string(), standing.policy))
        .collect();
    let view = policies.view(namespace, name);
    let known = match &view {
        _ if policies.builtin_only() => Known::BuiltinOnly,
        Some(View { phase: Phase::Staging, .. }) => Known::Staging,
        Some(view) => Known::View(view),
        None if policies.follows(namespace, name) => Known::Staging,
        None => match policies.limit_of(namespace) {
            Some(most) => Known::Quota(most),
            None => Known::NoRoom,
        },
    };
    let isolated = policies.host().isolation().filter(|_| !policies.builtin_only()).map(isolated);
    if isolated.is_none() {
        condition::remove(conditions, ConditionType::PolicyIsolated);
    }
    for (type_, verdict, reason, message) in statements(name, &known, &degraded).into_iter().chain(isolated) {
        condition::put(conditions, &Statement { type_, verdict, reason, message: &message, generation }, now);
    }
}

fn isolated(isolation: &Isolation) -> Parts {
    let (verdict, reason, message) = match isolation.level {
        IsolationLevel::Full => (
            Verdict::True,
            "LockedIn",
            "the processes that run policies have no file, no socket and no other process within reach".to_owned(),
        ),
        IsolationLevel::Partial | IsolationLevel::None => (
            Verdict::False,
            "LocksMissing",
            format!(
                "the kernel under the operator does not lock in the processes that run policies, isolation {isolation}: a policy that breaks out of \
                 WebAssembly is held by less; run the operator on a node with Landlock and seccomp (docs/isolation.md), or have it refuse to \
                 start elsewhere with --require-policy-isolation"
            ),
        ),
    };
    (ConditionType::PolicyIsolated, verdict, reason, message)
}

/// Type, status, reason and message of a condition.
type Parts = (ConditionType, Verdict, &'static str, String);

/// How far a policy set is.
enum Known<'a> {
    /// `--builtin-policies-only`.
    BuiltinOnly,
    /// It has been staged or refused.
    View(&'a View),
    /// It is being staged.
    Staging,
    /// Its namespace has as many as it may have.
    Quota(u32),
    /// [`MOST`] others are asked for.
    NoRoom,
}

fn statements(name: &str, known: &Known<'_>, degraded: &[(String, String)]) -> [Parts; 3] {
    let neither = |reason, why: String| ((Verdict::Unknown, reason, why.clone()), (Verdict::False, reason, why));
    let (accepted, active) = match known {
        Known::BuiltinOnly => {
            neither("BuiltinOnly", "the operator runs with --builtin-policies-only: the shipped policies decide".to_owned())
        }
        Known::View(view) => (accepted(name, view), active(name, view)),
        Known::Staging => {
            let meanwhile =
                "the cluster's default policies say how many runners there are, and no idle or failed runner is removed";
            neither("Staging", format!("ConfigMap {name} is being staged; until then {meanwhile}"))
        }
        Known::Quota(most) => neither(
            "QuotaExceeded",
            format!(
                "ConfigMap {name} is not watched: its namespace may have {most} policy sets, and the cluster's default policies decide; let \
                 pools of the namespace share one set, or let whoever runs the operator raise quotas.policySets of the namespace in the \
                 tenancy file"
            ),
        ),
        Known::NoRoom => neither(
            "TooManySets",
            format!(
                "ConfigMap {name} is not watched: {MOST} policy sets are, of which its namespace has its share, and the cluster's default policies \
                 decide; let pools of a namespace share one set"
            ),
        ),
    };
    let failing: Vec<String> = degraded.iter().map(|(decision, policy)| format!("{policy} for {decision}")).collect();
    let degraded = if failing.is_empty() {
        (Verdict::False, "Healthy", "every active policy is asked".to_owned())
    } else {
        let message = format!(
            "{} kept failing and is not asked; the shipped policy decides instead, and the failing one is tried again in the background (see the \
             Events and the operator's log for the faults)",
            failing.join(", ")
        );
        (Verdict::True, "BreakerOpen", message)
    };
    let condition = |type_, (verdict, reason, message)| (type_, verdict, reason, message);
    [
        condition(ConditionType::PolicyAccepted, accepted),
        condition(ConditionType::PolicyActive, active),
        condition(ConditionType::PolicyDegraded, degraded),
    ]
}

fn accepted(name: &str, view: &View) -> (Verdict, &'static str, String) {
    match &view.failure {
        Some(failure) => (Verdict::False, failure.reason, format!("ConfigMap {name}: {}", failure.message)),
        // An earlier one decides until what it names in registries has been pulled.
        None if view.phase == Phase::LastGood => {
            (Verdict::Unknown, "Staging", format!("the newest content of ConfigMap {name} is being pulled or checked"))
        }
        None => (Verdict::True, "Accepted", format!("the policy set in ConfigMap {name} passed every check")),
    }
}

fn active(name: &str, view: &View) -> (Verdict, &'static str, String) {
    let digest = view.staged.as_ref().map(|staged| staged.digest().short()).unwrap_or_default();
    match view.phase {
        Phase::Active | Phase::Degraded => {
            (Verdict::True, "Active", format!("the policy set in ConfigMap {name} decides ({digest})"))
        }
        Phase::LastGood => (
            Verdict::False,
            "LastGood",
            format!("the last known good content of ConfigMap {name} decides ({digest}), because the newest can't be used"),
        ),
        Phase::RolledBack => (
            Verdict::False,
            "RolledBack",
            format!(
                "an earlier content of ConfigMap {name} decides ({digest}), because the newest kept failing; change it to try again"
            ),
        ),
        Phase::Refused | Phase::Missing | Phase::Staging => {
            (Verdict::False, "Refused", format!("nothing of ConfigMap {name} decides; the cluster's default policies do"))
        }
        Phase::Disabled => (
            Verdict::False,
            "Disabled",
            format!("ConfigMap {name} is switched off by its annotation; the shipped policies decide"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn conditions_differ_by_phase_and_name_the_config_map() {
        let failure = || Failure { reason: "PolicySetInvalid", message: "line 2: unknown field `modul`".to_owned() };
        let cases = [
            (Phase::Active, None, "True Accepted", "True Active"),
            (Phase::Degraded, None, "True Accepted", "True Active"),
            (Phase::LastGood, Some(failure()), "False PolicySetInvalid", "False LastGood"),
            (Phase::RolledBack, Some(failure()), "False PolicySetInvalid", "False RolledBack"),
            (Phase::Refused, Some(failure()), "False PolicySetInvalid", "False Refused"),
            (Phase::LastGood, None, "Unknown Staging", "False LastGood"),
            (Phase::Disabled, None, "True Accepted", "False Disabled"),
        ];
        for (phase, failure, accepted, active) in cases {
            let view = View { staged: None, phase, failure };
            let said = statements("opinions", &Known::View(&view), &[]);
            let short: Vec<String> =
                said.iter().map(|(_, verdict, reason, _)| format!("{} {reason}", verdict.as_str())).collect();
            assert_eq!(short, [accepted, active, "False Healthy"], "{phase:?}");
            assert!(said.iter().take(2).all(|(.., message)| message.contains("opinions")), "{said:?}");
            // A message that moves by itself would be written again and again.
            assert_eq!(format!("{said:?}"), format!("{:?}", statements("opinions", &Known::View(&view), &[])));
        }
        let [(_, accepted, ..), (_, active, ..), _] = statements("opinions", &Known::Staging, &[]);
        assert_eq!((accepted, active), (Verdict::Unknown, Verdict::False));
        let [_, (_, _, reason, _), _] = statements("opinions", &Known::BuiltinOnly, &[]);
        assert_eq!(reason, "BuiltinOnly");
        let [_, (_, _, reason, message), _] = statements("opinions", &Known::NoRoom, &[]);
        assert!(reason == "TooManySets" && message.contains("200"), "{message}");
    }

    #[test]
    fn locks_that_are_missing_are_named() {
        for (level, missing, said) in [
            (IsolationLevel::Full, vec![], "True LockedIn"),
            (IsolationLevel::Partial, vec!["Landlock".to_owned()], "False LocksMissing partial (missing: Landlock)"),
            (IsolationLevel::None, vec!["seccomp".to_owned()], "False LocksMissing none (missing: seccomp)"),
        ] {
            let isolation = Isolation { level, missing };
            let (type_, verdict, reason, message) = isolated(&isolation);
            let words = if verdict == Verdict::True { String::new() } else { format!(" {isolation}") };
            assert_eq!(
                (type_, format!("{} {reason}{words}", verdict.as_str())),
                (ConditionType::PolicyIsolated, said.to_owned())
            );
            assert!(message.contains(words.trim()), "{message}");
        }
    }

    #[test]
    fn policy_is_named_when_its_breaker_is_open() {
        let failing = [("scale-down".to_owned(), "mine@sha256:0123".to_owned())];
        let [.., (type_, verdict, reason, message)] = statements("opinions", &Known::Staging, &failing);
        assert_eq!((type_, verdict, reason), (ConditionType::PolicyDegraded, Verdict::True, "BreakerOpen"));
        assert!(message.starts_with("mine@sha256:0123 for scale-down kept failing"), "{message}");
    }
}
