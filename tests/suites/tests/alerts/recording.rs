//! What an operator exported before and during a fault, and which alerts fire on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, promtool};
use serde_json::{Value, json};

/// The rules as they are shipped.
pub(crate) const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/alerts/pacer.yaml");

/// Minutes for which all is well before the fault.
const WELL: usize = 20;

/// Minutes for which what was scraped last stands.
const LAST: usize = 45;

/// Series with their values, as one scrape has them.
pub(crate) type Scrape = BTreeMap<String, String>;

/// What a scrape has to show before it counts: some series with this name and this text among its labels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// One is at least this.
    Least(&'a str, &'a str, f64),
    /// One is at most this.
    Most(&'a str, &'a str, f64),
    /// They have grown in sum by at least this since the scrape before.
    Grown(&'a str, &'a str, f64),
}

impl Wanted<'_> {
    fn is_met(&self, scrape: &Scrape, before: Option<&Scrape>) -> bool {
        match *self {
            Self::Least(name, label, least) => values(scrape, name, label).any(|value| value >= least),
            Self::Most(name, label, most) => values(scrape, name, label).any(|value| value <= most),
            Self::Grown(name, label, by) => {
                let sum = |scrape: &Scrape| values(scrape, name, label).sum::<f64>();
                sum(scrape) - before.map_or(0.0, sum) >= by
            }
        }
    }
}

fn values<'a>(scrape: &'a Scrape, name: &str, label: &str) -> impl Iterator<Item = f64> + use<'a> {
    let (name, label) = (format!("{name}{{"), label.to_owned());
    let named = scrape.iter().filter(move |(series, _)| series.starts_with(&name) && series.contains(&label));
    named.filter_map(|(_, value)| value.parse().ok())
}

/// Scrapes in their order, each with the minutes for which it stands. The first one is of when all was well.
pub(crate) struct Recording {
    scrapes: Vec<(Scrape, usize)>,
}

impl Recording {
    /// These scrapes, the first of which is of when all was well.
    pub(crate) fn of(scrapes: impl IntoIterator<Item = Scrape>) -> Self {
        Self { scrapes: scrapes.into_iter().zip(std::iter::once(WELL).chain(std::iter::repeat(LAST))).collect() }
    }

    /// Begins while all is well, with a scrape that shows this.
    pub(crate) async fn begin(world: &World, wanted: &[Wanted<'_>]) -> Result<Self> {
        let operator = world.operator.as_ref().context("no operator")?;
        Self::begin_with(world, &[("a", operator)], wanted).await
    }

    /// The same of several operators, by the names of their instances.
    pub(crate) async fn begin_with(world: &World, operators: &[(&str, &Operator)], wanted: &[Wanted<'_>]) -> Result<Self> {
        let mut recording = Self { scrapes: Vec::new() };
        recording.add_of(world, operators, WELL, wanted).await?;
        Ok(recording)
    }

    /// Goes on with a scrape of the fault that shows this, and stands until the end.
    pub(crate) async fn add(&mut self, world: &World, wanted: &[Wanted<'_>]) -> Result<()> {
        self.add_for(world, LAST, wanted).await
    }

    /// The same with a scrape that stands for so many minutes.
    pub(crate) async fn add_for(&mut self, world: &World, minutes: usize, wanted: &[Wanted<'_>]) -> Result<()> {
        let operator = world.operator.as_ref().context("no operator")?;
        self.add_of(world, &[("a", operator)], minutes, wanted).await
    }

    /// The same of several operators.
    pub(crate) async fn add_of(
        &mut self,
        world: &World,
        operators: &[(&str, &Operator)],
        minutes: usize,
        wanted: &[Wanted<'_>],
    ) -> Result<()> {
        let rules = std::fs::read_to_string(RULES)?;
        let before = self.scrapes.last().map(|(scrape, _)| scrape);
        let found = async {
            loop {
                let mut scrape = Scrape::new();
                for (instance, operator) in operators {
                    scrape.extend(series(&operator.metrics().await?, instance, &rules));
                }
                if wanted.iter().all(|wanted| wanted.is_met(&scrape, before)) {
                    return Ok::<_, anyhow::Error>(scrape);
                }
                // Another process announces nothing.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await.map_err(|_| format!("no scrape with {wanted:?}"));
        let scrape = world.check(found).await??;
        self.scrapes.push((scrape, minutes));
        Ok(())
    }

    /// Goes on without any series, as nobody is there to be scraped.
    pub(crate) fn add_nothing(&mut self) {
        self.scrapes.push((Scrape::new(), LAST));
    }

    /// Fails unless these alerts and no others fire in the fault, and none before it.
    pub(crate) fn raises(&self, promtool: &Path, alerts: &[&str]) -> Result<()> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
        let case = self.case(alerts);
        // JSON is YAML.
        std::fs::write(file.path(), case.to_string())?;
        promtool::succeeds(promtool, &["test", "rules", &file.path().to_string_lossy()])
            .with_context(|| serde_json::to_string_pretty(&case).unwrap_or_default())
    }

    /// A file for promtool with a sample of each series for each minute.
    fn case(&self, alerts: &[&str]) -> Value {
        let all: BTreeSet<&String> = self.scrapes.iter().flat_map(|(scrape, _)| scrape.keys()).collect();
        let series = all.into_iter().map(|series| {
            let value = |scrape: &Scrape| scrape.get(series).cloned().unwrap_or_else(|| "_".to_owned());
            let values: Vec<_> = self.scrapes.iter().flat_map(|(scrape, minutes)| vec![value(scrape); *minutes]).collect();
            json!({"series": series, "values": values.join(" ")})
        });
        let end = self.scrapes.iter().map(|(_, minutes)| minutes).sum::<usize>() - 1;
        let fired = |minutes: usize, at: usize, alerts: &[&str]| {
            let samples = alerts.iter().map(|alert| json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1}));
            json!({
                "expr": format!("group by (alertname) (max_over_time(ALERTS{{alertstate=\"firing\"}}[{minutes}m]))"),
                "eval_time": format!("{at}m"), "exp_samples": samples.collect::<Vec<_>>(),
            })
        };
        json!({
            "rule_files": [RULES], "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m", "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": [fired(WELL, WELL - 1, &[]), fired(end, end, alerts)],
            }],
        })
    }
}

/// What the rules ask for of the text of a scrape, with the label that Prometheus adds.
fn series(text: &str, instance: &str, rules: &str) -> Scrape {
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let labelled = samples.filter_map(|(series, value)| {
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let of_metric = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let comma = if labels.is_empty() { "" } else { "," };
        let series = format!("{name}{{instance=\"{instance}\"{comma}{labels}}}");
        (!of_metric.is_empty() && rules.contains(of_metric)).then(|| (series, value.to_owned()))
    });
    labelled.collect()
}
