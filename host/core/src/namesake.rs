//! Whose a registration is when several Runners have one name. Kubernetes has a name once in a namespace; GitHub has it once in a scope, and an
//! agent that registers under it takes over what was registered before.

use jiff::Timestamp;

/// A Runner, as one of those with a name in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namesake {
    /// Namespace of the Runner; namesakes are in different ones.
    pub namespace: String,
    /// UID of the Runner; decides between Runners that were made at the same time.
    pub uid: String,
    /// GitHub's id of it, where it is known to have registered.
    pub known_id: Option<u64>,
    /// It has a pod, which may register.
    pub has_pod: bool,
    /// When it was made.
    pub created: Timestamp,
}

impl Namesake {
    /// Whether something may be registered that is its own.
    #[must_use]
    pub fn may_be_registered(&self) -> bool {
        self.has_pod || self.known_id.is_some()
    }
}

/// Who of them may register: one that has, else one that is about to, else the oldest.
#[must_use]
pub fn holder<'a>(all: impl IntoIterator<Item = &'a Namesake>) -> Option<&'a Namesake> {
    all.into_iter().min_by_key(|one| (one.known_id.is_none(), !one.has_pod, one.created, &one.uid))
}

/// Whether the registration `id` is this one's, and none of those `others`': that of the Runner whose known id it is, else of the one that may
/// register.
#[must_use]
pub fn owns(own: &Namesake, others: &[Namesake], id: u64) -> bool {
    let all = || others.iter().filter(|other| other.may_be_registered()).chain([own]);
    let owner = holder(all().filter(|one| one.known_id == Some(id))).or_else(|| holder(all()));
    owner == Some(own)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn one(namespace: &str, known_id: Option<u64>, has_pod: bool, created: i64) -> Namesake {
        let created = Timestamp::from_second(created).unwrap();
        Namesake { namespace: namespace.to_owned(), uid: format!("uid-{namespace}"), known_id, has_pod, created }
    }

    #[test]
    fn name_is_held_by_one_that_registered_then_by_one_with_a_pod_then_by_the_oldest() {
        let table = [
            (one("a", None, false, 2), one("b", Some(7), false, 9), "b"),
            (one("a", None, true, 2), one("b", Some(7), true, 9), "b"),
            (one("a", Some(7), false, 9), one("b", None, true, 2), "a"),
            (one("a", None, false, 2), one("b", None, true, 9), "b"),
            (one("a", None, true, 9), one("b", None, true, 2), "b"),
            (one("a", Some(7), true, 2), one("b", Some(7), true, 9), "a"),
            (one("a", None, false, 5), one("b", None, false, 5), "a"),
        ];
        for (first, second, expected) in table {
            for all in [[&first, &second], [&second, &first]] {
                assert_eq!(holder(all).map(|one| one.namespace.as_str()), Some(expected), "{first:?} {second:?}");
            }
        }
        assert_eq!(holder([]), None);
    }

    #[test]
    fn registration_belongs_to_the_one_whose_id_it_is() {
        let (first, second) = (one("a", Some(7), true, 2), one("b", None, true, 1));
        assert!(owns(&first, from_ref(&second), 7) && !owns(&second, from_ref(&first), 7));
        // Whoever registered it anew: one that has registered is followed, the other refused.
        assert!(owns(&first, from_ref(&second), 9) && !owns(&second, from_ref(&first), 9));
        let third = one("c", Some(9), true, 5);
        assert!(owns(&third, &[first.clone(), second], 9) && !owns(&first, from_ref(&third), 9));
        assert!(owns(&first, &[third], 7));
        assert!(owns(&first, &[], 7) && owns(&one("a", None, false, 2), &[], 1));
    }

    #[test]
    fn one_that_never_had_a_pod_takes_nothing_from_others() {
        let (bare, registered) = (one("a", None, false, 1), one("b", None, true, 9));
        assert!(owns(&registered, from_ref(&bare), 7) && !owns(&bare, &[registered], 7));
    }
}
