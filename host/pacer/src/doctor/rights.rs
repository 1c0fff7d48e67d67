//! Whether service accounts have the rights that `deploy/` gives them, asked of the API server right by right.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;

use super::Checked;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use crate::arguments::RunArguments;
use crate::denial::unreadable;
use crate::plain;
use crate::reader::Reader;

/// Roles as they are installed; the only list of what is needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Roles {
    /// Of the operator: `deploy/base/rbac.yaml`.
    Operator,
    /// Of the webhook server, where it is a process of its own.
    Webhook,
    /// Of who serves metrics with `--metrics-authorization`.
    Metrics,
}

impl Roles {
    fn documents(self) -> &'static str {
        match self {
            Self::Operator => include_str!("../../../../deploy/base/rbac.yaml"),
            Self::Webhook => include_str!("../../../../deploy/webhook/rbac.yaml"),
            Self::Metrics => include_str!("../../../../deploy/metrics-authorization/rbac.yaml"),
        }
    }
}

/// A role that may be left out.
struct Optional {
    role: &'static str,
    /// What is lost without it.
    loss: &'static str,
    /// The chart's value that gives it.
    value: &'static str,
}

/// The roles that an installation may leave out.
const OPTIONAL: [Optional; 5] = [
    Optional {
        role: "pacer-policies",
        loss: "only the default policy set in the operator's namespace can be used",
        value: "pacer.rbac.policies",
    },
    Optional {
        role: "pacer-receipts",
        loss: "decisions leave no receipts, which `pacer explain` reads",
        value: "pacer.rbac.receipts",
    },
    Optional {
        role: "pacer-access",
        loss: "runners that talk to the API server have to name a service account",
        value: "pacer.rbac.runnerAccounts",
    },
    Optional { role: "pacer-nodes", loss: "a runner on a lost node is given up later", value: "pacer.rbac.nodes" },
    Optional {
        role: "pacer-namespaces",
        loss: "a tenancy file that selects namespaces by labels allows them nothing",
        value: "pacer.rbac.namespaces",
    },
];

/// Used only where a tenancy is in force.
const OF_TENANCY: &str = "pacer-namespaces";

/// Bound to runners, or to the operator only where a policy needs it.
const UNBOUND: [&str; 2] = ["pacer-job-pods", "pacer-room"];

/// One right to one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    role: String,
    /// Only in the operator's own namespace.
    own: bool,
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

/// Said of an operator alone.
const HEALTHY: &str = "the operator has every right that it uses";

pub(super) async fn check(reader: &mut Reader, installation: &Installation) -> Result<Checked> {
    let mut findings = Vec::new();
    if let Some(account) = installation.account() {
        let watched = installation.flags().ok().flatten().map(|arguments| arguments.watch_namespace).unwrap_or_default();
        findings.extend(lacking(reader, &account, Roles::Operator, installation, &watched).await?);
    }
    let receiver = installation.receiver();
    let who = if receiver.is_some() { "the operator and the webhook server have every right that they use" } else { HEALTHY };
    if let Some((account, watched)) = receiver {
        findings.extend(lacking(reader, &account, Roles::Webhook, installation, &watched).await?);
    }
    Ok(Checked { healthy: who.to_owned(), findings })
}

/// What of these roles an account may not do in a namespace, or in all where it is empty. Roles of the operator's own namespace are asked for there.
/// Nothing, with a note, where that can't be asked.
pub(super) async fn lacking(
    reader: &mut Reader,
    account: &str,
    roles: Roles,
    installation: &Installation,
    namespace: &str,
) -> Result<Vec<Finding>> {
    let reviews: Api<SubjectAccessReview> = Api::all(reader.client.clone());
    let mut missing = BTreeSet::new();
    let flags = installation.flags().ok().flatten();
    let rights = rights(roles.documents())?.into_iter().flat_map(|right| right.under(flags.as_ref()));
    for right in rights {
        let namespace = if right.own { &installation.namespace } else { namespace };
        let review = SubjectAccessReview { spec: right.review(account, namespace), ..SubjectAccessReview::default() };
        match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => {
                missing.insert(right);
            }
            Err(error) => {
                let what = format!("the rights of {account} can't be checked");
                reader.unread.push(plain::causes(&unreadable(error, what, "create subjectaccessreviews")));
                return Ok(Vec::new());
            }
        }
    }
    Ok(findings(&missing, account, roles))
}

/// What gives somebody the rights of a role.
pub(super) fn cure(roles: Roles, role: &str) -> String {
    match roles {
        Roles::Operator => {
            let optional = OPTIONAL.iter().find(|optional| optional.role == role);
            let values =
                optional.map_or_else(|| "the chart of this version".to_owned(), |optional| format!("{}=true", optional.value));
            format!(
                "bind the rules of {role} in deploy/base/rbac.yaml to it: `kubectl apply -k deploy`, or `helm upgrade` with {values}"
            )
        }
        Roles::Webhook => format!(
            "bind the rules of {role} in deploy/webhook/rbac.yaml to it: `kubectl apply -k deploy/webhook`, or `helm upgrade` with the chart \
             of this version"
        ),
        Roles::Metrics => format!(
            "bind the rules of {role} in deploy/metrics-authorization/rbac.yaml to it: list that component in your kustomization, or `helm \
             upgrade` with pacer.metrics.authorization; docs/operations.md#restricted-metrics"
        ),
    }
}

impl Right {
    /// The same under the names that these flags give to what the roles name, once for each; none where the flags make no use of it.
    fn under(self, flags: Option<&RunArguments>) -> Vec<Self> {
        let Some(flags) = flags else { return vec![self] };
        if self.role == OF_TENANCY && flags.tenancy.is_empty() {
            return Vec::new();
        }
        let names = match (self.resource.as_str(), &self.name) {
            ("clusterroles", Some(_)) => vec![flags.pods.job_pods_cluster_role.clone()],
            ("leases", Some(_)) => flags.election.leases(),
            _ => return vec![self],
        };
        names.into_iter().map(|name| Self { name: Some(name), ..self.clone() }).collect()
    }

    fn review(&self, account: &str, namespace: &str) -> SubjectAccessReviewSpec {
        let (resource, subresource) = self.resource.split_once('/').map_or((self.resource.as_str(), None), |(a, b)| (a, Some(b)));
        SubjectAccessReviewSpec {
            user: Some(account.to_owned()),
            groups: account.split(':').nth(2).map(|namespace| {
                vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated".to_owned(),
                ]
            }),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                group: Some(self.group.clone()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                name: self.name.clone(),
                verb: Some(self.verb.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

/// Every right of every role in these documents that the operator is bound to.
fn rights(documents: &str) -> Result<BTreeSet<Right>> {
    let mut rights = BTreeSet::new();
    for document in documents.split("\n---\n") {
        let mut document: Value = serde_saphyr::from_str(document).context("reading the roles")?;
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        if (kind != "Role" && kind != "ClusterRole") || UNBOUND.contains(&name.as_str()) {
            continue;
        }
        let rules = document.pointer_mut("/rules").map(Value::take).unwrap_or_default();
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).with_context(|| format!("reading the rules of {name}"))?;
        for rule in &rules {
            rights.extend(of_rule(&name, kind == "Role", rule));
        }
    }
    Ok(rights)
}

fn of_rule<'a>(role: &'a str, own: bool, rule: &'a PolicyRule) -> impl Iterator<Item = Right> + 'a {
    let names: Vec<Option<String>> = match &rule.resource_names {
        Some(names) if !names.is_empty() => names.iter().cloned().map(Some).collect(),
        _ => vec![None],
    };
    rule.api_groups.iter().flatten().flat_map(move |group| {
        let names = names.clone();
        rule.resources.iter().flatten().flat_map(move |resource| {
            let names = names.clone();
            rule.verbs.iter().flat_map(move |verb| {
                let right = move |name| Right {
                    role: role.to_owned(),
                    own,
                    group: group.clone(),
                    resource: resource.clone(),
                    name,
                    verb: verb.clone(),
                };
                names.clone().into_iter().map(right)
            })
        })
    })
}

/// One finding for each role and kind, with all verbs that are missing.
fn findings(missing: &BTreeSet<Right>, account: &str, roles: Roles) -> Vec<Finding> {
    let mut verbs: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for right in missing {
        verbs.entry((&right.role, &right.group, &right.resource)).or_default().push(&right.verb);
    }
    let without = match roles {
        Roles::Operator => "the operator cannot do its work without",
        Roles::Webhook => "the webhook server answers events with 503 without, and nothing tells of jobs when they are queued",
        Roles::Metrics => "with --metrics-authorization every scrape is answered 503, and no alert is raised",
    };
    let finding = |((role, group, resource), verbs): ((&str, &str, &str), Vec<&str>)| {
        let optional = OPTIONAL.iter().find(|optional| optional.role == role);
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        Finding {
            severity: if optional.is_some() { Severity::Warning } else { Severity::Problem },
            object: account.to_owned(),
            what: format!("may not {} {resource}", verbs.join(", ")),
            why: optional.map_or(without, |optional| optional.loss).to_owned(),
            cure: cure(roles, role),
        }
    };
    verbs.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    /// The shipped rights as they are asked for under these flags.
    fn under(flags: &[&str]) -> Vec<Right> {
        let words = RunArguments::augment_args(clap::Command::new("run")).get_matches_from([&["run"], flags].concat());
        let flags = RunArguments::from_arg_matches(&words).unwrap();
        rights(Roles::Operator.documents()).unwrap().into_iter().flat_map(|right| right.under(Some(&flags))).collect()
    }

    #[test]
    fn every_rule_of_the_shipped_roles_is_asked_for() {
        let rights = rights(Roles::Operator.documents()).unwrap();
        let has = |role: &str, own: bool, group: &str, resource: &str, name: Option<&str>, verb: &str| {
            rights.contains(&Right {
                role: role.to_owned(),
                own,
                group: group.to_owned(),
                resource: resource.to_owned(),
                name: name.map(str::to_owned),
                verb: verb.to_owned(),
            })
        };
        assert!(has("pacer", false, "", "pods", None, "delete"));
        assert!(has("pacer", false, "actions.summerwind.dev", "runners/status", None, "patch"));
        assert!(has("pacer-access", false, "rbac.authorization.k8s.io", "clusterroles", Some("pacer-job-pods"), "bind"));
        assert!(has("pacer-leader-election", true, "coordination.k8s.io", "leases", Some("actions-runner-controller"), "update"));
        assert!(rights.iter().all(|right| !UNBOUND.contains(&right.role.as_str())));
        let values: Value = serde_saphyr::from_str(include_str!("../../../../deploy/chart/values.yaml")).unwrap();
        for Optional { role, value, .. } in OPTIONAL {
            assert!(rights.iter().any(|right| right.role == role), "{role} is no role any more");
            let place = format!("/{}", value.replace('.', "/"));
            assert!(values.pointer(&place).is_some_and(Value::is_boolean), "the chart has no value {value}");
            assert!(cure(Roles::Operator, role).contains(&format!("{value}=true")));
        }
    }

    #[test]
    fn rights_are_asked_for_under_the_names_that_the_flags_give() {
        let names = |flags: &[&str], resource: &str| {
            let of = under(flags).into_iter().filter(|right| right.resource == resource);
            of.filter_map(|right| right.name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(&[], "clusterroles"), ["pacer-job-pods"]);
        assert_eq!(names(&["--job-pods-cluster-role=x-job-pods"], "clusterroles"), ["x-job-pods"]);
        assert_eq!(names(&["--leader-election-id=x"], "leases"), ["x"]);
        assert_eq!(names(&["--leader-election-id=x", "--shards=2"], "leases"), ["x", "x-shard-0", "x-shard-1"]);
    }

    #[test]
    fn namespaces_are_read_only_where_a_tenancy_is_in_force() {
        let asked = |flags: &[&str]| under(flags).iter().any(|right| right.role == OF_TENANCY);
        assert!(!asked(&[]) && asked(&["--tenancy=tenants"]));
    }

    #[test]
    fn right_of_an_optional_role_is_a_warning_and_any_other_a_problem() {
        let all = rights(Roles::Operator.documents()).unwrap();
        let missing = all.into_iter().filter(|right| right.resource == "nodes" || right.resource == "pods").collect();
        let found = findings(&missing, "system:serviceaccount:ns:pacer", Roles::Operator);
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, finding.what.as_str())).collect();
        assert_eq!(
            said,
            [(Severity::Problem, "may not create, delete, list, patch, watch pods"), (Severity::Warning, "may not get nodes")]
        );
    }
}
