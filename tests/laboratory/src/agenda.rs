//! What is to happen, in the order of its times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::At;
use crate::object::RunnerId;
use crate::script::Kind;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A step of the script.
    Step(usize),
    /// A watch shows what is due.
    Shown(Kind),
    /// An object is reconciled.
    Reconcile(Key),
    /// The runners of the scope are listed.
    List,
    /// The answer to that is here.
    Listed,
    /// GitHub's queue is listed.
    ListJobs,
    /// The operator's process starts.
    Boot,
    /// The garbage collector looks.
    Collect,
    /// GitHub hands jobs to runners.
    Assign,
    /// Something of a pod, by its UID.
    Life(u32, Stage),
    /// A job ends of which the pod with this UID has the agent.
    JobEnd(u32, u32),
    /// An event of a job reaches the receiver: state, and whether it is a repetition.
    Webhook(u32, u8),
    /// A node does not report.
    NodeUnknown(u32),
    /// A lost node's object is deleted.
    NodeGone(u32),
    /// A silent node is back.
    NodeBack(u32),
    /// The autoscaler's spec makes sense again.
    Valid,
    /// Another fleet of the same credentials removes a runner.
    OtherRemoval(u32),
}

/// What the operator looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The HorizontalRunnerAutoscaler.
    Scaler,
    /// The RunnerDeployment.
    Target,
    /// A RunnerReplicaSet, by its number.
    Set(u32),
    /// A Runner, by its number.
    Runner(RunnerId),
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A node takes it.
    Scheduled,
    /// Its container starts.
    Started,
    /// Its agent registers.
    Registered,
    /// Its agent has a session.
    Online,
    /// The kubelet looks for a worker process.
    Probe,
    /// What it found shows.
    Report,
    /// Its agent asks GitHub for messages, and learns that it is not registered any more.
    Polled,
    /// Its container ends by itself.
    Ended,
    /// Its grace period is over.
    GraceOver,
    /// The kubelet has cleaned it up.
    Gone,
}

/// Events that are planned, in the order of their times.
#[derive(Debug, Default)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<(At, u64, Event)>>,
    count: u64,
}

impl Agenda {
    /// Plans something. What is planned first for the same moment happens first.
    pub fn plan(&mut self, at: At, event: Event) {
        self.count = self.count.wrapping_add(1);
        self.heap.push(Reverse((at, self.count, event)));
    }

    /// Takes what happens next.
    pub fn take(&mut self) -> Option<(At, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
