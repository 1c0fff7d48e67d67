//! The test of the test: small crates with and without cycles.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::arrows::arrows;
use super::crates::{Package, forbidden};
use super::cycle::{cycles, describe};
use super::source::modules;

/// The cycles of a crate of these files.
fn cycles_of(files: &[(&str, &str)]) -> Result<Vec<String>> {
    let files: BTreeMap<&Path, &str> = files.iter().map(|(path, text)| (Path::new(path), *text)).collect();
    let modules = modules(Path::new("src/lib.rs"), &|path| files.get(path).map(|text| (*text).to_owned()))?;
    Ok(cycles(&arrows(&modules)).iter().map(describe).collect())
}

#[test]
fn cycle_is_printed_with_its_lines_when_two_modules_use_each_other() -> Result<()> {
    let found = cycles_of(&[
        ("src/lib.rs", "mod a;\nmod b;\n"),
        ("src/a.rs", "use crate::b::{Other, B};\npub struct A(pub B);\n"),
        ("src/b.rs", "pub struct B;\npub struct Other;\n\nfn take(_: super::a::A) {}\n"),
    ])?;
    assert_eq!(found, ["a -> b -> a\n    a: src/a.rs:1 names crate::b::Other\n    b: src/b.rs:4 names super::a::A\n"]);
    Ok(())
}

#[test]
fn nothing_is_found_when_arrows_point_one_way() -> Result<()> {
    let found = cycles_of(&[
        ("src/lib.rs", "mod a;\nmod b;\nmod c { pub struct C; }\npub use a::A;\n"),
        ("src/a.rs", "use crate::{b::B, c};\npub struct A(B, c::C);\n"),
        // Tests may use what uses the tested module, and a local name is no module.
        ("src/b.rs", "pub struct B(crate::c::C);\n#[cfg(test)]\nmod tests { use crate::A; }\nfn f(a: u8) -> u8 { a }\n"),
    ])?;
    assert!(found.is_empty(), "{found:?}");
    Ok(())
}

#[test]
fn nothing_is_found_when_parent_and_children_use_each_other() -> Result<()> {
    let found = cycles_of(&[
        ("src/lib.rs", "mod a;\npub struct Root(a::A);\n"),
        ("src/a.rs", "mod x;\nmod y;\npub struct A(x::X, y::Y);\npub enum Kind {}\n"),
        ("src/a/x.rs", "use super::y::Y;\npub struct X(Y, super::Kind, crate::Root);\n"),
        ("src/a/y.rs", "use super::*;\npub struct Y(Kind);\n"),
    ])?;
    assert!(found.is_empty(), "{found:?}");
    Ok(())
}

#[test]
fn cycle_is_found_when_it_leaves_a_parent_through_a_child() -> Result<()> {
    let found = cycles_of(&[
        ("src/lib.rs", "mod a;\nmod b;\n"),
        ("src/a.rs", "mod x;\npub struct A(x::X);\n"),
        ("src/a/x.rs", "pub struct X(Box<crate::b::B>);\n"),
        ("src/b.rs", "pub struct B(crate::a::A);\n"),
    ])?;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found.iter().all(|cycle| cycle.starts_with("a::x -> b -> a -> a::x\n")), "{found:?}");
    Ok(())
}

#[test]
fn cycle_is_found_when_it_goes_through_a_re_export() -> Result<()> {
    for (name, facade, named) in [
        (
            "named",
            "mod a;\nmod b;\npub use a::A;\npub use b::B as Renamed;\n",
            "use crate::Renamed;\npub struct A;\nfn f(_: Renamed) {}\n",
        ),
        ("glob", "mod a;\nmod b;\npub use a::*;\npub use b::*;\n", "use crate::*;\npub struct A;\nfn f(_: B) {}\n"),
        ("macro", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n", "pub struct A;\nfn f() { print!(\"{:?}\", crate::B) }\n"),
        (
            "module",
            "mod a;\nmod b;\npub use a::A;\npub use b as other;\n",
            "use crate::other;\npub struct A;\nfn f(_: other::B) {}\n",
        ),
    ] {
        let found = cycles_of(&[
            ("src/lib.rs", facade),
            ("src/a.rs", named),
            ("src/b.rs", "use super::A;\npub struct B;\nfn g(_: A) {}\n"),
        ])?;
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found.iter().all(|cycle| cycle.starts_with("a -> b -> a\n")), "{name}: {found:?}");
    }
    Ok(())
}

#[test]
fn arrow_between_crates_is_refused_when_the_table_does_not_have_it() {
    let package = |name: &str, dependencies: &[&str]| Package {
        name: name.to_owned(),
        dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        roots: Vec::new(),
    };
    let found = forbidden(&[
        package("pacer-core", &["serde", "pacer-api"]),
        package("pacer-api", &["pacer-core"]),
        package("pacer-surprise", &[]),
    ]);
    assert_eq!(found, ["pacer-core may not depend on pacer-api", "pacer-surprise is not in the table of directions"]);
}
