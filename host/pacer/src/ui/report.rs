//! What `pacer simulate --output json` printed, for the page over a trace.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Bytes of a report at most: one of a thousand pools and ten policies has two MiB.
const MOST: u64 = 16 << 20;

/// A report as it was given.
#[derive(Clone, Debug)]
pub(super) struct Report(Bytes);

/// What the page reads of it, so that anything else is refused at the start.
#[derive(Deserialize)]
struct Read {
    comparison: Comparison,
    #[serde(rename = "calibration")]
    _calibration: Option<Calibration>,
    #[serde(rename = "jobs")]
    _jobs: u64,
    #[serde(rename = "seed")]
    _seed: u64,
    #[serde(rename = "seeds")]
    _seeds: u64,
    #[serde(rename = "notes")]
    _notes: Vec<String>,
    #[serde(rename = "failure")]
    _failure: Option<String>,
}

#[derive(Deserialize)]
struct Comparison {
    contenders: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "pool")]
    _pool: Option<String>,
    #[serde(rename = "metric")]
    _metric: String,
    #[serde(rename = "unit")]
    _unit: String,
    values: Vec<Spread>,
}

#[derive(Deserialize)]
struct Spread {
    #[serde(rename = "mean")]
    _mean: f64,
    #[serde(rename = "min")]
    _min: f64,
    #[serde(rename = "max")]
    _max: f64,
}

#[derive(Deserialize)]
struct Calibration {
    #[serde(rename = "holds")]
    _holds: bool,
    #[serde(rename = "deviations")]
    _deviations: Vec<IgnoredAny>,
}

impl Report {
    /// Reads a file with the output of `pacer simulate --output json`.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let place = || format!("--report {}", file.display());
        let mut json = Vec::new();
        let opened = std::fs::File::open(file).with_context(place)?;
        opened.take(MOST + 1).read_to_end(&mut json).with_context(place)?;
        ensure!(json.len() as u64 <= MOST, "--report {} has more than {} MiB", file.display(), MOST >> 20);
        Self::of(json).with_context(place)
    }

    fn of(json: Vec<u8>) -> Result<Self> {
        const WANTED: &str = "it is not what `pacer simulate --output json` prints";
        let Read { comparison: Comparison { contenders, rows }, .. } = serde_json::from_slice(&json).context(WANTED)?;
        ensure!(
            !contenders.is_empty() && rows.iter().all(|row| row.values.len() == contenders.len()),
            "{WANTED}: each row has a value for each policy there"
        );
        Ok(Self(json.into()))
    }

    /// The bytes of the file, unchanged.
    pub(super) fn json(self) -> Bytes {
        self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Two policies, and one figure.
    pub(in crate::ui) fn report() -> Report {
        Report::of(written().to_string().into_bytes()).unwrap()
    }

    fn written() -> serde_json::Value {
        let spread = |mean: f64| json!({"mean": mean, "min": mean, "max": mean});
        json!({
            "jobs": 22, "seed": 1, "seeds": 3, "notes": [], "failure": null, "calibration": {"holds": true, "deviations": []},
            "comparison": {
                "contenders": ["builtin", "one.yaml"],
                "rows": [{"pool": null, "metric": "wait.p95", "unit": "s", "values": [spread(41.0), spread(33.5)]}],
            },
        })
    }

    #[test]
    fn what_simulate_prints_is_read_and_anything_else_is_refused_with_the_command() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/golden/burst.jsonl");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        std::fs::write(&file, crate::simulate::tests::json_of(golden)).unwrap();
        assert!(Report::read(&file).is_ok(), "{:#}", Report::read(&file).unwrap_err());

        let without = |field: &str| {
            let mut report = written();
            report.as_object_mut().unwrap().remove(field);
            report.to_string()
        };
        let mut torn = written();
        torn["comparison"]["rows"][0]["values"] = json!([]);
        for wrong in [without("comparison"), without("jobs"), torn.to_string(), "[]".to_owned(), "no JSON".to_owned()] {
            std::fs::write(&file, &wrong).unwrap();
            let error = format!("{:#}", Report::read(&file).unwrap_err());
            assert!(error.contains("report.json") && error.contains("`pacer simulate --output json`"), "{wrong}: {error}");
        }
        assert!(Report::read(&directory.path().join("none")).is_err());
        std::fs::write(&file, vec![b' '; usize::try_from(MOST).unwrap() + 1]).unwrap();
        assert!(Report::read(&file).unwrap_err().to_string().contains("16 MiB"));
    }
}
