//! Whoever decides, a component in a runner or the linked policy: the answer is the same, and so is what is written down about it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::sync::Arc;

use pacer_policy::{Assignment, Chosen, Counters, Decision, PolicySet, Receipt, rehearsal};

mod child;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_decisions_are_the_same_either_way() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    let native = Assignment { chosen: Chosen::Native, ..Default::default() };
    let native = PolicySet { scale_down: native.clone(), restart: native.clone(), capacity: native.clone(), recover: native };
    let native = host.prepare(native).await.unwrap();
    let component = host.generation();
    for (case, request) in rehearsal::restart() {
        let (one, other) = (component.restart(request.clone()).await, native.restart(request).await);
        assert_eq!((one.answer, one.receipt.input_hash), (other.answer, other.receipt.input_hash), "{case}");
        assert_ne!(one.decided_by, other.decided_by, "{case}");
    }
    for (case, request) in rehearsal::capacity() {
        let (one, other) = (component.capacity(request.clone()).await, native.capacity(request).await);
        assert_eq!((one.answer, one.receipt.output_hash), (other.answer, other.receipt.output_hash), "{case}");
    }
    for (case, request) in rehearsal::recover() {
        let (one, other) = (component.recover(request.clone()).await, native.recover(request).await);
        assert_eq!((one.answer, one.receipt.output_hash), (other.answer, other.receipt.output_hash), "{case}");
    }
    assert_eq!(counters.evaluations(Decision::Recover), 6);
    assert_eq!((counters.evaluations(Decision::Restart), counters.evaluations(Decision::Capacity)), (6, 6));
    assert_eq!(counters.fallbacks(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_survives_being_written_down() {
    let host = child::host(&Arc::new(Counters::default()));
    let [_, _, (_, request)] = rehearsal::scale_down();
    let receipt = host.generation().scale_down(request).await.receipt;
    assert_eq!(receipt.output_items, 8);
    assert!(receipt.policy.contains("@sha256:") && receipt.policy.len() < 64, "{}", receipt.policy);
    let text = serde_json::to_string(&receipt).unwrap();
    assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
}
