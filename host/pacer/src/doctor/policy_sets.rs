//! Policy sets and what the operator says of each: which content decides, and what is wrong with the newest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use pacer_api::names::annotation;
use pacer_policyset::Phase;
use pacer_policyset::report::Report as SetReport;

use super::Checked;
use super::conditions::advice;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use crate::policy::cure;
use crate::reader::Reader;

/// One for each policy set that has a status, also where no pool has a condition about it.
pub(super) async fn check(reader: &mut Reader, installation: &Installation) -> Vec<Checked> {
    let mut maps = reader.outlines::<ConfigMap>(None).await;
    // The default set, where one namespace is looked at.
    maps.extend(reader.outlines::<ConfigMap>(Some(&installation.namespace)).await);
    let statuses: BTreeMap<(String, String), String> = maps
        .into_iter()
        .filter_map(|map| {
            let status = map.annotations().get(annotation::POLICY_STATUS)?.clone();
            Some(((map.namespace().unwrap_or_default(), map.name_any()), status))
        })
        .collect();
    if statuses.is_empty() {
        return vec![Checked {
            healthy: "no policy set is in use: the shipped policies decide".to_owned(),
            findings: Vec::new(),
        }];
    }
    statuses.iter().map(|((namespace, name), status)| judge(namespace, name, status)).collect()
}

fn judge(namespace: &str, name: &str, status: &str) -> Checked {
    let report = SetReport::read(status);
    let phase = report.as_ref().and_then(|report| Phase::ALL.into_iter().find(|phase| phase.as_str() == report.phase));
    let (Some(report), Some(phase)) = (report, phase) else {
        let healthy =
            format!("policy set {namespace}/{name}: its status is another version's, which a running operator writes anew");
        return Checked { healthy, findings: Vec::new() };
    };
    let healthy = format!("policy set {namespace}/{name}: {phase}", phase = phase.as_str());
    let finding = trouble(phase).map(|(severity, why)| {
        let reason = report.last_error.as_ref().map(|error| error.reason.as_str());
        let told = report.last_error.as_ref().map(|error| format!(" ({}): {}", error.reason, error.message));
        Finding {
            severity,
            object: format!("ConfigMap {namespace}/{name}"),
            what: format!("the policy set is {}{}", phase.as_str(), told.unwrap_or_default()),
            why: why.to_owned(),
            cure: reason
                .and_then(|reason| cure::of_reason(reason).map(str::to_owned).or_else(|| advice(reason, "Do", namespace)))
                .unwrap_or_else(|| format!("see what `pacer policy status --namespace {namespace}` says of it")),
        }
    });
    Checked { healthy, findings: finding.into_iter().collect() }
}

/// How bad it is, and why it matters; none where it is as it should be.
fn trouble(phase: Phase) -> Option<(Severity, &'static str)> {
    match phase {
        Phase::Refused => Some((Severity::Problem, "the shipped policies decide in its place")),
        Phase::LastGood => Some((Severity::Problem, "its last good content decides, and not what the ConfigMap holds now")),
        Phase::RolledBack => Some((Severity::Problem, "an earlier content decides, because policies of the newest kept failing")),
        Phase::Degraded => Some((Severity::Warning, "the shipped policy decides in place of each that keeps failing")),
        Phase::Active | Phase::Missing | Phase::Disabled | Phase::Staging => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policy_set_whose_newest_content_does_not_decide_is_told_with_the_cure() {
        let status = |phase: &str, reason: Option<&str>| {
            let error = reason.map(|reason| json!({"reason": reason, "message": "line 3", "at": "2026-01-01T00:00:00Z"}));
            judge("ci", "set", &json!({"phase": phase, "lastError": error}).to_string())
        };
        let active = status("Active", None);
        assert!(active.findings.is_empty() && active.healthy == "policy set ci/set: Active");
        for (phase, severity) in [
            ("Refused", Severity::Problem),
            ("LastGood", Severity::Problem),
            ("RolledBack", Severity::Problem),
            ("Degraded", Severity::Warning),
        ] {
            let told = status(phase, Some("PolicySetInvalid"));
            let [finding] = told.findings.as_slice() else { panic!("{phase}: {told:?}") };
            assert_eq!((finding.severity, finding.object.as_str()), (severity, "ConfigMap ci/set"));
            assert!(finding.what.contains(phase) && finding.what.contains("PolicySetInvalid") && finding.what.contains("line 3"));
            assert_eq!(Some(finding.cure.as_str()), cure::of_reason("PolicySetInvalid"), "{phase}");
        }
        assert!(status("Refused", None).findings.iter().all(|finding| finding.cure.contains("pacer policy status")));
        assert!(judge("ci", "set", "{}").findings.is_empty());
    }
}
