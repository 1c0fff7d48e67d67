//! What holds for every Runner.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, Lifecycle, LocalObjectReference, PodSecurityContext, SELinuxOptions,
    SecurityContext, Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pacer_api::{RunnerConfig, RunnerPodSpec, RunnerSpec, WorkVolumeClaimTemplate};
use pacer_operator::pod::{PodDefaults, PodError};
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::{build, defaults, runner};

const VOLUMES: [&str; 6] = ["runner", "work", "var-run", "cache", "tools", "gone"];
const PATHS: [&str; 6] = ["/runner", "/runner/_work", "/run", "/cache", "/tools", "/work"];
const CONTAINERS: [&str; 4] = ["runner", "docker", "cache", "proxy"];
const VARIABLES: [&str; 7] = ["A", "B", "RUNNER_ORG", "RUNNER_NAME", "RUNNER_TOKEN", "DOCKER_HOST", "DOCKER_GROUP_GID"];

fn env() -> impl Strategy<Value = Option<Vec<EnvVar>>> {
    let variable = (select(&VARIABLES[..]), of(select(&["", "x", "runner"][..]))).prop_map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: value.map(str::to_owned),
        value_from: None,
    });
    of(prop::collection::vec(variable, 0..4))
}

fn mounts() -> impl Strategy<Value = Option<Vec<VolumeMount>>> {
    let mount = (select(&VOLUMES[..5]), select(&PATHS[..])).prop_map(|(name, path)| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    });
    weighted(0.3, prop::collection::vec(mount, 0..3))
}

fn volumes() -> impl Strategy<Value = Option<Vec<Volume>>> {
    weighted(
        0.6,
        subsequence(VOLUMES.to_vec(), 0..=VOLUMES.len()).prop_map(|names| {
            let volume = |name: &str| Volume {
                name: name.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            };
            names.into_iter().map(volume).collect()
        }),
    )
}

fn container(name: &'static str) -> impl Strategy<Value = Container> {
    (env(), mounts(), of(any::<bool>()), any::<bool>(), weighted(0.2, Just(Lifecycle::default()))).prop_map(
        move |(env, volume_mounts, privileged, image, lifecycle)| Container {
            name: name.to_owned(),
            image: image.then(|| "own/image:22.04".to_owned()),
            env,
            volume_mounts,
            security_context: privileged
                .map(|privileged| SecurityContext { privileged: Some(privileged), ..SecurityContext::default() }),
            lifecycle,
            ..Container::default()
        },
    )
}

/// Containers with different names, in any order.
fn containers() -> impl Strategy<Value = Option<Vec<Container>>> {
    let some = subsequence(CONTAINERS.to_vec(), 0..=CONTAINERS.len()).prop_shuffle();
    weighted(0.5, some.prop_flat_map(|names| names.into_iter().map(container).collect::<Vec<_>>()))
}

fn named(names: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<Container>>> {
    weighted(0.2, select(names).prop_flat_map(container).prop_map(|container| vec![container]))
}

fn config() -> impl Strategy<Value = RunnerConfig> {
    let docker =
        (of(any::<bool>()), of(any::<bool>()), weighted(0.3, 1000_i64..2000), weighted(0.3, select(&["", "https://m"][..])));
    let volume =
        (weighted(0.3, select(&["0", "0Gi", "1Gi"][..])), of(select(&["", "Memory"][..])), of(select(&["", "/work"][..])));
    let mode = weighted(0.2, select(&["kubernetes", "", "dind"][..]));
    (docker, volume, mode, of(any::<bool>()), of("[a-z]{0,5}")).prop_map(
        |((enabled, within, mtu, mirror), (limit, medium, work_dir), mode, ephemeral, organization)| RunnerConfig {
            docker_enabled: enabled,
            dockerd_within_runner_container: within,
            docker_mtu: mtu,
            docker_registry_mirror: mirror.map(str::to_owned),
            volume_size_limit: limit.map(|limit| Quantity(limit.to_owned())),
            volume_storage_medium: medium.map(str::to_owned),
            work_dir: work_dir.map(str::to_owned),
            container_mode: mode.map(str::to_owned),
            ephemeral,
            organization,
            ..RunnerConfig::default()
        },
    )
}

fn pod() -> impl Strategy<Value = RunnerPodSpec> {
    let claim = weighted(
        0.7,
        subsequence(vec!["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"], 0..=2).prop_map(|modes| WorkVolumeClaimTemplate {
            storage_class_name: "class".to_owned(),
            access_modes: modes.into_iter().map(str::to_owned).collect(),
            resources: VolumeResourceRequirements::default(),
        }),
    );
    let confined = weighted(0.2, Just(SELinuxOptions::default()));
    let lists = (containers(), env(), mounts(), volumes(), env(), mounts());
    (lists, named(&["warm-up", "cache", "runner"]), named(&["metrics", "docker"]), claim, confined, of("[a-z]{0,4}")).prop_map(
        |(lists, init_containers, sidecar_containers, claim, confined, service_account_name)| {
            let (containers, env, volume_mounts, volumes, docker_env, docker_volume_mounts) = lists;
            RunnerPodSpec {
                containers,
                env,
                volume_mounts,
                volumes,
                docker_env,
                docker_volume_mounts,
                init_containers,
                sidecar_containers,
                work_volume_claim_template: claim,
                security_context: confined
                    .map(|options| PodSecurityContext { se_linux_options: Some(options), ..PodSecurityContext::default() }),
                image_pull_secrets: service_account_name.as_ref().map(|name| vec![LocalObjectReference { name: name.clone() }]),
                service_account_name,
                ..RunnerPodSpec::default()
            }
        },
    )
}

fn operator() -> impl Strategy<Value = PodDefaults> {
    (any::<bool>(), of(select(&["", "https://default"][..]))).prop_map(|(status_hook, mirror)| PodDefaults {
        status_hook,
        docker_registry_mirror: mirror.map(str::to_owned),
        image_pull_secrets: vec!["default".to_owned()],
        ..defaults()
    })
}

fn is_unique<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    names.into_iter().all(|name| seen.insert(name))
}

/// Whether a spec carries a token of its user's in clear.
fn brings_token(spec: &RunnerSpec) -> bool {
    let own = spec.pod.containers.iter().flatten().filter_map(|container| container.env.as_ref());
    own.chain(&spec.pod.env)
        .flatten()
        .any(|variable| variable.name == "RUNNER_TOKEN" && variable.value.as_deref().is_some_and(|value| !value.is_empty()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_is_one_the_api_server_takes(config in config(), pod in pod(), defaults in operator()) {
        let spec = RunnerSpec { config: config.into(), pod: pod.into(), ..RunnerSpec::default() };
        let runner = runner(spec.clone());
        let first = build(&runner, &defaults);
        prop_assert_eq!(&first, &build(&runner, &defaults), "the same Runner gives the same pod");
        let Ok(plan) = first else { return Ok(()) };
        let pod = plan.pod.spec.unwrap();

        let runners: Vec<&Container> = pod.containers.iter().filter(|container| container.name == "runner").collect();
        prop_assert_eq!(runners.len(), 1);
        prop_assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
        prop_assert!(pod.ephemeral_containers.is_none());

        let volumes: Vec<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        prop_assert!(is_unique(volumes.iter().copied()), "{:?}", volumes);
        let all = || pod.containers.iter().chain(pod.init_containers.iter().flatten());
        prop_assert!(is_unique(all().map(|container| container.name.as_str())));
        for container in all() {
            let mounts = || container.volume_mounts.iter().flatten();
            prop_assert!(mounts().all(|mount| volumes.contains(&mount.name.as_str())));
            prop_assert!(is_unique(mounts().map(|mount| mount.mount_path.as_str())));
        }

        let token: Vec<&EnvVar> = runners[0].env.iter().flatten().filter(|variable| variable.name == "RUNNER_TOKEN").collect();
        let literal = token.iter().any(|variable| variable.value.as_deref().is_some_and(|value| !value.is_empty()));
        prop_assert!(!literal || brings_token(&spec), "{:?}", token);
        let last = token.last().unwrap();
        prop_assert!(literal || last.value_from.as_ref().is_some_and(|source| source.secret_key_ref.is_some()));
        for name in ["RUNNER_ORG", "RUNNER_NAME", "GITHUB_URL"] {
            let entries = runners[0].env.iter().flatten().filter(|variable| variable.name == name).count();
            prop_assert!(entries == 1 || name == "RUNNER_NAME" && entries > 1, "{} is there {} times", name, entries);
        }

        let owner = &plan.pod.metadata.owner_references.unwrap()[0];
        prop_assert_eq!(&owner.uid, runner.metadata.uid.as_ref().unwrap());
        prop_assert_eq!(owner.controller, Some(true));
        prop_assert_eq!(plan.pod.metadata.name, runner.metadata.name);
    }

    #[test]
    fn containers_of_the_user_keep_their_order(config in config(), pod in pod()) {
        let given: Vec<String> = pod.containers.iter().flatten().map(|container| container.name.clone()).collect();
        let job_pods = config.is_kubernetes_mode();
        let sidecars = pod.sidecar_containers.iter().flatten().count();
        let Ok(plan) = build(&runner(RunnerSpec { config: config.into(), pod: pod.into(), ..RunnerSpec::default() }), &defaults()) else { return Ok(()) };
        let mut built: Vec<String> = plan.pod.spec.unwrap().containers.into_iter().map(|container| container.name).collect();
        built.truncate(built.len() - sidecars);
        let kept: Vec<&String> = built.iter().filter(|name| given.contains(name)).collect();
        let expected: Vec<&String> = given.iter().filter(|name| !job_pods || *name != "docker").collect();
        prop_assert_eq!(kept, expected);
        if !given.iter().any(|name| name == "runner") {
            prop_assert_eq!(&built[0], "runner");
        }
    }

    #[test]
    fn settings_alone_are_refused_for_two_reasons_only(config in config(), claim in pod()) {
        let pod = RunnerPodSpec { work_volume_claim_template: claim.work_volume_claim_template, ..RunnerPodSpec::default() };
        match build(&runner(RunnerSpec { config: config.clone().into(), pod: pod.into(), ..RunnerSpec::default() }), &defaults()) {
            Ok(_) => {}
            Err(PodError::RunnerVolumeDisabled) => prop_assert!(config.volume_size_limit.is_some()),
            Err(
                PodError::WorkClaimMissing | PodError::AccessModesMissing | PodError::AccessModeUnsupported { .. },
            ) => prop_assert!(config.is_kubernetes_mode()),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
