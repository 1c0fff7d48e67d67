//! Why a runner was removed, kept, restarted or set aside.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::annotation;
use pacer_policy::Record;
use pacer_policy::record::account::{Account, Fate};
use serde::Serialize;

use crate::archive::{Archive, ago, when};
use crate::cluster::Cluster;
use crate::plain;
use crate::report::{Format, Report};

/// Decisions that are told after the newest one.
const EARLIER: usize = 5;

/// What is known about a runner.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    runner: String,
    namespace: String,
    /// What there is now; none when it is gone.
    now: Option<Now>,
    /// The newest first.
    decisions: Vec<Told>,
    /// Events about it, the newest first.
    events: Vec<Said>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Now {
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Whether it runs a job, as far as the operator can prove it; none while nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    busy: Option<bool>,
    /// Its job: GitHub's id, or the name that the runner gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Repository of the job that it says it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    protected: bool,
    deleting: bool,
    /// Conditions that say why it stays.
    held: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    receipt: String,
    at: Timestamp,
    decision: String,
    pool: String,
    policy: String,
    settings: Option<String>,
    /// A policy was asked.
    asked: bool,
    #[serde(flatten)]
    account: Account,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Said {
    at: Option<Timestamp>,
    reason: String,
    note: String,
}

impl Said {
    /// What an Event says. One that was repeated counts from its last time: the API server keeps one object for all of them.
    fn of(event: Event) -> Self {
        let repeated = event.series.map(|series| series.last_observed_time.0);
        let first = event.event_time.map(|time| time.0).or_else(|| event.metadata.creation_timestamp.map(|time| time.0));
        Self { at: repeated.or(first), reason: event.reason.unwrap_or_default(), note: event.note.unwrap_or_default() }
    }
}

/// Reads the cluster and tells.
pub(super) async fn explain(cluster: &Cluster, name: &str, format: Format) -> Result<Report> {
    let archive = Archive::read(cluster).await?;
    let runners: Api<Runner> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let live = runners.get_opt(name).await.with_context(|| format!("reading Runner {}/{name}", cluster.namespace))?;
    let events = events(cluster, name).await;
    let records: Vec<&Record> = archive.records();
    let story = Story::new(name, &cluster.namespace, live.as_ref(), &records, events);
    let now = Timestamp::now();
    let failure = story.is_empty().then(|| {
        format!(
            "nothing is known about a runner {name} in namespace {}: there is no such Runner, no receipt speaks of it, and no Event does. {}",
            cluster.namespace,
            archive.gaps(now)
        )
    });
    let text = match (format, &failure) {
        (Format::Json, _) => format!("{}\n", serde_json::to_string_pretty(&story)?),
        (Format::Text, Some(_)) => String::new(),
        (Format::Text, None) => story.text(now),
    };
    Ok(Report { text, notes: String::new(), failure })
}

/// Events that name the runner; none where they may not be read.
async fn events(cluster: &Cluster, name: &str) -> Vec<Said> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let listed = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let names = |object: &Option<k8s_openapi::api::core::v1::ObjectReference>| {
        object.as_ref().is_some_and(|object| object.name.as_deref() == Some(name) && object.kind.as_deref() == Some("Runner"))
    };
    let mut said: Vec<Said> =
        listed.into_iter().filter(|event| names(&event.regarding) || names(&event.related)).map(Said::of).collect();
    said.sort_by_key(|said| std::cmp::Reverse(said.at));
    said
}

impl Story {
    pub(super) fn new(name: &str, namespace: &str, live: Option<&Runner>, records: &[&Record], events: Vec<Said>) -> Self {
        let told = |record: &&Record| {
            Some(Told {
                account: record.account_of(name)?,
                receipt: record.id.clone(),
                at: record.at,
                decision: record.decision().to_string(),
                pool: record.pool.to_string(),
                policy: record.decided_by(),
                asked: record.was_asked(),
                settings: record.input.as_ref().map(|input| input.settings().to_owned()),
            })
        };
        Self {
            runner: name.to_owned(),
            namespace: namespace.to_owned(),
            now: live.map(Now::of),
            decisions: records.iter().rev().filter_map(told).collect(),
            events,
        }
    }

    fn is_empty(&self) -> bool {
        self.now.is_none() && self.decisions.is_empty() && self.events.is_empty()
    }

    pub(super) fn text(&self, now: Timestamp) -> String {
        let name = &self.runner;
        // How it ended is what is asked for, whatever was decided about it before.
        let end = self.decisions.iter().position(|told| told.account.fate != Fate::Kept);
        let first = if self.now.is_some() { Some(0) } else { end };
        let told = first.and_then(|first| self.decisions.get(first));
        let mut text = match (&self.now, told) {
            (live, Some(told)) => told.text(name, live.is_some(), now),
            (Some(_), None) => format!("Runner {name}: no decision has been taken about it.\n"),
            (None, None) => {
                format!("Runner {name} is gone, and no receipt says why: somebody deleted it, or its receipt is gone as well.\n")
            }
        };
        let others = self.decisions.iter().enumerate().filter(|(at, _)| Some(*at) != first).map(|(_, told)| told);
        text.push_str(&self.others(&others.collect::<Vec<_>>(), now));
        match &self.now {
            Some(live) => text.push_str(&live.text()),
            None => text.push_str("\nNow: no Runner of this name exists.\n"),
        }
        if told.is_none() && !self.events.is_empty() {
            text.push_str("\nEvents:\n");
            for said in self.events.iter().take(EARLIER) {
                let at = said.at.map_or_else(String::new, |at| format!("{}  ", ago(at, now)));
                text.push_str(&format!("  {at}{}: {}\n", plain::line(&said.reason), plain::line(&said.note)));
            }
        }
        text
    }

    fn others(&self, others: &[&Told], now: Timestamp) -> String {
        if others.is_empty() {
            return String::new();
        }
        let mut text = "\nOther decisions about it:\n".to_owned();
        for told in others.iter().take(EARLIER) {
            let (receipt, summary) = (plain::line(&told.receipt), plain::line(&told.account.summary));
            text.push_str(&format!("  {}  {} {receipt}  {summary}\n", ago(told.at, now), told.decision));
        }
        if let Some(more) = others.len().checked_sub(EARLIER).filter(|more| *more > 0) {
            text.push_str(&format!("  and {more} more: pacer policy receipts -n {} --runner {}\n", self.namespace, self.runner));
        }
        text
    }
}

impl Told {
    /// One that is there is not gone, whatever was decided: it may have begun a job meanwhile, which it finishes.
    fn text(&self, name: &str, live: bool, now: Timestamp) -> String {
        let summary = match (live, self.account.summary.strip_prefix("was removed ")) {
            (true, Some(why)) => format!("was told to go {why}"),
            _ => self.account.summary.clone(),
        };
        let mut text = format!("Runner {name} {}.\n\n", plain::line(&summary));
        let mut line = |title: &str, words: &str| text.push_str(&format!("  {title:<9}{}\n", plain::line(words)));
        line("when", &when(self.at, now));
        if let Some(reason) = &self.account.reason {
            line("reason", &format!("\"{reason}\", in the words of the policy"));
        }
        line("policy", &self.policy);
        match self.settings.as_deref() {
            Some(settings) if settings != pacer_policy::NO_SETTINGS => line("settings", settings),
            _ => {}
        }
        line("checks", &self.account.gate);
        if let Some(facts) = &self.account.facts {
            line("known", facts);
        }
        line("pool", &self.pool);
        let again =
            if self.asked { format!("; ask the policy again: pacer policy replay {}", self.receipt) } else { String::new() };
        line("receipt", &format!("{} {}{again}", self.decision, self.receipt));
        text
    }
}

impl Now {
    fn of(runner: &Runner) -> Self {
        let status = runner.status.clone().unwrap_or_default();
        let held = status
            .conditions
            .iter()
            .filter(|condition| condition.status == "True" && matches!(condition.type_.as_str(), "Stopping" | "Quarantined"));
        Self {
            phase: status.phase.unwrap_or_else(|| "Created".to_owned()),
            message: status.message.filter(|message| !message.is_empty()),
            busy: status.busy,
            job: status.job.filter(|job| !job.is_empty()),
            repository: status.workflow.and_then(|job| job.repository).filter(|repository| !repository.is_empty()),
            protected: runner.annotations().get(annotation::PROTECTED).is_some_and(|word| word == "true"),
            deleting: runner.metadata.deletion_timestamp.is_some(),
            held: held.map(|condition| format!("{} ({}): {}", condition.type_, condition.reason, condition.message)).collect(),
        }
    }

    fn text(&self) -> String {
        let message = self.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        let job = match (&self.job, &self.repository) {
            (Some(job), Some(repository)) => format!(", and runs job {job} of {repository}"),
            (Some(job), None) => format!(", and runs job {job}"),
            (None, Some(repository)) => format!(", and runs a job of {repository}"),
            (None, None) if self.busy == Some(true) => ", and runs a job".to_owned(),
            (None, None) => String::new(),
        };
        let sentence = format!("Now: it exists, phase {}{message}{job}.", self.phase);
        let mut text = format!("\n{}\n", plain::line(&sentence));
        if self.protected {
            text.push_str("  It is protected (annotation actions.summerwind.dev/protected): no scale-down takes it.\n");
        }
        if self.deleting {
            text.push_str("  It is on its way out: whatever job it has is finished first.\n");
        }
        for held in &self.held {
            text.push_str(&format!("  {}\n", plain::line(held)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::events::v1::EventSeries;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use pacer_policy::record::{Done, Item};

    use super::*;
    use crate::policy::sample;

    #[test]
    fn event_that_was_repeated_counts_from_its_last_time() {
        let at = |second| MicroTime(Timestamp::from_second(second).unwrap());
        let once = Event { event_time: Some(at(100)), ..Event::default() };
        let series = Some(EventSeries { count: 2, last_observed_time: at(160) });
        assert_eq!(Said::of(once.clone()).at, Some(at(100).0));
        assert_eq!(Said::of(Event { series, ..once }).at, Some(at(160).0));
    }

    #[test]
    fn a_runner_that_is_gone_is_told_about_in_whole_sentences() {
        let record = sample::scale_down(5, 2);
        let now = record.at + jiff::SignedDuration::from_mins(3);
        let story = Story::new("web-4", "default", None, &[&record], Vec::new());
        let text = story.text(now);
        for part in [
            "Runner web-4 was removed because fewer runners were wanted: 2 of 5 idle runners were to go",
            "(3 min ago)",
            "in the words of the policy",
            "default (sha256:",
            "GitHub confirmed that it had no job",
            "idle for 240 s",
            "RunnerDeployment default/web",
            &format!("pacer policy replay {}", record.id),
            "Now: no Runner of this name exists.",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
        assert!(!text.contains("settings"), "{text}");
        let json = serde_json::to_value(&story).unwrap();
        assert_eq!((&json["decisions"][0]["fate"], &json["now"]), (&"removed".into(), &serde_json::Value::Null));
    }

    #[test]
    fn one_that_was_told_to_go_and_runs_a_job_is_not_called_removed() {
        let record = sample::scale_down(5, 2);
        let mut runner = Runner::default();
        runner.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(record.at));
        for done in [Done::Removed, Done::Spare { wanted: 1, ended: false }] {
            let mut record = record.clone();
            record.items[0].done = done;
            let text = Story::new("web-4", "default", Some(&runner), &[&record], Vec::new()).text(record.at);
            assert!(text.starts_with("Runner web-4 was told to go because") && !text.contains("was removed"), "{text}");
            assert!(text.contains("Now: it exists") && text.contains("whatever job it has is finished first"), "{text}");
        }
    }

    #[test]
    fn the_end_is_told_first_and_what_came_before_after_it() {
        let mut first = sample::scale_down(5, 2);
        first.items[0].done = Done::Busy { message: "it runs a job".into() };
        let mut second = sample::scale_down(5, 2);
        second.id = "f".repeat(16);
        second.items = vec![Item::new("web-4".into(), Done::Removed)];
        let text = Story::new("web-4", "default", None, &[&first, &second], Vec::new()).text(first.at);
        let (end, before) = text.split_once("Other decisions").unwrap();
        assert!(end.contains("was removed") && before.contains("but GitHub had given it a job"), "{text}");
    }

    #[test]
    fn one_that_is_there_says_what_holds_it() {
        let mut runner = Runner::default();
        runner.metadata.annotations = Some([(annotation::PROTECTED.to_owned(), "true".to_owned())].into());
        let text = Story::new("web-1", "default", Some(&runner), &[], Vec::new()).text(Timestamp::UNIX_EPOCH);
        assert!(text.contains("no decision has been taken about it") && text.contains("It is protected"), "{text}");
    }

    #[test]
    fn fields_about_a_runner_stay_on_their_line_and_steer_no_terminal() {
        let status = serde_json::json!({
            "phase": "Running\nNow: it is gone",
            "message": "a\u{1b}[2J",
            "conditions": [{
                "type": "Stopping", "status": "True", "reason": "Draining", "message": "b\nc", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let runner = Runner { status: Some(serde_json::from_value(status).unwrap()), ..Runner::default() };
        let mut first = sample::scale_down(5, 2);
        first.pool.name = "web\n  checks   passed\u{1b}[2J".to_owned();
        let mut second = first.clone();
        second.id = "0\n\u{9b}2J".to_owned();
        let text = Story::new("web-4", "default", Some(&runner), &[&second, &first], Vec::new()).text(first.at);
        for part in [
            "\n  pool     RunnerDeployment default/web checks passed [2J\n",
            " scale-down 0 2J  was removed because",
            "\nNow: it exists, phase Running Now: it is gone: a [2J.\n  Stopping (Draining): b c\n",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text:?}");
        }
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
        let said = Said { at: None, reason: "Removed\n".into(), note: "b\nc".into() };
        let text = Story::new("web-1", "default", None, &[], vec![said]).text(Timestamp::UNIX_EPOCH);
        assert!(text.ends_with("\nEvents:\n  Removed: b c\n"), "{text:?}");
    }

    #[test]
    fn events_stand_in_for_lost_receipts() {
        let said = Said { at: None, reason: "RunnerRemoved".into(), note: "removed runner web-1: idle".into() };
        let story = Story::new("web-1", "default", None, &[], vec![said]);
        assert!(story.text(Timestamp::UNIX_EPOCH).contains("RunnerRemoved: removed runner web-1: idle") && !story.is_empty());
        assert!(Story::new("web-1", "default", None, &[], Vec::new()).is_empty());
        // One that was kept and is gone now went for another reason.
        let record = sample::scale_down(5, 2);
        let text = Story::new("web-0", "default", None, &[&record], Vec::new()).text(record.at);
        assert!(text.starts_with("Runner web-0 is gone, and no receipt says why") && text.contains("was kept: 2 of 5"), "{text}");
    }
}
