//! A receipt for tests, as the operator leaves it.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::policy::{Candidate, Pool as Asked, ScaleDownRequest};
use pacer_policy::record::{Done, Item, Pool, Record, VERSION, id};
use pacer_policy::{Counters, PolicyHost};

/// Runners web-0 to web-N, of which the highest are idle longest, decided by the shipped policy.
pub(crate) fn scale_down(candidates: u32, surplus: u32) -> Record {
    let candidate =
        |n| Candidate { name: format!("web-{n}"), idle: n * 60, age: n * 60 + 100, current: true, ..Candidate::default() };
    let request = ScaleDownRequest {
        now: 1_763_816_000.123,
        pool: Asked { namespace: "default".into(), name: "web-7f9c".into(), ..Asked::default() },
        candidates: (0..candidates).map(candidate).collect(),
        surplus,
        ..ScaleDownRequest::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let host = PolicyHost::jailed(super::jail::launcher().unwrap(), Arc::new(Counters::default()));
    // On a machine that is busy an answer may come after its deadline, and the native policy then decides.
    let mut answers = (0..20).map(|_| runtime.block_on(host.generation().scale_down(request.clone())));
    let evaluation = answers.find(|evaluation| evaluation.fault.is_none()).unwrap();
    let at = Timestamp::from_millisecond(1_763_816_000_123).unwrap();
    let items = evaluation.answer.iter().map(|choice| Item::new(format!("web-{}", choice.index), Done::Removed)).collect();
    Record {
        version: VERSION,
        id: id(at, 0xabcde),
        at,
        pool: Pool { kind: "RunnerDeployment".into(), namespace: "default".into(), name: "web".into() },
        items,
        input: Some(evaluation.input.inquiry()),
        answer: evaluation.answer.into(),
        receipt: evaluation.receipt,
        change: None,
        superseded: 0,
    }
}
