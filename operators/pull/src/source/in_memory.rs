//! A store in this process, for tests and as the example of a store: one file and one registration.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use konverge_apply::Statement;
use konverge_core::SecretValue;
use tokio::sync::watch;

use super::{Cause, Failure, Reference, Revision, Snapshot, Source, Succession, Upstream};
use crate::{hub::Feed, messages::failure, reasons};

/// A version of a content: its number and its values.
type Version = (i64, BTreeMap<String, SecretValue>);

/// A store of contents by their references, all with one scheme. Clones are the same store.
#[derive(Clone)]
pub struct InMemory {
    scheme: &'static str,
    contents: Arc<Mutex<HashMap<Reference, watch::Sender<Version>>>>,
}

impl InMemory {
    /// Creates a store without contents.
    pub fn new(scheme: &'static str) -> Self {
        Self { scheme, contents: Arc::default() }
    }

    /// Sets a content, and tells everybody who follows it.
    pub fn set(&self, reference: &Reference, values: BTreeMap<String, SecretValue>) {
        self.content(reference).send_modify(|(number, before)| {
            *number += 1;
            *before = values;
        });
    }

    fn content(&self, reference: &Reference) -> watch::Sender<Version> {
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.entry(reference.clone()).or_default().clone()
    }
}

#[async_trait]
impl Source for InMemory {
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn open(&self, reference: &Reference) -> Result<Box<dyn Upstream>, Statement> {
        Ok(Box::new(Content { reference: reference.clone(), versions: self.content(reference) }))
    }
}

/// One content.
struct Content {
    reference: Reference,
    versions: watch::Sender<Version>,
}

#[async_trait]
impl Upstream for Content {
    async fn fetch(&self) -> Result<Snapshot, Failure> {
        let (number, values) = &*self.versions.borrow();
        if *number == 0 {
            let text = format!("{} was never set. The data stays as it is", self.reference);
            let statement = failure(reasons::SECRET_NOT_FOUND, text);
            return Err(Failure { statement, kind: "Absent", cause: Cause::Refused });
        }
        Ok(Snapshot {
            revision: Revision { identity: self.reference.to_string(), number: *number, fingerprint: None },
            succession: Succession::Unproven,
            tag: None,
            remark: None,
            values: values
                .iter()
                .map(|(key, value)| (key.clone(), SecretValue::new(value.expose().to_vec())))
                .collect(),
            failed: Vec::new(),
        })
    }

    async fn follow(&self, feed: Feed) {
        let mut versions = self.versions.subscribe();
        feed.look().await;
        // The sender lives as long as the content.
        while versions.changed().await.is_ok() {
            let number = versions.borrow_and_update().0;
            feed.changed(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::registry::Registry;
    use tokio::{sync::mpsc, time::timeout};

    use super::*;
    use crate::{hub::Hubs, metrics::Metrics, source::Sources};

    #[tokio::test]
    async fn a_change_wakes_those_who_name_the_content() {
        let (one, other): (Reference, Reference) =
            ("memory://a/one".parse().unwrap(), "memory://a/other".parse().unwrap());
        let store = InMemory::new("memory");
        let values = |value: &str| BTreeMap::from([("KEY".to_owned(), SecretValue::from(value.to_owned()))]);
        let (sender, mut woken) = mpsc::unbounded_channel();
        let wake = Arc::new(move |reference: &Reference| sender.send(reference.clone()).unwrap());
        let metrics = Metrics::new(&mut Registry::default());
        let hubs = Hubs::new(Sources::default().with(store.clone()), Duration::from_hours(1), wake, metrics);
        let [hub, _other] = [&one, &other].map(|reference| hubs.subscribe(reference).unwrap());
        let mut next = async || timeout(Duration::from_secs(10), woken.recv()).await.unwrap().unwrap();
        let failures = [next().await, next().await];
        assert!(failures.contains(&one) && failures.contains(&other), "that nothing is there is news, {failures:?}");
        assert_eq!(hub.snapshot(None).await.err().unwrap().statement.reason, reasons::SECRET_NOT_FOUND);

        for (number, value) in [(1, "first"), (2, "second")] {
            store.set(&one, values(value));
            assert_eq!(next().await, one);
            let snapshot = hub.snapshot(None).await.unwrap();
            assert_eq!((snapshot.revision.number, snapshot.values["KEY"].expose()), (number, value.as_bytes()));
            assert_eq!(hub.stated().unwrap().revision, snapshot.revision);
        }
        let foreign = "nowhere://a/b".parse().unwrap();
        assert_eq!(hubs.subscribe(&foreign).err().unwrap().reason, reasons::SOURCE_NOT_CONNECTED);
    }
}
