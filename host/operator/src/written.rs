//! Statuses that this process wrote, for objects whose status counts what changes all the time.
//!
//! Statuses go out as merge patches and not by server-side apply. An applied field that is left out later is removed only if its field manager
//! alone owns it. Statuses that ARC or an earlier version of pacer wrote belong to other managers, with the operation `Update`, so that a
//! `backoffUntil` or a `message` of theirs would stay for ever. And a status has several writers: the receiver writes the ledger, the hook in a
//! pod writes the phase.

use std::time::{Duration, Instant};

use kube::api::Patch;
use serde_json::{Value, json};

use crate::settings::STATUS_PACE;

/// The last status that was written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Resource version of the object that it was computed from.
    pub(crate) version: Option<String>,
    /// What was written.
    pub(crate) value: Value,
    /// When.
    pub(crate) at: Instant,
}

impl Written {
    /// How long the next status has to wait after this one, none when it may be written now. `again` is the wait of one that says the same:
    /// the watch has not shown the first yet.
    #[must_use]
    pub(crate) fn hold(&self, version: Option<&str>, value: &Value, now: Instant, again: Duration) -> Option<Duration> {
        if self.version.as_deref() == version && self.value == *value {
            return Some(again);
        }
        STATUS_PACE.checked_sub(now.saturating_duration_since(self.at)).filter(|left| !left.is_zero())
    }
}

/// A merge patch from one status to another: what is gone has to be named in it.
#[must_use]
pub(crate) fn merge_patch(new: &Value, old: Option<Value>) -> Patch<Value> {
    let mut body = new.clone();
    if let (Some(fields), Some(Value::Object(old))) = (body.as_object_mut(), old) {
        for key in old.keys() {
            fields.entry(key.clone()).or_insert(Value::Null);
        }
    }
    Patch::Merge(json!({ "status": body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_that_changes_all_the_time_is_written_once_per_pace() {
        let at = Instant::now();
        let written = Written { version: Some("7".to_owned()), value: json!({"replicas": 3}), at };
        let sync = Duration::from_secs(60);
        let (same, other) = (json!({"replicas": 3}), json!({"replicas": 4}));
        for (version, value, after, expected) in [
            ("7", &same, Duration::ZERO, Some(sync)),
            ("7", &same, STATUS_PACE * 2, Some(sync)),
            ("7", &other, Duration::ZERO, Some(STATUS_PACE)),
            ("8", &other, STATUS_PACE / 4, Some(STATUS_PACE / 4 * 3)),
            ("8", &other, STATUS_PACE, None),
            // Somebody else changed it in between: it has to be written again.
            ("8", &same, STATUS_PACE, None),
        ] {
            assert_eq!(written.hold(Some(version), value, at + after, sync), expected, "{version} {value} after {after:?}");
        }
    }
}
