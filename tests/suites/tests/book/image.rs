//! The Dockerfile makes the image that `make image` writes as an OCI layout, from nothing that could change behind its back.

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::read;

const DOCKERFILE: &str = "deploy/image/Dockerfile";

/// Where `make image` unpacks what the image holds: the context of the Dockerfile.
const ROOT: &str = "target/image-root";

/// Pages with the command that uses the Dockerfile.
const PAGES: [&str; 4] = [DOCKERFILE, "deploy/README.md", "docs/install.md", "docs/getting-started.md"];

/// What the lines with this instruction say.
fn said<'a>(dockerfile: &'a str, instruction: &'a str) -> impl Iterator<Item = &'a str> {
    dockerfile.lines().filter_map(move |line| line.strip_prefix(instruction)?.strip_prefix(' '))
}

fn only(dockerfile: &str, instruction: &str) -> Result<String> {
    let mut all = said(dockerfile, instruction);
    let one = all.next().with_context(|| format!("no {instruction}"))?;
    ensure!(all.next().is_none(), "{instruction} twice");
    Ok(one.to_owned())
}

/// An instruction whose argument is a list, as `["run"]`; a shell would have to be in the image for the other form.
fn list(dockerfile: &str, instruction: &str) -> Result<Value> {
    let said = only(dockerfile, instruction)?;
    serde_json::from_str(&said).with_context(|| format!("{instruction} {said}"))
}

/// The same whoever builds it, and whenever: nothing, or an image that is named by its digest.
fn is_fixed(base: &str) -> bool {
    let digest = base.split_once("@sha256:").map(|(_, digest)| digest);
    base == "scratch" || digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[test]
fn base_that_could_change_is_told_from_one_that_could_not() {
    let digest = "0".repeat(64);
    for (base, fixed) in [
        ("scratch", true),
        (&*format!("debian@sha256:{digest}"), true),
        (&*format!("debian:trixie-slim@sha256:{digest}"), true),
        ("debian:trixie-slim", false),
        ("debian", false),
        ("debian@sha256:0000", false),
    ] {
        assert_eq!(is_fixed(base), fixed, "{base}");
    }
}

#[test]
fn dockerfile_has_no_base_that_could_change_and_copies_what_make_image_unpacks() -> Result<()> {
    let dockerfile = read(DOCKERFILE)?;
    let bases: Vec<&str> = said(&dockerfile, "FROM").filter_map(|from| from.split_whitespace().next()).collect();
    ensure!(!bases.is_empty() && bases.iter().all(|base| is_fixed(base)), "{bases:?}: name digests");
    // Whether it is there and complete is looked at by build.sh itself, which runs it.
    ensure!(only(&dockerfile, "COPY")? == ". /", "something else than the whole context is copied");
    for forbidden in ["ADD", "RUN"] {
        ensure!(said(&dockerfile, forbidden).next().is_none(), "{forbidden} makes an image that `make image` does not");
    }
    let recipe = read("Makefile")?;
    ensure!(
        recipe.contains(&format!(
            "rm -rf target/image {ROOT} target/image-files.tsv\n\tdeploy/image/build.sh $(RELEASED)/pacer target/image\n"
        )),
        "`make image` does not write {ROOT}"
    );
    for page in PAGES {
        let text = read(page)?;
        let builds: Vec<&str> = text.lines().filter(|line| line.contains("docker build ")).collect();
        ensure!(!builds.is_empty() && builds.iter().all(|line| line.ends_with(&format!(" {ROOT}"))), "{page}: {builds:?}");
    }
    Ok(())
}

#[test]
fn image_of_the_dockerfile_is_run_as_that_of_the_layout() -> Result<()> {
    let dockerfile = read(DOCKERFILE)?;
    let pairs = said(&dockerfile, "LABEL").map(|label| label.split_once('=').context("a label without a value"));
    let mut labels = Map::new();
    for pair in pairs {
        let (name, value) = pair?;
        labels.insert(name.to_owned(), value.into());
    }
    let environment: Vec<&str> = said(&dockerfile, "ENV").collect();
    // That of the layout is put there by what writes it.
    let version = labels.remove("org.opencontainers.image.version");
    ensure!(
        version == Some(env!("CARGO_PKG_VERSION").into()),
        "{version:?} is another version than {}",
        env!("CARGO_PKG_VERSION")
    );
    let made = json!({
        "User": only(&dockerfile, "USER")?,
        "Entrypoint": list(&dockerfile, "ENTRYPOINT")?,
        "Cmd": list(&dockerfile, "CMD")?,
        "WorkingDir": only(&dockerfile, "WORKDIR")?,
        "Env": environment,
        "Labels": labels,
    });
    let layout: Value = serde_json::from_str(&read("deploy/image/oci/config.json")?)?;
    ensure!(made == layout, "{made:#}\nis not what deploy/image/oci/config.json says:\n{layout:#}");
    Ok(())
}
