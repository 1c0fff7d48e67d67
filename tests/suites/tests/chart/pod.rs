//! A rendered pod as a process: its command line, its environment and the files that its volumes hold.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, KeyToPath, PodSpec, Secret, Volume};
use kube::{Api, Client};
use pacer_harness::operator::{self, POD_UID};
use pacer_harness::world::World;

/// Data of Secrets and ConfigMaps.
type Files = BTreeMap<String, Vec<u8>>;

/// How the operator is started as the pod of that Deployment would start it.
///
/// Of the command line only listeners change, which are on loopback and on free ports here, and where volumes are mounted.
///
/// # Errors
///
/// When the Deployment, or what its pod needs, does not exist.
pub(crate) async fn options(world: &World, namespace: &str, name: &str) -> Result<operator::Options> {
    let api: Api<Deployment> = Api::namespaced(world.client.clone(), namespace);
    let spec = api.get(name).await?.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let [container] = spec.containers.as_slice() else { bail!("{} containers", spec.containers.len()) };
    let mut arguments = container.args.clone().unwrap_or_default();
    for (mounted, directory) in mounts(world, namespace, name, &spec, container).await? {
        for argument in &mut arguments {
            *argument = argument.replace(&mounted, &directory.to_string_lossy());
        }
    }
    for argument in &mut arguments {
        if let Some((flag, _)) = argument.split_once("=:") {
            *argument = format!("{flag}=127.0.0.1:0");
        }
    }
    let verb = arguments.first().context("no arguments")?.clone();
    let mut env = Vec::new();
    // The UID of its pod, which the harness makes up for each process.
    for variable in container.env.iter().flatten().filter(|variable| variable.name != POD_UID) {
        if let Some(value) = value(world.client.clone(), namespace, variable).await? {
            env.push((variable.name.clone(), value));
        }
    }
    // The harness reads JSON from its log, and must not give it a token that the pod does not have.
    arguments.push("--log-format=json".to_owned());
    let token = env.iter().find(|(name, _)| name == "GITHUB_TOKEN").map(|(_, value)| value.clone());
    Ok(operator::Options {
        verb,
        namespace: namespace.to_owned(),
        service_account: spec.service_account_name.clone().context("no service account")?,
        args: arguments.split_off(1),
        env,
        token: Some(token.unwrap_or_default()),
        log_level: "info".to_owned(),
    })
}

/// What a variable holds; nothing where an optional reference leads nowhere.
async fn value(client: Client, namespace: &str, variable: &EnvVar) -> Result<Option<String>> {
    let Some(reference) = variable.value_from.as_ref() else { return Ok(Some(variable.value.clone().unwrap_or_default())) };
    let Some(key) = &reference.secret_key_ref else { bail!("{} comes from something else than a Secret", variable.name) };
    let secret = Api::<Secret>::namespaced(client, namespace).get_opt(&key.name).await?;
    let found = secret.and_then(|secret| secret.data?.remove(&key.key));
    ensure!(found.is_some() || key.optional == Some(true), "{} needs {} of Secret {}", variable.name, key.key, key.name);
    Ok(found.map(|bytes| String::from_utf8(bytes.0)).transpose()?)
}

/// Directories with the files of each mounted volume, by the path that they are mounted at.
async fn mounts(
    world: &World,
    namespace: &str,
    pod: &str,
    spec: &PodSpec,
    container: &Container,
) -> Result<Vec<(String, PathBuf)>> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let files = files(world.client.clone(), namespace, volume.with_context(|| format!("no volume {}", mount.name))?).await?;
        let directory = world.plane.directory().join(pod).join(&mount.name);
        std::fs::create_dir_all(&directory)?;
        for (name, content) in files {
            std::fs::write(directory.join(name), content)?;
        }
        mounts.push((mount.mount_path.clone(), directory));
    }
    Ok(mounts)
}

async fn files(client: Client, namespace: &str, volume: &Volume) -> Result<Files> {
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret = Api::<Secret>::namespaced(client, namespace).get_opt(name).await?;
        ensure!(secret.is_some() || source.optional == Some(true), "volume {} needs Secret {name}", volume.name);
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        return select(data.into_iter().map(|(key, value)| (key, value.0)).collect(), source.items.as_deref());
    }
    if let Some(source) = &volume.config_map {
        let found = Api::<ConfigMap>::namespaced(client, namespace).get(&source.name).await?;
        let data = found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
        return select(data, source.items.as_deref());
    }
    Ok(Files::new())
}

/// All files, or those that are named, under their new names.
fn select(mut files: Files, items: Option<&[KeyToPath]>) -> Result<Files> {
    let Some(items) = items else { return Ok(files) };
    let take = |item: &KeyToPath| {
        let content = files.remove(&item.key).with_context(|| format!("no key {}", item.key))?;
        Ok((item.path.clone(), content))
    };
    items.iter().map(take).collect()
}
