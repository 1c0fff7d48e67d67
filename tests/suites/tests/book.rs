//! The documentation has what the code has: every field, flag, reason and metric. Its links lead somewhere, and alert rules and dashboards ask
//! for what is exported. Nothing here needs a cluster.

#[path = "book/alerts.rs"]
mod alerts;
#[path = "book/facts.rs"]
mod facts;
#[path = "book/flags.rs"]
mod flags;
#[path = "book/image.rs"]
mod image;
#[path = "book/kinds.rs"]
mod kinds;
#[path = "book/links.rs"]
mod links;
#[path = "book/promql.rs"]
mod promql;
#[path = "book/reasons.rs"]
mod reasons;
#[path = "book/release.rs"]
mod release;
#[path = "book/workflows.rs"]
mod workflows;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(repository(path)).with_context(|| path.to_owned())
}

fn yaml(path: &str) -> Result<Value> {
    serde_saphyr::from_str(&read(path)?).with_context(|| path.to_owned())
}

/// Elements of a list; none when there is no list.
fn elements<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Compares a generated page with the one that is there; with `UPDATE_GOLDEN` set it is written anew.
fn generated(path: &str, page: &str) -> Result<()> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(repository(path), page)?;
    }
    ensure!(read(path).unwrap_or_default() == page, "{path} is not what it is generated from; write it anew with `make golden`");
    Ok(())
}

/// Paths of the files below a directory whose names end like that, relative to the repository, in order.
fn files(directory: &str, end: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(repository(&directory)).with_context(|| directory.clone())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if directory == "." { name.clone() } else { format!("{directory}/{name}") };
            let hidden = name.starts_with('.') || ["target", "node_modules"].contains(&name.as_str());
            match entry.file_type()? {
                kind if kind.is_dir() && !hidden => left.push(path),
                kind if kind.is_file() && name.ends_with(end) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
