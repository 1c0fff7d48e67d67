//! Settings on the command line: a file of YAML or JSON, as they stand in `policies.yaml`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use pacer_policy::NO_SETTINGS;
use serde_json::Value;

/// The settings as the policy gets them; none without a file.
pub(crate) fn read(file: Option<&Path>) -> Result<String> {
    let Some(file) = file else { return Ok(NO_SETTINGS.to_owned()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))?;
    // What the parser says begins with a word that every message here begins with already.
    parse(&text).map_err(|error| anyhow!("{} is no YAML: {}", file.display(), error.to_string().trim_start_matches("error: ")))
}

fn parse(text: &str) -> Result<String> {
    let settings: Value = serde_saphyr::from_str(text)?;
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
        assert!(parse("a: [").is_err());
    }
}
