//! Every value is described, tried with something else than its default, and known to the schema.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::helm;

/// The table of values in the documentation.
const TABLE: &str = "docs/chart-values.md";

/// Keys that ARC's chart reads, documents or once read, and that its `values.yaml` gives no default. Those that it gives one are in
/// `tests/helm/values/arc-defaults.yaml`.
const WITHOUT_DEFAULT: &[&str] = &[
    "leaderElectionId",
    "githubEnterpriseServerURL",
    "githubURL",
    "githubUploadURL",
    "runnerGithubURL",
    "logLevel",
    "dockerGID",
    "rbac.allowGrantingKubernetesContainerModePermissions",
    "healthProbeBindAddress",
    "hostNetwork",
    "dnsPolicy",
    "createDummySecret",
    "admissionWebHooks.caBundle",
    "admissionWebHooks.timeoutSeconds",
    "namespaceOverride",
    "authSecret.github_app_id",
    "authSecret.github_app_installation_id",
    "authSecret.github_app_private_key",
    "authSecret.github_token",
    "authSecret.github_basicauth_username",
    "authSecret.github_basicauth_password",
    "env",
    "image.tag",
    "topologySpreadConstraints",
    "podDisruptionBudget.minAvailable",
    "podDisruptionBudget.maxUnavailable",
    "metrics.proxy.image.repository",
    "metrics.proxy.image.tag",
    "githubWebhookServer.logLevel",
    "githubWebhookServer.queueLimit",
    "githubWebhookServer.secret.github_app_id",
    "githubWebhookServer.secret.github_app_installation_id",
    "githubWebhookServer.secret.github_app_private_key",
    "githubWebhookServer.secret.github_token",
    "githubWebhookServer.env",
    "githubWebhookServer.topologySpreadConstraints",
    "githubWebhookServer.podDisruptionBudget.minAvailable",
    "githubWebhookServer.podDisruptionBudget.maxUnavailable",
    "actionsMetrics.proxy.image.repository",
    "actionsMetrics.proxy.image.tag",
    "actionsMetrics.env",
    "actionsMetricsServer.logLevel",
    "actionsMetricsServer.secret.github_app_id",
    "actionsMetricsServer.secret.github_app_installation_id",
    "actionsMetricsServer.secret.github_app_private_key",
    "actionsMetricsServer.secret.github_token",
    "actionsMetricsServer.env",
    "actionsMetricsServer.topologySpreadConstraints",
    // Read by earlier versions.
    "githubAPICacheDuration",
    "namespace",
];

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
        Generated from `deploy/chart/values.yaml`; `make golden` regenerates it. Keys outside `pacer` are those of\n\
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
pub(crate) fn without_effect() -> Result<Vec<Value>> {
    let file = parsed("deploy/chart/files/without-effect.yaml")?;
    Ok(file.get("keys").and_then(Value::as_array).context("keys")?.clone())
}

/// Whether the chart knows a key of ARC's: it is one of `known`, or a part of one that is a map or a list as a whole, or has some below it.
fn is_known(key: &str, known: &BTreeMap<String, Value>) -> bool {
    let below = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    known.iter().any(|(one, default)| {
        let holds_any = default.is_object() || default.is_array() || default.is_null();
        one == key || below(one, key) || (holds_any && below(key, one))
    })
}

#[test]
fn every_key_of_arcs_chart_has_an_effect_or_a_note() -> Result<()> {
    let mut known = BTreeMap::new();
    leaves(&parsed("deploy/chart/values.yaml")?, "", &mut known);
    for entry in without_effect()? {
        known.insert(helm::text(&entry, "/key").to_owned(), helm::part(&entry, "/default"));
    }
    let mut arcs = BTreeMap::new();
    leaves(&parsed("tests/helm/values/arc-defaults.yaml")?, "", &mut arcs);
    ensure!(arcs.len() > 120, "{}", arcs.len());
    let all = arcs.keys().map(String::as_str).chain(WITHOUT_DEFAULT.iter().copied());
    let unknown: Vec<&str> = all.filter(|key| !is_known(key, &known)).collect();
    ensure!(unknown.is_empty(), "neither in values.yaml nor in files/without-effect.yaml: {unknown:?}");
    ensure!(!is_known("pacer.nothing", &known) && !is_known("service.clusterIP", &known));
    Ok(())
}

#[test]
fn annotations_of_the_chart_name_the_definitions_and_the_image() -> Result<()> {
    let chart = parsed("deploy/chart/Chart.yaml")?;
    let annotation = |name: &str| helm::part(&chart, "/annotations").get(format!("artifacthub.io/{name}")).cloned();
    let said = |name: &str| annotation(name).and_then(|value| value.as_str().map(str::to_owned)).with_context(|| name.to_owned());
    ensure!(said("category")? == "integration-delivery" && said("operator")? == "true" && said("license")? == "Apache-2.0");
    let mut shipped = Vec::new();
    for entry in std::fs::read_dir(helm::repository("deploy/chart/crds"))? {
        let definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(entry?.path())?)?;
        let of = |pointer: &str| helm::text(&definition, pointer).to_owned();
        shipped.push((of("/metadata/name"), of("/spec/names/kind"), of("/spec/versions/0/name")));
    }
    shipped.sort_unstable();
    let listed: Vec<Value> = serde_saphyr::from_str(&said("crds")?)?;
    let mut named = Vec::new();
    for one in &listed {
        let of = |pointer: &str| helm::text(one, pointer).to_owned();
        ensure!(!of("/displayName").is_empty() && !of("/description").is_empty(), "{one}");
        named.push((of("/name"), of("/kind"), of("/version")));
    }
    named.sort_unstable();
    assert_eq!(named, shipped);
    let images: Vec<Value> = serde_saphyr::from_str(&said("images")?)?;
    let values = parsed("deploy/chart/values.yaml")?;
    let image = format!("{}:{}", helm::text(&values, "/pacer/image/repository"), helm::text(&chart, "/appVersion"));
    ensure!(images.len() == 1 && images.iter().all(|one| helm::text(one, "/image") == image), "{images:?} are not {image}");
    Ok(())
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
    for name in super::rendered::sets_of_values()? {
        let values = parsed(&format!("tests/helm/values/{name}.yaml"))?;
        untried.retain(|path, default| !sets(&values, path, default));
    }
    ensure!(untried.is_empty(), "never set to something else in tests/helm/values: {:?}", untried.keys());
    Ok(())
}

/// Values that `everything.yaml` leaves as they are, why, and the set of values that has them instead.
const LEFT: &[(&str, &str, &str)] = &[
    ("enableLeaderElection", "several replicas and shards need it", "few-rights"),
    ("authSecret.enabled", "the Secret that is made would not be read, which is refused", "few-rights"),
    ("authSecret.github_app_id", "one kind of credentials is used, and there is a token", "arc-app"),
    ("authSecret.github_app_installation_id", "one kind of credentials is used, and there is a token", "arc-app"),
    ("authSecret.github_app_private_key", "one kind of credentials is used, and there is a token", "arc-app"),
    ("authSecret.github_basicauth_username", "one kind of credentials is used, and there is a token", "arc-basic-auth"),
    ("authSecret.github_basicauth_password", "one kind of credentials is used, and there is a token", "arc-basic-auth"),
    ("serviceAccount.create", "the annotations are those of an account that is made", "few-rights"),
    ("priorityClassName", "it would take the place of the class that pacer.priorityClass makes", "few-rights"),
    ("podDisruptionBudget.maxUnavailable", "a budget has one bound, and minAvailable is set", "observed"),
    ("githubWebhookServer.secret.github_app_id", "one kind of credentials is used, and there is a token", "arc-app"),
    (
        "githubWebhookServer.secret.github_app_installation_id",
        "one kind of credentials is used, and there is a token",
        "few-rights",
    ),
    ("githubWebhookServer.secret.github_app_private_key", "one kind of credentials is used, and there is a token", "arc-app"),
    ("githubWebhookServer.serviceAccount.create", "the annotations are those of an account that is made", "few-rights"),
    ("githubWebhookServer.podDisruptionBudget.enabled", "the bound is that of a budget that is made", "arc-defaults"),
    ("githubWebhookServer.podDisruptionBudget.minAvailable", "a budget has one bound, and maxUnavailable is set", "arc-app"),
    ("pacer.rbac.receipts", "pacer.receipts has an effect with that right only", "few-rights"),
    ("pacer.rbac.runnerAccounts", "the status hook needs accounts of runners", "few-rights"),
    ("pacer.rbac.nodes", "facts about nodes and their prices need it", "few-rights"),
];

/// Whether a set of values has this one, and another one than the default.
fn sets(values: &Value, path: &str, default: &Value) -> bool {
    values.pointer(&format!("/{}", path.replace('.', "/"))).is_some_and(|value| value != default)
}

#[test]
fn one_set_has_every_value_but_those_that_exclude_another_one_there() -> Result<()> {
    let mut defaults = BTreeMap::new();
    leaves(&parsed("deploy/chart/values.yaml")?, "", &mut defaults);
    let all = parsed("tests/helm/values/everything.yaml")?;
    let left: Vec<&str> =
        defaults.iter().filter(|(path, default)| !sets(&all, path, default)).map(|(path, _)| path.as_str()).collect();
    let mut listed: Vec<&str> = LEFT.iter().map(|(path, ..)| *path).collect();
    listed.sort_unstable();
    assert_eq!(left, listed, "left as they are in everything.yaml, and listed here");
    for (path, why, instead) in LEFT {
        let other = parsed(&format!("tests/helm/values/{instead}.yaml"))?;
        let default = defaults.get(*path).with_context(|| format!("no value {path}"))?;
        ensure!(!why.is_empty() && sets(&other, path, default), "{instead}.yaml leaves {path} as it is");
    }
    // What is documented is what values.yaml has; a map or a list of the user's own is documented as a whole.
    let table = read(TABLE)?;
    let keys = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(key, _)| key);
    let within = |path: &str, key: &str| path == key || path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    let effective: Vec<&str> = keys.filter(|key| defaults.keys().any(|path| within(path, key))).collect();
    let undocumented: Vec<&String> = defaults.keys().filter(|path| !effective.iter().any(|key| within(path, key))).collect();
    ensure!(effective.len() > 150 && undocumented.is_empty(), "{TABLE} has {} keys, and lacks {undocumented:?}", effective.len());
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
