//! Room for runners in a namespace with a quota, shared by all who make some at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::published::IN_FLIGHT;

/// Runners that are being made and that the watch has not shown, by namespace.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<String, HashMap<String, Instant>>>);

impl Rooms {
    /// How many there are, those in flight included.
    pub(crate) fn taken(&self, namespace: &str, present: &HashSet<String>, now: Instant) -> u32 {
        let mut all = self.lock();
        let flying = seen(&mut all, namespace, present, now).len();
        if flying == 0 {
            all.remove(namespace);
        }
        count(flying.saturating_add(present.len()))
    }

    /// Takes room for these, as far as there is some; says for how many.
    pub(crate) fn take(&self, namespace: &str, names: &[String], present: &HashSet<String>, most: u32, now: Instant) -> usize {
        let mut all = self.lock();
        let flying = seen(&mut all, namespace, present, now);
        let free = most.saturating_sub(count(flying.len().saturating_add(present.len())));
        let granted = names.len().min(usize::try_from(free).unwrap_or(usize::MAX));
        flying.extend(names.iter().take(granted).map(|name| (name.clone(), now)));
        granted
    }

    /// One was not made after all.
    pub(crate) fn give_back(&self, namespace: &str, name: &str) {
        if let Some(flying) = self.lock().get_mut(namespace) {
            flying.remove(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those in flight, without the ones that the watch has shown or that are long ago.
fn seen<'a>(
    all: &'a mut HashMap<String, HashMap<String, Instant>>,
    namespace: &str,
    present: &HashSet<String>,
    now: Instant,
) -> &'a mut HashMap<String, Instant> {
    let flying = all.entry(namespace.to_owned()).or_default();
    flying.retain(|name, since| !present.contains(name) && now.saturating_duration_since(*since) < IN_FLIGHT);
    flying
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn room_is_given_once_whoever_asks() {
        let (rooms, now) = (Rooms::default(), Instant::now());
        let present: HashSet<String> = names(&["old"]).into_iter().collect();
        assert_eq!(rooms.take("a", &names(&["x", "y"]), &present, 4, now), 2);
        assert_eq!(rooms.take("a", &names(&["z", "w"]), &present, 4, now), 1, "one of four is there, two are in flight");
        assert_eq!((rooms.taken("a", &present, now), rooms.taken("b", &HashSet::new(), now)), (4, 0));
        rooms.give_back("a", "y");
        assert_eq!(rooms.take("a", &names(&["w"]), &present, 4, now), 1);
        let shown: HashSet<String> = names(&["old", "x", "z", "w"]).into_iter().collect();
        assert_eq!(rooms.taken("a", &shown, now), 4, "none is counted twice");
        assert_eq!(rooms.take("b", &names(&["x"]), &HashSet::new(), 1, now), 1, "other namespaces have room of their own");
        assert_eq!(rooms.taken("b", &HashSet::new(), now + IN_FLIGHT + Duration::from_secs(1)), 0, "one that never came");
        assert!(rooms.lock().is_empty() || !rooms.lock().contains_key("b"));
    }
}
