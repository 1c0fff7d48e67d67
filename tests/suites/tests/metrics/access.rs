//! Metrics over TLS, and for those alone whom a role lets have them. curl is what asks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use pacer_harness::controlplane::{Apply, Audit, Caller};
use pacer_harness::operator::{self, Operator};
use pacer_harness::world::World;
use pacer_suites::manifests::{kustomized, shipped};
use pacer_suites::{PATIENCE, end_as_it_is, world};
use serde_json::Value;
use tokio::process::Command;

/// Namespace of the operator.
const OPERATOR: &str = "actions-runner-system";

/// What the component `deploy/metrics-authorization` adds.
const FLAGS: [&str; 2] = ["--metrics-tls", "--metrics-authorization"];

/// Whoever scrapes; a second one has no role.
const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pacer-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
";

/// A world in which a process serves metrics with these flags.
async fn serving(verb: &str, account: &str, flags: &[&str]) -> Result<(World, Operator)> {
    let world = world(|options| {
        options.operator = None;
        options.plane.audit = Audit::All;
        options.manifests.push(shipped("webhook/rbac.yaml"));
    })
    .await?;
    let own: &[&str] = if verb == "webhook" { &["--webhook-addr=127.0.0.1:0", "--insecure-no-webhook-secret"] } else { &[] };
    let options = operator::Options {
        verb: verb.to_owned(),
        service_account: account.to_owned(),
        args: own.iter().chain(flags).map(|flag| (*flag).to_owned()).collect(),
        ..operator::Options::default()
    };
    let process = Operator::start(&world.plane, &world.github, &options).await?;
    Ok((world, process))
}

/// Status and body of an answer; 0 where there is none.
async fn curl(url: &str, arguments: &[&str]) -> Result<(u16, String)> {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "20", "--write-out", "\n%{http_code}"])
        .args(arguments)
        .arg(url)
        .output()
        .await
        .context("curl")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

async fn token(world: &World, account: &str) -> Result<String> {
    let output = world.plane.kubectl(&["create", "token", account, "--namespace", "default"]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(format!("Authorization: Bearer {}", String::from_utf8(output.stdout)?.trim()))
}

/// Asks until the answer has this status.
async fn until_answered(url: &str, header: &str, expected: u16) -> Result<String> {
    let began = Instant::now();
    loop {
        let (status, body) = curl(url, &["--insecure", "--header", header]).await?;
        if status == expected {
            return Ok(body);
        }
        ensure!(began.elapsed() < PATIENCE, "{status} instead of {expected}: {body}");
        // What the API server has said before holds for a while; its end is not announced.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

/// The component gives the shipped manifests these flags, and probes that speak TLS.
async fn component_has_these_flags(world: &World) -> Result<()> {
    let components = ["metrics-authorization", "network-policies"];
    let rendered = kustomized(world, &["base", "webhook"], &components, "").await?;
    let pods = rendered.iter().filter(|object| object["kind"] == "Deployment");
    let containers: Vec<&Value> = pods.filter_map(|object| object.pointer("/spec/template/spec/containers/0")).collect();
    ensure!(containers.len() == 2, "{containers:?}");
    for container in containers {
        let arguments = container["args"].as_array().context("arguments")?;
        ensure!(arguments.ends_with(&FLAGS.map(Value::from)), "{arguments:?}");
        for probe in ["livenessProbe", "readinessProbe"] {
            ensure!(container.pointer(&format!("/{probe}/httpGet/scheme")) == Some(&Value::from("HTTPS")), "{container}");
        }
    }
    Ok(())
}

async fn only_who_may_read_metrics_gets_them(verb: &str, account: &str) -> Result<()> {
    let (world, process) = serving(verb, account, &FLAGS).await?;
    let url = format!("https://{}/metrics", process.metrics_address());
    let insecure = ["--insecure"];

    component_has_these_flags(&world).await?;

    // The kubelet has no token.
    let health = format!("https://{}/healthz", process.metrics_address());
    ensure!(curl(&health, &insecure).await?.0 == 200);
    ensure!(curl(&format!("http://{}/healthz", process.metrics_address()), &[]).await?.0 == 0, "it speaks without TLS");
    ensure!(curl(&health, &[]).await?.0 == 0, "nobody vouches for a certificate that it has made itself");
    let (status, body) = curl(&url, &insecure).await?;
    ensure!(status == 401 && body.contains("Bearer"), "{status} {body}");

    world.plane.apply_text(ACCOUNTS, Apply::ClientSide).await?;
    let (prometheus, stranger) = (token(&world, "prometheus").await?, token(&world, "stranger").await?);
    let (status, body) = curl(&url, &["--insecure", "--header", &prometheus]).await?;
    ensure!(status == 503 && body.contains("403"), "without the rights to ask: {status} {body}");
    ensure!(process.logs().contains("can't ask the API server who may read metrics"), "{}", process.log_tail(2_000));

    world.plane.apply(&shipped("metrics-authorization/rbac.yaml"), Apply::ClientSide).await?;
    let body = until_answered(&url, &prometheus, 200).await?;
    ensure!(body.contains("# EOF") && body.contains("# TYPE pacer_"), "{body}");
    let body = until_answered(&url, &stranger, 403).await?;
    ensure!(body.starts_with("system:serviceaccount:default:stranger may not read /metrics"), "{body}");
    let (status, body) = curl(&url, &["--insecure", "--header", "Authorization: Bearer made.up.token"]).await?;
    ensure!(status == 401 && body.contains("does not know this token"), "{status} {body}");
    ensure!(!process.logs().contains(prometheus.trim_start_matches("Authorization: Bearer ")), "a token is in the log");

    // Any number of scrapes costs one question in a minute.
    let caller = Caller::service_account(OPERATOR, account);
    let asked =
        || -> Result<u64> { Ok(world.plane.api_calls(std::slice::from_ref(&caller), None)?.count("create", "tokenreviews")) };
    let before = asked()?;
    let began = Instant::now();
    for _ in 0..20 {
        ensure!(curl(&url, &["--insecure", "--header", &prometheus]).await?.0 == 200);
    }
    let more = asked()? - before;
    ensure!(more <= 1 + began.elapsed().as_secs() / 60, "{more} questions for 20 scrapes");

    process.terminate().await;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_metrics_are_for_those_who_may_read_them() -> Result<()> {
    only_who_may_read_metrics_gets_them("run", "pacer").await
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_the_webhook_server_are_for_those_who_may_read_them() -> Result<()> {
    only_who_may_read_metrics_gets_them("webhook", "pacer-webhook").await
}

/// A certificate for 127.0.0.1 that vouches for itself, as files.
fn certificate(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificate_is_served_without_a_restart() -> Result<()> {
    let (served, renewed) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (certificate_file, key_file) = certificate(served.path())?;
    let flags = [
        "--metrics-tls".to_owned(),
        format!("--metrics-tls-cert={}", certificate_file.display()),
        format!("--metrics-tls-key={}", key_file.display()),
    ];
    let (world, process) = serving("webhook", "pacer-webhook", &flags.each_ref().map(String::as_str)).await?;
    let url = format!("https://{}/metrics", process.metrics_address());
    let trusting = |file: &Path| file.to_string_lossy().into_owned();
    let (status, body) = curl(&url, &["--cacert", &trusting(&certificate_file)]).await?;
    ensure!(status == 200 && body.contains("# EOF"), "{status} {body}");

    let (new, new_key) = certificate(renewed.path())?;
    ensure!(curl(&url, &["--cacert", &trusting(&new)]).await?.0 == 0, "it serves what it does not have");
    std::fs::copy(&new, &certificate_file)?;
    std::fs::copy(&new_key, &key_file)?;
    let began = Instant::now();
    while curl(&url, &["--cacert", &trusting(&new)]).await?.0 != 200 {
        ensure!(began.elapsed() < PATIENCE, "{}", process.log_tail(2_000));
        // It reads the files every half minute.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    process.terminate().await;
    end_as_it_is(world).await
}
