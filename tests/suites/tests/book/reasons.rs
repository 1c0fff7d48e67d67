//! Every reason of a condition or Event has an entry in the troubleshooting page.
//!
//! Reasons are words in CamelCase. So every such word in the source is either in the page, or in the list of words that mean something else.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, LitStr, Macro};

use super::{files, read};

const PAGE: &str = "docs/troubleshooting.md";

/// Where reasons are made.
const SOURCES: [&str; 9] = [
    "host/api/src",
    "host/cluster/src",
    "host/core/src",
    "host/demand/src",
    "host/github/src",
    "host/operator/src",
    "host/policy/src",
    "host/policyset/src",
    "host/registry/src",
];

/// Events of the operator.
const EVENTS: &str = "host/cluster/src/events.rs";

/// Words that are no reasons of ours, by what they are.
const OTHERS: [(&str, &[&str]); 8] = [
    (
        "kinds, and things that are named after them",
        &[
            "ClusterRole",
            "HorizontalRunnerAutoscaler",
            "JobLedger",
            "Role",
            "Runner",
            "RunnerDeployment",
            "RunnerReplicaSet",
            "RunnerSet",
            "RunnerSetSpec",
            "ServiceAccount",
            "StatefulSet",
        ],
    ),
    (
        "values of fields and settings",
        &[
            "Always",
            "Default",
            "Delete",
            "Memory",
            "Never",
            "OnDelete",
            "Opaque",
            "OrderedReady",
            "ReadWrite",
            "ReadWriteMany",
            "ReadWriteOnce",
            "Shared",
            "ThinProvisioned",
        ],
    ),
    ("repetition of a scheduled override", &["Daily", "Weekly", "Monthly", "Yearly"]),
    ("values of conditions", &["True", "False", "Unknown"]),
    (
        "what Kubernetes says of pods, nodes and volumes",
        &[
            "CrashLoopBackOff",
            "CreateContainerConfigError",
            "CreateContainerError",
            "DeletionByPodGC",
            "DeletionByTaintManager",
            "DisruptionTarget",
            "DoesNotExist",
            "ErrImageNeverPull",
            "ErrImagePull",
            "Evicted",
            "EvictionByEvictionAPI",
            "Exists",
            "Failed",
            "ImagePullBackOff",
            "InvalidImageName",
            "Lost",
            "NamespaceTerminating",
            "NoExecute",
            "NoSchedule",
            "NodeLost",
            "NodeShutdown",
            "NotIn",
            "Pending",
            "PodScheduled",
            "Preempting",
            "PreemptionByScheduler",
            "RegistryUnavailable",
            "RunContainerError",
            "Running",
            "Shutdown",
            "Succeeded",
            "Terminated",
            "TerminationByKubelet",
            "ToBeDeletedByClusterAutoscaler",
            "Unschedulable",
        ],
    ),
    ("phases of Runners and policy sets", &["Created", "Idle", "Degraded", "Missing"]),
    ("what GitHub says", &["GitHub", "PercentageRunnersBusy", "TotalNumberOfQueuedAndInProgressWorkflowRuns", "User"]),
    (
        "what is printed for whoever debugs",
        &[
            "AutoscalerMemo",
            "Check",
            "Generation",
            "Interest",
            "Landlock",
            "OffsetTime",
            "Queues",
            "RemoteHook",
            "RunnerListHandle",
            "RunnerLists",
            "Sources",
            "Verifier",
        ],
    ),
];

/// Words in CamelCase that a source file has in quotes, outside of tests.
#[derive(Default)]
struct Words(BTreeSet<String>);

impl Words {
    fn of(source: &str) -> Result<BTreeSet<String>> {
        let mut words = Self::default();
        words.visit_file(&syn::parse_file(source)?);
        Ok(words.0)
    }

    fn literal(&mut self, text: &LitStr) {
        let text = text.value();
        let mut letters = text.chars();
        let starts = letters.next().is_some_and(|first| first.is_ascii_uppercase())
            && letters.next().is_some_and(|second| second.is_ascii_lowercase());
        if starts && text.len() > 3 && text.chars().all(|letter| letter.is_ascii_alphabetic()) {
            self.0.insert(text);
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str(&literal.to_string()) {
                        self.literal(&text);
                    }
                }
                _ => {}
            }
        }
    }
}

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|condition| condition == "test")
    })
}

impl<'ast> Visit<'ast> for Words {
    // Documentation and names of fields.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !only_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !only_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.literal(text);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.tokens(called.tokens.clone());
    }
}

/// Words of all sources, each with the files that have it.
fn words() -> Result<BTreeMap<String, Vec<String>>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for directory in SOURCES {
        let of_tests = |path: &String| path.contains("/tests/") || path.ends_with("/tests.rs");
        for path in files(directory, ".rs")?.into_iter().filter(|path| !of_tests(path)) {
            for word in Words::of(&read(&path)?).with_context(|| path.clone())? {
                all.entry(word).or_default().push(path.clone());
            }
        }
    }
    Ok(all)
}

/// Words that the page has an entry for: a heading, or one of the first two cells of a row.
fn entries(page: &str) -> BTreeSet<&str> {
    let mut entries = BTreeSet::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            entries.insert(title);
        }
        let cells = line.strip_prefix('|').into_iter().flat_map(|row| row.split('|').take(2));
        entries.extend(cells.filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`')));
    }
    entries
}

/// What the page says below a heading.
fn entry<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let (_, after) = page.split_once(&format!("\n### {title}\n"))?;
    after.split("\n## ").next()?.split("\n### ").next()
}

#[test]
fn every_reason_has_an_entry_in_the_troubleshooting_page() -> Result<()> {
    let page = read(PAGE)?;
    let entries = entries(&page);
    let others: BTreeSet<&str> = OTHERS.iter().flat_map(|(_, words)| words.iter().copied()).collect();
    let words = words()?;
    let untold: Vec<String> = words
        .iter()
        .filter(|(word, _)| !entries.contains(word.as_str()) && !others.contains(word.as_str()))
        .map(|(word, files)| format!("{word} in {}", files.join(", ")))
        .collect();
    ensure!(
        untold.is_empty(),
        "no entry in {PAGE} for these; words that are no reasons belong into OTHERS of this test:\n{}",
        untold.join("\n")
    );
    let idle: Vec<&&str> = others.iter().filter(|word| !words.contains_key(**word) || entries.contains(**word)).collect();
    ensure!(idle.is_empty(), "OTHERS has words that no source has any more, or that have an entry: {idle:?}");
    Ok(())
}

#[test]
fn entries_of_the_troubleshooting_page_are_about_reasons_that_exist() -> Result<()> {
    let page = read(PAGE)?;
    let words = words()?;
    let (_, reasons) = page.split_once("\n## Conditions\n").context("no section about conditions")?;
    let titles = reasons.lines().filter_map(|line| line.strip_prefix("### ")).filter(|title| !title.contains(' '));
    for title in titles {
        ensure!(words.contains_key(title), "{PAGE} has an entry {title}, which no source says");
        let said = entry(&page, title).context("no such entry")?;
        for word in ["Means", "Matters", "Do"] {
            // `pacer doctor` reads these.
            ensure!(said.contains(&format!("\n- **{word}:** ")), "{title} in {PAGE} does not say **{word}:**");
        }
    }
    Ok(())
}

#[test]
fn every_reason_of_an_event_is_told_as_one() -> Result<()> {
    let page = read(PAGE)?;
    let (_, events) = page.split_once("\n## Events\n").context("no section about events")?;
    let events = events.split("\n## ").next().unwrap_or_default();
    for reason in Words::of(&read(EVENTS)?)? {
        let among_events = events.contains(&format!("\n### {reason}\n"));
        let with_a_condition = entry(&page, &reason).is_some_and(|said| said.contains("Event"));
        ensure!(among_events || with_a_condition, "{PAGE} does not say that {reason} is an Event");
    }
    Ok(())
}

#[test]
fn reasons_are_found_in_expressions_and_macros_and_not_in_tests() -> Result<()> {
    let found = Words::of(
        "#[serde(rename = \"Renamed\")] fn f() -> &'static str { say!(x, [\"InMacro\"]); if true { \"NewReason\" } else { \"two words\" } }\n\
         #[cfg(test)] mod tests { const A: &str = \"OfTest\"; }",
    )?;
    ensure!(found.iter().eq(["InMacro", "NewReason"]), "{found:?}");
    Ok(())
}
