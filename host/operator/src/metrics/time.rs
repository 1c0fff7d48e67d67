//! What runners do with their time.

use jiff::Timestamp;
use pacer_core::spend::Whose;
use prometheus_client::encoding::DescriptorEncoder;

use super::counter;
use crate::usage::{Times, Usage};

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, usage: &Usage, now: Timestamp) -> Result<(), std::fmt::Error> {
    let Times { by_pool, by_repository } = usage.read(now);
    let rows: Vec<_> = by_pool
        .iter()
        .flat_map(|(pool, elapsed)| {
            [("starting", elapsed.coming), ("idle", elapsed.idle), ("busy", elapsed.busy)].map(|(state, seconds)| {
                let (namespace, name) = (pool.namespace.clone(), pool.name.clone());
                (vec![("namespace", namespace), ("pool", name), ("state", state.to_owned())], seconds)
            })
        })
        .collect();
    let help =
        "Time of a pool's runners by what they did: from their creation until they are online, online without a job, with a job";
    counter(encoder, "pacer_runner_seconds", help, &rows)?;
    let rows: Vec<_> =
        by_repository.iter().map(|(whose, seconds)| (vec![("repository", name(whose).to_owned())], *seconds)).collect();
    let help = "Time that runners were online for a repository: with a job of it, before that and after their last one; of the 200 that use most, all \
                others together (other), busy with a job of which nobody told (unknown), and gone without a job (nobody)";
    counter(encoder, "pacer_repository_runner_seconds", help, &rows)
}

fn name(whose: &Whose) -> &str {
    match whose {
        Whose::Repository(name) => name,
        Whose::Others => "other",
        Whose::Unknown => "unknown",
        Whose::Nobody => "nobody",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;
    use pacer_cluster::object::Uid;
    use pacer_core::facts::RunnerFacts;
    use pacer_core::runner_job::RunnerJob;
    use prometheus_client::collector::Collector;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::standing::{Standing, State};
    use crate::usage::{Look, Pool, ShardUsage};

    #[derive(Debug)]
    struct At(Arc<Usage>, i64);

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    impl Collector for At {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            encode(&mut encoder, &self.0, at(self.1))
        }
    }

    #[test]
    fn a_pool_has_every_state_and_a_repository_one_series() {
        let usage = Arc::new(Usage::default());
        let job = RunnerJob { working: Some(at(0)), repository: Some("acme/app".into()), ..RunnerJob::default() };
        let facts = RunnerFacts { uid: "r".into(), ..RunnerFacts::default() };
        let look = Look::of(&facts, &Standing { state: State::Busy, since: at(0), trouble: None }, Some(&job));
        let pool = Pool { namespace: "ci".into(), name: "web".into() };
        ShardUsage::new(usage.clone(), 0).see(&Uid::new("s").unwrap(), pool, look.into_iter().collect(), at(0));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(At(usage, 90)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"pacer_runner_seconds_total{namespace="ci",pool="web",state="starting"} 0.0"#,
                r#"pacer_runner_seconds_total{namespace="ci",pool="web",state="idle"} 0.0"#,
                r#"pacer_runner_seconds_total{namespace="ci",pool="web",state="busy"} 90.0"#,
                r#"pacer_repository_runner_seconds_total{repository="acme/app"} 90.0"#,
            ]
        );
    }
}
