//! Workflows run what anybody can run, with actions that nobody can change behind their back.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{elements, files, text, yaml};

/// What no target of the Makefile does, and why.
const EXCEPTIONS: [(&str, &str); 2] = [
    (".ci/run", "`make test` as it has to pass before anything lands, which others than GitHub run as well"),
    ("gh release create ", "only GitHub has releases, and its own tool makes them"),
];

/// Steps of all jobs of a workflow.
fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    let jobs = workflow.get("jobs").and_then(Value::as_object).into_iter().flat_map(|jobs| jobs.values());
    jobs.flat_map(|job| elements(job, "steps"))
}

/// Named by the hash of a commit, which is the same for ever.
fn is_pinned(action: &str) -> bool {
    let revision = action.split_once('@').map(|(_, revision)| revision);
    revision.is_some_and(|revision| revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[test]
fn actions_are_pinned_and_steps_run_make() -> Result<()> {
    let workflows = files(".github/workflows", ".yml")?;
    ensure!(workflows.len() >= 2, "{workflows:?}");
    let mut excepted = Vec::new();
    for path in workflows {
        let workflow = yaml(&path)?;
        ensure!(steps(&workflow).count() > 0, "{path} has no steps");
        ensure!(text(&workflow["permissions"], "contents") == "read", "{path} grants more than to read, to every job");
        for step in steps(&workflow) {
            let (uses, run) = (text(step, "uses"), text(step, "run"));
            ensure!(uses.is_empty() || is_pinned(uses), "{path}: {uses} is not pinned by the hash of a commit");
            ensure!(uses.is_empty() != run.is_empty(), "{path}: {step}");
            for line in run.lines() {
                let exception = EXCEPTIONS.iter().find(|(command, _)| line.starts_with(command));
                excepted.extend(exception);
                ensure!(
                    exception.is_some() || line.is_empty() || line.starts_with("make "),
                    "{path} runs {line:?}, no target of make"
                );
            }
        }
    }
    for exception in &EXCEPTIONS {
        ensure!(excepted.contains(&exception), "no workflow runs {}", exception.0);
    }
    Ok(())
}

#[test]
fn workflow_makes_a_release_before_anybody_tags_one() -> Result<()> {
    let workflow = yaml(".github/workflows/ci.yml")?;
    let commands: Vec<&str> = steps(&workflow).map(|step| text(step, "run")).collect();
    for target in ["release-check", "docs", "image-test"] {
        ensure!(commands.iter().any(|command| command.split_whitespace().any(|word| word == target)), "{target}: {commands:?}");
    }
    Ok(())
}

#[test]
fn action_that_could_change_is_told_from_one_that_could_not() {
    let hash = "0123456789abcdef0123456789abcdef01234567";
    assert!(is_pinned(&format!("actions/checkout@{hash}")));
    for action in ["actions/checkout", "actions/checkout@v4", "actions/checkout@0123456"] {
        assert!(!is_pinned(action), "{action}");
    }
}
