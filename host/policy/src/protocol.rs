//! What the operator and the processes that touch users' bytes say to each other: one request, one reply, over a socket pair.
//!
//! A message is two lengths (`u32`, little endian), a head (postcard) and a body (bytes). Whoever reads says how long both may be, and a
//! length above that ends the conversation before anything is allocated. The other end of [`crate::Jail`] is the crate `pacer-jail`.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::Usage;
use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::fault::Fault;
use crate::limits::{Limits, RAW_BYTES};
use crate::load::{LoadError, Refusal};
use crate::policy::Description;

/// Longest head in bytes: settings and their texts are the largest thing in one.
pub const HEAD_BYTES: usize = 256 << 10;

/// Most native code that is taken of a component, in bytes: several times what the largest component that is accepted becomes.
pub const CODE_BYTES: usize = 64 << 20;

/// Longest answer of a decision, in bytes: what a call may copy out of the guest, and its encoding.
pub const ANSWER_BYTES: usize = 2 << 20;

/// Longest component, in bytes: a core module grows when it becomes one.
pub const COMPONENT_BYTES: usize = RAW_BYTES + (1 << 20);

/// How much of a message is read at once, so that memory grows with what was sent and not with what was announced.
const CHUNK: usize = 1 << 20;

/// What a child process is for; the first argument after the one that makes it a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers decisions until the operator closes the socket.
    Runner,
    /// The same, until nobody has asked it for [`LINGER`].
    SurplusRunner,
    /// Reads, compiles and tries the modules of one policy set.
    Stager,
    /// Compiles the component that runs texts.
    Interpreter,
    /// Tries what must be impossible, reports, and ends.
    Probe,
}

/// A surplus runner that nobody has asked for so long ends.
pub const LINGER: Duration = Duration::from_secs(30);

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Runner, Self::SurplusRunner, Self::Stager, Self::Interpreter, Self::Probe];

    /// The word on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::SurplusRunner => "surplus-runner",
            Self::Stager => "stager",
            Self::Interpreter => "interpreter",
            Self::Probe => "probe",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The first thing a child says: which locks hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// Landlock denies every file, TCP port and signal that it knows of.
    pub landlock: bool,
    /// seccomp denies every system call but those of a computation.
    pub seccomp: bool,
    /// Memory and descriptors are limited, the environment is empty, nothing is inherited.
    pub limits: bool,
}

impl Locks {
    /// Whether each of the locks of `other` holds here as well.
    #[must_use]
    pub fn cover(self, other: Self) -> bool {
        (self.landlock || !other.landlock) && (self.seccomp || !other.seccomp) && (self.limits || !other.limits)
    }
}

/// What a probe could do although it must not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Each action that was tried, in a few words.
    pub tried: Vec<String>,
    /// Those of them that worked.
    pub possible: Vec<String>,
    /// Why policies can't be run or can't be stopped; none when they can.
    pub engine: Option<String>,
}

/// What is asked of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Tries what must be impossible. Answered by [`Reply::Probed`].
    Probe,
    /// The body is a module as it lies in a ConfigMap. Answered by [`Reply::Prepared`] and the component.
    Prepare(Preparation),
    /// The body is a component. Answered by [`Reply::Loaded`] and its native code.
    Load,
    /// The body is native code from [`Request::Load`]; later requests name it by this digest. Answered by [`Reply::Done`].
    Adopt(Digest),
    /// The body is the component that runs texts, which is trusted as the operator is. Answered by [`Reply::Prepared`] and its native code.
    Interpreter,
    /// The body is a text that an interpreter from [`Request::Interpreter`] or [`Request::Adopt`] runs. Answered by [`Reply::Loaded`].
    Interpret {
        /// What later requests call the policy.
        policy: Digest,
        /// Digest of the interpreter that runs the text.
        interpreter: Digest,
    },
    /// The same of a text that was tried in another process. Answered by [`Reply::Done`].
    Recite {
        /// What later requests call the policy.
        policy: Digest,
        /// Digest of the interpreter that runs the text.
        interpreter: Digest,
    },
    /// Has a loaded policy check settings. Answered by [`Reply::Done`].
    Validate {
        /// Digest that names the loaded policy.
        policy: Digest,
        /// JSON.
        settings: String,
        /// What a call may use.
        limits: Limits,
    },
    /// Puts ordinary requests of one decision to a loaded policy. Answered by [`Reply::Done`].
    Rehearse {
        /// Digest that names the loaded policy.
        policy: Digest,
        /// Decision whose requests are put to it.
        decision: Decision,
        /// JSON.
        settings: String,
        /// What a call may use.
        limits: Limits,
    },
    /// The body is the request of a decision (postcard). Answered by [`Reply::Answered`] and the answer (postcard).
    Ask {
        /// Digest that names the loaded policy.
        policy: Digest,
        /// Decision whose request the body is.
        decision: Decision,
        /// JSON.
        settings: String,
        /// What a call may use.
        limits: Limits,
    },
}

/// How a module becomes a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preparation {
    /// Decompressed; nothing else is looked at.
    Unpack,
    /// Decompressed, made a component where it is a core module, and inspected: what a policy set does.
    Module,
    /// The same from WebAssembly text as well, and not decompressed: `pacer policy componentize`.
    Source,
}

/// What a child answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Of [`Request::Adopt`], [`Request::Recite`], [`Request::Validate`] and [`Request::Rehearse`].
    Done,
    /// Of [`Request::Probe`].
    Probed(Probed),
    /// Of [`Request::Prepare`] and [`Request::Interpreter`].
    Prepared,
    /// Of [`Request::Load`] and [`Request::Interpret`].
    Loaded {
        /// What the policy says about itself.
        description: Description,
        /// The decisions it takes.
        takes: PerDecision<bool>,
        /// Time taken by compilation alone.
        compiled_in: Duration,
    },
    /// Of [`Request::Ask`]: why there is no answer, and what it took.
    Answered(Option<Blame>, Usage),
    /// The module is refused.
    Refused(Refusal, String),
    /// The request makes no sense to this child.
    Misunderstood,
}

impl From<LoadError> for Reply {
    fn from(error: LoadError) -> Self {
        Self::Refused(error.code, error.message)
    }
}

/// A [`Fault`] on its way: its place in [`Fault::KINDS`] and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    kind: u8,
    text: String,
}

impl From<&Fault> for Blame {
    fn from(fault: &Fault) -> Self {
        let kind = Fault::KINDS.iter().position(|kind| *kind == fault.kind()).and_then(|at| u8::try_from(at).ok());
        Self { kind: kind.unwrap_or(u8::MAX), text: fault.detail().unwrap_or_default().to_owned() }
    }
}

impl From<Blame> for Fault {
    fn from(blame: Blame) -> Self {
        let Blame { kind, text } = blame;
        Fault::of_kind(Fault::KINDS.get(usize::from(kind)).copied().unwrap_or_default(), &text)
    }
}

/// Writes a message.
///
/// # Errors
///
/// When the socket breaks, or the message is longer than lengths can say.
pub fn write(stream: &mut impl Write, head: &impl Serialize, body: &[u8]) -> io::Result<()> {
    let mut start = vec![0; 8];
    start = postcard::to_extend(head, start).map_err(invalid)?;
    let long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let head_bytes = u32::try_from(start.len().saturating_sub(8)).map_err(long)?;
    let body_bytes = u32::try_from(body.len()).map_err(long)?;
    for (place, byte) in start.iter_mut().zip(head_bytes.to_le_bytes().into_iter().chain(body_bytes.to_le_bytes())) {
        *place = byte;
    }
    if body.len() <= CHUNK {
        // One write, so that the other end wakes once.
        start.extend_from_slice(body);
        return stream.write_all(&start);
    }
    stream.write_all(&start)?;
    stream.write_all(body)
}

/// Reads a message whose body has at most `most` bytes. None when the other end closed the socket before it began one.
///
/// # Errors
///
/// When the socket breaks, or the message is too long or no such message.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read, most: usize) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut lengths = [[0; 4]; 2];
    // `read_exact` does the same for the rest; any child that ends interrupts a read that has a timeout.
    let first = loop {
        match stream.read(lengths.as_flattened_mut()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            counted => break counted?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(lengths.as_flattened_mut().get_mut(first..).unwrap_or_default())?;
    let [head, body] = lengths.map(|length| usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX));
    if head > HEAD_BYTES || body > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {head} and {body} bytes")));
    }
    let head = postcard::from_bytes(&exactly(stream, head)?).map_err(invalid)?;
    Ok(Some((head, exactly(stream, body)?)))
}

fn exactly(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let begin = bytes.len();
        let next = length.min(begin.saturating_add(CHUNK));
        bytes.try_reserve_exact(next - begin).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        bytes.resize(next, 0);
        stream.read_exact(bytes.get_mut(begin..).unwrap_or_default())?;
    }
    Ok(bytes)
}

fn invalid(error: postcard::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A value as the body of a message.
///
/// # Errors
///
/// When it can't be encoded.
pub fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_extend(value, Vec::new()).map_err(invalid)
}

/// The value of a body.
///
/// # Errors
///
/// When the bytes are no such value.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(invalid)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let mut sent = Vec::new();
        let long = vec![7; CHUNK + 5];
        for body in [b"".as_slice(), b"code", &long] {
            write(&mut sent, &Request::Adopt(Digest::of(b"policy")), body).unwrap();
        }
        let mut stream = sent.as_slice();
        for body in [b"".as_slice(), b"code", &long] {
            let (head, arrived): (Request, _) = read(&mut stream, CHUNK + 5).unwrap().unwrap();
            assert!(matches!(head, Request::Adopt(digest) if digest == Digest::of(b"policy")));
            assert_eq!(arrived, body);
        }
        assert!(read::<Request>(&mut stream, 0).unwrap().is_none());
    }

    #[test]
    fn faults_arrive_as_they_were_sent() {
        for kind in Fault::KINDS {
            let fault = Fault::of_kind(kind, "why");
            assert_eq!((Fault::from(Blame::from(&fault)), fault.kind()), (fault.clone(), kind));
        }
        assert_eq!(Fault::from(Blame { kind: 200, text: String::new() }).kind(), "host-panic");
    }

    /// A stream whose every second read is interrupted by a signal, and whose others give one byte.
    struct Interrupted<'a> {
        rest: &'a [u8],
        now: bool,
    }

    impl Read for Interrupted<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.now = !self.now;
            if self.now {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let one = bytes.len().min(1);
            self.rest.read(&mut bytes[..one])
        }
    }

    #[test]
    fn message_is_read_when_signals_interrupt() {
        let mut sent = Vec::new();
        write(&mut sent, &Reply::Done, b"code").unwrap();
        let mut stream = Interrupted { rest: &sent, now: false };
        let (reply, body): (Reply, _) = read(&mut stream, 10).unwrap().unwrap();
        assert_eq!((matches!(reply, Reply::Done), body.as_slice()), (true, b"code".as_slice()));
        assert!(read::<Reply>(&mut stream, 10).unwrap().is_none());
    }

    #[test]
    fn messages_longer_than_allowed_are_not_read() {
        let mut sent = Vec::new();
        write(&mut sent, &Reply::Done, &[0; 100]).unwrap();
        assert!(read::<Reply>(&mut sent.as_slice(), 99).is_err());
        let endless = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert!(read::<Reply>(&mut endless.as_slice(), usize::MAX).is_err());
        // An announcement of 60 MiB that is followed by nothing takes no such memory.
        let announced = [1_u32.to_le_bytes(), (60_u32 << 20).to_le_bytes()].concat();
        assert!(read::<Reply>(&mut [&announced, &[0_u8][..]].concat().as_slice(), CODE_BYTES).is_err());
    }
}
