//! Policies that pass every check and turn against the host afterwards. Whatever they do, the host lives, is not held up, says what
//! happened, and the shipped policy decides.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pacer_policy::{
    Assignment, Chosen, Counters, DecidedBy, Evaluation, Fault, Level, LimitRequest, Limits, PolicyHost, PolicySet, TICK,
};

mod child;
mod guest;

use guest::{Guest, request};
use pacer_core::policy::Choice;

/// Allowance for a busy machine on top of what the host promises.
const BUSY: Duration = Duration::from_millis(400);

/// Longest time of a decision by the clock, as the host promises it: what others have of the processor draws out the call of a policy and then that of
/// the shipped one, each to its longest.
fn longest() -> Duration {
    2 * (Limits::LONGEST + TICK) + BUSY
}

/// So little that it is gone long before the deadline, also on a busy machine.
const LITTLE_FUEL: LimitRequest = LimitRequest { fuel: Some(1_000_000), deadline_milliseconds: None, memory_mebibytes: None };

struct World {
    host: PolicyHost,
    counters: Arc<Counters>,
}

impl World {
    fn new() -> Self {
        let counters = Arc::new(Counters::default());
        let host = child::host(&counters);
        Self { host, counters }
    }

    async fn publish(&self, guest: &Guest, limits: LimitRequest) {
        let policy = self.host.load(guest.component()).await.unwrap();
        let limits = Limits::lowered(limits).unwrap();
        let scale_down = Assignment { chosen: Chosen::Policy(policy), limits, ..Default::default() };
        let generation = self.host.prepare(PolicySet { scale_down, ..Default::default() }).await.unwrap();
        self.host.publish(generation);
    }

    async fn ask(&self, guest: &Guest) -> Evaluation<Vec<Choice>> {
        self.publish(guest, LITTLE_FUEL).await;
        self.host.generation().scale_down(request(4, 2)).await
    }
}

/// A trap with what is known of it.
fn trap(detail: &str) -> Fault {
    Fault::Panic(Some(detail.to_owned()))
}

const GIVES_UP: &str = "(func $gives_up (result i32) unreachable)";

/// With the name that a compiler of Rust gives it.
const SHARE: &str = "(func $_ZN6policy5share17h0123456789abcdefE (result i32) (i32.div_u (i32.const 1) (i32.const 0)))";

/// Writes this about a panic, in a log that is full, and ends.
fn panicking(text: &str, level: u32, end: &str) -> Guest {
    let text = format!("panic: {text}");
    // An escape is one byte.
    let length = text.len() - 2 * text.matches('\\').count();
    let code = format!(
        "(loop $again
            (call $log (i32.const 1) (i32.const 8192) (i32.const 1))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 40))))
        (call $log (i32.const {level}) (i32.const 8192) (i32.const {length})) {end}"
    );
    Guest::select(&code).with(&format!("(data (i32.const 8192) \"{text}\")"))
}

fn zeroes(is_error: bool, bytes: u32) -> Guest {
    Guest::returning(is_error, 131_072, bytes, "(drop (memory.grow (i32.const 130)))")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_is_named_and_the_shipped_policy_decides() {
    let world = World::new();
    let forever = "(loop $again (br $again)) unreachable";
    let costly = "(loop $again (memory.fill (i32.const 65536) (i32.const 0) (i32.const 60000)) (br $again)) unreachable";
    let bomb = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable";
    let deep = Guest::select("(call $deep (i32.const 0))")
        .with("(func $deep (param i32) (result i32) (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))");
    let invalid = |text: &str| Fault::InvalidOutput(text.to_owned());
    let cases = [
        ("endless loop", Guest::select(forever), Fault::Fuel),
        ("endless bulk operations", Guest::select(costly).memory("(memory (export \"memory\") 2)"), Fault::Fuel),
        ("memory bomb", Guest::select(bomb), Fault::Memory),
        ("deep recursion", deep, Fault::Stack(Some("deep".to_owned()))),
        ("trap", Guest::select("unreachable"), trap("unreachable")),
        ("division by zero", Guest::select("(i32.div_u (i32.const 1) (i32.const 0))"), trap("integer division by zero")),
        (
            "quotient that is too large",
            Guest::select("(i32.div_s (i32.const -2147483648) (i32.const -1))"),
            trap("integer overflow"),
        ),
        ("number that is none", Guest::select("(i32.trunc_f64_s (f64.const nan))"), trap("invalid conversion to integer")),
        ("access out of bounds", Guest::select("(i32.load (i32.const -1))"), trap("out of bounds memory access")),
        (
            "call of nothing",
            Guest::select("(call_indirect (result i32) (i32.const 0))").with("(table 1 funcref)"),
            trap("uninitialized element"),
        ),
        ("trap in a function with a name", Guest::select("(call $gives_up)").with(GIVES_UP), trap("unreachable, in gives_up")),
        (
            "trap in a function of Rust",
            Guest::select("(call $_ZN6policy5share17h0123456789abcdefE)").with(SHARE),
            trap("integer division by zero, in policy::share"),
        ),
        (
            "trap in a function without a name",
            Guest::select("(call $gives_up)").with(
                "(func $gives_up (result i32) (call_indirect (result i32) (i32.const 0)))
                 (table 1 funcref) (elem (i32.const 0) func 6) (func (result i32) unreachable)",
            ),
            trap("unreachable"),
        ),
        (
            "trap with a name as long as nobody reads",
            Guest::select(&format!("(call ${})", "f".repeat(3_000))).with(&GIVES_UP.replace("gives_up", &"f".repeat(3_000))),
            trap(&format!("unreachable, in {}…", "f".repeat(157))),
        ),
        (
            "panic with its text",
            panicking("no runner, at src/lib.rs:7", 2, "unreachable"),
            trap("panic: no runner, at src/lib.rs:7"),
        ),
        (
            "panic of many lines",
            panicking(r"one\0a\1b[31mtwo, at src/lib.rs:7", 2, "unreachable"),
            trap("panic: one [31mtwo, at src/lib.rs:7"),
        ),
        ("line that is no warning", panicking("no runner", 1, "unreachable"), trap("unreachable")),
        (
            "line about another trap",
            panicking("no runner", 2, "(call $_ZN6policy5share17h0123456789abcdefE)").with(SHARE),
            trap("integer division by zero, in policy::share"),
        ),
        ("answer of 8 MiB", zeroes(false, 400_000), Fault::HostcallData),
        ("error of 8 MiB", zeroes(true, 8 << 20), Fault::HostcallData),
        (
            "log line of 8 MiB",
            Guest::select(
                "(drop (memory.grow (i32.const 130))) (call $log (i32.const 1) (i32.const 65536) (i32.const 8388608)) (i32.const 2048)",
            ),
            Fault::HostcallData,
        ),
        ("list outside its memory", Guest::returning(false, u32::MAX - 64, 3, ""), Fault::InvalidOutput(String::new())),
        ("answer outside its memory", Guest::select("(i32.const -16)"), Fault::InvalidOutput(String::new())),
        (
            "neither ok nor err",
            Guest::select("(i32.store8 (i32.const 4096) (i32.const 7)) (i32.const 4096)"),
            Fault::InvalidOutput(String::new()),
        ),
        (
            "error that is not UTF-8",
            Guest::returning(true, 8_192, 2, "(i32.store16 (i32.const 8192) (i32.const 0xffff))"),
            Fault::InvalidOutput(String::new()),
        ),
        ("one candidate twice", Guest::choosing(&[(1, "a"), (1, "b")]), invalid("candidate 1 is named more than once")),
        ("foreign candidate", Guest::choosing(&[(4, "a")]), invalid("index 4 is outside the 4 candidates that were offered")),
        (
            "absurd candidate",
            Guest::choosing(&[(u32::MAX, "a")]),
            invalid("index 4294967295 is outside the 4 candidates that were offered"),
        ),
        (
            "too many",
            Guest::choosing(&[(0, "a"), (1, "b"), (2, "c")]),
            invalid("3 choices were returned and at most 2 were asked for"),
        ),
        ("clean error", Guest::returning(true, 2_164, 6, ""), Fault::PolicyError("wrong!".to_owned())),
        (
            "unclean error",
            Guest::returning(true, 8_192, 4, "(i32.store (i32.const 8192) (i32.const 0x0a1b4100))"),
            Fault::PolicyError("A".to_owned()),
        ),
    ];
    for (name, guest, expected) in cases {
        world.publish(&guest, LITTLE_FUEL).await;
        let began = Instant::now();
        let evaluation = world.host.generation().scale_down(request(4, 2)).await;
        let took = began.elapsed();
        let fault = evaluation.fault.clone().unwrap_or_else(|| panic!("{name} is a fault"));
        if expected == Fault::InvalidOutput(String::new()) {
            assert_eq!(fault.kind(), "invalid-output", "{name}: {fault}");
        } else {
            assert_eq!(fault, expected, "{name}");
        }
        assert!(took < longest(), "{name} took {took:?}");
        let shipped = world.host.shipped().unwrap();
        let by = DecidedBy::Policy { name: shipped.description().name.clone(), digest: shipped.digest().to_string() };
        assert_eq!(evaluation.decided_by, by, "{name}");
        assert_eq!(evaluation.answer.len(), 2, "{name}");
        assert_eq!(evaluation.receipt.attempts.len(), 2, "{name}");
        let text = serde_json::to_string(&evaluation.receipt).unwrap();
        assert!(text.len() < 64 << 10, "{name}: a receipt of {} bytes", text.len());
    }
    assert_eq!(world.counters.faults("fuel"), 2);
    assert_eq!(world.counters.faults("invalid-output"), 8);
    assert_eq!(world.counters.fallbacks(), 31);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_with_fuel_left_meets_its_deadline() {
    let world = World::new();
    // Loads are cheap in fuel and slow: a chain of dependent ones through 16 MiB outlasts the deadline before the fuel is gone.
    let slow = r"
        (drop (memory.grow (i32.const 200)))
        (loop $again
            (local.set $n (i32.rem_u
                (i32.add (i32.mul (local.get $n) (i32.const 1103515245)) (i32.add (i32.const 12345) (i32.load (local.get $n))))
                (i32.const 13000000)))
            (br $again))
        unreachable";
    let short = LimitRequest { deadline_milliseconds: Some(20), ..Default::default() };
    let mut quickest = Duration::MAX;
    // The deadline is processor time; a machine that is busy with something else ends a call later, and only within a second.
    for _ in 0..3 {
        world.publish(&Guest::select(slow), short).await;
        let began = Instant::now();
        // A thousand candidates buy more fuel than can be used up in that time.
        let evaluation = world.host.generation().scale_down(request(1_000, 1)).await;
        let took = began.elapsed();
        assert_eq!(evaluation.fault, Some(Fault::Deadline));
        assert!(took >= Duration::from_millis(20), "{took:?}");
        assert!(took < longest(), "{took:?}");
        quickest = quickest.min(took);
    }
    assert!(quickest < Duration::from_millis(20) + Limits::DEADLINE + 2 * TICK + BUSY, "{quickest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_candidates_are_decided_on_whoever_is_asked() {
    let world = World::new();
    let most = 5_000;
    // Chooses all it may: the request's `surplus` lies at 204.
    let greedy = Guest::select(
        "(loop $again
            (i32.store (i32.add (i32.const 1500000) (i32.mul (local.get $n) (i32.const 20))) (local.get $n))
            (i32.store offset=4 (i32.add (i32.const 1500000) (i32.mul (local.get $n) (i32.const 20))) (i32.const 2164))
            (i32.store offset=8 (i32.add (i32.const 1500000) (i32.mul (local.get $n) (i32.const 20))) (i32.const 6))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.load offset=204 (local.get $request)))))
        (i32.store (i32.const 4096) (i32.const 0))
        (i32.store (i32.const 4100) (i32.const 1500000))
        (i32.store (i32.const 4104) (local.get $n))
        (i32.const 4096)",
    )
    .memory("(memory (export \"memory\") 32)");
    let wrong = Guest::choosing(&[(most, "one too far")]);
    let looping = Guest::select("(loop $again (br $again)) unreachable");
    for (guest, fault) in [(greedy, None), (wrong, Some("invalid-output")), (looping, Some("deadline"))] {
        world.publish(&guest, LimitRequest::default()).await;
        let began = Instant::now();
        let evaluation = world.host.generation().scale_down(request(most, most)).await;
        let took = began.elapsed();
        // So many candidates buy more fuel than the deadline leaves time for; which comes first is the machine's affair.
        let kind = evaluation.fault.as_ref().map(|fault| if *fault == Fault::Fuel { "deadline" } else { fault.kind() });
        assert_eq!(kind, fault);
        assert_eq!(evaluation.answer.len(), most as usize);
        // The loop uses up all of its processor time, which takes as much longer as the machine is busy.
        assert!(took < longest(), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_are_cleaned_and_log_lines_bounded() {
    let world = World::new();
    let reason = format!("\u{1b}[31mline one\r\nline two {}", "x".repeat(400));
    let evaluation = world.ask(&Guest::choosing(&[(2, &reason), (0, "plain")])).await;
    assert_eq!(evaluation.fault, None);
    assert_eq!(evaluation.answer.iter().map(|choice| choice.index).collect::<Vec<_>>(), [2, 0]);
    let cleaned = &evaluation.answer[0].reason;
    assert!(cleaned.starts_with("[31mline one line two xxx"), "{cleaned}");
    assert!(cleaned.len() <= 256 && cleaned.ends_with('…'), "{cleaned}");

    let chatty = "(memory.fill (i32.const 20000) (i32.const 97) (i32.const 3000))
        (loop $again
            (call $log (i32.const 2) (i32.const 20000) (i32.const 3000))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 100))))
        (i32.const 2048)";
    let evaluation = world.ask(&Guest::select(chatty)).await;
    assert_eq!(evaluation.fault, None);
    let attempt = &evaluation.receipt.attempts[0];
    assert_eq!((attempt.log.len(), attempt.log_dropped), (32, 68));
    assert!(attempt.log.iter().all(|line| line.level == Level::Warn && line.message.len() <= 1_024));
    assert_eq!(world.counters.log_dropped(), 68);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_question_gets_the_same_answer_for_the_same_effort() {
    let world = World::new();
    world.publish(&Guest::choosing(&[(3, "third"), (1, "first")]), LimitRequest::default()).await;
    let generation = world.host.generation();
    let first = generation.scale_down(request(4, 2)).await;
    for _ in 0..20 {
        let again = generation.scale_down(request(4, 2)).await;
        assert_eq!(again.answer, first.answer);
        assert_eq!(again.receipt.fuel(), first.receipt.fuel());
        assert_eq!(again.receipt.input_hash, first.receipt.input_hash);
        assert_eq!(again.receipt.output_hash, first.receipt.output_hash);
    }
    assert!(first.receipt.fuel() > 0 && first.receipt.attempts[0].peak_memory >= 65_536);
    let other = generation.scale_down(request(5, 2)).await;
    assert_ne!(other.receipt.input_hash, first.receipt.input_hash);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_when_the_queue_is_full() {
    let world = World::new();
    let slow = "(loop $again (br $again)) unreachable";
    world.publish(&Guest::select(slow), LimitRequest::default()).await;
    let generation = world.host.generation();
    let calls: Vec<_> = (0..400)
        .map(|_| {
            let generation = Arc::clone(&generation);
            tokio::spawn(async move { generation.scale_down(request(4, 2)).await })
        })
        .collect();
    let mut full = 0;
    for call in calls {
        let evaluation = call.await.unwrap();
        assert_eq!(evaluation.answer.len(), 2);
        match evaluation.fault {
            Some(Fault::QueueFull) => full += 1,
            // Once it has failed three times in a row it is not asked any more.
            None => assert!(evaluation.receipt.bypassed.is_some()),
            // Whichever comes first on a busy machine.
            fault => assert!(matches!(fault, Some(Fault::Fuel | Fault::Deadline)), "{fault:?}"),
        }
    }
    assert!(full > 0, "400 calls fit nowhere");
    let after = generation.scale_down(request(4, 2)).await;
    assert!(after.fault != Some(Fault::QueueFull) && after.answer.len() == 2, "{:?}", after.fault);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_in_use_survives_its_successor() {
    let world = World::new();
    world.publish(&Guest::choosing(&[(0, "old")]), LimitRequest::default()).await;
    let old = world.host.generation();
    world.publish(&Guest::choosing(&[(1, "new")]), LimitRequest::default()).await;
    assert_eq!(old.scale_down(request(4, 2)).await.answer[0].reason, "old");
    let new = world.host.generation();
    assert_eq!(new.scale_down(request(4, 2)).await.answer[0].reason, "new");
    assert!(new.number() > old.number());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_with_anything_wrong_is_refused_whole() {
    let world = World::new();
    let policy = world.host.load(Guest::choosing(&[(0, "a")]).component()).await.unwrap();
    let of_guest = |settings: &str| Assignment {
        chosen: Chosen::Policy(Arc::clone(&policy)),
        settings: Arc::from(settings),
        limits: Limits::default(),
    };
    let wrong_decision = PolicySet { restart: of_guest("{}"), ..Default::default() };
    let refused = world.host.prepare(wrong_decision).await.unwrap_err();
    assert!(refused.message.contains("does not take the decision restart: it takes scale-down"), "{refused}");
    let no_json = PolicySet { scale_down: of_guest("{"), ..Default::default() };
    let refused = world.host.prepare(no_json).await.unwrap_err();
    assert!(refused.message.starts_with("scale-down: the settings are not JSON"), "{refused}");
    assert_eq!(world.host.generation().number(), 0);
}
