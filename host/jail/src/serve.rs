//! The conversation with the operator: one request, one reply, until it closes the socket.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pacer_core::policy::{CapacityRequest, RecoverRequest, RestartRequest, ScaleDownRequest};
use pacer_policy::protocol::{self, CODE_BYTES, Locks, Preparation, Reply, Request};
use pacer_policy::{Decision, Digest, LoadError, Refusal};

use crate::ask::{self, Question};
use crate::component::inspect;
use crate::encode::{component_of, componentize};
use crate::engine::Engine;
use crate::linked::Linked;
use crate::load;
use crate::packing::unpack;
use crate::precompiled;
use crate::probe::{Surroundings, probe};

/// Answers until the operator closes the socket, or has not asked for longer than the socket waits.
pub(crate) fn serve(engine: &Engine, mut socket: &File, locks: Locks, surroundings: &Surroundings) -> io::Result<()> {
    protocol::write(&mut socket, &locks, &[])?;
    let mut loaded = HashMap::new();
    while let Some((request, body)) = protocol::read(&mut socket, CODE_BYTES)? {
        let served = catch_unwind(AssertUnwindSafe(|| reply(engine, &mut loaded, surroundings, request, body)));
        let refused = || LoadError::new(Refusal::Compile, "the compiler failed, which is a bug of it");
        let (reply, body) = match served {
            Ok(Ok(replied)) => replied,
            Ok(Err(error)) => (error.into(), Vec::new()),
            Err(_) => (refused().into(), Vec::new()),
        };
        protocol::write(&mut socket, &reply, &body)?;
    }
    Ok(())
}

fn reply(
    engine: &Engine,
    loaded: &mut HashMap<Digest, Linked>,
    surroundings: &Surroundings,
    request: Request,
    body: Vec<u8>,
) -> Result<(Reply, Vec<u8>), LoadError> {
    let done = || (Reply::Done, Vec::new());
    let misunderstood = || Ok((Reply::Misunderstood, Vec::new()));
    match request {
        Request::Probe => Ok((Reply::Probed(probe(engine, surroundings)), Vec::new())),
        Request::Prepare(how) => Ok((Reply::Prepared, prepare(how, &body)?)),
        Request::Load => {
            let (policy, compiled) = load::load(engine, &body)?;
            let reply =
                Reply::Loaded { description: policy.description, takes: policy.linked.takes(), compiled_in: compiled.duration };
            loaded.insert(Digest::of(&body), policy.linked);
            Ok((reply, compiled.code))
        }
        Request::Adopt(digest) => {
            let component = precompiled::load(engine, &body);
            drop(body);
            let linked = component.and_then(|component| Linked::adopt(engine, &component));
            let linked = linked.map_err(|error| LoadError::new(Refusal::Compile, format!("its code does not fit: {error:#}")))?;
            loaded.insert(digest, linked);
            Ok(done())
        }
        Request::Interpreter => {
            let (linked, code) = load::interpreter(engine, &body)?;
            loaded.insert(Digest::of(&body), linked);
            Ok((Reply::Prepared, code))
        }
        Request::Interpret { policy, interpreter } => {
            let Some(interpreter) = loaded.get(&interpreter) else { return misunderstood() };
            let interpreted = load::interpret(engine, interpreter, &text(&body)?)?;
            let takes = interpreted.linked.takes();
            let reply = Reply::Loaded { description: interpreted.description, takes, compiled_in: Duration::ZERO };
            loaded.insert(policy, interpreted.linked);
            Ok((reply, Vec::new()))
        }
        Request::Recite { policy, interpreter } => {
            let Some(interpreter) = loaded.get(&interpreter) else { return misunderstood() };
            let linked = interpreter.with_text(&text(&body)?);
            loaded.insert(policy, linked);
            Ok(done())
        }
        Request::Validate { policy, settings, limits } => {
            let Some(linked) = loaded.get(&policy) else { return misunderstood() };
            linked.validate_settings(engine, &settings, &limits).map(|()| done())
        }
        Request::Rehearse { policy, decision, settings, limits } => {
            let Some(linked) = loaded.get(&policy) else { return misunderstood() };
            linked.rehearse(engine, decision, &settings, &limits).map(|()| done())
        }
        Request::Ask { policy, decision, settings, limits } => {
            let Some(linked) = loaded.get(&policy) else { return misunderstood() };
            let asked = match decision {
                Decision::ScaleDown => answer::<ScaleDownRequest>(engine, linked, &body, &settings, &limits),
                Decision::Restart => answer::<RestartRequest>(engine, linked, &body, &settings, &limits),
                Decision::Capacity => answer::<CapacityRequest>(engine, linked, &body, &settings, &limits),
                Decision::Recover => answer::<RecoverRequest>(engine, linked, &body, &settings, &limits),
            };
            asked.or_else(|_| misunderstood())
        }
    }
}

fn text(body: &[u8]) -> Result<String, LoadError> {
    let text = String::from_utf8(body.to_vec());
    text.map_err(|error| LoadError::new(Refusal::Syntax, format!("the text is not UTF-8: {error}")))
}

fn prepare(how: Preparation, body: &[u8]) -> Result<Vec<u8>, LoadError> {
    match how {
        Preparation::Unpack => unpack(body).map(|raw| raw.into_owned()),
        Preparation::Source => componentize(body),
        Preparation::Module => {
            let component = component_of(unpack(body)?)?;
            inspect(&component)?;
            Ok(component)
        }
    }
}

fn answer<Q: Question>(
    engine: &Engine,
    linked: &Linked,
    body: &[u8],
    settings: &str,
    limits: &pacer_policy::Limits,
) -> io::Result<(Reply, Vec<u8>)> {
    let request: Q = protocol::decode(body)?;
    let (answer, usage) = ask::ask(engine, linked, &request, settings, limits);
    Ok(match answer {
        Ok(answer) => (Reply::Answered(None, usage), protocol::encode(&answer)?),
        Err(fault) => (Reply::Answered(Some((&fault).into()), usage), Vec::new()),
    })
}
