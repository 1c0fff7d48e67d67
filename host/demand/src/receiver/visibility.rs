//! Which runner groups a repository may use, as GitHub says, remembered for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use pacer_core::target::{Group, Level, Visibility};
use pacer_github::{GitHub, RunnerGroup};

/// How long an answer is used.
const AGE: Duration = Duration::from_secs(300);

/// How long a delivery waits for the answer. GitHub gives the delivery up after ten seconds, and the job is to be in its ledger by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long after a failure GitHub is asked again.
const RETRY: Duration = Duration::from_secs(30);

/// Repositories that are remembered.
const REPOSITORIES: usize = 10_000;

/// Source of which runner groups a repository may use.
pub trait RunnerGroups: Send + Sync {
    /// Groups of the organization, and those of its enterprise that it inherits, which the repository may use.
    ///
    /// The error is a sentence for the log.
    fn visible<'a>(&'a self, organization: &'a str, repository: &'a str) -> BoxFuture<'a, Result<Vec<Group>, String>>;
}

impl RunnerGroups for GitHub {
    fn visible<'a>(&'a self, organization: &'a str, repository: &'a str) -> BoxFuture<'a, Result<Vec<Group>, String>> {
        let groups = async move {
            let groups = self.runner_groups_visible_to(organization, repository).await.map_err(|error| error.to_string())?;
            Ok(groups.into_iter().map(group).collect())
        };
        groups.boxed()
    }
}

fn group(group: RunnerGroup) -> Group {
    Group {
        level: if group.inherited { Level::Enterprise } else { Level::Organization },
        name: (!group.default).then_some(group.name),
    }
}

/// Caches what its source says.
#[derive(Default)]
pub struct VisibleGroups {
    source: Option<Box<dyn RunnerGroups>>,
    /// One asks per repository, and the others wait for the answer.
    known: Mutex<HashMap<(String, String), Slot>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Known>>>;

struct Known {
    visibility: Arc<Visibility>,
    until: Instant,
}

impl VisibleGroups {
    /// Asks this source. Without one, every group is assumed to be open to all, as ARC does without credentials.
    #[must_use]
    pub fn new(source: Option<Box<dyn RunnerGroups>>) -> Self {
        Self { source, known: Mutex::default() }
    }

    /// Which groups a repository may use. When GitHub does not say, what it said before counts, or else everything is assumed to be open:
    /// a runner too many goes away by itself, a job that is not recorded waits for ever.
    pub(super) async fn to(&self, organization: &str, repository: &str) -> Arc<Visibility> {
        let Some(source) = &self.source else { return Arc::new(Visibility::Assumed) };
        let slot = self.slot((organization.to_ascii_lowercase(), repository.to_ascii_lowercase()));
        let mut known = slot.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.until > Instant::now()) {
            return known.visibility.clone();
        }
        let asked = tokio::time::timeout(PATIENCE, source.visible(organization, repository)).await;
        let silent = |_| Err(format!("no answer within {} s", PATIENCE.as_secs()));
        let (visibility, age) = match asked.unwrap_or_else(silent) {
            Ok(groups) => (Arc::new(Visibility::Groups(groups)), AGE),
            Err(error) => {
                let before = known.as_ref().map(|known| known.visibility.clone());
                let assumed = before.is_none();
                tracing::warn!(organization, repository, error, assumed, "runner groups not known");
                (before.unwrap_or_else(|| Arc::new(Visibility::Assumed)), RETRY)
            }
        };
        *known = Some(Known { visibility: visibility.clone(), until: Instant::now() + age });
        visibility
    }

    fn slot(&self, key: (String, String)) -> Slot {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REPOSITORIES && !known.contains_key(&key) {
            // Whoever holds a slot keeps it; the rest is asked for again.
            known.clear();
        }
        known.entry(key).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Answers = (VecDeque<Result<Vec<Group>, String>>, usize);

    /// Gives these answers one after the other, and counts.
    struct Script(Arc<Mutex<Answers>>);

    impl RunnerGroups for Script {
        fn visible<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Vec<Group>, String>> {
            let mut script = self.0.lock().unwrap();
            script.1 += 1;
            let answer = script.0.pop_front().unwrap();
            async move {
                tokio::task::yield_now().await;
                answer
            }
            .boxed()
        }
    }

    #[test]
    fn group_level_and_name_follow_from_what_github_lists() {
        for (default, inherited, expected) in [
            (true, false, Group { level: Level::Organization, name: None }),
            (false, false, Group { level: Level::Organization, name: Some("gpu".to_owned()) }),
            (true, true, Group { level: Level::Enterprise, name: None }),
            (false, true, Group { level: Level::Enterprise, name: Some("gpu".to_owned()) }),
        ] {
            assert_eq!(super::group(RunnerGroup { id: 1, name: "gpu".to_owned(), default, inherited }), expected);
        }
    }

    fn group() -> Vec<Group> {
        vec![Group { level: Level::Organization, name: None }]
    }

    #[tokio::test]
    async fn github_is_asked_once_when_many_events_arrive() {
        let script = Arc::new(Mutex::new((VecDeque::from([Ok(group()), Ok(vec![])]), 0)));
        let visible = VisibleGroups::new(Some(Box::new(Script(script.clone()))));
        let answers = futures::future::join_all((0..5).map(|_| visible.to("Acme", "app"))).await;
        assert!(answers.iter().all(|answer| **answer == Visibility::Groups(group())));
        assert_eq!(*visible.to("acme", "APP").await, Visibility::Groups(group()));
        assert_eq!(script.lock().unwrap().1, 1);
        assert_eq!(*visible.to("acme", "other").await, Visibility::Groups(vec![]));
        assert_eq!(script.lock().unwrap().1, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn event_is_not_kept_by_a_github_that_does_not_answer() {
        /// Takes the question and says nothing.
        struct Silent(AtomicUsize);

        impl RunnerGroups for Arc<Silent> {
            fn visible<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Vec<Group>, String>> {
                self.0.fetch_add(1, Ordering::Relaxed);
                std::future::pending().boxed()
            }
        }

        let silent = Arc::new(Silent(AtomicUsize::new(0)));
        let visible = VisibleGroups::new(Some(Box::new(silent.clone())));
        let answers = futures::future::join_all((0..5).map(|_| visible.to("acme", "app")));
        let answers = tokio::time::timeout(PATIENCE + Duration::from_millis(1), answers).await.unwrap();
        assert!(answers.iter().all(|answer| **answer == Visibility::Assumed));
        assert_eq!(silent.0.load(Ordering::Relaxed), 1, "the others waited for the same answer");
    }

    #[tokio::test]
    async fn every_group_is_open_when_github_does_not_answer() {
        let script = Arc::new(Mutex::new((VecDeque::from([Err("403".to_owned())]), 0)));
        let visible = VisibleGroups::new(Some(Box::new(Script(script.clone()))));
        for _ in 0..3 {
            assert_eq!(*visible.to("acme", "app").await, Visibility::Assumed);
        }
        assert_eq!(script.lock().unwrap().1, 1, "and GitHub is left alone for a while");
        assert_eq!(*VisibleGroups::default().to("acme", "app").await, Visibility::Assumed);
    }
}
