//! How long jobs run, from what is known of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use crate::demand::{Demand, Fleet, Listing};
use crate::ledger::{Ledger, State};
use crate::scale_down::since;

/// Jobs of one autoscaler that run, followed until their end is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    jobs: BTreeMap<u64, Job>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    started: Timestamp,
    runner: Option<Arc<str>>,
}

impl Running {
    /// Takes note of who runs now. Returns how many seconds each job took that is over since the last time.
    ///
    /// A job of which nobody tells the end, because a listing failed for instance, is not counted: a wrong duration is worse than none.
    pub fn follow(&mut self, demand: &Demand, ledger: &Ledger, listings: &[Listing], fleet: &Fleet) -> Vec<u32> {
        let listed: HashMap<u64, Timestamp> = listings
            .iter()
            .flat_map(|listing| &listing.jobs)
            .filter(|job| job.state == State::Completed)
            .map(|job| (job.id, job.at))
            .collect();
        let over = self.jobs.iter().filter(|(id, _)| !demand.jobs.contains_key(id));
        let took = over.filter_map(|(id, job)| {
            let told = ledger.get(*id).filter(|job| job.state == State::Completed).map(|job| job.since);
            let of_runner = job.runner.as_ref().and_then(|runner| fleet.ended.get(runner)).copied();
            // Whoever infers the end is later than it was.
            let end = [told, listed.get(id).copied(), of_runner].into_iter().flatten().min()?;
            Some(since(job.started, end))
        });
        let took = took.collect();
        let runs = demand.jobs.iter().filter(|(_, job)| job.state == State::InProgress);
        self.jobs = runs.map(|(id, job)| (*id, Job { started: job.since, runner: job.runner.clone() })).collect();
        took
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::demand::assess;
    use crate::demand::tests::{at, event};
    use crate::ledger::{JobEvent, LIMIT, Terms};

    const LIFE: SignedDuration = SignedDuration::from_mins(30);
    const TERMS: Terms = Terms { queued: std::time::Duration::from_mins(30), limit: LIMIT };

    fn listing(complete: bool, jobs: Vec<JobEvent>) -> Listing {
        Listing { repository: "acme/app".into(), started: at(1_000), covers: complete.then_some(at(1_000)), jobs }
    }

    struct Scene {
        ledger: Ledger,
        fleet: Fleet,
        running: Running,
    }

    impl Scene {
        fn with(runners: &[&str]) -> Self {
            let fleet = Fleet { present: runners.iter().map(|name| Arc::from(*name)).collect(), ..Fleet::default() };
            Self { ledger: Ledger::default(), fleet, running: Running::default() }
        }

        fn pass(&mut self, listings: &[Listing]) -> Vec<u32> {
            let demand = assess(&self.ledger, listings, &self.fleet, |_| None, LIFE, at(1_000));
            self.running.follow(&demand, &self.ledger, listings, &self.fleet)
        }
    }

    #[test]
    fn a_job_takes_from_its_start_to_its_end_as_events_tell() {
        let mut scene = Scene::with(&["a", "b"]);
        scene.ledger.apply(&event(1, State::Queued, 0, None), &TERMS, at(0));
        assert_eq!(scene.pass(&[]), []);
        scene.ledger.apply(&event(1, State::InProgress, 10, Some("a")), &TERMS, at(11));
        assert_eq!(scene.pass(&[]), []);
        scene.ledger.apply(&event(1, State::Completed, 310, Some("a")), &TERMS, at(312));
        assert_eq!(scene.pass(&[]), [300]);
        assert_eq!(scene.pass(&[]), [], "counted once");
    }

    #[test]
    fn the_end_of_its_runner_is_the_end_of_a_job() {
        let mut scene = Scene::with(&["a"]);
        scene.ledger.apply(&event(1, State::InProgress, 10, Some("a")), &TERMS, at(11));
        assert_eq!(scene.pass(&[]), []);
        scene.fleet.present.clear();
        scene.fleet.ended.insert("a".into(), at(70));
        assert_eq!(scene.pass(&[]), [60]);
    }

    #[test]
    fn listings_tell_where_no_webhooks_are() {
        let mut scene = Scene::with(&["a", "b"]);
        let running = [event(1, State::InProgress, 10, Some("a")), event(2, State::InProgress, 10, Some("b"))];
        assert_eq!(scene.pass(&[listing(true, running.to_vec())]), []);
        let one_over = [event(1, State::Completed, 40, Some("a")), event(2, State::InProgress, 10, Some("b"))];
        assert_eq!(scene.pass(&[listing(true, one_over.to_vec())]), [30]);
        // A listing that lacks a job says nothing about when it ended.
        assert_eq!(scene.pass(&[listing(false, vec![])]), []);
        assert_eq!(scene.pass(&[listing(true, one_over.to_vec())]), []);
        assert_eq!(scene.pass(&[listing(true, vec![event(2, State::Completed, 99, Some("b"))])]), [89]);
    }

    #[test]
    fn a_job_of_another_fleets_runner_is_not_ours() {
        let mut scene = Scene::with(&[]);
        scene.ledger.apply(&event(1, State::InProgress, 10, Some("elsewhere")), &TERMS, at(11));
        assert_eq!(scene.pass(&[]), []);
        scene.ledger.apply(&event(1, State::Completed, 310, Some("elsewhere")), &TERMS, at(312));
        assert_eq!(scene.pass(&[]), []);
    }
}
