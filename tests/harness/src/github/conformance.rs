//! Requests and answers against GitHub's own description of its API.
//!
//! The simulation holds itself and its clients to what GitHub publishes (`data/github-openapi.json`, made by `data/github-openapi.mjs` from
//! the npm package `@octokit/openapi`): every request has to be one of GitHub's operations with parameters it knows, and every answer has to
//! have the promised shape. Deviations are collected, and the suites fail at their end if there is one.
//!
//! The descriptions are OpenAPI 3.0, whose `nullable` is no JSON schema, and what is used of them has seven keywords: a checker of that size is
//! here, and not a library for all of JSON schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, PoisonError};

use http::{Method, Uri};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listing::Query;

/// Deviations that are kept.
const KEPT: usize = 20;

/// Answers of each kind that are all checked; of the rest every [`SAMPLE`]th is, since benchmarks page through thousands of runners.
const ALL: u64 = 100;
const SAMPLE: u64 = 50;

/// The kind of GitHub whose description requests and answers are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Instance {
    /// github.com, Enterprise Cloud included.
    Cloud,
    /// Enterprise Server, below `/api/v3`.
    Server,
}

#[derive(Deserialize)]
struct Document {
    descriptions: BTreeMap<String, Description>,
}

#[derive(Deserialize)]
struct Description {
    operations: BTreeMap<String, Operation>,
    webhooks: BTreeMap<String, Value>,
    components: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Operation {
    query: BTreeMap<String, Parameter>,
    body: bool,
    answers: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Parameter {
    required: bool,
    schema: Value,
}

static DOCUMENT: LazyLock<Result<Document, serde_json::Error>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../data/github-openapi.json")));

/// What deviated so far.
#[derive(Debug, Default)]
pub(super) struct Conformance {
    deviations: std::sync::Mutex<Vec<String>>,
    checked: std::sync::Mutex<HashMap<(Instance, String, u16), u64>>,
}

impl Conformance {
    /// At most the first [`KEPT`].
    pub(super) fn deviations(&self) -> Vec<String> {
        self.deviations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, faults: impl IntoIterator<Item = String>) {
        let mut deviations = self.deviations.lock().unwrap_or_else(PoisonError::into_inner);
        for fault in faults {
            if deviations.len() < KEPT && !deviations.contains(&fault) {
                tracing::warn!(fault, "deviates from GitHub's description");
                deviations.push(fault);
            }
        }
    }

    /// Checks a request; `template` is its path as GitHub writes it, empty when GitHub has no such route.
    pub(super) fn request(&self, instance: Instance, method: &Method, template: &str, uri: &Uri, has_body: bool) {
        self.note(request_faults(instance, method, template, uri, has_body));
    }

    /// Checks an answer that the simulation gives by itself; those of injected faults are meant to be wrong.
    pub(super) fn answer(&self, instance: Instance, method: &Method, template: &str, status: u16, body: &[u8]) {
        let operation = format!("{method} {template}");
        if self.is_turn(instance, &operation, status) {
            self.note(answer_faults(instance, &operation, status, body));
        }
    }

    fn is_turn(&self, instance: Instance, what: &str, status: u16) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = checked.entry((instance, what.to_owned(), status)).or_default();
        *count += 1;
        *count <= ALL || count.is_multiple_of(SAMPLE)
    }

    /// Checks the payload of a webhook.
    pub(super) fn event(&self, action: &str, payload: &Value) {
        if self.is_turn(Instance::Cloud, action, 0) {
            self.note(event_faults(Instance::Cloud, action, payload));
        }
    }
}

fn description(instance: Instance) -> Option<(&'static Description, &'static Description)> {
    let document = DOCUMENT.as_ref().ok()?;
    let cloud = document.descriptions.get("github.com")?;
    match instance {
        Instance::Cloud => Some((cloud, cloud)),
        Instance::Server => Some((document.descriptions.get("enterprise-server")?, cloud)),
    }
}

/// What is wrong with a request.
pub(super) fn request_faults(instance: Instance, method: &Method, template: &str, uri: &Uri, has_body: bool) -> Vec<String> {
    let request = format!("{method} {uri}");
    if template.is_empty() {
        return vec![format!("{request}: GitHub has no such operation")];
    }
    let Some((own, _)) = description(instance) else { return vec!["GitHub's description can't be read".to_owned()] };
    let Some(operation) = own.operations.get(&format!("{method} {template}")) else {
        return vec![format!("{request}: {instance:?} has no operation {method} {template}")];
    };
    let query = Query::parse(uri.query().unwrap_or_default());
    let mut faults = Vec::new();
    for (name, text) in query.pairs() {
        match operation.query.get(name) {
            // Listings of older servers ignore it, and a link that GitHub itself wrote may carry anything.
            None => faults.push(format!("{request}: {method} {template} has no parameter {name}")),
            Some(parameter) => {
                let value = match parameter.schema.get("type").and_then(Value::as_str) {
                    Some("integer" | "number") => text.parse::<i64>().map_or_else(|_| json!(text), Value::from),
                    Some("boolean") => text.parse::<bool>().map_or_else(|_| json!(text), Value::from),
                    // A time may be a range, as in searches: only the prose says so.
                    _ if parameter.schema.get("format").is_some_and(|format| format == "date-time") => {
                        json!(text.split("..").find(|time| time.parse::<Timestamp>().is_err()).unwrap_or("1970-01-01T00:00:00Z"))
                    }
                    _ => json!(text),
                };
                faults.extend(faults_of(instance, &parameter.schema, &value, &format!("{request}: {name}")));
            }
        }
    }
    let missing = operation.query.iter().filter(|(name, parameter)| parameter.required && query.get(name).is_none());
    faults.extend(missing.map(|(name, _)| format!("{request}: the parameter {name} is missing")));
    if operation.body && !has_body {
        faults.push(format!("{request}: the body is missing"));
    }
    faults
}

/// What is wrong with an answer to `METHOD /template`.
pub(super) fn answer_faults(instance: Instance, operation: &str, status: u16, body: &[u8]) -> Vec<String> {
    let at = format!("{operation} -> {status}");
    let Some((own, _)) = description(instance) else { return vec!["GitHub's description can't be read".to_owned()] };
    let Some(described) = own.operations.get(operation) else { return Vec::new() };
    let schema = match described.answers.get(&status.to_string()) {
        Some(schema) => schema,
        // Any conditional request may be answered so, and refusals are described in general.
        None if status == 304 => &Value::Null,
        None if status >= 400 => &json!({"$ref": "basic-error"}),
        None => return vec![format!("{at}: no such status is described")],
    };
    match (schema.is_null(), serde_json::from_slice::<Value>(body)) {
        (true, _) if status == 304 || status == 204 => {
            if body.is_empty() {
                Vec::new()
            } else {
                vec![format!("{at}: has a body")]
            }
        }
        (true, _) => Vec::new(),
        (false, Ok(value)) => faults_of(instance, schema, &value, &at),
        (false, Err(error)) => vec![format!("{at}: is no JSON: {error}")],
    }
}

/// What is wrong with the payload of a `workflow_job` event.
pub(super) fn event_faults(instance: Instance, action: &str, payload: &Value) -> Vec<String> {
    match description(instance).and_then(|(own, _)| own.webhooks.get(action)) {
        Some(schema) => faults_of(instance, schema, payload, &format!("workflow_job {action}")),
        None => vec![format!("no event workflow_job {action} is described")],
    }
}

fn faults_of(instance: Instance, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut faults = Vec::new();
    check(instance, schema, value, at, &mut faults);
    faults
}

fn check(instance: Instance, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let field = |name: &str| schema.get(name);
    if let Some(name) = field("$ref").and_then(Value::as_str) {
        let component =
            description(instance).and_then(|(own, other)| own.components.get(name).or_else(|| other.components.get(name)));
        return match component {
            Some(component) => check(instance, component, value, at, faults),
            None => faults.push(format!("{at}: no component {name}")),
        };
    }
    let allowed = field("enum").and_then(Value::as_array);
    let nullable = field("nullable").and_then(Value::as_bool) == Some(true);
    if value.is_null() && (nullable || allowed.is_some_and(|values| values.contains(&Value::Null))) {
        return;
    }
    for part in field("allOf").and_then(Value::as_array).into_iter().flatten() {
        check(instance, part, value, at, faults);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(options) = field(choice).and_then(Value::as_array)
            && !options.iter().any(|option| faults_of(instance, option, value, at).is_empty())
        {
            faults.push(format!("{at}: fits no choice: {value}"));
        }
    }
    let fits = match field("type").and_then(Value::as_str) {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some(_) => false,
    };
    if !fits {
        faults.push(format!("{at}: {value} is no {}", schema.get("type").unwrap_or(&Value::Null)));
        return;
    }
    if let Some(allowed) = allowed
        && !allowed.contains(value)
    {
        faults.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    match (field("format").and_then(Value::as_str), value.as_str()) {
        (Some("date-time"), Some(text)) if text.parse::<Timestamp>().is_err() => faults.push(format!("{at}: {text} is no time")),
        (Some("uri"), Some(text)) if text.parse::<Uri>().is_err() => faults.push(format!("{at}: {text} is no URI")),
        _ => {}
    }
    for required in field("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if value.get(required).is_none() {
            faults.push(format!("{at}: {required} is missing"));
        }
    }
    for (name, property) in field("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(member) = value.get(name) {
            check(instance, property, member, &format!("{at}.{name}"), faults);
        }
    }
    if let Some(items) = field("items") {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            check(instance, items, item, &format!("{at}[{index}]"), faults);
        }
    }
}
