//! Bytes of users and of the processes that touch them: whatever they are, they are read or refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::DeserializeOwned;

use crate::call::Usage;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::load::Refusal;
use crate::protocol::{self, Blame, Locks, Preparation, Probed, Reply, Request};
use crate::{Bundle, Counters, Decision, Digest, PolicyHost, Record, tenancy};

mod settings;

/// Texts that are in order.
const SETS: [&str; 5] = [
    "scale-down: {module: a.wasm, settings: {spare: 2}, mode: enforce, limits: {deadlineMilliseconds: 20}}\n",
    "restart: builtin\ncapacity:\n  - module: builtin\n  - {module: b.js, mode: shadow}\n",
    "{}",
    "scale-down: &a {module: builtin}\nrestart: *a\n",
    "pullSecret: registry\nrestart: {module: 'oci://[::1]:5000/team/policy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}\n",
];

const RECEIPTS: [&str; 2] =
    [r#"{"version":1,"at":"2026-05-01T10:00:00Z","decision":"scale-down","request":{"candidates":[],"surplus":1}}"#, "{}"];

const TENANCIES: [&str; 2] = [
    "strict: true\nnamespaces:\n  - names: [a, b]\n    labels: {tenant: a}\n    scopes: [acme, acme/*, enterprise:corp]\n    quotas: {runners: 5}\n",
    "namespaces: []\n",
];

/// What a text is damaged with.
const PIECES: [&str; 24] = [
    "",
    " ",
    "\n",
    "\n  ",
    "\t",
    ":",
    ": ",
    "-",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "'",
    "\"",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "|\n",
    "\u{0}",
    "99999999999999999999",
    "é",
];

fn damaged(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let text = (select(texts), vec((any::<Index>(), 0_usize..6, select(&PIECES[..])), 0..5)).prop_map(|(text, damages)| {
        let mut text: Vec<char> = text.chars().collect();
        for (place, length, piece) in damages {
            let place = place.index(text.len() + 1);
            text.splice(place..(place + length).min(text.len()), piece.chars());
        }
        text.into_iter().collect()
    });
    prop_oneof![6 => text, 1 => any::<String>()]
}

fn requests() -> Vec<Request> {
    let (policy, settings, limits) = (Digest::of(b"policy"), "{}".to_owned(), Limits::default());
    vec![
        Request::Probe,
        Request::Prepare(Preparation::Module),
        Request::Load,
        Request::Adopt(policy),
        Request::Interpret { policy, interpreter: policy },
        Request::Validate { policy, settings: settings.clone(), limits },
        Request::Rehearse { policy, decision: Decision::Capacity, settings: settings.clone(), limits },
        Request::Ask { policy, decision: Decision::ScaleDown, settings, limits },
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Done,
        Reply::Probed(Probed { tried: vec!["open".to_owned()], possible: Vec::new(), engine: None }),
        Reply::Prepared,
        Reply::Answered(Some(Blame::from(&Fault::Deadline)), Usage::default()),
        Reply::Refused(Refusal::Invalid, "why".to_owned()),
        Reply::Misunderstood,
    ]
}

/// Messages as they are sent, and the first thing that a process says.
fn messages() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut send = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        all.push(bytes);
    };
    for request in requests() {
        send(&|bytes| protocol::write(bytes, &request, b"body").unwrap());
    }
    for reply in replies() {
        send(&|bytes| protocol::write(bytes, &reply, b"body").unwrap());
    }
    send(&|bytes| protocol::write(bytes, &Locks::default(), b"").unwrap());
    all
}

/// Reads messages until one is refused or there are no more; says how many bytes they had.
fn read_all<T: DeserializeOwned>(mut bytes: &[u8]) -> usize {
    let mut read = 0_usize;
    while let Ok(Some((_, body))) = protocol::read::<T>(&mut bytes, 1 << 16) {
        read += body.len();
    }
    read
}

proptest! {
    #[test]
    fn policy_set_is_read_or_refused_whatever_it_says(text in damaged(&SETS), module in vec(any::<u8>(), 0..64), script in any::<String>()) {
        let data = BTreeMap::from([("policies.yaml".to_owned(), text), ("b.js".to_owned(), script)]);
        let named = crate::bundle::remote(&data).references.into_iter().map(|reference| (reference.to_string(), module.clone()));
        let modules: BTreeMap<_, _> = named.chain([("a.wasm".to_owned(), module.clone())]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let host = PolicyHost::new(Arc::new(Counters::default()));
        if let Err(error) = runtime.block_on(Bundle::parse(&host, "default", &data, &modules)) {
            let message = error.to_string();
            prop_assert!(!message.contains('\n') && message.len() < 4 << 10, "{message:?}");
        }
    }

    #[test]
    fn receipt_is_read_or_refused_whatever_it_says(text in damaged(&RECEIPTS), packed: bool, torn in 0_usize..40) {
        let bytes = if packed { crate::bundle::pack(text.as_bytes()) } else { text.into_bytes() };
        let _read = Record::read(bytes.get(..bytes.len().saturating_sub(torn)).unwrap_or_default());
    }

    #[test]
    fn tenancy_is_read_or_refused_whatever_it_says(text in damaged(&TENANCIES)) {
        if let Err(error) = tenancy::read(&text, "own") {
            let message = error.to_string();
            prop_assert!(!message.contains('\n') && message.len() < 2 << 10, "{message:?}");
        }
    }

    #[test]
    fn neither_end_of_the_protocol_trusts_the_other(
        order in vec(any::<Index>(), 1..4),
        damages in vec((any::<Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let all = messages();
        let mut bytes: Vec<u8> = order.iter().flat_map(|index| all[index.index(all.len())].clone()).collect();
        for (place, byte) in damages {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        for read in [read_all::<Request>(&bytes), read_all::<Reply>(&bytes), read_all::<Locks>(&bytes)] {
            prop_assert!(read <= bytes.len());
        }
        // Bodies of decisions and of their answers.
        let _either = protocol::decode::<pacer_core::policy::ScaleDownRequest>(&bytes);
        let _either = protocol::decode::<pacer_core::policy::RestartRequest>(&bytes);
        let _either = protocol::decode::<pacer_core::policy::CapacityRequest>(&bytes);
        let _either = protocol::decode::<Vec<pacer_core::policy::Choice>>(&bytes);
    }
}
