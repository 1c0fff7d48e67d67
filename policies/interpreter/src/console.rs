//! `console`, which writes into the operator's log, and what a policy does not have.

use boa_engine::object::ObjectInitializer;
use boa_engine::property::Attribute;
use boa_engine::{Context, JsNativeError, JsResult, JsValue, NativeFunction, js_string};

use crate::bindings::pacer::policy0_1_0::log::{Level, write};

/// Gives a text `console`, and takes `Math.random` away.
pub(crate) fn furnish(context: &mut Context) -> JsResult<()> {
    let log = |function| NativeFunction::from_fn_ptr(function);
    let console = ObjectInitializer::new(context)
        .function(log(debug), js_string!("debug"), 1)
        .function(log(info), js_string!("log"), 1)
        .function(log(info), js_string!("info"), 1)
        .function(log(warn), js_string!("warn"), 1)
        .function(log(warn), js_string!("error"), 1)
        .build();
    context.register_global_property(js_string!("console"), console, Attribute::all())?;
    let random = NativeFunction::from_fn_ptr(no_randomness).to_js_function(context.realm());
    let math = context.global_object().get(js_string!("Math"), context)?;
    if let Some(math) = math.as_object() {
        math.set(js_string!("random"), random, true, context)?;
    }
    Ok(())
}

fn no_randomness(_: &JsValue, _: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    Err(JsNativeError::error().with_message("a policy has no randomness: the same request has to get the same answer").into())
}

fn debug(_: &JsValue, said: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    say(Level::Debug, said, context)
}

fn info(_: &JsValue, said: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    say(Level::Info, said, context)
}

fn warn(_: &JsValue, said: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    say(Level::Warn, said, context)
}

fn say(level: Level, said: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let words: Vec<String> =
        said.iter().map(|value| Ok(value.to_string(context)?.to_std_string_lossy())).collect::<JsResult<_>>()?;
    write(level, &words.join(" "));
    Ok(JsValue::undefined())
}
