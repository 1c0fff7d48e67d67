//! A text in the engine.

use std::path::Path;
use std::rc::Rc;

use boa_engine::builtins::promise::PromiseState;
use boa_engine::context::time::FixedClock;
use boa_engine::context::{ContextBuilder, HostHooks};
use boa_engine::object::builtins::{JsArray, JsTypedArray};
use boa_engine::property::PropertyKey;
use boa_engine::{Context, JsBigInt, JsError, JsObject, JsString, JsValue, Module, Source, js_string};
use serde_json::{Map, Number, Value};

use crate::bindings::exports::pacer::interpreter::program::Problem as Wrong;
use crate::bindings::exports::pacer::policy0_1_0::lifecycle::{Description, Problem};
use crate::bindings::pacer::interpreter::source;
use crate::request::Asked;
use crate::{answer, console};

/// The name that the text has in messages.
const FILE: &str = "policy.js";

/// Name of a policy that does not say what it is called.
const NAMELESS: &str = "javascript";

/// How deep an answer may be nested.
const DEPTH: usize = 8;

/// Bytes of what was thrown that are told in front of the place: the host cuts the end of a long text, where the place is.
const THROWN_BYTES: usize = 256;

/// What a text may export, with the method of the object that it may be instead of a function.
const DECISIONS: [(&str, &str, &str); 4] = [
    ("scale-down", "scaleDown", "select"),
    ("restart", "restart", "decide"),
    ("capacity", "capacity", "plan"),
    ("recover", "recover", "decide"),
];

/// A text that was parsed and evaluated, with what it exports.
pub(crate) struct Program {
    context: Context,
    exports: JsObject,
}

struct Hooks;

impl HostHooks for Hooks {
    fn local_timezone_offset_seconds(&self, _: i64) -> i32 {
        0
    }
}

impl Program {
    /// The decisions that the text takes, or why it can't be used.
    pub(crate) fn check() -> Result<Vec<String>, Wrong> {
        let mut program = Self::open(0.0)?;
        let taken = DECISIONS.iter().filter(|(_, export, method)| program.function(export, method).is_some());
        let taken: Vec<String> = taken.map(|(name, ..)| (*name).to_owned()).collect();
        if taken.is_empty() {
            let message = "it exports none of the functions scaleDown, restart, capacity and recover".to_owned();
            return Err(Wrong { syntax: false, message });
        }
        program.describe().map_err(|message| Wrong { syntax: false, message })?;
        Ok(taken)
    }

    /// The text, at a point in time.
    pub(crate) fn load(now: f64) -> Result<Self, String> {
        Self::open(now).map_err(|wrong| wrong.message)
    }

    fn open(now: f64) -> Result<Self, Wrong> {
        let failed = |message| Wrong { syntax: false, message };
        let mut context = context(now).map_err(|error| failed(error.to_string()))?;
        let text = source::text();
        let parsed = Module::parse(Source::from_bytes(text.as_bytes()).with_path(Path::new(FILE)), None, &mut context);
        let module = match parsed {
            Ok(module) => module,
            Err(error) => {
                // The engine's parser is native code, which it says of every error.
                let message = error.to_string().replace(" (native)", "");
                let message = message.replace(", col ", ", column ").replace(" at line ", ", line ");
                return Err(Wrong { syntax: true, message });
            }
        };
        let loaded = module.load_link_evaluate(&mut context);
        context.run_jobs().map_err(|error| failed(error.to_string()))?;
        match loaded.state() {
            PromiseState::Fulfilled(_) => {}
            PromiseState::Rejected(thrown) => return Err(failed(told(&JsError::from_opaque(thrown), &mut context))),
            PromiseState::Pending => return Err(failed("it waits for something while it is loaded".to_owned())),
        }
        let exports = module.namespace(&mut context);
        Ok(Self { context, exports })
    }

    /// What the text says about itself, or what is wrong with that.
    pub(crate) fn describe(&mut self) -> Result<Description, String> {
        let mut said = Description::default();
        if let Some((describe, this)) = self.method("lifecycle", "describe") {
            let described = describe.call(&this, &[], &mut self.context);
            let described = described.map_err(|error| format!("describe failed: {}", told(&error, &mut self.context)))?;
            let described = self.returned("describe", &described)?;
            if !described.is_null() {
                said = answer::record(&described).map_err(|wrong| format!("describe returned a wrong value: {wrong}"))?;
            }
        }
        for (export, field) in [("name", &mut said.name), ("version", &mut said.version), ("summary", &mut said.summary)] {
            let exported = self.exports.get(JsString::from(export), &mut self.context).ok();
            if let Some(text) = exported.and_then(|value| value.as_string()) {
                *field = text.to_std_string_lossy();
            }
        }
        if let Ok(exported) = self.exports.get(js_string!("reads"), &mut self.context)
            && !exported.is_undefined()
        {
            let facts = json(&exported, &mut self.context, 0).map_err(|error| told(&error, &mut self.context))?;
            said.attributes.push(("reads".to_owned(), answer::reads(&facts)?.join(" ")));
        }
        if said.name.is_empty() {
            NAMELESS.clone_into(&mut said.name);
        }
        Ok(said)
    }

    /// Has the text look at settings, where it does that.
    pub(crate) fn validate(&mut self, settings: &str) -> Result<(), Vec<Problem>> {
        let whole = |message| vec![Problem { path: String::new(), message }];
        let called = if let Some((validate, this)) = self.method("lifecycle", "validateSettings") {
            validate.call(&this, &[JsString::from(settings).into()], &mut self.context)
        } else if let Some((validate, this)) = self.function("validateSettings", "") {
            let settings = self.parsed(settings).map_err(whole)?;
            validate.call(&this, &[settings], &mut self.context)
        } else {
            return Ok(());
        };
        let error = match called {
            Ok(returned) if returned.is_promise() => return Err(whole(promised("validateSettings"))),
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let listed = error.as_opaque().cloned().and_then(|thrown| json(&thrown, &mut self.context, 0).ok());
        match listed.filter(Value::is_array).and_then(|listed| serde_json::from_value(listed).ok()) {
            Some(problems) => Err(problems),
            None => Err(whole(told(&error, &mut self.context))),
        }
    }

    /// Calls the function of a decision with the request and its settings.
    pub(crate) fn ask(&mut self, export: &str, method: &str, settings: &str, asked: &Asked) -> Result<Value, String> {
        let Some((function, this)) = self.function(export, method) else {
            return Err(format!("{FILE} exports no function {export}"));
        };
        let settings = self.parsed(settings)?;
        let request = self.object(asked).map_err(|error| error.to_string())?;
        let answer = function.call(&this, &[request, settings], &mut self.context);
        let answer = answer.map_err(|error| told(&error, &mut self.context))?;
        self.returned(export, &answer)
    }

    /// What a function returned, as JSON.
    fn returned(&mut self, function: &str, value: &JsValue) -> Result<Value, String> {
        if value.is_promise() {
            return Err(promised(function));
        }
        json(value, &mut self.context, 0).map_err(|error| told(&error, &mut self.context))
    }

    fn parsed(&mut self, settings: &str) -> Result<JsValue, String> {
        let settings: Value = serde_json::from_str(settings).map_err(|error| format!("the settings are no JSON: {error}"))?;
        JsValue::from_json(&settings, &mut self.context).map_err(|error| error.to_string())
    }

    fn object(&mut self, asked: &Asked) -> Result<JsValue, JsError> {
        let object = JsValue::from_json(&asked.value, &mut self.context)?;
        let context = &mut self.context;
        for (list, field) in asked.wide {
            let Some(items) = asked.value.get(list).and_then(Value::as_array) else { continue };
            let Some(list) = object.as_object().map(|all| all.get(JsString::from(*list), context)).transpose()? else { continue };
            let Some(list) = list.as_object() else { continue };
            for (at, item) in (0_u32..).zip(items) {
                let wide = match item.get(field) {
                    Some(Value::Number(number)) => JsBigInt::from(number.as_u64().unwrap_or_default()).into(),
                    Some(Value::Array(numbers)) => {
                        let numbers = numbers.iter().map(|number| JsBigInt::from(number.as_u64().unwrap_or_default()).into());
                        let numbers: Vec<JsValue> = numbers.collect();
                        JsArray::from_iter(numbers, context).into()
                    }
                    _ => continue,
                };
                if let Some(item) = list.get(at, context)?.as_object() {
                    item.set::<_, JsValue>(JsString::from(*field), wide, true, context)?;
                }
            }
        }
        Ok(object)
    }

    /// An export that is a function, or an object with this method.
    fn function(&mut self, export: &str, method: &str) -> Option<(JsObject, JsValue)> {
        let exported = self.exports.get(JsString::from(export), &mut self.context).ok()?;
        match exported.as_callable() {
            Some(function) => Some((function, JsValue::undefined())),
            None => self.method(export, method),
        }
    }

    fn method(&mut self, export: &str, method: &str) -> Option<(JsObject, JsValue)> {
        let exported = self.exports.get(JsString::from(export), &mut self.context).ok()?;
        let function = exported.as_object()?.get(JsString::from(method), &mut self.context).ok()?.as_callable()?;
        Some((function, exported))
    }
}

/// An engine whose clock stands at the time of the request.
fn context(now: f64) -> Result<Context, JsError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no time before 1970 or after the sun")]
    let millis = (now.max(0.0) * 1e3) as u64;
    let builder = ContextBuilder::new().clock(Rc::new(FixedClock::from_millis(millis))).host_hooks(Rc::new(Hooks));
    let mut context = builder.build()?;
    console::furnish(&mut context)?;
    Ok(context)
}

/// Nothing that a promise could wait for ever happens.
fn promised(function: &str) -> String {
    format!("{function} returned a promise: a policy can't wait for anything, so {function} must not be async")
}

/// What was thrown, with the calls that led there.
fn told(error: &JsError, context: &mut Context) -> String {
    let shown = error.to_string();
    let (words, calls) = shown.split_once("\n    at ").unwrap_or((&shown, ""));
    let words = match error.as_opaque() {
        Some(thrown) => thrown.to_string(context).map_or_else(|_| words.to_owned(), |text| text.to_std_string_lossy()),
        None => words.to_owned(),
    };
    let calls: Vec<&str> = calls.split("\n    at ").filter(|call| call.contains(FILE)).collect();
    if calls.is_empty() {
        return words;
    }
    let (kept, mark) = match words.get(..words.floor_char_boundary(THROWN_BYTES)) {
        Some(kept) if kept.len() < words.len() => (kept, "…"),
        _ => (words.as_str(), ""),
    };
    format!("{kept}{mark}, at {}", calls.join(", called by "))
}

/// A value as JSON. Whole numbers of 64 bits may be `BigInt`s, and what is undefined is left out.
fn json(value: &JsValue, context: &mut Context, depth: usize) -> Result<Value, JsError> {
    let wrong = |what: &str| JsError::from_opaque(JsString::from(format!("it returned {what}")).into());
    if let Some(text) = value.as_string() {
        return Ok(Value::String(text.to_std_string_lossy()));
    }
    if let Some(truth) = value.as_boolean() {
        return Ok(Value::Bool(truth));
    }
    if let Some(number) = value.as_number() {
        return Ok(number_of(number));
    }
    if let Some(number) = value.as_bigint() {
        let digits = number.to_string_radix(10);
        let parsed = digits.parse::<u64>().map(Number::from).or_else(|_| digits.parse::<i64>().map(Number::from));
        return parsed.map(Value::Number).map_err(|_| wrong("a number of more than 64 bits"));
    }
    let Some(object) = value.as_object() else { return Ok(Value::Null) };
    if depth >= DEPTH {
        return Err(wrong("something that is nested too deep"));
    }
    if object.is_array() || JsTypedArray::from_object(object.clone()).is_ok() {
        let length = object.get(js_string!("length"), context)?.to_length(context)?;
        let items = (0..length).map(|at| {
            let item = object.get(at, context)?;
            json(&item, context, depth + 1)
        });
        return Ok(Value::Array(items.collect::<Result<_, JsError>>()?));
    }
    let mut fields = Map::new();
    for key in object.own_property_keys(context)? {
        let PropertyKey::String(name) = &key else { continue };
        let field = object.get(key.clone(), context)?;
        if !field.is_undefined() && !field.is_callable() {
            fields.insert(name.to_std_string_lossy(), json(&field, context, depth + 1)?);
        }
    }
    Ok(Value::Object(fields))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "only whole numbers that both forms can say")]
fn number_of(number: f64) -> Value {
    let whole = number as i64;
    if whole as f64 == number && number.abs() < 9e15 {
        return Value::Number(Number::from(whole));
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}
