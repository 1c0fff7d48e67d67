//! Policies in a registry: pulled by their digest, kept, refused, signed, and read with the namespace's credentials.

use anyhow::{Context, Result, ensure};
use pacer_api::condition::{ConditionType, Verdict};
use pacer_harness::operator::field;
use pacer_harness::registry::{PASSWORD, Registry, SigningKey, USER};
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, PATIENCE, apply, brisk_world, deployment, end_as_it_is, scale, settled};
use serde_json::{Value, json};

use super::verbs::said;
use super::{active, annotation, condition, event_in, fleet, goes, killed_and_started_again, phase, put, status};
use crate::guest::Guest;

const REPOSITORY: &str = "team/opinions";

/// Registries of the tests are on this machine.
const LOOPBACK: &str = "--policy-registries-on-loopback";

/// Pushes a policy that gives this reason, and names it.
async fn push(registry: &Registry, why: &str) -> Result<String> {
    Ok(registry.push(REPOSITORY, &Guest::choosing(&[(0, why)]).component()).await?)
}

async fn ask_for(world: &World, reference: &str) -> Result<()> {
    put(world, NAMESPACE, "opinions", &format!("scale-down: {{module: '{reference}'}}\n"), &[]).await
}

/// Waits until a content is refused for this reason, and returns the status.
async fn refused(world: &World, reason: &str) -> Result<Value> {
    let wanted = |status: &Value| status["lastError"]["reason"] == reason;
    status(world, NAMESPACE, "opinions", reason, wanted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_a_registry_decides_and_stays_when_the_registry_is_gone() -> Result<()> {
    let mut registry = Registry::start().await?;
    let mut world = brisk_world(&[LOOPBACK], |_| {}).await?;
    fleet(&world, 12).await?;
    let reference = push(&registry, "the first opinion").await?;
    ask_for(&world, &reference).await?;
    let first = active(&world, &Value::Null).await?;
    goes(&world, "the first opinion; policy guest@sha256:").await?;
    condition(&world, ConditionType::PolicyAccepted, Verdict::True, "Accepted").await?;

    // Who applies it can check it before.
    let file = tempfile::tempdir()?;
    let sheet = file.path().join("policies.yaml");
    let path = sheet.to_str().context("a path")?;
    std::fs::write(&sheet, format!("scale-down: {{module: '{reference}'}}\n"))?;
    said(&world, &["check", path], true, &["accepted", "guest@sha256:", &reference]).await?;

    // A tag says nothing about bytes, and another digest is that of nothing.
    let tag = reference.split('@').next().context("a name")?;
    ask_for(&world, &format!("{tag}:latest")).await?;
    let message = refused(&world, "PolicySetInvalid").await?["lastError"]["message"].clone();
    ensure!(message.as_str().is_some_and(|message| message.contains("name the digest: oci://")), "{message}");
    ask_for(&world, &format!("{tag}@sha256:{}", "0".repeat(64))).await?;
    let absent = refused(&world, "PolicyPullNotFound").await?;
    ensure!(absent["phase"] == "LastGood" && absent["digest"] == first, "{absent}");
    condition(&world, ConditionType::PolicyAccepted, Verdict::False, "PolicyPullNotFound").await?;
    event_in(&world, NAMESPACE, "PolicyRefused", "PolicyPullNotFound").await?;
    std::fs::write(&sheet, format!("scale-down: {{module: '{tag}@sha256:{}'}}\n", "0".repeat(64)))?;
    said(&world, &["check", path], false, &["PolicyPullNotFound", "what to do: correct registry"]).await?;

    // A digest that the registry will know, while it is down: what is in force stays, also after a restart.
    let second = push(&registry, "the second opinion").await?;
    registry.stop().await;
    ask_for(&world, &second).await?;
    let unreachable = refused(&world, "PolicyPullFailed").await?;
    ensure!(unreachable["phase"] == "LastGood" && unreachable["digest"] == first, "{unreachable}");
    goes(&world, "the first opinion").await?;
    killed_and_started_again(&mut world).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::False, "LastGood").await?;
    goes(&world, "the first opinion").await?;

    // What was pulled once is not pulled again, and needs no registry: neither when it is asked for again nor after a restart.
    ask_for(&world, &reference).await?;
    let again = status(&world, NAMESPACE, "opinions", "the first set again", phase("Active")).await?;
    ensure!(again["digest"] == first && again["lastError"].is_null(), "{again}");
    killed_and_started_again(&mut world).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::True, "Active").await?;
    goes(&world, "the first opinion").await?;

    // It is tried again by itself once the registry is back.
    ask_for(&world, &second).await?;
    refused(&world, "PolicyPullFailed").await?;
    registry.start_again().await?;
    ensure!(push(&registry, "the second opinion").await? == second, "the same bytes have another digest");
    active(&world, &first).await?;
    goes(&world, "the second opinion").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_does_not_answer_delays_no_other_set() -> Result<()> {
    let registry = Registry::start().await?;
    // Takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut world = brisk_world(&[LOOPBACK], |_| {}).await?;
    fleet(&world, 8).await?;
    let mut other = deployment("other", 2);
    other["metadata"]["annotations"] = json!({annotation::POLICIES: "slow"});
    apply(&world, &other).await?;
    settled(&world, 10).await?;
    let reference = push(&registry, "a quick opinion").await?;
    ask_for(&world, &reference).await?;
    let first = active(&world, &Value::Null).await?;
    let slow = format!("scale-down: {{module: 'oci://{}/{REPOSITORY}@sha256:{}'}}\n", silent.local_addr()?, "1".repeat(64));
    put(&world, NAMESPACE, "slow", &slow, &[]).await?;
    status(&world, NAMESPACE, "slow", "a set that waits for its registry", phase("Staging")).await?;

    // A set of the same namespace is changed meanwhile, and one of it is in force from the start of the next process on.
    put(&world, NAMESPACE, "opinions", "scale-down: {module: m}\n", &[("m", &Guest::choosing(&[(0, "at hand")]))]).await?;
    active(&world, &first).await?;
    killed_and_started_again(&mut world).await?;
    scale(&world, "other", 1).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::True, "Active").await?;
    let staging = condition(&world, ConditionType::PolicyActive, Verdict::False, "Staging").await?;
    ensure!(staging.contains("no idle or failed runner is removed"), "{staging}");
    let late =
        status(&world, NAMESPACE, "slow", "the deadline", |status| status["lastError"]["reason"] == "PolicyPullFailed").await?;
    let message = late["lastError"]["message"].as_str().unwrap_or_default();
    ensure!(late["phase"] == "Refused" && message.contains("took longer than 30 s"), "{late}");

    // Nobody decided in the place of that set which runner goes, while it could still be had.
    settled(&world, 9).await?;
    let log = world.operator.as_ref().context("no operator")?.entries();
    let told = |message: &str, of: (&str, &str)| {
        log.iter().position(|entry| {
            field(entry, "message") == Some(message) && field(entry, of.0).is_some_and(|value| value.starts_with(of.1))
        })
    };
    let refused = told("policy set not activated", ("set", &format!("{NAMESPACE}/slow"))).context("no refusal in the log")?;
    let removed = told("runner removed", ("runner", "other-")).context("no removal in the log")?;
    ensure!(refused < removed, "a runner was removed before its policy set was refused");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_has_to_be_signed_where_a_key_is_configured() -> Result<()> {
    let (key, other) = (SigningKey::new()?, SigningKey::new()?);
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("cosign.pub");
    std::fs::write(&file, key.public())?;
    let flag = format!("--policy-verification-key={}", file.display());
    let registry = Registry::start().await?;
    let mut world = brisk_world(&[LOOPBACK], |_| {}).await?;
    fleet(&world, 8).await?;
    let first = push(&registry, "an unsigned opinion").await?;
    ask_for(&world, &first).await?;
    let unsigned = active(&world, &Value::Null).await?;
    goes(&world, "an unsigned opinion").await?;

    // From now on it has to be signed, and what was in force before is no exception.
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart_with(&[&flag]).await?;
    operator.until_acting(PATIENCE).await?;
    let missing = refused(&world, "PolicySignatureMissing").await?;
    ensure!(missing["phase"] == "Refused" && missing["digest"].is_null(), "{missing}");
    goes(&world, ": idle ").await?;

    // By somebody else, in either form, and then by us: the operator looks again by itself.
    registry.sign(&first, &other).await?;
    registry.sign_with_bundle(&first, &other).await?;
    let foreign = refused(&world, "PolicySignatureInvalid").await?;
    ensure!(foreign["phase"] == "Refused", "{foreign}");
    registry.sign(&first, &key).await?;
    let signed = status(&world, NAMESPACE, "opinions", "a signed set", phase("Active")).await?;
    ensure!(signed["digest"] == unsigned, "{signed}");
    goes(&world, "an unsigned opinion").await?;

    // The next one is refused, and the signed one stays. It is in the records as signed: where it is asked for again while nobody looks, it is taken
    // from there, and what was refused in between does not count against it.
    let second = push(&registry, "another opinion").await?;
    ask_for(&world, &second).await?;
    let missing = refused(&world, "PolicySignatureMissing").await?;
    ensure!(missing["phase"] == "LastGood" && missing["digest"] == unsigned, "{missing}");
    registry.stop().await;
    world.operator.as_ref().context("no operator")?.kill9().await;
    ask_for(&world, &first).await?;
    killed_and_started_again(&mut world).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::True, "Active").await?;
    goes(&world, "an unsigned opinion").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_a_registry_decides_when_it_is_signed_as_cosign_3_does() -> Result<()> {
    let key = SigningKey::new()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("cosign.pub");
    std::fs::write(&file, key.public())?;
    let flag = format!("--policy-verification-key={}", file.display());
    let registry = Registry::start().await?;
    let mut world = brisk_world(&[LOOPBACK, &flag], |_| {}).await?;
    fleet(&world, 6).await?;
    let text = |why: &str| {
        format!(
            "export const name = 'text';\nexport function scaleDown({{ surplus }}) {{\n  \
             return Array.from({{ length: surplus }}, (_, index) => ({{ index, reason: '{why}' }}));\n}}\n"
        )
    };
    let reference = registry.push_text(REPOSITORY, &text("a text from afar")).await?;
    ask_for(&world, &reference).await?;
    refused(&world, "PolicySignatureMissing").await?;
    registry.sign_with_bundle(&reference, &key).await?;
    let first = active(&world, &Value::Null).await?;
    goes(&world, "a text from afar; policy text@sha256:").await?;

    // A text that makes no sense is refused with its place, and the good one stays; also when the registry is gone.
    let broken = registry.push_text(REPOSITORY, "export function scaleDown() {\n  return request..candidates;\n}\n").await?;
    registry.sign_with_bundle(&broken, &key).await?;
    ask_for(&world, &broken).await?;
    let status = refused(&world, "PolicySyntaxError").await?;
    ensure!(status["phase"] == "LastGood" && status["digest"] == first, "{status}");
    ensure!(status["lastError"]["message"].as_str().is_some_and(|message| message.contains("line ")), "{status}");
    registry.stop().await;
    killed_and_started_again(&mut world).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::False, "LastGood").await?;
    goes(&world, "a text from afar").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_on_the_operators_machine_are_not_called_unless_a_flag_allows_it() -> Result<()> {
    let registry = Registry::start().await?;
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 2).await?;
    let reference = push(&registry, "an opinion from inside").await?;
    ask_for(&world, &reference).await?;
    let status = refused(&world, "PolicyRegistryRefused").await?;
    ensure!(
        status["lastError"]["message"].as_str().is_some_and(|message| message.contains("--policy-registries-on-loopback")),
        "{status}"
    );
    goes(&world, ": idle ").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_of_a_namespace_name_the_registries_of_its_entry_alone() -> Result<()> {
    let registry = Registry::start().await?;
    let world = brisk_world(&[LOOPBACK, "--tenancy=tenancy"], |_| {}).await?;
    let allow = async |repository: &str| {
        let registries = format!("{}/{repository}", registry.address());
        let file = format!("namespaces:\n  - names: [{NAMESPACE}]\n    registries: ['{registries}']\n");
        let metadata = json!({"name": "tenancy", "namespace": "actions-runner-system"});
        apply(&world, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tenancy.yaml": file}}))
            .await
    };
    allow("team/others").await?;
    fleet(&world, 4).await?;
    let reference = push(&registry, "an opinion of others").await?;
    ask_for(&world, &reference).await?;
    let status = refused(&world, "PolicyRegistryRefused").await?;
    let message = status["lastError"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("namespaces[0].registries of the tenancy file") && message.contains(REPOSITORY), "{message}");
    goes(&world, ": idle ").await?;
    // Once it is allowed, the operator tries again by itself.
    allow("team").await?;
    active(&world, &Value::Null).await?;
    goes(&world, "an opinion of others").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_read_with_the_credentials_of_the_namespace() -> Result<()> {
    let (bearer, basic) = (Registry::guarded("bearer").await?, Registry::guarded("basic").await?);
    let world = brisk_world(&[LOOPBACK], |_| {}).await?;
    fleet(&world, 6).await?;
    let (first, second) = (push(&bearer, "behind a token").await?, push(&basic, "behind a password").await?);
    ask_for(&world, &first).await?;
    let denied = refused(&world, "PolicyPullDenied").await?;
    ensure!(denied["lastError"]["message"].as_str().is_some_and(|message| message.contains("pullSecret")), "{denied}");

    let ask_with_secret = async |reference: &str| {
        let text = format!("pullSecret: registry\nscale-down: {{module: '{reference}'}}\n");
        put(&world, NAMESPACE, "opinions", &text, &[]).await
    };
    let secret = async |type_: &str, password: &str| {
        let login = json!({"username": USER, "password": password});
        let file = json!({"auths": {bearer.address(): login.clone(), basic.address(): login}});
        let metadata = json!({"name": "registry", "namespace": NAMESPACE});
        let key = if type_ == "Opaque" { "config" } else { ".dockerconfigjson" };
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "stringData": {key: file.to_string()},
        });
        apply(&world, &secret).await
    };
    ask_with_secret(&first).await?;
    let absent = refused(&world, "PolicyPullSecretInvalid").await?;
    ensure!(absent["lastError"]["message"].as_str().is_some_and(|message| message.contains("does not exist")), "{absent}");
    secret("kubernetes.io/dockerconfigjson", "a wrong one").await?;
    refused(&world, "PolicyPullDenied").await?;
    secret("kubernetes.io/dockerconfigjson", PASSWORD).await?;
    let with_token = active(&world, &Value::Null).await?;
    goes(&world, "behind a token").await?;
    ask_with_secret(&second).await?;
    active(&world, &with_token).await?;
    goes(&world, "behind a password").await?;

    // Nobody else gets to know them.
    let log = world.operator.as_ref().context("no operator")?.logs();
    ensure!(!log.contains(PASSWORD) && !log.contains("a-token-of-the-tests"), "the log has a secret");
    end_as_it_is(world).await
}
