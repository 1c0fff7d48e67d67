//! Mistakes in YAML that users write, in plain words: where, which key, what is expected there, what was found.

use std::fmt;

use pacer_core::gate::scrub;
use serde_saphyr::{Error, Location, UserMessageFormatter};

/// Longest message, in bytes.
const MESSAGE_BYTES: usize = 512;

/// Longest value that is quoted, in bytes.
const VALUE_BYTES: usize = 64;

/// A mistake in a text of YAML, on one line of at most 600 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// From 1; 0 when nobody knows.
    pub line: u64,
    /// From 1; 0 when nobody knows.
    pub column: u64,
    /// What is wrong there, without the place.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}, column {}: {}", self.column, self.message),
        }
    }
}

impl Mistake {
    /// What the parser says about this text.
    #[must_use]
    pub fn of(error: &Error, text: &str) -> Self {
        let place = error.location();
        let (line, column) = place.as_ref().map_or((0, 0), |at| (at.line(), at.column()));
        let here = place.and_then(|place| Here::find(text, place)).unwrap_or_default();
        Self { line, column, message: scrub(&told(error, &here), MESSAGE_BYTES) }
    }
}

/// The place of a mistake: the key before it, and what stands there.
#[derive(Debug, Default)]
struct Here<'a> {
    key: Option<&'a str>,
    found: Option<&'a str>,
}

impl<'a> Here<'a> {
    fn find(text: &'a str, place: Location) -> Option<Self> {
        let line = text.lines().nth(usize::try_from(place.line().checked_sub(1)?).ok()?)?;
        let column = usize::try_from(place.column().checked_sub(1)?).ok()?;
        let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        let (before, found) = line.split_at_checked(at)?;
        let key = before
            .trim_end()
            .strip_suffix(':')
            .and_then(|key| key.rsplit([' ', '{', '[', ',', '"', '\'']).find(|key| !key.is_empty()));
        let found = found.split(" #").next().unwrap_or(found).trim();
        Some(Self { key, found: (!found.is_empty()).then_some(found) })
    }

    /// What stands here, in words.
    fn found(&self) -> Option<String> {
        let found = self.found?;
        if found.starts_with('[') || found.starts_with("- ") {
            return Some("a list".to_owned());
        }
        if let Some(quote) = found.chars().next().filter(|first| matches!(first, '"' | '\'')) {
            let (text, rest) = found.get(1..).and_then(|rest| rest.split_once(quote)).unwrap_or_default();
            let is_key = rest.trim_start().starts_with(':');
            return Some(if is_key { "a map".to_owned() } else { format!("the string {text:?}") });
        }
        let first = found.split([',', '}', ']']).next().unwrap_or(found).trim();
        if found.starts_with('{') || first.ends_with(':') || first.contains(": ") {
            return Some("a map".to_owned());
        }
        Some(first.to_owned())
    }

    /// That something else is expected here.
    fn wants(&self, expected: &str, found: Option<String>) -> String {
        let found = found.map(|found| scrub(&found, VALUE_BYTES));
        match (self.key, found) {
            (Some(key), Some(found)) => format!("{key} must be {expected}, and is {found}"),
            (Some(key), None) => format!("{key} must be {expected}"),
            (None, Some(found)) => format!("expected {expected}, found {found}"),
            (None, None) => format!("expected {expected}"),
        }
    }
}

fn told(error: &Error, here: &Here<'_>) -> String {
    match error {
        Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => told(error, here),
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key {}, expected one of {}", scrub(field, VALUE_BYTES), expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key {field} is missing"),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            here.wants(&format!("one of {}", expected.join(", ")), Some(variant.clone()))
        }
        Error::SerdeInvalidType { unexpected, expected, .. } | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            here.wants(&kind(expected), Some(value(unexpected)))
        }
        Error::InvalidScalar { ty, .. } => here.wants(&kind(ty), here.found()),
        Error::Unexpected { expected, .. } => here.wants(&kind(expected), here.found()),
        Error::InvalidBooleanStrict { .. } => here.wants("true or false", here.found()),
        Error::NullIntoString { .. } => here.wants("a string", Some("empty".to_owned())),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::ExpectedStringKeyForExternallyTaggedEnum { .. }
        | Error::UnexpectedValueForUnitEnumVariant { .. }
        | Error::ExpectedMappingEndAfterEnumVariantValue { .. }
        | Error::TaggedEnumMismatch { .. } => here.wants("a single word", here.found()),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key {}", scrub(key, VALUE_BYTES)),
        Error::DuplicateMappingKey { key: None, .. } => "duplicate key".to_owned(),
        Error::MultipleDocuments { .. } => "there is more than one document: leave out what follows the line ---".to_owned(),
        Error::Eof { .. } => "unexpected end of the file".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "it is too large or nested too deeply".to_owned(),
        // Mistakes in the YAML itself, and what this program's own readers say.
        other => {
            let said = other.render_with_formatter(&UserMessageFormatter);
            let place = other.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            // The place is said once.
            place.and_then(|place| said.strip_suffix(&place)).unwrap_or(&said).trim_start_matches("error: ").to_owned()
        }
    }
}

/// What a reader expects, without the names of types.
fn kind(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" | "isize" => "a whole number from -9223372036854775808 to 9223372036854775807",
        "i8" | "i16" | "i128" | "u128" => "a whole number",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" | "a boolean" => "true or false",
        "str" | "string" | "a string" | "a borrowed string" => "a string",
        // Of numbers and texts alike, the parser says this where it finds a map or a list.
        "scalar" | "char" | "string scalar" => "a single value",
        "a map" | "map" | "mapping start" => "a map",
        "a sequence" | "sequence" | "sequence start" => "a list",
        other if other.starts_with("struct ") => "a map",
        other if other.starts_with("enum ") || other == "variant identifier" => "a single word",
        other => other,
    }
    .to_owned()
}

/// What a reader found, without the names of types.
fn value(found: &str) -> String {
    let inner = |text: &str| text.trim_matches('`').to_owned();
    if let Some(text) = found.strip_prefix("string ") {
        return format!("the string {text}");
    }
    let number = found.strip_prefix("integer ").or_else(|| found.strip_prefix("floating point "));
    if let Some(number) = number {
        return format!("the number {}", inner(number));
    }
    if let Some(word) = found.strip_prefix("boolean ") {
        return inner(word);
    }
    match found {
        "unit value" | "Option value" => "empty",
        "sequence" => "a list",
        "map" => "a map",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Settings {
        #[serde(rename = "spare")]
        _spare: Option<u32>,
        #[serde(rename = "share")]
        _share: Option<f64>,
        #[serde(rename = "strict")]
        _strict: Option<bool>,
        #[serde(rename = "name")]
        _name: Option<String>,
        #[serde(rename = "zones")]
        _zones: Option<Vec<String>>,
        #[serde(rename = "limits")]
        _limits: Option<BTreeMap<String, i64>>,
        #[serde(rename = "mode")]
        _mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        Enforce,
        Shadow,
    }

    fn mistake(text: &str) -> Mistake {
        Mistake::of(&serde_saphyr::from_str::<Settings>(text).map(drop).unwrap_err(), text)
    }

    #[test]
    fn a_mistake_names_the_key_what_is_expected_and_what_was_found() {
        for (text, told) in [
            ("spare: x\n", "spare must be a whole number from 0 to 4294967295, and is x"),
            ("name: a\nspare: -1\n", "spare must be a whole number from 0 to 4294967295, and is -1"),
            ("{name: a, spare: x, share: 1}\n", "spare must be a whole number from 0 to 4294967295, and is x"),
            ("share: much # too much\n", "share must be a number, and is much"),
            ("strict: 7\n", "strict must be true or false, and is 7"),
            ("name: {a: 1}\n", "name must be a single value, and is a map"),
            ("zones: a\n", "zones must be a list, and is a"),
            ("limits: 7\n", "limits must be a map, and is 7"),
            ("limits: {cpu: much}\n", "cpu must be a whole number from -9223372036854775808 to 9223372036854775807, and is much"),
            ("spares: 1\n", "unknown key spares, expected one of spare, share, strict, name, zones, limits, mode"),
            ("spare: 1\nspare: 2\n", "duplicate key spare"),
            ("name:\n  \"a\": 1\n", "expected a single value, found a map"),
            ("spare: [1]\n", "spare must be a single value, and is a list"),
            ("- spare\n", "expected a map, found a list"),
        ] {
            assert_eq!(mistake(text).message, told, "{text:?}");
        }
        let told = mistake("mode: observe\n").message;
        assert!(told.contains("one of enforce, shadow") && told.contains("observe"), "{told}");
    }

    #[test]
    fn a_mistake_has_its_place_once() {
        let told = mistake("name: a\nspare: -1\n");
        assert_eq!((told.line, told.column), (2, 8));
        assert_eq!(told.to_string(), format!("line 2, column 8: {}", told.message));
        let nowhere = Mistake { line: 0, ..told };
        assert_eq!(nowhere.to_string(), nowhere.message);
    }

    #[test]
    fn no_message_has_names_of_types_or_of_the_parser() {
        let texts = [
            "name: [",
            "name: *b",
            "name: 1\n---\nname: 2\n",
            "name: \"x",
            "\t- a",
            "name: b: c",
            "spare: {",
            "mode: [enforce]",
            "mode: {enforce: 1}",
            "spare: !!binary x",
            "zones: {a: 1}",
            "limits: [1]",
            "strict: maybe",
            "zones: &a [*a]",
            "spare: 99999999999999999999",
            "7",
            "\"x\"",
        ];
        let foreign = ["Option", "u32", "i64", "f64", "struct", "enum", "deserialize", "serde", "invalid type", "Settings"];
        for text in texts {
            if let Err(error) = serde_saphyr::from_str::<Settings>(text) {
                let told = Mistake::of(&error, text).to_string();
                assert!(foreign.into_iter().all(|word| !told.contains(word)), "{text:?}: {told}");
                assert!(!told.contains('\n') && told.matches("column").count() < 2, "{text:?}: {told}");
            }
        }
    }
}
