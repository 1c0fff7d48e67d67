//! The executable becomes the processes that touch users' bytes, and what decides where it can't.

#![allow(clippy::unwrap_used, reason = "also in what tests call")]

use std::path::Path;
use std::sync::Arc;

use pacer_core::policy::ScaleDownRequest;
use pacer_policy::{
    Counters, DecidedBy, Decision, Inquiry, Jail, Launcher, Limits, NO_SETTINGS, Policy, PolicyHost, Refusal, SHIPPED,
};

#[test]
fn the_shipped_policy_answers_in_a_process_as_it_does_natively() {
    let pacer = Path::new(env!("CARGO_BIN_EXE_pacer"));
    let jail = Jail::start(Launcher::program(pacer, ["policy-process"])).unwrap();
    let shipped = Policy::load(&jail, SHIPPED).unwrap();
    for decision in Decision::ALL {
        let inquiry = Inquiry::typical(decision, 100);
        let outcome = shipped.answer(&jail, &inquiry, NO_SETTINGS, &Limits::default());
        assert!(outcome.answer.is_ok());
        assert_eq!(outcome.answer, inquiry.natively(NO_SETTINGS), "{decision}");
    }
    // The process that answered, of the executable that is shipped, is told to escape.
    let escape = jail.escape().unwrap();
    assert!(escape.tried.len() > 10 && escape.possible.is_empty(), "{escape:?}");
    assert_eq!(Policy::load(&jail, b"\0asm\x01\0\0\0").unwrap_err().code, Refusal::CoreModule);
}

#[tokio::test]
async fn the_linked_policy_decides_when_no_process_can_be_started() {
    for (program, arguments) in [("/no/such/program", vec![]), ("/bin/sh", vec!["-c", "exit 1"])] {
        let host = PolicyHost::jailed(Launcher::program(program, arguments), Arc::new(Counters::default()));
        assert!(host.broken().unwrap().contains("no process for policies can be started"), "{:?}", host.broken());
        assert_eq!(host.load(SHIPPED.to_vec()).await.unwrap_err().code, Refusal::SelfTest);
        let evaluation = host.generation().scale_down(ScaleDownRequest::default()).await;
        assert_eq!((evaluation.decided_by, evaluation.fault), (DecidedBy::Native, None));
    }
}
