//! The journal in real Secrets: kept together, recalled, given back.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use konverge_push::{
    journal::{Journal, LABEL},
    object::{Kind, ObjectRef},
    record::{Record, Written},
};
use konverge_testkit::eventually;
use konverge_vault::{KvVersion, Location, Mount, SecretPath};
use kube::{Api, Client, api::ListParams};
use serde_json::Value;
use tokio::{spawn, task::JoinHandle};

use crate::world::{SOON, control_plane};

async fn stage(name: &str) -> (Client, String) {
    let plane = control_plane().await;
    (plane.admin_client().await.unwrap(), plane.namespace(name).await.unwrap())
}

/// The part of it that one process has. It writes as long as this is there.
struct Replica {
    journal: Journal,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(client: &Client, namespace: &str) -> (Self, BTreeSet<String>) {
        let (journal, task) = Journal::new(client.clone(), namespace);
        let recalled = journal.recall().await.unwrap();
        (Self { journal, task: spawn(task) }, recalled.into_iter().map(|key| key.name).collect())
    }

    async fn intend(&self, name: &str) -> bool {
        let (key, record) = (object(name), record(name));
        self.journal.intend(&key, &record, [], true).await.unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn object(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: name.to_owned() }
}

fn location(name: &str) -> Location {
    let path = SecretPath::parse(&format!("secret/data/{name}")).unwrap();
    Mount::new("secret", KvVersion::Two).location(&path).unwrap()
}

fn record(name: &str) -> Record {
    let mut record = Record::new(name, Timestamp::UNIX_EPOCH);
    let location = location(name);
    record.paths.insert(location.to_string(), Written::intended(&location));
    record
}

/// Of which objects the batches are that are kept.
async fn kept(client: &Client, namespace: &str) -> Vec<BTreeSet<String>> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let batches = api.list(&ListParams::default().labels(LABEL)).await.unwrap();
    let names = |batch: Secret| {
        let entries: Vec<Value> = serde_json::from_slice(&batch.data.unwrap()["entries"].0).unwrap();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    batches.items.into_iter().map(names).collect()
}

fn names(kept: &[BTreeSet<String>]) -> BTreeSet<String> {
    kept.iter().flatten().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_together_is_noted_together_and_recalled_by_who_comes_after() {
    let (client, namespace) = stage("journal").await;
    let all: BTreeSet<String> = (0..20).map(|number| format!("db-{number}")).collect();
    let (one, recalled) = Replica::start(&client, &namespace).await;
    assert_eq!(recalled, BTreeSet::new());
    assert_eq!(
        kept(&client, &namespace).await,
        Vec::<BTreeSet<_>>::new(),
        "nothing is written before there is something"
    );
    assert!(join_all(all.iter().map(|name| one.intend(name))).await.into_iter().all(|noted| noted));
    let batches = kept(&client, &namespace).await;
    assert_eq!(names(&batches), all);
    assert!(batches.len() <= 2, "who comes within a moment is noted with the first: {batches:?}");
    assert!(all.iter().all(|name| one.journal.speaks_of(&object(name))));
    drop(one);

    let (two, recalled) = Replica::start(&client, &namespace).await;
    assert_eq!(recalled, all);
    assert_eq!(two.journal.recall().await.unwrap(), [], "once");
    let intention = &two.journal.about(&object("db-7"))[0];
    assert_eq!(intention.record().paths.keys().collect::<Vec<_>>(), ["secret/data/db-7"]);
    for name in all.iter().filter(|name| *name != "db-7") {
        two.journal.resolve(&object(name));
    }
    assert!(two.intend("new").await);
    let left = names(&kept(&client, &namespace).await);
    assert!(left.contains("db-7") && left.contains("new"), "{left:?}");
    two.journal.resolve(&object("db-7"));
    two.journal.resolve(&object("new"));
    let empty = || async { kept(&client, &namespace).await.is_empty().then_some(()) };
    eventually(SOON, empty).await.expect("a batch goes with its last object");
}
