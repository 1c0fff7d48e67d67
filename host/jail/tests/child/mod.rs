//! The processes that the tests run policies in: the executable of this crate.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::{Arc, LazyLock};

use pacer_policy::{Counters, Jail, Launcher, PolicyHost};

pub(crate) fn launcher() -> Launcher {
    Launcher::program(env!("CARGO_BIN_EXE_pacer-jail"), [] as [&str; 0])
}

/// One for all tests of a file, as in the operator.
pub(crate) fn jail() -> &'static Jail {
    static JAIL: LazyLock<Jail> = LazyLock::new(|| Jail::start(launcher()).unwrap());
    &JAIL
}

pub(crate) fn host(counters: &Arc<Counters>) -> PolicyHost {
    let host = PolicyHost::jailed(launcher(), Arc::clone(counters) as _);
    assert_eq!(host.broken(), None);
    host
}
