//! How a release is linked, so that less of the executable is in memory: its pages are most of what an idle operator has resident.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    // Where Rust links with lld, which has both.
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        // Functions that came out alike are one; generic code has many.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // What the loader reads of each start, by the operator and by each process for policies, is a fiftieth. Takes glibc 2.36.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
