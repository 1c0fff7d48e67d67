//! Runners that only register: their pod, and what their container runs, in a real shell.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pacer_api::names::annotation;
use pacer_operator::pod::REGISTER;

use super::{build, defaults, runner, spec};

#[test]
fn the_pod_runs_the_registration_and_nothing_else() {
    let mut runner = runner(spec(
        "labels: [gpu]\n\
         dockerEnabled: false\n\
         containers: [{name: runner, command: [agent], lifecycle: {preStop: {exec: {command: [x]}}}}, {name: proxy, image: p}]",
    ));
    runner.metadata.annotations = Some([(annotation::REGISTRATION_ONLY.to_owned(), "true".to_owned())].into());
    let pod = build(&runner, &defaults()).unwrap().pod.spec.unwrap();
    let [container] = pod.containers.as_slice() else { panic!("{:?}", pod.containers) };
    assert_eq!(container.command.as_deref().unwrap(), ["/bin/bash", "-c"]);
    assert_eq!(container.args.as_deref().unwrap(), [REGISTER]);
    assert!(container.lifecycle.is_none());
    // Kubernetes replaces $(NAME) in arguments, and leaves the shell's own forms alone.
    assert!(!REGISTER.contains("$("), "{REGISTER}");
    let value = |name: &str| container.env.iter().flatten().find(|one| one.name == name).and_then(|one| one.value.clone());
    assert_eq!(value("RUNNER_REGISTRATION_ONLY").as_deref(), Some("true"));
    assert_eq!(value("RUNNER_NAME").as_deref(), Some("runner"));
}

/// The runner image, as far as it is asked: `config.sh` writes its arguments down and succeeds at the given try.
struct Image {
    assets: PathBuf,
    home: PathBuf,
}

impl Image {
    fn new(name: &str, succeeds_at: u32) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("registration-{name}"));
        let _ = fs::remove_dir_all(&root);
        let image = Self { assets: root.join("assets"), home: root.join("home") };
        fs::create_dir_all(&image.home).unwrap();
        fs::create_dir_all(&image.assets).unwrap();
        let config = format!(
            "#!/bin/bash\nprintf '%s\\n' \"$@\" > arguments\necho try >> tries\n\
             if [ \"$(wc -l < tries)\" -ge {succeeds_at} ]; then touch .runner; else exit 1; fi\n"
        );
        image.file("config.sh", &config);
        image.file("run.sh", "#!/bin/bash\ntouch ran\n");
        image
    }

    fn file(&self, name: &str, content: &str) {
        let path = self.assets.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, variables: &[(&str, &str)]) -> Output {
        Command::new("/bin/bash")
            .args(["-c", REGISTER])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("RUNNER_ASSETS_DIR", &self.assets)
            .env("RUNNER_HOME", &self.home)
            .envs([("RUNNER_NAME", "web-1"), ("RUNNER_TOKEN", "secret"), ("GITHUB_URL", "https://github.com/")])
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    fn arguments(&self) -> Vec<String> {
        fs::read_to_string(self.home.join("arguments")).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_script_registers_as_the_images_entry_point_does() {
    let common = ["--unattended", "--replace", "--name", "web-1"];
    for (name, variables, rest) in [
        (
            "repository",
            vec![("RUNNER_REPO", "acme/app"), ("RUNNER_ORG", ""), ("RUNNER_LABELS", "gpu,big one"), ("RUNNER_GROUP", "g")],
            vec!["--url", "https://github.com/acme/app", "--token", "secret", "--labels", "gpu,big one"],
        ),
        (
            "organization",
            vec![("RUNNER_ORG", "acme"), ("RUNNER_REPO", ""), ("RUNNER_LABELS", ""), ("RUNNER_GROUP", "the group")],
            vec!["--url", "https://github.com/acme", "--token", "secret", "--runnergroup", "the group"],
        ),
        (
            "enterprise",
            vec![("RUNNER_ENTERPRISE", "corp"), ("DISABLE_RUNNER_UPDATE", "true"), ("GITHUB_URL", "https://ghes")],
            vec!["--url", "https://ghes/enterprises/corp", "--token", "secret", "--disableupdate"],
        ),
    ] {
        let image = Image::new(name, 1);
        let output = image.start(&variables);
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(image.arguments(), [&common[..], &rest].concat(), "{name}");
        assert!(!image.home.join("ran").exists(), "{name}: the agent was started");
    }
}

#[test]
fn the_script_tries_again_and_says_what_is_missing() {
    let image = Image::new("second-try", 2);
    assert!(image.start(&[("RUNNER_ORG", "acme")]).status.success());
    let other = Image::new("no-runner-image", 1);
    fs::remove_file(other.assets.join("config.sh")).unwrap();
    let output = other.start(&[("RUNNER_ORG", "acme")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a runner image"), "{output:?}");
}
