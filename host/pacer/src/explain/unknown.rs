//! A job that no autoscaler knows: what GitHub says of it, and who would take it.

use anyhow::{Result, bail};
use jiff::Timestamp;
use kube::ResourceExt;
use pacer_core::target::{Candidate, Search, Visibility, Wanted, Why, search};
use pacer_core::waiting::{Cause, Unmatched};
use pacer_demand::receiver::RunnerGroups;
use pacer_github::{GitHub, JobState, RemoteJob, Repository};

use super::place::Place;

/// What there is to say of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Unknown {
    /// `held`, where GitHub holds it back; none where it waits for a runner as far as is known.
    pub(super) state: Option<&'static str>,
    pub(super) labels: Vec<String>,
    pub(super) workflow: Option<String>,
    pub(super) queued_at: Option<Timestamp>,
    pub(super) runner: Option<String>,
    /// Who would take it.
    pub(super) autoscaler: Option<String>,
    pub(super) cause: Option<&'static str>,
    pub(super) why: String,
}

/// What there is to say of it, and a note about what GitHub did not tell. Nothing is said where nobody knows the labels.
///
/// # Errors
///
/// When the repository has no owner.
pub(super) async fn explain(
    place: &Place,
    id: u64,
    repository: &str,
    labels: &[String],
    github: Option<&GitHub>,
) -> Result<(Option<Unknown>, String)> {
    let named = Repository::named(repository).filter(|named| !named.owner.is_empty() && !named.name.is_empty());
    let Some(repository) = named else { bail!("--repository {repository}: say OWNER/NAME") };
    let mut notes = String::new();
    let job = match github {
        Some(github) => ask(github, &repository, id, &mut notes).await,
        None => None,
    };
    let told = job.iter().flat_map(|job| job.labels.iter().map(|label| label.to_string()));
    let labels: Vec<String> = if labels.is_empty() { told.collect() } else { labels.to_vec() };
    let mut story = Unknown { labels, ..Unknown::default() };
    if let Some(job) = &job {
        story.queued_at = Some(job.created_at);
        story.workflow = Some(job.workflow.to_string()).filter(|workflow| !workflow.is_empty());
        if let Some((state, why)) = settled(job) {
            (story.state, story.why) = (Some(state), why);
            story.runner = job.runner.as_ref().map(|runner| runner.to_string());
            return Ok((Some(story), notes));
        }
    }
    if story.labels.is_empty() {
        return Ok((None, notes));
    }
    let takers = place.takers();
    let candidates: Vec<Candidate<'_>> = takers.iter().map(|(_, candidate)| candidate.clone()).collect();
    let wanted = Wanted {
        owner: &repository.owner,
        repository: &repository.name,
        owner_is_user: false,
        enterprise: None,
        labels: story.labels.iter().map(String::as_str).collect(),
    };
    let visibility = match search(&wanted, &candidates, None) {
        Search::Ask => visible(github, &repository, &mut notes).await,
        _ => Visibility::Assumed,
    };
    let found = search(&wanted, &candidates, Some(&visibility));
    let named = |index: usize| {
        takers.get(index).map_or_else(String::new, |(autoscaler, _)| {
            format!("HorizontalRunnerAutoscaler {}/{}", autoscaler.namespace().unwrap_or_default(), autoscaler.name_any())
        })
    };
    let cause = match found {
        Search::Found(choice) => {
            let group = match visibility {
                Visibility::Assumed => ", or its runner group is closed to the repository",
                Visibility::Groups(_) => "",
            };
            let over = if job.is_some() { "" } else { ", it is over" };
            story.autoscaler = Some(named(choice.index));
            story.why = format!(
                "{} would take it, and does not know it: no webhook about the job has come (pacer doctor looks for why){over}{group}",
                named(choice.index)
            );
            return Ok((Some(story), notes));
        }
        Search::None(Why::Labels { nearest, missing }) => Cause::NoPool(Unmatched::Labels { nearest: named(nearest), missing }),
        Search::None(Why::Hidden { nearest }) => Cause::NoPool(Unmatched::Group { nearest: named(nearest) }),
        Search::None(Why::Reach) | Search::Ask => Cause::NoPool(Unmatched::Reach),
    };
    (story.cause, story.why) = (Some(cause.word()), cause.to_string());
    Ok((Some(story), notes))
}

/// The job as GitHub has it. What keeps it from being asked is noted.
async fn ask(github: &GitHub, repository: &Repository, id: u64, notes: &mut String) -> Option<RemoteJob> {
    match github.job(repository, id).await {
        Ok(Some(job)) => Some(job),
        Ok(None) => {
            notes.push_str(&format!("note: GitHub has no job {id} in {repository}, or does not show it to these credentials\n"));
            None
        }
        Err(error) => {
            notes.push_str(&format!("note: GitHub does not tell about job {id}: {error:#}\n"));
            None
        }
    }
}

/// Which runner groups the repository may use.
async fn visible(github: Option<&GitHub>, repository: &Repository, notes: &mut String) -> Visibility {
    let Some(github) = github else { return Visibility::Assumed };
    match github.visible(&repository.owner, &repository.name).await {
        Ok(groups) => Visibility::Groups(groups),
        Err(error) => {
            notes.push_str(&format!("note: GitHub does not tell which runner groups {repository} may use: {error}\n"));
            Visibility::Assumed
        }
    }
}

/// What GitHub says of a job that waits for no runner.
fn settled(job: &RemoteJob) -> Option<(&'static str, String)> {
    match job.state {
        JobState::Queued => None,
        JobState::InProgress => {
            let runner = job.runner.as_ref().map_or_else(|| "a runner".to_owned(), |runner| format!("runner {runner}"));
            Some(("in-progress", format!("GitHub says that it runs on {runner}, which no autoscaler was told of")))
        }
        JobState::Completed => Some(("completed", "it is over, says GitHub".to_owned())),
        JobState::Other => Some((
            "held",
            "GitHub holds it back: a concurrency group, or a protection rule of its environment; no runner can take it yet"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: JobState, runner: Option<&str>) -> RemoteJob {
        RemoteJob {
            id: 7,
            run_id: 1,
            attempt: 1,
            state,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            labels: ["web".into()].into(),
            runner: runner.map(Into::into),
            workflow: "build".into(),
            repository: "acme/app".into(),
            branch: "".into(),
            event: "".into(),
            actor: "".into(),
        }
    }

    #[test]
    fn job_that_waits_for_no_runner_is_told_as_github_has_it() {
        for (state, runner, expected) in [
            (JobState::Queued, None, None),
            (JobState::InProgress, Some("other-1"), Some(("in-progress", "GitHub says that it runs on runner other-1, which"))),
            (JobState::InProgress, None, Some(("in-progress", "GitHub says that it runs on a runner, which"))),
            (JobState::Completed, Some("other-1"), Some(("completed", "it is over"))),
            (JobState::Other, None, Some(("held", "GitHub holds it back"))),
        ] {
            let found = settled(&job(state, runner));
            assert_eq!(found.as_ref().map(|(state, _)| *state), expected.map(|(state, _)| state), "{state:?}");
            assert!(found.is_none_or(|(_, why)| why.starts_with(expected.unwrap().1)), "{state:?}");
        }
    }
}
