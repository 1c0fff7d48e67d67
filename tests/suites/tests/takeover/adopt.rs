//! `pacer adopt --dry-run` on a cluster with an installation of ARC's, and the commands that it prints.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::Runner;
use pacer_harness::controlplane::Apply;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, api, arc};
use serde_json::{Value, json};

/// What a run of the command said, and its exit code.
async fn adopt(world: &World, arguments: &[&str]) -> Result<(String, String, Option<i32>)> {
    let output = tokio::process::Command::new(binary().await?)
        .args(["adopt", "--kubeconfig"])
        .arg(world.plane.kubeconfig_path())
        .args(arguments)
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr), output.status.code()))
}

async fn report(world: &World) -> Result<(Value, Option<i32>)> {
    let (text, errors, code) = adopt(world, &["--dry-run", "--output=json"]).await?;
    Ok((serde_json::from_str(&text).with_context(|| format!("{text}{errors}"))?, code))
}

/// The texts of one field of a list in the report.
fn texts(report: &Value, list: &str, field: &str) -> Vec<String> {
    let items = report.get(list).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.get(field)?.as_str()).map(str::to_owned).collect()
}

/// Runs a command that was printed, as people would.
async fn run(world: &World, command: &str) -> Result<()> {
    for part in command.split(" && ") {
        let arguments: Vec<&str> = part.strip_prefix("kubectl ").context("no kubectl command")?.split_whitespace().collect();
        let output = world.plane.kubectl(&arguments).await?;
        ensure!(output.status.success(), "{part}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// What ARC's chart installs, in brief.
fn installation() -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "actions-runner-controller", "app.kubernetes.io/instance": "arc"});
    let metadata = |name: &str| json!({"name": name, "namespace": "arc", "labels": labels});
    let cluster = |name: &str| json!({"name": name});
    let program = |name: &str, command: &str, replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": "arc", "labels": labels,
                "annotations": {"meta.helm.sh/release-name": "arc", "meta.helm.sh/release-namespace": "arc"},
            },
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"serviceAccountName": name, "containers": [{
                    "name": "manager", "image": "summerwind/actions-runner-controller:v0.27.6", "command": [command],
                    "args": ["--enable-leader-election", "--leader-election-id=arc-election", "--runner-image=summerwind/actions-runner:latest"],
                }]}},
            },
        })
    };
    let hook = |name: &str, path: &str, kind: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1beta1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"name": "arc-actions-runner-controller-webhook", "namespace": "arc", "path": path}},
            "rules": [{"apiGroups": ["actions.summerwind.dev"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": [kind]}],
        })
    };
    let binding = |kind: &str, name: &str, role: &str, reference: &str, account: &str| {
        let metadata = if kind == "RoleBinding" { json!({"name": name, "namespace": "arc"}) } else { cluster(name) };
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": reference},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "arc"}],
        })
    };
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name)});
    let rules = json!([{"apiGroups": ["actions.summerwind.dev"], "resources": ["runners"], "verbs": ["list"]}]);
    vec![
        program("arc-actions-runner-controller", "/manager", 1),
        program("arc-actions-runner-controller-github-webhook-server", "/github-webhook-server", 1),
        account("arc-actions-runner-controller"),
        account("arc-actions-runner-controller-github-webhook-server"),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": cluster("arc-actions-runner-controller-validating-webhook-configuration"),
            "webhooks": [hook("validate.runner.actions.summerwind.dev", "/validate-actions-summerwind-dev-v1alpha1-runner", "runners")],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": cluster("arc-actions-runner-controller-mutating-webhook-configuration"),
            "webhooks": [hook("mutate.runner.actions.summerwind.dev", "/mutate-actions-summerwind-dev-v1alpha1-runner", "runners")],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "arc-actions-runner-controller-webhook", "namespace": "arc"},
            "spec": {"ports": [{"port": 443}]},
        }),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("controller-manager"), "stringData": {"github_token": "x"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "sh.helm.release.v1.arc.v1", "namespace": "arc", "labels": {"owner": "helm", "name": "arc"}},
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "arc-election", "namespace": "arc"},
            "spec": {"holderIdentity": "arc-6f7c_1", "leaseDurationSeconds": 15},
        }),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": cluster("arc-actions-runner-controller-manager"), "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": cluster("arc-actions-runner-controller-runner-viewer"), "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": cluster("runner-watchers"), "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "arc-election", "namespace": "arc"}, "rules": rules}),
        binding(
            "ClusterRoleBinding",
            "arc-manager",
            "ClusterRole",
            "arc-actions-runner-controller-manager",
            "arc-actions-runner-controller",
        ),
        binding("ClusterRoleBinding", "arc-view", "ClusterRole", "view", "arc-actions-runner-controller"),
        binding("RoleBinding", "arc-election", "Role", "arc-election", "arc-actions-runner-controller"),
    ]
}

/// cert-manager's definitions, as far as they matter here.
fn cert_manager() -> Vec<Value> {
    let definition = |plural: &str, kind: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        })
    };
    vec![definition("certificates", "Certificate"), definition("issuers", "Issuer")]
}

fn certificates() -> Vec<Value> {
    let certificate = |name: &str, host: &str, secret: &str| {
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": name, "namespace": "arc"},
            "spec": {"dnsNames": [host], "secretName": secret, "issuerRef": {"kind": "Issuer", "name": format!("{name}-issuer")}},
        })
    };
    let issuer = |name: &str| json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": name, "namespace": "arc"}, "spec": {}});
    vec![
        certificate("serving-cert", "arc-actions-runner-controller-webhook.arc.svc.cluster.local", "serving-cert-tls"),
        certificate("shop", "shop.example.com", "shop-tls"),
        issuer("serving-cert-issuer"),
        issuer("shop-issuer"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "serving-cert-tls", "namespace": "arc"}}),
    ]
}

async fn apply_all(world: &World, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Ok(world.plane.apply_text(&list.to_string(), Apply::ServerSide).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_names_what_becomes_of_each_object_and_how_to_remove_the_rest() -> Result<()> {
    let (world, _) = arc::without_operator(&[]).await?;
    let (text, _, code) = adopt(&world, &["--dry-run"]).await?;
    ensure!(code == Some(0) && text.contains("No objects") && text.contains("Nothing stands in the way"), "{text}");
    let (_, errors, code) = adopt(&world, &[]).await?;
    ensure!(code == Some(1) && errors.contains("--dry-run"), "{errors}");

    // Without cert-manager.
    world.plane.namespace("arc").await?;
    let set = arc::fleet(&world, "web", 2).await?;
    apply_all(&world, &installation()).await?;
    let before = versions(&world).await?;
    let (text, errors, code) = adopt(&world, &["--dry-run"]).await?;
    ensure!(code == Some(3), "{text}{errors}");
    for wanted in [
        "RunnerDeployment",
        "nothing is rolled out",
        "adopted by the meaning of its template, with its 2 runners",
        "ARC's finalizers are taken away when its runner is done",
        "kubectl scale deployment arc-actions-runner-controller --namespace=arc --replicas=0",
        "kubectl delete validatingwebhookconfiguration arc-actions-runner-controller-validating-webhook-configuration",
        "kubectl delete mutatingwebhookconfiguration arc-actions-runner-controller-mutating-webhook-configuration",
        "kubectl delete service arc-actions-runner-controller-webhook --namespace=arc",
        "kubectl delete lease arc-election --namespace=arc",
        "last arc-6f7c_1",
        "kubectl delete secret --namespace=arc --selector=owner=helm,name=arc",
    ] {
        ensure!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
    }
    ensure!(text.contains(&set.name_any()) && !text.contains("Certificate"), "{text}");
    ensure!(versions(&world).await? == before, "something was written");

    // With it, and every command carried out: then nothing of ARC's is left, and all that is not ARC's is.
    apply_all(&world, &cert_manager()).await?;
    let established = ["wait", "--for=condition=Established", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io"];
    ensure!(world.plane.kubectl(&established).await?.status.success());
    // The API server tells of a group only some time after its kinds are established.
    let found = tokio::time::timeout(PATIENCE, async {
        while !world.plane.kubectl(&["get", "certificates.cert-manager.io,issuers.cert-manager.io", "-A"]).await?.status.success()
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    });
    found.await.context("cert-manager's kinds are not served")??;
    apply_all(&world, &certificates()).await?;
    let (report, _) = report(&world).await?;
    for list in ["first", "leftovers"] {
        for command in texts(&report, list, "command") {
            run(&world, &command).await?;
        }
    }
    let (text, _, code) = adopt(&world, &["--dry-run"]).await?;
    ensure!(code == Some(0), "{text}");
    ensure!(!text.contains("leaves behind") && text.contains("Nothing stands in the way"), "{text}");
    for kept in [
        ["clusterrole", "runner-watchers"],
        ["clusterrole", "view"],
        ["clusterrole", "pacer"],
        ["clusterrolebinding", "pacer"],
        ["certificates.cert-manager.io", "shop"],
        ["issuers.cert-manager.io", "shop-issuer"],
        ["secret", "controller-manager"],
    ] {
        let [kind, name] = kept;
        let output = world.plane.kubectl(&["get", kind, name, "--namespace=arc"]).await?;
        ensure!(output.status.success(), "{kind} {name} is gone");
    }
    world.stop().await;
    Ok(())
}

/// Resource versions of the Runners, which nobody else writes.
async fn versions(world: &World) -> Result<Vec<Option<String>>> {
    Ok(api::<Runner>(world).list(&ListParams::default()).await?.iter().map(ResourceExt::resource_version).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_arc_are_recognised_and_a_refused_list_is_said() -> Result<()> {
    let (world, _) = arc::without_operator(&[]).await?;
    let definition = "runnerdeployments.actions.summerwind.dev";
    let without = r#"[{"op": "remove", "path": "/spec/versions/0/subresources/scale"}]"#;
    let output = world.plane.kubectl(&["patch", "crd", definition, "--type=json", "--patch", without]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (report, code) = report(&world).await?;
    ensure!(code == Some(3));
    ensure!(texts(&report, "first", "what").iter().any(|what| what.contains(definition)), "{report}");
    ensure!(
        texts(&report, "first", "command").iter().any(|command| command.starts_with("pacer crds | kubectl apply")),
        "{report}"
    );

    // The operator's own account may not see everything: what it may is still reported.
    let kubeconfig = world.plane.kubeconfig_for_service_account("actions-runner-system", "pacer").await?;
    let output = tokio::process::Command::new(binary().await?)
        .args(["adopt", "--dry-run", "--output=json", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .await?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let unread: Vec<&str> =
        report.get("unread").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(unread.iter().any(|line| line.starts_with("clusterroles: ") && line.contains("forbidden")), "{unread:?}");
    ensure!(unread.iter().all(|line| !line.starts_with("runners: ")), "{unread:?}");
    world.stop().await;
    Ok(())
}
