//! What the chart renders without a cluster: the reviewed manifests of each set of values, ARC's names, refusals.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::helm::{self, NAMESPACE, Objects, part, text};

/// Names of the files in `tests/helm/values`.
pub(crate) fn sets_of_values() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(helm::repository("tests/helm/values"))? {
        let path = entry?.path();
        names.push(path.file_stem().context("a file without a name")?.to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

#[test]
fn chart_has_no_lint_errors_with_any_values() -> Result<()> {
    for name in sets_of_values()? {
        helm::succeed(None, &["lint", "--strict", &helm::chart(), "--values", &helm::values(&name)])?;
    }
    Ok(())
}

#[test]
fn rendered_manifests_are_the_reviewed_ones() -> Result<()> {
    let names = sets_of_values()?;
    ensure!(names.len() >= 10, "{names:?}");
    let directory = helm::repository("tests/helm/golden");
    let mut different = Vec::new();
    for name in &names {
        let rendered = helm::template("arc", &["--values", &helm::values(name)])?;
        let path = directory.join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&directory)?;
            std::fs::write(&path, &rendered)?;
        } else if std::fs::read_to_string(&path).unwrap_or_default() != rendered {
            different.push(name);
        }
    }
    ensure!(different.is_empty(), "{different:?} in tests/helm/golden differ; write them anew with `make golden` and review");
    let kept = std::fs::read_dir(&directory)?.count();
    ensure!(kept == names.len(), "{kept} golden files for {} files of values", names.len());
    Ok(())
}

#[test]
fn names_are_those_of_arc_for_any_release() -> Result<()> {
    let long = "a".repeat(53);
    let long_name = format!("{long}-actions-r");
    let long_metrics = format!("{}-metrics-service", "a".repeat(47));
    for (release, operator, metrics, hooks) in [
        (
            "arc",
            "arc-actions-runner-controller",
            "arc-actions-runner-controller-metrics-service",
            Some("arc-actions-runner-controller-github-webhook-server"),
        ),
        (
            "actions-runner-controller",
            "actions-runner-controller",
            "actions-runner-controller-metrics-service",
            Some("actions-runner-controller-github-webhook-server"),
        ),
        (long.as_str(), long_name.as_str(), long_metrics.as_str(), None),
    ] {
        let on = [
            "--set",
            "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true,githubWebhookServer.ingress.enabled=true",
        ];
        let rendered = Objects::parse(&helm::template(release, if hooks.is_some() { &on } else { &[] })?)?;
        ensure!(rendered.names("ServiceAccount").contains(&operator), "{:?}", rendered.names("ServiceAccount"));
        let service = rendered.get("Service", metrics)?;
        ensure!(text(service, "/spec/ports/0/name") == "metrics-port" && part(service, "/spec/clusterIP").is_null());
        if let Some(hooks) = hooks {
            let service = rendered.get("Service", hooks)?;
            ensure!(text(service, "/spec/ports/0/targetPort") == "http");
            rendered.get("Ingress", hooks)?;
            rendered.get("ServiceAccount", hooks)?;
        }
        for deployment in rendered.of("Deployment") {
            let name = text(deployment, "/metadata/name");
            ensure!(name.ends_with("-pacer") && name.len() <= 63, "{name}: ARC's selector can't be changed, so the name must be");
        }
    }
    Ok(())
}

#[test]
fn image_of_arc_never_takes_effect() -> Result<()> {
    let set = "image.repository=arc,image.tag=v1,image.digest=sha256:1,metrics.proxy.image.repository=proxy,\
               githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    let mut images = Vec::new();
    for deployment in rendered.of("Deployment") {
        let containers = part(deployment, "/spec/template/spec/containers");
        let containers = containers.as_array().context("containers")?;
        images.extend(containers.iter().map(|container| text(container, "/image").to_owned()));
    }
    ensure!(images == ["pacer:0.1.0", "pacer:0.1.0"], "{images:?}");
    Ok(())
}

#[test]
fn variable_of_the_user_takes_the_place_of_the_charts_own() -> Result<()> {
    let rendered = Objects::parse(&helm::template("arc", &["--values", &helm::values("arc-app")])?)?;
    let deployment = rendered.get("Deployment", "arc-actions-runner-controller-pacer")?;
    let env = part(deployment, "/spec/template/spec/containers/0/env");
    let tokens: Vec<_> = env.as_array().context("env")?.iter().filter(|one| text(one, "/name") == "GITHUB_TOKEN").collect();
    let [token] = tokens.as_slice() else { anyhow::bail!("{tokens:?}") };
    ensure!(text(token, "/valueFrom/secretKeyRef/name") == "elsewhere", "{token}");
    Ok(())
}

/// The variables of a Deployment's container with this beginning, by name.
fn variables<'a>(deployment: &'a Value, start: &'a str) -> BTreeMap<&'a str, &'a Value> {
    let env = deployment.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let named = env.into_iter().flatten().map(|variable| (text(variable, "/name"), variable));
    named.filter(|(name, _)| name.starts_with(start)).collect()
}

#[test]
fn name_for_basic_auth_is_taken_from_the_values_where_the_chart_makes_no_secret() -> Result<()> {
    let set = "authSecret.github_basicauth_username=somebody,githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true,\
               githubWebhookServer.useRunnerGroupsVisibility=true";
    let rendered = Objects::parse(&helm::template("arc", &["--set", set])?)?;
    for name in ["arc-actions-runner-controller-pacer", "arc-actions-runner-controller-github-webhook-server-pacer"] {
        let found = variables(rendered.get("Deployment", name)?, "GITHUB_BASICAUTH_");
        let user = found.get("GITHUB_BASICAUTH_USERNAME").with_context(|| format!("{name}: no user"))?;
        ensure!(text(user, "/value") == "somebody" && user.get("valueFrom").is_none(), "{name}: {user}");
        let password = found.get("GITHUB_BASICAUTH_PASSWORD").with_context(|| format!("{name}: no password"))?;
        ensure!(text(password, "/valueFrom/secretKeyRef/name") == "controller-manager", "{name}: {password}");
        ensure!(text(password, "/valueFrom/secretKeyRef/key") == "github_basicauth_password", "{name}: {password}");
    }
    // Without a name in the values the operator looks for one in the Secret.
    let rendered = Objects::parse(&helm::template("arc", &[])?)?;
    let deployment = rendered.get("Deployment", "arc-actions-runner-controller-pacer")?;
    let user = variables(deployment, "GITHUB_BASICAUTH_USERNAME");
    ensure!(user.values().all(|user| text(user, "/valueFrom/secretKeyRef/key") == "github_basicauth_username"), "{user:?}");
    Ok(())
}

#[test]
fn namespace_of_either_monitor_is_that_of_the_webhook_servers() -> Result<()> {
    let webhook = "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    for (set, operator, receiver) in [
        ("actionsMetrics.serviceMonitor.namespace=mon", NAMESPACE, "mon"),
        ("metrics.serviceMonitor.namespace=mon", "mon", "mon"),
        ("metrics.serviceMonitor.namespace=mon,actionsMetrics.serviceMonitor.namespace=jobs", "mon", "jobs"),
    ] {
        let set = format!("metrics.serviceMonitor.enable=true,{webhook},{set}");
        let rendered = Objects::parse(&helm::template("arc", &["--set", &set])?)?;
        for (name, namespace) in [("", operator), ("-github-webhook-server", receiver)] {
            let monitor = rendered.get("ServiceMonitor", &format!("arc-actions-runner-controller{name}"))?;
            ensure!(text(monitor, "/metadata/namespace") == namespace, "{set}: {monitor}");
        }
    }
    Ok(())
}

#[test]
fn container_that_annotations_name_is_there() -> Result<()> {
    let set = |values: &str, container: &str| {
        let key = "kubectl\\.kubernetes\\.io/default";
        format!("{values}podAnnotations.{key}-logs-container={container},{values}podAnnotations.{key}-container={container}")
    };
    let webhook = "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true";
    let set = format!("{webhook},{},{}", set("", "manager"), set("githubWebhookServer.", "github-webhook-server"));
    let rendered = Objects::parse(&helm::template("arc", &["--set", &set])?)?;
    for deployment in rendered.of("Deployment") {
        let annotations = part(deployment, "/spec/template/metadata/annotations");
        let named: Vec<_> = annotations.as_object().context("annotations")?.values().filter_map(Value::as_str).collect();
        let container = text(deployment, "/spec/template/spec/containers/0/name");
        ensure!(named == [container, container], "{annotations} in a pod with container {container}");
    }
    // A sidecar that somebody adds is not ours to rename.
    let other = helm::template("arc", &["--set", "podAnnotations.kubectl\\.kubernetes\\.io/default-container=proxy"])?;
    ensure!(other.contains("kubectl.kubernetes.io/default-container: proxy"));
    Ok(())
}

#[test]
fn numbers_keep_their_digits() -> Result<()> {
    let rendered = Objects::parse(&helm::template("arc", &["--values", &helm::values("arc-app")])?)?;
    let secret = rendered.get("Secret", "controller-manager")?;
    // base64 of 123456789 and 12345678901.
    ensure!(text(secret, "/data/github_app_id") == "MTIzNDU2Nzg5", "{secret}");
    ensure!(text(secret, "/data/github_app_installation_id") == "MTIzNDU2Nzg5MDE=", "{secret}");
    let rendered = helm::template("arc", &["--values", &helm::values("arc-basic-auth")])?;
    ensure!(rendered.contains("value: \"5000000\"") && !rendered.contains("e+06"));
    Ok(())
}

#[test]
fn what_would_lose_jobs_or_let_strangers_in_is_refused_with_the_cure() -> Result<()> {
    let long = "a".repeat(53);
    for (release, set, cure) in [
        ("arc", "enableLeaderElection=false", "Set enableLeaderElection=true, or replicaCount=1"),
        ("arc", "scope.watchNamespace=ci", "Set scope.singleNamespace=true, or leave scope.watchNamespace empty"),
        ("arc", "githubWebhookServer.enabled=true", "set githubWebhookServer.secret.enabled=true"),
        ("arc", "githubWebhookServer.enabled=true", "Secret \"github-webhook-server\""),
        (
            "arc",
            "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true,githubWebhookServer.secret.create=true",
            "githubWebhookServer.secret.github_webhook_secret_token",
        ),
        ("arc", "actionsMetricsServer.enabled=true", "set actionsMetricsServer.secret.enabled=true"),
        ("arc", "authSecret.create=true,authSecret.enabled=false", "Set authSecret.enabled=true, or authSecret.create=false"),
        ("arc", "pacer.metrics.authorization=true", "Set pacer.metrics.tls.enabled=true, or pacer.metrics.authorization=false"),
        ("arc", "pacer.policies.configMap=a/b,pacer.policies.inline.data.x=y", "give a name without a namespace"),
        ("arc", "pacer.policies.configMap=,pacer.policies.inline.data.x=y", "give a name without a namespace"),
        ("arc", "pacer.image.digest=latest", "pacer.image.digest"),
        ("arc", "logFormat=xml", "logFormat"),
        ("arc", "replicaCount=many", "replicaCount"),
        (
            long.as_str(),
            "githubWebhookServer.enabled=true,githubWebhookServer.secret.enabled=true",
            "Set githubWebhookServer.fullnameOverride",
        ),
    ] {
        let said = helm::fail(&["template", release, &helm::chart(), "--namespace", NAMESPACE, "--set", set])?;
        // The schema's messages name keys with slashes or with dots.
        ensure!(said.contains(cure) || said.contains(&cure.replace('.', "/")), "{set}: {said}");
    }
    Ok(())
}

#[test]
fn unknown_values_are_no_error() -> Result<()> {
    let set = "namespace=a,githubAPICacheDuration=1m,actionsMetrics.env.A=b,somethingElse.deep=1,metrics.serviceMonitor=true";
    helm::template("arc", &["--set", set])?;
    Ok(())
}
