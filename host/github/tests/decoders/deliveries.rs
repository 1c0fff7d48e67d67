//! Deliveries whose signature is right, and signatures.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue};
use pacer_github::Secret;
use pacer_github::webhook::{Verifier, open};
use ring::hmac;
use serde_json::Value;

const SECRET: &str = "swordfish";

/// Event and payload of each example in `tests/deliveries/examples.json`.
fn examples() -> Vec<(String, String)> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../deliveries/examples.json")).unwrap();
    all.iter().map(|example| (example["event"].as_str().unwrap().to_owned(), example["payload"].to_string())).collect()
}

/// The body as a field of a form.
fn form(payload: &str) -> String {
    payload.bytes().fold(String::from("payload="), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02x}").unwrap();
        }
        text
    })
}

/// Deliveries: a line for the event, one for the type of the content, the body.
fn deliveries() -> Vec<String> {
    let small = r#"{"action":"queued","workflow_job":{"id":1,"run_id":2,"labels":["x"],"created_at":"2026-01-01T00:00:00Z"},"repository":{"full_name":"acme/app","owner":{"login":"acme","type":"Organization"}},"enterprise":{"slug":"corp"}}"#;
    let mut all = vec![
        format!("workflow_job\napplication/json\n{small}"),
        format!("workflow_job\napplication/x-www-form-urlencoded; charset=utf-8\n{}", form(small)),
    ];
    all.extend(examples().into_iter().map(|(event, payload)| format!("{event}\napplication/json\n{payload}")));
    all
}

fn tag(algorithm: hmac::Algorithm, body: &[u8]) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(algorithm, SECRET.as_bytes()), body))
}

#[test]
fn delivery_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::bytes!(deliveries(), |bytes| {
        let mut parts = bytes.splitn(3, |&byte| byte == b'\n');
        let (event, content, body) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-github-event", event), ("content-type", content), ("x-github-delivery", event)] {
            if let Some(Ok(value)) = value.map(HeaderValue::from_bytes) {
                headers.append(name, value);
            }
        }
        let signature = format!("sha256={}", tag(hmac::HMAC_SHA256, body));
        headers.insert("x-hub-signature-256", HeaderValue::from_str(&signature).unwrap());
        let verifier = Verifier::new(&[Secret::from(SECRET)], false).unwrap();
        open(&verifier, &headers, body).is_ok()
    });
}

/// Lines of headers, an empty one, a body.
fn signed() -> [String; 3] {
    let body = "{\"zen\":\"Design for failure.\"}";
    let (strong, weak) = (tag(hmac::HMAC_SHA256, body.as_bytes()), tag(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, body.as_bytes()));
    [
        format!("x-hub-signature-256: sha256={strong}\n\n{body}"),
        format!("x-hub-signature: sha1={weak}\n\n{body}"),
        format!("x-hub-signature: sha1={weak}\nx-hub-signature-256: sha256={strong}\n\n{body}"),
    ]
}

#[test]
fn signature_counts_where_it_is_of_this_body_and_nowhere_else() {
    pacer_fuzz::text!(signed(), |text| {
        let (lines, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut headers = HeaderMap::new();
        for (name, value) in lines.lines().filter_map(|line| line.split_once(": ")) {
            if let (Ok(name), Ok(value)) = (name.parse::<http::HeaderName>(), HeaderValue::from_str(value)) {
                headers.append(name, value);
            }
        }
        let verifier = Verifier::new(&[Secret::from("other"), Secret::from(SECRET)], true).unwrap();
        let passes = verifier.check(&headers, body.as_bytes()).is_ok();
        let is = |name: &str, prefix: &str, algorithm| {
            headers.get(name).is_some_and(|value| {
                let value = value.to_str().unwrap_or_default().trim();
                value.strip_prefix(prefix).is_some_and(|said| said.eq_ignore_ascii_case(&tag(algorithm, body.as_bytes())))
            })
        };
        let strong = is("x-hub-signature-256", "sha256=", hmac::HMAC_SHA256);
        let weak = is("x-hub-signature", "sha1=", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY);
        assert!(!passes || strong || (weak && !headers.contains_key("x-hub-signature-256")), "{text:?} passes");
        passes
    });
}
