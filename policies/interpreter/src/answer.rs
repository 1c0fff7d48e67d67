//! Answers from JSON values, with the place of what is wrong.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bindings::exports::pacer::policy0_1_0::capacity::{CapacityPlan, Reservation};

/// A list of records, in each of which the fields `needed` have to be.
pub(crate) fn list<T: DeserializeOwned>(name: &str, needed: &[&str], value: Value) -> Result<Vec<T>, String> {
    let Value::Array(items) = value else { return Err(format!("it returned {} and not a list of {name}", kind(&value))) };
    let item = |(at, item): (usize, Value)| {
        if let Some(missing) = needed.iter().find(|field| item.get(**field).is_none()) {
            return Err(format!("it returned {name}[{at}] without {missing}"));
        }
        record(&item).map_err(|wrong| format!("it returned a wrong {name}[{at}]: {wrong}"))
    };
    items.into_iter().enumerate().map(item).collect()
}

/// A plan; its reservations are looked at one by one.
pub(crate) fn plan(value: Value) -> Result<CapacityPlan, String> {
    let Value::Object(mut fields) = value else { return Err(format!("it returned {} and not a plan", kind(&value))) };
    let held = fields.remove("reservations").ok_or("it returned a plan without reservations")?;
    let reservations: Vec<Reservation> = list("reservations", &["id", "jobs", "replicas", "expires"], held)?;
    let rest: CapacityPlan = record(&Value::Object(fields)).map_err(|wrong| format!("it returned a wrong plan: {wrong}"))?;
    Ok(CapacityPlan { reservations, ..rest })
}

/// A record in which no field has to be; of one that is wrong, the first wrong field and what it should be.
pub(crate) fn record<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| {
        let wrong = |(name, field): (&String, &Value)| {
            let alone = Value::Object(Map::from_iter([(name.clone(), field.clone())]));
            T::deserialize(&alone).err().map(|error| format!("{name}: {}", plain(&error.to_string())))
        };
        value.as_object().into_iter().flatten().find_map(wrong).unwrap_or_else(|| plain(&error.to_string()))
    })
}

/// The names of the facts that a text exports as what it reads.
pub(crate) fn reads(value: &Value) -> Result<Vec<&str>, String> {
    let Value::Array(facts) = value else {
        return Err(format!("reads must be an array of strings, such as [\"node-labels\"], and is {}", kind(value)));
    };
    let facts = facts.iter().enumerate();
    facts.map(|(at, fact)| fact.as_str().ok_or_else(|| format!("reads[{at}] must be a string, and is {}", kind(fact)))).collect()
}

/// What serde says about a wrong value, without the names of Rust's types.
fn plain(error: &str) -> String {
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "].iter().find_map(|kind| error.strip_prefix(*kind));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else { return error.to_owned() };
    let found = match found {
        "sequence" => "an array",
        "map" => "an object",
        _ => {
            let words = ["string ", "integer ", "floating point ", "boolean "];
            words.iter().find_map(|word| found.strip_prefix(*word)).unwrap_or(found).trim_matches('`')
        }
    };
    let expected = match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number from 0 to 18446744073709551615",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a tuple of size 2" => "an array of 2 items",
        _ if expected.starts_with("struct ") => "an object",
        _ => expected,
    };
    format!("{expected} is expected, found {found}")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
