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
        watcher::{Config, Error as WatchError, Event, watch_object, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Objects per answer, as many as kubectl asks for. A cache asks for fewer, since what a large page leaves between the objects stays
/// with it; what is read here is used once and let go, and fewer answers are sooner there.
const PAGE: u32 = 500;

/// The namespace and the name of an object. It gets no further field.
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
    let mut pages = Pages::new(parameters);
    loop {
        let page = api.list(&pages.next()).await;
        if pages.take(page.map(|list| (list.items, list.metadata.continue_)))? {
            return Ok(pages.items);
        }
    }
}

/// Namespaces and names of all objects that the parameters select. Only their metadata is asked for.
pub async fn list_names<K>(api: &Api<K>, parameters: &ListParams) -> Result<Vec<Name>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    let name = |object: PartialObjectMeta<K>| Name { namespace: object.namespace(), name: object.name_any() };
    pick(api, parameters, |object| Some(name(object))).await
}

/// Returns the result of `picked` for each object that the parameters select. Only metadata is asked for, and of an object of which it makes nothing
/// nothing is kept, so that few of many take little memory.
pub async fn pick<K, T>(
    api: &Api<K>,
    parameters: &ListParams,
    mut picked: impl FnMut(PartialObjectMeta<K>) -> Option<T>,
) -> Result<Vec<T>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    let mut pages = Pages::new(parameters);
    loop {
        let page = api.list_metadata(&pages.next()).await;
        let page = page.map(|list| (list.items.into_iter().filter_map(&mut picked).collect(), list.metadata.continue_));
        if pages.take(page)? {
            return Ok(pages.items);
        }
    }
}

/// A list that comes page by page. A list that took so long that its continue token expired is started again, once.
struct Pages<'a, T> {
    parameters: &'a ListParams,
    items: Vec<T>,
    token: Option<String>,
    begun_again: bool,
}

impl<'a, T> Pages<'a, T> {
    fn new(parameters: &'a ListParams) -> Self {
        Self { parameters, items: Vec::new(), token: None, begun_again: false }
    }

    /// How to ask for the next page.
    fn next(&self) -> ListParams {
        let next = self.parameters.clone().limit(self.parameters.limit.unwrap_or(PAGE));
        match &self.token {
            None => next,
            // The first page decides which state of the world the others are of.
            Some(token) => {
                ListParams { continue_token: Some(token.clone()), resource_version: None, version_match: None, ..next }
            }
        }
    }

    /// Takes a page with the token of the rest. Whether it was the last.
    fn take(&mut self, page: Result<(Vec<T>, Option<String>), kube::Error>) -> Result<bool, kube::Error> {
        match page {
            Ok((more, rest)) => {
                self.items.extend(more);
                self.token = rest.filter(|token| !token.is_empty());
                Ok(self.token.is_none())
            }
            Err(kube::Error::Api(status)) if status.code == 410 && self.token.is_some() && !self.begun_again => {
                (self.token, self.begun_again) = (None, true);
                self.items.clear();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The condition was not met in time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("{object} was not {what} within {limit:?}{}", last.as_ref().map(|error| format!("; last seen: {error}")).unwrap_or_default())]
    NotInTime {
        /// Kind and name, or "any" and the kind.
        object: String,
        /// The condition.
        what: String,
        /// How long.
        limit: Duration,
        /// Why the API server could not be asked in the end, if so.
        last: Option<String>,
    },
    /// Somebody asked to stop.
    #[error("stopped waiting until {object} is {what}")]
    Cancelled {
        /// Kind and name, or "any" and the kind.
        object: String,
        /// The condition.
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
    mut condition: impl FnMut(Option<&K>) -> bool,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Option<K>, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let object = format!("{} {name:?}", K::kind(&K::DynamicType::default()));
    let states = watch_object(api.clone(), name).default_backoff();
    let pick = |state: Option<K>| condition(state.as_ref()).then_some(state);
    waited(object, what, states, pick, limit, cancelled).await
}

/// Waits until `condition` holds for any object that the parameters select, and gives the first one for which it does. Otherwise like
/// [`wait_for`]; `what` completes the sentence "any … is …".
pub async fn wait_for_any<K>(
    api: &Api<K>,
    parameters: &ListParams,
    what: &str,
    mut condition: impl FnMut(&K) -> bool,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<K, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let object = format!("any {}", K::kind(&K::DynamicType::default()));
    let selected = Config {
        label_selector: parameters.label_selector.clone(),
        field_selector: parameters.field_selector.clone(),
        ..Config::default()
    };
    let events = watcher(api.clone(), selected).default_backoff();
    let pick = |event: Event<K>| match event {
        Event::InitApply(object) | Event::Apply(object) => condition(&object).then_some(object),
        Event::Init | Event::InitDone | Event::Delete(_) => None,
    };
    waited(object, what, events, pick, limit, cancelled).await
}

/// The first that is picked of what the stream, which does not end, brings in time.
async fn waited<S, T>(
    object: String,
    what: &str,
    states: impl Stream<Item = Result<S, WatchError>>,
    mut pick: impl FnMut(S) -> Option<T>,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<T, WaitError> {
    let (what, mut last, mut states) = (what.to_owned(), None, pin!(states));
    let first = async {
        loop {
            match states.next().await {
                Some(Ok(state)) => {
                    last = None;
                    if let Some(picked) = pick(state) {
                        return picked;
                    }
                }
                Some(Err(error)) => last = Some(error.to_string()),
                None => std::future::pending().await,
            }
        }
    };
    tokio::select! {
        biased;
        () = cancelled => Err(WaitError::Cancelled { object, what }),
        held = tokio::time::timeout(limit, first) => {
            held.map_err(|_| WaitError::NotInTime { object, what, limit, last })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired() -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("too old", "Expired").with_code(410).boxed())
    }

    #[test]
    fn pages_are_collected_and_an_expired_list_is_begun_again_once() {
        let parameters = ListParams::default().labels("a=b").at("7");
        let mut pages = Pages::new(&parameters);
        let page = |items: &[i32], rest: &str| Ok((items.to_vec(), Some(rest.to_owned())));
        assert_eq!((pages.next().limit, pages.next().resource_version.as_deref()), (Some(PAGE), Some("7")));
        assert!(!pages.take(page(&[1], "next")).expect("a page"));
        let next = pages.next();
        assert_eq!((next.continue_token.as_deref(), next.resource_version), (Some("next"), None));
        assert_eq!(next.label_selector.as_deref(), Some("a=b"));
        assert!(!pages.take(Err(expired())).expect("another try"));
        assert_eq!(pages.next().continue_token, None);
        assert!(!pages.take(page(&[1, 2], "next")).expect("a page"));
        assert!(pages.take(page(&[3], "")).expect("a page"));
        assert_eq!(pages.items, [1, 2, 3]);
    }

    #[test]
    fn a_list_that_always_expires_is_an_error() {
        let parameters = ListParams::default();
        let mut pages = Pages::<i32>::new(&parameters);
        assert!(pages.take(Err(expired())).is_err(), "not even the first page");
        for is_error in [false, true] {
            assert!(!pages.take(Ok((vec![], Some("next".to_owned())))).expect("a page"));
            assert_eq!(pages.take(Err(expired())).is_err(), is_error);
        }
    }
}
