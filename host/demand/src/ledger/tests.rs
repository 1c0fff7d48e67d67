use pacer_core::ledger::{LAST_JOB, State, TOMBSTONE};

use super::*;

mod following;

const LIFE: Duration = Duration::from_secs(600);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn event(id: u64, state: State, second: i64) -> Edit {
    let event = JobEvent {
        id,
        state,
        at: at(second),
        queued_at: at(0),
        repository: "acme/app".into(),
        workflow: "build".into(),
        labels: Arc::from(["linux".into()]),
        attempt: 1,
        runner: None,
        origin: Arc::default(),
    };
    Edit::Event { event, life: LIFE, lasting: false }
}

#[test]
fn the_end_of_a_job_whose_runner_goes_on_is_remembered_for_longer() {
    let remembered = |lasting: bool, states: &[State]| {
        let mut ledger = Ledger::default();
        for state in states {
            let Edit::Event { event, life, .. } = event(1, *state, 20) else { panic!("an event") };
            Edit::Event { event, life, lasting }.apply(&mut ledger, at(30));
        }
        let mut additions = Additions::default();
        ledger.all().for_each(|(id, job)| additions.put(id, job));
        // As it is read again by the next operator.
        let read = pacer_api::job_ledger::read([&additions.spec("web").unwrap()]);
        let job = read.get(1).unwrap();
        (job.expires.as_second() - at(30).as_second(), job.state)
    };
    let (short, long) = (TOMBSTONE.as_secs().cast_signed(), LAST_JOB.as_secs().cast_signed());
    for states in [&[State::Completed][..], &[State::InProgress, State::Completed], &[State::Completed, State::Completed]] {
        assert_eq!(remembered(false, states), (short, State::Completed));
        assert_eq!(remembered(true, states), (long, State::Completed));
    }
    assert_eq!(remembered(true, &[State::Queued]), (LIFE.as_secs().cast_signed(), State::Queued));
}

/// An object with the jobs of these edits.
fn object(edits: &[Edit]) -> Arc<JobLedger> {
    let mut additions = Additions::default();
    for edit in edits {
        let mut ledger = Ledger::default();
        edit.apply(&mut ledger, at(30));
        ledger.all().for_each(|(id, job)| additions.put(id, job));
    }
    let mut object = JobLedger::new("web", additions.spec("web").unwrap());
    object.metadata.uid = Some("1".to_owned());
    object.metadata.generation = Some(1);
    Arc::new(object)
}

fn view(objects: &[(u16, Arc<JobLedger>)]) -> View {
    let mut view = View::default();
    objects.iter().for_each(|(shard, object)| view.set(*shard, Some(object.clone())));
    view
}

/// In objects that this process made, which gives new ones the numbers from nine on.
fn places(view: &View) -> Places<'_> {
    Places::new(view, &|_| true, 9)
}

fn planned(edit: &Edit, objects: &[(u16, Arc<JobLedger>)]) -> (Change, Vec<u16>) {
    let view = view(objects);
    let planned = plan(edit, &view, &mut places(&view), &Ledger::default(), at(60));
    (planned.change, planned.additions.into_iter().map(|(shard, _)| shard).collect())
}

#[test]
fn nothing_is_written_when_the_event_is_known() {
    let objects = [(0, object(&[event(1, State::Queued, 0)])), (3, object(&[event(2, State::Completed, 20)]))];
    assert_eq!(planned(&event(1, State::Queued, 0), &objects), (Change::None, vec![]));
    assert_eq!(planned(&event(2, State::InProgress, 9), &objects), (Change::None, vec![]), "a late event of a job that is over");
    assert_eq!(planned(&Edit::Complete(2), &objects), (Change::None, vec![]));
    assert_eq!(planned(&Edit::Forget(9), &objects), (Change::None, vec![]));
}

#[test]
fn job_stays_in_the_object_that_has_it() {
    let objects = [(0, object(&[event(7, State::Queued, 0)])), (5, object(&[event(1, State::Queued, 0)]))];
    assert_eq!(planned(&event(1, State::InProgress, 9), &objects), (Change::Advanced, vec![5]));
    assert_eq!(planned(&Edit::Complete(1), &objects), (Change::Advanced, vec![5]));
    assert_eq!(planned(&event(2, State::Queued, 0), &objects), (Change::Added, vec![0]), "the first of two that are as full");
}

#[test]
fn many_jobs_at_once_fill_one_object_after_the_other() {
    let view = view(&[(0, object(&[event(7, State::Queued, 0)]))]);
    let mut places = places(&view);
    let mut shards: Vec<u16> = (0..200).map(|_| places.next()).collect();
    assert_eq!(shards[..16], [[0; 15].as_slice(), &[9]].concat());
    shards.dedup();
    assert_eq!(shards, [[0].as_slice(), &(9..21).collect::<Vec<u16>>()].concat());
}

#[test]
fn job_is_forgotten_in_each_object_that_has_it() {
    let twice = [(0, object(&[event(1, State::Queued, 0)])), (2, object(&[event(1, State::InProgress, 5)])), (3, object(&[]))];
    assert_eq!(planned(&Edit::Forget(1), &twice), (Change::Advanced, vec![0, 2]));
    assert_eq!(planned(&event(1, State::InProgress, 5), &twice), (Change::None, vec![]), "one of them knows");
}

#[test]
fn job_of_an_earlier_version_moves_on() {
    let mut earlier = Ledger::default();
    event(1, State::InProgress, 5).apply(&mut earlier, at(6));
    let none = View::default();
    let plan = |edit: &Edit| plan(edit, &none, &mut places(&none), &earlier, at(60)).change;
    assert_eq!(plan(&event(1, State::Queued, 0)), Change::None);
    assert_eq!(plan(&event(1, State::Completed, 20)), Change::Advanced);
}

#[test]
fn new_job_is_refused_when_the_ledger_is_full() {
    let full: Vec<Edit> = (0..u64::try_from(LIMIT).unwrap()).map(|id| event(id, State::Queued, 0)).collect();
    let objects = [(0, object(&full))];
    assert_eq!(planned(&event(u64::MAX, State::Queued, 0), &objects), (Change::Overflow, vec![]));
    assert_eq!(planned(&event(7, State::Completed, 9), &objects), (Change::Advanced, vec![0]), "what is known moves on");
}

#[test]
fn answer_to_own_write_counts_until_the_watch_shows_it() {
    let generation = |generation| {
        let mut object = JobLedger::clone(&object(&[event(1, State::Queued, 0)]));
        object.metadata.generation = Some(generation);
        object
    };
    let shown = |object: &Object, stored: Option<i64>| {
        object.latest(stored.map(|stored| Arc::new(generation(stored)))).and_then(|latest| latest.metadata.generation)
    };
    let object = Object::default();
    assert_eq!(shown(&object, Some(1)), Some(1), "nothing was written");
    object.answered(generation(3));
    assert_eq!((shown(&object, None), shown(&object, Some(2))), (Some(3), Some(3)));
    assert_eq!((shown(&object, Some(4)), shown(&object, Some(5)), shown(&object, None)), (Some(4), Some(5), None));
    object.deleted(&generation(5));
    assert_eq!(shown(&object, Some(5)), None, "the watch does not know yet");
}

#[test]
fn jobs_that_are_over_go_along_with_the_next_write() {
    let known = object(&[event(1, State::Completed, 20), event(2, State::Queued, 0), event(3, State::Completed, 20)]);
    let mut additions = Additions::default();
    let mut again = Ledger::default();
    event(3, State::Queued, 0).apply(&mut again, at(400));
    again.all().for_each(|(id, job)| additions.put(id, job));
    let end = at(30).checked_add(jiff::SignedDuration::try_from(TOMBSTONE).unwrap()).unwrap();
    let jobs = |now| object::with_forgotten(&known, &additions, now).patch()["spec"]["jobs"].clone();
    let gone = jobs(end);
    assert!(gone["1"].is_null() && gone.get("1").is_some(), "{gone}");
    assert!(gone.get("2").is_none() && gone["3"].is_object(), "{gone}");
    assert!(jobs(at(31)).get("1").is_none());
}
