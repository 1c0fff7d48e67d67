//! Which report is opened, said anew or closed next.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn threshold(seconds: u64) -> Option<Threshold> {
    Some(Threshold::new(Duration::from_secs(seconds)).unwrap())
}

fn waiting(job: u64, queued: i64) -> Waiting {
    Waiting { job, repository: "acme/app".into(), queued: at(queued), place: 1 }
}

fn report(job: u64, said: &str, second: i64) -> Report {
    Report {
        job,
        repository: "acme/app".into(),
        commit: "c0ffee".into(),
        name: format!("waiting: {job}"),
        form: Form::Status,
        said: said.into(),
        at: at(second),
        refused: 0,
    }
}

/// With a threshold of ten minutes and nothing that holds anything back, where every job's essence is `now`.
fn next(reports: &[Report], queue: &[Waiting], second: i64) -> Next {
    held(reports, queue, &Restraint::default(), second)
}

fn held(reports: &[Report], queue: &[Waiting], restraint: &Restraint, second: i64) -> Next {
    Reports::new(reports.to_vec()).next(threshold(600), queue, |_| "now".into(), restraint, at(second))
}

#[test]
fn thresholds_are_between_a_second_and_a_day() {
    for (seconds, fits) in [(0, false), (1, true), (600, true), (86_400, true), (86_401, false), (u64::MAX, false)] {
        assert_eq!(Threshold::new(Duration::from_secs(seconds)).is_ok(), fits, "{seconds}");
    }
    assert!(Threshold::new(Duration::from_millis(999)).is_err());
}

#[test]
fn names_are_told_from_those_of_anything_else_and_short_enough() {
    assert_eq!(name("build (linux)\n"), "pacer / waiting: build (linux)");
    let long = name(&"\u{1f980}".repeat(300));
    assert!(is_name(&long) && long.len() <= 255, "{}", long.len());
    for (text, expected) in [(name(""), true), ("build".into(), false), (format!("{long}x"), false), (String::new(), false)] {
        assert_eq!(is_name(&text), expected, "{text}");
    }
    assert_eq!(external_id(7), "pacer-waiting-7");
}

#[test]
fn jobs_are_reported_once_they_have_waited_for_the_threshold() {
    assert_eq!(next(&[], &[waiting(1, 0)], 599), Next::Wait(Some(at(600))));
    assert_eq!(next(&[], &[waiting(1, 0)], 600), Next::Open(waiting(1, 0)));
    assert_eq!(next(&[], &[waiting(1, 0), waiting(2, -5)], 700), Next::Open(waiting(1, 0)), "in the order of the queue");
    assert_eq!(next(&[report(1, "now", 600)], &[waiting(1, 0)], 9_000), Next::Wait(None), "once");
    let nobody = Waiting { repository: String::new(), ..waiting(1, 0) };
    assert_eq!(next(&[], std::slice::from_ref(&nobody), 700), Next::Wait(None), "nobody knows where");
    assert_eq!(next(&[report(1, "now", 600)], &[nobody], 700), Next::Close(1));
}

#[test]
fn nothing_is_opened_without_a_threshold_and_all_is_closed() {
    let next = |reports: &[Report]| {
        let queue = [waiting(1, 0), waiting(2, 0)];
        Reports::new(reports.to_vec()).next(None, &queue, |_| "now".into(), &Restraint::default(), at(9_000))
    };
    assert_eq!(next(&[]), Next::Wait(None));
    assert_eq!(next(&[report(1, "now", 600)]), Next::Close(1));
}

#[test]
fn report_is_said_anew_when_it_has_changed_and_a_minute_is_over() {
    let queue = [waiting(1, 0)];
    assert_eq!(next(&[report(1, "before", 600)], &queue, 659), Next::Wait(Some(at(660))));
    assert_eq!(next(&[report(1, "before", 600)], &queue, 660), Next::Update(waiting(1, 0)));
    assert_eq!(next(&[report(1, "now", 600)], &queue, 660), Next::Wait(None));
    let unknown = Report { form: Form::Check(None), ..report(1, "now", 600) };
    assert_eq!(next(std::slice::from_ref(&unknown), &queue, 659), Next::Wait(Some(at(660))));
    assert_eq!(next(&[unknown], &queue, 660), Next::Update(waiting(1, 0)), "whether GitHub took it is not known");
    let known = Report { form: Form::Check(Some(7)), ..report(1, "now", 600) };
    assert_eq!(next(&[known], &queue, 9_000), Next::Wait(None));
}

#[test]
fn reports_of_jobs_that_wait_no_longer_are_closed_before_anything_else() {
    let (reports, queue) = ([report(1, "before", 0), report(2, "now", 600)], [waiting(1, 0), waiting(3, 0)]);
    assert_eq!(next(&reports, &queue, 700), Next::Close(2));
    assert_eq!(next(&reports[..1], &queue, 700), Next::Open(waiting(3, 0)));
    assert_eq!(next(&[report(1, "before", 0), report(3, "now", 600)], &queue, 700), Next::Update(waiting(1, 0)));
    let queue = [waiting(1, 0), waiting(2, 0)];
    assert_eq!(
        next(&[report(1, "before", 9), report(2, "before", 8)], &queue, 700),
        Next::Update(waiting(2, 0)),
        "the oldest text"
    );
}

#[test]
fn no_more_are_open_than_may_be() {
    let full: Vec<Report> = (0..).take(OPEN).map(|job| report(job, "now", 600)).collect();
    let mut queue: Vec<Waiting> = (0..).take(OPEN + 5).map(|job| waiting(job, 0)).collect();
    assert_eq!(next(&full, &queue, 700), Next::Wait(None));
    queue.remove(0);
    assert_eq!(next(&full, &queue, 700), Next::Close(0));
    let job = u64::try_from(OPEN).unwrap();
    assert_eq!(next(&full[1..], &queue, 700), Next::Open(waiting(job, 0)));
    assert_eq!(Reports::new([full.clone(), full].concat()).iter().count(), OPEN, "however many somebody wrote");
}

#[test]
fn no_more_steps_are_taken_in_a_minute_than_may_be() {
    let mut restraint = Restraint::default();
    for second in 0..i64::try_from(PER_MINUTE).unwrap() {
        assert_eq!(held(&[], &[waiting(1, -600)], &restraint, second), Next::Open(waiting(1, -600)), "{second}");
        restraint.step(at(second));
    }
    assert_eq!(held(&[], &[waiting(1, -600)], &restraint, 30), Next::Wait(Some(at(60))));
    assert_eq!(held(&[report(1, "now", 0)], &[], &restraint, 30), Next::Wait(Some(at(60))), "closings count as well");
    assert_eq!(held(&[], &[waiting(1, -600)], &restraint, 60), Next::Open(waiting(1, -600)));
}

#[test]
fn refusals_pause_everything_a_repository_or_a_job() {
    let other = Waiting { repository: "acme/other".into(), ..waiting(2, 0) };
    let queue = [waiting(1, 0), other.clone(), waiting(3, 0)];
    let mut restraint = Restraint::default();
    restraint.pause_job(1, FAILED, at(700));
    assert_eq!(held(&[], &queue, &restraint, 700), Next::Open(other));
    restraint.pause_repository("acme/other", REFUSED, at(700));
    assert_eq!(held(&[], &queue, &restraint, 700), Next::Open(waiting(3, 0)));
    restraint.pause(SignedDuration::from_secs(30), at(700));
    assert_eq!(held(&[], &queue, &restraint, 700), Next::Wait(Some(at(730))));
    assert_eq!(held(&[report(9, "now", 0)], &[], &restraint, 700), Next::Wait(Some(at(730))));
    assert_eq!(held(&[], &queue, &restraint, 760), Next::Open(waiting(1, 0)));
    for job in 0..2_000 {
        restraint.pause_job(job, WRONG, at(700));
    }
    assert!(restraint.jobs.len() <= PAUSES, "{}", restraint.jobs.len());
}

#[test]
fn two_jobs_have_no_report_of_one_name_on_one_commit() {
    let reports = Reports::new(vec![report(1, "now", 0)]);
    assert!(reports.has_namesake(2, "acme/app", "c0ffee", "waiting: 1"));
    for (job, repository, commit, name) in [
        (1, "acme/app", "c0ffee", "waiting: 1"),
        (2, "acme/other", "c0ffee", "waiting: 1"),
        (2, "acme/app", "beef", "waiting: 1"),
        (2, "acme/app", "c0ffee", "waiting: 2"),
    ] {
        assert!(!reports.has_namesake(job, repository, commit, name), "{job} {repository} {commit} {name}");
    }
}

proptest::proptest! {
    /// Whatever happens in an hour: no report is said anew within a minute, no more are open and no more steps are taken than may be, and what is no
    /// longer true is closed as soon as the minute has room.
    #[test]
    fn bounds_hold_in_every_hour(
        lives in proptest::collection::vec((0_i64..3_000, 1_i64..2_000), 1..60),
        changes in 1_i64..200,
        pauses in proptest::collection::vec((0_i64..3_600, 1_i64..100), 0..5),
    ) {
        let (mut reports, mut restraint, mut steps, mut said) = (Reports::default(), Restraint::default(), Vec::new(), BTreeMap::new());
        for second in 0..3_600_i64 {
            for (_, wait) in pauses.iter().filter(|(start, _)| *start == second) {
                restraint.pause(SignedDuration::from_secs(*wait), at(second));
            }
            let queue: Vec<Waiting> = (0_u64..).zip(&lives)
                .filter(|(_, (queued, wait))| (*queued..*queued + *wait).contains(&second))
                .map(|(job, (queued, _))| waiting(job, *queued)).collect();
            let essence = |waiting: &Waiting| (second / changes + i64::try_from(waiting.job).unwrap()).to_string();
            loop {
                let (job, word) = match reports.next(threshold(60), &queue, essence, &restraint, at(second)) {
                    Next::Wait(until) => {
                        proptest::prop_assert!(until.is_none_or(|until| until > at(second)));
                        break;
                    }
                    Next::Open(waiting) => (waiting.job, Some(essence(&waiting))),
                    Next::Update(waiting) => {
                        let last: i64 = said[&waiting.job];
                        proptest::prop_assert!(second - last >= 60, "{} and {second}", last);
                        (waiting.job, Some(essence(&waiting)))
                    }
                    Next::Close(job) => (job, None),
                };
                restraint.step(at(second));
                steps.push(second);
                match word {
                    Some(word) => {
                        reports.put(report(job, &word, second));
                        said.insert(job, second);
                    }
                    None => reports.remove(job),
                }
                proptest::prop_assert!(reports.iter().count() <= OPEN);
                let recent = steps.iter().filter(|step| second - **step < 60).count();
                proptest::prop_assert!(recent <= PER_MINUTE, "{} steps", recent);
            }
        }
    }
}
