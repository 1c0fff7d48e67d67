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

/// Where the decision `recover` comes from.
const RECOVER: &str = "../../wit/policy/v0.2.0";

/// What policies export that take it: the rest is that of the earlier version, so that a policy has one log and one lifecycle.
const WORLDS: &str = "package pacer:sdk;
world with-recover {
    import pacer:policy/log@0.1.0;
    export pacer:policy/lifecycle@0.1.0;
    export pacer:policy/recover@0.2.0;
}
world with-four {
    import pacer:policy/log@0.1.0;
    export pacer:policy/lifecycle@0.1.0;
    export pacer:policy/scale-down@0.1.0;
    export pacer:policy/restart@0.1.0;
    export pacer:policy/capacity@0.1.0;
    export pacer:policy/recover@0.2.0;
}
";

fn main() -> anyhow::Result<()> {
    println!("cargo::rerun-if-changed={CONTRACT}");
    println!("cargo::rerun-if-changed={RECOVER}");
    let out = env::var_os("OUT_DIR").context("cargo sets OUT_DIR for build scripts")?;
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(CONTRACT)?;
    resolve.push_dir(RECOVER)?;
    let sdk = resolve.push_str("sdk.wit", WORLDS)?;
    for (id, world) in resolve.worlds.iter().filter(|(_, world)| world.package == Some(package) || world.package == Some(sdk)) {
        let component_type = metadata::encode(&resolve, id, StringEncoding::UTF8, None)?;
        fs::write(Path::new(&out).join(format!("{}.component-type", world.name)), component_type)?;
    }
    Ok(())
}
