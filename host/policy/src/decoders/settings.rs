//! Settings of any kind: the SDK's reader and a general one agree, but for what the SDK's leaves out.

use pacer_policy_sdk::Policy;
use pacer_policy_sdk::lifecycle::read_settings;
use serde_json::Value;

/// Takes any settings.
struct Any;

impl Policy for Any {
    type Settings = Value;
}

/// What the SDK's reader leaves out on purpose, as it says so.
const LEFT_OUT: [&str; 3] = ["an exponent", "too many digits", "too deep"];

const TEXTS: [&str; 6] = [
    r#"{"spare":2,"labels":["a","b"],"when":{"from":"08:00","days":["mon","fri"]},"share":0.25,"strict":true,"none":null}"#,
    r#"[-1,0,18446744073709551615,-9223372036854775808,1.5,-0.125]"#,
    r#""\u0041\ud83d\ude00\n\t\\ \" \/ é 😀""#,
    r#"{"":{"":[[[[{}]]]],"a b":""},"a":[[],{},false]}"#,
    "{ \"a\" : [ 1 , 2 ]\n,\t\"b\":3 }",
    "true",
];

/// Whether two values are the same, however their numbers are kept.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

#[test]
fn readers_agree_on_any_text() {
    pacer_fuzz::text!(TEXTS, |text| {
        // These stand for the defaults, and blanks around a text are nobody's concern.
        if matches!(text.trim(), "" | "{}" | "null") || text.trim() != text {
            return false;
        }
        match (read_settings::<Any>(text), serde_json::from_str::<Value>(text)) {
            (Ok(one), Ok(other)) => {
                assert!(same(&one, &other), "{text:?} is {one} here and {other} there");
                true
            }
            (Err(_), Err(_)) => false,
            (Ok(one), Err(error)) => panic!("{text:?} is {one} here, and there {error}"),
            (Err(problems), Ok(_)) => {
                let said: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
                let is_left_out = said.iter().any(|said| LEFT_OUT.iter().any(|what| said.contains(what)));
                assert!(is_left_out, "{text:?} is refused: {said:?}");
                false
            }
        }
    });
}
