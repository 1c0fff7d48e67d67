//! A page for each kind with all of its fields, from the definitions.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{elements, files, generated, text, yaml};

const DEFINITIONS: &str = "deploy/chart/crds";
const PAGES: &str = "docs/reference/kinds";

/// Names of the definitions' files, in the order in which people meet the kinds.
const ORDER: [&str; 6] =
    ["runnerdeployments", "runnersets", "horizontalrunnerautoscalers", "runnerreplicasets", "runners", "jobledgers"];

/// Set `UPDATE_GOLDEN=1` to write them anew.
#[test]
fn pages_of_the_kinds_have_every_field_of_the_definitions() -> Result<()> {
    let definitions = ORDER.map(|plural| yaml(&format!("{DEFINITIONS}/{plural}.yaml")));
    let [deployments, sets, autoscalers, replica_sets, runners, ledgers] = definitions;
    let runners = runners?;
    let runner_spec = schema(&runners)?.pointer("/properties/spec/properties").context("the spec of a Runner")?.clone();
    let mut index = "# Kinds\n\nThese pages are written by a test from the definitions in `deploy/chart/crds`, with all fields; `make golden` writes \
                     them anew. All kinds are of `actions.summerwind.dev/v1alpha1`. `kubectl explain` has the same.\n\n\
                     | kind | short name | what it is |\n| --- | --- | --- |\n"
        .to_owned();
    for definition in [&deployments?, &sets?, &autoscalers?, &replica_sets?, &runners, &ledgers?] {
        let names = definition.pointer("/spec/names").context("names")?;
        let (kind, short) = (text(names, "kind"), short_names(names));
        let page = format!("{}.md", kind.to_lowercase());
        let short = if short.is_empty() { String::new() } else { format!("`{short}`") };
        writeln!(index, "| [{kind}]({page}) | {short} | {} |", escaped(text(schema(definition)?, "description")))?;
        let of_runners = (kind != "Runner").then_some(&runner_spec);
        generated(&format!("{PAGES}/{page}"), &page_of(definition, of_runners)?)?;
    }
    generated(&format!("{PAGES}/README.md"), &index)?;
    let (shipped, written) = (files(DEFINITIONS, ".yaml")?.len(), files(PAGES, ".md")?.len());
    ensure!(shipped == ORDER.len() && written == shipped + 1, "{shipped} definitions, {written} pages in {PAGES}");
    Ok(())
}

fn schema(definition: &Value) -> Result<&Value> {
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema").context("a definition without a schema")
}

fn short_names(names: &Value) -> String {
    elements(names, "shortNames").filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// `of_runners` are the fields of a Runner's spec, which other kinds contain.
fn page_of(definition: &Value, of_runners: Option<&Value>) -> Result<String> {
    let names = definition.pointer("/spec/names").context("names")?;
    let (kind, plural, short) = (text(names, "kind"), text(names, "plural"), short_names(names));
    let root = schema(definition)?;
    let short = if short.is_empty() { String::new() } else { format!(", or `kubectl get {short}`") };
    let mut page = format!("# {kind}\n\n{}\n\n`kubectl get {plural}`{short}.\n", escaped(text(root, "description")));
    for (part, title) in [("spec", "Spec"), ("status", "Status")] {
        let Some(schema) = root.pointer(&format!("/properties/{part}")) else { continue };
        let mut rows = String::new();
        rows_of(schema, "", of_runners, kind, &mut rows)?;
        write!(
            page,
            "\n## {title}\n\n{}\n\n| field | type | meaning |\n| --- | --- | --- |\n{rows}",
            escaped(text(schema, "description"))
        )?;
    }
    let mut rules = String::new();
    rules_of(root, "", &mut rules)?;
    if !rules.is_empty() {
        write!(
            page,
            "\n## Rules\n\nThe API server refuses an object that breaks one of these.\n\n| where | message |\n| --- | --- |\n{rules}"
        )?;
    }
    page.push_str("\n## Columns\n\nWhat `kubectl get` shows.\n\n| column | field |\n| --- | --- |\n");
    for column in
        definition.pointer("/spec/versions/0").into_iter().flat_map(|version| elements(version, "additionalPrinterColumns"))
    {
        writeln!(page, "| {} | `{}` |", text(column, "name"), text(column, "jsonPath").trim_start_matches('.'))?;
    }
    Ok(page)
}

fn rows_of(schema: &Value, prefix: &str, of_runners: Option<&Value>, kind: &str, rows: &mut String) -> Result<()> {
    let required: Vec<&str> = elements(schema, "required").filter_map(Value::as_str).collect();
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { ", required" } else { "" };
        let of_runner = of_runners.is_some() && field.get("properties") == of_runners;
        let mut meaning = escaped(text(field, "description"));
        if meaning.is_empty() && kind == "RunnerSet" {
            meaning.push_str("As in a StatefulSet.");
        }
        for limit in limits(field) {
            write!(meaning, " {limit}")?;
        }
        if of_runner {
            meaning.push_str(" Its fields are those of [a Runner's spec](runner.md#spec).");
        }
        ensure!(!meaning.trim().is_empty(), "{prefix}{name} of {kind} has no description");
        writeln!(rows, "| `{prefix}{name}` | {}{needed} | {} |", type_of(field), meaning.trim())?;
        let (end, inner) = innermost(field);
        if !of_runner && is_told_below(inner) {
            rows_of(inner, &format!("{prefix}{name}{end}."), of_runners, kind, rows)?;
        }
    }
    Ok(())
}

/// What lists and maps are of, and how a path says that they are lists and maps.
fn innermost(field: &Value) -> (String, &Value) {
    let (mut end, mut inner) = (String::new(), field);
    loop {
        let (more, next) = match (inner.get("items"), inner.get("additionalProperties")) {
            (Some(items), _) => ("[]", items),
            (None, Some(values)) if values.is_object() => (".*", values),
            _ => return (end, inner),
        };
        end.push_str(more);
        inner = next;
    }
}

/// Whether anything below has a description. Types of Kubernetes itself have none here.
fn is_told_below(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.map(|(_, field)| field).any(|field| field.get("description").is_some() || is_told_below(innermost(field).1))
}

fn type_of(field: &Value) -> String {
    if field.get("x-kubernetes-int-or-string").is_some() {
        return "integer or string".to_owned();
    }
    match (text(field, "type"), field.get("items"), field.get("additionalProperties")) {
        ("array", Some(items), _) => format!("list of {}", type_of(items)),
        ("object", _, Some(values)) if values.is_object() => format!("map to {}", type_of(values)),
        ("string", ..) if text(field, "format") == "date-time" => "time".to_owned(),
        ("", ..) => "any".to_owned(),
        (name, ..) => name.to_owned(),
    }
}

fn limits(field: &Value) -> Vec<String> {
    let number = |key: &str| field.get(key).and_then(Value::as_f64);
    let mut limits = Vec::new();
    for (key, words, unit) in [
        ("minimum", "At least", ""),
        ("maximum", "At most", ""),
        ("minLength", "At least", " characters"),
        ("maxLength", "At most", " characters"),
        ("minItems", "At least", " items"),
        ("maxItems", "At most", " items"),
    ] {
        limits.extend(number(key).map(|number| format!("{words} {number}{unit}.")));
    }
    let values: Vec<String> = elements(field, "enum").filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
    if !values.is_empty() {
        limits.push(format!("One of {}.", values.join(", ")));
    }
    limits.extend(field.get("default").map(|default| format!("Default: `{default}`.")));
    limits
}

fn rules_of(schema: &Value, path: &str, rules: &mut String) -> Result<()> {
    for rule in elements(schema, "x-kubernetes-validations") {
        let place = if path.is_empty() { "the object".to_owned() } else { format!("`{path}`") };
        writeln!(rules, "| {place} | {} |", escaped(text(rule, "message")))?;
    }
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let (end, inner) = innermost(field);
        rules_of(field, &path, rules)?;
        if !end.is_empty() {
            rules_of(inner, &format!("{path}{end}"), rules)?;
        }
    }
    Ok(())
}

/// On one line, with what Markdown would take for its own kept as it is.
fn escaped(description: &str) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*")
}
