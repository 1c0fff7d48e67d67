//! Every value is described, tried with something else than its default, and known to the schema.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::helm;

/// The table of values in the documentation.
const TABLE: &str = "docs/chart-values.md";

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(helm::repository(path)).with_context(|| path.to_owned())
}

fn parsed(path: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(&read(path)?)?)
}

/// Values by their path: what is no map, or an empty one.
fn leaves(value: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned(), value.clone());
        }
    }
}

/// Comments of `values.yaml` by the path of the key below them, in order.
fn comments(text: &str) -> Vec<(String, String)> {
    let (mut path, mut found): (Vec<String>, _) = (Vec::new(), Vec::new());
    let mut comment = String::new();
    for line in text.lines() {
        let inner = line.trim_start();
        let depth = (line.len() - inner.len()) / 2;
        if let Some(more) = inner.strip_prefix('#') {
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment.push_str(more.trim());
        } else if let Some((key, _)) = inner.split_once(':').filter(|_| !inner.starts_with('-')) {
            path.truncate(depth);
            path.push(key.to_owned());
            if !comment.is_empty() {
                found.push((path.join("."), std::mem::take(&mut comment)));
            }
        } else {
            comment.clear();
        }
    }
    found
}

#[test]
fn table_of_values_is_that_of_the_chart() -> Result<()> {
    let values = parsed("deploy/chart/values.yaml")?;
    let mut all = BTreeMap::new();
    leaves(&values, "", &mut all);
    let described = comments(&read("deploy/chart/values.yaml")?);
    for path in all.keys() {
        let parent = |(one, _): &&(String, String)| path == one || path.starts_with(&format!("{one}."));
        // A map of the user's own, or a list, is described as a whole.
        ensure!(described.iter().any(|one| parent(&one) && one.0 != "pacer"), "{path} has no comment in values.yaml");
    }
    let mut table = "# Values of the chart\n\n\
        Written by a test from `deploy/chart/values.yaml`; `make golden` writes it anew. Keys outside of `pacer` are those of\n\
        actions-runner-controller's chart.\n\n| key | default | meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for (path, comment) in &described {
        let default = values.pointer(&format!("/{}", path.replace('.', "/"))).cloned().unwrap_or_default();
        if default.as_object().is_some_and(|map| !map.is_empty() && path == "pacer") {
            continue;
        }
        let default = match &default {
            Value::Null => String::new(),
            Value::String(text) if text.is_empty() => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        writeln!(table, "| `{path}` | {default} | {} |", comment.replace('|', "\\|"))?;
    }
    table.push_str("\n## Keys of ARC's chart that have no effect\n\nThey are accepted, and the notes after an installation name those that were set.\n\n");
    table.push_str("| key | why |\n| --- | --- |\n");
    for entry in without_effect()? {
        writeln!(table, "| `{}` | {} |", helm::text(&entry, "/key"), helm::text(&entry, "/why"))?;
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(helm::repository(TABLE), &table)?;
    }
    ensure!(read(TABLE)? == table, "{TABLE} is not that of the chart; write it anew with `make golden`");
    Ok(())
}

/// Entries of the file that says which keys have no effect.
fn without_effect() -> Result<Vec<Value>> {
    let file = parsed("deploy/chart/files/without-effect.yaml")?;
    Ok(file.get("keys").and_then(Value::as_array).context("keys")?.clone())
}

#[test]
fn key_without_effect_is_no_key_of_the_chart() -> Result<()> {
    let values = parsed("deploy/chart/values.yaml")?;
    let entries = without_effect()?;
    ensure!(entries.len() > 30, "{}", entries.len());
    for entry in entries {
        let key = helm::text(&entry, "/key");
        ensure!(!key.is_empty() && !helm::text(&entry, "/why").is_empty(), "{entry}");
        ensure!(values.pointer(&format!("/{}", key.replace('.', "/"))).is_none(), "{key} is in values.yaml and has an effect");
    }
    Ok(())
}

#[test]
fn every_value_is_tried_with_something_else_than_its_default() -> Result<()> {
    let mut defaults = BTreeMap::new();
    leaves(&parsed("deploy/chart/values.yaml")?, "", &mut defaults);
    let mut untried = defaults.clone();
    for name in crate::rendered::sets_of_values()? {
        let values = parsed(&format!("tests/helm/values/{name}.yaml"))?;
        untried.retain(|path, default| {
            let tried = values.pointer(&format!("/{}", path.replace('.', "/")));
            tried.is_none_or(|tried| tried == default)
        });
    }
    ensure!(untried.is_empty(), "never set to something else in tests/helm/values: {:?}", untried.keys());
    Ok(())
}

#[test]
fn schema_knows_every_value_and_refuses_no_unknown_one() -> Result<()> {
    let schema: Value = serde_json::from_str(&read("deploy/chart/values.schema.json")?)?;
    ensure!(!schema.to_string().contains("additionalProperties"), "values of ARC that are not known here must be no error");
    let mut all = BTreeMap::new();
    leaves(&parsed("deploy/chart/values.yaml")?, "", &mut all);
    for path in all.keys().filter(|path| !path.starts_with("pacer.grafanaDashboard.labels.")) {
        let mut place = &schema;
        for step in path.split('.') {
            place = match place.get("properties").and_then(|properties| properties.get(step)) {
                Some(found) => found,
                None => bail!("the schema does not know {path}"),
            };
        }
    }
    Ok(())
}

/// Flags by the value that the chart gives them, as in `"--flag" .Values.path` of a template.
fn flags_by_value(template: &str) -> Vec<(String, String)> {
    let pairs = template.lines().filter_map(|line| line.trim().strip_prefix("\"--")?.split_once("\" "));
    let path = |value: &str| {
        let of_server = value.strip_prefix("$server.").map(|key| format!("githubWebhookServer.{key}"));
        of_server.or_else(|| value.strip_prefix(".Values.").map(str::to_owned))
    };
    pairs.filter_map(|(flag, value)| Some((path(value)?, format!("--{flag}")))).collect()
}

/// What a comment says holds where the value is empty; none where it says that in words.
fn said_when_empty(comment: &str) -> Option<&str> {
    let (before, _) = comment.split_once(" when empty")?;
    let said = before.rsplit([' ', ';']).next()?;
    said.starts_with(|letter: char| letter.is_ascii_digit()).then_some(said)
}

#[test]
fn defaults_that_values_name_are_those_of_the_flags() -> Result<()> {
    let flags = read("docs/reference/flags.md")?;
    let of_verb = |verb: &str| flags.split("\n## ").find(|part| part.starts_with(&format!("pacer {verb}\n"))).map(str::to_owned);
    let described: BTreeMap<String, String> = comments(&read("deploy/chart/values.yaml")?).into_iter().collect();
    let mut compared = 0;
    for (verb, template) in [("run", "operator"), ("webhook", "webhook")] {
        let page = of_verb(verb).with_context(|| format!("no flags of {verb}"))?;
        for (path, flag) in flags_by_value(&read(&format!("deploy/chart/templates/{template}-deployment.yaml"))?) {
            let Some(said) = described.get(&path).and_then(|comment| said_when_empty(comment)) else { continue };
            let row =
                page.lines().find(|line| line.starts_with(&format!("| `{flag} ")) || line.starts_with(&format!("| `{flag}`")));
            let default = row.and_then(|row| row.split('|').nth(2)).with_context(|| format!("no flag {flag}"))?.trim();
            ensure!(default == format!("`{said}`"), "{path} says {said} when empty, and {flag} is {default}");
            compared += 1;
        }
    }
    ensure!(compared >= 14, "only {compared} values name the default of their flag");
    Ok(())
}
