//! Live reads: from the API server itself and not from a store, which may be minutes old after a failed watch.

use std::fmt::Debug;

use kube::api::{ListParams, ObjectMeta};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// A list of one name, since roles grant no `get` on kinds that are watched.
fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

/// Metadata of the object with that name.
///
/// # Errors
///
/// When the API server refuses or does not answer.
pub async fn metadata<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<ObjectMeta>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let listed = api.list_metadata(&named(name)).await?;
    Ok(listed.items.into_iter().next().map(|found| found.metadata))
}

/// The whole object with that name.
///
/// # Errors
///
/// As [`metadata`].
pub async fn object<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    Ok(api.list(&named(name)).await?.items.into_iter().next())
}

/// As [`metadata`], of the object that has this UID as well: another one of the same name does not count.
///
/// # Errors
///
/// As [`metadata`].
pub async fn metadata_of<K>(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<Option<ObjectMeta>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    Ok(metadata::<K>(client, namespace, name).await?.filter(|found| found.uid.as_deref() == Some(uid)))
}
