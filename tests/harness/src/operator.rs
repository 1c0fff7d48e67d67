//! The real operator, `pacer run` or another verb, as a child process under its own service account.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::child::{Child, ChildError, tail};
use crate::controlplane::{ControlPlane, ControlPlaneError};
use crate::github::SimGitHub;
use crate::http;

/// How long the operator has until it says that it serves.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long it has to end after a SIGTERM.
const GRACE: Duration = Duration::from_secs(30);

/// How the operator is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it does: `run`, or `webhook` for the webhook server alone.
    pub verb: String,
    /// Namespace of its service account.
    pub namespace: String,
    /// Name of its service account, which must exist.
    pub service_account: String,
    /// Further arguments after those of the harness; the last of several of one flag should win.
    pub args: Vec<String>,
    /// Further variables of its environment.
    pub env: Vec<(String, String)>,
    /// The token it uses at GitHub; the simulation's own by default.
    pub token: Option<String>,
    /// `--log-level`: debug, info, warn or error.
    pub log_level: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verb: "run".to_owned(),
            namespace: "actions-runner-system".to_owned(),
            service_account: "pacer".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            token: None,
            log_level: "info".to_owned(),
        }
    }
}

/// Why the operator could not be run or asked.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// There is no executable.
    #[error("cannot find or build the operator: {0}")]
    Binary(String),
    /// Its kubeconfig could not be made.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// Its process could not be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// It ended or did not become ready.
    #[error("the operator {problem}; the end of its log:\n{log}")]
    NotReady {
        /// What went wrong: it ended early, or was not ready in time.
        problem: String,
        /// The last lines of its output.
        log: String,
    },
    /// Its HTTP endpoint or files of /proc could not be read.
    #[error("cannot read {what} of the operator: {source}")]
    Read {
        /// What could not be read: a path of its HTTP endpoint, a file of /proc, or an address.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What the operating system says about the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident: u64,
    /// Processor time since the start, user and system.
    pub cpu: Duration,
}

/// Memory of an operator and of the processes that run its policies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Of the operator itself.
    pub operator: u64,
    /// Of the processes that run its policies.
    pub children: u64,
}

impl Memory {
    /// Of all of them.
    #[must_use]
    pub fn together(self) -> u64 {
        self.operator.saturating_add(self.children)
    }
}

/// A running operator; killed when the handle is dropped.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    command: Command,
    directory: PathBuf,
    metrics_address: String,
}

/// Names a directory in which every operator keeps a trace, so that what suites do can be given to the simulator's rules by `pacer trace replay`.
const TRACES: &str = "PACER_TRACES";

/// Of every operator that is started with a trace of its own; one that is started again goes on with its trace.
static RECORDED: AtomicUsize = AtomicUsize::new(0);

/// What the trace of an operator is called: the suite, the test, and a number.
fn trace_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    // Cargo puts a hash behind the name of a test's program.
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let suite = program.rsplit_once('-').map_or(&*program, |(suite, _)| suite);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default().replace("::", ".");
    format!("{suite}.{test}.{}-{}", std::process::id(), RECORDED.fetch_add(1, Ordering::Relaxed))
}

/// Every process gets a log of its own, also after a restart.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// UID of the pod that a process is in, as the chart has it. A restarted one is the same pod's next container.
pub const POD_UID: &str = "POD_UID";

/// Every operator is a pod of its own.
static PODS: AtomicUsize = AtomicUsize::new(0);

fn pod_uid() -> String {
    format!("pod-{}-{}", std::process::id(), PODS.fetch_add(1, Ordering::Relaxed))
}

impl Operator {
    /// Starts the operator and waits until it serves.
    ///
    /// # Errors
    ///
    /// When there is no executable, no such service account, or the operator ends or does not serve in time.
    pub async fn start(plane: &ControlPlane, github: &SimGitHub, options: &Options) -> Result<Self, OperatorError> {
        let kubeconfig = plane.kubeconfig_for_service_account(&options.namespace, &options.service_account).await?;
        let mut command = Command::new(binary().await?);
        command
            .arg(&options.verb)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--github-url", &github.api_url(), "--runner-github-url", &github.api_url()])
            .args(["--metrics-addr", "127.0.0.1:0", "--log-format", "json", "--log-level", &options.log_level])
            // As shipped.
            .args((options.verb == "run").then_some("--enable-leader-election"))
            .args(&options.args)
            .env("GITHUB_TOKEN", options.token.as_deref().unwrap_or(github.pat()))
            .env("POD_NAMESPACE", &options.namespace)
            // What the test inherits must not lead elsewhere.
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("GITHUB_URL")
            .env_remove("GITHUB_ENTERPRISE_URL")
            .env_remove("GITHUB_APP_ID")
            .env_remove("GITHUB_WEBHOOK_SECRET_TOKEN")
            .env_remove("HTTP_PROXY")
            .env_remove("HTTPS_PROXY")
            .env(POD_UID, pod_uid())
            .envs(options.env.iter().map(|(name, value)| (name, value)));
        if let (Some(traces), "run") = (std::env::var_os(TRACES), options.verb.as_str())
            && !options.args.iter().any(|argument| argument.starts_with("--record"))
        {
            command.arg("--record").arg(Path::new(&traces).join(trace_name()));
        }
        Self::launch(command, plane.directory()).await
    }

    async fn launch(command: Command, directory: &Path) -> Result<Self, OperatorError> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let child = Child::start("pacer", &command, &directory.join(format!("pacer-{number}.log")))?;
        let directory = directory.to_owned();
        let mut operator = Self { child, command, directory, metrics_address: String::new() };
        let problem = tokio::select! {
            address = operator.serving() => {
                operator.metrics_address = address;
                return Ok(operator);
            }
            status = operator.child.exited() => {
                format!("ended early ({})", status.map_or_else(|| "unknown status".to_owned(), |status| status.to_string()))
            }
            () = tokio::time::sleep(PATIENCE) => format!("did not serve after {} s", PATIENCE.as_secs()),
        };
        Err(OperatorError::NotReady { problem, log: operator.child.log_tail(8_000) })
    }

    /// Waits for the log lines that hold the addresses it listens on. Returns that of its metrics.
    async fn serving(&self) -> String {
        let receives = self.command.get_args().any(|argument| argument.to_string_lossy().starts_with("--webhook-addr="));
        loop {
            match self.announced("metrics_addr").filter(|_| !receives || self.webhook_address().is_some()) {
                Some(address) => return address,
                // Another process's file announces nothing.
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// An address that it said it serves on.
    fn announced(&self, name: &str) -> Option<String> {
        self.entries().into_iter().find_map(|entry| {
            let is_it = field(&entry, "message") == Some("serving");
            let address = field(&entry, name).map(str::to_owned);
            address.filter(|_| is_it)
        })
    }

    /// Where it receives webhooks, if it does: an address and a port.
    #[must_use]
    pub fn webhook_address(&self) -> Option<String> {
        self.announced("webhook_addr")
    }

    /// Where it serves its page, if it does: an address and a port.
    #[must_use]
    pub fn page_address(&self) -> Option<String> {
        self.announced("ui_addr")
    }

    /// Waits until it leads and acts, which a standby does not.
    ///
    /// # Errors
    ///
    /// When it does not after `patience`, or ends before.
    pub async fn until_acting(&self, patience: Duration) -> Result<(), OperatorError> {
        self.until_ready("leading", patience).await
    }

    /// Waits until it is ready and its `/readyz` says so with this word.
    ///
    /// # Errors
    ///
    /// When it does not after `patience`, or ends before.
    pub async fn until_ready(&self, word: &str, patience: Duration) -> Result<(), OperatorError> {
        let ready = async {
            while !self.get("/readyz").await.is_ok_and(|text| text.contains(word)) {
                // It announces nothing.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let problem = tokio::select! {
            () = ready => return Ok(()),
            status = self.child.exited() => {
                format!("ended early ({})", status.map_or_else(|| "unknown status".to_owned(), |status| status.to_string()))
            }
            () = tokio::time::sleep(patience) => format!("was not {word} after {} s", patience.as_secs_f64()),
        };
        Err(OperatorError::NotReady { problem, log: self.child.log_tail(8_000) })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// How it ended, or `None` while it runs.
    #[must_use]
    pub fn exit(&self) -> Option<ExitStatus> {
        self.child.exit()
    }

    /// Where it serves metrics: an address and a port.
    #[must_use]
    pub fn metrics_address(&self) -> &str {
        &self.metrics_address
    }

    /// Kills it in the middle of whatever it does.
    pub async fn kill9(&self) {
        self.child.kill().await;
    }

    /// Asks it to end (SIGTERM), waits for that, and kills it after half a minute.
    pub async fn terminate(&self) -> Option<ExitStatus> {
        self.child.terminate(GRACE).await
    }

    /// Stops its process where it stands, until [`Operator::resume`].
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.child.resume();
    }

    /// Starts it again as it was started, after [`Operator::kill9`] or [`Operator::terminate`]; a running one is killed. This is what the kubelet does
    /// with the container of a pod, so that it goes on with the lease of the process before it.
    ///
    /// # Errors
    ///
    /// As for [`Operator::start`].
    pub async fn restart(&mut self) -> Result<(), OperatorError> {
        self.child.kill().await;
        let command = std::mem::replace(&mut self.command, Command::new(""));
        let directory = self.directory.clone();
        // Kept, so that a failed start can be repeated.
        let again = copy(&command);
        self.command = command;
        *self = Self::launch(again, &directory).await?;
        Ok(())
    }

    /// Starts it again with further arguments, now and at every restart.
    ///
    /// # Errors
    ///
    /// As for [`Operator::start`].
    pub async fn restart_with(&mut self, arguments: &[&str]) -> Result<(), OperatorError> {
        self.command.args(arguments);
        self.restart().await
    }

    /// Starts a second operator beside it, with the same arguments: a hot standby.
    ///
    /// # Errors
    ///
    /// As for [`Operator::start`].
    pub async fn twin(&self) -> Result<Self, OperatorError> {
        let mut command = copy(&self.command);
        command.env(POD_UID, pod_uid());
        Self::launch(command, &self.directory).await
    }

    /// Its whole log so far, as written.
    #[must_use]
    pub fn logs(&self) -> String {
        tail(self.child.log(), u64::MAX).unwrap_or_default()
    }

    /// The last `bytes` bytes of its log.
    #[must_use]
    pub fn log_tail(&self, bytes: u64) -> String {
        self.child.log_tail(bytes)
    }

    /// The JSON lines of its log.
    #[must_use]
    pub fn entries(&self) -> Vec<Value> {
        self.logs().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Memory and processor time, where /proc exists.
    ///
    /// # Errors
    ///
    /// When the process has ended or there is no /proc.
    pub fn usage(&self) -> Result<Usage, OperatorError> {
        usage(self.pid())
    }

    /// The processes that it has started and that live, in any order. These start none themselves.
    ///
    /// # Errors
    ///
    /// When there is no /proc.
    pub fn children(&self) -> Result<Vec<u32>, OperatorError> {
        let read = |source| OperatorError::Read { what: "/proc".to_owned(), source };
        let processes =
            std::fs::read_dir("/proc").map_err(read)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let own = self.pid().to_string();
        let parent = |process: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned()))
        };
        Ok(processes.filter(|process| parent(process).as_ref() == Some(&own)).collect())
    }

    /// Memory in bytes that the operator and its children take: their proportional set sizes, in which a page that several of them map (the
    /// executable, which is the same) counts once. Without the right to read that of the children, which are locked in, it is what each has resident,
    /// and so too much. Another operator of the same executable, which takes a share of its pages, makes it too little.
    ///
    /// # Errors
    ///
    /// When one of them ended or there is no /proc.
    pub fn memory(&self) -> Result<Memory, OperatorError> {
        let children = self.children()?.into_iter().map(proportional).sum::<Result<u64, _>>()?;
        Ok(Memory { operator: proportional(self.pid())?, children })
    }

    /// The text of its `/metrics`.
    ///
    /// # Errors
    ///
    /// When it does not answer with 200.
    pub async fn metrics(&self) -> Result<String, OperatorError> {
        self.get("/metrics").await
    }

    /// The body of any path that it serves beside its metrics.
    ///
    /// # Errors
    ///
    /// When it does not answer with 200.
    pub async fn get(&self, path: &str) -> Result<String, OperatorError> {
        let read = |source| OperatorError::Read { what: path.to_owned(), source };
        if self.command.get_args().any(|argument| argument == "--metrics-tls") {
            return self.get_over_tls(path).await.map_err(read);
        }
        let (head, body) = http::get(&self.metrics_address, path).await.map_err(read)?;
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) == Some("200") { Ok(body) } else { Err(read(io::Error::other(status.to_owned()))) }
    }
}

impl Operator {
    /// With whatever certificate it has.
    async fn get_over_tls(&self, path: &str) -> io::Result<String> {
        let url = format!("https://{}{path}", self.metrics_address);
        let mut curl = tokio::process::Command::from(Command::new("curl"));
        let output = curl.args(["--silent", "--show-error", "--insecure", "--fail", &url]).output().await?;
        let problem = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()).ok_or_else(problem)
    }
}

/// A text in a log line of [`Operator::entries`], at its top or in `fields`.
#[must_use]
pub fn field<'a>(entry: &'a Value, name: &str) -> Option<&'a str> {
    entry.get(name).or_else(|| entry.get("fields")?.get(name))?.as_str()
}

/// Memory and processor time of a process.
///
/// # Errors
///
/// When the process has ended or there is no /proc.
pub fn usage(pid: u32) -> Result<Usage, OperatorError> {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}"))
            .map_err(|source| OperatorError::Read { what: format!("/proc/{pid}/{file}"), source })
    };
    let malformed = |file: &str| OperatorError::Read {
        what: format!("/proc/{pid}/{file}"),
        source: io::Error::other("it has another format"),
    };
    let resident = kibibytes(&read("status")?, "VmRSS:").ok_or_else(|| malformed("status"))?;
    // Fields 14 and 15, counted from behind the name, which may hold anything but ends at the last parenthesis.
    let stat = read("stat")?;
    let ticks: u64 = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
        .ok_or_else(|| malformed("stat"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Usage { resident: resident * 1024, cpu: Duration::from_millis(ticks * 1000 / per_second) })
}

/// Proportional set size in bytes, or what is resident where that can't be read.
fn proportional(process: u32) -> Result<u64, OperatorError> {
    let shared = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok();
    match shared.as_deref().and_then(|text| kibibytes(text, "Pss:")) {
        Some(kibibytes) => Ok(kibibytes * 1024),
        None => Ok(usage(process)?.resident),
    }
}

/// A number of a file in /proc, whose line begins with `field`.
fn kibibytes(text: &str, field: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix("kB")?.trim().parse().ok())
}

fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}

/// The executable: `PACER_BIN`, or what `cargo build -p pacer` makes, built once per process.
///
/// # Errors
///
/// When it can't be built.
pub async fn binary() -> Result<PathBuf, OperatorError> {
    static BUILT: tokio::sync::OnceCell<PathBuf> = tokio::sync::OnceCell::const_new();
    if let Some(path) = std::env::var_os("PACER_BIN").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    BUILT.get_or_try_init(build).await.cloned()
}

async fn build() -> Result<PathBuf, OperatorError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = tokio::process::Command::new(cargo)
        .args(["build", "--package", "pacer", "--bin", "pacer", "--message-format", "json-render-diagnostics"])
        .current_dir(workspace)
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .await
        .map_err(|error| OperatorError::Binary(format!("cargo: {error}; set PACER_BIN to an executable")))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let path = message.get("executable")?.as_str()?.to_owned();
        let is_it = message.get("target")?.get("name")?.as_str()? == "pacer";
        is_it.then(|| PathBuf::from(path))
    });
    match executable {
        Some(path) if output.status.success() => Ok(path),
        _ => Err(OperatorError::Binary(format!("cargo build -p pacer: {}; its messages are above", output.status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_own_usage() {
        if Path::new("/proc/self/stat").exists() {
            let usage = usage(std::process::id()).unwrap();
            assert!(usage.resident > 100_000, "{usage:?}");
        }
    }

    #[test]
    fn log_fields_are_found_in_both_shapes() {
        for entry in [
            serde_json::json!({"message": "serving", "metrics_addr": "127.0.0.1:1"}),
            serde_json::json!({"fields": {"message": "serving", "metrics_addr": "127.0.0.1:1"}}),
        ] {
            assert_eq!(field(&entry, "metrics_addr"), Some("127.0.0.1:1"));
        }
    }
}
