//! GitHub in memory, and accesses to it, for tests of what asks GitHub.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use pacer_github::{ClientOptions, Credentials, Endpoints, GitHub};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use super::Accesses;
use crate::tenancy::Tenancies;

/// A client of a GitHub that has no runners and no jobs. Registration tokens are good for an hour, and counted.
pub(crate) fn github(tokens: &Arc<AtomicUsize>) -> GitHub {
    let tokens = tokens.clone();
    let transport = BoxCloneSyncService::new(tower::service_fn(move |request: http::Request<_>| {
        let (code, answer) = match request.uri().path().ends_with("/registration-token") {
            true => {
                tokens.fetch_add(1, Ordering::Relaxed);
                let expires_at = Timestamp::now() + SignedDuration::from_hours(1);
                (201, json!({"token": "AAA", "expires_at": expires_at.to_string()}))
            }
            false => (200, json!({"total_count": 0, "runners": [], "workflow_runs": [], "jobs": []})),
        };
        let answer = http::Response::builder().status(code).body(answer.to_string().into_bytes().into());
        async move { Ok::<_, tower::BoxError>(answer?) }
    }));
    GitHub::with_transport(Credentials::Token("x".into()), Endpoints::default(), &ClientOptions::default(), transport).unwrap()
}

/// Accesses of an operator without a tenancy, whose own credentials those of this client are.
pub(crate) fn accesses(client: Client, github: GitHub) -> Accesses {
    let (options, tenancies) = (ClientOptions::default(), Arc::new(Tenancies::new(None)));
    Accesses::new(client, Endpoints::default(), options, Some(github), tenancies, 16, CancellationToken::new()).0
}
