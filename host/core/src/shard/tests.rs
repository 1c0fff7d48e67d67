use proptest::prelude::*;

use super::*;

fn shards(count: u16) -> Shards {
    Shards::new(count).unwrap()
}

fn namespaces() -> impl Iterator<Item = String> {
    (0..6_000).map(|number| format!("team-{number}"))
}

#[test]
fn there_are_between_one_and_so_many_shards() {
    assert_eq!([0, 1, Shards::MOST, Shards::MOST + 1].map(|count| Shards::new(count).is_some()), [false, true, true, false]);
    assert!(namespaces().all(|namespace| Shards::ONE.of(&namespace) == 0));
}

#[test]
fn namespace_keeps_its_shard_from_version_to_version() {
    let of = |count| ["default", "ci", "team-a", "team-b", "actions-runner-system"].map(|name| shards(count).of(name));
    assert_eq!((of(2), of(3), of(8)), ([0, 0, 1, 1, 0], [0, 0, 1, 1, 2], [3, 0, 3, 3, 3]));
}

#[test]
fn shards_have_about_as_many_namespaces_as_each_other() {
    for count in [2, 3, 5, 8, 16] {
        let mut sizes = vec![0_u32; usize::from(count)];
        for namespace in namespaces() {
            sizes[usize::from(shards(count).of(&namespace))] += 1;
        }
        let even = 6_000 / u32::from(count);
        assert!(sizes.iter().all(|size| size.abs_diff(even) * 5 < even), "{count} shards: {sizes:?}");
    }
}

#[test]
fn one_more_shard_takes_its_part_and_moves_nothing_else() {
    for count in [1, 2, 3, 7, 15] {
        let (before, after) = (shards(count), shards(count + 1));
        let moved: Vec<u16> = namespaces().filter(|one| before.of(one) != after.of(one)).map(|one| after.of(&one)).collect();
        assert!(moved.iter().all(|shard| *shard == count), "to the new one only");
        let part = 6_000 / (usize::from(count) + 1);
        assert!(moved.len().abs_diff(part) * 5 < part, "{count} + 1 shards: {} of 6000 moved", moved.len());
    }
}

/// `-`: nobody; `!`: nobody for long; a letter: that replica.
fn holders(text: &str) -> BTreeMap<u16, Holder> {
    let holder = |letter| match letter {
        '-' => Holder::Nobody { overdue: false },
        '!' => Holder::Nobody { overdue: true },
        replica => Holder::Replica(replica.to_string()),
    };
    (0..).zip(text.chars().map(holder)).collect()
}

fn live(text: &str) -> BTreeSet<String> {
    text.chars().map(String::from).collect()
}

#[test]
fn shards_without_a_holder_are_taken_and_the_fullest_replica_gives_one_up() {
    for (me, replicas, held, take, give, unsettled) in [
        ("a", "a", "--", vec![0, 1], None, true),
        ("a", "ab", "--", vec![0], None, true),
        ("b", "ab", "--", vec![1], None, true),
        ("a", "ab", "aa", vec![], Some(1), true),
        ("b", "ab", "aa", vec![], None, true),
        ("a", "ab", "a-", vec![], None, true),
        ("b", "ab", "a-", vec![1], None, true),
        ("a", "ab", "a!", vec![1], None, true),
        ("a", "ab", "ab", vec![], None, false),
        ("a", "abc", "ab", vec![], None, false),
        ("c", "abc", "ab", vec![], None, false),
        ("a", "abc", "aab", vec![], Some(1), true),
        ("b", "abc", "aab", vec![], None, true),
        ("a", "abc", "aaa", vec![], Some(2), true),
        ("a", "abc", "aa-", vec![], None, true),
        ("b", "abc", "aa-", vec![2], None, true),
        // One that died still holds its shard, and gets no other.
        ("a", "a", "az", vec![], None, false),
        ("a", "ab", "az-", vec![], None, true),
        ("b", "ab", "az-", vec![2], None, true),
        // Of two with the most, the first gives.
        ("a", "abc", "aabb", vec![], Some(1), true),
        ("b", "abc", "aabb", vec![], None, true),
    ] {
        let found = plan(me, &live(replicas), &holders(held));
        let expected = Plan { take: take.into_iter().collect(), give, unsettled };
        assert_eq!(found, expected, "{me} of {replicas}, {held}");
    }
}

proptest! {
    #[test]
    fn replicas_that_see_the_same_come_to_an_even_load(
        replicas in 1_usize..7,
        held in proptest::collection::vec(0_usize..9, 1..20),
    ) {
        let names: Vec<String> = (0..replicas).map(|number| format!("r{number}")).collect();
        let live: BTreeSet<String> = names.iter().cloned().collect();
        let holder = |number: &usize| names.get(*number).map_or(Holder::Nobody { overdue: false }, |one| Holder::Replica(one.clone()));
        let mut holders: BTreeMap<u16, Holder> = (0..).zip(held.iter().map(holder)).collect();
        let mut rounds = 0;
        loop {
            let plans: Vec<(String, Plan)> = names.iter().map(|me| (me.clone(), plan(me, &live, &holders))).collect();
            if plans.iter().all(|(_, plan)| !plan.unsettled) {
                break;
            }
            let takers: Vec<u16> = plans.iter().flat_map(|(_, plan)| plan.take.iter().copied()).collect();
            prop_assert_eq!(takers.len(), takers.iter().collect::<BTreeSet<_>>().len(), "no shard is taken by two");
            prop_assert!(plans.iter().filter(|(_, plan)| plan.give.is_some()).count() <= 1, "one at a time");
            for (me, plan) in plans {
                for shard in plan.take {
                    holders.insert(shard, Holder::Replica(me.clone()));
                }
                if let Some(shard) = plan.give {
                    prop_assert_eq!(&holders[&shard], &Holder::Replica(me));
                    holders.insert(shard, Holder::Nobody { overdue: false });
                }
            }
            rounds += 1;
            prop_assert!(rounds <= 2 * held.len() + 1, "it ends");
        }
        let count = |me: &String| holders.values().filter(|holder| **holder == Holder::Replica(me.clone())).count();
        let counts: Vec<usize> = names.iter().map(count).collect();
        prop_assert_eq!(counts.iter().sum::<usize>(), held.len());
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
    }
}
