//! What the witnesses found out goes into the ledger.

use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::SignedDuration;
use kube::runtime::reflector::ObjectRef;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::demand::Finding;
use pacer_core::ledger::Ledger;
use pacer_github::{GitHub, JobState, RemoteJob, Repository};

use super::queue;
use crate::context::Context;
use crate::error::Error;
use crate::ledger::Edit;

/// Jobs that are looked up in one pass; the others in the next.
const LOOKUPS: usize = 16;

/// A job that can't be looked up now is tried again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Takes note of findings; asks GitHub about jobs whose time is over. Without credentials they are forgotten, as ARC forgets reservations.
pub(super) async fn act(
    ctx: &Context,
    autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>,
    findings: &[Finding],
    ledger: &Ledger,
    github: Option<&GitHub>,
    life: SignedDuration,
) -> Result<(), Error> {
    if findings.is_empty() {
        return Ok(());
    }
    let life = life.unsigned_abs();
    let mut edits = Vec::new();
    let mut expired = Vec::new();
    for finding in findings {
        match finding {
            Finding::Over(id) => edits.push(Edit::Complete(*id)),
            Finding::StillQueued(id) => edits.push(Edit::Renew { id: *id, life }),
            Finding::Expired(id) => expired.push(*id),
        }
    }
    // Those that find no turn are still over their time in the next pass.
    let turn = github.filter(|_| !expired.is_empty()).and_then(|github| ctx.accesses.turn(github));
    match github {
        Some(_) if turn.is_none() => {}
        Some(github) => {
            let asked: Vec<(u64, Option<Repository>)> = expired
                .into_iter()
                .take(LOOKUPS)
                .map(|id| (id, ledger.get(id).and_then(|job| queue::repository(&job.about.repository))))
                .collect();
            let answers = stream::iter(asked).map(|(id, repository)| look_up(github, id, repository, life)).buffered(LOOKUPS);
            edits.extend(answers.collect::<Vec<_>>().await);
        }
        None => edits.extend(expired.into_iter().map(Edit::Forget)),
    }
    ctx.ledgers.change(autoscaler, edits).await.map(drop).map_err(|error| Error::Ledger(error.to_string()))
}

async fn look_up(github: &GitHub, id: u64, repository: Option<Repository>, life: Duration) -> Edit {
    let Some(repository) = repository else { return Edit::Forget(id) };
    match github.job(&repository, id).await {
        Ok(None) => Edit::Forget(id),
        Ok(Some(RemoteJob { state: JobState::Queued, .. })) => Edit::Renew { id, life },
        Ok(Some(job)) => queue::event(&job).map_or(Edit::Complete(id), |event| Edit::Event { event, life }),
        // Without the right to read jobs nobody will ever know.
        Err(error) if matches!(error.status(), Some(401 | 403)) && error.retry_after().is_none() => Edit::Forget(id),
        Err(error) => {
            tracing::warn!(job = id, %repository, %error, "job not looked up, trying again");
            Edit::Renew { id, life: LOOK_AGAIN }
        }
    }
}
