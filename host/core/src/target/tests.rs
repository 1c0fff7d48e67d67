use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn wanted<'a>(labels: &[&'a str]) -> Wanted<'a> {
    Wanted { owner: "acme", repository: "app", owner_is_user: false, enterprise: Some("corp"), labels: labels.to_vec() }
}

fn candidate<'a>(name: &'a str, scope: Scope, group: Option<&'a str>, labels: &[&'a str]) -> Candidate<'a> {
    Candidate { namespace: "ci", name, created: NOW, scope, group, labels: labels.to_vec(), platform: Platform::default() }
}

fn repository() -> Scope {
    Scope::Repository { owner: "acme".to_owned(), name: "app".to_owned() }
}

fn organization() -> Scope {
    Scope::Organization("acme".to_owned())
}

fn enterprise() -> Scope {
    Scope::Enterprise("corp".to_owned())
}

fn found(search: &Search) -> Option<usize> {
    match search {
        Search::Found(choice) => Some(choice.index),
        _ => None,
    }
}

#[test]
fn the_vectors_of_arcs_webhook_server_hold() {
    for labels in [vec!["label1"], vec!["self-hosted", "label1"]] {
        for (offered, expected) in [(vec!["label1"], Some(0)), (vec!["bad-label"], None), (vec![], None)] {
            let candidates = [candidate("test-name", organization(), None, &offered)];
            assert_eq!(
                found(&search(&wanted(&labels), &candidates, Some(&Visibility::Assumed))),
                expected,
                "{labels:?} {offered:?}"
            );
        }
    }
}

/// The order in which ARC's simulator visits groups: OD before ED before OC before EC, however they were added.
#[test]
fn groups_are_visited_in_arcs_order() {
    let od = candidate("od", organization(), None, &[]);
    let oc = candidate("oc", organization(), Some("g"), &[]);
    let ed = candidate("ed", enterprise(), Some(""), &[]);
    let ec = candidate("ec", enterprise(), Some("g"), &[]);
    let repository = candidate("r", repository(), Some("g"), &[]);
    let order = |candidates: &[&Candidate<'static>]| -> Vec<&'static str> {
        let candidates: Vec<Candidate<'static>> = candidates.iter().map(|one| (*one).clone()).collect();
        match search(&wanted(&[]), &candidates, Some(&Visibility::Assumed)) {
            Search::Found(choice) => {
                std::iter::once(choice.index).chain(choice.others).filter_map(|index| Some(candidates.get(index)?.name)).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(order(&[&oc]), ["oc"]);
    assert_eq!(order(&[&oc, &od]), ["od", "oc"]);
    assert_eq!(order(&[&oc, &od, &ed]), ["od", "ed", "oc"]);
    assert_eq!(order(&[&oc, &od, &ec]), ["od", "oc", "ec"]);
    assert_eq!(order(&[&oc, &od, &ec, &ed]), ["od", "ed", "oc", "ec"]);
    assert_eq!(order(&[&oc, &od, &ec, &ed, &repository]), ["r"], "groups need not be asked about");
}

/// ARC's traversal (3.8, 9.6) for every set of groups that have runners, and every set that the repository may use.
#[test]
fn of_what_is_there_and_open_the_first_in_arcs_order_is_chosen() {
    let (org, ent) = (Level::Organization, Level::Enterprise);
    let group = |level, name: Option<&str>| Group { level, name: name.map(str::to_owned) };
    let in_order = [
        (candidate("od", organization(), None, &[]), group(org, None)),
        (candidate("ed", enterprise(), None, &[]), group(ent, None)),
        (candidate("oc", organization(), Some("g"), &[]), group(org, Some("g"))),
        (candidate("ec", enterprise(), Some("g"), &[]), group(ent, Some("g"))),
    ];
    let chosen_of = |set: u32| in_order.iter().enumerate().filter(move |(place, _)| set & (1 << place) != 0).map(|(_, one)| one);
    for present in 0..16_u32 {
        // However they are listed.
        let pool: Vec<Candidate<'static>> = chosen_of(present).map(|(candidate, _)| candidate.clone()).rev().collect();
        for open in 0..16_u32 {
            let groups: Vec<Group> = chosen_of(open).map(|(_, group)| group.clone()).collect();
            let expected = chosen_of(present & open).next().map(|(candidate, _)| candidate.name);
            let outcome = search(&wanted(&[]), &pool, Some(&Visibility::Groups(groups)));
            assert_eq!(found(&outcome).map(|index| pool[index].name), expected, "present {present:04b}, open {open:04b}");
        }
    }
    // A custom group of the same name one level up is another one.
    let elsewhere = Visibility::Groups(vec![group(ent, Some("g"))]);
    assert_eq!(found(&search(&wanted(&[]), &[candidate("oc", organization(), Some("g"), &[])], Some(&elsewhere))), None);
}

#[test]
fn only_what_the_repository_reaches_counts() {
    let reached = |wanted: &Wanted<'_>, scope: Scope| {
        found(&search(wanted, &[candidate("x", scope, None, &[])], Some(&Visibility::Assumed)))
    };
    let job = wanted(&[]);
    let of = |owner: &str, name: &str| Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
    assert_eq!(reached(&job, of("Acme", "APP")), Some(0), "GitHub's names have no case");
    assert_eq!(reached(&job, of("acme", "app2")), None);
    assert_eq!(reached(&job, Scope::Organization("other".to_owned())), None);
    assert_eq!(reached(&job, Scope::Enterprise("other".to_owned())), None);
    assert_eq!(reached(&Wanted { enterprise: None, ..job.clone() }, enterprise()), None);
    let person = Wanted { owner_is_user: true, ..job };
    assert_eq!(reached(&person, organization()), None);
    assert_eq!(reached(&person, repository()), Some(0));
}

#[test]
fn groups_are_asked_about_only_when_it_matters() {
    let pool = [candidate("a", organization(), None, &["x"]), candidate("b", organization(), Some("Big"), &["x"])];
    assert_eq!(search(&wanted(&["x"]), &pool, None), Search::Ask);
    assert!(matches!(search(&wanted(&["y"]), &pool, None), Search::None(Why::Labels { nearest: 0, .. })));
    let own = [candidate("a", organization(), None, &["x"]), candidate("r", repository(), None, &["x"])];
    assert_eq!(found(&search(&wanted(&["x"]), &own, None)), Some(1));
    assert_eq!(search(&wanted(&["x"]), &[], None), Search::None(Why::Reach));
}

#[test]
fn groups_that_the_repository_may_not_use_are_passed_over() {
    let pool = [
        candidate("default", organization(), Some("Default"), &["x"]),
        candidate("big", organization(), Some("Big"), &["x"]),
        candidate("corp", enterprise(), Some("Big"), &["x"]),
    ];
    let group = |level, name: Option<&str>| Group { level, name: name.map(str::to_owned) };
    let (org, ent) = (Level::Organization, Level::Enterprise);
    for (groups, expected) in [
        (vec![group(org, None), group(org, Some("big"))], Some(0)),
        (vec![group(org, Some("big"))], Some(1)),
        (vec![group(ent, Some("Big"))], Some(2)),
        (vec![group(ent, None)], None),
        (vec![], None),
    ] {
        let outcome = search(&wanted(&["x"]), &pool, Some(&Visibility::Groups(groups.clone())));
        assert_eq!(found(&outcome), expected, "{groups:?}");
        assert!(expected.is_some() || outcome == Search::None(Why::Hidden { nearest: 0 }), "{outcome:?}");
    }
}

#[test]
fn of_several_the_certain_then_the_oldest_then_the_first_name_is_chosen() {
    let later: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
    let x64 = |name, architecture, created| {
        let platform = Platform { os: None, architecture };
        Candidate { platform, created, ..candidate(name, organization(), None, &[]) }
    };
    let pool = [
        x64("b", None, NOW),
        x64("c", Some(Architecture::X64), later),
        x64("d", Some(Architecture::Arm64), NOW),
        x64("a", None, NOW),
    ];
    let outcome = search(&wanted(&["x64"]), &pool, Some(&Visibility::Assumed));
    assert_eq!(outcome, Search::Found(Choice { index: 1, reach: Reach::OrganizationDefault, others: vec![3, 0] }));
    let outcome = search(&wanted(&[]), &pool, Some(&Visibility::Assumed));
    assert_eq!(outcome, Search::Found(Choice { index: 3, reach: Reach::OrganizationDefault, others: vec![0, 2, 1] }));
}

#[test]
fn the_nearest_miss_is_named() {
    let pool = [candidate("a", organization(), None, &[]), candidate("b", organization(), None, &["gpu"])];
    let missing = vec!["big".to_owned()];
    assert_eq!(search(&wanted(&["gpu", "big"]), &pool, None), Search::None(Why::Labels { nearest: 1, missing }));
}

fn any_candidate() -> impl Strategy<Value = Candidate<'static>> {
    let scope =
        prop_oneof![Just(repository()), Just(organization()), Just(enterprise()), Just(Scope::Organization("other".to_owned()))];
    let group = proptest::option::of(prop_oneof![Just("g"), Just("Default")]);
    let labels = proptest::sample::subsequence(vec!["x", "y"], 0..=2);
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    (scope, group, labels, name, 0_i64..3).prop_map(|(scope, group, labels, name, age)| Candidate {
        created: Timestamp::from_second(age).unwrap(),
        ..candidate(name, scope, group, &labels)
    })
}

proptest! {
    #[test]
    fn the_choice_does_not_depend_on_the_order(
        pool in proptest::collection::vec(any_candidate(), 0..8),
        labels in proptest::sample::subsequence(vec!["x", "y", "self-hosted"], 0..=3),
        turn in 0_usize..8,
    ) {
        let job = wanted(&labels);
        let mut turned = pool.clone();
        let middle = turn % pool.len().max(1);
        turned.rotate_left(middle);
        let one = search(&job, &pool, Some(&Visibility::Assumed));
        let other = search(&job, &turned, Some(&Visibility::Assumed));
        // Names are unique in a cluster, not in this pool.
        let identity = |one: &Candidate<'static>| (reach::reach(&job, one), one.created, one.name);
        prop_assert_eq!(found(&one).map(|index| identity(&pool[index])), found(&other).map(|index| identity(&turned[index])));
        if let Search::Found(choice) = &one {
            let reach = |index: usize| reach::reach(&job, &pool[index]).unwrap();
            prop_assert!(choice.others.iter().all(|other| reach(*other) >= choice.reach));
        }
    }

    #[test]
    fn a_candidate_that_does_not_match_changes_nothing(
        pool in proptest::collection::vec(any_candidate(), 0..8),
        labels in proptest::sample::subsequence(vec!["x", "y"], 0..=2),
    ) {
        let job = wanted(&labels);
        let before = search(&job, &pool, Some(&Visibility::Assumed));
        let mut more = pool;
        more.push(candidate("0", Scope::Repository { owner: "else".to_owned(), name: "where".to_owned() }, None, &["x", "y"]));
        prop_assert_eq!(search(&job, &more, Some(&Visibility::Assumed)), before);
    }
}
