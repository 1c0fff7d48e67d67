//! What was found out about jobs goes into the ledger.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use pacer_core::demand::Finding;
use pacer_demand::ledger::Edit;
use pacer_github::{GitHub, JobState, RemoteJob, Repository};

use super::spec::Sources;
use super::{Autoscalers, Observation, Subject, queue};

/// Jobs that are looked up in one pass; the others in the next.
const LOOKUPS: usize = 16;

/// A job that can't be looked up now is tried again after this.
const LATER: Duration = Duration::from_secs(60);

impl Autoscalers {
    /// Writes findings into the ledger, and tidies it. What can't be written now is found again in the next pass: no fleet waits for it.
    pub(super) async fn record_findings(&self, of: Subject<'_>, sources: &Sources, seen: &Observation) {
        let ledgers = &self.demand.ledgers;
        let edits = self.findings(sources, seen).await;
        let recorded = ledgers.change(of.object, &edits).await.map(drop);
        if let Err(error) = recorded.and(ledgers.tidy(of.object).await) {
            tracing::warn!(autoscaler = %of.object.name_any(), %error, "ledger not brought up to date, trying again");
        }
    }

    /// What the findings come to. GitHub is asked about jobs whose time is over; without credentials they are forgotten, as ARC forgets
    /// reservations.
    async fn findings(&self, sources: &Sources, seen: &Observation) -> Vec<Edit> {
        if seen.demand.findings.is_empty() {
            return Vec::new();
        }
        let terms = JobTerms { life: sources.life.unsigned_abs(), lasting: !sources.target.config().is_ephemeral() };
        let mut edits = Vec::new();
        let mut expired = Vec::new();
        for finding in &seen.demand.findings {
            match finding {
                Finding::Over(id) => edits.push(Edit::Complete(*id)),
                Finding::StillQueued(id) => edits.push(Edit::Renew { id: *id, life: terms.life }),
                Finding::Expired(id) => expired.push(*id),
            }
        }
        let github = seen.github.as_ref();
        // Those that find no permit are still over their time in the next pass.
        let permit = github.filter(|_| !expired.is_empty()).and_then(|github| self.github.permit(github));
        match github {
            Some(_) if permit.is_none() => {}
            Some(github) => {
                let about = |id| seen.ledger.get(id).and_then(|job| Repository::named(&job.about.repository));
                let asked: Vec<(u64, Option<Repository>)> = expired.into_iter().take(LOOKUPS).map(|id| (id, about(id))).collect();
                let answers =
                    stream::iter(asked).map(|(id, repository)| look_up(github, id, repository, terms)).buffered(LOOKUPS);
                edits.extend(answers.filter_map(std::future::ready).collect::<Vec<_>>().await);
            }
            None => edits.extend(expired.into_iter().map(Edit::Forget)),
        }
        edits
    }
}

/// For how long jobs of a pool are remembered; as in [`Edit::Event`].
#[derive(Clone, Copy)]
struct JobTerms {
    life: Duration,
    lasting: bool,
}

/// None where it has to wait for its turn: its time is still over in the next pass.
async fn look_up(github: &GitHub, id: u64, repository: Option<Repository>, terms: JobTerms) -> Option<Edit> {
    let JobTerms { life, lasting } = terms;
    let Some(repository) = repository else { return Some(Edit::Forget(id)) };
    Some(match github.job(&repository, id).await {
        Ok(None) => Edit::Forget(id),
        Ok(Some(RemoteJob { state: JobState::Queued, .. })) => Edit::Renew { id, life },
        Ok(Some(job)) => queue::event(&job).map_or(Edit::Complete(id), |event| Edit::Event { event, life, lasting }),
        Err(error) if error.deferral().is_some() => return None,
        // Without the right to read jobs nobody will ever know.
        Err(error) if matches!(error.status(), Some(401 | 403)) && error.retry_after().is_none() => Edit::Forget(id),
        Err(error) => {
            tracing::warn!(job = id, %repository, %error, "job not looked up, trying again");
            Edit::Renew { id, life: LATER }
        }
    })
}
