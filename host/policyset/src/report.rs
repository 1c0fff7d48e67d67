//! The status of a policy set, as JSON in an annotation of its ConfigMap.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pacer_api::names::annotation;
use pacer_core::would_be::{FleetFigures, Misses, Prospect, WouldBe};
use pacer_policy::{Decision, Digest, StagedSet, Tally};
use serde::{Deserialize, Serialize};

use crate::{Failure, Phase, PoolName};

/// The status of a policy set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One of [`Phase::as_str`].
    pub phase: String,
    /// Digest of the active content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When it was activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<Timestamp>,
    /// By decision, what the active content says about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<String, Decided>,
    /// Why the newest content is not active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Which content of the ConfigMap all of this was found about, as [`content_digest`] names it; none while the same one is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The newest content that was tried. It is being tried while `content` is not the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// How well the processes that run it are locked in, and what is missing; none when fully.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// When its counts were written: they grow with every decision, and alone are written once a minute at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_at: Option<Timestamp>,
    /// By pool, `namespace/name`, what its fleet would be by now if the policies in shadow decided; of the first pools by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub would_be: BTreeMap<String, Foretold>,
    /// Pools of which only metrics tell that.
    #[serde(default, skip_serializing_if = "is_none")]
    pub would_be_more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// What the fleet of a pool would be by now, or why that is not said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Foretold {
    /// Since when what happened is taken into account.
    pub since: Timestamp,
    /// The figures; none where a reason says why.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub figures: Option<WouldBe>,
    /// One CamelCase word of a closed set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Foretold {
    fn of(prospect: &Prospect) -> Self {
        let why = prospect.finding.as_ref().err();
        let since = Timestamp::from_second(prospect.since.as_second()).unwrap_or(prospect.since);
        Self {
            since,
            figures: prospect.finding.as_ref().ok().copied().map(rounded),
            reason: why.map(|why| why.reason().to_owned()),
            message: why.map(ToString::to_string),
        }
    }
}

/// To tenths, and a miss to thousandths of a share: digits beyond that are chance.
fn rounded(figures: WouldBe) -> WouldBe {
    let tenths = |number: f64| (number * 10.0).round() / 10.0;
    let fleet = |fleet: FleetFigures| FleetFigures {
        runners: fleet.runners,
        wait_p50: tenths(fleet.wait_p50),
        wait_p95: tenths(fleet.wait_p95),
        runner_minutes: tenths(fleet.runner_minutes),
        idle_minutes: tenths(fleet.idle_minutes),
    };
    WouldBe {
        jobs: figures.jobs,
        recorded: fleet(figures.recorded),
        in_force: fleet(figures.in_force),
        shadow: fleet(figures.shadow),
        misses: Misses {
            wait_seconds: tenths(figures.misses.wait_seconds),
            runner_minutes: (figures.misses.runner_minutes * 1_000.0).round() / 1_000.0,
        },
    }
}

/// A status with the time of its counts, where it has any.
pub(super) fn dated(text: &str, now: Timestamp) -> String {
    let Some(mut report) = Report::read(text) else { return text.to_owned() };
    let asked = report.decisions.values().flat_map(|decided| decided.enforced.iter().chain(&decided.shadow));
    let counts = asked.into_iter().any(|asked| asked.faults.is_some() || asked.compared.is_some());
    report.counted_at = counts.then_some(now);
    report.text()
}

/// A status without that time, which moves by itself.
pub(super) fn undated(text: &str) -> String {
    Report::read(text).map_or_else(|| text.to_owned(), |report| Report { counted_at: None, ..report }.text())
}

/// Names the content of a ConfigMap, however it is understood. Changes with every byte of it, and with nothing else of the object.
#[must_use]
pub fn content_digest(object: &ConfigMap) -> Digest {
    let mut text = serde_json::to_vec(&object.data).unwrap_or_default();
    for (key, bytes) in object.binary_data.iter().flatten() {
        text.extend(format!("{key} {}\n", Digest::of(&bytes.0)).into_bytes());
    }
    Digest::of(&text)
}

/// One content in front of one version of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// As [`content_digest`] names it.
    pub content: String,
    /// Version of the operator that tries it: what one version can't bear another may.
    pub by: String,
    /// The value of [`annotation::POLICY_TRY_AGAIN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Subject {
    /// The content of a ConfigMap in front of this version.
    #[must_use]
    pub fn of(object: &ConfigMap) -> Self {
        Self {
            content: content_digest(object).to_string(),
            by: env!("CARGO_PKG_VERSION").to_owned(),
            // Copied into the status, which has to stay small.
            request: object.annotations().get(annotation::POLICY_TRY_AGAIN).map(|value| value.chars().take(64).collect()),
        }
    }
}

/// That a content is tried, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Which content is tried, by which version of the operator.
    #[serde(flatten)]
    pub subject: Subject,
    /// When that was written down, before the content is staged.
    pub at: Timestamp,
}

/// What a policy set says about one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// The policy whose answers are carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced: Option<Asked>,
    /// The policy that is compared with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Asked>,
}

/// A policy in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Name and short digest, or `shipped`.
    pub policy: String,
    /// `closed`: it is asked; `open`: it kept failing and is not.
    pub breaker: String,
    /// Answers that could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Why the last of them could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fault: Option<String>,
    /// Of one in shadow: how its answers compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Tally>,
}

/// Why the newest content is not active.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastError {
    /// One CamelCase word of a closed set.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
    /// When that was found.
    pub at: Timestamp,
}

/// Whether numbers that grow with every decision are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Without them: differs only when something happened.
    Essence,
    /// All that the status says, these numbers included.
    Whole,
}

impl Report {
    pub(super) fn new(
        phase: Phase,
        staged: Option<(&StagedSet, Timestamp)>,
        failure: Option<&(Failure, Timestamp)>,
        content: Option<Digest>,
        detail: Detail,
    ) -> Self {
        let decided = |staged: &StagedSet, decision| {
            let whole = detail == Detail::Whole;
            let asked = |standing: pacer_policy::Standing, tally: Option<Tally>| Asked {
                policy: standing.policy,
                breaker: if standing.health.open_since.is_some() { "open" } else { "closed" }.to_owned(),
                faults: Some(standing.health.faults).filter(|faults| whole && *faults > 0),
                // A fault of another kind is worth a write at once, the same kind with another text is not.
                last_fault: standing
                    .health
                    .last_fault
                    .map(|fault| if whole { fault.to_string() } else { fault.kind().to_owned() }),
                compared: tally.filter(|_| whole),
            };
            let decided = Decided {
                enforced: staged.enforced(decision).map(|standing| asked(standing, None)),
                shadow: staged.shadow(decision).map(|(standing, tally)| asked(standing, Some(tally))),
            };
            (decided != Decided::default()).then_some((decision.as_str().to_owned(), decided))
        };
        Self {
            phase: phase.as_str().to_owned(),
            digest: staged.map(|(staged, _)| staged.digest().to_string()),
            activated_at: staged.map(|(_, at)| at),
            decisions: staged
                .map(|(staged, _)| Decision::ALL.into_iter().filter_map(|decision| decided(staged, decision)).collect())
                .unwrap_or_default(),
            last_error: failure.map(|(failure, at)| LastError {
                reason: failure.reason.to_owned(),
                message: failure.message.clone(),
                at: *at,
            }),
            content: content.map(|content| content.to_string()),
            trial: None,
            isolation: None,
            counted_at: None,
            would_be: BTreeMap::new(),
            would_be_more: 0,
        }
    }

    /// The same, with what the fleets of these pools would be, and how many more there are.
    pub(super) fn foretelling(self, (told, more): (Vec<(PoolName, Prospect)>, usize)) -> Self {
        let would_be = told.iter().map(|(pool, prospect)| (pool.to_string(), Foretold::of(prospect))).collect();
        Self { would_be, would_be_more: more, ..self }
    }

    /// One line of JSON.
    pub(super) fn text(&self) -> String {
        // Strings and numbers always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What another process, or this one, left; none when it can't be read.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// For people: `scale-down by guest@sha256:0123456789ab; capacity in shadow by ...`.
pub(super) fn summary(staged: &StagedSet) -> String {
    let parts: Vec<String> = Decision::ALL
        .into_iter()
        .flat_map(|decision| {
            let enforced = staged.enforced(decision).map(|standing| format!("{decision} by {}", standing.policy));
            let shadow = staged.shadow(decision).map(|(standing, _)| format!("{decision} in shadow by {}", standing.policy));
            enforced.into_iter().chain(shadow)
        })
        .collect();
    if parts.is_empty() { "it says nothing about any decision".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use pacer_core::policy::ScaleDownRequest;
    use pacer_policy::{Bundle, Counters, PolicyHost};

    use super::*;

    #[tokio::test]
    async fn essence_has_no_counters_and_what_is_written_can_be_read() {
        let host = PolicyHost::new(Arc::new(Counters::default()));
        let text = "scale-down: builtin\ncapacity: {module: builtin, mode: shadow}\n".to_owned();
        let data = BTreeMap::from([("policies.yaml".to_owned(), text)]);
        let bundle = Bundle::parse(&host, "default", &data, &BTreeMap::new()).await.unwrap();
        let staged = bundle.stage(&host).await.unwrap();
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let failure = (Failure { reason: "PolicySetInvalid", message: "line \"2\"".to_owned() }, at);
        let report = |detail| Report::new(Phase::LastGood, Some((&staged, at)), Some(&failure), Some(staged.digest()), detail);
        let before = (report(Detail::Essence), report(Detail::Whole));
        host.compose(&[&staged]).capacity(Default::default()).await;
        host.compose(&[&staged]).scale_down(ScaleDownRequest::default()).await;
        host.join().await;
        assert_eq!(report(Detail::Essence), before.0);
        assert_ne!(report(Detail::Whole), before.1);
        assert_eq!(Report::read(&report(Detail::Whole).text()), Some(report(Detail::Whole)));
        assert_eq!(before.0.digest, Some(staged.digest().to_string()));
        assert_eq!(summary(&staged), "scale-down by shipped; capacity in shadow by shipped");
        assert_eq!(Report::read("{"), None);
        // Counts have a time, which is no news by itself.
        let counted = report(Detail::Whole).text();
        assert_eq!(Report::read(&dated(&counted, at)).and_then(|report| report.counted_at), Some(at));
        assert_eq!(undated(&dated(&counted, at)), counted);
        let none = report(Detail::Essence).text();
        assert_eq!((dated(&none, at), undated("{")), (none, "{".to_owned()));
    }

    #[test]
    fn what_fleets_would_be_can_be_read_again_and_is_no_news_in_an_essence() {
        let fleet = FleetFigures { runners: 5, wait_p50: 1.04, wait_p95: 2.06, runner_minutes: 10.0, idle_minutes: 3.21 };
        let misses = Misses { wait_seconds: 0.04, runner_minutes: 0.0123 };
        let found = WouldBe { jobs: 7, recorded: fleet, in_force: fleet, shadow: fleet, misses };
        let since = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let told = vec![
            ("ci/web".into(), Prospect { since, finding: Ok(found) }),
            ("ci/zoo".into(), Prospect { since, finding: Err(pacer_core::would_be::WhyNot::NoJob) }),
        ];
        let report = Report::new(Phase::Active, None, None, None, Detail::Whole).foretelling((told, 2));
        let text = report.text();
        assert_eq!(Report::read(&text), Some(report), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let web = &json["wouldBe"]["ci/web"];
        assert_eq!((&web["shadow"]["runners"], &web["inForce"]["waitP95"], &web["jobs"]), (&5.into(), &2.1.into(), &7.into()));
        assert_eq!((&web["since"], &web["misses"]["runnerMinutes"]), (&"2023-11-14T22:13:20Z".into(), &0.012.into()));
        let zoo = &json["wouldBe"]["ci/zoo"];
        assert_eq!((&zoo["reason"], &zoo["message"]), (&"NoJob".into(), &"no job has come in that time".into()));
        assert_eq!(json["wouldBeMore"], 2);
        assert!(!Report::new(Phase::Active, None, None, None, Detail::Essence).text().contains("wouldBe"));
    }
}
