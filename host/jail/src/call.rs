//! A single call: a fresh store and instance, everything limited, everything measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use pacer_policy::call::{Called, Usage};
use pacer_policy::{Fault, Limits};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::engine::Engine;
use crate::fault::classify;
use crate::guest::Guest;
use crate::linked::Linked;

/// Instantiates and lets `body` call. Blocks for at most the deadline, or as long as one bulk operation on the guest's memory takes.
///
/// A panic of the host ends the call and not the process: no policy may find a bug that stops the operator.
pub(crate) fn call<T>(
    engine: &Engine,
    policy: &Linked,
    limits: &Limits,
    items: usize,
    body: impl FnOnce(&mut Store<Guest>, &Instance) -> wasmtime::Result<Result<T, Fault>>,
) -> Called<T> {
    let started = Instant::now();
    let called = catch_unwind(AssertUnwindSafe(|| {
        let limits = if policy.text.is_some() { limits.of_text() } else { *limits };
        let fuel = limits.fuel(items);
        let (mut store, _watch) = match engine.store(&limits, fuel) {
            Ok(store) => store,
            Err(error) => return (Err(Fault::Instantiate(format!("{error:#}"))), Usage::default()),
        };
        store.data_mut().text.clone_from(&policy.text);
        let mut instantiated = false;
        let answer = policy.pre.instantiate(&mut store).and_then(|instance| {
            instantiated = true;
            body(&mut store, &instance)
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => Err(classify(&error, store.data(), instantiated)),
        };
        let used = fuel.saturating_sub(store.get_fuel().unwrap_or(0));
        let guest = store.into_data();
        let (peak_memory, zero) = (guest.meter.peak(), Duration::ZERO);
        let usage = Usage { fuel: used, inside: zero, duration: zero, peak_memory, lines: guest.lines, dropped: guest.dropped };
        (answer, usage)
    }));
    let (answer, mut usage) = called.unwrap_or_else(|_| (Err(Fault::HostPanic), Usage::default()));
    usage.inside = started.elapsed();
    usage.duration = usage.inside;
    (answer, usage)
}

#[cfg(test)]
mod tests {
    use pacer_policy::SHIPPED;

    use super::*;
    use crate::load;

    #[test]
    fn a_panic_of_the_host_is_a_fault_and_the_next_call_is_well() {
        let engine = Engine::new().unwrap();
        let policy = load::load(&engine, SHIPPED).unwrap().0;
        let limits = Limits::default();
        let (answer, usage) = call::<()>(&engine, &policy.linked, &limits, 0, |_, _| panic!("a bug of the engine"));
        assert_eq!((answer, usage.fuel), (Err(Fault::HostPanic), 0));
        let (answer, usage) = call(&engine, &policy.linked, &limits, 0, |store, instance| {
            let crate::linked::Version::First(lifecycle) = &policy.linked.lifecycle else { panic!("not of 0.1.0") };
            Ok(Ok(lifecycle.load(&mut *store, instance)?.call_describe(store)?.name))
        });
        assert_eq!(answer.as_ref(), Ok(&policy.description.name));
        assert!(usage.fuel > 0 && usage.peak_memory >= 1 << 16 && usage.duration > Duration::ZERO);
    }
}
