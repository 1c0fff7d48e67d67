//! The pod of a runner: vectors against committed pods, tables of single rules, properties over random specs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop where it stands; clippy.toml covers only functions marked as tests"
)]

mod properties;
mod registration;
mod rules;
mod stateful;
mod vectors;

use pacer_api::{Runner, RunnerSpec};
use pacer_operator::pod::{self, GeneratedAccess, Held, PodDefaults, PodError, PodInput, PodPlan, TokenSource};

/// The server of ARC's own vectors.
const SERVER: &str = "api.github.com";

/// The defaults of ARC's own vectors.
fn defaults() -> PodDefaults {
    PodDefaults {
        runner_image: "default-runner-image".to_owned(),
        docker_image: "default-docker-image".to_owned(),
        docker_gid: 1234,
        image_pull_secrets: Vec::new(),
        docker_registry_mirror: None,
        status_hook: false,
        grace: std::time::Duration::from_secs(432_000),
        version: None,
    }
}

/// A Runner named `runner`, as the API server would return it.
fn runner(spec: RunnerSpec) -> Runner {
    let mut runner = Runner::new("runner", spec);
    identify(&mut runner);
    runner
}

/// Fills what an API server fills.
fn identify(runner: &mut Runner) {
    runner.metadata.namespace = Some("ci".to_owned());
    runner.metadata.uid = Some("0b0f8a56-5f8e-4b5e-9a53-3d9d2c0f3a11".to_owned());
}

fn build(runner: &Runner, defaults: &PodDefaults) -> Result<PodPlan, PodError> {
    let token = TokenSource { holds: Held::Token, name: "registration".to_owned(), key: "token".to_owned() };
    // Where it needs one, a Runner's own is named like it.
    let account = GeneratedAccess::of(&runner.spec, defaults.status_hook).and(runner.metadata.name.as_deref());
    pod::build(&PodInput { runner, defaults, server: SERVER, token: &token, account, claims: &[] })
}

/// A spec from YAML, by way of JSON as it comes from the API server.
fn spec(yaml: &str) -> RunnerSpec {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap()
}
