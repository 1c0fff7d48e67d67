//! Settings on the command line: a file of YAML or JSON, as they stand in `policies.yaml`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use pacer_policy::bundle::SETTINGS_BYTES;
use pacer_policy::{COMPRESSED_BYTES, NO_SETTINGS, yaml};
use serde_json::Value;

use crate::file;

/// The settings as the policy gets them; none without a file.
pub(crate) fn read(file: Option<&Path>) -> Result<String> {
    let Some(file) = file else { return Ok(NO_SETTINGS.to_owned()) };
    // In a policy set they lie in a ConfigMap.
    let text = file::read_text(file, COMPRESSED_BYTES, "a file of settings")?;
    let settings = parse(&text).map_err(|mistake| anyhow!("{} is not valid YAML: {mistake}", file.display()))?;
    ensure!(
        settings.len() <= SETTINGS_BYTES,
        "{} has {} bytes as JSON, and the settings of a decision may have {SETTINGS_BYTES}",
        file.display(),
        settings.len()
    );
    Ok(settings)
}

fn parse(text: &str) -> Result<String, yaml::Mistake> {
    let settings: Value = serde_saphyr::from_str(text).map_err(|error| yaml::Mistake::of(&error, text))?;
    Ok(if settings.is_null() { NO_SETTINGS.to_owned() } else { settings.to_string() })
}

/// `--settings` of the verbs that ask one policy.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct SettingsArgument {
    /// YAML or JSON file with settings of the policy.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl SettingsArgument {
    /// As if this file had been given.
    pub(crate) fn of(settings: Option<PathBuf>) -> Self {
        Self { settings }
    }

    /// Whether there is a file.
    pub(crate) fn is_given(&self) -> bool {
        self.settings.is_some()
    }

    /// The settings of the file, or none.
    pub(crate) fn read(&self) -> Result<String> {
        read(self.settings.as_deref())
    }

    /// The settings of the file; where there is none those of the case, and else those of the request.
    pub(crate) fn or<'a>(&self, case: Option<&'a str>, request: &'a str) -> Result<std::borrow::Cow<'a, str>> {
        match (&self.settings, case, request) {
            (Some(file), _, _) => read(Some(file)).map(Into::into),
            (None, Some(case), _) => Ok(case.into()),
            (None, None, "") => Ok(NO_SETTINGS.into()),
            (None, None, request) => Ok(request.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        for (text, json) in
            [("", "{}"), ("# nothing\n", "{}"), ("spare: 2\nzones: [a, b]\n", r#"{"spare":2,"zones":["a","b"]}"#), ("{}", "{}")]
        {
            assert_eq!(parse(text).unwrap(), json);
        }
        let told = parse("a: [").unwrap_err().to_string();
        assert!(!told.is_empty() && !told.contains("error:"), "{told}");
    }

    #[test]
    fn a_file_with_more_than_a_decision_may_have_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("settings.yaml");
        std::fs::write(&file, format!("a: {}", "x".repeat(SETTINGS_BYTES))).unwrap();
        let error = read(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("65544 bytes as JSON") && error.contains("may have 65536"), "{error}");
        let error = read(Some(Path::new("/dev/zero"))).unwrap_err().to_string();
        assert!(error.contains("more than 1.0 MiB"), "{error}");
    }
}
