//! What etcd itself is asked, past the API server, through its gateway for JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ControlPlaneError;

/// All that the API server keeps is below it.
const ROOT: &str = "/registry/";

/// The first key behind all of those: `0` follows `/`.
const BEHIND: &str = "/registry0";

/// Most operations of a transaction, by etcd's default `--max-txn-ops` of 128.
const OPERATIONS: usize = 100;

/// When a key was changed last, in changes of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revision(pub(super) i64);

/// What it holds, by key.
pub(super) type Contents = BTreeMap<String, Revision>;

/// An etcd on a socket.
#[derive(Clone, Debug)]
pub(super) struct Etcd(PathBuf);

impl Etcd {
    pub(super) fn on(socket: PathBuf) -> Self {
        Self(socket)
    }

    /// All keys of the API server, with their last changes.
    pub(super) async fn keys(&self) -> Result<Contents, ControlPlaneError> {
        #[derive(Deserialize)]
        struct Range {
            #[serde(default)]
            kvs: Vec<Key>,
        }
        #[derive(Deserialize)]
        struct Key {
            key: String,
            mod_revision: String,
        }
        let request = json!({"key": STANDARD.encode(ROOT), "range_end": STANDARD.encode(BEHIND), "keys_only": true});
        let answer = self.ask("range", &request).await?;
        let range: Range = serde_json::from_value(answer).map_err(|error| failed(&error))?;
        let read = |key: Key| {
            let name =
                String::from_utf8(STANDARD.decode(key.key).map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            Ok((name, Revision(key.mod_revision.parse().map_err(|error: std::num::ParseIntError| failed(&error))?)))
        };
        range.kvs.into_iter().map(read).collect()
    }

    /// Deletes keys, in their order.
    pub(super) async fn delete(&self, keys: &[String]) -> Result<(), ControlPlaneError> {
        for some in keys.chunks(OPERATIONS) {
            let deletions: Vec<Value> =
                some.iter().map(|key| json!({"request_delete_range": {"key": STANDARD.encode(key)}})).collect();
            self.ask("txn", &json!({"success": deletions})).await?;
        }
        Ok(())
    }

    async fn ask(&self, what: &str, request: &Value) -> Result<Value, ControlPlaneError> {
        let stream = tokio::net::UnixStream::connect(&self.0).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let request = http::Request::post(format!("/v3/kv/{what}"))
            .header("Host", "etcd")
            .body(Full::new(Bytes::from(request.to_string())))
            .map_err(|error| failed(&error))?;
        // It drops the sender at its end, and so closes the connection.
        let answered = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let (answered, _) = tokio::join!(answered, connection);
        let (status, body) = answered.map_err(|error| failed(&error))?;
        if !status.is_success() {
            return Err(ControlPlaneError::Etcd(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(|error| failed(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> ControlPlaneError {
    ControlPlaneError::Etcd(error.to_string())
}
