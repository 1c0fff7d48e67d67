//! The helm that `tests/helm/build.sh` builds, and what it prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use pacer_harness::controlplane::ControlPlane;
use serde_json::Value;

/// The namespace that releases of the tests are in.
pub(crate) const NAMESPACE: &str = "actions-runner-system";

/// A path of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The chart's directory.
pub(crate) fn chart() -> String {
    repository("deploy/chart").to_string_lossy().into_owned()
}

/// The path of a file with values.
pub(crate) fn values(name: &str) -> String {
    repository("tests/helm/values").join(format!("{name}.yaml")).to_string_lossy().into_owned()
}

/// The executable, built once per machine.
pub(crate) fn executable() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let output = Command::new("/bin/sh").arg(repository("tests/helm/build.sh")).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("tests/helm/build.sh: {error}"))?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if output.status.success() { Ok(path) } else { Err(format!("tests/helm/build.sh: {}", output.status)) }
    });
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

/// Helm with these arguments, against that control plane if there is one.
pub(crate) fn command(plane: Option<&ControlPlane>, arguments: &[&str]) -> Result<Command> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    let mut command = Command::new(executable()?);
    command.args(arguments).stdin(Stdio::null()).env_remove("KUBECONFIG");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, &home);
    }
    if let Some(plane) = plane {
        command.env("KUBECONFIG", plane.kubeconfig_path());
    }
    Ok(command)
}

/// Output of helm with these arguments, also where it fails.
pub(crate) fn run(plane: Option<&ControlPlane>, arguments: &[&str]) -> Result<Output> {
    command(plane, arguments)?.output().context("running helm")
}

/// What helm prints when it succeeds.
pub(crate) fn succeed(plane: Option<&ControlPlane>, arguments: &[&str]) -> Result<String> {
    let output = run(plane, arguments)?;
    ensure!(output.status.success(), "helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// What helm prints when it fails.
pub(crate) fn fail(arguments: &[&str]) -> Result<String> {
    let output = run(None, arguments)?;
    ensure!(!output.status.success(), "helm {} succeeded", arguments.join(" "));
    Ok(String::from_utf8(output.stderr)?)
}

/// The manifests of a release with these arguments.
pub(crate) fn template(release: &str, arguments: &[&str]) -> Result<String> {
    let chart = chart();
    let mut all = vec!["template", release, chart.as_str(), "--namespace", NAMESPACE];
    all.extend(arguments);
    succeed(None, &all)
}

/// The objects of a file of manifests, or of a rendered chart.
pub(crate) struct Objects(Vec<Value>);

impl Objects {
    /// Reads the documents of a file or a rendering.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let documents = text.split("\n---").map(|one| one.trim_start_matches("---"));
        let documents = documents.filter(|one| one.lines().any(|line| !line.is_empty() && !line.starts_with('#')));
        Ok(Self(documents.map(|one| serde_saphyr::from_str(one).with_context(|| one.to_owned())).collect::<Result<_>>()?))
    }

    /// All objects.
    pub(crate) fn all(&self) -> &[Value] {
        &self.0
    }

    /// The objects of a kind.
    pub(crate) fn of<'a, 'k>(&'a self, kind: &'k str) -> impl Iterator<Item = &'a Value> + use<'a, 'k> {
        self.0.iter().filter(move |object| text(object, "/kind") == kind)
    }

    /// Names of the objects of a kind, in order.
    pub(crate) fn names(&self, kind: &str) -> Vec<&str> {
        let mut names: Vec<_> = self.of(kind).map(|object| text(object, "/metadata/name")).collect();
        names.sort_unstable();
        names
    }

    /// The object of that kind and name.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Result<&Value> {
        match self.of(kind).find(|object| text(object, "/metadata/name") == name) {
            Some(object) => Ok(object),
            None => bail!("no {kind} {name}; there are {:?}", self.names(kind)),
        }
    }
}

/// A text in an object; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A part of an object; null where there is none.
pub(crate) fn part(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).cloned().unwrap_or_default()
}
