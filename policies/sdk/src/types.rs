//! What all decisions are told: the pool, its nodes, further facts.

pub use crate::bindings::pacer::policy::types::{ApiBudget, Attribute, Counts, Node, Pool, Quantiles};

/// The value of `key`; the first one wins. Keys that a policy doesn't know must be ignored, so there is no way to list them all.
#[must_use]
pub fn attribute<'a>(attributes: &'a [Attribute], key: &str) -> Option<&'a str> {
    attributes.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

/// Runners of a pool that wait because the cluster has no room for them: no node takes their pods, or a quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Number of runners that wait, for a node or for a quota.
    pub runners: u32,
    /// For how long the first of them has been waiting.
    pub seconds: u32,
}

impl NoRoom {
    /// From the pool's attributes; none while there is room for all.
    #[must_use]
    pub fn of(pool: &Pool) -> Option<Self> {
        let number = |key| attribute(&pool.attributes, key).and_then(|value| value.parse::<u32>().ok()).unwrap_or(0);
        let runners = number("unschedulable").saturating_add(number("over-quota"));
        (runners > 0).then(|| Self { runners, seconds: number("no-room-seconds") })
    }
}

/// A duration for people: `45 s`, `14 min`, `2 h 5 min`, `3 d 4 h`; the second unit is left out when it is zero.
#[must_use]
pub fn duration(seconds: u32) -> String {
    let (big, big_unit, small, small_unit) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => return format!("{} min", seconds / 60),
        3600..86_400 => (seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => (seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    };
    if small == 0 { format!("{big} {big_unit}") } else { format!("{big} {big_unit} {small} {small_unit}") }
}

/// The longest beginning of `text` that fits in `bytes` bytes, cut between characters.
#[must_use]
pub fn shortened(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_key() {
        let attributes = [("zone".to_owned(), "a".to_owned()), ("zone".to_owned(), "b".to_owned())];
        assert_eq!(attribute(&attributes, "zone"), Some("a"));
        assert_eq!(attribute(&attributes, "rack"), None);
    }

    #[test]
    fn runners_without_room_are_told_by_the_pool() {
        let pool = |attributes: &[(&str, &str)]| Pool {
            attributes: attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Pool::default()
        };
        let some = pool(&[("unschedulable", "3"), ("over-quota", "2"), ("no-room-seconds", "90")]);
        assert_eq!(NoRoom::of(&some), Some(NoRoom { runners: 5, seconds: 90 }));
        for none in [&[][..], &[("unschedulable", "0")], &[("unschedulable", "many")]] {
            assert_eq!(NoRoom::of(&pool(none)), None, "{none:?}");
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        for (text, bytes, cut) in [("node", 10, "node"), ("node", 2, "no"), ("näh", 2, "n"), ("", 0, "")] {
            assert_eq!(shortened(text, bytes), cut);
        }
    }
}
