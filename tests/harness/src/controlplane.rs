//! A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager in a directory of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, PostParams};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

pub use self::audit::{ApiCalls, Audit, Caller};
use self::etcd::Etcd;
pub use self::identity::StaticUser;
use self::identity::Token;
use self::layout::{DATA, Layout};
use self::reuse::Reusable;
use self::template::Template;
use crate::child::{Child, ChildError, find_in_path};

mod assets;
mod audit;
mod etcd;
mod identity;
mod layout;
mod manifest;
mod reuse;
mod template;

/// How long each component has until it is ready. Two cores that also compile make a start of four seconds last long.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a start is tried when another process takes one of the chosen ports.
const ATTEMPTS: usize = 3;

/// What a control plane should look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which requests are recorded for [`ControlPlane::api_calls`].
    pub audit: Audit,
    /// Files or directories that are applied before kube-controller-manager starts.
    ///
    /// Custom resource definitions belong here: the garbage collector looks for new kinds only every 30 s.
    pub definitions: Vec<PathBuf>,
    /// Further arguments of kube-apiserver.
    pub apiserver_args: Vec<String>,
    /// Further controllers to run, by the names that `--controllers` takes.
    pub controllers: Vec<String>,
    /// Controllers to leave out, by the same names.
    pub without_controllers: Vec<String>,
    /// Whether the directory with logs and data stays when the handle is dropped.
    pub keep: bool,
}

/// Why the control plane failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// Its executables were not found.
    #[error("cannot find etcd, kube-apiserver and kube-controller-manager: {0}")]
    Assets(String),
    /// A file of it could not be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// File or directory that could not be used.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// A component could not be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A component ended, or was not ready in time.
    #[error("{component} {problem}; the end of its log:\n{log}")]
    NotReady {
        /// Name of the process, such as `etcd`.
        component: String,
        /// What happened to it.
        problem: String,
        /// The last lines of its output.
        log: String,
    },
    /// The API server refused a request of the harness.
    #[error("{what}: {source}")]
    Api {
        /// What was being done.
        what: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// etcd did not answer as it should.
    #[error("etcd: {0}")]
    Etcd(String),
    /// It can't be used again.
    #[error("it can't be emptied for another test: {problem}")]
    NotEmpty {
        /// What stays in it.
        problem: String,
    },
    /// kubectl failed.
    #[error("kubectl {arguments} failed: {stderr}")]
    Kubectl {
        /// Arguments of kubectl, separated by spaces.
        arguments: String,
        /// What it wrote to standard error.
        stderr: String,
    },
}

/// How manifests are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// `kubectl apply`, which keeps the whole object in an annotation of at most 256 KiB.
    ClientSide,
    /// `kubectl apply --server-side`.
    ServerSide,
}

/// A running control plane; ends when the handle is dropped. One that is stopped in order may be kept for another test of the same process: see `reuse`.
#[derive(Debug)]
pub struct ControlPlane {
    running: Arc<Running>,
    /// Its first user has none: the log is its own.
    used_since: Option<Timestamp>,
    started_in: Duration,
}

/// The processes of a control plane, and what belongs to them.
#[derive(Debug)]
struct Running {
    // Dropped in this order: clients of a component before the component, the directory last.
    controllers: Child,
    apiserver: tokio::sync::Mutex<Child>,
    etcd: Child,
    apiserver_command: Command,
    admin: Token,
    nodes: Token,
    controllers_own: Token,
    layout: Layout,
    assets: PathBuf,
    options: Options,
    reusable: Option<Reusable>,
    /// Whether a test killed or stopped a component.
    disturbed: AtomicBool,
    directory: TempDir,
}

impl Running {
    fn store(&self) -> Etcd {
        Etcd::on(self.layout.socket())
    }

    /// Whether another test may use it.
    async fn is_usable(&self) -> bool {
        let lives = |child: &Child| child.exit().is_none();
        self.reusable.is_some()
            && !self.disturbed.load(Ordering::Relaxed)
            && lives(&self.etcd)
            && lives(&self.controllers)
            && lives(&*self.apiserver.lock().await)
    }

    async fn end(&self) {
        self.controllers.kill().await;
        self.apiserver.lock().await.kill().await;
        self.etcd.kill().await;
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves: API server ready, controllers at work.
    ///
    /// # Errors
    ///
    /// When the executables cannot be found or built, or a component does not become ready; the error holds the end of its
    /// log.
    pub async fn start(options: Options) -> Result<Self, ControlPlaneError> {
        let began = Instant::now();
        if reuse::is_wanted()
            && let Some(running) = reuse::take(&options).await
        {
            return Ok(Self { running, used_since: Some(Timestamp::now()), started_in: began.elapsed() });
        }
        let assets = assets::find().await?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&assets, &options).await {
                Err(ControlPlaneError::NotReady { log, .. }) if attempt < ATTEMPTS && log.contains("address already in use") => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn start_once(assets: &Path, options: &Options) -> Result<Self, ControlPlaneError> {
        let started = Instant::now();
        let template = if assets::are_built() { template(assets, options).await? } else { None };
        let (directory, layout) = new_directory(options.keep)?;
        let Served { etcd, apiserver, apiserver_command, tokens: [admin, nodes, controllers_own] } =
            serve(assets, &layout, options, template.as_ref()).await?;
        let ready = async {
            serving(&layout, &admin).await?;
            namespaced(&layout, &admin, "default").await
        };
        let controllers = controllers(assets, &layout, options, while_alive(&apiserver, ready)).await?;
        let reusable = match reuse::is_wanted() && !options.keep {
            true => Some(prepared(&layout, &admin).await?),
            false => None,
        };
        let running = Running {
            controllers,
            apiserver: tokio::sync::Mutex::new(apiserver),
            etcd,
            apiserver_command,
            admin,
            nodes,
            controllers_own,
            layout,
            assets: assets.to_owned(),
            options: options.clone(),
            reusable,
            disturbed: AtomicBool::new(false),
            directory,
        };
        Ok(Self { running: Arc::new(running), used_since: None, started_in: started.elapsed() })
    }

    /// How long the start took.
    #[must_use]
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// The API server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.running.layout.url
    }

    /// Where logs, data and kubeconfigs are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.running.directory.path()
    }

    /// Client configuration of a member of `system:masters`: no retries, no client-side limits.
    #[must_use]
    pub fn config(&self, user: StaticUser) -> kube::Config {
        let token = match user {
            StaticUser::Nodes => &self.running.nodes,
            StaticUser::Admin => &self.running.admin,
            StaticUser::Controllers => &self.running.controllers_own,
        };
        client_config(&self.running.layout, token)
    }

    /// A client of the test itself, which may do everything.
    ///
    /// # Errors
    ///
    /// When the client cannot be made.
    pub fn admin(&self) -> Result<kube::Client, ControlPlaneError> {
        self.client(StaticUser::Admin)
    }

    /// A client of one of the static users.
    ///
    /// # Errors
    ///
    /// When the client cannot be made.
    pub fn client(&self, user: StaticUser) -> Result<kube::Client, ControlPlaneError> {
        client(self.config(user))
    }

    /// Path of the administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.running.layout.file("admin.kubeconfig")
    }

    /// Writes a kubeconfig that holds a token of that service account, valid for a day.
    ///
    /// # Errors
    ///
    /// When the service account does not exist or the file cannot be written.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf, ControlPlaneError> {
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin()?, namespace);
        let issued: TokenRequest =
            accounts.create_subresource("token", name, &PostParams::default(), &request).await.map_err(|source| {
                ControlPlaneError::Api {
                    what: format!("cannot issue a token for service account {namespace}/{name}"),
                    source: Box::new(source),
                }
            })?;
        let token = Token::from_issued(issued.status.map(|status| status.token).unwrap_or_default());
        let path = self.running.layout.file(&format!("{namespace}.{name}.kubeconfig"));
        let content = identity::kubeconfig(&self.running.layout.url, &self.running.layout.certificate(), name, namespace, &token);
        identity::write_private(&path, &content).map_err(|source| ControlPlaneError::File { path: path.clone(), source })?;
        Ok(path)
    }

    /// Makes a namespace and waits until it takes pods.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or the controllers do not prepare it.
    pub async fn namespace(&self, name: &str) -> Result<(), ControlPlaneError> {
        let namespace =
            Namespace { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..Namespace::default() };
        Api::all(self.admin()?).create(&PostParams::default(), &namespace).await.map_err(|source| ControlPlaneError::Api {
            what: format!("cannot make namespace {name}"),
            source: Box::new(source),
        })?;
        while_alive(&self.running.controllers, namespaced(&self.running.layout, &self.running.admin, name)).await
    }

    /// Applies a namespace, which may be there already.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn set_up_namespace(&self, name: &str) -> Result<(), ControlPlaneError> {
        let namespace = ApiResource::erase::<Namespace>(&());
        manifest::apply_object(&self.admin()?, &DynamicObject::new(name, &namespace)).await.map(drop)
    }

    /// Applies a file, or a directory without its subdirectories, as [`ControlPlane::apply`] does, but without the time that kubectl takes.
    ///
    /// # Errors
    ///
    /// When a file is no manifest, or the API server refuses an object.
    pub async fn set_up(&self, path: &Path) -> Result<(), ControlPlaneError> {
        manifest::apply(&self.admin()?, path).await.map(drop)
    }

    /// Applies a file, or a directory without its subdirectories, with the real kubectl.
    ///
    /// # Errors
    ///
    /// When kubectl is missing or fails.
    pub async fn apply(&self, path: &Path, how: Apply) -> Result<(), ControlPlaneError> {
        self.apply_input(&path.to_string_lossy(), None, how).await
    }

    /// Applies the documents in `manifests` (YAML or JSON) with the real kubectl.
    ///
    /// # Errors
    ///
    /// When kubectl is missing or fails.
    pub async fn apply_text(&self, manifests: &str, how: Apply) -> Result<(), ControlPlaneError> {
        self.apply_input("-", Some(manifests), how).await
    }

    async fn apply_input(&self, file: &str, input: Option<&str>, how: Apply) -> Result<(), ControlPlaneError> {
        let mut arguments = vec!["apply".to_owned(), "-f".to_owned(), file.to_owned()];
        if how == Apply::ServerSide {
            arguments.push("--server-side".to_owned());
        }
        checked(&arguments, &run_kubectl(&self.running.assets, &self.running.layout, &arguments, input).await?)
    }

    /// Runs kubectl as the administrator.
    ///
    /// # Errors
    ///
    /// When kubectl cannot be run; its own failure is in the output's status.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output, ControlPlaneError> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        run_kubectl(&self.running.assets, &self.running.layout, &arguments, None).await
    }

    /// Where kubectl is, for scripts that call it themselves.
    #[must_use]
    pub fn kubectl_path(&self) -> PathBuf {
        kubectl_path(&self.running.assets)
    }

    /// Kills the API server in the middle of whatever it does, then starts it again on the same port and waits for it.
    ///
    /// # Errors
    ///
    /// When it does not become ready again.
    pub async fn restart_apiserver(&self) -> Result<(), ControlPlaneError> {
        self.running.disturbed.store(true, Ordering::Relaxed);
        let mut apiserver = self.running.apiserver.lock().await;
        apiserver.kill().await;
        *apiserver =
            Child::start("kube-apiserver", &self.running.apiserver_command, &self.running.layout.file("kube-apiserver.log"))?;
        while_alive(&apiserver, serving(&self.running.layout, &self.running.admin)).await
    }

    /// Stops the API server's process without ending it while `outage` runs, as a network partition would.
    pub async fn without_apiserver<F: Future>(&self, outage: F) -> F::Output {
        self.running.disturbed.store(true, Ordering::Relaxed);
        let apiserver = self.running.apiserver.lock().await;
        apiserver.pause();
        let output = outage.await;
        apiserver.resume();
        output
    }

    /// Counts the requests of `callers` since `since`, as far as [`Options::audit`] records them.
    ///
    /// # Errors
    ///
    /// When there is no audit log.
    pub fn api_calls(&self, callers: &[Caller], since: Option<Timestamp>) -> Result<ApiCalls, ControlPlaneError> {
        audit::count(&self.running.layout.audit_log(), callers, since.max(self.used_since))
    }

    /// Resident memory and processor time of (etcd, kube-apiserver, kube-controller-manager) are those of these processes.
    pub async fn pids(&self) -> [u32; 3] {
        [self.running.etcd.pid(), self.running.apiserver.lock().await.pid(), self.running.controllers.pid()]
    }

    /// The end of kube-controller-manager's log, for a failed test.
    #[must_use]
    pub fn controllers_log(&self, bytes: u64) -> String {
        self.running.controllers.log_tail(bytes)
    }

    /// The end of each component's log, for a failed test.
    pub async fn logs(&self, bytes: u64) -> String {
        let apiserver = self.running.apiserver.lock().await;
        [&self.running.etcd, &*apiserver, &self.running.controllers]
            .map(|child| format!("--- {}\n{}", child.name(), child.log_tail(bytes)))
            .concat()
    }

    /// Ends all components and waits for their end, or keeps them for another test.
    pub async fn stop(self) {
        if self.running.is_usable().await {
            reuse::keep(self.running);
        } else {
            self.running.end().await;
        }
    }
}

/// etcd and an API server that takes requests and knows the definitions.
struct Served {
    etcd: Child,
    apiserver: Child,
    apiserver_command: Command,
    tokens: [Token; 3],
}

/// Starts etcd, with the data of the template if there is one, and the API server.
async fn serve(
    assets: &Path,
    layout: &Layout,
    options: &Options,
    template: Option<&Template>,
) -> Result<Served, ControlPlaneError> {
    let failed = |source| ControlPlaneError::File { path: layout.root.clone(), source };
    let tokens = write_identities(layout, options).map_err(failed)?;
    let [admin, ..] = &tokens;
    let defined = match template {
        Some(template) => template.copy_to(&layout.file(DATA)).map_err(failed)?,
        None => false,
    };
    let etcd = Child::start("etcd", &layout.etcd(assets), &layout.file("etcd.log"))?;
    let apiserver_command = layout.apiserver(assets, options);
    let apiserver = Child::start("kube-apiserver", &apiserver_command, &layout.file("kube-apiserver.log"))?;
    while_alive(&etcd, while_alive(&apiserver, answering(layout, admin))).await?;
    for definitions in options.definitions.iter().filter(|_| !defined) {
        // The garbage collector's first look must find them.
        while_alive(&apiserver, manifest::define(&client(client_config(layout, admin))?, definitions)).await?;
    }
    Ok(Served { etcd, apiserver, apiserver_command, tokens })
}

/// The template for these definitions. It is made by the first who needs it; who needs it meanwhile does without.
async fn template(assets: &Path, options: &Options) -> Result<Option<Template>, ControlPlaneError> {
    let failed = |source| ControlPlaneError::File { path: assets.join("data"), source };
    let template = Template::of(assets, &options.definitions).map_err(failed)?;
    // Where nothing may be written, there is none.
    let Ok(Some(claim)) = template.claim() else { return Ok(Some(template)) };
    let (_directory, layout) = new_directory(false)?;
    let plain = Options { definitions: options.definitions.clone(), ..Options::default() };
    let Served { etcd, apiserver, tokens: [admin, ..], .. } = serve(assets, &layout, &plain, None).await?;
    while_alive(&apiserver, serving(&layout, &admin)).await?;
    apiserver.terminate(PATIENCE).await;
    etcd.terminate(PATIENCE).await;
    claim.keep(&layout.file(DATA)).map_err(failed)?;
    Ok(Some(template))
}

/// A directory of its own for a control plane, which goes with its handle unless it is to be kept.
fn new_directory(keep: bool) -> Result<(TempDir, Layout), ControlPlaneError> {
    let temporary = std::env::temp_dir();
    let failed = |source| ControlPlaneError::File { path: temporary.clone(), source };
    let mut directory = tempfile::Builder::new().prefix("pacer-controlplane-").tempdir().map_err(failed)?;
    directory.disable_cleanup(keep);
    let layout = Layout::new(directory.path()).map_err(failed)?;
    Ok((directory, layout))
}

/// Writes keys, tokens, the audit policy and kubeconfigs; the tokens are in the order of [`StaticUser::ALL`].
fn write_identities(layout: &Layout, options: &Options) -> io::Result<[Token; 3]> {
    identity::write_signing_keys(&layout.file("service-accounts.key"), &layout.file("service-accounts.pub"))?;
    identity::write_certificates(&layout.certificate(), &layout.certificate_key())?;
    std::fs::write(layout.file("audit-policy.json"), options.audit.policy())?;
    let tokens = [Token::random()?, Token::random()?, Token::random()?];
    let mut table = String::new();
    for (user, token) in StaticUser::ALL.into_iter().zip(&tokens) {
        let name = user.name();
        table.push_str(&format!("{},{name},{name},system:masters\n", token.reveal()));
        let file = match user {
            StaticUser::Admin => "admin.kubeconfig",
            StaticUser::Nodes => "nodes.kubeconfig",
            StaticUser::Controllers => "controllers.kubeconfig",
        };
        let content = identity::kubeconfig(&layout.url, &layout.certificate(), name, "default", token);
        identity::write_private(&layout.file(file), &content)?;
    }
    identity::write_private(&layout.file("tokens.csv"), &table)?;
    Ok(tokens)
}

fn client_config(layout: &Layout, token: &Token) -> kube::Config {
    let uri = http::Uri::builder()
        .scheme("https")
        .authority(format!("127.0.0.1:{}", layout.port))
        .path_and_query("/")
        .build()
        .unwrap_or_default();
    let mut config = kube::Config::new(uri);
    config.root_cert_file = Some(layout.certificate());
    config.auth_info.token = Some(token.reveal().to_owned().into());
    config.default_retry = false;
    config
}

fn client(config: kube::Config) -> Result<kube::Client, ControlPlaneError> {
    kube::Client::try_from(config)
        .map_err(|source| ControlPlaneError::Api { what: "cannot make a client".to_owned(), source: Box::new(source) })
}

/// Starts kube-controller-manager, once more whenever it ends because the API server has not been healthy for its 10 s, and waits until `ready`.
///
/// It is started before the API server has made its default roles, since both take a second; on a machine with more to do than it can, those roles take longer
/// than kube-controller-manager waits, which no flag of it changes.
async fn controllers(
    assets: &Path,
    layout: &Layout,
    options: &Options,
    ready: impl Future<Output = Result<(), ControlPlaneError>>,
) -> Result<Child, ControlPlaneError> {
    let mut ready = std::pin::pin!(ready);
    let command = layout.controllers(assets, options);
    loop {
        let controllers = Child::start("kube-controller-manager", &command, &layout.file("kube-controller-manager.log"))?;
        match while_alive(&controllers, ready.as_mut()).await {
            Err(ControlPlaneError::NotReady { component, log, .. })
                if component == controllers.name() && log.contains("failed to wait for apiserver being healthy") => {}
            outcome => return outcome.map(|()| controllers),
        }
    }
}

/// Waits until the API server takes requests of the administrator, while it still makes the default roles.
async fn answering(layout: &Layout, admin: &Token) -> Result<(), ControlPlaneError> {
    let client = client(client_config(layout, admin))?;
    let unneeded = ["rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "bootstrap-controller"];
    let path = format!("/readyz?exclude=poststarthook/{}", unneeded.join("&exclude=poststarthook/"));
    poll(|| answers(&client, &path)).await;
    Ok(())
}

/// Waits until the API server is ready.
async fn serving(layout: &Layout, admin: &Token) -> Result<(), ControlPlaneError> {
    let client = client(client_config(layout, admin))?;
    poll(|| answers(&client, "/readyz")).await;
    Ok(())
}

/// Waits for what controllers put into a new namespace; without it the namespace takes no pods.
async fn namespaced(layout: &Layout, admin: &Token, namespace: &str) -> Result<(), ControlPlaneError> {
    let client = client(client_config(layout, admin))?;
    for object in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let path = format!("/api/v1/namespaces/{namespace}/{object}");
        poll(|| answers(&client, &path)).await;
    }
    Ok(())
}

/// Waits for what controllers put into each of the first namespaces, after which others may use the control plane.
async fn prepared(layout: &Layout, admin: &Token) -> Result<Reusable, ControlPlaneError> {
    for namespace in ["kube-node-lease", "kube-public", "kube-system"] {
        namespaced(layout, admin, namespace).await?;
    }
    Reusable::new(&Etcd::on(layout.socket()), &layout.root).await
}

async fn answers(client: &kube::Client, path: &str) -> bool {
    match http::Request::get(path).body(Vec::new()) {
        Ok(request) => client.request_text(request).await.is_ok(),
        Err(_) => false,
    }
}

/// Another process announces nothing, so its state is asked for.
async fn poll<F: Future<Output = bool>>(mut ready: impl FnMut() -> F) {
    while !ready().await {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// The outcome of `ready`, unless `child` ends or [`PATIENCE`] does.
async fn while_alive(child: &Child, ready: impl Future<Output = Result<(), ControlPlaneError>>) -> Result<(), ControlPlaneError> {
    let problem = tokio::select! {
        outcome = ready => return outcome,
        status = child.exited() => format!("ended early ({})", status.map_or("unknown status".to_owned(), |s| s.to_string())),
        () = tokio::time::sleep(PATIENCE) => format!("was not ready after {} s", PATIENCE.as_secs()),
    };
    Err(ControlPlaneError::NotReady { component: child.name().to_owned(), problem, log: child.log_tail(4000) })
}

fn kubectl_path(assets: &Path) -> PathBuf {
    let bundled = assets.join("kubectl");
    if bundled.is_file() { bundled } else { find_in_path("kubectl").unwrap_or_else(|| "kubectl".into()) }
}

async fn run_kubectl(
    assets: &Path,
    layout: &Layout,
    arguments: &[String],
    input: Option<&str>,
) -> Result<Output, ControlPlaneError> {
    let program = kubectl_path(assets);
    let failed = |source| ControlPlaneError::File { path: program.clone(), source };
    let mut child = tokio::process::Command::new(&program)
        .arg("--kubeconfig")
        .arg(layout.file("admin.kubeconfig"))
        .arg("--cache-dir")
        .arg(layout.file("kubectl-cache"))
        .args(arguments)
        // It ends long before it has used the memory: a third less processor time.
        .env("GOGC", "off")
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).await.map_err(failed)?;
    }
    child.wait_with_output().await.map_err(failed)
}

fn checked(arguments: &[String], output: &Output) -> Result<(), ControlPlaneError> {
    if output.status.success() {
        return Ok(());
    }
    Err(ControlPlaneError::Kubectl {
        arguments: arguments.join(" "),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
