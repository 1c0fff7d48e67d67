//! One rule at a time.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_operator::pod::{GeneratedAccess, PodDefaults, PodError, PodWarning, SharedAccount};

use crate::{build, defaults, runner, spec};

fn pod_of(yaml: &str) -> Pod {
    build(&runner(spec(yaml)), &defaults()).unwrap().pod
}

fn error_of(yaml: &str) -> PodError {
    build(&runner(spec(yaml)), &defaults()).unwrap_err()
}

fn warnings_of(yaml: &str) -> Vec<PodWarning> {
    build(&runner(spec(yaml)), &defaults()).unwrap().warnings
}

fn pod_spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    pod_spec(pod).containers.iter().find(|container| container.name == name).unwrap()
}

fn variables<'a>(container: &'a Container, name: &str) -> Vec<&'a EnvVar> {
    container.env.iter().flatten().filter(|variable| variable.name == name).collect()
}

/// The value of a variable that must exist at most once.
fn value<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let found = variables(container, name);
    assert!(found.len() <= 1, "{name} is there {} times", found.len());
    found.first().and_then(|variable| variable.value.as_deref())
}

fn mounts(container: &Container) -> Vec<(&str, &str)> {
    container.volume_mounts.iter().flatten().map(|mount| (mount.name.as_str(), mount.mount_path.as_str())).collect()
}

fn volumes(pod: &Pod) -> Vec<&str> {
    pod_spec(pod).volumes.iter().flatten().map(|volume| volume.name.as_str()).collect()
}

fn containers(pod: &Pod) -> Vec<&str> {
    pod_spec(pod).containers.iter().map(|container| container.name.as_str()).collect()
}

#[test]
fn the_mirror_of_the_spec_wins_and_an_empty_one_means_none() {
    let with_mirror = PodDefaults { docker_registry_mirror: Some("https://default".to_owned()), ..defaults() };
    let with_empty = PodDefaults { docker_registry_mirror: Some(String::new()), ..defaults() };
    for (field, operator, expected) in [
        ("", &with_mirror, Some("https://default")),
        ("dockerRegistryMirror: https://own", &with_mirror, Some("https://own")),
        ("dockerRegistryMirror: ''", &with_mirror, None),
        ("dockerRegistryMirror: null", &with_mirror, Some("https://default")),
        ("", &defaults(), None),
        ("", &with_empty, None),
        ("dockerRegistryMirror: https://own", &defaults(), Some("https://own")),
    ] {
        let sidecar = build(&runner(spec(&format!("dockerEnabled: true\n{field}"))), operator).unwrap().pod;
        let arguments = container(&sidecar, "docker").args.clone().unwrap();
        let mirror = arguments.iter().find_map(|argument| argument.strip_prefix("--registry-mirror="));
        assert_eq!(mirror, expected, "sidecar, {field:?}");
        assert_eq!(value(container(&sidecar, "runner"), "DOCKER_REGISTRY_MIRROR"), None);

        let inside = build(&runner(spec(&format!("dockerdWithinRunnerContainer: true\n{field}"))), operator).unwrap().pod;
        assert_eq!(value(container(&inside, "runner"), "DOCKER_REGISTRY_MIRROR"), expected, "in runner, {field:?}");
    }
}

#[test]
fn the_token_is_a_reference_unless_the_user_brings_a_source() {
    for (env, literal, secret) in [
        ("[]", None, Some("registration")),
        ("[{name: RUNNER_TOKEN, value: ''}]", None, Some("registration")),
        ("[{name: RUNNER_TOKEN}]", None, Some("registration")),
        ("[{name: RUNNER_TOKEN, value: own}]", Some("own"), None),
        ("[{name: RUNNER_TOKEN, valueFrom: {secretKeyRef: {name: mine, key: t}}}]", None, Some("mine")),
        ("[{name: RUNNER_TOKEN, value: own}, {name: RUNNER_TOKEN, value: ''}]", None, Some("registration")),
    ] {
        let pod = pod_of(&format!("env: {env}"));
        let found = variables(container(&pod, "runner"), "RUNNER_TOKEN");
        assert_eq!(found.len(), 1, "{env}");
        assert_eq!(found[0].value.as_deref().filter(|value| !value.is_empty()), literal, "{env}");
        let reference = found[0].value_from.as_ref().and_then(|source| source.secret_key_ref.as_ref());
        assert_eq!(reference.map(|key| key.name.as_str()), secret, "{env}");
    }
}

#[test]
fn a_runner_is_refused_when_it_would_not_register_as_its_pod() {
    for (env, accepted) in [
        ("[]", true),
        ("[{name: RUNNER_NAME, value: ''}]", true),
        ("[{name: RUNNER_NAME, value: runner}]", true),
        ("[{name: RUNNER_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", true),
        ("[{name: RUNNER_NAME, value: other}]", false),
        ("[{name: RUNNER_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]", false),
    ] {
        match build(&runner(spec(&format!("env: {env}"))), &defaults()) {
            Ok(plan) => {
                assert!(accepted, "{env}");
                assert_eq!(
                    (plan.warnings.len(), variables(container(&plan.pod, "runner"), "RUNNER_NAME").len()),
                    (0, 1),
                    "{env}"
                );
            }
            Err(error) => {
                assert_eq!((accepted, &error), (false, &PodError::RunnerRenamed { pod: "runner".to_owned() }), "{env}");
                assert!(error.to_string().contains("remove it"), "{error}");
            }
        }
    }
}

/// What the pod does so that a job shows and may finish: `(probe, hook, grace period, graceful stop of the runner and of dockerd)`.
#[test]
fn a_pod_shows_its_worker_and_lets_it_finish_unless_the_user_says_otherwise() {
    let own_probe = "containers: [{name: runner, readinessProbe: {exec: {command: [mine]}}}]";
    let own_startup = "containers: [{name: runner, startupProbe: {exec: {command: [mine]}}}]";
    let own_hook = "containers: [{name: runner, lifecycle: {preStop: {exec: {command: [mine]}}}}]";
    for (spec_text, probe, hook, grace, patience, docker) in [
        ("dockerEnabled: false", true, true, 432_000, Some("431970"), None),
        ("{}", true, true, 432_000, Some("431970"), Some("431970")),
        (own_probe, false, true, 432_000, Some("431970"), Some("431970")),
        (own_startup, false, true, 432_000, Some("431970"), Some("431970")),
        (own_hook, true, false, 432_000, Some("431970"), Some("431970")),
        ("terminationGracePeriodSeconds: 110", true, true, 110, Some("80"), Some("80")),
        ("terminationGracePeriodSeconds: 30", true, true, 30, None, None),
        ("env: [{name: RUNNER_GRACEFUL_STOP_TIMEOUT, value: '90'}]", true, true, 432_000, Some("90"), Some("90")),
        ("envFrom: [{configMapRef: {name: a}}]", true, true, 432_000, None, None),
    ] {
        let plan = build(&runner(spec(spec_text)), &defaults()).unwrap();
        let pod = plan.pod.spec.as_ref().unwrap();
        let found = container(&plan.pod, "runner");
        let script = found.readiness_probe.iter().filter_map(|probe| probe.exec.as_ref()?.command.as_ref()?.last());
        assert_eq!(script.filter(|script| script.contains("Runner.Worker")).count(), usize::from(probe), "{spec_text}");
        assert_eq!(
            plan.pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("actions.summerwind.dev/worker-probe")),
            probe
        );
        let hooks =
            found.lifecycle.iter().filter_map(|lifecycle| lifecycle.pre_stop.as_ref()?.exec.as_ref()?.command.as_ref()?.last());
        assert_eq!(hooks.filter(|script| script.contains("Runner.Worker")).count(), usize::from(hook), "{spec_text}");
        assert_eq!(pod.termination_grace_period_seconds, Some(grace), "{spec_text}");
        let stop = |name: &str| {
            let of = pod.containers.iter().find(|container| container.name == name)?;
            of.env.iter().flatten().find(|variable| variable.name == "RUNNER_GRACEFUL_STOP_TIMEOUT")?.value.clone()
        };
        assert_eq!((stop("runner").as_deref(), stop("docker").as_deref()), (patience, docker), "{spec_text}");
    }
}

/// The scripts as a shell runs them: a process named like the agent's worker is seen for as long as it lives.
#[test]
fn the_scripts_see_a_worker_process_while_it_runs() {
    let plan = build(&runner(spec("dockerEnabled: false")), &defaults()).unwrap();
    let found = container(&plan.pod, "runner");
    let command = |exec: Option<&k8s_openapi::api::core::v1::ExecAction>| exec.unwrap().command.clone().unwrap();
    let probe = command(found.readiness_probe.as_ref().unwrap().exec.as_ref());
    let hook = command(found.lifecycle.as_ref().unwrap().pre_stop.as_ref().unwrap().exec.as_ref());
    let run = |command: &[String]| std::process::Command::new(&command[0]).args(&command[1..]).spawn().unwrap();
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker");
    std::fs::create_dir_all(&directory).unwrap();
    let worker = directory.join("Runner.Worker");
    std::fs::copy("/bin/sh", &worker).unwrap();
    assert!(run(&probe).wait().unwrap().success() && run(&hook).wait().unwrap().success(), "nobody works");
    let works = std::process::Command::new(&worker).args(["-c", "read end; :"]).stdin(std::process::Stdio::piped()).spawn();
    let mut process = works.unwrap();
    // The name is there once the child has become that program.
    while !std::fs::read_to_string(format!("/proc/{}/comm", process.id())).unwrap().starts_with("Runner.Worker") {
        std::thread::yield_now();
    }
    let mut waiting = run(&hook);
    assert_eq!(run(&probe).wait().unwrap().code(), Some(1));
    assert!(waiting.try_wait().unwrap().is_none(), "the hook waits");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(waiting.wait().unwrap().success() && run(&probe).wait().unwrap().success(), "the work is over");
}

#[test]
fn the_contract_wins_over_the_users_env_and_says_so() {
    let yaml = "organization: acme\nenv: [{name: A, value: a}, {name: RUNNER_ORG, value: mine}, {name: B, value: $(RUNNER_ORG)}]";
    let plan = build(&runner(spec(yaml)), &defaults()).unwrap();
    let runner_container = container(&plan.pod, "runner");
    assert_eq!(value(runner_container, "RUNNER_ORG"), Some("acme"));
    let order: Vec<&str> = runner_container.env.iter().flatten().take(4).map(|variable| variable.name.as_str()).collect();
    assert_eq!(order, ["A", "RUNNER_ORG", "B", "RUNNER_REPO"], "a variable that refers to another must stay behind it");
    let [warning] = plan.warnings.as_slice() else { panic!("{:?}", plan.warnings) };
    assert_eq!(
        warning.to_string(),
        "the value of RUNNER_ORG in the env of container \"runner\" is replaced by the operator's: remove it and use the field \
         that stands for it (organization)"
    );
    assert_eq!(warnings_of("env: [{name: RUNNER_EPHEMERAL, value: 'true'}]"), [], "the same value is nothing to report");
}

#[test]
fn a_containers_own_settings_win_as_a_whole() {
    let pod = pod_of(
        "
        containers:
          - name: runner
            env: [{name: A, value: container}]
            imagePullPolicy: Never
            resources: {limits: {cpu: '1'}}
        env: [{name: A, value: spec}, {name: B, value: spec}]
        envFrom: [{secretRef: {name: s}}]
        imagePullPolicy: IfNotPresent
        resources: {limits: {cpu: '2', memory: 1Gi}, requests: {cpu: 100m}}
        ",
    );
    let runner = container(&pod, "runner");
    assert_eq!(value(runner, "A"), Some("container"));
    assert_eq!(value(runner, "B"), None);
    assert_eq!(runner.env_from.as_ref().map(Vec::len), Some(1));
    assert_eq!(runner.image_pull_policy.as_deref(), Some("Never"));
    let resources = runner.resources.as_ref().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap().keys().collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "1");
    assert_eq!(resources.requests.as_ref().unwrap()["cpu"].0, "100m");
}

#[test]
fn fields_for_reserved_containers_hold_where_containers_does_not_list_them() {
    let pod = pod_of(
        "
        containers: [{name: extra, image: e}]
        env: [{name: A, value: a}]
        dockerEnv: [{name: D, value: d}]
        dockerVolumeMounts: [{name: work, mountPath: /elsewhere}]
        ",
    );
    assert_eq!(containers(&pod), ["runner", "extra", "docker"]);
    assert_eq!(value(container(&pod, "runner"), "A"), Some("a"));
    assert_eq!(value(container(&pod, "docker"), "D"), Some("d"));
    assert_eq!(mounts(container(&pod, "docker")), [("work", "/elsewhere"), ("runner", "/runner"), ("var-run", "/run")]);
}

#[test]
fn the_image_comes_from_the_spec_then_the_container_then_the_operator() {
    for (yaml, image) in [
        ("{}", "default-runner-image"),
        ("containers: [{name: runner, image: own}]", "own"),
        ("containers: [{name: runner, image: own}]\nimage: spec", "spec"),
        ("containers: [{name: runner, image: own}]\nimage: ''", "own"),
    ] {
        assert_eq!(container(&pod_of(yaml), "runner").image.as_deref(), Some(image), "{yaml}");
    }
    let pod = pod_of("containers: [{name: docker, image: own/dind, args: [--debug]}]\ndockerMTU: 1300");
    let docker = container(&pod, "docker");
    assert_eq!(docker.image.as_deref(), Some("own/dind"));
    assert_eq!(
        docker.args.as_deref().unwrap(),
        ["dockerd", "--host=unix:///run/docker.sock", "--debug", "--group=$(DOCKER_GROUP_GID)", "--mtu", "1300"]
    );
    assert_eq!(value(docker, "DOCKERD_ROOTLESS_ROOTLESSKIT_MTU"), Some("1300"));
    assert_eq!(containers(&pod), ["runner", "docker"]);
}

#[test]
fn pull_secrets_of_the_spec_replace_the_operators() {
    let operator = PodDefaults { image_pull_secrets: vec!["default".to_owned()], ..defaults() };
    for (yaml, operator, expected) in [
        ("{}", &operator, vec!["default"]),
        ("imagePullSecrets: []", &operator, vec!["default"]),
        ("imagePullSecrets: [{name: own}]", &operator, vec!["own"]),
        ("imagePullSecrets: [{name: own}]", &defaults(), vec!["own"]),
        ("{}", &defaults(), vec![]),
    ] {
        let pod = build(&runner(spec(yaml)), operator).unwrap().pod;
        let secrets: Vec<&str> = pod_spec(&pod).image_pull_secrets.iter().flatten().map(|secret| secret.name.as_str()).collect();
        assert_eq!(secrets, expected, "{yaml}");
    }
}

#[test]
fn a_size_limit_of_zero_removes_the_runner_volume() {
    for zero in ["0", "'0'", "0Gi"] {
        let pod = pod_of(&format!("volumeSizeLimit: {zero}\ndockerEnabled: false"));
        assert_eq!(volumes(&pod), [""; 0]);
        assert_eq!(mounts(container(&pod, "runner")), []);
        let inside = pod_of(&format!("volumeSizeLimit: {zero}\ndockerdWithinRunnerContainer: true"));
        assert_eq!(volumes(&inside), [""; 0]);
        assert_eq!(error_of(&format!("volumeSizeLimit: {zero}")), PodError::RunnerVolumeDisabled);
    }
}

#[test]
fn the_runner_volume_has_the_medium_and_size_of_the_spec() {
    for (yaml, medium, size) in [
        ("{}", None, None),
        ("volumeStorageMedium: ''", None, None),
        ("volumeStorageMedium: Memory\nvolumeSizeLimit: 2Gi", Some("Memory"), Some("2Gi")),
        ("volumeSizeLimit: 1000", None, Some("1000")),
    ] {
        let pod = pod_of(yaml);
        let volume = pod_spec(&pod).volumes.iter().flatten().find(|volume| volume.name == "runner").unwrap();
        let source = volume.empty_dir.as_ref().unwrap();
        assert_eq!(source.medium.as_deref(), medium, "{yaml}");
        assert_eq!(source.size_limit.as_ref().map(|size| size.0.as_str()), size, "{yaml}");
    }
}

#[test]
fn privileges_follow_docker_and_selinux() {
    let confined = "securityContext: {seLinuxOptions: {level: s0}}";
    for (yaml, on_runner, on_docker) in [
        ("{}".to_owned(), None, Some(Some(true))),
        (confined.to_owned(), None, Some(Some(false))),
        ("dockerEnabled: false".to_owned(), None, None),
        ("dockerdWithinRunnerContainer: true".to_owned(), Some(true), None),
        (format!("dockerdWithinRunnerContainer: true\n{confined}"), None, None),
        ("containers: [{name: docker, securityContext: {runAsUser: 1000}}]".to_owned(), None, Some(None)),
    ] {
        let pod = pod_of(&yaml);
        let privileged = |container: &Container| container.security_context.as_ref().and_then(|context| context.privileged);
        assert!(container(&pod, "runner").security_context.is_some());
        assert_eq!(privileged(container(&pod, "runner")), on_runner, "{yaml}");
        let docker = pod_spec(&pod).containers.iter().find(|container| container.name == "docker");
        assert_eq!(docker.map(privileged), on_docker, "{yaml}");
    }
    let forced = "dockerdWithinRunnerContainer: true\ncontainers: [{name: runner, securityContext: {privileged: false}}]";
    assert_eq!(warnings_of(forced), [PodWarning::PrivilegeForced { container: "runner".to_owned() }]);
}

#[test]
fn job_pods_need_no_docker_and_a_claim() {
    let claim = |modes: &str| {
        format!(
            "containerMode: kubernetes\nworkVolumeClaimTemplate: {{storageClassName: c, accessModes: {modes}, resources: {{}}}}"
        )
    };
    for (modes, same_node) in [
        ("[ReadWriteOnce]", "true"),
        ("[ReadWriteMany]", "false"),
        ("[ReadWriteMany, ReadWriteOnce]", "true"),
        ("[ReadWriteOnce, ReadOnlyMany]", "true"),
    ] {
        let pod = pod_of(&format!("{}\ndockerdWithinRunnerContainer: true", claim(modes)));
        assert_eq!(containers(&pod), ["runner"]);
        let runner = container(&pod, "runner");
        assert_eq!(value(runner, "ACTIONS_RUNNER_REQUIRE_SAME_NODE"), Some(same_node), "{modes}");
        assert_eq!(value(runner, "DOCKER_ENABLED"), Some("false"));
        assert_eq!(mounts(runner), [("work", "/runner/_work"), ("runner", "/runner")]);
        assert_eq!(volumes(&pod), ["work", "runner"]);
        assert_eq!(pod_spec(&pod).service_account_name.as_deref(), Some("runner"));
    }
    for (yaml, error) in [
        ("containerMode: kubernetes".to_owned(), PodError::WorkClaimMissing),
        (claim("[]"), PodError::AccessModesMissing),
        (claim("[ReadOnlyMany]"), PodError::AccessModeUnsupported { mode: "ReadOnlyMany".to_owned() }),
        (format!("{}\nvolumes: [{{name: work, emptyDir: {{}}}}]", claim("[ReadWriteOnce]")), PodError::WorkVolumeReserved),
        (format!("{}\nvolumeMounts: [{{name: work, mountPath: /w}}]", claim("[ReadWriteOnce]")), PodError::WorkMountReserved),
        (
            format!(
                "{}\ncontainers: [{{name: runner, volumeMounts: [{{name: work, mountPath: /w}}]}}]",
                claim("[ReadWriteOnce]")
            ),
            PodError::WorkMountReserved,
        ),
    ] {
        assert_eq!(error_of(&yaml), error, "{yaml}");
    }
}

#[test]
fn the_service_account_is_the_runners_own_where_it_needs_one() {
    let claim = "containerMode: kubernetes\n\
                 workVolumeClaimTemplate: {storageClassName: c, accessModes: [ReadWriteOnce], resources: {}}";
    let own = "serviceAccountName: builder";
    for (yaml, hook, account, access) in [
        ("{}".to_owned(), false, None, None),
        ("{}".to_owned(), true, Some("runner"), Some((true, false))),
        (own.to_owned(), true, Some("builder"), None),
        (claim.to_owned(), false, Some("runner"), Some((false, true))),
        (claim.to_owned(), true, Some("runner"), Some((true, true))),
        (format!("{claim}\n{own}"), true, Some("builder"), None),
        ("serviceAccountName: ''".to_owned(), false, None, None),
    ] {
        let operator = PodDefaults { status_hook: hook, ..defaults() };
        let runner = runner(spec(&yaml));
        let pod = build(&runner, &operator).unwrap().pod;
        assert_eq!(pod_spec(&pod).service_account_name.as_deref(), account, "{yaml}, hook {hook}");
        assert_eq!(value(container(&pod, "runner"), "RUNNER_STATUS_UPDATE_HOOK"), Some(if hook { "true" } else { "false" }));
        let access = access.map(|(status_hook, job_pods)| GeneratedAccess { status_hook, job_pods });
        assert_eq!(GeneratedAccess::of(&runner.spec, hook), access, "{yaml}, hook {hook}");
    }
}

/// The installation's roles, by name.
fn shipped_role(name: &str) -> Vec<PolicyRule> {
    let text = include_str!("../../../../deploy/base/rbac.yaml");
    let documents: Vec<serde_json::Value> = text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect();
    let found = documents.into_iter().find(|one| one["kind"] == "ClusterRole" && one["metadata"]["name"] == name).unwrap();
    serde_json::from_value(found["rules"].clone()).unwrap()
}

fn granted(rules: &[PolicyRule]) -> Vec<(String, String)> {
    rules.iter().map(|rule| (rule.resources.clone().unwrap().join(","), rule.verbs.join(","))).collect()
}

#[test]
fn job_pods_are_granted_what_the_hooks_use_and_nothing_else() {
    let expected = [
        ("pods", "get,list,create,delete"),
        ("pods/exec", "get,create"),
        ("pods/log", "get,list,watch"),
        ("jobs", "get,list,create,delete"),
        ("secrets", "get,list,create,delete"),
    ];
    let role = shipped_role("pacer-job-pods");
    assert_eq!(granted(&role), expected.map(|(resource, verbs)| (resource.to_owned(), verbs.to_owned())));
    let bind = shipped_role("pacer-access").into_iter().find(|rule| rule.verbs == ["bind"]).unwrap();
    assert_eq!(bind.resource_names.unwrap(), ["pacer-job-pods"], "what is bound is that role alone");
}

#[test]
fn runners_share_an_account_unless_they_report_on_themselves() {
    let claim = "containerMode: kubernetes";
    let set = SharedAccount::of_target(ScaleTargetKind::RunnerDeployment, "ci", "web");
    for (yaml, hook, shared, account, bindings) in [
        (claim, false, Some(&set), "web-job-pods", vec![("web-job-pods", "ClusterRole", "the-role")]),
        (claim, false, None, "runner", vec![("runner-job-pods", "ClusterRole", "the-role")]),
        ("{}", true, Some(&set), "runner", vec![("runner", "Role", "runner")]),
        (claim, true, Some(&set), "runner", vec![("runner", "Role", "runner"), ("runner-job-pods", "ClusterRole", "the-role")]),
    ] {
        let runner = runner(spec(yaml));
        let made = GeneratedAccess::of(&runner.spec, hook).unwrap().account(&runner, shared, "the-role");
        let what = format!("{yaml}, hook {hook}, {shared:?}");
        assert_eq!((made.account.metadata.name.as_deref(), made.shared), (Some(account), account != "runner"), "{what}");
        let found: Vec<_> = made
            .bindings
            .iter()
            .map(|one| (one.metadata.name.as_deref().unwrap(), one.role_ref.kind.as_str(), one.role_ref.name.as_str()))
            .collect();
        assert_eq!(found, bindings, "{what}");
        let subjects = made.bindings.iter().flat_map(|one| one.subjects.iter().flatten());
        assert!(subjects.into_iter().all(|one| one.name == account && one.namespace.as_deref() == Some("ci")), "{what}");
        // The runner's go with it. The set's must outlive the set while its runners drain.
        let owners = made.account.metadata.owner_references.unwrap_or_default();
        assert_eq!(
            owners.iter().map(|owner| owner.kind.as_str()).collect::<Vec<_>>(),
            if made.shared { vec![] } else { vec!["Runner"] }
        );
        assert_eq!(made.role.is_some(), hook, "{what}");
        if let Some(role) = made.role {
            let [rule] = role.rules.as_deref().unwrap() else { panic!("{what}: {:?}", role.rules) };
            assert_eq!(granted(std::slice::from_ref(rule)), [("runners/status".to_owned(), "patch".to_owned())]);
            assert_eq!(rule.resource_names.as_deref().unwrap(), ["runner"]);
        }
    }
}

#[test]
fn volumes_named_like_the_operators_take_their_place() {
    let pod = pod_of(
        "
        volumes:
          - {name: runner, hostPath: {path: /fast}}
          - {name: var-run, emptyDir: {medium: Memory, sizeLimit: 5M}}
        volumeMounts:
          - {name: runner, mountPath: /runner, subPath: a}
          - {name: var-run, mountPath: /var/other}
        ",
    );
    assert_eq!(volumes(&pod), ["work", "runner", "var-run"]);
    assert!(pod_spec(&pod).volumes.as_ref().unwrap()[1].host_path.is_some());
    assert_eq!(
        mounts(container(&pod, "runner")),
        [("work", "/runner/_work"), ("var-run", "/run"), ("runner", "/runner"), ("var-run", "/var/other")]
    );
}

#[test]
fn contradictions_are_refused_with_the_field_and_the_cure() {
    for (yaml, text) in [
        (
            "volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]",
            "volumes has two entries named \"a\": rename or remove one of them",
        ),
        (
            "volumeMounts: [{name: gone, mountPath: /x}]",
            "container \"runner\" mounts \"gone\", but volumes has no entry of that name: add one or remove the mount",
        ),
        (
            "initContainers: [{name: i, volumeMounts: [{name: gone, mountPath: /x}]}]",
            "container \"i\" mounts \"gone\", but volumes has no entry of that name: add one or remove the mount",
        ),
        (
            "volumes: [{name: a, emptyDir: {}}]\nvolumeMounts: [{name: a, mountPath: /runner}]",
            "container \"runner\" mounts \"a\" at \"/runner\", where another volume is mounted already: choose another path, or \
             name the volume like the operator's own (runner, work, var-run) to put it in that one's place",
        ),
        (
            "sidecarContainers: [{name: docker}]",
            "two containers are named \"docker\": rename one of those in containers, sidecarContainers and initContainers (the \
             operator itself adds \"runner\", and \"docker\" unless dockerEnabled is false)",
        ),
        (
            "initContainers: [{name: runner}]",
            "two containers are named \"runner\": rename one of those in containers, sidecarContainers and initContainers (the \
             operator itself adds \"runner\", and \"docker\" unless dockerEnabled is false)",
        ),
        (
            "volumeSizeLimit: 0",
            "volumeSizeLimit 0 disables the volume at /runner, which the docker sidecar shares with the runner: remove \
             volumeSizeLimit, or set dockerEnabled: false or dockerdWithinRunnerContainer: true",
        ),
    ] {
        assert_eq!(error_of(yaml).to_string(), text, "{yaml}");
    }
}

#[test]
fn what_has_no_effect_is_reported() {
    for (yaml, expected) in [
        ("{}", vec![]),
        ("ephemeralContainers: []", vec![]),
        ("ephemeralContainers: [{name: debug}]", vec![PodWarning::EphemeralContainersDropped { count: 1 }]),
        ("containerMode: Kubernetes", vec![PodWarning::ContainerModeUnknown { value: "Kubernetes".to_owned() }]),
        ("containerMode: ''", vec![]),
        (
            "workVolumeClaimTemplate: {storageClassName: c, accessModes: [ReadWriteOnce], resources: {}}",
            vec![PodWarning::WorkClaimUnused],
        ),
        (
            "containers: [{name: docker, lifecycle: {postStart: {exec: {command: [a]}}}}]",
            vec![PodWarning::LifecycleReplaced { container: "docker".to_owned() }],
        ),
        (
            "dockerMTU: 1400\ndockerEnv: [{name: DOCKERD_ROOTLESS_ROOTLESSKIT_MTU, value: '1'}]",
            vec![PodWarning::EnvReplaced {
                container: "docker".to_owned(),
                variable: "DOCKERD_ROOTLESS_ROOTLESSKIT_MTU".to_owned(),
            }],
        ),
        ("env: [{name: MTU, value: '1400'}]\ndockerdWithinRunnerContainer: true", vec![]),
    ] {
        assert_eq!(warnings_of(yaml), expected, "{yaml}");
    }
}

#[test]
fn a_runner_that_no_api_server_returned_has_no_pod() {
    for field in ["metadata.name", "metadata.namespace", "metadata.uid"] {
        let mut incomplete = runner(spec("{}"));
        let metadata = &mut incomplete.metadata;
        match field {
            "metadata.name" => metadata.name = None,
            "metadata.namespace" => metadata.namespace = None,
            _ => metadata.uid = Some(String::new()),
        }
        assert_eq!(build(&incomplete, &defaults()).unwrap_err(), PodError::Unidentified { field });
    }
}
