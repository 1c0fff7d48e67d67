//! `status`: what the operator made of policy sets, and which pools ask for them.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, RunnerDeployment, RunnerSet};
use pacer_cluster::object::ObjectKey;
use pacer_cluster::unreadable::list_metadata;
use pacer_core::would_be::FleetFigures;
use pacer_policyset::report::{Asked, Foretold, Report as SetReport};
use serde::Serialize;

use super::cure;
use crate::archive::when;
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::default_set::DefaultSetArguments;
use crate::denial::unreadable;
use crate::plain::line;
use crate::report::{Format, Report};
use crate::table;

/// Arguments of `pacer policy status`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Policy sets and pools of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    default_set: DefaultSetArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Policy sets, and pools with the sets that they ask for.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    sets: Vec<Set>,
    /// The default set, where it could not be read; none where it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_unread: Option<Unread>,
    pools: Vec<Pool>,
}

/// A set that may decide, and of which nothing is known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unread {
    namespace: String,
    name: String,
    error: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Set {
    namespace: String,
    name: String,
    default: bool,
    /// What the operator says about it; none when it has not.
    #[serde(flatten)]
    report: Option<SetReport>,
    /// What to do about its last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pool {
    kind: String,
    namespace: String,
    name: String,
    asks_for: String,
    conditions: Vec<Condition>,
}

/// `pacer policy status`.
pub(crate) fn status(arguments: &Arguments) -> Result<Report> {
    let status = cluster::with(&arguments.cluster, async |cluster| read(&cluster, arguments).await)?;
    let text = match arguments.output {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&status)?),
        Format::Text => status.text(Timestamp::now()),
    };
    Ok(Report::text(text))
}

async fn read(cluster: &Cluster, arguments: &Arguments) -> Result<Status> {
    let default = arguments.default_set.key()?;
    let elsewhere =
        default.as_ref().map(|default| default.namespace.as_str()).filter(|namespace| *namespace != cluster.namespace);
    let mut status = Status::default();
    let mut namespaces: Vec<Option<&str>> = std::iter::once(cluster.namespace.as_str()).chain(elsewhere).map(Some).collect();
    if arguments.all_namespaces {
        namespaces = vec![None];
    }
    for namespace in namespaces {
        let api: Api<ConfigMap> = match namespace {
            Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
            None => Api::all(cluster.client.clone()),
        };
        // Their contents are large and say nothing here.
        let (listed, left_out) = match list_metadata(&api, &ListParams::default()).await {
            Ok(listed) => listed,
            // Whoever may look at pools need not have the right to look at the operator.
            Err(error) if namespace.is_some() && namespace == elsewhere => {
                status.default_unread = default.as_ref().map(|default| Unread::new(default, &error));
                continue;
            }
            Err(error) => return Err(unreadable(error, "listing ConfigMaps".to_owned(), "list them")),
        };
        cluster::left_out(&ConfigMap::kind(&()), &left_out);
        let of_default = |default: &ObjectKey| {
            let one = left_out.iter().find(|one| one.key() == *default)?;
            Some(Unread { namespace: default.namespace.clone(), name: default.name.clone(), error: one.reason().to_owned() })
        };
        status.default_unread = status.default_unread.or_else(|| default.as_ref().and_then(of_default));
        status.sets.extend(listed.iter().filter_map(|object| Set::of(object, default.as_ref())));
    }
    status.pools.extend(
        pools::<RunnerDeployment>(cluster, arguments.all_namespaces, |one| {
            one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
        })
        .await?,
    );
    status.pools.extend(
        pools::<RunnerSet>(cluster, arguments.all_namespaces, |one| {
            one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
        })
        .await?,
    );
    status.pools.extend(
        pools::<HorizontalRunnerAutoscaler>(cluster, arguments.all_namespaces, |one| {
            one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
        })
        .await?,
    );
    Ok(status)
}

async fn pools<K>(cluster: &Cluster, all: bool, conditions: impl Fn(&K) -> &[Condition]) -> Result<Vec<Pool>>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let listed: Vec<K> = cluster.list(all, "").await?;
    let pool = |object: &K| {
        let asks_for = object.annotations().get(annotation::POLICIES)?.trim().to_owned();
        let about = conditions(object).iter().filter(|condition| condition.type_.starts_with("Policy"));
        Some(Pool {
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            asks_for,
            conditions: about.cloned().collect(),
        })
    };
    Ok(listed.iter().filter_map(pool).collect())
}

impl Unread {
    fn new(default: &ObjectKey, error: &kube::Error) -> Self {
        let error = match error {
            // Without the structure that the message is part of.
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        Self { namespace: default.namespace.clone(), name: default.name.clone(), error }
    }

    fn text(&self) -> String {
        let error = line(&self.error);
        format!(
            "The cluster's default policy set ({}/{}) could not be read: {}. It may decide.\n",
            self.namespace,
            self.name,
            error.trim_end_matches('.')
        )
    }
}

impl Set {
    fn of(object: &impl ResourceExt, default: Option<&ObjectKey>) -> Option<Self> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let default = default.is_some_and(|default| default.namespace == namespace && default.name == name);
        let said = object.annotations().get(annotation::POLICY_STATUS);
        if said.is_none() && !default {
            return None;
        }
        let report = said.and_then(|said| SetReport::read(said));
        let cure = report.as_ref().and_then(|report| cure::of_reason(&report.last_error.as_ref()?.reason));
        Some(Self { namespace, name, default, report, cure })
    }

    fn text(&self, now: Timestamp) -> String {
        let default = if self.default { ", the cluster's default" } else { "" };
        let mut text = format!("ConfigMap {}/{}{default}\n", self.namespace, self.name);
        let Some(report) = &self.report else {
            return text + "  the operator has not said anything about it: is it running, and may it watch ConfigMaps here?\n";
        };
        let since = report.activated_at.map_or_else(String::new, |at| format!(", in force since {}", when(at, now)));
        let digest = report.digest.as_deref().map_or_else(String::new, |digest| format!(", {}", line(digest)));
        text.push_str(&format!("  phase       {}{digest}{since}\n", line(&report.phase)));
        let mut rows = Vec::new();
        for (decision, decided) in &report.decisions {
            for (mode, asked) in [("decides", &decided.enforced), ("in shadow", &decided.shadow)] {
                if let Some(asked) = asked {
                    rows.push(vec![format!("  {}", line(decision)), mode.to_owned(), line(&asked.policy), how(asked)]);
                }
            }
        }
        text.push_str(&table::left(&rows));
        if let Some(at) = report.counted_at {
            text.push_str(&format!("  counted     {}; counts alone are written once a minute at most\n", when(at, now)));
        }
        for (pool, foretold) in &report.would_be {
            text.push_str(&would_be(pool, foretold, now));
        }
        if report.would_be_more > 0 {
            text.push_str(&format!("  would be    {} more pools, in metrics\n", report.would_be_more));
        }
        if let Some(trial) = report.trial.as_ref().filter(|trial| report.content.as_ref() != Some(&trial.subject.content)) {
            text.push_str(&format!("  on trial    since {}\n", when(trial.at, now)));
        }
        if let Some(isolation) = &report.isolation {
            text.push_str(&format!("  isolation   {}; docs/isolation.md says what that means\n", line(isolation)));
        }
        if let Some(error) = &report.last_error {
            let (reason, message) = (line(&error.reason), line(&error.message));
            text.push_str(&format!("  last error  {reason}, {}: {message}\n", when(error.at, now)));
        }
        if let Some(cure) = self.cure {
            text.push_str(&format!("  what to do  {cure}\n"));
        }
        text
    }
}

/// What the fleet of a pool would be by now.
fn would_be(pool: &str, foretold: &Foretold, now: Timestamp) -> String {
    let (pool, since) = (line(pool), when(foretold.since, now));
    let Some(found) = &foretold.figures else {
        let why = line(foretold.message.as_deref().unwrap_or("no reason is given"));
        return format!("  would be    {pool}, since {since}: not said, because {why}\n");
    };
    let head = format!(
        "  would be    {pool}, {} jobs since {since}; the simulation misses waits by {:.1} s and runner-minutes by {:.1} %\n",
        found.jobs,
        found.misses.wait_seconds,
        found.misses.runner_minutes * 100.0
    );
    let title = ["", "runners now", "wait p50", "wait p95", "runner-minutes", "idle-minutes"].map(str::to_owned).to_vec();
    let row = |name: &str, fleet: &FleetFigures| {
        let numbers = [fleet.wait_p50, fleet.wait_p95].map(|wait| format!("{wait:.1} s"));
        let minutes = [fleet.runner_minutes, fleet.idle_minutes].map(|minutes| format!("{minutes:.1}"));
        let first = [format!("    {name}"), fleet.runners.to_string()];
        first.into_iter().chain(numbers).chain(minutes).collect()
    };
    let rows = [("as it was", &found.recorded), ("simulated", &found.in_force), ("in shadow", &found.shadow)];
    let rows: Vec<Vec<String>> = std::iter::once(title).chain(rows.map(|(name, fleet)| row(name, fleet))).collect();
    head + &table::left(&rows)
}

/// How a policy in its place is doing.
fn how(asked: &Asked) -> String {
    let mut text = format!("breaker {}", line(&asked.breaker));
    if let Some(faults) = asked.faults {
        let last = asked.last_fault.as_ref().map_or_else(String::new, |fault| format!(", the last one: {}", line(fault)));
        let word = if faults == 1 { "fault" } else { "faults" };
        text.push_str(&format!(", {faults} {word}{last}"));
    }
    if let Some(tally) = &asked.compared {
        let share =
            if tally.decisions == 0 { String::new() } else { format!(" ({})", table::percent(tally.agreed, tally.decisions)) };
        text.push_str(&format!(
            ", agreed in {} of {} decisions{share}, {} left out",
            tally.agreed, tally.decisions, tally.skipped
        ));
    }
    text
}

impl Status {
    fn text(&self, now: Timestamp) -> String {
        let mut text: String = self.sets.iter().map(|set| set.text(now) + "\n").collect();
        match &self.default_unread {
            Some(unread) => text.push_str(&(unread.text() + "\n")),
            None if self.sets.is_empty() => text.push_str("No policy set: the shipped policies decide everything.\n\n"),
            None => {}
        }
        if self.pools.is_empty() {
            text.push_str("No pool asks for a set of its own.\n");
        }
        for pool in &self.pools {
            text.push_str(&format!("{} {}/{} asks for {}\n", pool.kind, pool.namespace, pool.name, line(&pool.asks_for)));
            let row = |condition: &Condition| {
                vec![
                    format!("  {}", line(&condition.type_)),
                    line(&condition.status),
                    line(&condition.reason),
                    line(&condition.message),
                ]
            };
            text.push_str(&table::left(&pool.conditions.iter().map(row).collect::<Vec<_>>()));
            if pool.conditions.is_empty() {
                text.push_str("  the operator has not said anything about it yet\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn set(status: Option<&str>) -> Option<Set> {
        let mut object = ConfigMap::default();
        (object.metadata.namespace, object.metadata.name) = (Some("default".into()), Some("opinions".into()));
        object.metadata.annotations = status.map(|status| [(annotation::POLICY_STATUS.to_owned(), status.to_owned())].into());
        Set::of(&object, None)
    }

    #[test]
    fn a_set_says_phase_policies_comparison_and_cure() {
        let status = r#"{"phase":"LastGood","digest":"sha256:ab","activatedAt":"2026-01-01T00:00:00Z","decisions":{"scale-down":{
            "enforced":{"policy":"mine@sha256:12","breaker":"open","faults":3,"lastFault":"it ran past its deadline"},
            "shadow":{"policy":"next@sha256:34","breaker":"closed","compared":{"decisions":50,"agreed":49,"faults":0,"skipped":2,"fuel":1}}}},
            "lastError":{"reason":"PolicySetInvalid","message":"policies.yaml, line 2","at":"2026-01-01T00:10:00Z"},"countedAt":"2026-01-01T00:19:30Z",
            "content":"sha256:cd","trial":{"content":"sha256:ef","by":"1.0.0","at":"2026-01-01T00:19:55Z"},"isolation":"none (missing: seccomp)","wouldBe":{
            "ci/web":{"since":"2026-01-01T00:10:00Z","jobs":40,"recorded":{"runners":2,"waitP50":0.1,"waitP95":1,"runnerMinutes":20,"idleMinutes":15},
            "inForce":{"runners":2,"waitP50":0.1,"waitP95":1,"runnerMinutes":20.1,"idleMinutes":15},
            "shadow":{"runners":5,"waitP50":0,"waitP95":0.5,"runnerMinutes":50,"idleMinutes":45},"misses":{"waitSeconds":0.1,"runnerMinutes":0.005}},
            "ci/zoo":{"since":"2026-01-01T00:10:00Z","reason":"NoJob","message":"no job has come in that time"}},"wouldBeMore":3}"#;
        let text = set(Some(status)).unwrap().text("2026-01-01T00:20:00Z".parse().unwrap());
        for part in [
            "phase       LastGood, sha256:ab, in force since 2026-01-01T00:00:00Z (20 min ago)",
            "scale-down  decides    mine@sha256:12  breaker open, 3 faults, the last one: it ran past its deadline",
            "in shadow  next@sha256:34  breaker closed, agreed in 49 of 50 decisions (98.0 %), 2 left out",
            "counted     2026-01-01T00:19:30Z (30 s ago); counts alone are written once a minute at most",
            "on trial    since 2026-01-01T00:19:55Z (5 s ago)",
            "would be    ci/web, 40 jobs since 2026-01-01T00:10:00Z (10 min ago); the simulation misses waits by 0.1 s and runner-minutes by 0.5 %",
            "in shadow  5            0.0 s     0.5 s     50.0            45.0",
            "would be    ci/zoo, since 2026-01-01T00:10:00Z (10 min ago): not said, because no job has come in that time",
            "would be    3 more pools, in metrics",
            "isolation   none (missing: seccomp); docs/isolation.md says what that means",
            "last error  PolicySetInvalid, 2026-01-01T00:10:00Z (10 min ago): policies.yaml, line 2",
            "what to do  correct the line",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
        assert!(set(None).is_none());
    }

    #[test]
    fn what_tenants_write_stays_on_its_line_and_steers_no_terminal() {
        let status = r#"{"phase":"Active\n\u001b[2J  phase       Forged","decisions":{"restart\n":{"enforced":{"policy":"a\r\nb","breaker":"\u009b2J"}}},
            "lastError":{"reason":"PolicySetInvalid","message":"one\n\u001b[2Jtwo","at":"2026-01-01T00:10:00Z"}}"#;
        let set = set(Some(status)).unwrap();
        let condition = serde_json::json!({
            "type": "PolicyActive", "status": "False", "reason": "A", "message": "b\n\u{1b}c", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let pool = Pool {
            kind: "RunnerDeployment".to_owned(),
            namespace: "ci".to_owned(),
            name: "web".to_owned(),
            asks_for: "mine\nPool other".to_owned(),
            conditions: vec![serde_json::from_value(condition).unwrap()],
        };
        let status = Status { sets: vec![set], default_unread: None, pools: vec![pool] };
        let text = status.text("2026-01-01T00:20:00Z".parse().unwrap());
        for part in [
            "\n  phase       Active [2J phase Forged\n",
            "\n  restart  decides  a b  breaker 2J\n",
            "\n  last error  PolicySetInvalid, 2026-01-01T00:10:00Z (10 min ago): one [2Jtwo\n",
            "\nRunnerDeployment ci/web asks for mine Pool other\n  PolicyActive  False  A  b c\n",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text:?}");
        }
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
    }

    #[test]
    fn a_default_set_that_can_not_be_read_may_decide() {
        let default = ObjectKey::new("operator", "pacer-policies");
        let denied = kube::core::Status::failure("configmaps is forbidden: no right\n to list", "Forbidden").with_code(403);
        let unread = Unread::new(&default, &kube::Error::Api(denied.boxed()));
        let status = Status { default_unread: Some(unread), ..Status::default() };
        let text = status.text(Timestamp::UNIX_EPOCH);
        assert!(
            text.starts_with(
                "The cluster's default policy set (operator/pacer-policies) could not be read: configmaps is forbidden: no right to list. It may decide.\n"
            ),
            "{text}"
        );
        assert!(!text.contains("decide everything"), "{text}");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["defaultUnread"]["name"], "pacer-policies");
        assert!(serde_json::to_value(Status::default()).unwrap().get("defaultUnread").is_none());
    }

    #[tokio::test]
    async fn a_config_map_that_can_not_be_read_hides_no_other_one() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let service = tower::service_fn(|request: http::Request<Body>| {
            let map = |name: &str, made: &str| json!({"metadata": {"name": name, "namespace": "ci", "creationTimestamp": made}});
            let (readable, unreadable) = ("2026-01-01T00:00:00Z", "10000-01-01T00:00:00Z");
            let mut set = map("opinions", readable);
            set["metadata"]["annotations"] = json!({(annotation::POLICY_STATUS): "{}"});
            let mut default = map("ops", unreadable);
            default["metadata"]["namespace"] = json!("operator");
            let items = match request.uri().path() {
                "/api/v1/namespaces/ci/configmaps" => vec![map("bad", unreadable), set, map("other", readable)],
                "/api/v1/namespaces/operator/configmaps" => vec![default],
                _ => Vec::new(),
            };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}).to_string();
            async move { Ok::<_, std::io::Error>(http::Response::new(Body::from(list.into_bytes()))) }
        });
        let cluster = Cluster { client: Client::new(service, "ci"), namespace: "ci".to_owned() };
        let line = <Line as clap::Parser>::try_parse_from(["status", "--operator-namespace=operator", "--policies=ops"]);
        let status = read(&cluster, &line.unwrap().arguments).await.unwrap();
        assert_eq!(status.sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["opinions"]);
        let text = status.text(Timestamp::UNIX_EPOCH);
        assert!(text.contains("The cluster's default policy set (operator/ops) could not be read: "), "{text}");
    }

    #[test]
    fn nothing_is_said_in_words() {
        let text = Status::default().text(Timestamp::UNIX_EPOCH);
        assert!(text.contains("the shipped policies decide everything") && text.contains("No pool asks"), "{text}");
    }
}
