//! The chart and the manifests for kustomize install the same: rights, command lines, environments, limits.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::helm::{self, Objects, part, text};

/// Prefix of the names that a release `arc` gives.
const PREFIX: &str = "arc-actions-runner-controller-";

/// Objects of files in `deploy/`.
fn shipped(files: &[&str]) -> Result<Objects> {
    let mut all = String::new();
    for file in files {
        all.push_str("---\n");
        all.push_str(&std::fs::read_to_string(helm::repository("deploy").join(file))?);
        all.push('\n');
    }
    Objects::parse(&all)
}

/// Rules of all roles by the role's name without the release, whether they hold in the whole cluster or not.
fn rules(objects: &Objects) -> BTreeMap<String, Value> {
    let roles = objects.of("ClusterRole").chain(objects.of("Role"));
    roles
        .map(|role| {
            let name = text(role, "/metadata/name");
            let shipped = name.rsplit_once(PREFIX).map_or(name, |(_, shipped)| shipped);
            let mut rules = part(role, "/rules").to_string();
            // Some rules name objects of the installation.
            for start in [PREFIX.to_owned(), format!("{}-{PREFIX}", helm::NAMESPACE)].iter().rev() {
                rules = rules.replace(start.as_str(), "");
            }
            (shipped.to_owned(), serde_json::from_str(&rules).unwrap_or_default())
        })
        .collect()
}

#[test]
fn rights_are_those_of_the_shipped_manifests() -> Result<()> {
    // Without a tenancy the chart leaves the right out that only a tenancy uses.
    let set = "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true,pacer.tenancy.configMap=tenancy";
    let webhook = ["--set", set];
    let shipped = rules(&shipped(&["base/rbac.yaml", "webhook/rbac.yaml"])?);
    ensure!(shipped.len() >= 9, "{:?}", shipped.keys());
    for more in [None, Some(["--set", "scope.singleNamespace=true"])] {
        let arguments: Vec<&str> = webhook.into_iter().chain(more.into_iter().flatten()).collect();
        let rendered = rules(&Objects::parse(&helm::template("arc", &arguments)?)?);
        assert_eq!(rendered, shipped);
    }
    Ok(())
}

#[test]
fn one_namespace_needs_no_rights_elsewhere_but_to_read_nodes() -> Result<()> {
    let set = "scope.singleNamespace=true,scope.watchNamespace=ci,githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    let prefix = format!("{}-{PREFIX}", helm::NAMESPACE);
    // Those for job pods and for room grant nothing until they are bound.
    let roles = ["pacer-job-pods", "pacer-nodes", "pacer-room"].map(|role| format!("{prefix}{role}"));
    assert_eq!(rendered.names("ClusterRole"), roles);
    assert_eq!(rendered.names("ClusterRoleBinding"), [format!("{prefix}pacer-nodes")]);
    let places: BTreeSet<(&str, &str)> = rendered
        .of("RoleBinding")
        .map(|binding| (text(binding, "/metadata/name").trim_start_matches(PREFIX), text(binding, "/metadata/namespace")))
        .collect();
    let expected = [
        ("pacer", "ci"),
        ("pacer-access", "ci"),
        ("pacer-leader-election", helm::NAMESPACE),
        ("pacer-policies", "ci"),
        ("pacer-policy-records", helm::NAMESPACE),
        ("pacer-receipts", "ci"),
        ("pacer-webhook", "ci"),
    ];
    assert_eq!(places, expected.into());
    for binding in rendered.of("RoleBinding") {
        ensure!(text(binding, "/roleRef/kind") == "Role" && text(binding, "/subjects/0/namespace") == helm::NAMESPACE);
    }
    Ok(())
}

#[test]
fn every_binding_leads_from_a_role_to_an_account_of_the_release() -> Result<()> {
    for name in super::rendered::sets_of_values()? {
        let rendered = Objects::parse(&helm::template("arc", &["--values", &helm::values(&name)])?)?;
        for binding in rendered.of("RoleBinding").chain(rendered.of("ClusterRoleBinding")) {
            let role = rendered.get(text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"))?;
            ensure!(part(role, "/metadata/namespace") == part(binding, "/metadata/namespace"), "{binding}");
            let account = rendered.of("Deployment").chain(rendered.of("Job")).any(|owner| {
                part(owner, "/spec/template/spec/serviceAccountName") == part(binding, "/subjects/0/name")
                    && part(owner, "/metadata/namespace") == part(binding, "/subjects/0/namespace")
            });
            ensure!(account, "{name}: no pod has the account of {binding}");
        }
    }
    Ok(())
}

#[test]
fn pods_are_those_of_the_shipped_manifests() -> Result<()> {
    let set = "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true,githubWebhookServer.useRunnerGroupsVisibility=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    let shipped = shipped(&["base/deployment.yaml", "webhook/deployment.yaml"])?;
    for (name, of_chart) in [("pacer", "pacer"), ("pacer-webhook", "github-webhook-server-pacer")] {
        let (ours, theirs) = (rendered.get("Deployment", &format!("{PREFIX}{of_chart}"))?, shipped.get("Deployment", name)?);
        for place in [
            "/spec/replicas",
            "/spec/strategy",
            "/spec/template/spec/terminationGracePeriodSeconds",
            "/spec/template/spec/enableServiceLinks",
            "/spec/template/spec/affinity",
            "/spec/template/spec/securityContext",
            "/spec/template/spec/containers/0/env",
            "/spec/template/spec/containers/0/image",
            "/spec/template/spec/containers/0/lifecycle",
            "/spec/template/spec/containers/0/resources",
            "/spec/template/spec/containers/0/securityContext",
            "/spec/template/spec/containers/0/livenessProbe/httpGet/path",
            "/spec/template/spec/containers/0/readinessProbe/httpGet/path",
            "/spec/template/spec/containers/0/readinessProbe/periodSeconds",
        ] {
            assert_eq!(in_order(part(ours, place)), in_order(part(theirs, place)), "{name}{place}");
        }
        let ports = |object: &Value| -> Result<BTreeSet<u64>> {
            let ports = part(object, "/spec/template/spec/containers/0/ports");
            Ok(ports.as_array().context("ports")?.iter().filter_map(|port| port.get("containerPort")?.as_u64()).collect())
        };
        assert_eq!(ports(ours)?, ports(theirs)?, "{name}");
        let arguments = |object: &Value| -> Result<BTreeSet<String>> {
            let arguments = part(object, "/spec/template/spec/containers/0/args");
            Ok(arguments.as_array().context("args")?.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
        };
        let (ours, theirs) = (arguments(ours)?, arguments(theirs)?);
        ensure!(theirs.is_subset(&ours), "{name}: the chart lacks {:?}", theirs.difference(&ours).collect::<Vec<_>>());
        // What it says beyond that are the program's own defaults, but for the name of the ClusterRole.
        let beyond: Vec<&str> = ours.difference(&theirs).map(String::as_str).collect();
        let expected: &[&str] = if name == "pacer" {
            &[
                "--default-scale-down-delay=10m",
                "--docker-image=docker:dind",
                "--job-pods-cluster-role=arc-actions-runner-controller-pacer-job-pods",
                "--log-format=text",
                "--policies=pacer-policies",
                "--runner-image=summerwind/actions-runner:latest",
                "--sync-period=1m",
            ]
        } else {
            &["--log-format=text"]
        };
        assert_eq!(beyond, expected, "{name}");
    }
    Ok(())
}

#[test]
fn pods_keep_away_from_nodes_with_runners_of_any_namespace() -> Result<()> {
    let shipped = shipped(&["base/deployment.yaml", "webhook/deployment.yaml"])?;
    for name in ["pacer", "pacer-webhook"] {
        let pod = shipped.get("Deployment", name)?;
        let term =
            "/spec/template/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm";
        let expected = serde_json::json!({
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": pacer_api::names::label::RUNNER_POD, "operator": "Exists"}]},
        });
        assert_eq!(part(pod, term), expected, "{name}");
    }
    Ok(())
}

/// The number of the port to which the pods of a Deployment give this name.
fn number_of(name: &str, deployment: &Value) -> Result<u64> {
    let ports = part(deployment, "/spec/template/spec/containers/0/ports");
    let port = ports.as_array().context("ports")?.iter().find(|port| text(port, "/name") == name);
    port.and_then(|port| port.get("containerPort")?.as_u64()).with_context(|| format!("no container has the port {name:?}"))
}

/// Ports that a policy lets in, as numbers, by the names that the pods of a Deployment give them.
fn open_ports(policy: &Value, deployment: &Value) -> Result<BTreeSet<u64>> {
    let ingress = part(policy, "/spec/ingress");
    let rules = ingress.as_array().context("ingress")?.iter();
    let ports = rules.flat_map(|rule| rule.get("ports").and_then(Value::as_array).into_iter().flatten());
    ports.map(|port| number_of(text(port, "/port"), deployment)).collect()
}

/// Ports of the pods of a Deployment that a Service leads to, as numbers.
fn led_to(service: &Value, deployment: &Value) -> Result<BTreeSet<u64>> {
    let ports = part(service, "/spec/ports");
    ports.as_array().context("ports")?.iter().map(|port| number_of(text(port, "/targetPort"), deployment)).collect()
}

/// Those for metrics are headless here, and have ARC's port there: ARC's Service of that name is not headless, and that can't be changed.
#[test]
fn services_and_disruption_budgets_are_those_of_the_shipped_manifests() -> Result<()> {
    let set = "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    let shipped = shipped(&["base/deployment.yaml", "base/service.yaml", "webhook/deployment.yaml", "webhook/service.yaml"])?;
    let services = [
        ("pacer-metrics", "metrics-service", "pacer", "pacer"),
        ("pacer-webhook", "github-webhook-server", "pacer-webhook", "github-webhook-server-pacer"),
        ("pacer-webhook-metrics", "github-webhook-se-metrics-service", "pacer-webhook", "github-webhook-server-pacer"),
    ];
    assert_eq!(shipped.names("Service"), services.map(|(name, ..)| name));
    assert_eq!(rendered.of("Service").count(), services.len(), "{:?}", rendered.names("Service"));
    for (name, of_chart, pods, pods_of_chart) in services {
        let ours = rendered.get("Service", &format!("{PREFIX}{of_chart}"))?;
        let theirs = shipped.get("Service", name)?;
        let our_pods = rendered.get("Deployment", &format!("{PREFIX}{pods_of_chart}"))?;
        let their_pods = shipped.get("Deployment", pods)?;
        assert_eq!(led_to(ours, our_pods)?, led_to(theirs, their_pods)?, "{name}");
        for place in ["/spec/publishNotReadyAddresses", "/spec/ipFamilyPolicy"] {
            assert_eq!(part(ours, place), part(theirs, place), "{name}{place}");
        }
        for (service, pods) in [(ours, our_pods), (theirs, their_pods)] {
            let labels = part(pods, "/spec/template/metadata/labels");
            let selector = part(service, "/spec/selector");
            let selected =
                selector.as_object().context("selector")?.iter().all(|(label, value)| labels.get(label) == Some(value));
            ensure!(selected, "{name}: {selector} selects no pod with {labels}");
        }
    }
    assert_eq!(shipped.names("PodDisruptionBudget"), ["pacer-webhook"]);
    let ours = rendered.get("PodDisruptionBudget", &format!("{PREFIX}github-webhook-server"))?;
    let theirs = shipped.get("PodDisruptionBudget", "pacer-webhook")?;
    for bound in ["/spec/minAvailable", "/spec/maxUnavailable"] {
        assert_eq!(part(ours, bound), part(theirs, bound), "{bound}");
    }
    Ok(())
}

#[test]
fn network_policies_are_those_of_the_shipped_manifests() -> Result<()> {
    let set = "pacer.networkPolicy.enabled=true,githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    let files =
        ["network-policies/operator.yaml", "network-policies/webhook.yaml", "base/deployment.yaml", "webhook/deployment.yaml"];
    let shipped = shipped(&files)?;
    for (name, of_chart) in [("pacer", "pacer"), ("pacer-webhook", "github-webhook-server-pacer")] {
        let of_chart = format!("{PREFIX}{of_chart}");
        let (ours, theirs) = (rendered.get("NetworkPolicy", &of_chart)?, shipped.get("NetworkPolicy", name)?);
        for place in ["/spec/egress", "/spec/policyTypes"] {
            assert_eq!(part(ours, place), part(theirs, place), "{name}{place}");
        }
        let (our_pods, their_pods) = (rendered.get("Deployment", &of_chart)?, shipped.get("Deployment", name)?);
        assert_eq!(open_ports(ours, our_pods)?, open_ports(theirs, their_pods)?, "{name}");
        let labels = part(their_pods, "/spec/template/metadata/labels");
        assert_eq!(part(theirs, "/spec/podSelector/matchLabels"), labels, "{name}");
        assert_eq!(part(theirs, "/metadata/namespace"), part(their_pods, "/metadata/namespace"), "{name}");
    }
    Ok(())
}

/// A list of variables in the order of their names; anything else as it is.
fn in_order(value: Value) -> Value {
    let Value::Array(mut list) = value else { return value };
    list.sort_by_key(|one| text(one, "/name").to_owned());
    Value::Array(list)
}
