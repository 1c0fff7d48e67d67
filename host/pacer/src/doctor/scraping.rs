//! Whether `--metrics-authorization` can work: those who serve metrics may ask whose token they got, and somebody who scrapes may have them.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Subject};
use kube::ResourceExt as _;

use super::Checked;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use super::rights::{self, Roles};
use crate::reader::Reader;

/// The path that roles name.
const PATH: &str = "/metrics";

/// The role for whoever scrapes, as it is shipped. The chart's has a prefix.
const READER: &str = "pacer-metrics-reader";

pub(super) async fn check(reader: &mut Reader, installation: &Installation) -> anyhow::Result<Option<Checked>> {
    let accounts = installation.accounts_that_authorize_scrapers();
    if accounts.is_empty() {
        return Ok(None);
    }
    let mut findings = Vec::new();
    for account in &accounts {
        // These rights are to objects without a namespace.
        findings.extend(rights::lacking(reader, account, Roles::Metrics, installation, "").await?);
    }
    let before = reader.unread.len();
    let bindings: Vec<ClusterRoleBinding> = reader.everywhere("").await;
    let roles: Vec<ClusterRole> = reader.everywhere("").await;
    if reader.unread.len() == before {
        findings.extend(nobody(&bindings, &roles));
    }
    let healthy = "metrics are for whom a role lets have them, and somebody is".to_owned();
    Ok(Some(Checked { healthy, findings }))
}

/// A finding where no ServiceAccount may have the metrics: Prometheus sends the token of one.
fn nobody(bindings: &[ClusterRoleBinding], roles: &[ClusterRole]) -> Option<Finding> {
    let lets = |name: &str| roles.iter().any(|role| role.name_any() == name && role.rules.iter().flatten().any(gives_metrics));
    let bound = bindings.iter().filter(|binding| binding.subjects.iter().flatten().any(scrapes));
    if bound.into_iter().any(|binding| lets(&binding.role_ref.name)) {
        return None;
    }
    let shipped = roles.iter().map(|role| role.name_any()).find(|name| name.ends_with(READER));
    let cure = shipped.map_or_else(
        || rights::cure(Roles::Metrics, READER),
        |role| format!("kubectl create clusterrolebinding prometheus-pacer --clusterrole={role} --serviceaccount=NAMESPACE:NAME"),
    );
    Some(Finding {
        severity: Severity::Warning,
        object: format!("ClusterRole {READER}"),
        what: format!("no ServiceAccount may get the path {PATH}"),
        why: "with --metrics-authorization every scrape is answered 403, and no alert is raised".to_owned(),
        cure,
    })
}

/// Whether this may be whoever scrapes. What Kubernetes itself is bound to has no token of a ServiceAccount.
fn scrapes(subject: &Subject) -> bool {
    subject.kind == "ServiceAccount" || (subject.kind == "Group" && subject.name.starts_with("system:serviceaccounts"))
}

/// As the API server reads a rule: `*` stands for every verb or path, and at the end of a path for the rest of it.
fn gives_metrics(rule: &PolicyRule) -> bool {
    let covers = |path: &String| path.strip_suffix('*').map_or(path == PATH, |start| PATH.starts_with(start));
    rule.non_resource_urls.iter().flatten().any(covers) && rule.verbs.iter().any(|verb| verb == "*" || verb == "get")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_is_given_by_name_or_by_what_stands_for_it() {
        for (urls, verbs, gives) in [
            (json!(["/metrics"]), json!(["get"]), true),
            (json!(["/healthz", "/met*"]), json!(["*"]), true),
            (json!(["*"]), json!(["get"]), true),
            (json!(["/metrics/cadvisor"]), json!(["get"]), false),
            (json!(["/metrics"]), json!(["post"]), false),
            (json!([]), json!(["get"]), false),
        ] {
            let rule: PolicyRule = serde_json::from_value(json!({"nonResourceURLs": urls, "verbs": verbs})).unwrap();
            assert_eq!(gives_metrics(&rule), gives, "{rule:?}");
        }
    }

    #[test]
    fn somebody_may_scrape_only_where_a_service_account_is_bound_to_a_role_that_lets_it() {
        let role = |name: &str| -> ClusterRole {
            serde_json::from_value(json!({
                "metadata": {"name": name}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
            }))
            .unwrap()
        };
        let binding = |role: &str, kind: &str, name: &str| -> ClusterRoleBinding {
            serde_json::from_value(json!({
                "metadata": {"name": "one"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": kind, "name": name}],
            }))
            .unwrap()
        };
        let found = |binding: ClusterRoleBinding| nobody(&[binding], &[role("ci-pacer-metrics-reader")]);
        assert_eq!(found(binding("ci-pacer-metrics-reader", "ServiceAccount", "prometheus")), None);
        assert_eq!(found(binding("ci-pacer-metrics-reader", "Group", "system:serviceaccounts:monitoring")), None);
        for other in
            [binding("ci-pacer-metrics-reader", "Group", "system:monitoring"), binding("view", "ServiceAccount", "prometheus")]
        {
            let cure = found(other).unwrap().cure;
            assert!(cure.contains("--clusterrole=ci-pacer-metrics-reader "), "{cure}");
        }
        let without = nobody(&[], &[]).unwrap().cure;
        assert!(without.contains("deploy/metrics-authorization"), "{without}");
    }
}
