//! Takes out of objects and logs what may be secret.
//!
//! Values of variables are all taken out: nobody can tell which ones are secret. So are annotations of other tools that may hold a copy of an
//! object, and with it those values. What has the form of a GitHub token, a private key, a JSON Web Token or a password in a URL is taken out
//! wherever it stands.

use pacer_api::names::GROUP;
use pacer_github::TOKEN_BEGINNINGS;
use serde_json::{Map, Value};

/// What stands in the place of a value.
const REDACTED: &str = "[redacted]";

/// Copies of whole objects, variables and all: of Kubernetes, of kapp, and of Rancher, whose copy is compressed.
const COPIES: [&str; 4] = [
    "managedFields",
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];

/// What the names of annotations that pacer and ARC write begin with, up to the slash. Their content is known, and tells what the operator did.
const OURS: [&str; 3] = [GROUP, "actions-runner", "actions-runner-controller"];

/// Most bytes of an annotation that is no copy of an object.
const NOTE_BYTES: usize = 1_024;

/// How the names of flags and settings with secret values are told.
const SECRET_NAMES: [&str; 4] = ["token", "secret", "password", "private"];

/// What comes before credentials in a header.
const SCHEMES: [&str; 4] = ["Bearer ", "bearer ", "Basic ", "basic "];

/// Ends of a private key as PEM.
const PEM: (&str, &str) = ("-----BEGIN ", "-----END ");

/// Removes values of environment variables, secret arguments and what looks like a credential from an object.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = scrub(text),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            fields.retain(|name, _| !COPIES.contains(&name.as_str()));
            for (name, value) in fields {
                match value {
                    Value::Array(items) if is_variables(name) => items.iter_mut().for_each(variable),
                    Value::Array(items) if matches!(name.as_str(), "args" | "command") => arguments(items),
                    Value::Object(notes) if name == "annotations" => annotations(notes),
                    _ => redact(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn annotations(notes: &mut Map<String, Value>) {
    notes.retain(|name, _| !COPIES.contains(&name.as_str()));
    for (name, value) in notes {
        if !is_ours(name) && value.as_str().is_some_and(may_be_a_copy) {
            *value = Value::from(REDACTED);
        } else {
            redact(value);
        }
    }
}

fn is_ours(annotation: &str) -> bool {
    annotation.split_once('/').is_some_and(|(prefix, _)| OURS.contains(&prefix))
}

/// Whether a text begins as JSON objects and arrays do, or is long: nobody knows all tools that copy objects, nor the forms of their copies.
fn may_be_a_copy(text: &str) -> bool {
    text.len() > NOTE_BYTES || text.trim_start().starts_with(['{', '['])
}

/// `env`, and ARC's fields such as `dockerEnv`.
fn is_variables(field: &str) -> bool {
    field.to_ascii_lowercase().ends_with("env")
}

fn variable(item: &mut Value) {
    match item.get_mut("value") {
        Some(value) => *value = Value::from(REDACTED),
        None => redact(item),
    }
}

/// Flags with the value behind `=`, or as the next argument.
fn arguments(items: &mut [Value]) {
    let mut is_value = false;
    for item in items {
        let Value::String(text) = item else { continue };
        let name = text.split('=').next().unwrap_or_default();
        let is_secret = name.starts_with('-') && SECRET_NAMES.iter().any(|word| name.contains(word));
        match (is_value && !text.starts_with('-'), is_secret && text.contains('=')) {
            (true, _) => *text = REDACTED.to_owned(),
            (false, true) => *text = format!("{name}={REDACTED}"),
            (false, false) => *text = scrub(text),
        }
        is_value = is_secret && !text.contains('=');
    }
}

/// Replaces private keys, tokens, credentials of headers and passwords in URLs in a text.
pub(super) fn scrub(text: &str) -> String {
    let mut text = keys(text);
    for beginning in TOKEN_BEGINNINGS {
        text = after(&text, beginning, true, |c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    }
    for scheme in SCHEMES {
        text = after(&text, scheme, false, |c| c.is_ascii_alphanumeric() || "_-.+/=".contains(c));
    }
    passwords(&text)
}

/// Replaces the characters after each `mark` for as long as they fit; with the mark where that is part of the secret.
fn after(text: &str, mark: &str, with_mark: bool, fits: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(mark) {
        let end = behind.find(|c| !fits(c)).unwrap_or(behind.len());
        let (secret, next) = behind.split_at(end);
        // In the middle of a word it is no beginning, and what is so short is no secret.
        let is_inside = with_mark && ends_in_a_word(before);
        clean.push_str(before);
        if is_inside || secret.len() < 6 {
            clean.push_str(mark);
            clean.push_str(secret);
        } else {
            if !with_mark {
                clean.push_str(mark);
            }
            clean.push_str(REDACTED);
        }
        rest = next;
    }
    clean + rest
}

/// The letters and digits of an escape belong to no word.
fn ends_in_a_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_alphanumeric()) && !ends_in_an_escape(text)
}

/// An escape as in JSON, such as `\n` and `\u0026`, or as in URLs, such as `%0A`.
fn ends_in_an_escape(text: &str) -> bool {
    let coded = |mark: &str, digits: usize| {
        let parts = text.len().checked_sub(digits).and_then(|at| text.split_at_checked(at));
        parts.is_some_and(|(before, code)| before.ends_with(mark) && code.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    ["\\n", "\\t", "\\r"].into_iter().any(|escape| text.ends_with(escape)) || coded("\\u", 4) || coded("%", 2)
}

fn keys(text: &str) -> String {
    let (begin, end) = PEM;
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(begin) {
        clean.push_str(before);
        clean.push_str(REDACTED);
        // One that is cut off goes to the end.
        rest = behind.split_once(end).map_or("", |(_, next)| next.split_once("-----").map_or("", |(_, next)| next));
    }
    clean + rest
}

/// `scheme://user:password@host`.
fn passwords(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        let end = behind.find(|c: char| c.is_whitespace() || "/\"'<>,;".contains(c)).unwrap_or(behind.len());
        let (authority, next) = behind.split_at(end);
        clean.push_str(before);
        clean.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => clean.push_str(&format!("{REDACTED}@{host}")),
            None => clean.push_str(authority),
        }
        rest = next;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use pacer_api::names::annotation;
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_secret_flags_and_copies_are_taken_out_of_objects() {
        let mut object = json!({
            "metadata": {
                "name": "web", "managedFields": [{"x": "seeded"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "seeded", "other": "kept"},
            },
            "spec": {
                "env": [{"name": "NPM", "value": "seeded"}, {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "kept", "key": "k"}}}],
                "dockerEnv": [{"name": "A", "value": "seeded"}],
                "containers": [{"args": [
                    "run", "--github-token=seeded", "--github-webhook-secret-token", "seeded", "--sync-period=1m",
                    "--github-url=https://me:seeded@ghe.example/api",
                ]}],
            },
        });
        redact(&mut object);
        let text = object.to_string();
        assert!(!text.contains("seeded"), "{text}");
        for kept in ["\"NPM\"", "kept", "--sync-period=1m", "--github-token=[redacted]", "https://[redacted]@ghe.example/api"] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }

    #[test]
    fn annotations_that_may_hold_a_copy_of_an_object_are_taken_out() {
        let copy = json!({"spec": {"env": [{"name": "A", "value": "seeded"}]}}).to_string();
        let mut object = json!({"metadata": {"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": &copy,
            "kapp.k14s.io/original": &copy,
            "objectset.rio.cattle.io/applied": "H4sIseeded",
            "example.com/object": format!("\n {copy}"),
            "example.com/list": "[\"seeded\"]",
            "example.com/long": "seeded ".repeat(200),
            "example.com/note": "token ghp_abcdefgh123 used",
            annotation::RERUNS: "[{\"job\":7}]",
            annotation::POLICY_STATUS: "long ".repeat(400),
        }}});
        redact(&mut object);
        assert!(!object.to_string().contains("seeded"), "{object:#}");
        let left = &object["metadata"]["annotations"];
        for taken in ["example.com/object", "example.com/list", "example.com/long"] {
            assert_eq!(left[taken], REDACTED, "{taken}");
        }
        assert_eq!(left["example.com/note"], "token [redacted] used");
        assert_eq!(left[annotation::RERUNS], "[{\"job\":7}]");
        assert_eq!(left[annotation::POLICY_STATUS], "long ".repeat(400));
    }

    #[test]
    fn tokens_keys_and_passwords_are_taken_out_of_texts() {
        for (text, expected) in [
            ("token ghp_abcdefgh123 used", "token [redacted] used"),
            ("\"github_pat_11AAA_bbbbbbb\"", "\"[redacted]\""),
            ("authorization: Bearer abc.def-ghi=", "authorization: Bearer [redacted]"),
            ("jwt eyJhbGciOi.eyJpc3Mi.c2ln end", "jwt [redacted] end"),
            ("proxy http://user:pass@proxy:3128/x", "proxy http://[redacted]@proxy:3128/x"),
            ("see https://github.com/acme/app", "see https://github.com/acme/app"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nnext", "[redacted]\nnext"),
            ("cut -----BEGIN RSA PRIVATE KEY-----\nMIIE", "cut [redacted]"),
            ("highs_and lows, basic tests", "highs_and lows, basic tests"),
            ("in highs_andlows and 7ghs_andlows", "in highs_andlows and 7ghs_andlows"),
            (r"said\nghp_abcdefgh123\tand\rghs_abcdefgh\\n\teyJhbGciOi.x", r"said\n[redacted]\tand\r[redacted]\\n\t[redacted]"),
            (r"a\u0026ghp_abcdefgh123", r"a\u0026[redacted]"),
            ("?next=%0Aghs_abcdefgh&to=%2fgithub_pat_11AAA_bbbbbbb", "?next=%0A[redacted]&to=%2f[redacted]"),
            ("two ghs_aaaaaaa ghs_bbbbbbb", "two [redacted] [redacted]"),
        ] {
            assert_eq!(scrub(text), expected, "{text}");
        }
    }
}
