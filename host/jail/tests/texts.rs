//! Policies that are text: what is accepted, what is refused and with which place, and that hostile ones stay in their call.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pacer_core::policy::{Candidate, Choice, Job, ScaleDownRequest};
use pacer_policy::text::{self, TEXT_BYTES};
use pacer_policy::{
    Answer, Bundle, CompiledAhead, Counters, Decision, Digest, Fault, Inquiry, Jail, Launcher, Limits, LoadError, Policy,
    PolicyHost, RAW_BYTES, Refusal,
};

mod child;

/// The interpreter compiled ahead, for all tests of this file.
fn shared() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("interpreter-of-texts")
}

fn launcher() -> Launcher {
    static LAUNCHER: LazyLock<Launcher> = LazyLock::new(|| {
        let launcher = child::launcher().with_native_code(shared());
        let ahead = Jail::start(launcher.clone()).unwrap().compile_ahead().unwrap();
        assert!(ahead.size > 4 << 20, "{ahead:?}");
        launcher
    });
    LAUNCHER.clone()
}

fn jail() -> &'static Jail {
    static JAIL: LazyLock<Jail> = LazyLock::new(|| Jail::start(launcher()).unwrap());
    &JAIL
}

fn host() -> PolicyHost {
    PolicyHost::jailed(launcher(), Arc::new(Counters::default()))
}

const YOUNGEST: &str = "export function scaleDown({ candidates, surplus }) {
  const order = candidates.map((_, index) => index);
  order.sort((a, b) => candidates[a].age - candidates[b].age || (candidates[a].name < candidates[b].name ? -1 : 1));
  return order.slice(0, surplus).map((index) => ({ index, reason: `${candidates[index].age} s old` }));
}
";

fn load(source: &str) -> Result<Policy, LoadError> {
    Policy::load(jail(), &text::module(source.as_bytes())?)
}

fn refused(source: &str) -> (Refusal, String) {
    let error = load(source).map(|policy| policy.to_string()).unwrap_err();
    (error.code, error.message)
}

fn ask(source: &str) -> Result<Answer, Fault> {
    let policy = load(source).unwrap();
    policy.answer(jail(), &request(3, 2), "{}", &Limits::default()).answer
}

fn request(candidates: u32, surplus: u32) -> Inquiry {
    let candidate = |n: u32| Candidate { name: format!("runner-{n}"), age: 100 - n.min(99), idle: n, ..Candidate::default() };
    let candidates = (0..candidates).map(candidate).collect();
    Inquiry::ScaleDown(ScaleDownRequest { now: 1_800_000_000.5, candidates, surplus, ..ScaleDownRequest::default() })
}

fn indices(answer: &Answer) -> Vec<u32> {
    let Answer::ScaleDown(choices) = answer else { panic!("{answer:?}") };
    choices.iter().map(|choice: &Choice| choice.index).collect()
}

/// Only does something about the three candidates of [`request`]: texts are tried with ordinary requests before they are asked.
fn later(body: &str) -> String {
    format!("export function scaleDown(request) {{ if (request.candidates.length !== 3) return []; {body} }}")
}

#[test]
fn native_code_that_does_not_fit_is_compiled_anew() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pacer.interpreter");
    let start = || Jail::start(child::launcher().with_native_code(&file)).unwrap();
    // Whole, of this interpreter, and no code that wasmtime knows.
    let rubbish = b"no native code";
    let head = format!("pacer interpreter {} {}\n", text::interpreter(), Digest::of(rubbish));
    std::fs::write(&file, [head.as_bytes(), rubbish].concat()).unwrap();
    let ahead = start().compile_ahead().unwrap();
    assert!(ahead.compiled && ahead.file == file, "{ahead:?}");
    let again = start();
    assert_eq!(again.compile_ahead().unwrap(), CompiledAhead { compiled: false, ..ahead });
    launcher();
    assert!(std::fs::read(shared()).unwrap() == std::fs::read(&file).unwrap(), "two compilations differ");
    Policy::load(&again, &text::module(YOUNGEST.as_bytes()).unwrap()).unwrap();
}

#[test]
fn the_interpreter_has_no_wasi_and_fits_like_any_component() {
    assert!(pacer_policy::INTERPRETER.len() < 2 * RAW_BYTES, "{}", pacer_policy::INTERPRETER.len());
    println!("interpreter: {} bytes, {}", pacer_policy::INTERPRETER.len(), text::interpreter());
    let names = String::from_utf8_lossy(pacer_policy::INTERPRETER);
    assert!(!names.contains("wasi:") && !names.contains("wasi_snapshot"));
}

#[test]
fn a_text_answers_and_is_identified_by_itself_and_its_interpreter() {
    let policy = load(YOUNGEST).unwrap();
    assert_eq!(policy.decisions(), [Decision::ScaleDown]);
    assert_eq!((policy.description().name.as_str(), policy.size()), ("javascript", YOUNGEST.len()));
    let made = policy.interpreted().unwrap();
    assert_eq!(made.text, Digest::of(YOUNGEST.as_bytes()).to_string());
    assert_eq!(made.interpreter, text::interpreter().to_string());
    let outcome = policy.answer(jail(), &request(3, 2), "{}", &Limits::default());
    assert_eq!(indices(&outcome.answer.unwrap()), [2, 1]);
    let again = policy.answer(jail(), &request(3, 2), "{}", &Limits::default());
    assert_eq!(outcome.fuel, again.fuel);
}

#[test]
fn settings_log_time_and_wide_numbers_are_those_of_the_request() {
    let source = "
        export const name = 'told', version = '2.0', summary = 'tells';
        export function validateSettings(settings) { if (settings.wrong) throw [{ path: 'wrong', message: 'is set' }]; }
        export function scaleDown(request, settings) {
          console.log('now', new Date().toISOString(), request.settings);
          console.warn(typeof settings.least, request.candidates[0]?.lastJobEnd === null);
          return [];
        }
        export const capacity = { plan(request) {
          const jobs = request.jobs.map((job) => job.id);
          return { reservations: [{ id: 'all', jobs, replicas: 1, effective: 0, expires: 60 }], ceiling: null };
        } };";
    let policy = load(source).unwrap();
    assert_eq!((policy.description().name.as_str(), policy.description().version.as_str()), ("told", "2.0"));
    assert_eq!(policy.decisions(), [Decision::ScaleDown, Decision::Capacity]);
    let refused = policy.validate_settings(jail(), r#"{"wrong":1}"#, &Limits::default()).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (Refusal::Settings, "wrong: is set"));
    let outcome = policy.answer(jail(), &request(3, 2), r#"{"least":7}"#, &Limits::default());
    let said: Vec<&str> = outcome.log.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(said, [r#"now 2027-01-15T08:00:00.500Z {"least":7}"#, "number true"]);
    let Inquiry::Capacity(mut jobs) = Inquiry::typical(Decision::Capacity, 1) else { panic!() };
    jobs.jobs = vec![Job { id: u64::MAX - 1, ..Job::default() }];
    let answer = policy.answer(jail(), &Inquiry::Capacity(jobs), "{}", &Limits::default()).answer.unwrap();
    let Answer::Capacity(plan) = answer else { panic!("{answer:?}") };
    assert_eq!(plan.reservations[0].jobs, [u64::MAX - 1]);
}

#[test]
fn a_text_declares_the_facts_that_it_reads() {
    let decides = "export function scaleDown() { return []; }";
    for (declared, reads, unknown) in [
        ("", "", &[][..]),
        ("export const reads = ['node-labels', 'last-job', 'the-weather'];", "node-labels, last-job", &["the-weather"]),
        ("export const reads = [];", "", &[]),
        ("export const lifecycle = { describe: () => ({ attributes: [['reads', 'pool']] }) };", "pool", &[]),
    ] {
        let policy = load(&format!("{declared}\n{decides}")).unwrap();
        let description = policy.description();
        assert_eq!(description.reads.to_string(), reads, "{declared}");
        assert_eq!(description.unknown_reads, unknown, "{declared}");
    }
}

#[test]
fn a_text_that_describes_itself_wrongly_is_refused_with_the_mistake() {
    let decides = "export function scaleDown() { return []; }";
    for (wrong, words) in [
        ("export const reads = 'room';", "reads must be an array of strings, such as [\"node-labels\"], and is a string"),
        ("export const reads = null;", "and is nothing"),
        ("export const reads = { room: true };", "and is an object"),
        ("export const reads = ['room', 7];", "reads[1] must be a string, and is a number"),
        (
            "export const lifecycle = { describe: () => ({ attributes: [['reads', ['room']]] }) };",
            "describe returned a wrong value: attributes: a string is expected, found an array",
        ),
        (
            "export const lifecycle = { describe: () => ({ attributes: { reads: 'room' } }) };",
            "describe returned a wrong value: attributes: an array is expected, found an object",
        ),
        (
            "export const lifecycle = { describe() { throw new Error('not now'); } };",
            "describe failed: Error: not now, at describe (policy.js:1:",
        ),
        ("export const lifecycle = { async describe() { return {}; } };", "describe returned a promise"),
    ] {
        let (code, message) = refused(&format!("{wrong}\n{decides}"));
        assert_eq!(code, Refusal::Instantiate, "{wrong}: {message}");
        assert!(message.contains(words), "{wrong}: {message}");
    }
}

#[test]
fn settings_are_not_accepted_by_a_check_that_waits() {
    let decides = "export function scaleDown() { return []; }";
    for check in [
        "export async function validateSettings() { throw [{ path: 'a', message: 'is wrong' }]; }",
        "export const lifecycle = { async validateSettings() {} };",
    ] {
        let policy = load(&format!("{check}\n{decides}")).unwrap();
        let refused = policy.validate_settings(jail(), "{}", &Limits::default()).unwrap_err();
        assert_eq!(refused.code, Refusal::Settings, "{check}");
        assert!(refused.message.contains("validateSettings must not be async"), "{}", refused.message);
    }
}

#[test]
fn an_exception_is_one_line_with_its_place_however_long_its_message_is() {
    let Err(Fault::PolicyError(text)) = ask(&later("throw new Error('first\\nsecond');")) else { panic!("it answered") };
    assert!(text.starts_with("Error: first second, at scaleDown (policy.js:1:"), "{text}");
    let Err(Fault::PolicyError(text)) = ask(&later("throw new Error('ä'.repeat(9000));")) else { panic!("it answered") };
    assert!(text.contains("ä…, at scaleDown (policy.js:1:"), "{text}");
    let loaded = "\nfunction limit() { throw new RangeError('no limit'); }\nlimit();\nexport function scaleDown() { return []; }";
    let (code, message) = refused(loaded);
    assert_eq!(code, Refusal::Instantiate);
    assert!(message.starts_with("RangeError: no limit, at limit (policy.js:2:"), "{message}");
}

#[test]
fn a_text_decides_whether_jobs_run_again_by_their_whole_identifiers() {
    let source = "export function recover({ jobs }) {
      return jobs.map((job, index) => {
        const known = typeof job.id === 'bigint' && (job.run === null || typeof job.run === 'bigint');
        return { index, action: known ? 'rerun' : 'leave', after: null, reason: `${job.id} of ${job.run}` };
      });
    }";
    let policy = load(source).unwrap();
    assert_eq!(policy.decisions(), [Decision::Recover]);
    let Inquiry::Recover(mut dead) = Inquiry::typical(Decision::Recover, 2) else { panic!() };
    (dead.jobs[0].id, dead.jobs[0].run, dead.jobs[1].run) = (u64::MAX - 1, Some(u64::MAX), None);
    let told = format!("{} of null", dead.jobs[1].id);
    let answer = policy.answer(jail(), &Inquiry::Recover(dead), "{}", &Limits::default()).answer.unwrap();
    let Answer::Recover(verdicts) = answer else { panic!("{answer:?}") };
    let said: Vec<(&str, &str)> = verdicts.iter().map(|verdict| (verdict.action.as_str(), verdict.reason.as_str())).collect();
    assert_eq!(said, [("rerun", "18446744073709551614 of 18446744073709551615"), ("rerun", told.as_str())]);
    let careless = load("export function recover({ jobs }) { return jobs.map((_, index) => ({ index })); }").unwrap();
    let fault = careless.answer(jail(), &Inquiry::typical(Decision::Recover, 2), "{}", &Limits::default()).answer.unwrap_err();
    assert!(fault.to_string().contains("verdicts[0] without action"), "{fault}");
}

/// The policies among the examples that are text.
#[test]
fn texts_of_the_examples_are_accepted() {
    for (source, name, reads) in [
        (include_str!("../../../examples/policies/text/waves.js"), "waves", ""),
        (
            include_str!("../../../examples/policies/text/priciest-node-first.js"),
            "priciest-node-first",
            "node-neighbours, node-price",
        ),
        (include_str!("../../../examples/policies/text/avoid-failing-node.js"), "avoid-failing-node", "failures"),
        (include_str!("../../../examples/policies/text/priority-lanes.js"), "priority-lanes", "job"),
        (include_str!("../../../examples/policies/text/second-chance.js"), "second-chance", ""),
        (include_str!("../../../examples/policies/text/warm-by-label.js"), "warm-by-label", ""),
        (include_str!("../../../examples/policies/text/fits-now.js"), "fits-now", "room"),
        (include_str!("../../../examples/policies/text/leave-room.js"), "leave-room", "pool, other-pools"),
        (
            include_str!("../../../examples/policies/text/kept-by-annotation.js"),
            "kept-by-annotation",
            "annotations, waiting-jobs",
        ),
    ] {
        let policy = load(source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let description = policy.description();
        assert_eq!((description.name.as_str(), description.reads.to_string().as_str()), (name, reads));
    }
}

#[test]
fn a_text_that_can_not_be_used_is_refused_with_its_place() {
    let (code, message) = refused("export function scaleDown(request) {\n  return request..candidates;\n}\n");
    assert_eq!(code, Refusal::Syntax);
    assert!(message.contains("line 2, column"), "{message}");
    let (code, message) = refused("const limit = missing.value;\nexport function scaleDown() { return []; }");
    assert_eq!(code, Refusal::Instantiate);
    assert!(message.contains("missing is not defined"), "{message}");
    let (code, message) = refused("export function scaledown() { return []; }");
    assert_eq!(code, Refusal::Exports);
    assert!(message.contains("exports none of the functions scaleDown, restart, capacity and recover"), "{message}");
    assert_eq!(refused("import { x } from 'y'; export function scaleDown() { return []; }").0, Refusal::Instantiate);
    assert_eq!(refused("await new Promise(() => {}); export function scaleDown() { return []; }").0, Refusal::Instantiate);
    let long = format!("{YOUNGEST}//{}", " ".repeat(TEXT_BYTES));
    assert_eq!(refused(&long).0, Refusal::TooLarge);
}

#[test]
fn a_text_from_a_registry_is_one_by_what_was_pulled_and_not_by_its_name() {
    let name = format!("oci://registry.example/team/policy@sha256:{}", "a".repeat(64));
    let of = |key: &str, module: &[u8], name: &str| {
        let data = BTreeMap::from([("policies.yaml".to_owned(), format!("scale-down: {{module: '{name}'}}\n"))]);
        Bundle::read(jail(), &data, &BTreeMap::from([(key.to_owned(), module.to_vec())]))
    };
    let text = text::module(YOUNGEST.as_bytes()).unwrap();
    let pulled = of(&name, &text, &name).unwrap();
    // The same text in the ConfigMap is the same policy.
    let data = [("policies.yaml", "scale-down: {module: p.js}\n"), ("p.js", YOUNGEST)];
    let data = data.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
    assert_eq!(pulled.digest(), Bundle::read(jail(), &data, &BTreeMap::new()).unwrap().digest());
    let host = host();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(pulled.stage(&host)).unwrap();
    // Bytes of the user's that begin like one are no text.
    assert_eq!(of("m", &text, "m").unwrap_err().reason(), "PolicyNotWebAssembly");
}

#[test]
fn a_set_names_texts_in_data_and_is_refused_where_the_decision_is_missing() {
    let parse = |yaml: &str, data: &[(&str, &str)]| {
        let data = [("policies.yaml", yaml)].into_iter().chain(data.iter().copied());
        let data = data.map(|(key, text)| (key.to_owned(), text.to_owned()));
        Bundle::read(jail(), &data.collect(), &BTreeMap::new())
    };
    let one = parse("scale-down: {module: p.js}\n", &[("p.js", YOUNGEST)]).unwrap();
    let other = parse(
        "scale-down: {module: p.js}\n",
        &[("p.js", &YOUNGEST.replace("[a].age - candidates[b].age", "[b].age - candidates[a].age"))],
    )
    .unwrap();
    let renamed = parse("scale-down: {module: q.js}\n", &[("q.js", YOUNGEST)]).unwrap();
    assert_ne!(one.digest(), other.digest());
    assert_eq!(one.digest(), renamed.digest());
    let error = parse("scale-down: {module: p.js}\n", &[("q.js", YOUNGEST)]).unwrap_err();
    assert_eq!(error.to_string(), "policies.yaml, line 1: scale-down.module: data has no key p.js (it has q.js)");
    let host = host();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let restart = parse("restart: {module: p.js}\n", &[("p.js", YOUNGEST)]).unwrap();
    let error = runtime.block_on(restart.stage(&host)).unwrap_err();
    assert_eq!(error.reason(), "PolicyExportMissing", "{error}");
    let syntax = parse("scale-down: {module: p.js}\n", &[("p.js", "export function scaleDown( {")]).unwrap();
    let error = runtime.block_on(syntax.stage(&host)).unwrap_err();
    assert_eq!(error.reason(), "PolicySyntaxError", "{error}");
}

#[test]
fn what_is_thrown_is_the_fault_with_message_and_calls() {
    let source = later("function inner() { throw new RangeError('no such zone'); }\n  return inner();");
    let Err(Fault::PolicyError(text)) = ask(&source) else { panic!("it answered") };
    assert!(text.starts_with("RangeError: no such zone, at inner (policy.js:1:"), "{text}");
    assert!(text.contains("called by scaleDown (policy.js:2:"), "{text}");
    assert_eq!(ask(&later("throw 'not today';")).unwrap_err(), Fault::declined("not today, at scaleDown (policy.js:1:92)"));
    let Err(Fault::PolicyError(text)) = ask(&later("return request.nothing.there;")) else { panic!("it answered") };
    assert!(text.starts_with("TypeError: ") && text.contains("at scaleDown (policy.js:1:"), "{text}");
}

#[test]
fn answers_of_a_wrong_form_say_where() {
    for (body, words) in [
        ("return 7;", "it returned a number and not a list of choices"),
        ("", "it returned nothing and not a list of choices"),
        ("return [{ reason: 'x' }];", "it returned choices[0] without index"),
        (
            "return [{ index: 0 }, { index: 'one' }];",
            "it returned a wrong choices[1]: index: a whole number from 0 to 4294967295 is expected, found \"one\"",
        ),
        (
            "return [{ index: -1 }];",
            "it returned a wrong choices[0]: index: a whole number from 0 to 4294967295 is expected, found -1",
        ),
        ("return [{ index: 0, reason: ['x'] }];", "a wrong choices[0]: reason: a string is expected, found an array"),
        ("return [{ index: 0, attributes: [['a']] }];", "attributes: an array of 2 items is expected, found 1"),
        (
            "return Promise.resolve([]);",
            "scaleDown returned a promise: a policy can't wait for anything, so scaleDown must not be async",
        ),
        ("const deep = []; deep.push(deep); return deep;", "nested too deep"),
        ("return [{ index: Math.random() }];", "a policy has no randomness"),
    ] {
        let Err(Fault::PolicyError(text)) = ask(&later(body)) else { panic!("{body} is an answer") };
        assert!(text.contains(words), "{body}: {text}");
    }
    assert!(matches!(ask(&later("return [{ index: 0 }, { index: 0 }];")), Err(Fault::InvalidOutput(_))));
}

#[test]
fn hostile_texts_end_in_their_call_and_the_next_is_well() {
    // The interpreter is compiled first, which takes long in a build without optimisation.
    load(YOUNGEST).unwrap();
    for (name, body, kinds) in [
        ("an endless loop", "for (;;) {}", &["fuel", "deadline"][..]),
        ("a loop that catches", "for (;;) { try { for (;;) {} } catch {} }", &["fuel", "deadline"]),
        ("memory", "const all = []; for (;;) all.push(new Array(1000).fill(1.5));", &["memory", "fuel", "deadline"]),
        ("a large buffer", "return [{ index: new ArrayBuffer(2 ** 30).byteLength }];", &["memory", "policy-error", "panic"]),
        (
            "a long string",
            "return [{ index: 'x'.repeat(2 ** 29).length }];",
            &["memory", "policy-error", "panic", "fuel", "deadline"],
        ),
        ("recursion", "const f = (n) => 1 + f(n + 1); return f(0);", &["policy-error", "stack", "fuel"]),
        ("native recursion", "const f = (n) => [n].map(f); return f(0);", &["policy-error", "stack", "panic", "fuel"]),
        ("nested text", "return JSON.parse('['.repeat(100000));", &["policy-error", "stack", "panic", "fuel", "deadline"]),
        ("nested code", "return eval('('.repeat(100000));", &["policy-error", "stack", "panic", "fuel", "deadline"]),
        ("a regular expression", "return /^(a+)+$/.test('a'.repeat(40) + 'b') ? [] : [];", &["fuel", "deadline"]),
        (
            "a pattern of many words",
            "return new RegExp(Array.from({ length: 1e5 }, (_, n) => `word${n}`).join('|')).test('x') ? [] : [];",
            &["memory", "policy-error", "stack", "fuel", "deadline"],
        ),
        (
            "a pattern in itself",
            "return new RegExp('('.repeat(1e5) + ')'.repeat(1e5)).test('x') ? [] : [];",
            &["memory", "policy-error", "stack", "panic", "fuel", "deadline"],
        ),
        (
            "a pattern that counts",
            "return /(?:(?:a{1,1000}){1,1000}){1,1000}b/.test('a'.repeat(5000)) ? [] : [];",
            &["memory", "policy-error", "stack", "fuel", "deadline"],
        ),
        ("an answer without end", "const all = []; all.length = 2 ** 32 - 1; return all;", &["memory", "fuel", "deadline"]),
        ("a getter", "return [{ get index() { for (;;) {} } }];", &["fuel", "deadline"]),
        (
            "a promise without end",
            "const f = () => Promise.resolve().then(f); f(); throw 'declined';",
            &["policy-error", "fuel", "deadline"],
        ),
    ] {
        let began = std::time::Instant::now();
        let fault = ask(&later(body)).unwrap_err();
        let elapsed = began.elapsed();
        println!("{name}: {} after {} ms with loading: {fault}", fault.kind(), elapsed.as_millis());
        assert!(kinds.contains(&fault.kind()), "{name}: {fault}");
        assert!(elapsed < Duration::from_secs(20), "{name}");
    }
    assert_eq!(indices(&ask(YOUNGEST).unwrap()), [2, 1]);
}

#[test]
fn pollution_of_prototypes_stays_in_its_call() {
    // What it changes would be seen by a second call of the same policy, by another policy, and in what the host reads of its answer.
    let source = later(
        "const seen = [Object.prototype.index, [].polluted, globalThis.kept].filter((one) => one !== undefined).length;
         Object.prototype.index = 1; Array.prototype.polluted = 1; globalThis.kept = 1;
         Object.prototype.toString = () => 'x'; Array.prototype.map = () => []; JSON.parse = () => 7; Object.prototype.reason = 'polluted';
         Object.defineProperty(Object.prototype, 'attributes', { get() { throw 'mine'; } });
         return [{ index: seen, reason: `${seen} seen` }];",
    );
    let policy = load(&source).unwrap();
    for _ in 0..2 {
        let answer = policy.answer(jail(), &request(3, 2), "{}", &Limits::default()).answer.unwrap();
        let Answer::ScaleDown(choices) = &answer else { panic!("{answer:?}") };
        assert_eq!(choices, &[Choice { index: 0, reason: "0 seen".to_owned(), attributes: Vec::new() }]);
    }
    // An inherited index is no index.
    let inherited = later("Object.prototype.index = 1; return [{ reason: 'x' }];");
    let Err(Fault::PolicyError(text)) = ask(&inherited) else { panic!("it answered") };
    assert!(text.contains("without index"), "{text}");
    assert_eq!(indices(&ask(YOUNGEST).unwrap()), [2, 1]);
}

#[test]
fn a_thousand_candidates_stay_within_half_of_fuel_and_memory() {
    let policy = load(YOUNGEST).unwrap();
    let (limits, inquiry) = (Limits::default(), Inquiry::typical(Decision::ScaleDown, 1_000));
    let outcomes: Vec<_> = (0..7).map(|_| policy.answer(jail(), &inquiry, "{}", &limits)).collect();
    assert!(outcomes.iter().any(|outcome| outcome.answer.is_ok()), "{:?}", outcomes[0].answer);
    let best = outcomes.iter().map(|outcome| outcome.inside).min().unwrap();
    let (fuel, memory) = (outcomes[0].fuel, outcomes[0].peak_memory);
    // A text has twice the fuel of a component.
    let fuel_limit = 2 * limits.fuel(1_000);
    println!("1,000 candidates: best {} ms, fuel {fuel} of {fuel_limit}, memory {memory}", best.as_millis());
    assert!(fuel <= fuel_limit / 2 && memory <= limits.memory() / 2, "{fuel} {memory}");
}
