//! What `make release-push` sends where, with stand-ins for the programs that send it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::{elements, read, repository, text, yaml};

/// Writes down how it was called, and what it was given on its standard input where it was asked to read a password there.
const STAND_IN: &str = r#"#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case " $* " in
    *" --password-stdin "*) cat >"$GIVEN" ;;
    *" index append "*) echo "registry/name@sha256:1" ;;
    *" push "* | *" digest "*) echo "registry/name@sha256:0" ;;
esac
"#;

const TOKEN: &str = "a-token-that-nobody-sees";

/// Runs push.sh over a release with one file of each kind, with these variables.
fn push(directory: &Path, variables: &[(&str, &str)]) -> Result<Output> {
    let (files, policies, programs) = (directory.join("files"), directory.join("policies"), directory.join("programs"));
    for made in [&files, &policies, &programs] {
        fs::create_dir_all(made)?;
    }
    for name in ["crane", "oras", "cosign", "helm"] {
        let program = programs.join(name);
        fs::write(&program, STAND_IN)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    for name in ["pacer-chart-0.1.0.tgz", "SHA256SUMS"] {
        fs::write(files.join(name), "x")?;
    }
    fs::write(policies.join("oldest-first.wasm"), "x")?;
    for arch in ["amd64", "arm64"] {
        let image = files.join(format!("pacer-0.1.0-image-linux-{arch}.tar"));
        let packed = Command::new("tar").arg("-cf").arg(image).arg("-C").arg(&policies).arg(".").status()?;
        ensure!(packed.success(), "tar: {packed}");
    }
    let path = std::env::var("PATH").context("PATH")?;
    let mut command = Command::new("sh");
    command.arg(repository("deploy/release/push.sh")).args([&files, &policies]);
    command.env("PATH", format!("{}:{path}", programs.display())).env("HELM", programs.join("helm"));
    command.env("CALLS", directory.join("calls")).env("GIVEN", directory.join("given"));
    command.env_remove("REGISTRY_TOKEN").env_remove("REGISTRY_USER").envs(variables.iter().copied());
    command.output().context("push.sh")
}

#[test]
fn release_is_pushed_after_a_login_whose_token_no_argument_has() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let variables = [("REGISTRY", "ghcr.io/Some-Body"), ("REGISTRY_USER", "somebody"), ("REGISTRY_TOKEN", TOKEN)];
    let output = push(directory.path(), &variables)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = fs::read_to_string(directory.path().join("calls"))?;
    ensure!(fs::read_to_string(directory.path().join("given"))? == TOKEN);
    ensure!(!calls.contains(TOKEN) && !String::from_utf8_lossy(&output.stdout).contains(TOKEN), "{calls}");
    let place = |what: &str| calls.lines().position(|line| line.starts_with(what)).with_context(|| format!("no {what}: {calls}"));
    let login = place("crane auth login ghcr.io --username somebody --password-stdin")?;
    ensure!(login < place("crane push ")? && login < place("oras push ghcr.io/some-body/pacer-policies/oldest-first:0.1.0 ")?);
    ensure!(login < place("helm push ")? && calls.contains(" oci://ghcr.io/some-body/charts\n"), "{calls}");
    ensure!(!calls.contains("Some-Body"), "registries take no capitals: {calls}");
    Ok(())
}

#[test]
fn images_of_all_platforms_get_one_name_that_is_signed_with_them() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = push(directory.path(), &[("REGISTRY", "127.0.0.1:5000/x")])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = fs::read_to_string(directory.path().join("calls"))?;
    for arch in ["amd64", "arm64"] {
        let pushed = calls.lines().any(|line| line.starts_with("crane push ") && line.ends_with(&format!("/pacer:0.1.0-{arch}")));
        ensure!(pushed, "no image for {arch}: {calls}");
    }
    let one = "crane index append --manifest registry/name@sha256:0 --manifest registry/name@sha256:0 --tag 127.0.0.1:5000/x/pacer:0.1.0";
    ensure!(calls.lines().any(|line| line == one), "{calls}");
    ensure!(calls.lines().any(|line| line == "cosign sign --yes --recursive registry/name@sha256:1"), "{calls}");
    Ok(())
}

#[test]
fn release_is_pushed_without_a_login_where_no_token_is_given() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = push(directory.path(), &[("REGISTRY", "127.0.0.1:5000/x")])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = fs::read_to_string(directory.path().join("calls"))?;
    ensure!(!calls.contains("auth login") && calls.contains("crane push "), "{calls}");
    // A token is somebody's.
    let output = push(directory.path(), &[("REGISTRY", "ghcr.io/x"), ("REGISTRY_TOKEN", TOKEN)])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("REGISTRY_USER") && !said.contains(TOKEN), "{said}");
    Ok(())
}

#[test]
fn workflow_gives_the_release_what_it_needs_to_push() -> Result<()> {
    let workflow = yaml(".github/workflows/release.yml")?;
    let job = &workflow["jobs"]["release"];
    ensure!(text(&job["permissions"], "packages") == "write", "{job}");
    let steps: Vec<_> = elements(job, "steps").filter(|step| text(step, "run") == "make release-push").collect();
    let [step] = steps.as_slice() else { anyhow::bail!("{steps:?}") };
    for (variable, value) in [("REGISTRY_USER", "${{ github.actor }}"), ("REGISTRY_TOKEN", "${{ github.token }}")] {
        // Of this step alone: no other needs it.
        ensure!(text(&step["env"], variable) == value && job["env"].get(variable).is_none(), "{variable}");
    }
    // Both platforms are made before anything is pushed.
    let place = |target: &str| elements(job, "steps").position(|step| text(step, "run") == format!("make {target}"));
    ensure!(place("release-all").is_some() && place("release-all") < place("release-push"), "{job}");
    ensure!(
        read("Makefile")?.contains("\tfor arch in amd64 arm64; do\n\t  $(MAKE) release ARCH=\"$$arch\"\n"),
        "make release-all lacks a platform"
    );
    ensure!(text(&job["env"], "SOURCE_URL") == "${{ github.server_url }}/${{ github.repository }}", "{job}");
    Ok(())
}
