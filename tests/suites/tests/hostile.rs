//! What those can do who mean harm: policies, tenants, senders, servers. Each item of the threat model (`SECURITY.md`) has a test on the real control
//! plane or the real process. Most are here; the others are where what they share is:
//!
//! | who tries what | test |
//! | --- | --- |
//! | a policy that broke out of the engine tries files, network, the operator's environment and memory, tracing, programs | here: `escape`; what it tries: `host/jail/tests/locks.rs`, `host/pacer/tests/jail.rs` |
//! | a kernel without locks | `policies/isolation.rs` |
//! | contents that eat memory, time or stack of whoever reads or compiles them | here: `contents`; all of the corpus: `host/jail/tests/exhaustion.rs` |
//! | a content that its operator died of | `policies/trials.rs` |
//! | policies that fail or loop at work, or answer rubbish | `policies/corpus.rs`, `host/jail/tests/attacks.rs` |
//! | a GitHub server of a tenant's choosing: pages without end, 32 MiB at once, a million runners, metadata addresses | here: `servers` |
//! | thousands of slow or stalling connections while signed deliveries are to be answered | `host/pacer/tests/senders.rs` (`pacer webhook`), here: `senders` (`pacer run`) |
//! | a tenant that names 200 policy sets | `tenants/policies.rs` |
//! | tenants that take each other's scopes, jobs, names, quotas | `tenants/tenancy.rs`, `tenants/namesakes.rs`, `webhooks/replies.rs` |
//! | names that lead elsewhere | `admission.rs` |
//! | jobs that read the operator's credentials | `modes/job_pods.rs`; tokens in pods: `tenants/just_in_time.rs` |
//! | any bytes for any decoder | listed in `host/api/src/decoders.rs` |

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

mod contents;
#[path = "../../../host/jail/tests/corpus/mod.rs"]
#[allow(dead_code, reason = "the whole of it is tried where it costs no control plane")]
mod corpus;
mod escape;
mod senders;
mod servers;

/// A content as small as it gets into a ConfigMap.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A fleet in any namespace.
fn fleet(namespace: &str, name: &str, spec: &Value, replicas: u32) -> Value {
    let mut runners = json!({"labels": [name]});
    runners.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "template": {"spec": runners}},
    })
}

/// How long the operator's probes took meanwhile.
struct Pulse {
    task: tokio::task::JoinHandle<()>,
    beats: std::sync::Arc<std::sync::Mutex<Vec<Duration>>>,
}

impl Pulse {
    /// Asks `/healthz` of a server over and over.
    fn of(address: &str) -> Self {
        let beats = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (address, kept) = (address.to_owned(), beats.clone());
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                let took = match senders::ask(&address, "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await {
                    200 => began.elapsed(),
                    _ => Duration::MAX,
                };
                kept.lock().unwrap().push(took);
                // As often as it is to be known.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { task, beats }
    }

    /// The time within which 95 of 100 were answered, and the longest one. The longest is also the machine's affair, which runs other tests.
    fn end(self) -> (Duration, Duration) {
        self.task.abort();
        let mut beats = self.beats.lock().unwrap().clone();
        beats.sort_unstable();
        (beats[beats.len() * 95 / 100], beats[beats.len() - 1])
    }
}
