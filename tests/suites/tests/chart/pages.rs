//! The commands of README and of the getting-started page, as they stand, in their order, with the real kubectl, helm and pacer.
//!
//! No machine of the tests has a container engine, and a release takes longer to build than the tests to run: `make`, `docker` and `kind` are stand-ins
//! (`pages/`), which keep account of what was built, tagged, pushed and loaded. The pod of the installation runs as in the other tests of the
//! chart, once its image is where the cluster gets it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use pacer_api::{Runner, RunnerDeployment};
use pacer_harness::github::{JobSpec, Scope};
use pacer_harness::objects;
use pacer_harness::operator::{Operator, binary};
use pacer_harness::world::World;
use pacer_suites::page::{self, Block};
use pacer_suites::{PATIENCE, end_as_it_is, runners, succeeded, until};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::helm::{self, NAMESPACE};
use super::installation::{bare_with, start};
use super::reader::{BEGINNERS, README, Reader, bare_command};

/// The blocks under one heading of a page, in order.
pub(crate) fn blocks<'a>(page: &'a str, heading: &str) -> Result<Vec<Block<'a>>> {
    Ok(page::blocks(page::section(page, heading).with_context(|| format!("no heading {heading}"))?).collect())
}

/// The desk of somebody who follows a page: a checkout, a path with the tools, and what stands for words in capitals.
pub(crate) struct Desk<'w> {
    world: &'w World,
    pub(crate) directory: PathBuf,
    path: String,
    pub(crate) words: Vec<(&'static str, String)>,
    /// What its shell has set beside the path.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// What a command printed, both streams.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) code: Option<i32>,
}

impl<'w> Desk<'w> {
    pub(crate) async fn new(world: &'w World, name: &str, words: &[(&'static str, &str)]) -> Result<Self> {
        let directory = world.plane.directory().join(name);
        let tools = directory.join("tools");
        std::fs::create_dir_all(&tools)?;
        for stand_in in ["make", "docker", "kind"] {
            std::os::unix::fs::symlink(helm::repository("tests/suites/tests/chart/pages").join(stand_in), tools.join(stand_in))?;
        }
        let real =
            [("kubectl", world.plane.kubectl_path()), ("helm", helm::executable()?.to_owned()), ("pacer", binary().await?)];
        for (tool, path) in real {
            std::os::unix::fs::symlink(path, tools.join(tool))?;
        }
        for part in ["deploy", "examples", "Makefile"] {
            std::os::unix::fs::symlink(helm::repository(part).canonicalize()?, directory.join(part))?;
        }
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        let words = words.iter().map(|(word, meant)| (*word, (*meant).to_owned())).collect();
        Ok(Self { world, directory, path, words, variables: Vec::new() })
    }

    /// Where the tools of this desk look for a cluster.
    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// A cluster that was there before.
    pub(crate) fn has_a_cluster(&self) -> Result<()> {
        std::fs::copy(self.world.plane.kubeconfig_path(), self.kubeconfig())?;
        Ok(())
    }

    fn in_words(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, meant)| text.replace(word, meant))
    }

    fn command(&self, line: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &self.in_words(line)]).current_dir(&self.directory);
        command.env("PATH", &self.path).env("KUBECONFIG", self.kubeconfig()).stdin(Stdio::null()).kill_on_drop(true);
        command.env("CLUSTER", self.world.plane.kubeconfig_path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.directory.join("helm"));
        }
        command
    }

    pub(crate) async fn try_to_run(&self, line: &str) -> Result<Said> {
        let output = tokio::time::timeout(PATIENCE, self.command(line).output()).await.with_context(|| format!("$ {line}"))??;
        let text = [output.stdout, output.stderr].concat();
        Ok(Said { text: String::from_utf8_lossy(&text).into_owned(), code: output.status.code() })
    }

    pub(crate) async fn run(&self, line: &str) -> Result<String> {
        let said = self.try_to_run(line).await?;
        ensure!(said.code == Some(0), "$ {line}\nends with {:?}\n{}", said.code, said.text);
        Ok(said.text)
    }

    /// Starts a command that never ends by itself, as a process of its own.
    pub(crate) fn start(&self, line: &str) -> Result<Child> {
        Ok(self.command(&format!("exec 2>&1\nexec {line}")).stdout(Stdio::piped()).spawn()?)
    }

    /// Starts a command that never ends by itself, and waits until it has printed a line that contains `awaited`.
    pub(crate) async fn begin(&self, line: &str, awaited: &str) -> Result<Child> {
        let mut child = self.start(line)?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let shown = async {
            while let Some(shown) = lines.next_line().await? {
                if shown.contains(awaited) {
                    return anyhow::Ok(());
                }
            }
            bail!("$ {line}\nended without {awaited}")
        };
        tokio::time::timeout(PATIENCE, shown).await.with_context(|| format!("$ {line}\nnever shows {awaited}"))??;
        // It may go on to print.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(child)
    }

    /// Runs what never ends by itself until it has printed a line with that in it.
    pub(crate) async fn watch(&self, line: &str, awaited: &str) -> Result<()> {
        Ok(self.begin(line, awaited).await?.kill().await?)
    }

    /// Writes a manifest into the file that its first line, or the next command, names.
    pub(crate) fn write(&self, name: &str, manifest: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.join(name), self.in_words(manifest))?)
    }

    /// Installs with this command, whose pods start as they would where the cluster gets their image.
    pub(crate) async fn install(&self, line: &str) -> Result<Vec<Operator>> {
        let (said, operators) = tokio::try_join!(self.run(line), self.pods())?;
        ensure!(said.contains("STATUS: deployed"), "{said}");
        Ok(operators)
    }

    /// Starts the operator as the pods of the Deployment that is about to be made, and says of each that it is ready.
    async fn pods(&self) -> Result<Vec<Operator>> {
        let deployments: Api<Deployment> = Api::namespaced(self.world.client.clone(), NAMESPACE);
        let made = objects::until(deployments, "", PATIENCE, |all: &[&Deployment]| !all.is_empty()).await?;
        let [deployment] = made.as_slice() else { bail!("{} Deployments", made.len()) };
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).context("no replicas")?;
        let replicas = usize::try_from(replicas)?;
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), NAMESPACE);
        let made = objects::until(pods.clone(), "", PATIENCE, |all: &[&Pod]| all.len() == replicas).await?;
        let reached = std::fs::read_to_string(self.directory.join("reached")).unwrap_or_default();
        let mut operators = Vec::with_capacity(replicas);
        for pod in &made {
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("no container")?;
            let image = container.image.as_deref().context("no image")?;
            ensure!(reached.lines().any(|known| known == image), "the cluster cannot pull {image}; it can pull:\n{reached}");
            let word = if operators.is_empty() { "leading" } else { "standby" };
            operators.push(start(self.world, NAMESPACE, &deployment.name_any(), word).await?);
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        Ok(operators)
    }

    /// Follows the commands of a section that installs the operator.
    async fn follow_installation(&self, reader: &mut Reader, block: &Block<'_>) -> Result<Vec<Operator>> {
        let mut operators = None;
        for line in block.text.lines() {
            reader.takes(bare_command(line))?;
            if line.starts_with("helm install ") {
                operators = Some(self.install(line).await?);
            } else {
                self.run(line).await?;
            }
        }
        operators.context("nothing was installed")
    }
}

pub(crate) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(helm::repository(path)).with_context(|| path.to_owned())
}

/// The only block of a section that is in this language.
pub(crate) fn only<'a, 'b>(blocks: &'b [Block<'a>], language: &str) -> Result<&'b Block<'a>> {
    let found: Vec<_> = blocks.iter().filter(|block| block.language == language).collect();
    let [one] = found.as_slice() else { bail!("{} blocks of {language}", found.len()) };
    Ok(one)
}

/// A cluster in which nothing of pacer is, not even the namespace.
pub(crate) async fn cluster() -> Result<World> {
    let world = bare_with(&["deployment-controller", "replicaset-controller"]).await?;
    let output = world.plane.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s"]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(world)
}

/// A runner of a pool.
pub(crate) async fn runner_of(world: &World, pool: &str) -> Result<String> {
    let of_pool = |runner: &Runner| runner.name_any().strip_prefix(pool).is_some_and(|rest| rest.starts_with('-'));
    let all = until::<Runner>(world, "a runner", |all| all.iter().any(|runner| of_pool(runner))).await?;
    all.iter().find(|runner| of_pool(runner)).map(Runner::name_any).context("it is there")
}

/// From nothing to a first job and back, on one of the kinds of cluster that the page describes.
async fn get_started(heading: &str, other: &str, had_a_cluster: bool) -> Result<()> {
    let world = cluster().await?;
    world.github.add(&Scope::repository("OWNER", "REPOSITORY"));
    let text = read(BEGINNERS)?;
    let mut reader = Reader::of_blocks("docs/getting-started.md")?;
    reader.leaves(other)?;
    let desk =
        Desk::new(&world, "desk", &[("TOKEN", world.github.pat()), ("REGISTRY/", "registry.example/team/"), ("REGISTRY\n", "")])
            .await?;
    if had_a_cluster {
        desk.has_a_cluster()?;
    }
    for line in only(&blocks(&text, "The image")?, "sh")?.text.lines() {
        desk.run(reader.takes(line)?).await?;
    }
    let operators = desk.follow_installation(&mut reader, only(&blocks(&text, heading)?, "sh")?).await?;

    let first = blocks(&text, "The first runner")?;
    let [manifest, apply, workflow, look] = first.as_slice() else { bail!("{} blocks", first.len()) };
    ensure!(manifest.text.starts_with("# first.yaml\n") && workflow.text.contains("runs-on: [self-hosted, first]"));
    desk.write("first.yaml", manifest.text)?;
    let [apply, get, watch] = apply.text.lines().collect::<Vec<_>>()[..] else { bail!("{}", apply.text) };
    desk.run(reader.takes(apply)?).await?;
    reader.runs(&desk, get, "first").await?;
    desk.watch(reader.takes(watch)?, "Running").await?;
    runners(&world, "the first runner", |counts| counts.online == 1).await?;
    // What the sentence below the block has for those who wait for longer.
    ensure!(text.contains("`kubectl describe runners`") && desk.run("kubectl describe runners").await?.contains("first-"));
    // Found in the queue, as no webhook tells of it.
    for _ in 0..3 {
        world.github.queue_job(JobSpec::new("OWNER/REPOSITORY", ["first"]).lasting(Duration::from_secs(1)))?;
    }
    let [watch, events] = look.text.lines().collect::<Vec<_>>()[..] else { bail!("{}", look.text) };
    desk.watch(reader.takes(watch)?, "first-").await?;
    succeeded(&world, 3).await?;
    runners(&world, "its successor", |counts| counts.online == 1).await?;
    reader.runs(&desk, events, "RunnerReplicaSetCreated").await?;

    let [delete, uninstall] = only(&blocks(&text, "Then")?, "sh")?.text.lines().collect::<Vec<_>>()[..] else { bail!("Then") };
    desk.run(reader.takes(delete)?).await?;
    runners(&world, "no runner", |counts| counts.registered == 0).await?;
    until::<RunnerDeployment>(&world, "no RunnerDeployment", |all| all.is_empty()).await?;
    until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
    for operator in &operators {
        operator.terminate().await;
    }
    reader.runs(&desk, uninstall, "uninstalled").await?;
    end_as_it_is(world).await?;
    reader.closes()
}

#[tokio::test(flavor = "multi_thread")]
async fn getting_started_page_leads_to_a_first_job_on_kind() -> Result<()> {
    get_started("On kind", "On a cloud cluster", false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn getting_started_page_leads_to_a_first_job_on_a_cloud_cluster() -> Result<()> {
    get_started("On a cloud cluster", "On kind", true).await
}

/// Sections of the README with commands, in the order in which a reader comes to them.
const SECTIONS: [&str; 3] = ["Install", "First runners", "Runners on demand"];

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_readme_work_as_they_stand() -> Result<()> {
    let world = cluster().await?;
    for (owner, repository) in [("your-org", "your-repo"), ("example", "repository")] {
        world.github.add(&Scope::repository(owner, repository));
    }
    let text = read(README)?;
    let mut reader = Reader::of_blocks("README.md")?;
    let with_commands: Vec<&str> = text
        .split("\n## ")
        .skip(1)
        .filter(|section| section.contains("\n```sh\n"))
        .filter_map(|section| section.lines().next())
        .collect();
    ensure!(with_commands == SECTIONS, "{with_commands:?}: this test follows {SECTIONS:?}");
    let mut desk = Desk::new(&world, "desk", &[("YOUR_TOKEN", world.github.pat())]).await?;
    desk.has_a_cluster()?;
    // The two commands stand before the first heading.
    let (_, commands) = text.split_once("\nTwo commands, ").context("no two commands")?;
    let commands = page::in_language(commands, "sh").next().context("no block")?;
    ensure!(commands.lines().count() == 2, "{commands}");
    for line in commands.lines() {
        desk.run(reader.takes(bare_command(line))?).await?;
    }
    // The page about installations says how the image comes there.
    std::fs::write(desk.directory.join("reached"), "pacer:0.1.0\n")?;
    let operators = desk.follow_installation(&mut reader, only(&blocks(&text, "Install")?, "sh")?).await?;

    let first = blocks(&text, "First runners")?;
    desk.write("runnerdeployment.yaml", only(&first, "yaml")?.text)?;
    for line in only(&first, "sh")?.text.lines() {
        if line.contains(" NAME") {
            let name = runner_of(&world, "example").await?;
            desk.words.push(("NAME", name));
        }
        let said = desk.try_to_run(reader.takes(bare_command(line))?).await?;
        let expected = if line.starts_with("pacer doctor") {
            // The README installs for github.com, which no test reaches; nothing else is wrong with the installation.
            let found: Vec<&str> =
                said.text.lines().filter(|line| ["PROBLEM ", "warning "].iter().any(|it| line.starts_with(it))).collect();
            ensure!(found.iter().all(|line| line.contains("repository your-org/your-repo")), "{}", said.text);
            3
        } else {
            0
        };
        ensure!(said.code == Some(expected), "$ {line}\nends with {:?}\n{}", said.code, said.text);
        ensure!(!said.text.trim().is_empty(), "$ {line}\nsays nothing");
    }
    runners(&world, "the runners", |counts| counts.online == 5).await?;
    for line in only(&blocks(&text, "Runners on demand")?, "sh")?.text.lines() {
        desk.run(reader.takes(bare_command(line))?).await?;
    }
    desk.run("kubectl delete -f examples/autoscaling/ -f runnerdeployment.yaml").await?;
    runners(&world, "no runner", |counts| counts.registered == 0).await?;
    until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
    for operator in &operators {
        operator.terminate().await;
    }
    end_as_it_is(world).await?;
    reader.closes()
}

#[test]
fn stand_in_of_docker_refuses_what_the_engine_would_refuse() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let docker = |arguments: &[&str]| -> Result<bool> {
        let stand_in = helm::repository("tests/suites/tests/chart/pages/docker").canonicalize()?;
        let output = std::process::Command::new(stand_in).args(arguments).current_dir(&directory).output()?;
        Ok(output.status.success())
    };
    std::fs::create_dir(directory.path().join("root"))?;
    std::fs::write(directory.path().join("Dockerfile"), "FROM scratch\n")?;
    assert!(!docker(&["push", "a:1"])? && !docker(&["tag", "a:1", "b:1"])?, "never built");
    assert!(!docker(&["build", "--file", "none", "--tag", "a:1", "root"])?, "no such file");
    assert!(!docker(&["build", "--file", "Dockerfile", "--tag", "a:1", "none"])?, "no such context");
    assert!(docker(&["build", "--file", "Dockerfile", "--tag", "a:1", "root"])?);
    assert!(docker(&["tag", "a:1", "r/a:1"])? && docker(&["push", "r/a:1"])? && !docker(&["push", "r/a:2"])?);
    assert_eq!(std::fs::read_to_string(directory.path().join("reached"))?, "r/a:1\n");
    Ok(())
}
