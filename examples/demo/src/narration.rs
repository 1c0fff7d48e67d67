//! What goes on, as it goes on: the numbers of runners whenever they change, and the operator's Events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::events::v1::Event;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, ResourceExt};
use pacer_harness::github::SimGitHub;
use pacer_harness::nodes::{Stage, Tally};
use pacer_harness::world::World;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::terminal::{Style, Terminal};

/// Changes that follow each other more closely become one line.
const PACE: Duration = Duration::from_millis(400);

/// Most signs in a bar.
const BAR: usize = 48;

/// A task that narrates until it is told to stop.
#[derive(Debug)]
pub(crate) struct Narration {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Narration {
    /// Starts a task that prints to the terminal how runner pods and jobs change, and the Events of pacer.
    pub(crate) fn start(world: &World, tally: watch::Receiver<Tally>, terminal: &Arc<Terminal>) -> Self {
        let stop = CancellationToken::new();
        let narrator = Narrator {
            terminal: Arc::clone(terminal),
            github: world.github.clone(),
            events: Api::all(world.client.clone()),
            tally,
            told: BTreeSet::new(),
            last: String::new(),
        };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = narrator.run() => {}
            }
        });
        Self { stop, task }
    }

    /// Stops and waits for the end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // It ends by the token only; a panic in it has been printed already.
        let _ = self.task.await;
    }
}

struct Narrator {
    terminal: Arc<Terminal>,
    github: SimGitHub,
    events: Api<Event>,
    tally: watch::Receiver<Tally>,
    /// Events are updated when they recur.
    told: BTreeSet<(Option<String>, Option<i32>)>,
    last: String,
}

impl Narrator {
    async fn run(mut self) {
        let mut events = watcher(self.events.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
        let mut next_line: Option<Instant> = None;
        let mut earliest = Instant::now();
        loop {
            tokio::select! {
                changed = self.tally.changed(), if next_line.is_none() => {
                    if changed.is_err() {
                        return;
                    }
                    next_line = Some(earliest.max(Instant::now()));
                }
                () = sleep_until(next_line.unwrap_or(earliest)), if next_line.is_some() => {
                    next_line = None;
                    earliest = Instant::now() + PACE;
                    self.counts();
                }
                Some(event) = events.next() => {
                    // The watch goes on by itself after an error.
                    if let Ok(event) = event {
                        self.event(&event);
                    }
                }
            }
        }
    }

    fn counts(&mut self) {
        let counts = Counts::of(&self.tally.borrow_and_update());
        let jobs = self.github.jobs();
        let line = format!(
            "{}  jobs: {} queued {} running {} done  {}",
            counts.text(),
            jobs.queued,
            jobs.in_progress,
            jobs.completed,
            counts.bar()
        );
        if line != self.last {
            self.terminal.say(line.trim_end());
            self.last = line;
        }
    }

    fn event(&mut self, event: &Event) {
        let recurrence = event.series.as_ref().map(|series| series.count);
        if event.reporting_controller.as_deref() != Some("pacer") || !self.told.insert((event.uid(), recurrence)) {
            return;
        }
        let style = if event.type_.as_deref() == Some("Warning") { Style::Bad } else { Style::Dim };
        let object = event.regarding.as_ref();
        let kind = object.and_then(|object| object.kind.as_deref()).unwrap_or_default();
        let name = object.and_then(|object| object.name.as_deref()).unwrap_or_default();
        let (reason, note) = (event.reason.as_deref().unwrap_or_default(), event.note.as_deref().unwrap_or_default());
        // The note of an Event that recurs is that of its first time.
        let note = recurrence.map_or_else(|| note.to_owned(), |count| format!("again, {count} times by now"));
        self.terminal.say_in(style, &format!("Event {reason} {kind}/{name}: {note}"));
    }
}

/// Runner pods that exist, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Without a node.
    pending: usize,
    /// Containers start, or the agent registers.
    starting: usize,
    idle: usize,
    busy: usize,
    /// The runner has ended, the pod has not gone.
    ended: usize,
}

impl Counts {
    fn of(tally: &Tally) -> Self {
        Self {
            pending: tally.now(Stage::Pending),
            starting: tally.now(Stage::Starting) + tally.now(Stage::Running),
            idle: tally.now(Stage::Idle),
            busy: tally.now(Stage::Busy),
            ended: tally.now(Stage::Ended),
        }
    }

    fn text(self) -> String {
        let Self { pending, starting, idle, busy, ended } = self;
        format!("runners: {pending:>2} pending {starting:>2} starting {idle:>2} idle {busy:>2} busy {ended:>2} ended")
    }

    /// One sign per runner, or fewer when there are too many of them.
    fn bar(self) -> String {
        let parts = [('#', self.busy), ('o', self.idle), ('+', self.starting), ('.', self.pending), ('x', self.ended)];
        let total: usize = parts.iter().map(|(_, count)| count).sum();
        let scale = total.div_ceil(BAR).max(1);
        parts.into_iter().flat_map(|(sign, count)| std::iter::repeat_n(sign, count.div_ceil(scale))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_sign_for_everybody_and_stays_short() {
        let counts = Counts { pending: 1, starting: 2, idle: 3, busy: 4, ended: 0 };
        assert_eq!(counts.bar(), "####ooo++.");
        assert_eq!(Counts::default().bar(), "");
        let many = Counts { pending: 1, starting: 0, idle: 900, busy: 30, ended: 0 };
        let bar = many.bar();
        assert!(bar.len() <= BAR + 5 && bar.contains('.') && bar.contains('#'), "{bar}");
    }
}
