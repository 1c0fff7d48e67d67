//! What the API server makes of manifests with the shipped definitions: wrong ones are refused with the place and the cure, right ones are
//! stored with every field they have.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use pacer_harness::controlplane::Apply;
use pacer_harness::world::World;
use serde_json::{Map, Value, json};

/// Namespace of manifests that name none.
const APART: &str = "manifests";

/// Field manager of the test.
const MANAGER: &str = "admission-suite";

/// A control plane with the shipped definitions and nobody who acts on objects.
async fn world() -> Result<World> {
    pacer_suites::world(|options| {
        (options.operator, options.nodes) = (None, None);
        // Some objects name owners that do not exist.
        options.plane.without_controllers.push("garbage-collector-controller".to_owned());
    })
    .await
}

/// The YAML files of a directory of the repository, in order.
fn files(directory: &str) -> Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "no manifests in {}", directory.display());
    Ok(files)
}

/// The objects of our kinds in a file, without what only the API server sets.
fn objects(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in text.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document)?;
        if object.get("apiVersion").is_none_or(|version| version != "actions.summerwind.dev/v1alpha1") {
            continue;
        }
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).context("no metadata")?;
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
            metadata.remove(field);
        }
        drop_nulls(&mut object);
        objects.push(object);
    }
    Ok(objects)
}

/// Absent and null mean the same, and the API server stores no null where the schema has none.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Paths of what `wanted` has and `stored` lacks or has otherwise. What `stored` has beyond that is fine.
fn lost(wanted: &Value, stored: &Value, path: &str, found: &mut Vec<String>) {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            for (key, value) in wanted {
                lost(value, stored.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(wanted), Value::Array(stored)) if wanted.len() == stored.len() => {
            for (index, (wanted, stored)) in wanted.iter().zip(stored).enumerate() {
                lost(wanted, stored, &format!("{path}[{index}]"), found);
            }
        }
        _ if wanted == stored => {}
        _ => found.push(format!("{path}: {wanted} became {stored}")),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    object.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
}

fn api(world: &World, object: &Value) -> Result<Api<DynamicObject>> {
    let kind = text(object, "/kind")?;
    let gvk = GroupVersionKind::gvk("actions.summerwind.dev", "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    let namespace = text(object, "/metadata/namespace").unwrap_or(pacer_suites::NAMESPACE);
    Ok(Api::namespaced_with(world.client.clone(), namespace, &resource))
}

async fn is_stored_whole(world: &World, object: &Value) -> Result<()> {
    let api = api(world, object)?;
    let stored = serde_json::to_value(api.get(text(object, "/metadata/name")?).await?)?;
    let mut found = Vec::new();
    lost(object, &stored, "", &mut found);
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Every message of a CEL rule in the installed definitions.
async fn messages(world: &World) -> Result<Vec<String>> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
                found.extend(rules.filter_map(|rule| rule.get("message")?.as_str().map(str::to_owned)));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone()).list(&ListParams::default()).await?;
    let mut found = Vec::new();
    collect(&serde_json::to_value(definitions.items)?, &mut found);
    found.sort();
    found.dedup();
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_manifests_are_refused_with_the_place_and_the_cure() -> Result<()> {
    let world = world().await?;
    let messages = messages(&world).await?;
    let files = files("host/api/tests/refused")?;
    ensure!(files.len() >= 22, "{} manifests", files.len());
    stream::iter(&files)
        .map(async |path| {
            let name = path.display();
            let manifest = std::fs::read_to_string(path)?;
            let expected = manifest.lines().next().and_then(|line| line.strip_prefix("# ")).context("no first line")?;
            let path = path.to_str().context("no text")?;
            let output = world.plane.kubectl(&["apply", "-f", path]).await?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(!output.status.success(), "{name}: accepted");
            ensure!(said.contains("is invalid"), "{name}: refused for another reason: {said}");
            let wanted = match expected.strip_prefix("schema: ") {
                // What is wrong with a value of the right shape the API server says in its own words.
                Some(field) => vec![field],
                None => {
                    let whole: Vec<&str> = messages.iter().map(String::as_str).filter(|it| it.starts_with(expected)).collect();
                    let [message] = whole.as_slice() else { bail!("{name}: {expected:?} begins {} messages", whole.len()) };
                    ensure!(message.contains(": "), "{name}: {message:?} names no cure");
                    vec!["spec", *message]
                }
            };
            let missing: Vec<_> = wanted.into_iter().filter(|part| !said.contains(part)).collect();
            ensure!(missing.is_empty(), "{name}: the refusal lacks {missing:?}: {said}");
            Ok(())
        })
        .buffer_unordered(4)
        .try_collect::<Vec<()>>()
        .await?;
    for kind in ["runners", "runnerreplicasets", "runnerdeployments", "runnersets", "horizontalrunnerautoscalers"] {
        let output = world.plane.kubectl(&["get", kind, "--all-namespaces", "--output=name"]).await?;
        ensure!(output.status.success() && output.stdout.is_empty(), "{kind}: {output:?}");
    }
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn right_manifests_are_stored_with_every_field() -> Result<()> {
    let world = world().await?;
    // One is named in a manifest.
    for namespace in ["runners", APART] {
        world.plane.namespace(namespace).await?;
    }
    // As the README says.
    for path in files("examples")?.into_iter().chain(files("examples/autoscaling")?) {
        world.plane.apply(&path, Apply::ClientSide).await.with_context(|| path.display().to_string())?;
        let objects = objects(&std::fs::read_to_string(&path)?)?;
        ensure!(!objects.is_empty(), "{}: nothing of ours in it", path.display());
        for object in &objects {
            is_stored_whole(&world, object).await.with_context(|| path.display().to_string())?;
        }
    }
    for path in files("host/api/tests/manifests")? {
        for mut object in objects(&std::fs::read_to_string(&path)?)? {
            store(&world, &mut object).await.with_context(|| path.display().to_string())?;
            is_stored_whole(&world, &object).await.with_context(|| path.display().to_string())?;
        }
    }
    world.stop().await;
    Ok(())
}

/// Stores an object by way of server-side apply, which unlike a create takes one that is there already, then its status.
async fn store(world: &World, object: &mut Value) -> Result<()> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).context("no metadata")?;
    // Only a create looks at it.
    metadata.remove("generateName");
    // Apart from the examples, some of which have the same names.
    metadata.entry("namespace").or_insert(json!(APART));
    let api = api(world, object)?;
    let name = text(object, "/metadata/name")?.to_owned();
    let mut parts: Map<String, Value> = object.as_object().context("no object")?.clone();
    let status = parts.remove("status");
    let strict = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        force: true,
        ..PatchParams::default()
    };
    api.patch(&name, &strict, &Patch::Apply(Value::Object(parts))).await?;
    if let Some(status) = status {
        let strict = PatchParams { force: false, ..strict };
        api.patch_status(&name, &strict, &Patch::Merge(json!({ "status": status }))).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_runner_has_a_phase_without_a_write() -> Result<()> {
    let world = world().await?;
    let runner = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "Runner",
        "metadata": {"name": "fresh", "namespace": "default"},
        "spec": {"repository": "acme/app"},
    });
    pacer_suites::apply(&world, &runner).await?;
    let output = world.plane.kubectl(&["get", "runner", "fresh"]).await?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, row) = table.split_once('\n').context("no table")?;
    let column = head.find("STATUS").with_context(|| format!("no column STATUS: {head}"))?;
    ensure!(row.get(column..).is_some_and(|rest| rest.starts_with("Created ")), "{table}");
    world.stop().await;
    Ok(())
}
