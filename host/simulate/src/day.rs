//! A recorded day, and every sentence that the operator says of it: Events of the number, receipts of each decision, what `pacer explain` tells of
//! runners that went. They are made by the operator's own functions, and compared with what happened by rules of this test's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use pacer_core::autoscale::telling::{Step, Telling};
use pacer_policy::record::{Change, Done, Item, Pool, Record, VERSION, id};
use pacer_policy::{Answer, Decision, Receipt};

use crate::agenda::at as moment;
use crate::tests::{Work, scenario, settings, trace};
use crate::{Numbered, Policies, Removed, watch};

const MIN: u32 = 1;
const MAX: u32 = 6;

/// What happened, and what was said of it.
#[derive(Clone, Debug)]
struct Day {
    delay: u64,
    /// Decisions about the number of runners, as the simulation took them.
    numbers: Vec<Numbered>,
    /// Runner, when its job started, when it was over.
    worked: Vec<(usize, i64, i64)>,
    /// Texts of the Events about changes of the number.
    events: Vec<String>,
    receipts: Vec<(String, String)>,
    removals: Vec<(i64, usize, String)>,
}

/// Bursts in the morning, single jobs all day, a matrix at noon, one in the evening while another one runs, nothing at night.
fn work() -> Vec<Work> {
    let hour = 3_600;
    let mut work: Vec<Work> = Vec::new();
    work.extend((0..4).map(|job| (7 * hour + job * 20, 90)));
    work.extend((0..30).map(|job| (8 * hour + job * 600, 40 + job * 17 % 400)));
    work.extend((0..20).map(|job| (12 * hour + job / 5, 120 + job * 7)));
    work.extend([(18 * hour, 900), (18 * hour + 60, 5), (18 * hour + 61, 5), (22 * hour, 1_800)]);
    work.sort_unstable();
    work
}

fn record(at: i64, decision: Decision, answer: Answer, items: Vec<Item>, change: Option<Change>) -> Record {
    Record {
        version: VERSION,
        id: id(moment(at), 0),
        at: moment(at),
        pool: Pool { kind: "RunnerDeployment".to_owned(), namespace: "ci".to_owned(), name: "web".to_owned() },
        receipt: Receipt::unasked(decision, 0),
        input: None,
        answer,
        items,
        change,
        superseded: 0,
    }
}

fn day(ephemeral: bool, delay: u64) -> Day {
    day_of(ephemeral, delay, 7)
}

fn day_of(ephemeral: bool, delay: u64, seed: u64) -> Day {
    let work = work();
    let trace = trace(settings(MIN, MAX, ephemeral, delay), &work, &[8, 12, 31]);
    let story = watch(&scenario(&trace), &Policies::builtin().unwrap(), seed, |_| {});
    let began = Instant::now();
    let first = story.numbers.first().map_or(0, |number| number.at);
    let (mut telling, mut events, mut receipts) = (Telling::default(), Vec::new(), Vec::new());
    let mut now = began;
    for number in &story.numbers {
        now = began + Duration::from_millis(u64::try_from(number.at - first).unwrap());
        let (from, to) = (number.from, number.decision.desired);
        let reason = number.decision.reason.to_string();
        events.extend(telling.due(now).map(|story| story.to_string()));
        if from != to {
            events.extend(telling.step(Step { from, to, reason: reason.clone() }, now).map(|story| story.to_string()));
        }
        let change = Some(Change { from, to, reason: reason.clone() });
        let receipt = record(number.at, Decision::Capacity, Answer::Capacity(number.plan.clone()), Vec::new(), change);
        receipts.push((receipt.outcome(), reason));
    }
    events.extend(telling.due(now + Duration::from_secs(60)).map(|story| story.to_string()));
    let removals = story.removed.iter().map(|Removed { at, runner, name, done }| {
        let items = vec![Item::new(name.to_string(), done.clone())];
        let record = record(*at, Decision::ScaleDown, Answer::ScaleDown(Vec::new()), items, None);
        (*at, *runner, record.account_of(name).map(|account| account.summary).unwrap_or_default())
    });
    let worked = story.started.iter().map(|(job, started, runner)| {
        let runs = work.get(usize::try_from(*job).unwrap() - 1).map_or(0, |(_, runs)| runs * 1_000);
        (*runner, *started, started + runs)
    });
    Day { delay, removals: removals.collect(), worked: worked.collect(), numbers: story.numbers, events, receipts }
}

/// A number in a text, behind what stands before it.
fn number(text: &str, before: &str) -> Option<u32> {
    let rest = text.split_once(before)?.1;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// What is wrong with the reason that is named for a number.
fn reason(text: &str, to: u32, about: &Numbered, delay: u64) -> Option<String> {
    let planned = about.plan.reservations.iter().map(|held| held.replicas).sum::<u32>();
    let wanted = MIN + planned;
    let binds = if text == "minReplicas" {
        to == MIN && planned == 0
    } else if text.starts_with("reserved ") {
        let named = (number(text, "reserved "), number(text, " for "));
        let plural = text.ends_with(if about.jobs == 1 { " job" } else { " jobs" });
        named == (Some(planned), Some(about.jobs)) && plural && planned > 0 && to == wanted && to <= MAX
    } else if text.starts_with("clamped by maxReplicas") {
        (number(text, "maxReplicas "), number(text, "wanted ")) == (Some(MAX), Some(wanted)) && to == MAX && wanted > MAX
    } else if text.starts_with("held at ") {
        let until = about.raised.and_then(|raised| raised.checked_add(SignedDuration::from_secs(delay.cast_signed())).ok());
        let told = until.map(|until| until.strftime("%H:%M:%SZ").to_string());
        let at = |until: Timestamp| until > moment(about.at);
        number(text, "held at ") == Some(to)
            && to <= about.live
            && to > wanted.min(MAX)
            && until.is_some_and(at)
            && told.is_some_and(|told| text.ends_with(&told))
    } else {
        false
    };
    (!binds).then(|| format!("{text:?} is no reason for {to}: {about:?}"))
}

/// One way of an Event: from where, to where, why.
type Leg = (u32, u32, String);

fn legs(event: &str) -> Option<Vec<Leg>> {
    let (there, back) = event.split_once("; then to ").map_or((event, None), |(there, back)| (there, Some(back)));
    let words = |to: u32| if to == 1 { "1 runner: ".to_owned() } else { format!("{to} runners: ") };
    let (from, to) = (number(there, "from ")?, number(there, " to ")?);
    let why = there.strip_prefix(&format!("from {from} to {}", words(to)))?;
    let mut legs = vec![(from, to, why.to_owned())];
    if let Some(back) = back {
        let end: u32 = back.split(' ').next()?.parse().ok()?;
        legs.push((to, end, back.strip_prefix(&words(end))?.to_owned()));
    }
    Some(legs)
}

/// Whatever was said that did not happen, and whatever happened that was not said.
fn complaints(day: &Day) -> Vec<String> {
    let mut found = Vec::new();
    // Each change is in an Event, and no Event tells of another one.
    let mut changes = day.numbers.iter().filter(|number| number.from != number.decision.desired);
    for event in &day.events {
        let Some(legs) = legs(event) else {
            found.push(format!("{event:?} has no numbers"));
            continue;
        };
        for (from, to, why) in legs {
            let mut at = from;
            while at != to || from == to {
                let Some(change) = changes.next() else {
                    found.push(format!("{event:?} tells of a change that was not"));
                    break;
                };
                let next = change.decision.desired;
                if change.from != at || (next > at) != (to > from) {
                    found.push(format!("{event:?}: the number went from {} to {next}", change.from));
                    break;
                }
                at = next;
                if at == to {
                    found.extend(
                        (change.decision.reason.to_string() != why)
                            .then(|| format!("{event:?} has the reason of another number")),
                    );
                    found.extend(reason(&why, to, change, day.delay).map(|wrong| format!("{event:?}: {wrong}")));
                }
            }
        }
    }
    found.extend(changes.map(|change| format!("no Event tells of {change:?}")));
    // Each receipt begins where the one before it ended, and says what was planned.
    let mut at = None;
    for (index, (receipt, why)) in day.receipts.iter().enumerate() {
        let Some(about) = day.numbers.get(index) else {
            found.push(format!("receipt of nothing: {receipt:?}"));
            continue;
        };
        let from = number(&format!(" {receipt}"), " ");
        let to = number(receipt, "-> ").or(from.filter(|_| receipt.contains(", as before; ")));
        let reserved = number(receipt, "; ");
        let planned = about.plan.reservations.iter().map(|held| held.replicas).sum::<u32>();
        if (from, to, reserved) != (Some(about.from), Some(about.decision.desired), Some(planned)) {
            found.push(format!("receipt {receipt:?} of {about:?}"));
        }
        if at.is_some() && from != at {
            found.push(format!("receipt {receipt:?} begins elsewhere than the one before it ended: {at:?}"));
        }
        at = to;
        found.extend(to.and_then(|to| reason(why, to, about, day.delay)));
    }
    if day.receipts.len() != day.numbers.len() {
        found.push(format!("{} receipts of {} decisions", day.receipts.len(), day.numbers.len()));
    }
    for (at, runner, said) in &day.removals {
        let jobs = || day.worked.iter().filter(|(worker, started, _)| worker == runner && started <= at);
        let wrong = if said.contains("it had not started") {
            jobs().next().is_some()
        } else {
            said.is_empty() || jobs().any(|(.., over)| over > at)
        };
        found.extend(wrong.then(|| format!("runner {runner} {said}, and its jobs: {:?}", jobs().collect::<Vec<_>>())));
    }
    found
}

#[test]
fn every_sentence_of_a_recorded_day_is_true() {
    for (ephemeral, delay) in [(true, 0), (true, 300), (false, 300)] {
        let day = day(ephemeral, delay);
        let found = complaints(&day);
        assert!(found.is_empty(), "ephemeral {ephemeral}, delay {delay}: {found:#?}");
        // There was something to say.
        let all = day.events.join("\n");
        for words in ["reserved", "minReplicas", "clamped by maxReplicas"] {
            assert!(all.contains(words), "no {words:?} in {all}");
        }
        assert!(delay == 0 || day.receipts.iter().any(|(_, why)| why.starts_with("held at")), "nothing was held");
        assert!(ephemeral || day.removals.iter().any(|(.., said)| said.contains("fewer runners were wanted")), "nobody went");
        assert!(day.events.len() > 10 && day.worked.len() == work().len(), "{} Events", day.events.len());
    }
}

#[test]
fn a_sentence_that_is_not_true_is_found() {
    // One on which several numbers are told in one Event.
    let told_together = |day: &Day| day.events.iter().any(|event| event.contains("; then to "));
    let honest = (7..39).map(|seed| day_of(false, 300, seed)).find(told_together).unwrap();
    assert!(complaints(&honest).is_empty());
    let told = |what: &str, lie: &dyn Fn(&mut Day)| {
        let mut day = honest.clone();
        lie(&mut day);
        assert!(!complaints(&day).is_empty(), "nobody found: {what}");
    };
    let event = |day: &mut Day, change: &dyn Fn(&str) -> String| {
        let event = day.events.iter_mut().find(|event| event.contains("; then to ")).unwrap();
        let lie = change(event);
        assert_ne!(*event, lie);
        *event = lie;
    };
    told("an Event from no number", &|day| event(day, &|event| event.replacen("from ", "from no number, not ", 1)));
    told("an Event from another number", &|day| event(day, &|event| event.replacen("from ", "from 1", 1)));
    told("an Event to another number", &|day| event(day, &|event| event.replacen("; then to ", "; then to 1", 1)));
    told("an Event with the reason of another number", &|day| {
        event(day, &|event| format!("{}: minReplicas of nobody", event.rsplit_once(": ").unwrap().0));
    });
    told("an Event with a reason that did not bind", &|day| {
        let peak = day.numbers.iter_mut().find(|number| number.from < number.decision.desired).unwrap();
        peak.plan.reservations.clear();
    });
    told("an Event that is missing", &|day| drop(day.events.remove(3)));
    told("the last Event that is missing", &|day| drop(day.events.pop()));
    told("an Event that is told twice", &|day| day.events.push(day.events.first().unwrap().clone()));
    told("a receipt that is missing", &|day| drop(day.receipts.remove(3)));
    told("a receipt with another number", &|day| {
        let (receipt, _) = day.receipts.iter_mut().find(|(receipt, _)| receipt.contains("-> ")).unwrap();
        *receipt = receipt.replacen("-> ", "-> 1", 1);
    });
    told("a receipt whose delay is over", &|day| {
        let held = day.receipts.iter().position(|(_, why)| why.starts_with("held at")).unwrap();
        day.numbers.get_mut(held).unwrap().raised = None;
    });
    told("removed before it started, of one that had a job", &|day| {
        let (runner, started, _) = *day.worked.first().unwrap();
        let spare = Done::Spare { wanted: 0, ended: false };
        let items = vec![Item::new("web-x".to_owned(), spare)];
        let record = record(started, Decision::ScaleDown, Answer::ScaleDown(Vec::new()), items, None);
        day.removals.push((started, runner, record.account_of("web-x").unwrap().summary));
    });
    told("removed as idle, in its job", &|day| {
        let (at, runner, _) = day.removals.iter().find(|(.., said)| said.contains("fewer runners")).cloned().unwrap();
        day.worked.push((runner, at - 1_000, at + 1_000));
    });
    // What the rules of this test take for a runner is one that worked.
    let known: Arc<[usize]> = honest.worked.iter().map(|(runner, ..)| *runner).collect();
    assert!(honest.removals.iter().any(|(_, runner, _)| known.contains(runner)), "{:?}", honest.removals);
}
