//! The jobs of a JobLedger as they are read. Their ids are numbers: looking for one job in hundreds of objects compares no texts.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::LedgerJob;
use crate::nullable;

/// Jobs by id. What has no id for a key, as somebody's edit may have it, is left out, since no job is found by it; `null` is no jobs.
///
/// # Errors
///
/// When it is neither a map nor `null`, or one of its values is no job.
pub(super) fn by_id<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u64, LedgerJob>, D::Error> {
    nullable::or_default::<_, Jobs>(from).map(|jobs| jobs.0)
}

#[derive(Default)]
struct Jobs(BTreeMap<u64, LedgerJob>);

impl<'de> Deserialize<'de> for Jobs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Jobs;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("jobs by id")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Jobs, A::Error> {
                let mut jobs = BTreeMap::new();
                while let Some((Id(id), job)) = map.next_entry::<Id, LedgerJob>()? {
                    if let Some(id) = id {
                        jobs.insert(id, job);
                    }
                }
                Ok(Jobs(jobs))
            }
        }

        from.deserialize_map(Map)
    }
}

/// The key of a job; none where it is no id.
struct Id(Option<u64>);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Key;

        impl Visitor<'_> for Key {
            type Value = Id;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("the id of a job")
            }

            fn visit_str<E>(self, text: &str) -> Result<Id, E> {
                Ok(Id(text.parse().ok()))
            }
        }

        from.deserialize_str(Key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::super::JobLedgerSpec;

    #[test]
    fn ids_are_texts_outside_and_numbers_inside() {
        let written = json!({"autoscaler": "web", "workflows": {}, "jobs": {"9": {"run": 1}, "10": {"run": 2}}});
        let spec: JobLedgerSpec = from_value(written.clone()).unwrap();
        assert_eq!(spec.ids().collect::<Vec<_>>(), [9, 10]);
        assert_eq!(serde_json::to_value(&spec).unwrap(), written);
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobLedgerSpec>(&text).unwrap(), spec, "from a text");
    }

    #[test]
    fn what_is_no_id_hides_no_job() {
        let ids = |jobs| from_value::<JobLedgerSpec>(json!({"jobs": jobs})).map(|spec| spec.ids().collect::<Vec<_>>());
        assert_eq!(ids(json!({"": {}, "x": {}, "-1": {}, "7": {}, "18446744073709551616": {}})).unwrap(), [7]);
        assert_eq!(ids(json!(null)).unwrap(), Vec::<u64>::new());
        assert!(ids(json!([1])).is_err() && ids(json!({"7": 1})).is_err());
        assert!(from_value::<JobLedgerSpec>(json!({})).unwrap().jobs.is_empty());
    }
}
