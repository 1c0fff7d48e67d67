//! What the objects of one autoscaler say together, kept up with them: with twenty thousand jobs open, reading all of them anew for each event
//! would cost far more than the event.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use pacer_api::JobLedger;
use pacer_core::ledger::{Job, Ledger};

/// The jobs in some objects.
#[derive(Default)]
pub(super) struct View {
    /// By shard.
    objects: BTreeMap<u16, Arc<JobLedger>>,
    /// Which of them have a job: two of them where two writers put it into different ones.
    holders: HashMap<u64, Vec<u16>>,
    jobs: Arc<Ledger>,
}

impl View {
    /// The jobs in all of the objects.
    pub(super) fn jobs(&self) -> &Arc<Ledger> {
        &self.jobs
    }

    /// The objects, by shard.
    pub(super) fn objects(&self) -> &BTreeMap<u16, Arc<JobLedger>> {
        &self.objects
    }

    /// Whether one of the objects has this job.
    pub(super) fn has(&self, job: u64) -> bool {
        self.holders.contains_key(&job)
    }

    /// What each object that has a job says about it, by shard.
    pub(super) fn said(&self, job: u64) -> Vec<(u16, Job)> {
        let mut said: Vec<_> = self.holders.get(&job).into_iter().flatten().copied().collect();
        said.sort_unstable();
        said.into_iter().filter_map(|shard| Some((shard, self.objects.get(&shard)?.spec.job(job)?))).collect()
    }

    /// From now on this is the object of a shard.
    pub(super) fn set(&mut self, shard: u16, latest: Option<Arc<JobLedger>>) {
        match latest {
            Some(object) if self.objects.get(&shard).is_some_and(|known| is_same(known, &object)) => {}
            Some(object) => {
                let held = self.objects.insert(shard, object.clone());
                self.take(shard, held.as_deref(), object.spec.all().collect());
            }
            None => {
                let held = self.objects.remove(&shard);
                self.take(shard, held.as_deref(), HashMap::new());
            }
        }
    }

    /// An object that held something else before has these jobs now.
    fn take(&mut self, shard: u16, before: Option<&JobLedger>, now: HashMap<u64, Job>) {
        let jobs = Arc::make_mut(&mut self.jobs);
        let gone = before.into_iter().flat_map(|object| object.spec.ids()).filter(|id| !now.contains_key(id));
        let changes = gone.map(|id| (id, None)).collect::<Vec<_>>();
        for (id, job) in changes.into_iter().chain(now.into_iter().map(|(id, job)| (id, Some(job)))) {
            let holders = self.holders.entry(id).or_default();
            match job {
                Some(_) if !holders.contains(&shard) => holders.push(shard),
                Some(_) => {}
                None => holders.retain(|holder| *holder != shard),
            }
            match holders.as_slice() {
                [] => {
                    self.holders.remove(&id);
                    jobs.set(id, None);
                }
                [only] if *only == shard => jobs.set(id, job),
                several => {
                    let said = several.iter().filter_map(|holder| self.objects.get(holder)?.spec.job(id));
                    jobs.set(id, Ledger::from_jobs(said.map(|job| (id, job))).get(id).cloned());
                }
            }
        }
    }
}

/// Whether two versions of an object hold the same: a generation is a state of the spec.
fn is_same(one: &Arc<JobLedger>, other: &Arc<JobLedger>) -> bool {
    let version = |object: &JobLedger| (object.uid(), object.metadata.generation);
    Arc::ptr_eq(one, other) || (one.metadata.generation.is_some() && version(one) == version(other))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pacer_api::job_ledger::{self, Additions};
    use pacer_core::ledger::{JobEvent, LIMIT, State, Terms};
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms = Terms { queued: std::time::Duration::from_secs(600), limit: LIMIT };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    /// A job that is as far as this.
    fn job(id: u64, state: State) -> (u64, Job) {
        let event = JobEvent {
            id,
            state,
            at: at(state as i64),
            queued_at: at(0),
            repository: "acme/app".into(),
            workflow: "build".into(),
            labels: Arc::from(["linux".into()]),
            attempt: 1,
            runner: (state > State::Queued).then(|| "web-1".into()),
            origin: Arc::default(),
        };
        let mut ledger = Ledger::default();
        ledger.apply(&event, &TERMS, at(3));
        (id, ledger.get(id).unwrap().clone())
    }

    fn object(generation: i64, jobs: &[(u64, State)]) -> Arc<JobLedger> {
        let mut additions = Additions::default();
        jobs.iter().map(|(id, state)| job(*id, *state)).for_each(|(id, job)| additions.put(id, &job));
        let mut object = JobLedger::new("web", additions.spec("web").unwrap());
        (object.metadata.uid, object.metadata.generation) = (Some("1".to_owned()), Some(generation));
        Arc::new(object)
    }

    /// From now on these are all objects.
    fn follow(view: &mut View, latest: BTreeMap<u16, Arc<JobLedger>>) {
        let gone: Vec<u16> = view.objects.keys().filter(|shard| !latest.contains_key(*shard)).copied().collect();
        gone.into_iter().for_each(|shard| view.set(shard, None));
        latest.into_iter().for_each(|(shard, object)| view.set(shard, Some(object)));
    }

    fn anew(objects: &BTreeMap<u16, Arc<JobLedger>>) -> Ledger {
        job_ledger::read(objects.values().map(|object| &object.spec))
    }

    #[test]
    fn job_in_two_objects_is_as_far_as_the_further_of_them_says() {
        let mut view = View::default();
        let (queued, over) = (object(1, &[(7, State::Queued)]), object(1, &[(7, State::Completed)]));
        for (objects, state) in [
            (BTreeMap::from([(0, queued.clone())]), Some(State::Queued)),
            (BTreeMap::from([(0, queued.clone()), (4, over.clone())]), Some(State::Completed)),
            (BTreeMap::from([(4, over)]), Some(State::Completed)),
            (BTreeMap::from([(0, queued)]), Some(State::Queued)),
            (BTreeMap::new(), None),
        ] {
            follow(&mut view, objects);
            assert_eq!(view.jobs().get(7).map(|job| job.state), state);
            assert_eq!(view.has(7), state.is_some());
        }
        assert!(view.holders.is_empty(), "{:?}", view.holders);
    }

    #[test]
    fn earlier_answer_stays_as_it_was() {
        let mut view = View::default();
        view.set(0, Some(object(1, &[(1, State::Queued)])));
        let before = view.jobs().clone();
        view.set(0, Some(object(2, &[(2, State::Queued)])));
        let after = view.jobs();
        assert_eq!((before.get(1).is_some(), before.len(), after.get(2).is_some(), after.len()), (true, 1, true, 1));
    }

    fn states() -> impl Strategy<Value = State> {
        prop::sample::select(vec![State::Queued, State::InProgress, State::Completed])
    }

    proptest! {
        #[test]
        fn followed_jobs_are_those_that_a_reader_of_all_objects_finds(
            steps in prop::collection::vec(prop::collection::btree_map(0..4_u16, prop::collection::btree_map(0..12_u64, states(), 0..8), 0..4), 1..12),
        ) {
            let mut view = View::default();
            let mut generations = 0;
            for step in steps {
                let objects: BTreeMap<u16, Arc<JobLedger>> = step.into_iter().map(|(shard, jobs)| {
                    generations += 1;
                    (shard, object(generations, &jobs.into_iter().collect::<Vec<_>>()))
                }).collect();
                let expected = anew(&objects);
                follow(&mut view, objects.clone());
                prop_assert_eq!(&**view.jobs(), &expected);
                objects.into_iter().for_each(|(shard, object)| view.set(shard, Some(object)));
                prop_assert_eq!(&**view.jobs(), &expected, "nothing changed");
                prop_assert_eq!(view.holders.len(), expected.len());
            }
        }
    }
}
