//! `receipts`: what was decided, as a list, as cases, or as files to ask again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use pacer_api::duration;
use pacer_policy::Record;
use serde_json::Value;

use super::case::of_receipt;
use crate::archive::{Archive, Filter, when};
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::plain::line;
use crate::report::{Format, Report};
use crate::table;

/// How often `--watch` looks.
const GLANCE: Duration = Duration::from_secs(2);

/// Arguments of `pacer policy receipts`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// Writes the receipts as cases for `pacer policy test` and `diff`: into a directory, or a single one into a .json file.
    #[arg(long, value_name = "PATH")]
    case: Option<PathBuf>,
    /// Writes the receipts unchanged, for `pacer policy replay`: into a directory, or a single one into a .json file.
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only receipts that are not older than this: 90s, 30m, 2h.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    since: Option<Duration>,
    /// Continues with new receipts until it is interrupted.
    #[arg(short, long, conflicts_with_all = ["case", "save"])]
    watch: bool,
    /// Output format. JSON has one object per line, without the policy's input; --save includes it.
    #[arg(short, long, value_enum, default_value = "text", conflicts_with_all = ["case", "save"])]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// `pacer policy receipts`.
pub(crate) fn receipts(arguments: &Arguments, tell: impl Fn(&Report) -> Result<()>) -> Result<Report> {
    let archive = cluster::with(&arguments.cluster, async |cluster| {
        if arguments.watch {
            follow(&cluster, arguments, &tell).await?;
        }
        Archive::read_from(&cluster, arguments.all_namespaces).await
    })?;
    let now = Timestamp::now();
    let records = arguments.wanted(&archive, now);
    if records.is_empty() {
        let failure = format!("none of the receipts of {} is as wanted: {}", archive.of, archive.gaps(now));
        return Ok(Report { failure: Some(failure), ..Report::default() });
    }
    let mut text = String::new();
    if let Some(path) = &arguments.case {
        text.push_str(&write(path, &records, of_receipt)?);
    }
    if let Some(path) = &arguments.save {
        text.push_str(&write(path, &records, |record| Ok(serde_json::to_value(record)?))?);
    }
    if arguments.case.is_none() && arguments.save.is_none() {
        text = arguments.listed(&records, now, true)?;
    }
    Ok(Report::text(text))
}

impl Arguments {
    fn wanted<'a>(&self, archive: &'a Archive, now: Timestamp) -> Vec<&'a Record> {
        let oldest = self.since.and_then(|since| now.checked_sub(since).ok());
        let mut records = self.filter.of(archive);
        records.retain(|record| oldest.is_none_or(|oldest| record.at >= oldest));
        records
    }

    fn listed(&self, records: &[&Record], now: Timestamp, with_head: bool) -> Result<String> {
        match self.output {
            Format::Json => records.iter().map(|record| json(record)).collect(),
            Format::Text => {
                let text = list(records, now, self.all_namespaces);
                let head = text.find('\n').map_or(0, |end| end + 1);
                Ok(if with_head { text } else { text.get(head..).unwrap_or_default().to_owned() })
            }
        }
    }
}

/// One line of JSON.
fn json(record: &Record) -> Result<String> {
    let mut value = serde_json::to_value(record)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("input");
        fields.insert("decision".to_owned(), record.decision().as_str().into());
        fields.insert("outcome".to_owned(), record.outcome().into());
    }
    Ok(format!("{value}\n"))
}

/// Tells of receipts as they come. Returns never, or with why it can't go on.
async fn follow(cluster: &Cluster, arguments: &Arguments, tell: &impl Fn(&Report) -> Result<()>) -> Result<()> {
    let mut told = BTreeSet::new();
    let mut first = true;
    loop {
        let archive = Archive::read_from(cluster, arguments.all_namespaces).await?;
        let now = Timestamp::now();
        let mut records = arguments.wanted(&archive, now);
        // What was told and is gone need not be remembered.
        let there: BTreeSet<String> = records.iter().map(|record| record.id.clone()).collect();
        records.retain(|record| !told.contains(&record.id));
        if first || !records.is_empty() {
            tell(&Report::text(arguments.listed(&records, now, first)?))?;
        }
        (told, first) = (there, false);
        tokio::time::sleep(GLANCE).await;
    }
}

fn list(records: &[&Record], now: Timestamp, all: bool) -> String {
    let mut head = ["RECEIPT", "WHEN", "DECISION", "POOL", "POLICY", "OUTCOME"].map(str::to_owned).to_vec();
    if all {
        head.insert(0, "NAMESPACE".to_owned());
    }
    let row = |record: &&Record| {
        let mut cells = vec![
            line(&record.id),
            when(record.at, now),
            record.decision().to_string(),
            line(&format!("{}/{}", record.pool.kind, record.pool.name)),
            line(&record.receipt.policy),
            line(&record.outcome()),
        ];
        if all {
            cells.insert(0, line(&record.pool.namespace));
        }
        cells
    };
    table::left(&std::iter::once(head).chain(records.iter().map(row)).collect::<Vec<_>>())
}

/// One file each, or one file for one.
fn write(path: &Path, records: &[&Record], content: impl Fn(&Record) -> Result<Value>) -> Result<String> {
    let single = path.extension().is_some_and(|extension| extension == "json");
    ensure!(
        !single || records.len() == 1,
        "{} receipts are as wanted and {} is one file: name a directory, or take the newest with --last 1",
        records.len(),
        path.display()
    );
    if !single {
        std::fs::create_dir_all(path).with_context(|| format!("{} can't be made", path.display()))?;
    }
    let mut text = String::new();
    for record in records {
        // Whoever forges a receipt must not choose where it is written.
        let name = || format!("{}-{}.json", record.decision(), line(&record.id).replace('/', "-"));
        let file = if single { path.to_owned() } else { path.join(name()) };
        match content(record) {
            Ok(value) => {
                std::fs::write(&file, format!("{value:#}\n")).with_context(|| format!("{} can't be written", file.display()))?;
                text.push_str(&format!("{}\n", file.display()));
            }
            // One without its input is no reason to leave the others out.
            Err(error) if !single => text.push_str(&format!("left out: {}\n", line(&error.to_string()))),
            Err(error) => return Err(error),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;
    use crate::policy::case::Case;
    use crate::policy::{sample, settings::SettingsArgument, source};

    #[test]
    fn a_receipt_becomes_a_case_that_its_policy_passes() {
        let record = sample::scale_down(5, 2);
        let directory = tempfile::tempdir().unwrap();
        let said = write(directory.path(), &[&record], of_receipt).unwrap();
        assert!(said.contains("scale-down-"), "{said}");
        let cases = Case::all(directory.path()).unwrap();
        let [case] = cases.as_slice() else { panic!("{said}") };
        let jail = source::jail().unwrap();
        let outcome = case.ask(&jail, &source::Source::Builtin.load(&jail).unwrap(), &SettingsArgument::default()).unwrap();
        assert_eq!(cases::differences(&case.expected, &case.named(&outcome)), []);
        assert!(case.about.contains("removed web-4, web-3"), "{}", case.about);
        // As it was recorded it is one as well.
        let saved = directory.path().join("saved.json");
        write(&saved, &[&record], |record| Ok(serde_json::to_value(record)?)).unwrap();
        let saved = Case::read(&saved, None).unwrap();
        assert_eq!((saved.expected, saved.inquiry.items()), (case.expected.clone(), 5));
    }

    #[test]
    fn one_file_holds_one() {
        let record = sample::scale_down(1, 1);
        let directory = tempfile::tempdir().unwrap();
        let error = write(&directory.path().join("a.json"), &[&record, &record], of_receipt).unwrap_err().to_string();
        assert!(error.contains("--last 1"), "{error}");
        let lost = Record { input: None, ..record.clone() };
        assert!(of_receipt(&lost).unwrap_err().to_string().contains("too large"));
        assert!(write(directory.path(), &[&lost, &record], of_receipt).unwrap().contains("left out"));
        assert!(list(&[&record], record.at, false).contains("scale-down  RunnerDeployment/web  default@sha256:"));
        let line: Value = serde_json::from_str(&json(&record).unwrap()).unwrap();
        assert_eq!((&line["outcome"], line.get("input")), (&"removed web-0".into(), None));
    }

    #[test]
    fn a_forged_receipt_has_one_row_and_steers_no_terminal() {
        let mut record = sample::scale_down(1, 1);
        record.receipt.policy = "mine@sha256:12\n0000  RunnerDeployment/other\u{1b}[2J".to_owned();
        record.pool.name = "web\u{9b}2J\r".to_owned();
        record.items.iter_mut().for_each(|item| item.name.push_str("\n\u{1b}]0;title\u{7}"));
        let text = list(&[&record], record.at, true);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
        let row = "  RunnerDeployment/web 2J  mine@sha256:12 0000 RunnerDeployment/other [2J  removed web-0 ]0;title\n";
        assert!(text.ends_with(row), "{text:?}");
        record.id = "/../a\n".to_owned();
        let directory = tempfile::tempdir().unwrap();
        let said = write(directory.path(), &[&record], |_| Ok(Value::Null)).unwrap();
        assert!(said.lines().count() == 1 && said.ends_with("/scale-down--..-a.json\n"), "{said:?}");
        // What programs read is whole.
        assert_eq!(serde_json::from_str::<Value>(&json(&record).unwrap()).unwrap()["pool"]["name"], record.pool.name.as_str());
    }
}
