//! The world as the acts use it: commands of kubectl, waits with words, and the fleet that most acts are about.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::core::NamespaceResourceScope;
use pacer_harness::github::{JobId, JobSpec, JobState, Registered, Scope, View};
use pacer_harness::nodes::Nodes;
use pacer_harness::objects;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use serde::de::DeserializeOwned;

use crate::terminal::{Style, Terminal};

/// Where the manifests are applied.
pub(crate) const NAMESPACE: &str = "default";

/// The RunnerDeployment of `examples/runnerdeployment-without-docker.yaml`, which is scaled, hit and rolled.
pub(crate) const FLEET: &str = "without-docker";

/// The label of its runners, which no other example has.
pub(crate) const FLEET_LABEL: &str = "no-docker";

/// The repository of most examples, the fleet included.
pub(crate) const REPOSITORY: &str = "example/repository";

/// Long enough for any single step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(45);

/// What the acts work with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a World,
    pub(crate) nodes: &'a Nodes,
    pub(crate) terminal: &'a Terminal,
}

impl Stage<'_> {
    /// Runs kubectl, after printing what a reader would type.
    ///
    /// # Errors
    ///
    /// With its own words when it fails.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.announce("kubectl", arguments);
        self.run(arguments).await
    }

    /// Runs kubectl on a directory that the printed line calls `shown`.
    ///
    /// # Errors
    ///
    /// With its own words when it fails.
    pub(crate) async fn kubectl_on(&self, verb: &[&str], directory: &str, shown: &str) -> Result<String> {
        self.terminal.say_in(Style::Bold, &format!("$ kubectl {} -f {shown}", verb.join(" ")));
        self.run(&[verb, &["-f", directory]].concat()).await
    }

    /// Runs the operator's own executable, after printing what a reader would type.
    ///
    /// # Errors
    ///
    /// With its own words when it fails.
    pub(crate) async fn pacer(&self, arguments: &[&str]) -> Result<String> {
        self.announce("pacer", arguments);
        self.pacer_silently(arguments).await
    }

    /// Runs it without a word.
    ///
    /// # Errors
    ///
    /// With its own words when it fails.
    pub(crate) async fn pacer_silently(&self, arguments: &[&str]) -> Result<String> {
        let mut command = tokio::process::Command::new(binary().await?);
        command.args(arguments).env("KUBECONFIG", self.world.plane.kubeconfig_path()).kill_on_drop(true);
        let output = command.output().await.context("starting pacer")?;
        if !output.status.success() {
            bail!("pacer {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Prints a command as a reader would type it.
    pub(crate) fn announce(&self, program: &str, arguments: &[&str]) {
        self.terminal.say_in(Style::Bold, &format!("$ {program} {}", typed(arguments)));
    }

    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.world.plane.kubectl(arguments).await?;
        if !output.status.success() {
            bail!("kubectl {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Prints what kubectl answered.
    pub(crate) fn show(&self, output: &str) {
        for line in output.lines() {
            self.terminal.plain(&format!("         {line}"));
        }
    }

    /// Objects of the manifests' namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), NAMESPACE)
    }

    /// Waits for a state of objects.
    ///
    /// # Errors
    ///
    /// When it does not come in time.
    pub(crate) async fn objects<K>(&self, what: &str, reached: impl FnMut(&[&K]) -> bool) -> Result<Vec<K>>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        objects::until(self.api::<K>(), "", PATIENCE, reached).await.with_context(|| format!("waiting for {what}"))
    }

    /// Waits for a true state of GitHub.
    ///
    /// # Errors
    ///
    /// When it does not come in time.
    pub(crate) async fn github(&self, what: &str, reached: impl Fn(&View<'_>) -> bool) -> Result<()> {
        self.world.github.wait_for(PATIENCE, reached).await.with_context(|| format!("waiting for {what}"))
    }

    /// Queues jobs of one kind.
    ///
    /// # Errors
    ///
    /// When the repository's name is none.
    pub(crate) fn queue(&self, count: usize, labels: &[&str], lasting: Duration) -> Result<Vec<JobId>> {
        self.terminal.say_in(
            Style::Bold,
            &format!("{count} jobs of {} s are queued in {REPOSITORY}, runs-on: [{}]", lasting.as_secs(), labels.join(", ")),
        );
        let job = || JobSpec::new(REPOSITORY, labels.iter().copied()).lasting(lasting);
        (0..count).map(|_| Ok(self.world.github.queue_job(job())?)).collect()
    }

    /// Of these jobs: how many run, and how many have succeeded.
    pub(crate) fn progress(&self, jobs: &[JobId]) -> (usize, usize) {
        self.world.github.view(|view| progress(view, jobs))
    }

    /// Registrations of the runners of [`FLEET`], as the simulated GitHub has them now.
    pub(crate) fn fleet(&self) -> Vec<Registered> {
        self.world.github.view(fleet)
    }
}

/// Arguments as a shell takes them.
fn typed(arguments: &[&str]) -> String {
    let needs_quotes =
        |argument: &str| argument.contains(|sign: char| !(sign.is_ascii_alphanumeric() || "-_=./,:".contains(sign)));
    let quoted =
        arguments.iter().map(|argument| if needs_quotes(argument) { format!("'{argument}'") } else { (*argument).to_owned() });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Of these jobs: how many run, and how many have succeeded.
pub(crate) fn progress(view: &View<'_>, jobs: &[JobId]) -> (usize, usize) {
    let known = || jobs.iter().filter_map(|id| view.job(*id));
    let running = known().filter(|job| job.state == JobState::InProgress).count();
    let succeeded = known().filter(|job| job.conclusion == Some(pacer_harness::github::Conclusion::Success)).count();
    (running, succeeded)
}

/// Registrations of the runners of [`FLEET`].
pub(crate) fn fleet(view: &View<'_>) -> Vec<Registered> {
    registered(view, FLEET)
}

/// The registrations of a pool.
pub(crate) fn registered(view: &View<'_>, pool: &str) -> Vec<Registered> {
    let Ok(scope) = REPOSITORY.parse::<Scope>() else { return Vec::new() };
    view.registrations(&scope).into_iter().filter(|runner| is_of(pool, &runner.name)).collect()
}

/// Whether a runner of that name belongs to the fleet.
pub(crate) fn is_of_fleet(name: &str) -> bool {
    is_of(FLEET, name)
}

/// Whether a runner of that name belongs to a pool.
pub(crate) fn is_of(pool: &str, name: &str) -> bool {
    name.strip_prefix(pool).is_some_and(|rest| rest.starts_with('-'))
}

/// Whether the fleet has exactly so many registrations, all of them online.
pub(crate) fn fleet_is(view: &View<'_>, count: usize) -> bool {
    let fleet = fleet(view);
    fleet.len() == count && fleet.iter().all(|runner| runner.online)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted() {
        assert_eq!(typed(&["scale", "runnerdeployment", "--replicas=3"]), "scale runnerdeployment --replicas=3");
        assert_eq!(typed(&["patch", r#"--patch={"a":"b"}"#]), r#"patch '--patch={"a":"b"}'"#);
    }

    #[test]
    fn the_fleet_is_told_from_its_neighbours() {
        for (name, expected) in
            [("without-docker-a-b", true), ("without-docker", false), ("without-dockerd-a-b", false), ("dind-a-b", false)]
        {
            assert_eq!(is_of_fleet(name), expected, "{name}");
        }
    }
}
