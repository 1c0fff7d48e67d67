//! Which policy sets are watched when more are asked for than may be: namespaces share the places, and none can keep another one out.

use std::collections::{BTreeMap, BTreeSet};

use pacer_cluster::object::ObjectKey;

/// What becomes of a set that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// There is room.
    Free,
    /// This one of a namespace with more sets gives way.
    InsteadOf(ObjectKey),
    /// There is none: no other namespace has more.
    None,
}

/// A place for a set of `namespace`, beside or instead of those that have one; at most `most` may. One of `kept` never gives way.
///
/// A place that is free goes to whoever asks. Where none is, a namespace that would not have more than another one even then gets one of its
/// places, the last one by name. So a namespace can be kept from its places only by as many others as fill all with as few.
pub(crate) fn place(taken: &BTreeSet<ObjectKey>, namespace: &str, kept: Option<&ObjectKey>, most: usize) -> Place {
    if taken.len() < most {
        return Place::Free;
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    for key in taken.iter().filter(|key| Some(*key) != kept) {
        let count = counts.entry(key.namespace.as_str()).or_default();
        *count = count.saturating_add(1);
    }
    let own = counts.get(namespace).copied().unwrap_or_default();
    let Some((richest, count)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return Place::None };
    if own.saturating_add(1) >= count {
        return Place::None;
    }
    let last = taken.iter().rfind(|key| key.namespace == richest && Some(*key) != kept);
    last.cloned().map_or(Place::None, Place::InsteadOf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, number: usize) -> ObjectKey {
        ObjectKey::new(namespace, format!("set-{number:03}"))
    }

    /// Asks for these, one after the other, where ten may be watched.
    fn ask(taken: &mut BTreeSet<ObjectKey>, kept: Option<&ObjectKey>, wanted: impl IntoIterator<Item = ObjectKey>) {
        for key in wanted {
            match place(taken, &key.namespace, kept, 10) {
                Place::Free => {
                    taken.insert(key);
                }
                Place::InsteadOf(other) => {
                    taken.remove(&other);
                    taken.insert(key);
                }
                Place::None => {}
            }
        }
    }

    fn count(taken: &BTreeSet<ObjectKey>, namespace: &str) -> usize {
        taken.iter().filter(|key| key.namespace == namespace).count()
    }

    #[test]
    fn one_namespace_has_all_places_until_another_one_asks() {
        let mut taken = BTreeSet::new();
        ask(&mut taken, None, (0..30).map(|number| key("a", number)));
        assert_eq!(count(&taken, "a"), 10);
        ask(&mut taken, None, (0..30).map(|number| key("b", number)));
        assert_eq!((count(&taken, "a"), count(&taken, "b")), (5, 5));
        // The first ones by name stay.
        assert!((0..5).all(|number| taken.contains(&key("a", number))));
        ask(&mut taken, None, [key("c", 0), key("c", 1)]);
        assert_eq!((count(&taken, "a"), count(&taken, "b"), count(&taken, "c")), (4, 4, 2));
    }

    #[test]
    fn nothing_moves_when_everybody_asks_again() {
        let mut taken = BTreeSet::new();
        let all = || ["a", "b", "c"].into_iter().flat_map(|namespace| (0..30).map(move |number| key(namespace, number)));
        ask(&mut taken, None, all());
        let before = taken.clone();
        ask(&mut taken, None, all().filter(|key| !before.contains(key)));
        assert_eq!(taken, before);
        assert!(["a", "b", "c"].into_iter().all(|namespace| (3..=4).contains(&count(&taken, namespace))));
    }

    #[test]
    fn cluster_default_never_gives_way() {
        let default = key("a", 999);
        let mut taken = BTreeSet::from([default.clone()]);
        ask(&mut taken, Some(&default), (0..9).map(|number| key("a", number)));
        ask(&mut taken, Some(&default), (0..9).map(|number| key("b", number)));
        assert!(taken.contains(&default) && taken.len() == 10);
        // It does not count as one of its namespace's.
        assert_eq!((count(&taken, "a"), count(&taken, "b")), (6, 4));
    }
}
