//! Encodes one component type per world of the contract, for `export!` to put into the policy's module.
//!
//! `wit_bindgen::generate!` can hand out one world per crate only (its exported macros would collide), and a module that carries
//! the type of the widest world would have to export all three decisions.

#![allow(clippy::print_stdout, reason = "a build script talks to cargo on standard output")]

use std::path::Path;
use std::{env, fs};

use anyhow::Context;
use wit_component::{StringEncoding, metadata};

const CONTRACT: &str = "../../wit/policy/v0.1.0";

fn main() -> anyhow::Result<()> {
    println!("cargo::rerun-if-changed={CONTRACT}");
    let out = env::var_os("OUT_DIR").context("cargo sets OUT_DIR for build scripts")?;
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(CONTRACT)?;
    for (id, world) in resolve.worlds.iter().filter(|(_, world)| world.package == Some(package)) {
        let component_type = metadata::encode(&resolve, id, StringEncoding::UTF8, None)?;
        fs::write(Path::new(&out).join(format!("{}.component-type", world.name)), component_type)?;
    }
    Ok(())
}
