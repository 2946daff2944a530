//! The list of items that deleted objects have left in openZro: entries of the operator's `ConfigMap`. Events say the same, but the cluster forgets
//! events within an hour.
//!
//! The operator adds an entry once and removes none: only a person knows whether an item that other people use is still wanted. The oldest entries
//! go when there are too many.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use konverge::{
    Home, Part, Setup, StartError,
    generate::Access,
    kube::{self, Api, Client},
    remote::{LeftBehind, Subject},
};
use konverge_kubectl::{Cluster, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{collections::Collections, config_map, control::short_digest, deletions::CONFIG_MAP};

/// The number of entries, each of which has about 1 KiB at most. A `ConfigMap` holds 1 MiB.
const MAX_ENTRIES: usize = 500;
/// The longest description of an item, in characters.
const MAX_ITEM: usize = 1000;
/// The interval at which the memory of the collections is checked for new items.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// An item that a deleted object has left in openZro.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// The time of the entry.
    since: String,
    /// The namespace of the object; empty for an object without one.
    #[serde(default)]
    namespace: String,
    /// The kind and the name of the object.
    object: String,
    /// The item, and why it stayed.
    pub(crate) item: String,
}

impl Entry {
    fn new(subject: &Subject, item: &str, now: Timestamp) -> Self {
        Self {
            since: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            namespace: subject.namespace.clone().unwrap_or_default(),
            object: format!("{}/{}", subject.kind, subject.name),
            item: item.chars().take(MAX_ITEM).collect(),
        }
    }

    /// Reads the entries of a `ConfigMap` about objects of a namespace, or of all. Entries of another form are ignored.
    pub(crate) fn of(list: &ConfigMap, namespace: Option<&str>) -> Vec<Self> {
        let entries = list.data.iter().flatten().filter_map(|(_, text)| serde_json::from_str::<Self>(text).ok());
        entries.filter(|entry| namespace.is_none_or(|only| entry.namespace == only)).collect()
    }

    /// Returns the sentence about the item.
    pub(crate) fn sentence(&self) -> String {
        format!("{} (of {}/{})", self.item, self.namespace, self.object)
    }

    /// Returns the key of the entry. Equal items of one object have one entry.
    fn key(&self) -> String {
        short_digest(&format!("{}/{}: {}", self.namespace, self.object, self.item))
    }
}

/// Returns the change of the data that adds an entry: `None` if there is one already. Too many entries make the oldest ones go.
fn addition(data: &BTreeMap<String, String>, entry: &Entry) -> Option<BTreeMap<String, Value>> {
    let key = entry.key();
    if data.contains_key(&key) {
        return None;
    }
    let known = data.iter().filter_map(|(key, text)| Some((serde_json::from_str::<Entry>(text).ok()?, key)));
    let known: BTreeSet<_> = known.collect();
    let surplus = (known.len() + 1).saturating_sub(MAX_ENTRIES);
    let removed = known.into_iter().take(surplus).map(|(_, key)| (key.clone(), Value::Null));
    Some(removed.chain([(key, json!(entry).to_string().into())]).collect())
}

/// Adds an entry about an item, unless the list has it.
pub(crate) async fn record(client: &Client, home: &str, subject: &Subject, item: &str) -> Result<(), kube::Error> {
    let entry = Entry::new(subject, item, Timestamp::now());
    let api = Api::<ConfigMap>::namespaced(client.clone(), home);
    let known = api.get_opt(CONFIG_MAP).await?;
    let data = known.as_ref().and_then(|known| known.data.clone()).unwrap_or_default();
    let Some(change) = addition(&data, &entry) else { return Ok(()) };
    config_map::merge(&api, known.as_ref(), &json!({ "data": change })).await.map(drop)
}

/// Returns the entries of all operators about objects of a namespace, or of all.
pub(crate) async fn entries(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<Entry>, Failure> {
    let lists = cluster.config_maps(CONFIG_MAP, None).await?;
    Ok(lists.iter().flat_map(|list| Entry::of(list, namespace)).collect())
}

/// Records the items that the collections leave.
#[derive(Clone)]
pub struct Recorder(Collections);

impl Recorder {
    /// Creates the recorder of these collections.
    pub fn new(collections: Collections) -> Self {
        Self(collections)
    }

    fn left_behind(&self) -> Vec<LeftBehind> {
        let Collections { groups, policies, setup_keys, networks, routers, resources, records } = &self.0;
        let all = [
            groups.left_behind(),
            policies.left_behind(),
            setup_keys.left_behind(),
            networks.left_behind(),
            routers.left_behind(),
            resources.left_behind(),
            records.left_behind(),
        ];
        all.into_iter().flatten().collect()
    }

    /// Records each item once.
    async fn run(self, client: Client, home: String) {
        let mut recorded = BTreeSet::new();
        loop {
            let mut delay = CHECK_INTERVAL;
            for left in self.left_behind() {
                let known = (left.subject.clone(), left.item.clone());
                if recorded.contains(&known) {
                    continue;
                }
                match record(&client, &home, &left.subject, &format!("left behind {}", left.item)).await {
                    Ok(()) => drop(recorded.insert(known)),
                    Err(error) => {
                        tracing::warn!(
                            "cannot record in the ConfigMap {CONFIG_MAP} what {} left behind: {error}",
                            left.subject
                        );
                        delay = RETRY_DELAY;
                        break;
                    }
                }
            }
            sleep(delay).await;
        }
    }
}

impl Part for Recorder {
    /// The permissions for the `ConfigMap` are those of [`Approvals`](crate::deletions::Approvals).
    fn access(&self, _: &Home<'_>, _: &mut Access, _: &mut Access) {}

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        if !setup.options().dry_run {
            let (client, home) = (setup.client.clone(), setup.namespace().to_owned());
            setup.manager.leader_task("left-behind", self.run(client, home));
        }
        std::future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, second: i64) -> Entry {
        let subject = Subject { kind: "OZGroup".to_owned(), namespace: Some("shop".to_owned()), name: name.to_owned() };
        Entry::new(&subject, "left behind group devs (g1)", Timestamp::from_second(second).unwrap())
    }

    fn data(entries: impl IntoIterator<Item = Entry>) -> BTreeMap<String, String> {
        entries.into_iter().map(|entry| (entry.key(), json!(entry).to_string())).collect()
    }

    #[test]
    fn equal_items_are_one_entry_and_the_oldest_entries_go() {
        let added = |data: &BTreeMap<String, String>, entry: &Entry| {
            let change = addition(data, entry)?;
            Some(change.into_iter().map(|(key, text)| (key, !text.is_null())).collect::<Vec<_>>())
        };
        assert_eq!(added(&data([]), &entry("devs", 1)), Some(vec![(entry("devs", 1).key(), true)]));
        assert_eq!(added(&data([entry("devs", 1)]), &entry("devs", 9)), None);
        let full = data((0..500).map(|number| entry(&format!("g-{number}"), 1000 - number)));
        let change = added(&full, &entry("devs", 2000)).unwrap();
        let expected: BTreeSet<_> = [(entry("devs", 1).key(), true), (entry("g-499", 1).key(), false)].into();
        assert_eq!(change.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn entries_are_shown_for_their_namespace() {
        let mut list = ConfigMap { data: Some(data([entry("devs", 1)])), ..ConfigMap::default() };
        list.data.get_or_insert_default().insert("other".to_owned(), "not an entry".to_owned());
        for (namespace, expected) in [(None, 1), (Some("shop"), 1), (Some("elsewhere"), 0)] {
            let entries = Entry::of(&list, namespace);
            assert_eq!(entries.len(), expected, "{namespace:?}");
            let sentence = "left behind group devs (g1) (of shop/OZGroup/devs)";
            assert!(entries.iter().all(|entry| entry.sentence() == sentence), "{entries:?}");
        }
    }
}
