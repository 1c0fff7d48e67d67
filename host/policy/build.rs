//! Builds the shipped policy, and the interpreter of policies that are text, for WebAssembly and turns them into components, which the
//! crate embeds.
//!
//! The nested cargo has a target directory of its own: the outer one holds the lock of the other until this script ends.

#![allow(clippy::print_stdout, reason = "a build script talks to cargo on standard output")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

const TARGET: &str = "wasm32-unknown-unknown";
/// What is embedded: the package, the directory of its sources, and the name of the component.
const EMBEDDED: [(&str, &str, &str); 2] = [
    ("pacer-policy-default", "policies/default", "default.wasm"),
    ("pacer-policy-interpreter", "policies/interpreter", "interpreter.wasm"),
];
const PROFILE: &str = "policy";

/// What the outer cargo, clippy or a wrapper sets for host code and must not reach a build for another target.
const HOST_ONLY: [&str; 11] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
];

fn main() -> ExitCode {
    match embed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            for line in problem.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn embed() -> Result<(), String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let root = workspace()?;
    for input in ["policies/sdk", "wit", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    target_installed()?;
    for (package, directory, component) in EMBEDDED {
        // A path that is not there would always count as changed.
        let inputs = ["src", "Cargo.toml", "Cargo.lock"].map(|input| root.join(directory).join(input));
        for input in inputs.iter().filter(|input| input.exists()) {
            println!("cargo::rerun-if-changed={}", input.display());
        }
        let path = out.join(component);
        fs::write(&path, component_of(package, &build(package, directory, &root, &target_dir(&out))?)?)
            .map_err(|error| format!("{} can't be written: {error}", path.display()))?;
    }
    Ok(())
}

fn component_of(package: &str, module: &Path) -> Result<Vec<u8>, String> {
    let core = fs::read(module).map_err(|error| format!("{} can't be read: {error}", module.display()))?;
    wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&core)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| format!("{package} does not make a component: {error:#}"))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: this script must be run by cargo"))
}

fn workspace() -> Result<PathBuf, String> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = here.ancestors().nth(2).ok_or("the crate must lie two directories below the workspace")?;
    Ok(root.to_owned())
}

/// `policies` beside the profiles of the outer build, so that debug, release and test builds share one; under `OUT_DIR` when that lies
/// somewhere unusual.
fn target_dir(out: &Path) -> PathBuf {
    let builds = out.ancestors().find(|path| path.file_name().is_some_and(|name| name == "build"));
    builds.and_then(|builds| builds.ancestors().nth(2)).unwrap_or(out).join("policies")
}

fn target_installed() -> Result<(), String> {
    let rustc = variable("RUSTC")?;
    let asked = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("{rustc} can't be run: {error}"))?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    if asked.status.success() && libraries.is_dir() {
        return Ok(());
    }
    Err(format!(
        "the policy that pacer ships is WebAssembly and this toolchain lacks the target {TARGET}.\nRun: rustup target add {TARGET}"
    ))
}

fn build(package: &str, directory: &str, root: &Path, target_dir: &Path) -> Result<PathBuf, String> {
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.current_dir(root.join(directory)).args(["build", "--lib"]);
    cargo.args(["--target", TARGET, "--profile", PROFILE]).arg("--target-dir").arg(target_dir);
    if [root, &root.join(directory)].into_iter().any(|place| place.join("Cargo.lock").is_file()) {
        cargo.arg("--locked");
    }
    for name in HOST_ONLY {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(root).join("\x1f"));
    let built = cargo.output().map_err(|error| format!("cargo can't be run: {error}"))?;
    if !built.status.success() {
        return Err(format!("{package} does not build for {TARGET}:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    Ok(target_dir.join(TARGET).join(PROFILE).join(format!("{}.wasm", package.replace('-', "_"))))
}

/// Without randomness, which the interpreter's engine would link otherwise, and without the paths of this machine.
fn flags(root: &Path) -> Vec<String> {
    let mut flags = vec!["--cfg".to_owned(), "getrandom_backend=\"unsupported\"".to_owned()];
    let cargo =
        env::var("CARGO_HOME").map(PathBuf::from).or_else(|_| env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
    flags.push(format!("--remap-path-prefix={}=/pacer", root.display()));
    flags.extend(cargo.map(|cargo| format!("--remap-path-prefix={}=/cargo", cargo.display())));
    flags
}
