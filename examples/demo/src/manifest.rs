//! The files of `examples/`, and what has to exist at GitHub for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pacer_api::names::GROUP;
use pacer_harness::controlplane::{Apply, ControlPlane};
use pacer_harness::github::{GroupVisibility, Person, Scope, SimGitHub};
use serde_json::{Value, json};

use crate::terminal::Terminal;

/// All documents of the manifests, read by kubectl.
#[derive(Debug)]
pub(crate) struct Manifests {
    directory: PathBuf,
    documents: Vec<Value>,
}

/// The directory of the demo's own policies.
pub(crate) fn policies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("policies")
}

/// What one document needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    scope: Option<Scope>,
    group: Option<String>,
    secret: Option<String>,
}

impl Manifests {
    /// Reads `examples/` without its subdirectories.
    ///
    /// # Errors
    ///
    /// When kubectl cannot read one of the files.
    pub(crate) async fn read(plane: &ControlPlane) -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = directory.to_string_lossy().into_owned();
        let output = plane.kubectl(&["create", "--dry-run=client", "--output=json", "-f", &path]).await?;
        ensure!(output.status.success(), "kubectl cannot read examples/: {}", String::from_utf8_lossy(&output.stderr).trim());
        let mut documents = Vec::new();
        for document in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
            let document = document.context("kubectl printed no JSON")?;
            match document.get("items").and_then(Value::as_array) {
                Some(items) => documents.extend(items.iter().cloned()),
                None => documents.push(document),
            }
        }
        ensure!(!documents.is_empty(), "examples/ holds no manifest");
        Ok(Self { directory, documents })
    }

    /// The policy in one of the demo's ConfigMaps, which is the last entry of its file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or holds none.
    pub(crate) fn text_of_policy(file: &Path) -> Result<String> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let (_, policy) = text.split_once("  policy.js: |\n").with_context(|| format!("{} holds no policy", file.display()))?;
        Ok(policy.to_owned())
    }

    /// The directory that the manifests were read from.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes exist what they presuppose: repositories, organizations and runner groups at GitHub, credentials in the cluster.
    ///
    /// # Errors
    ///
    /// When a Secret cannot be applied.
    pub(crate) async fn prepare(&self, plane: &ControlPlane, github: &SimGitHub, terminal: &Terminal) -> Result<()> {
        let (mut scopes, mut groups, mut secrets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for needs in self.documents.iter().map(needs) {
            groups.extend(needs.scope.clone().zip(needs.group));
            scopes.extend(needs.scope);
            secrets.extend(needs.secret);
        }
        for scope in &scopes {
            github.add(scope);
            terminal.say(&format!("GitHub has the {} {scope}", kind(scope)));
        }
        for (scope, group) in &groups {
            github.add_group(scope, group, GroupVisibility::All);
            terminal.say(&format!("GitHub has the runner group {group} in {scope}"));
        }
        for secret in &secrets {
            // Not as an argument of kubectl, where every process could read it.
            let token = github.add_pat(Person::admin(secret.as_str()));
            let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {"github_token": token}});
            plane.apply_text(&object.to_string(), Apply::ServerSide).await?;
            terminal.say(&format!("$ kubectl create secret generic {secret} --from-literal=github_token=..."));
        }
        Ok(())
    }
}

fn kind(scope: &Scope) -> &'static str {
    match scope {
        Scope::Repository { .. } => "repository",
        Scope::Organization(_) => "organization",
        Scope::Enterprise(_) => "enterprise",
    }
}

/// Runners carry their scope in `spec`, sets of them in the template, some in both places of the schema.
fn needs(document: &Value) -> Needs {
    let is_ours = document.get("apiVersion").and_then(Value::as_str).is_some_and(|version| version.starts_with(GROUP));
    let templates = ["/spec", "/spec/template/spec"].into_iter().filter_map(|path| document.pointer(path));
    let Some(spec) = templates.filter(|_| is_ours).find(|spec| scope(spec).is_some()) else { return Needs::default() };
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Needs { scope: scope(spec), group: text("/group"), secret: text("/githubAPICredentialsFrom/secretRef/name") }
}

fn scope(spec: &Value) -> Option<Scope> {
    let text = |name: &str| spec.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let repository = || text("repository").and_then(|path| path.parse().ok());
    repository().or_else(|| text("organization").map(Scope::organization)).or_else(|| text("enterprise").map(Scope::enterprise))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_found_where_a_kind_has_them() {
        let template =
            |spec: Value| json!({"apiVersion": "actions.summerwind.dev/v1alpha1", "spec": {"template": {"spec": spec}}});
        let secret = json!({"organization": "a", "group": "g", "githubAPICredentialsFrom": {"secretRef": {"name": "s"}}});
        for (document, scope, group, name) in [
            (template(json!({"repository": "a/b"})), Some(Scope::repository("a", "b")), None, None),
            (template(secret), Some(Scope::organization("a")), Some("g"), Some("s")),
            (template(json!({"enterprise": "e", "repository": ""})), Some(Scope::enterprise("e")), None, None),
            (
                json!({"apiVersion": "actions.summerwind.dev/v1alpha1", "spec": {"repository": "a/b"}}),
                Some(Scope::repository("a", "b")),
                None,
                None,
            ),
            (json!({"apiVersion": "v1", "spec": {"repository": "a/b"}}), None, None, None),
        ] {
            let expected = Needs { scope, group: group.map(str::to_owned), secret: name.map(str::to_owned) };
            assert_eq!(needs(&document), expected, "{document}");
        }
    }
}
