//! What the API server was asked, from its audit log.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

use super::ControlPlaneError;

/// Which requests the API server records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    /// None: no audit log.
    Off,
    /// Everything that is not `get`, `list` or `watch`.
    #[default]
    Writes,
    /// Reads too. A watch is recorded when it ends.
    All,
}

impl Audit {
    /// The policy for `--audit-policy-file`.
    pub(super) fn policy(self) -> String {
        let mut rules = Vec::new();
        match self {
            Self::Off => rules.push(serde_json::json!({"level": "None"})),
            Self::Writes => {
                rules.push(serde_json::json!({"level": "None", "verbs": ["get", "list", "watch"]}));
                rules.push(serde_json::json!({"level": "None", "nonResourceURLs": ["*"]}));
            }
            Self::All => rules.push(serde_json::json!({"level": "None", "nonResourceURLs": ["*"]})),
        }
        rules.push(serde_json::json!({"level": "Metadata"}));
        serde_json::json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        })
        .to_string()
    }
}

/// Whose requests to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Those of every caller.
    Anyone,
    /// Those of one user, such as `system:serviceaccount:<namespace>/<name>` written with a colon.
    User(String),
    /// Those whose `User-Agent` starts so.
    UserAgent(String),
}

impl Caller {
    /// A service account, by namespace and name.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::User(format!("system:serviceaccount:{namespace}:{name}"))
    }

    fn matches(&self, entry: &Entry) -> bool {
        match self {
            Self::Anyone => true,
            Self::User(name) => entry.user.username == *name,
            Self::UserAgent(prefix) => entry.user_agent.starts_with(prefix),
        }
    }
}

/// Requests by verb, resource and outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiCalls {
    counts: BTreeMap<(String, String), Answered>,
}

/// Requests of one verb for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answered {
    all: u64,
    /// With a 4xx or 5xx status.
    refused: u64,
}

impl ApiCalls {
    /// How often `verb` (`create`, `patch`, `update`, `delete`, ...) was asked of `resource` (`pods`, `pods/status`, ...).
    #[must_use]
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        self.counts.get(&(verb.to_owned(), resource.to_owned())).map_or(0, |answered| answered.all)
    }

    /// All but those of one resource.
    #[must_use]
    pub(crate) fn without(mut self, resource: &str) -> Self {
        self.counts.retain(|(_, asked), _| asked != resource);
        self
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().map(|answered| answered.all).sum()
    }

    /// How many of them were answered with a 4xx or 5xx status.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counts.values().map(|answered| answered.refused).sum()
    }

    /// All counts, ordered by verb and resource.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.counts.iter().map(|((verb, resource), answered)| (verb.as_str(), resource.as_str(), answered.all))
    }
}

impl fmt::Display for ApiCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests, {} of them refused", self.total(), self.refused())?;
        for (verb, resource, count) in self.iter() {
            write!(f, "\n  {count:6} {verb} {resource}")?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// Counts what `callers` asked at or after `since`.
pub(super) fn count(path: &Path, callers: &[Caller], since: Option<Timestamp>) -> Result<ApiCalls, ControlPlaneError> {
    let failed = |source| ControlPlaneError::File { path: path.to_owned(), source };
    let mut calls = ApiCalls::default();
    for line in BufReader::new(std::fs::File::open(path).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        // The last line may still be on its way.
        let Ok(entry) = serde_json::from_str::<Entry>(&line) else { continue };
        if since.is_some_and(|since| entry.request_received_timestamp < since)
            || !callers.iter().any(|caller| caller.matches(&entry))
        {
            continue;
        }
        let resource = match &entry.object_ref {
            Some(object) if object.subresource.is_empty() => object.resource.clone(),
            Some(object) => format!("{}/{}", object.resource, object.subresource),
            None => String::new(),
        };
        let answered = calls.counts.entry((entry.verb, resource)).or_default();
        answered.all += 1;
        answered.refused += u64::from(entry.response_status.is_some_and(|status| status.code >= 400));
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_caller_and_time() {
        let line = |verb: &str, user: &str, resource: &str, sub: &str, code: u16, second: u8| {
            serde_json::json!({
                "kind": "Event", "verb": verb, "user": {"username": user}, "userAgent": "pacer/0.1",
                "objectRef": {"resource": resource, "subresource": sub}, "responseStatus": {"code": code},
                "requestReceivedTimestamp": format!("2030-01-01T00:00:{second:02}.000000Z"),
            })
            .to_string()
        };
        let log = tempfile::NamedTempFile::new().unwrap();
        let operator = "system:serviceaccount:pacer-system:pacer";
        let content = [
            line("create", operator, "pods", "", 201, 1),
            line("create", operator, "pods", "", 201, 2),
            line("patch", operator, "runners", "status", 409, 3),
            line("create", "someone", "pods", "", 201, 4),
            "{\"half\":".to_owned(),
        ];
        std::fs::write(log.path(), content.join("\n")).unwrap();

        let caller = [Caller::service_account("pacer-system", "pacer")];
        let calls = count(log.path(), &caller, None).unwrap();
        assert_eq!((calls.count("create", "pods"), calls.count("patch", "runners/status")), (2, 1));
        assert_eq!((calls.total(), calls.refused()), (3, 1));
        let rest = calls.without("runners/status");
        assert_eq!((rest.total(), rest.refused()), (2, 0));
        let later = count(log.path(), &caller, Some("2030-01-01T00:00:02Z".parse().unwrap())).unwrap();
        assert_eq!(later.count("create", "pods"), 1);
        assert_eq!(count(log.path(), &[Caller::Anyone], None).unwrap().total(), 4);
        assert_eq!(count(log.path(), &[Caller::UserAgent("pacer/".into())], None).unwrap().total(), 4);
        assert_eq!(count(log.path(), &[Caller::UserAgent("kubectl".into())], None).unwrap().total(), 0);
    }
}
