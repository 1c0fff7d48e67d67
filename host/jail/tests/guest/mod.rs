//! Policies written as WebAssembly text: well-behaved in rehearsals, and whatever a test wants otherwise.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;

use pacer_core::policy::{Candidate, ScaleDownRequest};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where a guest's static answers lie.
const ANSWER: usize = 16_384;

/// A guest of the world `scale-down-policy`.
#[derive(Clone)]
pub(crate) struct Guest {
    contract: String,
    version: &'static str,
    imports: String,
    fields: String,
    select: String,
    describe: String,
    rehearsed: bool,
    memory: String,
}

impl Guest {
    /// Answers rehearsals with no choice and everything else by `select`, the body of a function whose only parameter `$request`
    /// points at the request, whose only local is `$n`, and which returns a pointer to a `result<list<choice>, string>`.
    pub(crate) fn select(select: &str) -> Self {
        let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/policy/v0.1.0/policy.wit");
        Self {
            contract: std::fs::read_to_string(contract).unwrap(),
            version: "0.1.0",
            imports: String::new(),
            fields: String::new(),
            select: select.to_owned(),
            describe: "(i32.const 1024)".to_owned(),
            rehearsed: true,
            memory: "(memory (export \"memory\") 1)".to_owned(),
        }
    }

    /// Takes more to compile than a set has: locals that are set in each of many loops.
    pub(crate) fn endless() -> Self {
        let sets: String = (0..2_000).map(|local| format!("local.get {local} i32.const 1 i32.add local.set {local} ")).collect();
        let (begin, end) = ("loop ".repeat(1_900), "i32.const 1 br_if 0 end ".repeat(1_900));
        Self::choosing(&[(0, "never")]).with(&format!("(func (local {}) {begin}{sets}{end})", "i32 ".repeat(2_000)))
    }

    /// Answers with these choices.
    pub(crate) fn choosing(choices: &[(u32, &str)]) -> Self {
        let mut list = Vec::new();
        let mut texts = Vec::new();
        let texts_at = ANSWER + 12 + choices.len() * 20;
        for (index, reason) in choices {
            let reason_at = u32::try_from(texts_at + texts.len()).unwrap();
            for word in [*index, reason_at, u32::try_from(reason.len()).unwrap(), 0, 0] {
                list.extend(word.to_le_bytes());
            }
            texts.extend_from_slice(reason.as_bytes());
        }
        let list_at = u32::try_from(ANSWER + 12).unwrap();
        let mut answer = vec![0_u8; 4];
        answer.extend(list_at.to_le_bytes());
        answer.extend(u32::try_from(choices.len()).unwrap().to_le_bytes());
        answer.extend(list);
        answer.extend(texts);
        Self::select(&format!("(i32.const {ANSWER})")).with(&data(ANSWER, &answer))
    }

    /// Answers with a list of this many items, or an error of this many bytes, that lies at `at`.
    pub(crate) fn returning(is_error: bool, at: u32, len: u32, more: &str) -> Self {
        let mut answer = vec![u8::from(is_error), 0, 0, 0];
        answer.extend(at.to_le_bytes());
        answer.extend(len.to_le_bytes());
        Self::select(&format!("{more} (i32.const {ANSWER})")).with(&data(ANSWER, &answer))
    }

    /// Further fields of the core module.
    pub(crate) fn with(mut self, fields: &str) -> Self {
        self.fields.push_str(fields);
        self
    }

    /// Further imports of the core module.
    pub(crate) fn importing(mut self, imports: &str) -> Self {
        self.imports.push_str(imports);
        self
    }

    /// Runs this code before it answers.
    pub(crate) fn first(mut self, code: &str) -> Self {
        self.select = format!("{code} {}", self.select);
        self
    }

    /// Misbehaves from the first call on.
    pub(crate) fn unrehearsed(mut self) -> Self {
        self.rehearsed = false;
        self
    }

    /// The body of `describe`, which returns a pointer to its record.
    pub(crate) fn describing(mut self, body: &str) -> Self {
        body.clone_into(&mut self.describe);
        self
    }

    /// Its memory, which must be exported under that name.
    pub(crate) fn memory(mut self, memory: &str) -> Self {
        memory.clone_into(&mut self.memory);
        self
    }

    /// Built for a contract that differs.
    pub(crate) fn contract(mut self, from: &str, to: &str) -> Self {
        assert!(self.contract.contains(from), "the contract contains {from:?}");
        self.contract = self.contract.replace(from, to);
        self
    }

    /// Built for another version of the contract.
    pub(crate) fn version(mut self, version: &'static str) -> Self {
        self.contract = self.contract.replace("@0.1.0", &format!("@{version}"));
        self.version = version;
        self
    }

    /// The core module, with its component type.
    pub(crate) fn module(&self) -> Vec<u8> {
        let rehearsal = if self.rehearsed {
            "(if (f64.eq (f64.load (local.get $request)) (f64.const 1800000000)) (then (return (i32.const 2048))))"
        } else {
            ""
        };
        let text = format!(
            r#"(module
                (import "pacer:policy/log@{version}" "write" (func $log (param i32 i32 i32)))
                {imports}
                {memory}
                (global $next (mut i32) (i32.const 65536))
                (func (export "cabi_realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
                    (local $at i32) (local $end i32)
                    (local.set $at (i32.and
                        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
                        (i32.sub (i32.const 0) (local.get $align))))
                    (local.set $end (i32.add (local.get $at) (local.get $new)))
                    (block $fits (loop $more
                        (br_if $fits (i32.le_u (local.get $end) (i32.mul (memory.size) (i32.const 65536))))
                        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
                        (br $more)))
                    (global.set $next (local.get $end))
                    (local.get $at))
                (func (export "pacer:policy/lifecycle@{version}#describe") (result i32) {describe})
                (func (export "pacer:policy/lifecycle@{version}#validate-settings") (param i32 i32) (result i32)
                    (if (result i32) (i32.eq (i32.load8_u (local.get 0)) (i32.const 33)) (then (i32.const 2112)) (else (i32.const 2048))))
                (func (export "pacer:policy/scale-down@{version}#select") (param $request i32) (result i32)
                    (local $n i32)
                    {rehearsal}
                    {select})
                {describe_data}
                {problems}
                {fields})"#,
            version = self.version,
            imports = self.imports,
            memory = self.memory,
            describe = self.describe,
            select = self.select,
            fields = self.fields,
            describe_data = describe_data(),
            problems = problems(),
        );
        let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.contract).unwrap();
        let world = resolve.packages[package].worlds["scale-down-policy"];
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        module
    }

    /// The module as a component, validated and encoded.
    pub(crate) fn component(&self) -> Vec<u8> {
        ComponentEncoder::default().validate(true).module(&self.module()).unwrap().encode().unwrap()
    }
}

/// A request that is none of the rehearsals'.
pub(crate) fn request(candidates: u32, surplus: u32) -> ScaleDownRequest {
    let candidates = (0..candidates)
        .map(|n| Candidate { name: format!("runner-{n}"), idle: 600 + n, age: 900 + n, current: true, ..Default::default() })
        .collect();
    ScaleDownRequest { now: 1_700_000_000.0, candidates, surplus, ..Default::default() }
}

fn describe_data() -> String {
    let mut record = Vec::new();
    for word in [1_100_u32, 5, 1_105, 3, 1_108, 7, 0, 0, 0, 0, 0] {
        record.extend(word.to_le_bytes());
    }
    data(1_024, &record) + &data(1_100, b"guest1.0A\nguest")
}

/// The answer of `validate-settings` for settings that begin with an exclamation mark: one problem.
fn problems() -> String {
    let mut record = Vec::new();
    for word in [1_u32, 2_128, 1, 0, 2_160, 4, 2_164, 6] {
        record.extend(word.to_le_bytes());
    }
    data(2_112, &record) + &data(2_160, b"pathwrong!")
}

fn data(at: usize, bytes: &[u8]) -> String {
    let bytes: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const {at}) \"{bytes}\")")
}
