//! Conditions of runner objects that are not as they should be, each with what the troubleshooting page says to do.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use serde::de::DeserializeOwned;

use super::Checked;
use super::finding::{Finding, Severity};
use crate::reader::Reader;

/// What every reason means and what to do; the page that people read.
const TROUBLESHOOTING: &str = include_str!("../../../../docs/troubleshooting.md");

/// How long a pool may be on its way before that is worth saying.
const SETTLES: SignedDuration = SignedDuration::from_mins(5);

pub(super) async fn check(reader: &mut Reader, now: Timestamp) -> Checked {
    let mut findings = Vec::new();
    collect::<HorizontalRunnerAutoscaler>(reader, &mut findings, now, |one| {
        one.status.as_ref().map(|status| status.conditions.as_slice())
    })
    .await;
    collect::<RunnerDeployment>(reader, &mut findings, now, |one| one.status.as_ref().map(|status| status.conditions.as_slice()))
        .await;
    collect::<RunnerSet>(reader, &mut findings, now, |one| one.status.as_ref().map(|status| status.conditions.as_slice())).await;
    collect::<RunnerReplicaSet>(reader, &mut findings, now, |one| one.status.as_ref().map(|status| status.conditions.as_slice()))
        .await;
    collect::<Runner>(reader, &mut findings, now, |one| one.status.as_ref().map(|status| status.conditions.as_slice())).await;
    Checked { healthy: "no runner object has a condition that asks for attention".to_owned(), findings }
}

async fn collect<K>(
    reader: &mut Reader,
    findings: &mut Vec<Finding>,
    now: Timestamp,
    conditions: impl Fn(&K) -> Option<&[Condition]>,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    for object in reader.namespaced::<K>("").await {
        let place =
            Place { kind: K::kind(&()).into_owned(), namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
        findings.extend(conditions(&object).into_iter().flatten().filter_map(|condition| finding(&place, condition, now)));
    }
}

/// Which object a condition is about.
struct Place {
    kind: String,
    namespace: String,
    name: String,
}

fn finding(place: &Place, condition: &Condition, now: Timestamp) -> Option<Finding> {
    let settles = now.duration_since(condition.last_transition_time.0) < SETTLES;
    let severity = match (condition.type_.as_str(), condition.status.as_str()) {
        ("Accepted" | "PolicyAccepted", "False") => Severity::Problem,
        ("Ready" | "Scaling", "False") if !settles => Severity::Problem,
        ("PolicyActive" | "PolicyIsolated" | "WaitingReported", "False") | ("Quarantined" | "PolicyDegraded", "True") => {
            Severity::Warning
        }
        ("Stopping", "True") if !settles => Severity::Warning,
        _ => return None,
    };
    let Place { kind, namespace, name } = place;
    let entry = |word: &str| advice(&condition.reason, word, namespace);
    Some(Finding {
        severity,
        object: format!("{kind} {namespace}/{name}"),
        what: format!("{} is {} ({}): {}", condition.type_, condition.status, condition.reason, condition.message),
        why: entry("Matters").unwrap_or_else(|| "see docs/troubleshooting.md".to_owned()),
        cure: entry("Do").unwrap_or_else(|| format!("kubectl -n {namespace} describe {}/{name}", kind.to_lowercase())),
    })
}

/// What the troubleshooting page says about a reason after `- **Word:**`, for an object in this namespace.
pub(super) fn advice(reason: &str, word: &str, namespace: &str) -> Option<String> {
    // The page has capitals where the reader puts names; the namespace is always that of the object.
    Some(told(TROUBLESHOOTING, reason, word)?.replace("-n NS", &format!("-n {namespace}")))
}

/// What a page says about a reason after `- **Word:**`, on one line.
fn told(page: &str, reason: &str, word: &str) -> Option<String> {
    let (_, entry) = page.split_once(&format!("\n### {reason}\n"))?;
    let entry = entry.split("\n### ").next()?;
    let (_, said) = entry.split_once(&format!("- **{word}:** "))?;
    let said = said.split("\n- ").next()?.split("\n\n").next()?.split("\n#").next()?;
    Some(said.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn condition_asks_for_attention_when_it_is_wrong_for_long_enough() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let place = Place { kind: "Runner".to_owned(), namespace: "ci".to_owned(), name: "web".to_owned() };
        for (type_, status, minutes, expected) in [
            ("Ready", "True", 60, None),
            ("Ready", "False", 1, None),
            ("Ready", "False", 6, Some(Severity::Problem)),
            ("Accepted", "False", 0, Some(Severity::Problem)),
            ("Stopping", "True", 1, None),
            ("Stopping", "True", 6, Some(Severity::Warning)),
            ("PolicyDegraded", "True", 0, Some(Severity::Warning)),
            ("PolicyDegraded", "False", 60, None),
            ("PolicyIsolated", "True", 60, None),
            ("PolicyIsolated", "False", 0, Some(Severity::Warning)),
        ] {
            let condition = Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: "BackingOff".to_owned(),
                message: "why".to_owned(),
                observed_generation: None,
                last_transition_time: Time(now - SignedDuration::from_mins(minutes)),
            };
            let found = finding(&place, &condition, now);
            assert_eq!(found.as_ref().map(|finding| finding.severity), expected, "{type_} {status} {minutes}");
            assert!(found.is_none_or(|finding| finding.cure.contains("-n ci") && finding.object == "Runner ci/web"));
        }
    }

    #[test]
    fn entry_of_the_page_is_told_on_one_line() {
        let page = "## All\n\n### First\n\n- **Means:** one.\n- **Matters:** two\n  lines.\n- **Do:** this.\n\n### Second\n\n- **Do:** that.\n";
        assert_eq!(told(page, "First", "Matters").as_deref(), Some("two lines."));
        assert_eq!(told(page, "First", "Do").as_deref(), Some("this."));
        assert_eq!(told(page, "Second", "Matters"), None);
        assert!(told(TROUBLESHOOTING, "BackingOff", "Do").is_some());
    }
}
