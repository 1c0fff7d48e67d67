//! Answers from JSON values, with the place of what is wrong.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::exports::pacer::policy0_1_0::capacity::{CapacityPlan, Reservation};

/// A list of records, in each of which the fields `needed` have to be.
pub(crate) fn list<T: DeserializeOwned>(name: &str, needed: &[&str], value: Value) -> Result<Vec<T>, String> {
    let Value::Array(items) = value else { return Err(format!("it returned {} and not a list of {name}", kind(&value))) };
    let item = |(at, item): (usize, Value)| {
        if let Some(missing) = needed.iter().find(|field| item.get(**field).is_none()) {
            return Err(format!("it returned {name}[{at}] without {missing}"));
        }
        serde_json::from_value(item).map_err(|error| format!("it returned {name}[{at}] that is wrong: {error}"))
    };
    items.into_iter().enumerate().map(item).collect()
}

/// A plan; its reservations are looked at one by one.
pub(crate) fn plan(value: Value) -> Result<CapacityPlan, String> {
    let Value::Object(mut fields) = value else { return Err(format!("it returned {} and not a plan", kind(&value))) };
    let held = fields.remove("reservations").ok_or("it returned a plan without reservations")?;
    let reservations: Vec<Reservation> = list("reservations", &["id", "jobs", "replicas", "expires"], held)?;
    let rest: CapacityPlan =
        serde_json::from_value(Value::Object(fields)).map_err(|error| format!("it returned a plan that is wrong: {error}"))?;
    Ok(CapacityPlan { reservations, ..rest })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
