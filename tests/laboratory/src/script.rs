//! What happens in one run: the setting, and what people, machines and GitHub do in it.
//!
//! A script is a text file. Whatever it does not say (how late a watch is, which runner gets a job) is drawn from its seed, by what it is about and
//! not by when it is drawn: the run of a script is always the same, and dropping a line changes little else.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::clock::{At, MINUTE, SECOND};
use crate::draw::Draw;

/// All that determines a run: its seed, its setting and its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What everything is drawn from that is not written down.
    pub seed: u64,
    /// What does not change in the run.
    pub setting: Setting,
    /// What happens, and when; in order.
    pub steps: Vec<(At, Operation)>,
}

/// What does not change in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Wanted runners where no autoscaler says so.
    pub replicas: u32,
    /// The autoscaler, where there is one.
    pub autoscaler: Option<Autoscaler>,
    /// Runners take one job each.
    pub ephemeral: bool,
    /// The kubelet looks for a worker process.
    pub probe: bool,
    /// What an agent does with its job when its registration is gone.
    pub cancels: Cancels,
    /// The scale-down policy gives answers that make no sense.
    pub wild_policy: bool,
}

/// Spec of the HorizontalRunnerAutoscaler, and how it learns of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autoscaler {
    /// `minReplicas`.
    pub min: u32,
    /// `maxReplicas`.
    pub max: u32,
    /// Scale-down delay in seconds.
    pub delay: u64,
    /// GitHub sends webhooks.
    pub webhooks: bool,
    /// GitHub's queue is listed.
    pub polls: bool,
}

/// What an agent does with its job when its registration is gone; GitHub's sources disagree (github-behaviour 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancels {
    /// Every agent finishes the job.
    Never,
    /// Every other one cancels it.
    Half,
    /// Every agent cancels the job.
    Always,
}

/// How GitHub answers when it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// 401: the credentials are revoked, or expired in mid-flight.
    Unauthorized,
    /// 403, without a word about limits.
    Forbidden,
    /// 429 with `Retry-After`.
    TooMany,
    /// 502, or no answer in time: of what was asked for, half is done.
    Lost,
}

/// Kinds whose watches can be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// RunnerDeployments.
    Target,
    /// RunnerReplicaSets.
    Set,
    /// Runner objects, as opposed to their pods.
    Runner,
    /// Pods of Runners.
    Pod,
    /// HorizontalRunnerAutoscalers.
    Scaler,
    /// JobLedgers.
    Ledger,
}

impl Kind {
    /// Every kind whose watch can be interrupted.
    pub const ALL: [Self; 6] = [Self::Target, Self::Set, Self::Runner, Self::Pod, Self::Scaler, Self::Ledger];

    fn word(self) -> &'static str {
        match self {
            Self::Target => "deployments",
            Self::Set => "sets",
            Self::Runner => "runners",
            Self::Pod => "pods",
            Self::Scaler => "autoscalers",
            Self::Ledger => "ledgers",
        }
    }
}

impl Refusal {
    const ALL: [Self; 4] = [Self::Unauthorized, Self::Forbidden, Self::TooMany, Self::Lost];

    fn word(self) -> &'static str {
        match self {
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::TooMany => "429",
            Self::Lost => "502",
        }
    }
}

/// Something that happens. Times are in milliseconds; things that go on for a while end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// So many jobs are queued, each of which takes so long.
    Jobs(u32, At),
    /// Somebody sets the number of runners.
    Scale(u32),
    /// Somebody changes the template.
    Template,
    /// Somebody deletes a Runner.
    DeleteRunner,
    /// Somebody deletes a pod.
    DeletePod,
    /// The autoscaler's spec becomes invalid for so long; for good when that is no time.
    Invalid(At),
    /// The operator's process dies at its so-manieth call from here on.
    Crash(u32),
    /// GitHub refuses requests in this way for so long.
    Refuse(Refusal, At),
    /// Listings are torn by churn.
    Torn(At),
    /// A watch is interrupted.
    Stall(Kind, At),
    /// The API server refuses every third change, and loses the answer to another third.
    ApiFails(At),
    /// GitHub's busy flag of jobs that begin now is late by the first time.
    FlagLate(At, At),
    /// GitHub's busy flag of jobs that run turns false.
    FlagDrops(At),
    /// Webhooks that GitHub sends within so long get lost.
    WebhooksLost(At),
    /// Pods that are scheduled within so long start slowly.
    SlowStarts(At),
    /// Agents end without registering.
    BadStarts(At),
    /// A pod is evicted.
    Evict,
    /// A node is lost with all that runs on it.
    NodeLost,
    /// The kubelet of a node has no contact with the API server.
    NodeSilent(At),
    /// Another fleet of the same credentials removes so many runners.
    OtherRemovals(u32),
}

impl Operation {
    /// Until when it has an effect of its own, when it happens at `at`.
    #[must_use]
    pub fn until(self, at: At) -> At {
        let lasts = match self {
            Self::Jobs(_, lasts)
            | Self::Invalid(lasts)
            | Self::Refuse(_, lasts)
            | Self::Torn(lasts)
            | Self::Stall(_, lasts)
            | Self::ApiFails(lasts)
            | Self::FlagLate(_, lasts)
            | Self::FlagDrops(lasts)
            | Self::WebhooksLost(lasts)
            | Self::SlowStarts(lasts)
            | Self::BadStarts(lasts)
            | Self::NodeSilent(lasts) => lasts,
            _ => 0,
        };
        at.saturating_add(lasts)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs(count, lasts) => write!(f, "jobs {count} {lasts}"),
            Self::Scale(replicas) => write!(f, "scale {replicas}"),
            Self::Template => f.write_str("template"),
            Self::DeleteRunner => f.write_str("delete-runner"),
            Self::DeletePod => f.write_str("delete-pod"),
            Self::Invalid(lasts) => write!(f, "invalid {lasts}"),
            Self::Crash(calls) => write!(f, "crash {calls}"),
            Self::Refuse(refusal, lasts) => write!(f, "github {} {lasts}", refusal.word()),
            Self::Torn(lasts) => write!(f, "torn {lasts}"),
            Self::Stall(kind, lasts) => write!(f, "stall {} {lasts}", kind.word()),
            Self::ApiFails(lasts) => write!(f, "api-fails {lasts}"),
            Self::FlagLate(late, lasts) => write!(f, "flag-late {late} {lasts}"),
            Self::FlagDrops(lasts) => write!(f, "flag-drops {lasts}"),
            Self::WebhooksLost(lasts) => write!(f, "webhooks-lost {lasts}"),
            Self::SlowStarts(lasts) => write!(f, "slow-starts {lasts}"),
            Self::BadStarts(lasts) => write!(f, "bad-starts {lasts}"),
            Self::Evict => f.write_str("evict"),
            Self::NodeLost => f.write_str("node-lost"),
            Self::NodeSilent(lasts) => write!(f, "node-silent {lasts}"),
            Self::OtherRemovals(count) => write!(f, "other-removals {count}"),
        }
    }
}

impl FromStr for Operation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().with_context(|| format!("{word:?} is no number"));
        let count = |word: &str| word.parse::<u32>().with_context(|| format!("{word:?} is no number"));
        Ok(match *words.as_slice() {
            ["jobs", jobs, lasts] => Self::Jobs(count(jobs)?, number(lasts)?),
            ["scale", replicas] => Self::Scale(count(replicas)?),
            ["template"] => Self::Template,
            ["delete-runner"] => Self::DeleteRunner,
            ["delete-pod"] => Self::DeletePod,
            ["invalid", lasts] => Self::Invalid(number(lasts)?),
            ["crash", calls] => Self::Crash(count(calls)?),
            ["github", refusal, lasts] => {
                let refusal = Refusal::ALL.into_iter().find(|one| one.word() == refusal);
                Self::Refuse(refusal.context("GitHub refuses with 401, 403, 429 or 502")?, number(lasts)?)
            }
            ["torn", lasts] => Self::Torn(number(lasts)?),
            ["stall", kind, lasts] => {
                let kind = Kind::ALL.into_iter().find(|one| one.word() == kind);
                Self::Stall(kind.context("no such kind")?, number(lasts)?)
            }
            ["api-fails", lasts] => Self::ApiFails(number(lasts)?),
            ["flag-late", late, lasts] => Self::FlagLate(number(late)?, number(lasts)?),
            ["flag-drops", lasts] => Self::FlagDrops(number(lasts)?),
            ["webhooks-lost", lasts] => Self::WebhooksLost(number(lasts)?),
            ["slow-starts", lasts] => Self::SlowStarts(number(lasts)?),
            ["bad-starts", lasts] => Self::BadStarts(number(lasts)?),
            ["evict"] => Self::Evict,
            ["node-lost"] => Self::NodeLost,
            ["node-silent", lasts] => Self::NodeSilent(number(lasts)?),
            ["other-removals", removals] => Self::OtherRemovals(count(removals)?),
            _ => bail!("no such operation"),
        })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { replicas, autoscaler, ephemeral, probe, cancels, wild_policy } = self.setting;
        writeln!(f, "seed {}", self.seed)?;
        match autoscaler {
            None => writeln!(f, "fixed {replicas}")?,
            Some(Autoscaler { min, max, delay, webhooks, polls }) => {
                writeln!(f, "autoscaler {min} {max} delay {delay} webhooks {webhooks} polls {polls}")?;
            }
        }
        let cancels = match cancels {
            Cancels::Never => "never",
            Cancels::Half => "half",
            Cancels::Always => "always",
        };
        writeln!(f, "runners ephemeral {ephemeral} probe {probe} cancel {cancels} wild-policy {wild_policy}")?;
        for (at, operation) in &self.steps {
            writeln!(f, "at {at} {operation}")?;
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut seed = None;
        let mut setting =
            Setting { replicas: 3, autoscaler: None, ephemeral: true, probe: true, cancels: Cancels::Half, wild_policy: false };
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            read_line(line, &mut seed, &mut setting, &mut steps).with_context(|| format!("line {}: {line}", number + 1))?;
        }
        ensure!(steps.is_sorted_by_key(|(at, _)| *at), "the steps are not in the order of their times");
        Ok(Self { seed: seed.context("a script begins with its seed")?, setting, steps })
    }
}

fn read_line(line: &str, seed: &mut Option<u64>, setting: &mut Setting, steps: &mut Vec<(At, Operation)>) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words.as_slice() {
        ["seed", number] => *seed = Some(number.parse()?),
        ["fixed", replicas] => setting.replicas = replicas.parse()?,
        ["autoscaler", min, max, "delay", delay, "webhooks", webhooks, "polls", polls] => {
            setting.autoscaler = Some(Autoscaler {
                min: min.parse()?,
                max: max.parse()?,
                delay: delay.parse()?,
                webhooks: webhooks.parse()?,
                polls: polls.parse()?,
            });
        }
        ["runners", "ephemeral", ephemeral, "probe", probe, "cancel", cancels, "wild-policy", wild_policy] => {
            setting.ephemeral = ephemeral.parse()?;
            setting.probe = probe.parse()?;
            setting.wild_policy = wild_policy.parse()?;
            setting.cancels = match cancels {
                "never" => Cancels::Never,
                "half" => Cancels::Half,
                "always" => Cancels::Always,
                _ => bail!("agents cancel their jobs never, half or always"),
            };
        }
        ["at", at, ..] => {
            let operation = line.split_once(at).map(|(_, rest)| rest.trim()).unwrap_or_default();
            steps.push((at.parse()?, operation.parse()?));
        }
        _ => bail!("no such line"),
    }
    Ok(())
}

impl Script {
    /// The script of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let draw = Draw::new(seed);
        let setting = setting(draw);
        let count = draw.between("steps", 0, 0, (3, 22));
        // The first minute is for the fleet to come up, as a rule.
        let first = if draw.chance("early", 0, 0, 150) { 0 } else { 40 * SECOND };
        let length = draw.between("length", 0, 0, (4, 14)) * MINUTE;
        // Some worlds are calm: nothing but work.
        let calm = draw.chance("calm", 0, 0, 100);
        let what = |index| if calm { jobs(draw, index) } else { operation(draw, index, &setting) };
        let mut steps: Vec<(At, Operation)> =
            (0..count).map(|index| (draw.between("at", index, 0, (first, length)), what(index))).collect();
        // Work in any case.
        steps.push((draw.between("at", count, 0, (first, length)), jobs(draw, count)));
        steps.sort_by_key(|(at, _)| *at);
        Self { seed, setting, steps }
    }

    /// Whether nothing but work happens, and all of it is told of.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let told = self.setting.autoscaler.is_some_and(|scaler| scaler.webhooks);
        told && self.setting.ephemeral && self.steps.iter().all(|(_, operation)| matches!(operation, Operation::Jobs(..)))
    }

    /// When the last operation has no effect of its own any more.
    #[must_use]
    pub fn end(&self) -> At {
        self.steps.iter().map(|(at, operation)| operation.until(*at)).max().unwrap_or_default()
    }
}

fn setting(draw: Draw) -> Setting {
    let autoscaled = draw.chance("autoscaled", 0, 0, 550);
    let min = draw.between("min", 0, 0, (0, 2));
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let webhooks = draw.chance("webhooks", 0, 0, 800);
    Setting {
        replicas: if autoscaled { 3 } else { small(draw.between("replicas", 0, 0, (1, 6))) },
        autoscaler: autoscaled.then(|| Autoscaler {
            min: small(min),
            max: small(min + draw.between("max", 0, 0, (1, 6))),
            delay: draw.between("delay", 0, 0, (5, 300)),
            webhooks,
            // Nobody would hear of a job otherwise, and a lost webhook has to be made up for.
            polls: true,
        }),
        ephemeral: draw.chance("ephemeral", 0, 0, 800),
        probe: draw.chance("probe", 0, 0, 800),
        cancels: match draw.between("cancels", 0, 0, (0, 3)) {
            0 => Cancels::Never,
            1 => Cancels::Always,
            _ => Cancels::Half,
        },
        wild_policy: draw.chance("wild", 0, 0, 100),
    }
}

fn jobs(draw: Draw, index: u64) -> Operation {
    let count = u32::try_from(draw.between("jobs", index, 0, (1, 8))).unwrap_or(1);
    let lasts = match draw.between("lasts", index, 1, (0, 3)) {
        0 => draw.between("lasts", index, 0, (200, 2_000)),
        1 => draw.between("lasts", index, 0, (2 * SECOND, 30 * SECOND)),
        _ => draw.between("lasts", index, 0, (30 * SECOND, 6 * MINUTE)),
    };
    Operation::Jobs(count, lasts)
}

fn operation(draw: Draw, index: u64, setting: &Setting) -> Operation {
    let small = |what, range| u32::try_from(draw.between(what, index, 0, range)).unwrap_or(u32::MAX);
    let time = |what, range| draw.between(what, index, 0, range);
    match draw.between("operation", index, 0, (0, 99)) {
        0..22 => jobs(draw, index),
        22..36 => match setting.autoscaler {
            None => Operation::Scale(small("scale", (0, 7))),
            Some(_) => jobs(draw, index),
        },
        36..44 => Operation::Template,
        44..47 => Operation::DeleteRunner,
        47..50 => Operation::DeletePod,
        50..54 if setting.autoscaler.is_some() => {
            let lasts = time("invalid", (10 * SECOND, 4 * MINUTE));
            Operation::Invalid(if draw.chance("for-good", index, 0, 400) { 0 } else { lasts })
        }
        50..60 => Operation::Crash(small("crash", (1, 12))),
        60..65 => {
            let refusal = match draw.between("refusal", index, 0, (0, 3)) {
                0 => Refusal::Unauthorized,
                1 => Refusal::Forbidden,
                2 => Refusal::TooMany,
                _ => Refusal::Lost,
            };
            Operation::Refuse(refusal, time("refused", (SECOND, 2 * MINUTE)))
        }
        65..68 => Operation::Torn(time("torn", (5 * SECOND, 2 * MINUTE))),
        68..74 => {
            let kind = Kind::ALL.get(usize::try_from(time("kind", (0, 5))).unwrap_or_default()).copied();
            let kind = kind.unwrap_or(Kind::Pod);
            Operation::Stall(kind, time("stall", (SECOND, 90 * SECOND)))
        }
        74..79 => Operation::ApiFails(time("api", (SECOND, MINUTE))),
        79..83 => Operation::FlagLate(time("late", (20 * SECOND, 90 * SECOND)), time("flag", (MINUTE, 5 * MINUTE))),
        83..87 => Operation::FlagDrops(time("drops", (10 * SECOND, 3 * MINUTE))),
        87..89 => Operation::WebhooksLost(time("lost", (SECOND, 2 * MINUTE))),
        89..91 => Operation::SlowStarts(time("slow", (10 * SECOND, 2 * MINUTE))),
        91..93 => Operation::BadStarts(time("bad", (5 * SECOND, 90 * SECOND))),
        93..95 => Operation::Evict,
        95..96 => Operation::NodeLost,
        96..98 => Operation::NodeSilent(time("silent", (20 * SECOND, 3 * MINUTE))),
        _ => Operation::OtherRemovals(small("others", (20, 400))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_what_their_text_says() {
        for seed in 0..200 {
            let script = Script::of_seed(seed);
            assert_eq!(script.to_string().parse::<Script>().unwrap(), script);
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let error = "seed 1\nat 5 dance\n".parse::<Script>().unwrap_err();
        assert!(error.to_string().contains("line 2: at 5 dance"), "{error}");
        assert!("seed 1\nat 5 evict\nat 4 evict\n".parse::<Script>().is_err());
        assert!("at 5 evict\n".parse::<Script>().is_err());
    }
}
