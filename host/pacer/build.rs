//! How a release is linked, so that less of the executable is in memory: its pages are most of what an idle operator has resident.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PACER_OWN_GLIBC");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    // Where Rust links with lld, which has both.
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        // Functions that came out alike are one; generic code has many.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // What the loader reads at each start, of the operator and of each process for policies, is a fiftieth. The program takes glibc 2.36 then,
        // which an image has and a laptop may not have.
        if std::env::var_os("PACER_OWN_GLIBC").is_some() {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}
