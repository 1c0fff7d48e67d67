//! Bytes of users and of the processes that touch them: whatever they are, they are read or refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::call::Usage;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::load::Refusal;
use crate::protocol::{self, Blame, Locks, Preparation, Probed, Reply, Request};
use crate::record::FailedRunners;
use crate::record::tests::scale_down;
use crate::{Bundle, BundleError, Counters, Decision, Digest, PolicyHost, Record, tenancy};

mod settings;

/// Texts that are in order.
const SETS: [&str; 5] = [
    "scale-down: {module: a.wasm, settings: {spare: 2}, mode: enforce, limits: {deadlineMilliseconds: 20}}\n",
    "restart: builtin\ncapacity:\n  - module: builtin\n  - {module: b.js, mode: shadow}\n",
    "{}",
    "scale-down: &a {module: builtin}\nrestart: *a\n",
    "pullSecret: registry\nrestart: {module: 'oci://[::1]:5000/team/policy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}\n",
];

const TENANCIES: [&str; 2] = [
    "strict: true\nnamespaces:\n  - names: [a, b]\n    labels: {tenant: a}\n    scopes: [acme, acme/*, enterprise:corp]\n    quotas: {runners: 5}\n",
    "namespaces: []\n",
];

/// Ends a part of an input that consists of several.
const END: u8 = 0x1e;

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

/// Reads messages until one is refused or there are no more; says how many there were.
fn read_all<T: DeserializeOwned>(mut bytes: &[u8]) -> usize {
    let (all, mut read) = (bytes.len(), 0_usize);
    while let Ok(Some((_, body))) = protocol::read::<T>(&mut bytes, 1 << 16) {
        assert!(body.len() <= all);
        read += 1;
    }
    read
}

/// Sets with the module and the text beside them.
fn sets() -> Vec<Vec<u8>> {
    SETS.into_iter().map(|set| [set.as_bytes(), &[END], b"\0asm\x0d\0\x01\0", &[END], b"export default {}"].concat()).collect()
}

#[test]
fn policy_set_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::bytes!(sets(), |bytes| {
        let mut parts = bytes.split(|&byte| byte == END).map(<[u8]>::to_vec);
        let (text, module, script) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (Ok(text), Ok(script)) = (String::from_utf8(text.unwrap_or_default()), String::from_utf8(script)) else {
            return false;
        };
        let data = BTreeMap::from([("policies.yaml".to_owned(), text), ("b.js".to_owned(), script)]);
        let named = crate::bundle::remote(&data).references.into_iter().map(|reference| (reference.to_string(), module.clone()));
        let modules: BTreeMap<_, _> = named.chain([("a.wasm".to_owned(), module.clone())]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let host = PolicyHost::new(Arc::new(Counters::default()));
        let read = runtime.block_on(Bundle::parse(&host, "default", &data, &modules));
        if let Err(error) = &read {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 4 << 10, "{message:?}");
        }
        // Whether a module is one is for the processes that look into it.
        matches!(read, Ok(_) | Err(BundleError::Refused { .. }))
    });
}

#[test]
fn receipt_is_read_or_refused_whatever_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let json = serde_json::to_vec(&runtime.block_on(scale_down(2, 1))).unwrap();
    let packed = crate::bundle::pack(&json);
    pacer_fuzz::bytes!([json, packed], |bytes| Record::read(bytes).is_ok() & FailedRunners::read(bytes).is_ok());
}

#[test]
fn tenancy_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(TENANCIES, |text| {
        let read = tenancy::read(text, "own");
        if let Err(error) = &read {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 2 << 10, "{message:?}");
        }
        read.is_ok()
    });
}

#[test]
fn neither_end_of_the_protocol_trusts_the_other() {
    pacer_fuzz::bytes!(messages(), |bytes| {
        [read_all::<Request>(bytes), read_all::<Reply>(bytes), read_all::<Locks>(bytes)] != [0; 3]
    });
}

/// What decisions are asked with, and what is answered.
fn bodies() -> Vec<Vec<u8>> {
    let mut all = vec![
        protocol::encode(&pacer_core::policy::ScaleDownRequest::default()),
        protocol::encode(&pacer_core::policy::RestartRequest::default()),
        protocol::encode(&pacer_core::policy::CapacityRequest::default()),
    ];
    all.push(protocol::encode(&vec![pacer_core::policy::Choice::default(); 3]));
    all.into_iter().map(Result::unwrap).collect()
}

#[test]
fn body_of_a_decision_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::bytes!(bodies(), |bytes| {
        protocol::decode::<pacer_core::policy::ScaleDownRequest>(bytes).is_ok()
            | protocol::decode::<pacer_core::policy::RestartRequest>(bytes).is_ok()
            | protocol::decode::<pacer_core::policy::CapacityRequest>(bytes).is_ok()
            | protocol::decode::<Vec<pacer_core::policy::Choice>>(bytes).is_ok()
    });
}
