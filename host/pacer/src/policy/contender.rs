//! A policy set from files, as a generation that can be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use pacer_policy::bundle::FILE;
use pacer_policy::{Bundle, Counters, Generation, PolicyHost};

use super::jail::launcher;
use super::pulled;
use super::set::{MANIFEST_BYTES, Refused, given};
use crate::file;

/// The generation that a set makes: `policies.yaml`, a directory that holds it, or a manifest with one ConfigMap. It is read, checked and run as
/// the operator does.
pub(crate) fn load(path: &Path) -> Result<Arc<Generation>> {
    let place: PathBuf = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    let text = file::read_text(&place, MANIFEST_BYTES, "a manifest of policy sets")?;
    let sets = given(&place, &text)?;
    let [set] = sets.as_slice() else { bail!("{} holds {} policy sets: give a file with one", place.display(), sets.len()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let host = PolicyHost::jailed(launcher()?, Arc::new(Counters::default()));
    if let Some(why) = host.broken() {
        bail!("policies can't run here: {why}");
    }
    let (data, mut modules) = set.content.parts();
    let pulled = runtime.block_on(pulled::pull(&data))?;
    modules.append(&mut pulled.map_err(|(reference, error)| anyhow!("{reference}: {error}"))?);
    let staged = runtime.block_on(async {
        let bundle = Bundle::parse(&host, "", &data, &modules).await?;
        bundle.stage(&host).await
    });
    let staged = staged.map_err(|error| anyhow!("{} is refused: {}", place.display(), Refused::of(&error).text()))?;
    Ok(host.compose(&[&staged]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_may_hold_policies_as_text() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("set.yaml");
        let manifest = "kind: ConfigMap\nmetadata: {name: ours}\ndata:\n  policies.yaml: 'capacity: {module: policy.js}'\n  policy.js: |\n    \
             export const name = 'none';\n    export function capacity() { return { reservations: [] }; }\n";
        std::fs::write(&file, manifest).unwrap();
        load(&file).unwrap();
    }
}
