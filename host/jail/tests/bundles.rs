//! Policy sets as users write them: what is read from a ConfigMap, what is refused and how that is said, and how sets lie over each other.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pacer_policy::bundle::pack;
use pacer_policy::{Bundle, BundleError, Counters, Decision, Limits, Mode, Module, PolicyHost, StagedSet, Supposed, Tally};

mod child;
mod guest;

use child::jail;
use guest::{Guest, request};

fn parse(text: &str, modules: &[(&str, Vec<u8>)]) -> Result<Bundle, BundleError> {
    let data = BTreeMap::from([("policies.yaml".to_owned(), text.to_owned())]);
    let modules = modules.iter().map(|(key, bytes)| ((*key).to_owned(), bytes.clone())).collect();
    Bundle::read(jail(), &data, &modules)
}

fn host() -> (PolicyHost, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    (child::host(&counters), counters)
}

async fn stage(host: &PolicyHost, text: &str, modules: &[(&str, Vec<u8>)]) -> StagedSet {
    parse(text, modules).unwrap().stage(host).await.unwrap()
}

#[test]
fn a_set_may_be_written_in_many_ways_and_mean_the_same() {
    let guest = Guest::choosing(&[(0, "a")]);
    let long = parse(
        "scale-down:\n  module: a.wasm\n  settings: {spare: 2, zones: [a, b]}\n  mode: enforce\n  limits: {deadlineMilliseconds: 20}\nrestart: builtin\n",
        &[("a.wasm", guest.component())],
    )
    .unwrap();
    let short = parse(
        "restart: {module: builtin}\nscale-down:\n- limits: {deadlineMilliseconds: 20}\n  settings:\n    zones: [a, b]\n    spare: 2\n  module: b\n",
        &[("b", pack(&guest.module())), ("unused", b"whatever".to_vec())],
    )
    .unwrap();
    assert_eq!(long.digest(), short.digest());
    let entry = short.entry(Decision::ScaleDown, Mode::Enforce).unwrap();
    assert_eq!((&*entry.settings, entry.limits.deadline()), (r#"{"spare":2,"zones":["a","b"]}"#, Duration::from_millis(20)));
    assert!(matches!(&entry.module, Module::Component { key, bytes, .. } if key == "b" && **bytes == *guest.component()));
    assert_eq!(short.entry(Decision::Restart, Mode::Enforce).unwrap().module, Module::Builtin);
    assert_eq!(short.entry(Decision::Capacity, Mode::Enforce), None);

    for text in ["", "{}", "# nothing yet\n\n", "scale-down:\ncapacity: null\n"] {
        assert_eq!(parse(text, &[]).unwrap().entries().count(), 0, "{text:?}");
    }
}

#[test]
fn a_module_of_a_registry_is_read_when_it_is_passed_under_its_name() {
    let guest = Guest::choosing(&[(0, "a")]);
    let name = format!("oci://registry.example/team/policy@sha256:{}", "a".repeat(64));
    let text = format!("pullSecret: registry\nscale-down: {{module: '{name}'}}\n");
    let pulled = parse(&text, &[(&name, pack(&guest.module()))]).unwrap();
    // Where it lies is no part of what it means.
    let at_hand = parse("scale-down: {module: m}\n", &[("m", guest.component())]).unwrap();
    assert_eq!(pulled.digest(), at_hand.digest());
    let entry = pulled.entry(Decision::ScaleDown, Mode::Enforce).unwrap();
    assert!(matches!(&entry.module, Module::Component { key, .. } if *key == name));

    let refused = |text: &str| parse(text, &[("m", guest.component())]).map(|_| ()).unwrap_err();
    let absent = refused(&text);
    assert_eq!(absent.reason(), "PolicyModuleMissing");
    assert!(absent.to_string().contains(&format!("line 2: scale-down.module: {name} has not been pulled")), "{absent}");
    for (text, part) in [
        ("\nrestart: {module: 'oci://registry.example/policy:v1'}\n", "line 2: restart.module: name the digest: oci://"),
        (
            "capacity:\n- module: 'oci://registry.example/policy@sha256:0'\n  mode: shadow\n",
            "line 2: capacity (shadow).module: the digest must",
        ),
        ("pullSecret: ../other\n", "line 1: pullSecret: it must be the name of a Secret of this namespace"),
    ] {
        let error = refused(text);
        assert!(error.reason() == "PolicySetInvalid" && error.to_string().contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_decides_about_dead_jobs_unless_a_set_names_who() {
    let (host, _) = host();
    assert_eq!((host.generation().recovery(), host.compose(&[]).recovery()), (None, None));
    for (text, expected) in [
        ("restart: builtin", None),
        ("recover: builtin", Some(Mode::Enforce)),
        ("recover: {module: builtin, mode: shadow}", Some(Mode::Shadow)),
        ("recover: [{module: builtin}, {module: builtin, mode: shadow}]", Some(Mode::Enforce)),
    ] {
        let staged = stage(&host, text, &[]).await;
        assert_eq!(host.compose(&[&staged]).recovery(), expected, "{text}");
    }
    // A set that says nothing, or only compares, leaves it to the other.
    let (silent, shadow) = (stage(&host, "{}", &[]).await, stage(&host, "recover: {module: builtin, mode: shadow}", &[]).await);
    let enforced = stage(&host, "recover: builtin", &[]).await;
    assert_eq!(host.compose(&[&silent, &enforced]).recovery(), Some(Mode::Enforce));
    assert_eq!(host.compose(&[&shadow, &enforced]).recovery(), Some(Mode::Enforce));
    assert_eq!(host.compose(&[&shadow, &silent]).recovery(), Some(Mode::Shadow));
}

#[test]
fn whatever_changes_the_meaning_changes_the_digest() {
    let a = || ("a", Guest::choosing(&[(0, "a")]).component());
    let b = ("a", Guest::choosing(&[(0, "b")]).component());
    let texts = [
        "scale-down: {module: a}",
        "scale-down: {module: a, mode: shadow}",
        "scale-down: {module: a, settings: {x: 1}}",
        "scale-down: {module: a, limits: {fuel: 1000000}}",
        "scale-down: builtin",
        "restart: builtin",
        "{}",
    ];
    let mut digests: Vec<_> = texts.iter().map(|text| parse(text, &[a()]).unwrap().digest()).collect();
    digests.push(parse(texts[0], &[b]).unwrap().digest());
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), texts.len() + 1);
    assert_eq!(parse("scale-down: {module: a, settings: null}", &[a()]).unwrap(), parse(texts[0], &[a()]).unwrap());
    assert_eq!(parse(texts[0], &[a()]).unwrap().entry(Decision::ScaleDown, Mode::Enforce).unwrap().limits, Limits::default());
}

#[test]
fn errors_point_at_the_line_and_say_what_to_do() {
    let modules = || [("a.wasm", Guest::choosing(&[]).component()), ("notes", b"hello".to_vec())];
    let cases: [(&str, &str, &[&str]); 15] = [
        ("scale-down:\n  modul: a.wasm\n", "PolicySetInvalid", &["line 2", "modul", "module"]),
        ("scaledown: builtin\n", "PolicySetInvalid", &["line 1", "scaledown", "scale-down"]),
        ("scale-down: [\n", "PolicySetInvalid", &["line"]),
        ("- scale-down\n", "PolicySetInvalid", &["line 1"]),
        ("restart:\n  mode: enforce\n", "PolicySetInvalid", &["restart", "module is missing", "binaryData"]),
        ("restart:\n  module: builtin\n  mode: observe\n", "PolicySetInvalid", &["line 3", "observe", "shadow"]),
        ("scale-down: a.wasm\n", "PolicySetInvalid", &["module: a.wasm"]),
        ("scale-down:\n  module: a.wasm\n  limits: {fuel: 0}\n", "PolicySetInvalid", &["line 3", "limits.fuel is 0"]),
        ("scale-down:\n  module: a.wasm\n  limits: {cpu: 1}\n", "PolicySetInvalid", &["line 3", "cpu"]),
        (
            "scale-down:\n  module: a.wasm\n  limits:\n    memoryMebibytes: 100\n",
            "PolicySetInvalid",
            &["limits.memoryMebibytes is 100 and must be from 1 to 64"],
        ),
        ("scale-down:\n- module: a.wasm\n- module: builtin\n", "PolicySetInvalid", &["line 3", "two entries with mode enforce"]),
        ("scale-down: {module: b.wasm}\n", "PolicyModuleMissing", &["line 1", "no key b.wasm", "a.wasm, notes"]),
        ("scale-down: {module: notes, mode: shadow}\n", "PolicyNotWebAssembly", &["scale-down (shadow): module notes"]),
        ("a: 1\na: 2\n", "PolicySetInvalid", &["line"]),
        ("x: &x [1]\ny: *z\n", "PolicySetInvalid", &["line"]),
    ];
    for (text, reason, parts) in cases {
        let refused = parse(text, &modules()).unwrap_err();
        let message = refused.to_string();
        assert_eq!(refused.reason(), reason, "{text:?}: {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{text:?}: {message}");
        assert!(!message.contains('\n') && message.len() < 2_048, "{text:?}: {message}");
    }
    let settings = format!("scale-down:\n  module: a.wasm\n  settings: {}\n", "x".repeat(70_000));
    let refused = parse(&settings, &modules()).unwrap_err().to_string();
    assert!(refused.contains("line 3: scale-down.settings: they have 70002 bytes"), "{refused}");
    let refused =
        Bundle::read(jail(), &BTreeMap::from([("policy.yml".to_owned(), String::new())]), &BTreeMap::new()).unwrap_err();
    assert_eq!(refused.reason(), "PolicySetMissing");
    assert!(refused.to_string().contains("it has policy.yml"), "{refused}");
}

#[test]
fn modules_are_refused_with_the_cure() {
    let foreign = Guest::choosing(&[]).importing("(import \"env\" \"now\" (func))").module();
    let cases: [(Vec<u8>, &str, &str); 5] = [
        (foreign, "PolicyImportDenied", "it imports now from env"),
        (wat::parse_str("(module)").unwrap(), "PolicyNotAComponent", "SDK"),
        (pack(&vec![0; 5 << 20]), "PolicyDecompressionBomb", "4194304"),
        (b"\x1f\x8bdamaged".to_vec(), "PolicyCompressionInvalid", "compress it anew"),
        (pack(&pack(&Guest::choosing(&[]).component())), "PolicyNotWebAssembly", "compressed once more"),
    ];
    for (bytes, reason, part) in cases {
        let refused = parse("scale-down: {module: a}", &[("a", bytes)]).unwrap_err();
        assert_eq!(refused.reason(), reason, "{refused}");
        assert!(refused.to_string().contains(part), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staging_tries_every_policy_with_its_settings() {
    let (host, _) = host();
    let looping = Guest::select("(loop $again (br $again)) unreachable").unrehearsed().component();
    let good = Guest::choosing(&[(0, "a")]).component();
    let cases = [
        ("scale-down: {module: bad, mode: shadow}", "PolicySmokeFailed", "scale-down (shadow): module bad"),
        ("restart: {module: good}", "PolicyExportMissing", "does not take the decision restart"),
        ("capacity: {module: builtin, settings: {noSuchSetting: 1}}", "PolicySettingsInvalid", "capacity: module builtin"),
    ];
    for (text, reason, part) in cases {
        let bundle = parse(text, &[("bad", looping.clone()), ("good", good.clone())]).unwrap();
        let refused = bundle.stage(&host).await.unwrap_err();
        assert_eq!(refused.reason(), reason, "{refused}");
        assert!(refused.to_string().contains(part), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_that_needs_more_memory_is_accepted_if_its_entry_allows_it() {
    let (host, _) = host();
    let grow = "(if (i32.eq (memory.grow (i32.const 400)) (i32.const -1)) (then unreachable)) (i32.const 2048)";
    let cases = [
        (Guest::choosing(&[(0, "a")]).memory("(memory (export \"memory\") 512)"), "PolicyStartFailed"),
        (Guest::select(grow).unrehearsed(), "PolicySmokeFailed"),
    ];
    for (guest, reason) in cases {
        let modules = [("a", guest.component())];
        let refused = parse("scale-down: {module: a}", &modules).unwrap().stage(&host).await.unwrap_err();
        assert_eq!(refused.reason(), reason, "{refused}");
        assert!(refused.to_string().contains("it asked for more memory than it may have"), "{refused}");
        let staged = stage(&host, "scale-down: {module: a, limits: {memoryMebibytes: 32}}", &modules).await;
        assert_eq!(host.compose(&[&staged]).scale_down(request(4, 1)).await.fault, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_specific_set_decides_and_the_rest_is_inherited() {
    let (host, _) = host();
    let first = stage(&host, "scale-down: {module: a}", &[("a", Guest::choosing(&[(1, "cluster")]).component())]).await;
    let ask = async |sets: &[&StagedSet]| host.compose(sets).scale_down(request(4, 1)).await.answer[0].reason.clone();
    assert_eq!(ask(&[&first]).await, "cluster");
    let own = stage(&host, "scale-down: {module: a}", &[("a", Guest::choosing(&[(2, "pool")]).component())]).await;
    assert_eq!(ask(&[&own, &first]).await, "pool");
    let other = stage(&host, "restart: builtin", &[]).await;
    assert_eq!(ask(&[&other, &first]).await, "cluster");
    let builtin = stage(&host, "scale-down: builtin", &[]).await;
    assert!(ask(&[&builtin, &first]).await.contains("idle"));
    assert!(ask(&[]).await.contains("idle"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_in_shadow_is_compared_and_decides_nothing() {
    let (host, counters) = host();
    let text = "scale-down:\n- module: a\n- module: b\n  mode: shadow\n";
    let modules = |second| [("a", Guest::choosing(&[(1, "a"), (2, "a")]).component()), ("b", Guest::component(&second))];
    // The same runners in another order and for another reason is the same decision.
    for (second, agreed) in [(Guest::choosing(&[(2, "b"), (1, "b")]), 5), (Guest::choosing(&[(3, "b")]), 0)] {
        let before = counters.compared(Decision::ScaleDown);
        let staged = stage(&host, text, &modules(second)).await;
        let generation = host.compose(&[&staged]);
        for done in 1..=5 {
            assert_eq!(generation.scale_down(request(4, 2)).await.answer[0].reason, "a");
            // One at a time: what finds no room is left out.
            host.join().await;
            assert_eq!(counters.compared(Decision::ScaleDown), before + done);
        }
        let (standing, tally) = staged.shadow(Decision::ScaleDown).unwrap();
        assert!(standing.policy.starts_with("guest@sha256:"), "{standing:?}");
        assert_eq!((tally.decisions, tally.agreed, tally.faults, tally.skipped), (5, agreed, 0, 0));
        assert!(tally.fuel > 0);
    }
    assert_eq!(counters.faults("fuel"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_in_shadow_that_loops_costs_the_decision_nothing() {
    let (host, counters) = host();
    let looping = Guest::select("(loop $again (br $again)) unreachable").component();
    let text = "scale-down:\n  module: loop\n  mode: shadow\n  limits: {fuel: 1000000}\n";
    let staged = stage(&host, text, &[("loop", looping)]).await;
    let generation = host.compose(&[&staged]);
    for _ in 0..3 {
        let evaluation = generation.scale_down(request(4, 2)).await;
        assert_eq!((evaluation.fault, evaluation.answer.len()), (None, 2));
        host.join().await;
    }
    assert_eq!((counters.shadow_faults(Decision::ScaleDown), counters.faults("fuel"), counters.fallbacks()), (3, 0, 0));
    // Its breaker opens as well; then it is left out.
    generation.scale_down(request(4, 2)).await;
    host.join().await;
    let (standing, tally) = staged.shadow(Decision::ScaleDown).unwrap();
    assert!(standing.health.open_since.is_some());
    assert_eq!((tally.decisions, tally.faults, tally.skipped), (3, 3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_fails_in_a_simulation_fails_every_time_and_nowhere_else() {
    let (host, counters) = host();
    let looping = Guest::select("(loop $again (br $again)) unreachable").component();
    let text = "scale-down:\n  module: loop\n  mode: shadow\n  limits: {fuel: 1000000}\n";
    let staged = stage(&host, text, &[("loop", looping)]).await;
    let generation = host.compose(&[&staged]);
    let supposed = Supposed::of(&generation, &generation).unwrap();
    for _ in 0..7 {
        assert!(supposed.shadow.scale_down(request(4, 2)).await.fault.is_some(), "a simulation has no breaker");
        assert_eq!(supposed.in_force.scale_down(request(4, 2)).await.fault, None);
    }
    let (standing, tally) = staged.shadow(Decision::ScaleDown).unwrap();
    assert_eq!((standing.health.open_since, standing.health.faults, tally), (None, 0, Tally::default()));
    assert_eq!((counters.evaluations(Decision::ScaleDown), counters.faults("fuel"), counters.fallbacks()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_keeps_failing_is_bypassed_until_it_recovers() {
    let (host, counters) = host();
    let good = Guest::choosing(&[(0, "mine")]);
    let failing = Guest::select("unreachable");
    let staged = stage(&host, "scale-down: {module: a}", &[("a", failing.component())]).await;
    let generation = host.compose(&[&staged]);
    for _ in 0..3 {
        assert!(generation.scale_down(request(4, 2)).await.fault.is_some());
    }
    tokio::time::timeout(Duration::from_secs(5), staged.changed()).await.unwrap();
    assert_eq!(generation.degraded().len(), 1);
    let health = staged.enforced(Decision::ScaleDown).unwrap().health;
    assert!(health.open_since.is_some() && health.faults == 3, "{health:?}");

    let evaluation = generation.scale_down(request(4, 2)).await;
    assert_eq!((&evaluation.fault, evaluation.answer.len(), evaluation.receipt.attempts.len()), (&None, 2, 1));
    assert!(evaluation.receipt.bypassed.is_some_and(|policy| policy.starts_with("guest@sha256:")));
    assert_eq!(counters.faults("panic"), 3);
    // Another set with a well-behaved policy is not affected, nor is a generation of the same set any better.
    let fine = stage(&host, "scale-down: {module: a}", &[("a", good.component())]).await;
    assert_eq!(host.compose(&[&fine, &staged]).scale_down(request(4, 2)).await.answer[0].reason, "mine");
    assert_eq!(host.compose(&[&staged, &fine]).degraded().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_under_load_lose_and_mix_no_decision() {
    let (host, counters) = host();
    let host = Arc::new(host);
    let text = "scale-down: {module: a}";
    let one = stage(&host, text, &[("a", Guest::choosing(&[(0, "one"), (1, "one")]).component())]).await;
    let two = stage(&host, text, &[("a", Guest::choosing(&[(2, "two"), (3, "two")]).component())]).await;
    host.publish(host.compose(&[&one]));
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let host = Arc::clone(&host);
            tokio::spawn(async move {
                for _ in 0..100 {
                    let generation = host.generation();
                    let evaluation = generation.scale_down(request(8, 2)).await;
                    // A busy machine may miss the deadline; then the shipped policy decides all of it.
                    let whole = evaluation.answer.iter().all(|choice| choice.reason == evaluation.answer[0].reason);
                    assert!(evaluation.answer.len() == 2 && (whole || evaluation.fault.is_some()), "{evaluation:?}");
                    assert_eq!(evaluation.receipt.generation, generation.number());
                }
            })
        })
        .collect();
    for swap in 0..200 {
        host.publish(host.compose(&[if swap % 2 == 0 { &two } else { &one }]));
        tokio::task::yield_now().await;
    }
    for task in asking {
        task.await.unwrap();
    }
    assert_eq!(counters.evaluations(Decision::ScaleDown), 400);
}
