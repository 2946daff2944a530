//! Asking the API server, for what no cache holds: is it there, what is there, when is it so.
//!
//! A reconciler reads from its caches. These are for the start of a program, for tests and for tools; a single object is read with
//! `Api::get_opt`.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{Error as WatchError, watch_object},
    },
};
use serde::de::DeserializeOwned;

/// Objects per answer: some megabytes at most, and few answers.
const PAGE: u32 = 500;

/// The namespace and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Its namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Whether there is an object of this name. Only its metadata is asked for.
pub async fn exists<K>(api: &Api<K>, name: &str) -> Result<bool, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    Ok(api.get_metadata_opt(name).await?.is_some())
}

/// All objects that the parameters select, read page by page.
pub async fn list_all<K>(api: &Api<K>, parameters: &ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    pages(parameters, async |page| api.list(&page).await.map(|list| (list.items, list.metadata.continue_))).await
}

/// Namespaces and names of all objects that the parameters select. Only their metadata is asked for.
pub async fn list_names<K>(api: &Api<K>, parameters: &ListParams) -> Result<Vec<Name>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    let objects = pages(parameters, async |page| {
        let list = api.list_metadata(&page).await?;
        Ok((list.items, list.metadata.continue_))
    });
    let name = |object: PartialObjectMeta<K>| Name { namespace: object.namespace(), name: object.name_any() };
    Ok(objects.await?.into_iter().map(name).collect())
}

/// Collects pages. A list that took so long that the API server forgot its beginning is begun again, once.
async fn pages<T>(
    parameters: &ListParams,
    page: impl AsyncFn(ListParams) -> Result<(Vec<T>, Option<String>), kube::Error>,
) -> Result<Vec<T>, kube::Error> {
    let (mut items, mut token, mut begun_again) = (Vec::new(), None::<String>, false);
    loop {
        let mut next = parameters.clone().limit(parameters.limit.unwrap_or(PAGE));
        // The first page decides which state of the world the others are of.
        if let Some(token) = &token {
            (next.continue_token, next.resource_version, next.version_match) = (Some(token.clone()), None, None);
        }
        match page(next).await {
            Ok((more, rest)) => {
                items.extend(more);
                token = rest.filter(|token| !token.is_empty());
                if token.is_none() {
                    return Ok(items);
                }
            }
            Err(kube::Error::Api(status)) if status.code == 410 && token.is_some() && !begun_again => {
                (token, begun_again) = (None, true);
                items.clear();
            }
            Err(error) => return Err(error),
        }
    }
}

/// What was waited for did not come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("{kind} {name:?} was not {what} within {limit:?}{}", last.as_ref().map(|error| format!("; last seen: {error}")).unwrap_or_default())]
    NotInTime {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// Why the API server could not be asked in the end, if so.
        last: Option<String>,
    },
    /// Somebody asked to stop.
    #[error("stopped waiting until {kind} {name:?} is {what}")]
    Cancelled {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// What was waited for.
        what: String,
    },
}

/// Waits until `condition` holds for the object of this name, which is `None` while there is none, and gives it as it was then. It is
/// watched, not polled; an API server that is away is waited for.
///
/// Ends with an error after `limit`, and as soon as `cancelled` is done. `what` completes the sentence "the object is …".
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    condition: impl FnMut(Option<&K>) -> bool,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Option<K>, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    let (name, what) = (name.to_owned(), what.to_owned());
    let states = watch_object(api.clone(), &name).default_backoff();
    let mut last = None;
    let held = first(states, condition, &mut last);
    tokio::select! {
        biased;
        () = cancelled => Err(WaitError::Cancelled { kind, name, what }),
        held = tokio::time::timeout(limit, held) => {
            held.map_err(|_| WaitError::NotInTime { kind, name, what, limit, last })
        }
    }
}

/// The first state for which the condition holds. The stream does not end.
async fn first<K>(
    states: impl Stream<Item = Result<Option<K>, WatchError>>,
    mut condition: impl FnMut(Option<&K>) -> bool,
    last: &mut Option<String>,
) -> Option<K> {
    let mut states = pin!(states);
    loop {
        match states.next().await {
            Some(Ok(state)) => {
                *last = None;
                if condition(state.as_ref()) {
                    return state;
                }
            }
            Some(Err(error)) => *last = Some(error.to_string()),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired() -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("too old", "Expired").with_code(410).boxed())
    }

    #[tokio::test]
    async fn pages_are_collected_and_an_expired_list_is_begun_again_once() {
        let calls = std::sync::Mutex::new(Vec::new());
        let parameters = ListParams::default().labels("a=b");
        let listed = pages(&parameters, async |page| {
            let mut calls = calls.lock().expect("no panic");
            calls.push((page.continue_token.clone(), page.label_selector.clone(), page.limit));
            match (calls.len(), page.continue_token.as_deref()) {
                (2, _) => Err(expired()),
                (_, None) => Ok((vec![1, 2], Some("next".to_owned()))),
                (_, Some(_)) => Ok((vec![3], Some(String::new()))),
            }
        });
        assert_eq!(listed.await.expect("a list"), [1, 2, 3]);
        let calls = calls.into_inner().expect("no panic");
        assert_eq!(calls.iter().map(|call| call.0.is_some()).collect::<Vec<_>>(), [false, true, false, true]);
        assert!(calls.iter().all(|call| call.1.as_deref() == Some("a=b") && call.2 == Some(PAGE)));
    }

    #[tokio::test]
    async fn a_list_that_always_expires_is_an_error() {
        let parameters = ListParams::default();
        let listed = pages(&parameters, async |page| match page.continue_token {
            None => Ok((vec![1], Some("next".to_owned()))),
            Some(_) => Err(expired()),
        });
        assert!(listed.await.is_err());
    }
}
