//! One wasmtime engine and what all policies share: configuration, the only import, and the clock of deadlines.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use pacer_policy::{LimitRequest, Limits, LoadError, Refusal, TICK};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Config, Store, StoreContextMut, Trap, UpdateDeadline};

use crate::bindings::next::pacer::policy as next;
use crate::bindings::pacer::policy::{log, types};
use crate::guest::Guest;
use ticker::{Ticker, Watch};

mod ticker;

/// From which an interpreter takes its text. No component of a user may import it; see `component::inspect`.
const SOURCE: &str = "pacer:interpreter/source@0.1.0";

/// Native stack a guest may use, in bytes; far below what the thread that calls it has.
const STACK_BYTES: usize = 256 << 10;

/// Of how many functions the names are looked at when a policy traps.
const FRAMES: usize = 24;

/// Compiles and runs policies. There is one per process: mixing engines confuses their types.
pub(crate) struct Engine {
    wasmtime: wasmtime::Engine,
    linker: Linker<Guest>,
    ticker: Ticker,
}

/// A component, and what became of it.
pub(crate) struct Compiled {
    pub(crate) component: Component,
    pub(crate) code: Vec<u8>,
    pub(crate) duration: Duration,
}

/// The engine can't be made on this machine, or does not stop policies.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine can't be used: {0}")]
pub(crate) struct EngineError(String);

impl Engine {
    /// An engine with every limit armed: epochs and fuel, no threads, one memory, no import but `log`. Starts the thread of its clock.
    ///
    /// # Errors
    ///
    /// When this machine can't run WebAssembly, or no thread can be started.
    pub(crate) fn new() -> Result<Self, EngineError> {
        Self::of(&configuration())
    }

    /// One whose code runs on every processor of this architecture, and not on one like this machine's alone.
    ///
    /// # Errors
    ///
    /// As for [`Engine::new`].
    pub(crate) fn portable() -> Result<Self, EngineError> {
        let mut config = configuration();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        config.target(&target).map_err(|error| EngineError(format!("{error:#}")))?;
        Self::of(&config)
    }

    fn of(config: &Config) -> Result<Self, EngineError> {
        let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
        let wasmtime = wasmtime::Engine::new(config).map_err(failed)?;
        let mut linker = Linker::new(&wasmtime);
        log::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest).map_err(failed)?;
        types::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest).map_err(failed)?;
        next::log::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest).map_err(failed)?;
        next::types::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest).map_err(failed)?;
        let mut source = linker.instance(SOURCE).map_err(failed)?;
        let text = |store: StoreContextMut<'_, Guest>, (): ()| Ok((store.data().text.as_deref().unwrap_or_default().to_owned(),));
        source.func_wrap("text", text).map_err(failed)?;
        let ticker = Ticker::start(wasmtime.weak()).map_err(|error| EngineError(error.to_string()))?;
        Ok(Self { wasmtime, linker, ticker })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.wasmtime
    }

    /// Compiles a component: a second of processor time per MiB.
    pub(crate) fn compile(&self, component: &[u8]) -> Result<Compiled, LoadError> {
        let began = Instant::now();
        let refused = |error: wasmtime::Error| LoadError::new(Refusal::Compile, format!("{error:#}"));
        let component = Component::from_binary(&self.wasmtime, component).map_err(refused)?;
        let duration = began.elapsed();
        let code = component.serialize().map_err(refused)?;
        Ok(Compiled { component, code, duration })
    }

    pub(crate) fn link(&self, component: &Component) -> wasmtime::Result<InstancePre<Guest>> {
        self.linker.instantiate_pre(component)
    }

    /// A store with all limits armed, and the watch that lets its deadline pass. The deadline counts the processor time of the calling thread.
    pub(crate) fn store(&self, limits: &Limits, fuel: u64) -> wasmtime::Result<(Store<Guest>, Watch)> {
        let mut store = Store::new(&self.wasmtime, Guest::new(limits));
        store.limiter(|guest| &mut guest.meter);
        store.set_fuel(fuel)?;
        store.set_hostcall_fuel(limits.hostcall());
        let watch = self.ticker.watch();
        store.set_epoch_deadline(ticks(limits.deadline()));
        let (limits, began, processor) = (*limits, Instant::now(), processor_time());
        store.epoch_deadline_callback(move |_| match limits.left(processor_time().saturating_sub(processor), began.elapsed()) {
            Some(left) => Ok(UpdateDeadline::Continue(ticks(left))),
            None => Err(Trap::Interrupt.into()),
        });
        Ok((store, watch))
    }

    /// Checks that endless loops are stopped here, by the deadline as well as by fuel, by running one.
    ///
    /// Blocks for about 50 ms, or until fuel of some seconds is gone when the deadline does not stop it.
    ///
    /// # Errors
    ///
    /// What did not stop it. No policy but the linked one may run then.
    pub(crate) fn self_test(&self) -> Result<(), EngineError> {
        let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
        let looping = self.compile(LOOPING).map_err(|error| EngineError(error.to_string()))?;
        let looping = self.link(&looping.component).map_err(failed)?;
        self.stops(&looping, BACKSTOP_FUEL, Trap::Interrupt, "the deadline")?;
        self.stops(&looping, SELF_TEST_FUEL, Trap::OutOfFuel, "fuel")
    }

    fn stops(&self, looping: &InstancePre<Guest>, fuel: u64, expected: Trap, what: &str) -> Result<(), EngineError> {
        let asked = LimitRequest { deadline_milliseconds: Some(SELF_TEST_MILLISECONDS), ..LimitRequest::default() };
        let limits = Limits::lowered(asked).map_err(|error| EngineError(error.to_string()))?;
        let (mut store, _watch) = self.store(&limits, fuel).map_err(|error| EngineError(format!("{error:#}")))?;
        match looping.instantiate(&mut store) {
            Err(error) if error.downcast_ref() == Some(&expected) => Ok(()),
            Err(error) => Err(EngineError(format!("an endless loop ended with {error:#} and not by {what}"))),
            Ok(_) => Err(EngineError("an endless loop ended by itself".to_owned())),
        }
    }
}

/// A time in epoch ticks. One more than it needs: the first tick may come at once.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX).saturating_add(1)
}

/// What the calling thread has had of a processor.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Deadline of the self-test's loop.
const SELF_TEST_MILLISECONDS: u64 = 15;

/// Fuel of the self-test's loop, which is gone in a tenth of that time.
const SELF_TEST_FUEL: u64 = 1_000_000;

/// Ends the self-test's loop after a few seconds if its deadline does not.
const BACKSTOP_FUEL: u64 = 10_000_000_000;

/// An endless loop in a start function; as text in the test below.
const LOOPING: &[u8] = b"\0asm\x0d\0\x01\0\
    \x01\x20\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x08\x01\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b\
    \x02\x04\x01\0\0\0";

fn configuration() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(true)
        .cranelift_nan_canonicalization(true)
        .max_wasm_stack(STACK_BYTES)
        // The innermost functions, for people: a panic goes through a dozen of the runtime's own.
        .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES))
        .wasm_relaxed_simd(false)
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        // The engine's own glue between the parts of a composed component, as JavaScript toolchains make it, reads one memory and writes
        // another. Modules with several of their own are refused before they are compiled; see `component::inspect`.
        .wasm_multi_memory(true)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .concurrency_support(false)
        // Whole gigabytes are reserved for each memory otherwise, and no limit on the address space of the process could be meant.
        .memory_reservation(0)
        .memory_reservation_for_growth(1 << 20)
        // What a memory begins with is copied all the same, since the process can't have files in memory. Switched off, data segments would
        // become one function, which takes the compiler minutes where there are thousands of them, as in components made by Go.
        .memory_init_cow(true)
        .memory_guard_size(64 << 10);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_loop_is_what_it_says() {
        let text = "(component (core module (func (loop (br 0))) (start 0)) (core instance (instantiate 0)))";
        assert_eq!(wat::parse_str(text).unwrap(), LOOPING);
    }

    #[test]
    fn endless_loops_are_stopped() {
        Engine::new().unwrap().self_test().unwrap();
    }

    #[test]
    fn compositions_of_many_modules_do_not_start() {
        let engine = Engine::new().unwrap();
        for (count, starts) in [(32, true), (33, false)] {
            let text = format!("(component (core module $m) {})", "(core instance (instantiate $m))".repeat(count));
            let component = engine.compile(&wat::parse_str(text).unwrap()).unwrap().component;
            let (mut store, _watch) = engine.store(&Limits::default(), 1_000).unwrap();
            let started = engine.link(&component).unwrap().instantiate(&mut store);
            assert_eq!(started.is_ok(), starts, "{count} instances");
        }
    }

    #[test]
    fn compositions_of_many_components_share_one_limit() {
        let engine = Engine::new().unwrap();
        for (count, pages, starts) in [(8, 1, true), (9, 1, false), (4, 64, true), (5, 64, false)] {
            let inner = format!("(component $c (core module $m (memory {pages})) (core instance (instantiate $m)))");
            let text = format!("(component {inner} {})", "(instance (instantiate $c))".repeat(count));
            let component = engine.compile(&wat::parse_str(text).unwrap()).unwrap().component;
            let (mut store, _watch) = engine.store(&Limits::default(), 1_000_000).unwrap();
            let started = engine.link(&component).unwrap().instantiate(&mut store);
            assert_eq!(started.is_ok(), starts, "{count} components of {pages} pages of memory");
        }
    }
}
