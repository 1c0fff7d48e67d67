//! What is never accepted, with the reason given for each.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use pacer_policy::{COMPRESSED_BYTES, Decision, Limits, LoadError, Policy, RAW_BYTES, Refusal, compressed_fits};

mod child;
mod guest;

use child::jail;
use guest::Guest;

fn refusal(bytes: &[u8]) -> LoadError {
    let jail = jail();
    let refused = Policy::load(jail, bytes).unwrap_err();
    // Others are loaded as ever afterwards.
    let fine = Policy::load(jail, &Guest::choosing(&[(0, "fine")]).component()).unwrap();
    assert_eq!(fine.decisions(), [Decision::ScaleDown]);
    refused
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[test]
fn files_that_are_no_component() {
    let good = Guest::choosing(&[]).component();
    let cases: [(&[u8], Refusal, &str); 10] = [
        (b"", Refusal::NotWebAssembly, "it is empty"),
        (b"hello", Refusal::NotWebAssembly, "it is not WebAssembly"),
        (b"(component)", Refusal::NotWebAssembly, "text"),
        (b"\x1f\x8b\x08\0", Refusal::NotWebAssembly, "compressed"),
        (b"\x7fELF\x02\x01\x01", Refusal::NativeCode, "native code"),
        (&good[..6], Refusal::NotWebAssembly, "truncated"),
        (&good[..good.len() / 2], Refusal::Invalid, "truncated"),
        (&good[..good.len() - 1], Refusal::Invalid, "truncated"),
        (&Guest::choosing(&[]).module(), Refusal::CoreModule, "core module"),
        (&vec![0; RAW_BYTES + 1], Refusal::TooLarge, "4194305 bytes"),
    ];
    for (bytes, code, text) in cases {
        let refused = refusal(bytes);
        assert_eq!(refused.code, code, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
    }
}

#[test]
fn sizes_are_checked_before_anything_is_read() {
    assert_eq!(compressed_fits(COMPRESSED_BYTES), Ok(()));
    assert_eq!(compressed_fits(COMPRESSED_BYTES + 1).unwrap_err().code, Refusal::TooLarge);
}

#[test]
fn components_with_features_that_are_off() {
    let many = format!("(component (core module {}))", "(func)".repeat(20_001));
    let cases = [
        ("(component (core module (memory i64 1)))", Refusal::Invalid, "memory64"),
        ("(component (core module (memory 1) (memory 1)))", Refusal::Invalid, "memories"),
        ("(component (core module (memory 1 1 shared)))", Refusal::Invalid, "threads"),
        ("(component (core module (type (struct))))", Refusal::Invalid, "gc"),
        (&many, Refusal::TooLarge, "20001 functions"),
        ("(component)", Refusal::Exports, "none of the interfaces"),
    ];
    for (text, code, message) in cases {
        let refused = refusal(&component(text));
        assert_eq!(refused.code, code, "{refused}");
        assert!(refused.message.contains(message), "{refused}");
    }
}

#[test]
fn imports_that_are_not_offered() {
    let cases = [
        (r#"(component (import "wasi:cli/environment@0.2.3" (instance)))"#, "no WASI"),
        (r#"(component (import "wasi:clocks/monotonic-clock@0.2.0" (instance)))"#, "wasi:clocks/monotonic-clock@0.2.0"),
        (r#"(component (import "pacer:policy/log@0.3.0" (instance)))"#, "pacer:policy@0.1.0 or pacer:policy@0.2.0"),
        (r#"(component (import "steal" (func)))"#, "the only import"),
    ];
    for (text, message) in cases {
        let refused = refusal(&component(text));
        assert_eq!(refused.code, Refusal::Import, "{refused}");
        assert!(refused.message.contains(message), "{refused}");
    }
    // More of our own than there is: caught when it is linked.
    let greedy = Guest::choosing(&[])
        .contract(
            "write: func(level: level, message: string);",
            "write: func(level: level, message: string); read: func() -> u32;",
        )
        .importing(r#"(import "pacer:policy/log@0.1.0" "read" (func $read (result i32)))"#);
    let refused = refusal(&greedy.component());
    assert_eq!(refused.code, Refusal::Import, "{refused}");
}

#[test]
fn both_versions_of_the_contract_are_taken() {
    for version in ["0.1.0", "0.2.0"] {
        let policy = Policy::load(jail(), &Guest::choosing(&[]).version(version).component()).unwrap();
        assert_eq!(policy.decisions(), [Decision::ScaleDown], "{version}");
    }
}

#[test]
fn contracts_that_differ() {
    let newer = refusal(&Guest::choosing(&[]).version("0.3.0").component());
    assert_eq!(newer.code, Refusal::Import, "{newer}");
    let silent = refusal(&component(r#"(component (instance $none) (export "pacer:policy/scale-down@0.3.0" (instance $none)))"#));
    assert_eq!(silent.code, Refusal::Contract, "{silent}");
    assert!(
        silent.message.contains("scale-down@0.3.0") && silent.message.contains("pacer:policy@0.1.0 and pacer:policy@0.2.0"),
        "{silent}"
    );
    let cases = [
        ("        current: bool,\n        /// Since", "        current: bool,\n        zone: string,\n        /// Since"),
        ("        surplus: u32,\n", "        surplus: u64,\n"),
        (
            "        reason: string,\n        attributes: list<attribute>,\n    }\n\n    /// At most `surplus`",
            "        why: string,\n        attributes: list<attribute>,\n    }\n\n    /// At most `surplus`",
        ),
    ];
    for (from, to) in cases {
        let refused = refusal(&Guest::choosing(&[]).contract(from, to).component());
        assert_eq!(refused.code, Refusal::Types, "{refused}");
    }
}

#[test]
fn policies_that_fail_when_they_are_tried() {
    let looping = "(loop $again (br $again)) unreachable";
    let cases = [
        (
            Guest::choosing(&[]).with("(func $start (loop $again (br $again))) (start $start)"),
            Refusal::Instantiate,
            "budget of instructions|deadline",
        ),
        (
            Guest::choosing(&[]).with("(func $start unreachable) (start $start)"),
            Refusal::Instantiate,
            "it trapped: unreachable, in start",
        ),
        (Guest::choosing(&[]).memory("(memory (export \"memory\") 1025)"), Refusal::Instantiate, "memory"),
        (Guest::choosing(&[]).with("(table 10001 funcref)"), Refusal::Instantiate, "memory"),
        (Guest::choosing(&[]).describing(looping), Refusal::Describe, "budget of instructions|deadline"),
        (Guest::choosing(&[]).describing("unreachable"), Refusal::Describe, "it trapped: unreachable"),
        (Guest::choosing(&[]).describing("(i32.const 2048)"), Refusal::Describe, "no name"),
        (
            Guest::choosing(&[]).describing("(call $deep) (i32.const 1024)").with("(func $deep (call $deep))"),
            Refusal::Describe,
            "overflowed its stack|budget of instructions|deadline",
        ),
        (
            Guest::choosing(&[])
                .describing("(i32.const 3072)")
                .memory("(memory (export \"memory\") 40)")
                .with("(data (i32.const 3072) \"\\00\\10\\00\\00\\00\\00\\20\\00\")"),
            Refusal::Describe,
            "it returned more data than it may",
        ),
        (Guest::select(looping).unrehearsed(), Refusal::Smoke, "budget of instructions|deadline"),
        (Guest::choosing(&[(99, "")]).unrehearsed(), Refusal::Smoke, "scale-down fails on the empty request"),
        (Guest::select("unreachable").unrehearsed(), Refusal::Smoke, "it trapped: unreachable"),
    ];
    for (guest, code, message) in cases {
        let refused = refusal(&guest.component());
        assert_eq!(refused.code, code, "{refused}");
        // On a busy machine the deadline may come before the end of the fuel.
        assert!(message.split('|').any(|message| refused.message.contains(message)), "{refused}");
    }
}

#[test]
fn settings_are_the_policys_to_judge() {
    let jail = jail();
    let policy = Policy::load(jail, &Guest::returning(true, 2_164, 5, "").unrehearsed().component()).unwrap();
    assert_eq!(policy.description().name, "guest");
    assert_eq!(policy.description().summary, "A guest");
    let limits = Limits::default();
    policy.validate_settings(jail, "{\"a\": 1}", &limits).unwrap();
    let refused = policy.validate_settings(jail, "{", &limits).unwrap_err();
    assert_eq!(refused.code, Refusal::Settings);
    assert!(refused.message.contains("not JSON"), "{refused}");
    // It loads although it answers every request with an error, and is found out when rehearsed with its settings.
    let refused = policy.rehearse(jail, Decision::ScaleDown, "{}", &limits).unwrap_err();
    assert_eq!(refused.code, Refusal::Smoke);
    assert!(refused.message.contains("wrong"), "{refused}");
}

#[test]
fn modules_become_components_only_with_their_type() {
    let guest = Guest::choosing(&[(0, "first")]);
    assert_eq!(jail().componentize(&guest.module()).unwrap(), guest.component());
    let untyped = jail().componentize(&component("(module)")).unwrap_err();
    assert_eq!(untyped.code, Refusal::Exports, "{untyped}");
    let wasi = component(r#"(module (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32))))"#);
    assert_eq!(jail().componentize(&wasi).unwrap_err().code, Refusal::Exports);
}

#[test]
fn core_modules_that_import_what_is_not_offered() {
    let typed = Guest::choosing(&[(0, "first")]);
    let untyped = "(module (import \"env\" \"now\" (func)) (func (export \"pacer:policy/scale-down@0.1.0#select\")))";
    for (module, message) in [
        (typed.clone().importing("(import \"env\" \"now\" (func))").module(), "it imports now from env"),
        (typed.importing("(import \"wasi_unstable\" \"random_get\" (func))").module(), "policies have no WASI"),
        (component(untyped), "it imports now from env"),
    ] {
        let refused = jail().componentize(&module).unwrap_err();
        assert_eq!(refused.code, Refusal::Import, "{refused}");
        assert!(refused.message.contains(message), "{refused}");
    }
}
