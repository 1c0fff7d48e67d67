//! One step at GitHub, and what its answer means.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::autoscaler::WaitingReport;
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use pacer_core::ledger::State;
use pacer_core::report::{
    self, CLOSINGS, Ending, FAILED, Form, NAMESAKE, Next, PER_MINUTE, REFUSED, Report, Reports, WRONG, Waiting, closing,
};
use pacer_github::{CheckName, CheckRun, CredentialKind, ErrorKind, GitHub, JobState, Repository};
use serde_json::json;

use super::{Autoscalers, Desk};
use crate::error::Error;

/// How long to wait after the API server did not do its part, or GitHub has no room and does not say until when.
const LATER: SignedDuration = SignedDuration::from_secs(30);

/// One autoscaler and the client that its reports are made with.
pub(super) struct Act<'a> {
    pub(super) all: &'a Autoscalers,
    pub(super) object: &'a HorizontalRunnerAutoscaler,
    pub(super) uid: &'a Uid,
    pub(super) github: &'a GitHub,
    pub(super) now: Timestamp,
}

/// What a report says.
struct Words<'a> {
    brief: &'a str,
    text: &'a str,
    over: bool,
}

impl Act<'_> {
    /// Does a step: opens, updates or closes a report at GitHub.
    pub(super) async fn take(&self, next: &Next, desk: &Desk<'_>) {
        let (job, repository, outcome) = match next {
            Next::Wait(_) => return,
            Next::Open(waiting) => (waiting.job, waiting.repository.clone(), self.open(waiting, desk).await),
            Next::Update(waiting) => (waiting.job, waiting.repository.clone(), self.update(waiting, desk).await),
            Next::Close(job) => {
                let report = self.reports().get(*job).cloned();
                let Some(report) = report else { return };
                (*job, report.repository.clone(), self.close(report, self.ending(*job, desk)).await)
            }
        };
        match outcome {
            Ok(()) => {}
            Err(Error::GitHub(error)) => self.refused(job, &repository, &error).await,
            Err(error) => {
                tracing::warn!(job, autoscaler = %self.object.name_any(), %error, "report of a job that waits not kept, trying again");
                self.pause(LATER);
            }
        }
    }

    fn reports(&self) -> Reports {
        self.all.reporting.memos.read(self.uid, |memo| memo.reports.clone()).flatten().unwrap_or_default()
    }

    fn pause(&self, wait: SignedDuration) {
        self.all.reporting.memos.change(self.uid, |memo| memo.restraint.pause(wait, self.now));
    }

    fn leave(&self, job: u64, wait: SignedDuration) {
        self.all.reporting.memos.change(self.uid, |memo| memo.restraint.pause_job(job, wait, self.now));
    }

    async fn open(&self, waiting: &Waiting, desk: &Desk<'_>) -> Result<(), Error> {
        let Some(repository) = Repository::named(&waiting.repository) else {
            self.leave(waiting.job, WRONG);
            return Ok(());
        };
        let job = self.github.reported_job(&repository, waiting.job).await?;
        let (mut reports, name) = (self.reports(), report::name(&job.name));
        if reports.has_namesake(waiting.job, &waiting.repository, &job.commit, &name) {
            self.leave(waiting.job, NAMESAKE);
            return Ok(());
        }
        // GitHub knows first; the event is on its way to the ledger.
        if job.state != JobState::Queued {
            self.leave(waiting.job, FAILED);
            return Ok(());
        }
        let saying = desk.saying(waiting);
        let form = if self.github.credentials() == CredentialKind::App { Form::Check(None) } else { Form::Status };
        let mut report = Report {
            job: waiting.job,
            repository: waiting.repository.clone(),
            commit: job.commit,
            name,
            form,
            said: saying.essence,
            at: self.now,
            refused: 0,
        };
        // Kept before GitHub is asked: whoever goes on after a crash finds out whether it was.
        reports.put(report.clone());
        self.keep(reports.clone()).await?;
        let words = Words { brief: &saying.brief, text: &saying.text, over: false };
        match self.say(&repository, &mut report, &words, true).await {
            Ok(()) => {
                self.said(report).await;
                Ok(())
            }
            Err(error) if may_have_happened(&error) => {
                // It is said once more.
                self.remember(Report { said: String::new(), ..report });
                Err(error.into())
            }
            Err(error) => {
                reports.remove(waiting.job);
                self.keep(reports).await?;
                Err(error.into())
            }
        }
    }

    async fn update(&self, waiting: &Waiting, desk: &Desk<'_>) -> Result<(), Error> {
        let mut reports = self.reports();
        let report = reports.get(waiting.job).cloned();
        let Some((mut report, repository)) = report.zip(Repository::named(&waiting.repository)) else { return Ok(()) };
        let saying = desk.saying(waiting);
        let words = Words { brief: &saying.brief, text: &saying.text, over: false };
        (report.said, report.at) = (saying.essence, self.now);
        self.say(&repository, &mut report, &words, false).await?;
        reports.put(report.clone());
        self.said(report).await;
        self.keep(reports).await
    }

    /// Closes a report. What can't be closed is left as it is after some attempts.
    pub(super) async fn close(&self, mut report: Report, ending: Ending) -> Result<(), Error> {
        let mut reports = self.reports();
        let Err(error) = self.say_end(&mut report, ending).await else {
            reports.remove(report.job);
            return self.keep(reports).await;
        };
        let refused = matches!(
            error.kind(),
            ErrorKind::Forbidden { .. } | ErrorKind::Unauthorized | ErrorKind::NotVisible { .. } | ErrorKind::Invalid
        );
        report.refused = report.refused.saturating_add(u32::from(refused));
        if is_given_up(&report, &error) {
            reports.remove(report.job);
            self.keep(reports).await?;
        } else {
            self.remember(report);
        }
        Err(error.into())
    }

    /// Closes a report that only this process knows of.
    async fn close_left(&self, mut report: Report) {
        let job = report.job;
        let Err(error) = self.say_end(&mut report, Ending::Unwanted).await else { return self.forget(job) };
        if matches!(error.kind(), ErrorKind::Deferred { .. } | ErrorKind::RateLimited { .. } | ErrorKind::Saturated) {
            return self.pause(until_room(&error));
        }
        report.refused = report.refused.saturating_add(1);
        if is_given_up(&report, &error) {
            return self.forget(job);
        }
        self.remember(report);
        self.leave(job, FAILED);
    }

    /// Has GitHub show how a report ended. One of no repository is nowhere to be shown.
    async fn say_end(&self, report: &mut Report, ending: Ending) -> Result<(), pacer_github::Error> {
        let Some(repository) = Repository::named(&report.repository) else { return Ok(()) };
        let text = closing(ending);
        self.say(&repository, report, &Words { brief: &text, text: &text, over: true }, false).await
    }

    fn forget(&self, job: u64) {
        self.all.reporting.memos.change(self.uid, |memo| memo.reports.get_or_insert_default().remove(job));
    }

    /// Has GitHub show something. A `new` report is not looked for.
    async fn say(
        &self,
        repository: &Repository,
        report: &mut Report,
        words: &Words<'_>,
        new: bool,
    ) -> Result<(), pacer_github::Error> {
        let Form::Check(known) = report.form else {
            return self.github.set_commit_status(repository, &report.commit, &report.name, words.brief, words.over).await;
        };
        let external_id = report::external_id(report.job);
        let of = CheckName { commit: &report.commit, name: &report.name, external_id: &external_id };
        let says = CheckRun { title: words.brief, summary: words.text, over: words.over };
        let number = match known {
            Some(number) => Some(number),
            None if new => None,
            None => self.github.find_check_run(repository, of).await?,
        };
        match number {
            Some(number) => {
                self.github.update_check_run(repository, number, says).await?;
                report.form = Form::Check(Some(number));
            }
            // It never came to be.
            None if words.over => {}
            None => report.form = Form::Check(Some(self.github.create_check_run(repository, of, says).await?)),
        }
        Ok(())
    }

    fn remember(&self, report: Report) {
        self.all.reporting.memos.change(self.uid, |memo| memo.reports.get_or_insert_default().put(report));
    }

    /// GitHub took a report.
    async fn said(&self, report: Report) {
        let healed = self.all.reporting.memos.change(self.uid, |memo| {
            memo.reports.get_or_insert_default().put(report);
            memo.refusal.take().is_some()
        });
        if healed {
            self.all.cluster.wake.autoscaler(&self.object.namespace().unwrap_or_default(), &self.object.name_any()).await;
            tracing::info!(autoscaler = %self.object.name_any(), "GitHub takes reports of jobs that wait again");
        }
    }

    /// Keeps what is open in the autoscaler's status. The numbers of check runs are only remembered.
    async fn keep(&self, reports: Reports) -> Result<(), Error> {
        let kept: Vec<WaitingReport> = reports.iter().map(WaitingReport::of).collect();
        let kept = Some(kept).filter(|kept| !kept.is_empty());
        let patch = json!({"metadata": {"uid": self.uid.as_str()}, "status": {"waitingReports": kept}});
        let api = self.all.cluster.beside::<HorizontalRunnerAutoscaler>(self.object);
        api.patch_status(&self.object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.all.reporting.memos.change(self.uid, |memo| memo.reports = Some(reports));
        Ok(())
    }

    /// GitHub did not take a step.
    async fn refused(&self, job: u64, repository: &str, error: &pacer_github::Error) {
        match error.kind() {
            ErrorKind::Deferred { .. } | ErrorKind::RateLimited { .. } | ErrorKind::Saturated => self.pause(until_room(error)),
            ErrorKind::Unauthorized | ErrorKind::Forbidden { .. } => {
                self.all.refuse(self.uid, self.object, &format!("{error:#}"), self.now).await;
            }
            ErrorKind::NotVisible { .. } => {
                self.all.reporting.memos.change(self.uid, |memo| memo.restraint.pause_repository(repository, REFUSED, self.now));
                self.all.announce_refusal(self.uid, self.object, &format!("{error:#}")).await;
            }
            ErrorKind::Invalid => {
                tracing::warn!(job, repository, %error, "job that waits is not reported");
                self.leave(job, WRONG);
            }
            ErrorKind::Server | ErrorKind::Timeout | ErrorKind::Network | ErrorKind::Decode => {
                tracing::warn!(job, repository, %error, "job that waits not reported, trying again");
                self.leave(job, FAILED);
            }
        }
    }

    /// Why the report of a job is closed.
    fn ending(&self, job: u64, desk: &Desk<'_>) -> Ending {
        match desk.ledger.get(job) {
            Some(known) if known.state == State::InProgress => {
                Ending::Started { at: known.since, waited: known.since.duration_since(known.queued) }
            }
            Some(known) if known.state == State::Queued => Ending::Unwanted,
            _ => Ending::Over,
        }
    }
}

/// How long to wait for an error that says that there is no room for a call now.
fn until_room(error: &pacer_github::Error) -> SignedDuration {
    let wait = error.retry_after().and_then(|wait| SignedDuration::try_from(wait.max(Duration::from_secs(1))).ok());
    wait.unwrap_or(LATER)
}

/// Whether GitHub is not asked any more to close a report, which is logged.
fn is_given_up(report: &Report, error: &pacer_github::Error) -> bool {
    let given_up = report.refused >= CLOSINGS || *error.kind() == ErrorKind::Invalid;
    if given_up {
        tracing::warn!(job = report.job, repository = report.repository, %error, "report of a job stays open at GitHub");
    }
    given_up
}

/// Whether GitHub may have done what it was asked for, although nobody knows.
fn may_have_happened(error: &pacer_github::Error) -> bool {
    matches!(error.kind(), ErrorKind::Server | ErrorKind::Timeout | ErrorKind::Network | ErrorKind::Decode)
}

impl Autoscalers {
    /// Reports of an autoscaler are not asked for again for a while, and people are told why.
    pub(super) async fn refuse(&self, uid: &Uid, object: &HorizontalRunnerAutoscaler, why: &str, now: Timestamp) {
        self.reporting.memos.change(uid, |memo| memo.restraint.pause(REFUSED, now));
        self.announce_refusal(uid, object, why).await;
    }

    async fn announce_refusal(&self, uid: &Uid, object: &HorizontalRunnerAutoscaler, why: &str) {
        let news =
            self.reporting.memos.change(uid, |memo| memo.refusal.replace(why.to_owned()).is_none_or(|before| before != why));
        if news {
            let note = format!("jobs that wait are not reported: {why}");
            self.cluster.events.publish(Reason::WaitingNotReported, &object.object_ref(&()), None, &note).await;
            self.cluster.wake.autoscaler(&object.namespace().unwrap_or_default(), &object.name_any()).await;
        }
    }

    /// Closes what an autoscaler that is gone left open, as far as this round may. No status keeps it any more: what GitHub does not take is tried
    /// again for as long as this process remembers it.
    pub(super) async fn close_all(&self, uid: &Uid) {
        let (memos, object) = (&self.reporting.memos, HorizontalRunnerAutoscaler::default());
        for _ in 0..PER_MINUTE {
            let now = Timestamp::now();
            let known = memos.read(uid, |memo| Some((memo.reports.clone()?, memo.restraint.clone(), memo.github.clone())));
            let Some((reports, restraint, github)) = known.flatten().filter(|_| self.reporting.fence.holds()) else { return };
            let Some(github) = github else {
                // Nobody has reported anything, so nobody knows by which credentials.
                return memos.change(uid, |memo| memo.reports = None);
            };
            let Next::Close(job) = reports.next(None, &[], |_| String::new(), &restraint, now) else { return };
            let Some(report) = reports.get(job).cloned() else { return };
            memos.change(uid, |memo| memo.restraint.step(now));
            Act { all: self, object: &object, uid, github: &github, now }.close_left(report).await;
        }
    }
}
