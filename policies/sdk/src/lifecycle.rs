//! What a policy says about itself, and its settings.

use serde::de::DeserializeOwned;

pub use crate::bindings::exports::pacer::policy::lifecycle::{Description, Problem};

/// What every policy has, whatever it decides.
pub trait Policy {
    /// Read from the JSON object that the policy set gives. `#[serde(default, deny_unknown_fields, rename_all = "camelCase")]` on the
    /// struct makes every field optional and finds typing mistakes. `()` when there is nothing to set.
    type Settings: DeserializeOwned + Default;

    /// What serde can't see: ranges, fields that exclude each other. Settings with problems are never used.
    #[must_use]
    fn check(settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Further facts that it reads, as docs/policies.md lists them: `&["node-labels", "last-job"]`. They come as attributes, and only to those
    /// that name them here.
    #[must_use]
    fn reads() -> &'static [&'static str] {
        &[]
    }

    /// JSON Schema of the settings, with which the operator can refuse a policy set before it runs any code.
    #[must_use]
    fn settings_schema() -> Option<&'static str> {
        None
    }
}

impl Problem {
    /// `path` says where in the settings, as in `windows[2].from`; empty for the whole.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Problems of whole numbers that are outside their ranges, from field, value, least and most.
#[must_use]
pub fn out_of_range(fields: &[(&str, u32, u32, u32)]) -> Vec<Problem> {
    let wrong = fields.iter().filter(|(_, value, least, most)| value < least || value > most);
    wrong.map(|(field, value, least, most)| Problem::new(*field, format!("is {value}, must be {least} to {most}"))).collect()
}

/// What a policy reads, as its description says it.
#[must_use]
pub fn declared(reads: &[&str]) -> Vec<(String, String)> {
    if reads.is_empty() { Vec::new() } else { vec![("reads".to_owned(), reads.join(" "))] }
}

/// Name of a policy from the name of its crate: without the prefix by which such crates are known among others.
#[must_use]
pub fn short_name(package: &str) -> &str {
    package.strip_prefix("pacer-policy-").unwrap_or(package)
}

/// Reads and checks `json` as settings of `P`. An empty text, `{}` and `null` are the defaults.
///
/// # Errors
/// All problems found. serde stops at the first one, so there is only one when the text can't be read.
pub fn read_settings<P: Policy>(json: &str) -> Result<P::Settings, Vec<Problem>> {
    let settings = match json.trim() {
        "" | "{}" | "null" => P::Settings::default(),
        json => crate::json::read(json).map_err(|problem| vec![problem])?,
    };
    let problems = P::check(&settings);
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// As `validate-settings` of the contract.
///
/// # Errors
/// All problems found.
pub fn validate_settings<P: Policy>(json: &str) -> Result<(), Vec<Problem>> {
    read_settings::<P>(json).map(drop)
}

pub(crate) fn settings<P: Policy>(json: &str) -> Result<P::Settings, String> {
    read_settings::<P>(json).map_err(|problems| {
        let mut text = String::from("settings are not usable");
        for Problem { path, message } in &problems {
            text.push_str(": ");
            if !path.is_empty() {
                text.push_str(path);
                text.push_str(": ");
            }
            text.push_str(message);
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    struct Windows {
        windows: Vec<Window>,
        spare: u32,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Window {
        from: u8,
    }

    struct Office;

    impl Policy for Office {
        type Settings = Windows;

        fn check(settings: &Windows) -> Vec<Problem> {
            if settings.spare > 100 { vec![Problem::new("spare", "must be at most 100")] } else { Vec::new() }
        }
    }

    #[test]
    fn nothing_set_is_the_default() {
        for json in ["", " {} ", "null", "{ }"] {
            assert_eq!(read_settings::<Office>(json), Ok(Windows::default()), "{json:?}");
        }
    }

    #[test]
    fn problems_name_the_field() {
        for (json, path, message) in [
            (
                r#"{"windows":[{"from":1},{"from":"x"}]}"#,
                "windows[1].from",
                "a whole number from 0 to 255 is expected, found \"x\"",
            ),
            (r#"{"spares":1}"#, "spares", "unknown field `spares`, expected `windows` or `spare`"),
            (r#"{"spare":101}"#, "spare", "must be at most 100"),
            (r#"{"spare":1} x"#, "", "more follows"),
            ("7", "", "an object is expected, found 7"),
            ("{", "", "a string is missing, at the end"),
        ] {
            let problems = validate_settings::<Office>(json).unwrap_err();
            assert_eq!(problems.len(), 1, "{json}");
            assert_eq!(problems[0].path, path, "{json}");
            assert!(problems[0].message.contains(message), "{json}: {}", problems[0].message);
            assert!(settings::<Office>(json).unwrap_err().contains(message), "{json}");
        }
    }
}
