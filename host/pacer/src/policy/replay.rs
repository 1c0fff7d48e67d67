//! `replay`: asks a policy again what it was asked, and compares the bytes.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pacer_policy::{Answer, DecidedBy, Digest, Inquiry, Interpreted, Limits, Module, Policy, Record, SHIPPED, text};
use pacer_policyset::history;

use super::case;
use super::source::{Source, jail};
use crate::archive::{Archive, when};
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::default_set::OPERATOR_NAMESPACE;
use crate::file;
use crate::plain;
use crate::report::Report;
use crate::table;

/// Arguments of `pacer policy replay`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the receipt or its prefix, as `pacer policy receipts` shows it; or a saved receipt.
    receipt: String,
    /// The component to ask, or `builtin`. Default: the policy that decided, taken from this program, a policy set, or the policy sets that the
    /// operator keeps.
    #[arg(long, value_name = "FILE")]
    component: Option<Source>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Namespace of the operator, in which it keeps good policy sets.
    #[arg(long, default_value = OPERATOR_NAMESPACE, value_name = "NAMESPACE")]
    operator_namespace: String,
}

/// Who is asked again.
enum Asked {
    Component(Vec<u8>, String),
    Native,
}

/// `pacer policy replay`.
pub(crate) fn replay(arguments: &Arguments) -> Result<Report> {
    let file = Path::new(&arguments.receipt);
    let mut asked = match &arguments.component {
        Some(source) => Some(Asked::Component(source.read(&jail()?)?, source.to_string())),
        None => None,
    };
    let record = if file.is_file() {
        let bytes = file::read(file, case::CASE_BYTES, "a receipt")?;
        let record = Record::read(&bytes).map_err(|error| anyhow!("{}: {error}", file.display()))?;
        asked = asked.or_else(|| at_hand(&record));
        if asked.is_none() {
            let wanted = wanted(&record);
            let found =
                cluster::with(&arguments.cluster, async |cluster| find(&cluster, &record, &arguments.operator_namespace).await);
            asked = found.with_context(|| format!("looking for {wanted} in the cluster; --component FILE gives it"))?;
        }
        record
    } else {
        cluster::with(&arguments.cluster, async |cluster| {
            let archive = Archive::read(&cluster).await?;
            let record = named(&archive, &arguments.receipt)?;
            asked = asked.take().or_else(|| at_hand(&record));
            if asked.is_none() {
                asked = find(&cluster, &record, &arguments.operator_namespace).await?;
            }
            Ok(record)
        })?
    };
    ensure!(
        record.was_asked(),
        "receipt {} can't be replayed: no policy was asked, the operator did it by its own rule ({})",
        plain::line(&record.id),
        plain::line(&record.outcome())
    );
    if let (None, Some(made)) = (&asked, made_elsewhere(&record)) {
        bail!(
            "receipt {} is of a text ({}) that interpreter {} ran, and this program has {}: use the version of pacer that wrote it, or give the \
             text with --component and compare",
            plain::line(&record.id),
            plain::line(&made.text),
            plain::line(&made.interpreter),
            text::interpreter()
        );
    }
    let asked = asked.with_context(|| {
        format!(
            "{} is neither in the operator's own program, nor in a policy set of namespace {} or {}, nor kept from before: give the component \
             with --component",
            wanted(&record),
            plain::line(&record.pool.namespace),
            arguments.operator_namespace
        )
    })?;
    compare(&record, asked, Timestamp::now())
}

fn named(archive: &Archive, name: &str) -> Result<Record> {
    let records = archive.records();
    let found: Vec<&&Record> = records.iter().filter(|record| record.id.starts_with(name)).collect();
    match found.as_slice() {
        [record] => Ok((**record).clone()),
        [] => {
            bail!("there is no receipt {name:?} of {}, and no file of that name: {}", archive.of, archive.gaps(Timestamp::now()))
        }
        several => bail!("{} receipts begin with {name:?}: say more of its name", several.len()),
    }
}

/// Who decided, for people.
fn wanted(record: &Record) -> String {
    record.receipt.decisive().map_or_else(
        || "nobody".to_owned(),
        |attempt| match &attempt.by {
            DecidedBy::Policy { name, digest } => plain::line(&format!("policy {name} ({digest})")),
            DecidedBy::Native => "native".to_owned(),
        },
    )
}

/// What the policy that decided is made of, where it is a text that another version of this program ran.
fn made_elsewhere(record: &Record) -> Option<&Interpreted> {
    let made = record.receipt.decisive()?.interpreted.as_ref()?;
    (made.interpreter != text::interpreter().to_string()).then_some(made)
}

/// What is in this program.
fn at_hand(record: &Record) -> Option<Asked> {
    match &record.receipt.decisive()?.by {
        DecidedBy::Native => Some(Asked::Native),
        DecidedBy::Policy { digest, .. } if *digest == Digest::of(SHIPPED).to_string() => {
            Some(Asked::Component(SHIPPED.to_vec(), "this program".to_owned()))
        }
        DecidedBy::Policy { .. } => None,
    }
}

/// Looks through the sets that the operator keeps, and those of the pool's namespace.
async fn find(cluster: &Cluster, record: &Record, operator: &str) -> Result<Option<Asked>> {
    let Some(DecidedBy::Policy { digest, .. }) = record.receipt.decisive().map(|attempt| &attempt.by) else { return Ok(None) };
    let places = [(operator, history::LABEL), (operator, ""), (&record.pool.namespace, "")];
    let mut refused = None;
    let jail = jail()?;
    for (namespace, selector) in places {
        let there = Cluster { client: cluster.client.clone(), namespace: namespace.to_owned() };
        let sets = match there.list::<ConfigMap>(false, selector).await {
            Ok(sets) => sets,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        let with_modules =
            |set: &&ConfigMap| set.binary_data.is_some() || set.data.iter().flatten().any(|(key, _)| text::is_text(key));
        for set in sets.iter().filter(with_modules) {
            let Ok(bundle) = history::read(&jail, set) else { continue };
            for (_, _, entry) in bundle.entries() {
                if let Module::Component { bytes, digest: found, .. } = &entry.module
                    && found.to_string() == *digest
                {
                    return Ok(Some(Asked::Component(bytes.to_vec(), format!("ConfigMap {namespace}/{}", set.name_any()))));
                }
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

fn compare(record: &Record, asked: Asked, now: Timestamp) -> Result<Report> {
    let (receipt, id) = (&record.receipt, plain::line(&record.id));
    let input = record.input.as_ref().with_context(|| {
        format!(
            "receipt {id} has no input, because it was too large for the store: raise --receipts-bytes-per-pool for later ones"
        )
    })?;
    if input.digest().to_string() != receipt.input_hash {
        bail!(
            "the input in receipt {id} is not what the policy was asked: its digest is {} and was {}",
            input.digest(),
            plain::line(&receipt.input_hash)
        );
    }
    let settings = case::settings(record, input)?;
    let (who, answer, fuel) = match asked {
        Asked::Native => ("native, this program".to_owned(), input.natively(settings), None),
        Asked::Component(bytes, from) => {
            let jail = jail()?;
            let policy = Policy::load(&jail, &bytes).map_err(|error| super::cure::refused(&from, &error))?;
            // What it may take plays no part in what it answers: whatever it was allowed then is allowed now.
            let outcome = case::ask(&jail, &policy, input, settings, &Limits::highest());
            (format!("{policy}, {from}"), outcome.answer, Some(outcome.fuel))
        }
    };
    let pool = plain::line(&record.pool.to_string());
    let mut text = format!("{} {id} of {pool}, {}\n", receipt.decision, when(record.at, now));
    text.push_str(&format!("decided by {}, asked again: {who}\n", plain::line(&receipt.policy)));
    text.push_str(&format!("input   {}, the same\n", receipt.input_hash));
    let same = answer.as_ref().is_ok_and(|answer| answer.digest().to_string() == receipt.output_hash);
    let bytes = serde_json::to_vec(&record.answer).map_or(0, |bytes| bytes.len());
    if same {
        text.push_str(&format!("answer  {}, the same {bytes} bytes\n", receipt.output_hash));
    } else {
        let now = answer.as_ref().map_or_else(|fault| format!("no answer: {fault}"), |answer| answer.digest().to_string());
        text.push_str(&format!("answer  {} then, {now} now\n", plain::line(&receipt.output_hash)));
        text.push_str(&differences(input, &record.answer, answer.as_ref().ok()));
    }
    let before = receipt.decisive().map(|attempt| attempt.fuel).filter(|fuel| *fuel > 0);
    if let (Some(before), Some(fuel)) = (before, fuel) {
        let (then, now) = (table::number(before), table::number(fuel));
        text.push_str(&if before == fuel {
            format!("fuel    {now}, the same\n")
        } else {
            format!("fuel    {then} then, {now} now\n")
        });
    }
    let failure = (!same).then(|| format!("the answer to {id} is another one than it was"));
    Ok(Report { text, notes: String::new(), failure })
}

/// What only one of the two says: `-` then, `+` now.
fn differences(input: &Inquiry, then: &Answer, now: Option<&Answer>) -> String {
    let then = case::rows(input, then);
    let now = now.map(|now| case::rows(input, now)).unwrap_or_default();
    let only = |mark: char, one: &[Vec<String>], other: &[Vec<String>]| -> String {
        let rows: Vec<Vec<String>> = one.iter().filter(|row| !other.contains(row)).cloned().collect();
        table::left(&rows).lines().map(|line| format!("  {mark} {line}\n")).collect()
    };
    let text = only('-', &then, &now) + &only('+', &now, &then);
    if text.is_empty() { "  the same things in another order, or with other attributes\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sample;

    fn again(record: &Record) -> Result<Report> {
        compare(record, at_hand(record).unwrap(), record.at)
    }

    #[test]
    fn the_same_question_gets_the_same_bytes() {
        let record = sample::scale_down(5, 2);
        let report = again(&record).unwrap();
        assert_eq!(report.failure, None, "{}", report.text);
        assert!(
            report.text.contains("bytes\n") && report.text.contains("fuel") && !report.text.contains("then"),
            "{}",
            report.text
        );
        let native = compare(&record, Asked::Native, record.at).unwrap();
        assert_eq!(native.failure, None, "{}", native.text);
    }

    #[test]
    fn another_answer_is_shown() {
        let mut record = sample::scale_down(5, 2);
        if let Answer::ScaleDown(choices) = &mut record.answer {
            choices.pop();
        }
        record.receipt.output_hash = record.answer.digest().to_string();
        let report = again(&record).unwrap();
        assert!(report.failure.is_some_and(|failure| failure.contains(&record.id)));
        assert!(report.text.contains("  + web-3") && !report.text.contains("  - "), "{}", report.text);
    }

    #[test]
    fn a_forged_receipt_adds_no_line_and_steers_no_terminal() {
        let mut record = sample::scale_down(2, 1);
        record.receipt.policy = "mine\nanswer  sha256:0, the same 9 bytes".to_owned();
        record.pool.name = "web\u{1b}[2J".to_owned();
        record.receipt.output_hash = "sha256:0\n".to_owned();
        let text = again(&record).unwrap().text;
        assert!(text.contains("\ndecided by mine answer sha256:0, the same 9 bytes, asked again: "), "{text:?}");
        assert!(text.contains(" of RunnerDeployment default/web [2J, "), "{text:?}");
        assert!(text.contains("\nanswer  sha256:0 then, "), "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn what_was_tampered_with_is_no_evidence() {
        let mut record = sample::scale_down(2, 1);
        if let Some(Inquiry::ScaleDown(request)) = &mut record.input {
            request.candidates[0].idle += 1;
        }
        assert!(again(&record).unwrap_err().to_string().contains("not what the policy was asked"));
        record.input = None;
        assert!(again(&record).unwrap_err().to_string().contains("too large"));
    }
}
