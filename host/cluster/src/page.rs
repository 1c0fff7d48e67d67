//! Lists of objects that are larger than what is made of them.

use std::fmt;
use std::marker::PhantomData;

use kube::api::ListParams;
use kube::core::request::Request;
use kube::{Client, Error, Resource};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::unreadable::{Readable, Unreadable};

/// Reads one page of a list, of this namespace or of all, and gives each object to `take`: no more than one of them is held at a time beside the text of
/// the answer. Five hundred pods take some 25 MiB otherwise, which the heap keeps. An object that cannot be read is given to `leave_out` and does not
/// hide the others. Returns the token of the next page, if there is one.
///
/// # Errors
///
/// When the API server refuses, does not answer, or answers what is no list; `take` may have been called by then.
pub async fn each<K>(
    client: &Client,
    namespace: Option<&str>,
    params: &ListParams,
    take: impl FnMut(K),
    leave_out: impl FnMut(&Unreadable),
) -> Result<Option<String>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), namespace)).list(params).map_err(Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    read_each(&text, take, leave_out).map_err(Error::SerdeError)
}

/// Decodes each object as the type, and as what may be unreadable from the first one on that is not of the type.
fn read_each<K: DeserializeOwned>(
    text: &str,
    mut take: impl FnMut(K),
    mut leave_out: impl FnMut(&Unreadable),
) -> Result<Option<String>, serde_json::Error> {
    let mut taken = 0_usize;
    let whole = read(text, |object| {
        taken += 1;
        take(object);
    });
    if whole.is_ok() {
        return whole;
    }
    let mut again = 0_usize;
    read(text, |one: Readable<K>| {
        again += 1;
        match one {
            Readable::Object(object) if again > taken => take(object),
            Readable::Object(_) => {}
            Readable::Unreadable(one) => leave_out(&one),
        }
    })
}

fn read<K: DeserializeOwned>(text: &str, mut take: impl FnMut(K)) -> Result<Option<String>, serde_json::Error> {
    let mut answer = serde_json::Deserializer::from_str(text);
    let next = answer.deserialize_map(List(Objects { take: &mut take, of: PhantomData }))?;
    answer.end()?;
    Ok(next)
}

/// What is read of a list's metadata.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// Reads a list. What it comes to is the token of the next page.
struct List<'a, K, F>(Objects<'a, K, F>);

impl<'de, K: DeserializeOwned, F: FnMut(K)> Visitor<'de> for List<'_, K, F> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let Self(Objects { take, .. }) = self;
        let mut next = None;
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "metadata" => next = fields.next_value::<Metadata>()?.next.filter(|next| !next.is_empty()),
                "items" => fields.next_value_seed(Objects { take: &mut *take, of: PhantomData })?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(next)
    }
}

/// Reads the objects of a list, one after the other.
struct Objects<'a, K, F> {
    take: &'a mut F,
    of: PhantomData<K>,
}

impl<'de, K: DeserializeOwned, F: FnMut(K)> DeserializeSeed<'de> for Objects<'_, K, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, objects: D) -> Result<(), D::Error> {
        objects.deserialize_any(self)
    }
}

impl<'de, K: DeserializeOwned, F: FnMut(K)> Visitor<'de> for Objects<'_, K, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    // An empty list of Go may be null.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        while let Some(object) = objects.next_element()? {
            (self.take)(object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt as _;

    use super::*;

    fn names(text: &str) -> Result<(Vec<String>, Option<String>), String> {
        let mut names = Vec::new();
        let next = read(text, |pod: Pod| names.push(pod.name_any())).map_err(|error| error.to_string())?;
        Ok((names, next))
    }

    #[test]
    fn objects_come_one_after_the_other_wherever_the_rest_of_the_list_stands() {
        let objects = r#""items":[{"metadata":{"name":"a"},"spec":{"containers":[]}},{"metadata":{"name":"b"}}]"#;
        for (text, found, next) in [
            (format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"continue":"more"}},{objects}}}"#), 2, Some("more")),
            (format!(r#"{{{objects},"metadata":{{"continue":"","resourceVersion":"1"}}}}"#), 2, None),
            (r#"{"metadata":{},"items":[]}"#.to_owned(), 0, None),
            (r#"{"metadata":{"continue":null},"items":null}"#.to_owned(), 0, None),
        ] {
            let expected = ["a", "b"].into_iter().take(found).map(str::to_owned).collect();
            assert_eq!(names(&text), Ok((expected, next.map(str::to_owned))), "{text}");
        }
    }

    #[test]
    fn unreadable_object_hides_no_other_one_and_none_comes_twice() {
        let pod = |name: &str| serde_json::json!({"metadata": {"name": name, "namespace": "ci"}});
        let mut unreadable = pod("bad");
        unreadable["status"] = serde_json::json!({"startTime": "10000-01-01T00:00:00Z"});
        for place in [0, 1, 3] {
            let mut all = vec![pod("a"), pod("b"), pod("c")];
            all.insert(place, unreadable.clone());
            let text = serde_json::json!({"metadata": {"continue": "more"}, "items": all}).to_string();
            let (mut names, mut left_out) = (Vec::new(), Vec::new());
            let next = read_each(&text, |pod: Pod| names.push(pod.name_any()), |one| left_out.push(one.to_string())).unwrap();
            assert_eq!((names.join(" ").as_str(), next.as_deref()), ("a b c", Some("more")));
            assert!(left_out.len() == 1 && left_out[0].starts_with("ci/bad: "), "{left_out:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for (text, error) in [
            ("[]", "invalid type: sequence, expected a list"),
            (r#"{"items":{}}"#, "invalid type: map, expected objects"),
            (r#"{"items":[{"metadata":7}]}"#, "invalid type: integer `7`"),
            (r#"{"items":[]} {"#, "trailing characters"),
            (r#"{"items":["#, "EOF while parsing"),
        ] {
            let found = names(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }
}
