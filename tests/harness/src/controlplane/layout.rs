//! Where the files of a control plane are, and how its components are started on them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Audit, Options};

/// Name of etcd's data directory, below the directory of the control plane.
pub(super) const DATA: &str = "etcd";

/// Directory of a control plane's files, and where its API server listens.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
    pub(super) port: u16,
    pub(super) url: String,
}

impl Layout {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let port = free_port()?;
        Ok(Self { root: root.to_owned(), port, url: format!("https://127.0.0.1:{port}") })
    }

    /// A socket has no port that could be taken.
    fn etcd_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.file("etcd.sock")
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Certificate of kube-apiserver, with its authority's behind it.
    pub(super) fn certificate(&self) -> PathBuf {
        self.file("apiserver.crt")
    }

    pub(super) fn certificate_key(&self) -> PathBuf {
        self.file("apiserver.key")
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.file("audit.jsonl")
    }

    fn argument(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.file(file).display())
    }

    pub(super) fn etcd(&self, assets: &Path) -> Command {
        let mut command = Command::new(assets.join("etcd"));
        command.arg(self.argument("data-dir", DATA)).args([
            &format!("--listen-client-urls={}", self.etcd_url()),
            // Never used, but it must look like an address.
            "--advertise-client-urls=http://127.0.0.1:0",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]);
        command
    }

    pub(super) fn apiserver(&self, assets: &Path, options: &Options) -> Command {
        let mut command = Command::new(assets.join("kube-apiserver"));
        command.args([
            &format!("--etcd-servers={}", self.etcd_url()),
            "--bind-address=127.0.0.1",
            &format!("--secure-port={}", self.port),
            "--advertise-address=127.0.0.1",
            // A loopback address is no valid endpoint, and nothing looks for one.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            // Nothing here removes the not-ready taint that it puts on new nodes.
            "--disable-admission-plugins=TaintNodesByCondition",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            // It would make a key for RSA, which takes a tenth of its start, and has it sign each handshake.
            &format!("--tls-cert-file={}", self.certificate().display()),
            &format!("--tls-private-key-file={}", self.certificate_key().display()),
            &self.argument("token-auth-file", "tokens.csv"),
            &self.argument("service-account-signing-key-file", "service-accounts.key"),
            &self.argument("service-account-key-file", "service-accounts.pub"),
            "--profiling=false",
        ]);
        if options.audit != Audit::Off {
            command.args([
                &self.argument("audit-policy-file", "audit-policy.json"),
                &self.argument("audit-log-path", "audit.jsonl"),
                // Megabytes; one file, since nothing reads rotated ones.
                "--audit-log-maxsize=100000",
                "--audit-log-mode=blocking",
            ]);
        }
        command.args(&options.apiserver_args);
        // A third less processor time at the start for 100 MB.
        command.env("GOGC", "400");
        command
    }

    pub(super) fn controllers(&self, assets: &Path, options: &Options) -> Command {
        let mut controllers = vec![
            "garbage-collector-controller",
            "namespace-controller",
            "serviceaccount-controller",
            "statefulset-controller",
            "resourcequota-controller",
            "root-ca-certificate-publisher-controller",
            "clusterrole-aggregation-controller",
            // Without these two, claims and volumes keep their finalizer for good.
            "persistentvolumeclaim-protection-controller",
            "persistentvolume-protection-controller",
        ];
        controllers.extend(options.controllers.iter().map(String::as_str));
        controllers.retain(|name| !options.without_controllers.iter().any(|without| without == name));
        let mut command = Command::new(assets.join("kube-controller-manager"));
        command.args([
            &self.argument("kubeconfig", "controllers.kubeconfig"),
            &self.argument("service-account-private-key-file", "service-accounts.key"),
            &format!("--root-ca-file={}", self.certificate().display()),
            &format!("--controllers={}", controllers.join(",")),
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=2000",
            "--kube-api-burst=4000",
            "--profiling=false",
            // The garbage collector says what it watches and what it deletes.
            "--v=2",
        ]);
        command
    }
}

/// A free port below the range that systems give to outgoing connections, so that it stays free while a server restarts.
fn free_port() -> io::Result<u16> {
    let mut last = io::Error::other("no free port");
    for _ in 0..200 {
        let random = RandomState::new().build_hasher().finish();
        let port = 20_000 + u16::try_from(random % 12_000).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
