//! Settings of any kind: the SDK's reader and a general one agree, but for what the SDK's leaves out.

use pacer_policy_sdk::Policy;
use pacer_policy_sdk::lifecycle::read_settings;
use proptest::prelude::*;
use serde_json::{Number, Value};

/// Takes any settings.
struct Any;

impl Policy for Any {
    type Settings = Value;
}

/// What the SDK's reader leaves out on purpose, as it says so.
const LEFT_OUT: [&str; 3] = ["an exponent", "too many digits", "too deep"];

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        any::<f32>().prop_filter_map("no number", |number| Number::from_f64(f64::from(number))),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number.prop_map(Value::Number),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Pieces that mean something.
const TELLING: [&str; 27] = [
    "",
    " ",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "\\ude00",
    "\\u0041",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "-",
    "+",
    ".",
    "0",
    "1e5",
    "null",
    "tru",
    "\u{0}",
    "\u{7f}",
    "😀",
    "é",
    "18446744073709551616",
    "0.1234567890123456789",
];

/// What a text is damaged with.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![4 => proptest::sample::select(&TELLING[..]).prop_map(str::to_owned), 1 => any::<String>()]
}

/// A JSON text with some places damaged.
fn text() -> impl Strategy<Value = String> {
    (value(), proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), piece()), 0..4)).prop_map(
        |(value, damages)| {
            let mut text: Vec<char> = value.to_string().chars().collect();
            for (place, replaces, piece) in damages {
                let place = place.index(text.len() + 1);
                let end = if replaces { (place + 1).min(text.len()) } else { place };
                text.splice(place..end, piece.chars());
            }
            text.into_iter().collect()
        },
    )
}

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

proptest! {
    #[test]
    fn readers_agree_on_any_text(text in prop_oneof![4 => text(), 1 => any::<String>()]) {
        // These stand for the defaults, and blanks around a text are nobody's concern.
        prop_assume!(!matches!(text.trim(), "" | "{}" | "null") && text.trim() == text);
        match (read_settings::<Any>(&text), serde_json::from_str::<Value>(&text)) {
            (Ok(one), Ok(other)) => prop_assert!(same(&one, &other), "{text:?} is {one} here and {other} there"),
            (Err(_), Err(_)) => {}
            (Ok(one), Err(error)) => prop_assert!(false, "{text:?} is {one} here, and there {error}"),
            (Err(problems), Ok(_)) => {
                let said: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
                let is_left_out = said.iter().any(|said| LEFT_OUT.iter().any(|what| said.contains(what)));
                prop_assert!(is_left_out, "{text:?} is refused: {said:?}");
            }
        }
    }
}
