//! Installations, upgrades and removals on the real API server.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pacer_harness::controlplane::Apply;
use pacer_harness::operator::Operator;
use pacer_harness::world::{Options, World};
use pacer_suites::{PATIENCE, apply, deployment, end_as_it_is, kubectl, runners, scale};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::helm::{self, NAMESPACE, Objects, part, text};
use super::pod;

/// Kinds that the chart makes, as kubectl calls them.
pub(crate) const KINDS: &str = "deployments,services,secrets,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,ingresses,\
                     networkpolicies,poddisruptionbudgets,priorityclasses";

/// Kinds that others define.
const FOREIGN: [(&str, &str); 4] = [
    ("monitoring.coreos.com", "ServiceMonitor"),
    ("monitoring.coreos.com", "PrometheusRule"),
    ("cert-manager.io", "Issuer"),
    ("cert-manager.io", "Certificate"),
];

/// A control plane without definitions, roles and operator: all of that is the chart's.
pub(crate) async fn bare() -> Result<World> {
    bare_with(&[]).await
}

/// The same with more of Kubernetes' controllers.
pub(crate) async fn bare_with(controllers: &[&str]) -> Result<World> {
    let mut options = Options { operator: None, definitions: Vec::new(), manifests: Vec::new(), ..Options::default() };
    options.plane.controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
    options.github.rate_limit = 15_000;
    let world = World::start(options).await?;
    world.github.add(&pacer_harness::github::Scope::repository("acme", "app"));
    Ok(world)
}

/// Definitions of the kinds of others, which take any content.
pub(crate) async fn define_foreign(world: &World) -> Result<()> {
    for (group, kind) in FOREIGN {
        let plural = format!("{}s", kind.to_lowercase());
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        world.plane.apply_text(&definition.to_string(), Apply::ServerSide).await?;
    }
    kubectl(world, &["wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all"]).await?;
    Ok(())
}

/// Kind, namespace and name of everything there is of some kinds.
pub(crate) async fn everything(world: &World, kinds: &str) -> Result<BTreeSet<String>> {
    let columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let listed = kubectl(world, &["get", kinds, "--all-namespaces", "--no-headers", "--output", columns]).await?;
    Ok(listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

pub(crate) async fn uid(world: &World, kind: &str, name: &str) -> Result<String> {
    kubectl(world, &["get", kind, name, "--namespace", NAMESPACE, "--output=jsonpath={.metadata.uid}"]).await
}

/// Starts the program as the pod of a Deployment and waits until it is ready.
pub(crate) async fn start(world: &World, namespace: &str, name: &str, word: &str) -> Result<Operator> {
    let options = pod::options(world, namespace, name).await?;
    let operator = Operator::start(&world.plane, &world.github, &options).await?;
    operator.until_ready(word, PATIENCE).await?;
    Ok(operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_with_defaults_runs_runners_and_leaves_only_definitions() -> Result<()> {
    let world = bare().await?;
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": NAMESPACE},
        "stringData": {"github_token": world.github.pat()},
    });
    world.plane.apply_text(&credentials.to_string(), Apply::ServerSide).await?;
    let mut before = everything(&world, KINDS).await?;
    before.retain(|object| !object.contains(&format!(" {} ", pacer_suites::NAMESPACE)));
    let said = helm::succeed(Some(&world.plane), &["install", "arc", &helm::chart(), "--namespace", NAMESPACE])?;
    ensure!(said.contains("serves all namespaces") && !said.contains("no effect"), "{said}");

    let operator = start(&world, NAMESPACE, "arc-actions-runner-controller-pacer", "leading").await?;
    apply(&world, &deployment("web", 2)).await?;
    runners(&world, "two runners", |count| count.online == 2).await?;
    scale(&world, "web", 0).await?;
    runners(&world, "no runner", |count| count.registered == 0).await?;
    let set = "githubWebhookServer.enabled=true,githubWebhookServer.secret.create=true,\
               githubWebhookServer.secret.github_webhook_secret_token=a-secret";
    let more = ["upgrade", "arc", &helm::chart(), "--namespace", NAMESPACE, "--reuse-values", "--set", set];
    helm::succeed(Some(&world.plane), &more)?;
    let server = start(&world, NAMESPACE, "arc-actions-runner-controller-github-webhook-server-pacer", "receiving").await?;
    let refused = deliver_unsigned(&server).await?;
    ensure!(refused.starts_with("HTTP/1.0 401"), "{refused}");
    let metrics =
        metrics_with(&operator, "pacer_policy_receipts").await? + &metrics_with(&server, "pacer_webhook_events").await?;
    alerts_ask_for_what_is_there(&metrics)?;
    for process in [&operator, &server] {
        let log = process.logs();
        ensure!(!log.contains("forbidden"), "a right is missing:\n{log}");
        process.terminate().await;
    }

    helm::succeed(Some(&world.plane), &["uninstall", "arc", "--namespace", NAMESPACE])?;
    let mut left = everything(&world, KINDS).await?;
    // What the operator made for its fleets belongs to them.
    left.retain(|object| !object.contains(&format!(" {} ", pacer_suites::NAMESPACE)));
    assert_eq!(left, before);
    let definitions = kubectl(&world, &["get", "customresourcedefinitions", "--output=name"]).await?;
    ensure!(definitions.matches("actions.summerwind.dev").count() == 6, "{definitions}");
    end_as_it_is(world).await
}

/// Sends a webhook as a stranger would, and returns the answer.
async fn deliver_unsigned(server: &Operator) -> Result<String> {
    let address = server.webhook_address().context("no address for webhooks")?;
    let mut stream = TcpStream::connect(&address).await?;
    let request = format!("POST / HTTP/1.0\r\nHost: {address}\r\nX-GitHub-Event: workflow_job\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The metrics of a process once they hold a figure, which those with labels do from its first event on.
async fn metrics_with(process: &Operator, name: &str) -> Result<String> {
    let found = async {
        loop {
            let metrics = process.metrics().await?;
            if metrics.contains(&format!("# TYPE {name} ")) {
                return Ok(metrics);
            }
            // Another process announces nothing.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.with_context(|| format!("no {name}"))?
}

/// Every metric of every alert is one that the operator exports.
fn alerts_ask_for_what_is_there(metrics: &str) -> Result<()> {
    let exported: BTreeSet<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let rules: Value = serde_saphyr::from_str(&std::fs::read_to_string(helm::repository("deploy/alerts/pacer.yaml"))?)?;
    let rules = rules.pointer("/groups/0/rules").and_then(Value::as_array).context("rules")?;
    ensure!(rules.len() > 8, "{} rules", rules.len());
    for rule in rules {
        let words = helm::text(rule, "/expr").split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
        let names: Vec<&str> = words.filter(|word| word.starts_with("pacer_") || word.starts_with("github_")).collect();
        ensure!(!names.is_empty(), "{rule} asks for nothing");
        for name in names {
            ensure!(
                exported.contains(name.strip_suffix("_total").unwrap_or(name)),
                "{rule} asks for {name}; there is {exported:?}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_with_every_value_set_starts_operator_and_webhook_server() -> Result<()> {
    let world = bare().await?;
    define_foreign(&world).await?;
    for namespace in ["elsewhere", "watched"] {
        world.plane.namespace(namespace).await?;
    }
    let authority = std::fs::read_to_string(world.plane.directory().join("apiserver.crt"))?;
    let authorities = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "github-ca", "namespace": "elsewhere"},
        "data": {"bundle.pem": authority},
    });
    world.plane.apply_text(&authorities.to_string(), Apply::ServerSide).await?;
    let prices = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "node-prices", "namespace": "elsewhere"},
        "data": {"usd.yaml": "m5.large: 0.096\n"},
    });
    world.plane.apply_text(&prices.to_string(), Apply::ServerSide).await?;
    let signers = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "signers", "namespace": "elsewhere"},
        "data": {"all.pem": include_str!("../../../../host/registry/tests/signed/key.pub")},
    });
    world.plane.apply_text(&signers.to_string(), Apply::ServerSide).await?;
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ui-token", "namespace": "elsewhere"},
        "stringData": {"secret": "a-token-for-the-page-of-a-test"},
    });
    world.plane.apply_text(&token.to_string(), Apply::ServerSide).await?;
    let made = rcgen::generate_simple_self_signed(["metrics".to_owned()])?;
    let certificate = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "metrics-tls", "namespace": "elsewhere"},
        "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()},
    });
    world.plane.apply_text(&certificate.to_string(), Apply::ServerSide).await?;
    let kinds = format!("{KINDS},servicemonitors,prometheusrules");
    let before = everything(&world, &kinds).await?;
    let values = helm::values("everything");
    helm::succeed(Some(&world.plane), &["install", "arc", &helm::chart(), "--namespace", "elsewhere", "--values", &values])?;
    let made = everything(&world, &kinds).await?;
    for object in [
        "Service elsewhere hook-server",
        "Service elsewhere job-metrics",
        "Ingress elsewhere hook-server",
        "Secret elsewhere credentials",
        "ServiceAccount elsewhere operator",
        "ServiceAccount elsewhere hook-account",
        "ConfigMap elsewhere our-policies",
        "ServiceMonitor elsewhere all-runners",
        "PriorityClass <none> elsewhere-all-runners-pacer",
    ] {
        ensure!(made.contains(object), "no {object} in {made:?}");
    }
    let operator = start(&world, "elsewhere", "all-runners-pacer", "leading").await?;
    let server = start(&world, "elsewhere", "hook-server-pacer", "receiving").await?;
    for process in [&operator, &server] {
        let log = process.logs();
        let missing = log.lines().find(|line| line.contains("forbidden"));
        ensure!(missing.is_none(), "a right is missing:\n{log}");
        process.terminate().await;
    }
    // No node runs the Job here that drains first; `busy` does.
    helm::succeed(Some(&world.plane), &["uninstall", "arc", "--namespace", "elsewhere", "--no-hooks"])?;
    assert_eq!(everything(&world, &kinds).await?, before);
    end_as_it_is(world).await
}

/// Selects the records of policy sets that were good.
const RECORDS: &str = "--selector=actions.summerwind.dev/policy-record-of";

/// What [`installation_with_every_value_set_starts_operator_and_webhook_server`] can't have beside its values is in one of the others.
#[tokio::test(flavor = "multi_thread")]
async fn installation_with_any_set_of_values_is_made_and_leaves_only_definitions() -> Result<()> {
    let world = bare().await?;
    define_foreign(&world).await?;
    for namespace in ["watched", "monitoring", "team-a-runners", "elsewhere"] {
        world.plane.namespace(namespace).await?;
    }
    for account in ["given", "given-as-well"] {
        kubectl(&world, &["create", "serviceaccount", account, "--namespace", NAMESPACE]).await?;
    }
    let kinds = format!("{KINDS},servicemonitors,prometheusrules");
    let before = everything(&world, &kinds).await?;
    for name in super::rendered::sets_of_values()? {
        // Its hook is a Job, for which there is no node here.
        let (values, chart) = (helm::values(&name), helm::chart());
        let install = ["install", "arc", &chart, "--namespace", NAMESPACE, "--no-hooks", "--values", &values];
        let said = helm::succeed(Some(&world.plane), &install).with_context(|| name.clone())?;
        ensure!(said.contains("STATUS: deployed"), "{name}: {said}");
        ensure!(everything(&world, &kinds).await?.len() > before.len() + 5, "{name} made next to nothing");
        if name == "few-rights" {
            let operator = start(&world, NAMESPACE, "arc-actions-runner-controller-pacer", "leading").await?;
            apply(&world, &deployment("web", 1)).await?;
            pacer_suites::until::<pacer_api::Runner>(&world, "a Runner", |all| all.len() == 1).await?;
            let log = operator.logs();
            ensure!(!log.contains("forbidden"), "it uses a right that it does not have:\n{log}");
            operator.terminate().await;
            kubectl(&world, &["delete", "runnerdeployment", "web", "--wait=false"]).await?;
        }
        helm::succeed(Some(&world.plane), &["uninstall", "arc", "--namespace", NAMESPACE, "--no-hooks"])?;
        // What was good outlives the ConfigMap that had it, until somebody says otherwise, as docs/install.md does.
        kubectl(&world, &["--namespace", NAMESPACE, "delete", "configmaps", RECORDS]).await?;
        let left = everything(&world, &kinds).await?;
        ensure!(
            left == before,
            "{name}: made and left, or taken away: {:?}",
            left.symmetric_difference(&before).collect::<Vec<_>>()
        );
    }
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_of_arc_keeps_addresses_and_secrets_and_can_be_taken_back() -> Result<()> {
    let world = bare().await?;
    define_foreign(&world).await?;
    let arc = helm::repository("tests/helm/arc").to_string_lossy().into_owned();
    let values = ["--set", "authSecret.create=true,githubWebhookServer.enabled=true,githubWebhookServer.secret.create=true"];
    let secrets = [
        "--set-string",
        "authSecret.github_token=a-token,githubWebhookServer.secret.github_webhook_secret_token=a-secret",
        "--set",
        "githubWebhookServer.ingress.enabled=true,githubWebhookServer.ingress.hosts[0].host=hooks.example.com",
    ];
    let of_arc: Vec<&str> = ["install", "arc", &arc, "--namespace", NAMESPACE].into_iter().chain(values).chain(secrets).collect();
    helm::succeed(Some(&world.plane), &of_arc)?;
    let kept = [
        ("service", "arc-actions-runner-controller-github-webhook-server"),
        ("service", "arc-actions-runner-controller-metrics-service"),
        ("ingress", "arc-actions-runner-controller-github-webhook-server"),
        ("secret", "controller-manager"),
        ("secret", "github-webhook-server"),
        ("serviceaccount", "arc-actions-runner-controller"),
        ("serviceaccount", "arc-actions-runner-controller-github-webhook-server"),
    ];
    let mut uids = Vec::new();
    for (kind, name) in kept {
        uids.push(uid(&world, kind, name).await?);
    }

    // Helm installs definitions with a release, never with an upgrade.
    world.plane.apply(&helm::repository("deploy/chart/crds"), Apply::ServerSide).await?;
    let chart = helm::chart();
    let upgrade = ["upgrade", "arc", &chart, "--namespace", NAMESPACE];
    let refused = helm::run(Some(&world.plane), &[upgrade.as_slice(), &["--reuse-values"]].concat())?;
    let refused = String::from_utf8(refused.stderr)?;
    ensure!(refused.contains("Use --reset-then-reuse-values"), "{refused}");
    helm::succeed(Some(&world.plane), &[upgrade.as_slice(), &["--reset-then-reuse-values"]].concat())?;
    for ((kind, name), before) in kept.into_iter().zip(&uids) {
        ensure!(uid(&world, kind, name).await? == *before, "{kind} {name} was made anew");
    }
    let gone = "mutatingwebhookconfigurations,validatingwebhookconfigurations,issuers,certificates";
    let left = everything(&world, gone).await?;
    ensure!(left.is_empty(), "{left:?}");
    let deployments = everything(&world, "deployments").await?;
    let expected = [
        format!("Deployment {NAMESPACE} arc-actions-runner-controller-pacer"),
        format!("Deployment {NAMESPACE} arc-actions-runner-controller-github-webhook-server-pacer"),
    ];
    assert_eq!(deployments, expected.into());
    let server = start(&world, NAMESPACE, "arc-actions-runner-controller-github-webhook-server-pacer", "receiving").await?;
    server.terminate().await;

    helm::succeed(Some(&world.plane), &["rollback", "arc", "1", "--namespace", NAMESPACE])?;
    for ((kind, name), before) in kept.into_iter().zip(&uids) {
        ensure!(uid(&world, kind, name).await? == *before, "{kind} {name} was made anew on the way back");
    }
    let deployments = everything(&world, "deployments").await?;
    let expected = [
        format!("Deployment {NAMESPACE} arc-actions-runner-controller"),
        format!("Deployment {NAMESPACE} arc-actions-runner-controller-github-webhook-server"),
    ];
    assert_eq!(deployments, expected.into());
    ensure!(everything(&world, gone).await?.len() == 4);
    end_as_it_is(world).await
}

/// Server-side, so that defaults, validation and kinds are the API server's; and the notes are those of the values.
#[tokio::test(flavor = "multi_thread")]
async fn api_server_takes_what_is_rendered_and_notes_name_what_has_no_effect() -> Result<()> {
    let world = bare().await?;
    define_foreign(&world).await?;
    for namespace in ["elsewhere", "watched", "monitoring", "team-a-runners"] {
        world.plane.namespace(namespace).await?;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chart");
    std::fs::create_dir_all(&directory)?;
    for name in super::rendered::sets_of_values()? {
        let rendered = helm::template("arc", &["--values", &helm::values(&name)])?;
        ensure!(Objects::parse(&rendered)?.all().len() > 10, "{name}");
        let file = directory.join(format!("{name}.yaml"));
        std::fs::write(&file, rendered)?;
        let arguments = ["apply", "--server-side", "--dry-run=server", "--filename", &file.to_string_lossy()];
        kubectl(&world, &arguments).await.with_context(|| name.clone())?;
    }
    let arc_basic_auth: &[&str] = &[
        "image.repository has no effect: it is ARC's image; set pacer.image.repository.",
        "image.tag has no effect",
        "metrics.proxy.enabled has no effect",
        "certManagerEnabled has no effect",
        "admissionWebHooks.caBundle has no effect",
        "githubAPICacheDuration has no effect",
    ];
    let arc_app: &[&str] = &[
        "githubWebhookServer.terminationGracePeriodSeconds is 20, not 10",
        "githubWebhookServer.lifecycle.preStop.exec is replaced by a pause of 5 s",
        "resources.limits.cpu is set",
        "resources.limits.memory is 64Mi",
        "githubWebhookServer.queueLimit is how many webhooks are worked on at a time; more are answered with 503",
    ];
    let metrics_server: &[&str] = &[
        "actionsMetricsServer.enabled turned the webhook server on",
        "actionsMetricsServer.logLevel has no effect",
        "leads to the webhook server",
    ];
    for (name, lines) in [
        ("arc-defaults", &[] as &[&str]),
        ("arc-basic-auth", arc_basic_auth),
        ("arc-app", arc_app),
        ("actions-metrics-server", metrics_server),
    ] {
        notes_are(&world, &helm::values(name), lines)?;
    }
    // Every key without an effect says so, and no other does.
    let mut all = json!({});
    let mut lines = Vec::new();
    for entry in super::values::without_effect()? {
        let key = text(&entry, "/key");
        lines.push(format!("{key} has no effect: {}.", text(&entry, "/why")));
        let value = match part(&entry, "/default") {
            Value::Bool(default) => json!(!default),
            Value::Number(_) => json!(7),
            Value::Array(_) => json!(["x"]),
            Value::Object(_) => json!({"x": "y"}),
            _ => json!("x"),
        };
        let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
        let mut place = &mut all;
        for step in parents.split('.').filter(|step| !step.is_empty()) {
            place = place.as_object_mut().context("a map")?.entry(step).or_insert_with(|| json!({}));
        }
        place.as_object_mut().context("a map")?.insert(last.to_owned(), value);
    }
    let file = directory.join("without-effect.json");
    std::fs::write(&file, all.to_string())?;
    notes_are(&world, &file.to_string_lossy(), &lines)?;
    end_as_it_is(world).await
}

/// The notes after an installation with a file of values have these lines, and no others about values.
fn notes_are(world: &World, values: &str, lines: &[impl AsRef<str>]) -> Result<()> {
    let arguments = ["install", "arc", &helm::chart(), "--namespace", NAMESPACE, "--dry-run=client", "--values", values];
    let said = helm::succeed(Some(&world.plane), &arguments)?;
    let notes = said.split_once("\nNOTES:").context("no notes")?.1;
    for line in lines.iter().map(AsRef::as_ref) {
        ensure!(notes.contains(line), "{values}: no {line:?} in {notes}");
    }
    let count = notes.lines().filter(|line| line.starts_with("  - ")).count();
    // In ARC's own defaults nothing but the image, which is never ARC's here, deserves a note.
    ensure!(count == lines.len(), "{values}: {count} notes in {notes}");
    Ok(())
}
