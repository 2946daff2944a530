//! Content that is left behind is cleared later, and by then another owner may have the path.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::events::EventSink;
use konverge_core::deletion_guard::DeletionBudget;
use konverge_push::{
    annotations::APPROVE_DELETIONS,
    bindings::{Bindings, Share},
    deletions::Deletions,
    journal::Journal,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    orphans::{CONFIG_MAP, Clearing, Orphan, Orphans},
    record::{Record, Written},
    spec::DeletionPolicy,
    store::{Store, identity},
};
use konverge_runtime::{
    Queue,
    lease::{Elector, LeaseOptions},
};
use konverge_testkit::{client_for, fault_proxy::Plan};
use konverge_vault::{Found, Location, VaultError};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{World, until};

/// The part of the operator that clears what is left behind, without the rest of it.
struct Stage {
    world: World,
    store: Store,
    bindings: Arc<Bindings>,
    orphans: Orphans,
    clearing: Clearing,
    counts: Metrics,
    queue: Queue<ObjectRef>,
    deletions: Deletions,
}

/// A sink that drops its events.
fn unheard() -> EventSink {
    EventSink::dry_run(std::future::ready(())).0
}

impl Stage {
    async fn new() -> Self {
        let world = World::new().await;
        let client = world.client.clone();
        Self::with(world, client, None)
    }

    /// One that reaches the list of orphans by this client, and deletes no more than this without an approval.
    fn with(world: World, client: Client, budget: Option<DeletionBudget>) -> Self {
        let metrics = konverge_runtime::Metrics::new("test", "1");
        let counts = metrics.register(Metrics::new);
        let identity = identity(world.client.clone(), Some("one".to_owned()), || true);
        let store = Store::new(world.vault.clone(), counts.clone(), identity, None);
        let bindings = Arc::new(Bindings::default());
        let orphans = Orphans::new(client, &world.home);
        let queue = Queue::new("push", metrics.queues());
        let deletions = Deletions::new(budget, Duration::ZERO, Arc::clone(&bindings), Arc::default());
        let (list, heirs, work) = (orphans.clone(), Arc::clone(&bindings), queue.clone());
        let clearing = Clearing::new(list, store.clone(), heirs, work, counts.clone(), deletions.clone(), unheard());
        Self { world, store, bindings, orphans, clearing, counts, queue, deletions }
    }

    /// One in which each deletion needs an approval.
    fn strict(world: World, client: Client) -> Self {
        Self::with(world, client, Some(DeletionBudget { percent: 0, at_least: 0, at_most: 0 }))
    }

    fn key(&self, name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Secret, namespace: self.world.namespace.clone(), name: name.to_owned() }
    }

    /// The object `db` with this uid has written the path and is gone.
    async fn left(&self, uid: &str, path: &str) {
        let location = self.world.locate(path).await;
        let mut record = Record::new(uid, Timestamp::UNIX_EPOCH);
        record.paths.insert(location.to_string(), Written { written: true, ..Written::intended(&location) });
        self.orphans.add(&Orphan::new(&self.key("db"), record)).await.unwrap();
    }

    /// Like [`left`](Self::left), with a path in an engine without marks. Returns the path.
    async fn left_without_mark(&self) -> String {
        let path = format!("old/{}/db", self.world.namespace);
        self.world.write(&path, &[("k", "v")]).await;
        self.left("1", &path).await;
        path
    }

    /// Writes a path with the mark of the object `db`.
    async fn marked(&self) -> (String, Location) {
        let path = self.world.path("db");
        self.world.write(&path, &[("k", "v")]).await;
        let location = self.world.locate(&path).await;
        let found = self.store.read(&location).await.unwrap();
        let owner = self.store.owner(&self.key("db"), "1").await.unwrap();
        self.store.mark(&location, &owner, &found).await.unwrap();
        (path, location)
    }
}

#[tokio::test]
async fn without_marks_it_stays_for_whoever_has_the_path_by_now() {
    let mut stage = Stage::new().await;
    let path = format!("old/{}/db", stage.world.namespace);
    for name in ["db", "another"] {
        let heir = stage.key(name);
        stage.world.write(&path, &[("of", name)]).await;
        stage.left(name, &path).await;
        assert_eq!(stage.bindings.claim(&heir, &path, Share::Whole), Ok(()));
        assert_eq!(stage.clearing.clear().await.unwrap(), 0, "it is nobody's any more");
        stage.world.holds(&path, &[("of", name)]).await;
        stage.bindings.release(&heir, &path);
    }
    stage.left("db", &path).await;
    assert_eq!(stage.clearing.clear().await.unwrap(), 0);
    assert_eq!(stage.world.read(&path).await, None, "nobody has it");
    assert_eq!(stage.bindings.claim(&stage.key("another"), &path, Share::Whole), Ok(()), "it is free");
}

#[tokio::test]
async fn who_leads_no_more_clears_nothing_more() {
    let mut stage = Stage::new().await;
    let path = stage.left_without_mark().await;
    // It never gets the lease that it does not ask for.
    let elector = Elector::new(stage.world.client.clone(), LeaseOptions::new(&*stage.world.home, "nobodys"));
    let identity = identity(stage.world.client.clone(), Some("one".to_owned()), || true);
    let store = Store::new(stage.world.vault.clone(), stage.counts.clone(), identity, Some(elector.leadership()));
    let (bindings, orphans) = (Arc::clone(&stage.bindings), stage.orphans.clone());
    let deletions = Deletions::new(None, Duration::ZERO, Arc::clone(&bindings), Arc::default());
    let mut deposed =
        Clearing::new(orphans, store, bindings, stage.queue.clone(), stage.counts.clone(), deletions, unheard());
    assert_eq!(deposed.clear().await.unwrap(), 1);
    stage.world.holds(&path, &[("k", "v")]).await;
    assert_eq!(stage.clearing.clear().await.unwrap(), 0);
    assert_eq!(stage.world.read(&path).await, None);
}

#[tokio::test]
async fn a_replica_that_leads_no_more_writes_nothing_to_vault() {
    let stage = Stage::new().await;
    let path = stage.world.path("db");
    stage.world.write(&path, &[("k", "v")]).await;
    let location = stage.world.locate(&path).await;
    let elector = Elector::new(stage.world.client.clone(), LeaseOptions::new(&*stage.world.home, "nobodys"));
    let identity = identity(stage.world.client.clone(), Some("one".to_owned()), || true);
    let store = Store::new(stage.world.vault.clone(), stage.counts.clone(), identity, Some(elector.leadership()));
    let found = store.read(&location).await.unwrap();
    let Found::Live(secret) = &found else { panic!("it was just written") };
    let owner = store.owner(&stage.key("db"), "1").await.unwrap();
    let refused = [
        store.write(&location, &secret.content, found.expected()).await.unwrap_err(),
        store.create(&location, &secret.content).await.unwrap_err(),
        store.mark(&location, &owner, &found).await.unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, VaultError::NotLeading { .. })), "{refused:?}");
    assert!(stage.world.marks(&path).await.is_empty());
    stage.store.mark(&location, &owner, &found).await.unwrap();
}

#[tokio::test]
async fn what_carries_the_mark_goes_even_if_somebody_waits_for_the_path() {
    let mut stage = Stage::new().await;
    let (path, _) = stage.marked().await;
    stage.left("1", &path).await;
    assert_eq!(stage.bindings.claim(&stage.key("another"), &path, Share::Whole), Ok(()));
    assert_eq!(stage.clearing.clear().await.unwrap(), 0);
    assert_eq!(stage.world.read(&path).await, None);
    assert!(stage.world.marks(&path).await.is_empty(), "the other one can have it");
}

#[tokio::test]
async fn what_was_cleared_is_not_cleared_again_though_the_list_has_it_still() {
    let mut stage = Stage::new().await;
    let path = stage.left_without_mark().await;
    change(&stage.world, json!({ "immutable": true })).await;
    assert!(stage.clearing.clear().await.is_err(), "the list can't be changed");
    assert_eq!(stage.world.read(&path).await, None);
    stage.world.write(&path, &[("by", "hand")]).await;
    assert!(stage.clearing.clear().await.is_err());
    stage.world.holds(&path, &[("by", "hand")]).await;
}

/// Changes the list of orphans, as a person does.
async fn change(world: &World, change: Value) {
    let lists = Api::<ConfigMap>::namespaced(world.client.clone(), &world.home);
    lists.patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

/// Approves the deletions that wait.
async fn approve(world: &World) {
    change(world, json!({ "metadata": { "annotations": { APPROVE_DELETIONS: "true" } } })).await;
}

/// A user may write the record of an object.
#[tokio::test]
async fn the_orphans_of_one_namespace_do_not_fill_the_list() {
    let mut stage = Stage::new().await;
    let orphan = |namespace: &str, uid: String| {
        let mut record = Record::new(&uid, Timestamp::UNIX_EPOCH);
        record.paths = (0..100).map(|number| (format!("a/{number:0>500}"), Written::default())).collect();
        let key = ObjectRef { kind: Kind::Secret, namespace: namespace.to_owned(), name: uid };
        Orphan::new(&key, record)
    };
    let mut added = 0;
    let refused = loop {
        match stage.orphans.add(&orphan("forger", added.to_string())).await {
            Ok(()) => added += 1,
            Err(error) => break error,
        }
        assert!(added < 20, "no limit");
    };
    assert!(added > 0 && refused.is_final(), "{added}: {refused}");
    assert!(refused.to_string().contains("the entries of namespace forger would take up"), "{refused}");
    stage.orphans.add(&orphan("forger", "0".to_owned())).await.unwrap();
    stage.orphans.add(&orphan("other", "other".to_owned())).await.unwrap();
    assert_eq!(stage.clearing.clear().await.unwrap(), 0, "no path leads to an engine, so nothing is left");
}

#[tokio::test]
async fn what_a_person_takes_from_the_list_stops_no_deletion_any_more() {
    let world = World::new().await;
    let client = world.client.clone();
    let mut stage = Stage::strict(world, client);
    let path = stage.left_without_mark().await;
    assert_eq!(stage.clearing.clear().await.unwrap(), 1);
    assert!(stage.deletions.stopped().is_some());
    // A person looks after it.
    change(&stage.world, json!({ "data": { "1": null } })).await;
    assert_eq!(stage.clearing.clear().await.unwrap(), 0);
    assert_eq!(stage.deletions.stopped(), None, "nobody requests it");
    stage.world.holds(&path, &[("k", "v")]).await;
}

#[tokio::test]
async fn what_is_cleared_stops_no_deletion_though_the_list_has_it_still() {
    let world = World::new().await;
    let client = world.client.clone();
    let mut stage = Stage::strict(world, client);
    let path = stage.left_without_mark().await;
    assert_eq!(stage.clearing.clear().await.unwrap(), 1);
    approve(&stage.world).await;
    change(&stage.world, json!({ "immutable": true })).await;
    // It has changed the list itself by then, so it reads the list again before it takes the orphan from it.
    assert_eq!(stage.clearing.clear().await.unwrap(), 1);
    assert_eq!(stage.world.read(&path).await, None);
    let again = stage.clearing.clear().await;
    assert_eq!(stage.deletions.stopped(), None, "it is done");
    assert!(again.is_err(), "the list can't be changed");
}

#[tokio::test]
async fn an_approval_that_comes_while_the_list_is_written_counts() {
    let world = World::new().await;
    let proxy = world.proxy().await;
    let client = client_for(proxy.kubeconfig()).await.unwrap();
    let mut stage = Stage::strict(world, client);
    let path = stage.left_without_mark().await;
    let slow = "rules: [{ when: { verbs: [patch], resources: [configmaps], times: 1 }, then: { delay: 3s } }]";
    proxy.set(Plan::parse(slow).unwrap()).unwrap();
    // It tells that deletions are stopped.
    let approve = async {
        until("it is about to tell", async || if proxy.fired() == [1] { Ok(()) } else { Err("not yet") }).await;
        approve(&stage.world).await;
    };
    let (left, ()) = tokio::join!(stage.clearing.clear(), approve);
    assert_eq!(left.unwrap(), 1);
    until("the approval counts", async || match stage.clearing.clear().await.unwrap() {
        0 => Ok(()),
        left => Err(left),
    })
    .await;
    assert_eq!(stage.world.read(&path).await, None);
}

#[tokio::test]
async fn what_was_begun_to_be_kept_loses_its_mark_when_its_object_is_gone() {
    let stage = Stage::new().await;
    let (path, location) = stage.marked().await;
    let mut record = Record { deletion: DeletionPolicy::Keep, ..Record::new("1", Timestamp::UNIX_EPOCH) };
    record.paths.insert(location.to_string(), Written::intended(&location));
    let (journal, write) = Journal::new(stage.world.client.clone(), &stage.world.home);
    let writing = tokio::spawn(write);
    journal.recall().await.unwrap();
    assert!(journal.intend(&stage.key("db"), &record, [], true).await.unwrap());
    // The operator that began it is killed. The next one recalls that with its first work.
    writing.abort();
    stage.world.secret("other", &[("k", "v")], json!({ "vault-sync.io/path": stage.world.path("other") })).await;
    let _operator = stage.world.operator(&["--instance", "one"]).await;
    until("the mark is gone", async || {
        let marks = stage.world.marks(&path).await;
        if marks.is_empty() { Ok(()) } else { Err(format!("{marks:?}")) }
    })
    .await;
    stage.world.holds(&path, &[("k", "v")]).await;
}
