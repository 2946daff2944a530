//! Requests that disappear for a moment, and objects that take over a path: the content in Vault stays readable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use konverge_testkit::{Process, ProcessSpec, http_get};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::stage::{Result, Running, Stage, View, until};

/// Reads paths continuously, and counts failed reads.
struct Reader {
    stopped: Arc<AtomicBool>,
    gaps: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Reader {
    fn start(view: &Arc<View>, paths: &[&String]) -> Self {
        let (stopped, gaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let paths: Vec<String> = paths.iter().map(|path| (*path).clone()).collect();
        let (view, stop, count) = (Arc::clone(view), Arc::clone(&stopped), Arc::clone(&gaps));
        let task = tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                for path in &paths {
                    if view.read(path).await.unwrap().is_none() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
                sleep(Duration::from_millis(3)).await;
            }
        });
        Self { stopped, gaps, task }
    }

    /// Returns the number of failed reads.
    async fn stop(self) -> usize {
        self.stopped.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
        self.gaps.load(Ordering::SeqCst)
    }
}

async fn setting(name: &str, change: impl FnOnce(ProcessSpec) -> ProcessSpec) -> (Arc<View>, Running) {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace(name).await.unwrap();
    let view = Arc::new(stage.view(&namespace).await);
    let operator = stage.start(&namespace, change).await;
    (view, operator)
}

fn grace(grace: &'static str) -> impl FnOnce(ProcessSpec) -> ProcessSpec {
    move |spec| spec.arg(format!("-deletion-grace={grace}"))
}

async fn state(view: &View, kind: &str, name: &str) -> Result<Value> {
    Ok(view.record(kind, name).await?.map(|record| record["state"].clone()).unwrap_or_default())
}

async fn until_synced(view: &View, kind: &str, name: &str, path: &str) {
    until("it is in sync", async || view.is_synced(kind, name, &[path]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_returns_within_the_grace_period_finds_its_content() {
    let (view, operator) = setting("flap", grace("20s")).await;
    let path = view.path("db");
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    let reader = Reader::start(&view, &[&path]);
    view.annotate("Secret", "db", json!({ "vault-sync.io/path": null })).await.unwrap();
    until("the removal is noted", async || Ok(state(&view, "Secret", "db").await? == "DeletionPending")).await;
    let noted = view.record("Secret", "db").await.unwrap().unwrap();
    assert!(noted["paths"][&path]["unwanted"].is_string(), "{noted}");
    assert!(noted["message"].as_str().unwrap().contains(&path), "{noted}");
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    assert!(view.holds(&path, "n", "2").await.unwrap());
    let noted = view.record("Secret", "db").await.unwrap().unwrap();
    assert_eq!(noted["paths"][&path].get("unwanted"), None, "the deletion is cancelled");
    assert_eq!(reader.stop().await, 0);
    drop(operator);
}

/// Returns the time in the note of the event `DeletionPending` about an object.
async fn announced_deletion(view: &View, name: &str) -> Result<Option<Timestamp>> {
    let events = Api::<Event>::namespaced(view.client.clone(), &view.namespace).list(&ListParams::default()).await?;
    let is_about = |event: &&Event| {
        let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        event.reason.as_deref() == Some("DeletionPending") && regarding == Some(name)
    };
    let note = events.items.iter().find(is_about).and_then(|event| event.note.clone()).unwrap_or_default();
    Ok(note.split(' ').find_map(|word| word.trim_end_matches(':').parse().ok()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_deletion_is_announced_with_its_time() {
    let (view, _operator) = setting("announced", grace("1h")).await;
    let [removed, old, new] = ["removed", "old", "new"].map(|rest| view.path(rest));
    view.secret("db", &[("n", "1")], Some(&removed)).await.unwrap();
    view.secret("source", &[("n", "1")], None).await.unwrap();
    view.vault_push("moved", "source", &old).await.unwrap();
    until_synced(&view, "Secret", "db", &removed).await;
    until_synced(&view, "VaultPush", "moved", &old).await;
    view.annotate("Secret", "db", json!({ "vault-sync.io/path": null })).await.unwrap();
    view.vault_push("moved", "source", &new).await.unwrap();
    for (kind, name, path) in [("Secret", "db", &removed), ("VaultPush", "moved", &old)] {
        until("the event names the time", async || Ok(announced_deletion(&view, name).await?.is_some())).await;
        let announced = announced_deletion(&view, name).await.unwrap().unwrap();
        let record = view.record(kind, name).await.unwrap().unwrap();
        let since: Timestamp = record["paths"][path]["unwanted"].as_str().unwrap().parse().unwrap();
        let wrong_by = announced.duration_since(since + SignedDuration::from_hours(1)).abs();
        assert!(wrong_by <= SignedDuration::from_secs(1), "{name}: {announced}, {record}");
    }
    until("the condition names the path", async || {
        let object = view.api("VaultPush").get("moved").await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
        let message = ready["message"].as_str().unwrap_or_default();
        Ok(ready["status"] == "True" && message.contains("deleted after the grace period") && message.contains(&old))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_stays_away_is_cleared_after_the_grace_period_whoever_restarts() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("away").await.unwrap();
    let view = stage.view(&namespace).await;
    let operator = stage.start(&namespace, grace("6s")).await;
    let [path, left, right] = ["db", "app/left", "app/right"].map(|rest| view.path(rest));
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    view.secret("left", &[("n", "1")], None).await.unwrap();
    view.secret("right", &[("n", "1")], None).await.unwrap();
    view.deployment("app", "left", &view.path("app")).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    until_synced(&view, "Deployment", "app", &left).await;
    view.annotate("Secret", "db", json!({ "vault-sync.io/path": null })).await.unwrap();
    // The Deployment names another Secret, as after an error in a template.
    view.deployment("app", "right", &view.path("app")).await.unwrap();
    until("both are noted", async || {
        let app = view.record("Deployment", "app").await?.unwrap_or_default();
        Ok(state(&view, "Secret", "db").await? == "DeletionPending" && app["paths"][&left]["unwanted"].is_string())
    })
    .await;
    drop(operator);
    let _operator = stage.start(&namespace, grace("6s")).await;
    assert!(view.read(&path).await.unwrap().is_some() && view.read(&left).await.unwrap().is_some(), "it is too early");
    until("both are cleared", async || Ok(view.read(&path).await?.is_none() && view.read(&left).await?.is_none()))
        .await;
    until("the Secret is released", async || Ok(view.record("Secret", "db").await?.is_none())).await;
    until_synced(&view, "Deployment", "app", &right).await;
    assert!(view.holds(&right, "n", "1").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_has_the_content_deleted_now() {
    let (view, _operator) = setting("now", grace("1h")).await;
    let path = view.path("db");
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    view.annotate("Secret", "db", json!({ "vault-sync.io/path": null })).await.unwrap();
    until("the removal is noted", async || Ok(state(&view, "Secret", "db").await? == "DeletionPending")).await;
    assert!(view.holds(&path, "n", "1").await.unwrap());
    view.annotate("Secret", "db", json!({ "vault-sync.io/deletion-grace": "0s" })).await.unwrap();
    until("it is cleared", async || Ok(view.read(&path).await?.is_none())).await;
    until("the Secret is released", async || Ok(view.record("Secret", "db").await?.is_none())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_replaced_without_annotations_is_still_known() {
    let (view, _operator) = setting("replaced", grace("8s")).await;
    let [stays, goes] = ["stays", "goes"].map(|rest| view.path(rest));
    for (name, path) in [("stays", &stays), ("goes", &goes)] {
        view.secret(name, &[("n", "1")], Some(path)).await.unwrap();
        until_synced(&view, "Secret", name, path).await;
        // Like `kubectl replace`, which removes the request, the record and the finalizer at once.
        let bare =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "n": "2" } });
        let bare = serde_json::from_value(bare).unwrap();
        view.api("Secret").replace(name, &PostParams::default(), &bare).await.unwrap();
    }
    view.delete("Secret", "goes").await.unwrap();
    until("the other one bears its record again", async || {
        Ok(state(&view, "Secret", "stays").await? == "DeletionPending")
    })
    .await;
    assert!(view.holds(&stays, "n", "1").await.unwrap());
    until("both are cleared", async || Ok(view.read(&stays).await?.is_none() && view.read(&goes).await?.is_none()))
        .await;
    assert!(!view.versions(&stays).await.unwrap().1 && !view.versions(&goes).await.unwrap().1, "no mark is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_loses_its_object_while_the_operator_is_away_is_found_and_cleared_unless_another_requests_it() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("unseen").await.unwrap();
    let view = Arc::new(stage.view(&namespace).await);
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let start = || {
        let (spec, health, metrics) = stage.operator(&kubeconfig, &namespace, stage.server.address());
        let spec = spec.args(["-deletion-grace=15s", "-enable-metrics-auth=false"]);
        (Process::start(stage.plane.run_directory(), spec).unwrap(), health, metrics)
    };
    let [stays, replaced, gone, inherited, key] =
        ["stays", "replaced", "gone", "inherited", "shared"].map(|rest| view.path(rest));
    let (first, ..) = start();
    for (name, path) in [("stays", &stays), ("replaced", &replaced), ("gone", &gone), ("inherited", &inherited)] {
        view.secret(name, &[("n", "1")], Some(path)).await.unwrap();
        until_synced(&view, "Secret", name, path).await;
    }
    view.secret("one", &[("a", "1")], None).await.unwrap();
    view.secret("two", &[("b", "1")], None).await.unwrap();
    for name in ["one", "two"] {
        view.vault_push(name, name, &key).await.unwrap();
        until_synced(&view, "VaultPush", name, &key).await;
    }
    drop(first);

    let bare = |name: &str| {
        let bare = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": {} });
        serde_json::from_value(bare).unwrap()
    };
    for name in ["replaced", "gone", "inherited"] {
        view.api("Secret").replace(name, &PostParams::default(), &bare(name)).await.unwrap();
    }
    view.delete("Secret", "gone").await.unwrap();
    let unheld = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    view.api("VaultPush").patch("one", &PatchParams::default(), &unheld).await.unwrap();
    view.delete("VaultPush", "one").await.unwrap();
    view.secret("heir", &[("n", "1")], Some(&inherited)).await.unwrap();
    let reader = Reader::start(&view, &[&inherited, &stays, &key]);

    let (_second, _, metrics) = start();
    let lists: Api<ConfigMap> = Api::namespaced(view.client.clone(), &home);
    until("what is left is listed with its time", async || {
        let list = lists.get_opt("vault-sync-operator-orphans").await?.and_then(|list| list.data).unwrap_or_default();
        let is_listed = |name: &&str| {
            let is_its = |text: &&String| text.contains(&format!("\"name\":\"{name}\"")) && text.contains("\"due\"");
            list.values().any(|text| is_its(&text))
        };
        // The heir has the fourth at once.
        Ok(["replaced", "gone", "one"].iter().all(is_listed))
    })
    .await;
    assert!(view.read(&replaced).await.unwrap().is_some() && view.read(&gone).await.unwrap().is_some(), "too early");
    until("all are counted", async || {
        Ok(http_get(&metrics, "/metrics").await?.1.contains("konverge_push_orphans_found_total 4"))
    })
    .await;
    until_synced(&view, "Secret", "heir", &inherited).await;
    until("both are cleared", async || Ok(view.read(&replaced).await?.is_none() && view.read(&gone).await?.is_none()))
        .await;
    until("the key is cleared", async || view.holds(&key, "b", "1").await).await;
    assert_eq!(reader.stop().await, 0);
    assert!(view.holds(&stays, "n", "1").await.unwrap() && view.holds(&inherited, "n", "1").await.unwrap());
    assert!(!view.versions(&replaced).await.unwrap().1 && !view.versions(&gone).await.unwrap().1, "no mark is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_takes_a_path_over_never_finds_it_empty() {
    for (name, flag) in [("handover", "5m"), ("handover-now", "0s")] {
        let (view, _operator) = setting(name, grace(flag)).await;
        let [soft, hard] = ["soft/db", "hard/db"].map(|rest| view.path(rest));
        view.secret("db", &[("n", "1")], None).await.unwrap();
        for (old, folder, policy) in [("old", "soft", "soft"), ("older", "hard", "destroy")] {
            view.deployment(old, "db", &view.path(folder)).await.unwrap();
            view.annotate("Deployment", old, json!({ "vault-sync.io/deletion-policy": policy })).await.unwrap();
        }
        until_synced(&view, "Deployment", "old", &soft).await;
        until_synced(&view, "Deployment", "older", &hard).await;
        view.secret("db", &[("n", "2")], None).await.unwrap();
        until("the new value is there", async || {
            Ok(view.holds(&soft, "n", "2").await? && view.holds(&hard, "n", "2").await?)
        })
        .await;
        for (new, folder, policy) in [("new", "soft", "soft"), ("newer", "hard", "destroy")] {
            view.deployment(new, "db", &view.path(folder)).await.unwrap();
            view.annotate("Deployment", new, json!({ "vault-sync.io/deletion-policy": policy })).await.unwrap();
            until("it waits", async || Ok(state(&view, "Deployment", new).await? == "OwnedByAnother")).await;
        }
        let reader = Reader::start(&view, &[&soft, &hard]);
        view.delete("Deployment", "old").await.unwrap();
        view.delete("Deployment", "older").await.unwrap();
        until_synced(&view, "Deployment", "new", &soft).await;
        until_synced(&view, "Deployment", "newer", &hard).await;
        assert_eq!(reader.stop().await, 0, "{flag}");
        assert_eq!(view.versions(&hard).await.unwrap(), (2, true), "{flag}: nothing was written anew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_a_living_object_leaves_goes_to_the_object_that_waits_for_it() {
    let (view, _operator) = setting("left", grace("5m")).await;
    let [whole, first, second] = ["whole", "first", "second"].map(|rest| view.path(rest));
    let destroy = json!({ "vault-sync.io/deletion-policy": "destroy" });
    view.secret("db", &[("n", "1")], None).await.unwrap();
    view.secret("old", &[("n", "1")], Some(&whole)).await.unwrap();
    view.annotate("Secret", "old", destroy.clone()).await.unwrap();
    view.deployment("app", "db", &first).await.unwrap();
    view.annotate("Deployment", "app", destroy.clone()).await.unwrap();
    let [first, second] = [first, second].map(|folder| format!("{folder}/db"));
    until_synced(&view, "Secret", "old", &whole).await;
    until_synced(&view, "Deployment", "app", &first).await;
    let reader = Reader::start(&view, &[&whole, &first]);

    // The heirs come before the objects leave the paths.
    view.secret("new", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("heir", "db", &view.path("first")).await.unwrap();
    for (kind, name) in [("Secret", "new"), ("Deployment", "heir")] {
        until("it waits", async || Ok(state(&view, kind, name).await? == "OwnedByAnother")).await;
    }
    view.annotate("Secret", "old", json!({ "vault-sync.io/path": null })).await.unwrap();
    view.annotate("Deployment", "app", json!({ "vault-sync.io/path": view.path("second") })).await.unwrap();
    until_synced(&view, "Secret", "new", &whole).await;
    until_synced(&view, "Deployment", "heir", &first).await;
    until_synced(&view, "Deployment", "app", &second).await;
    until("the object that requests nothing is let go", async || Ok(view.record("Secret", "old").await?.is_none()))
        .await;

    // The heirs of these come when the objects have left the paths.
    for (kind, name) in [("Secret", "new"), ("Deployment", "heir")] {
        view.annotate(kind, name, destroy.clone()).await.unwrap();
        view.annotate(kind, name, json!({ "vault-sync.io/path": null })).await.unwrap();
        until("it waits", async || Ok(state(&view, kind, name).await? == "DeletionPending")).await;
    }
    view.secret("last", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("last", "db", &view.path("first")).await.unwrap();
    until_synced(&view, "Secret", "last", &whole).await;
    until_synced(&view, "Deployment", "last", &first).await;
    assert_eq!(reader.stop().await, 0);
    for path in [&whole, &first] {
        assert_eq!(view.versions(path).await.unwrap(), (1, true), "{path}: nothing was written anew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_deleted_and_made_again_keeps_its_content() {
    let (view, _operator) = setting("forced", grace("5m")).await;
    let [path, soft] = ["db", "app/db"].map(|rest| view.path(rest));
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    view.deployment("app", "db", &view.path("app")).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    until_synced(&view, "Deployment", "app", &soft).await;
    let reader = Reader::start(&view, &[&path, &soft]);
    // Like `kubectl replace --force`, which waits until the object is gone.
    view.api("Secret").delete("db", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || view.is_gone("Secret", "db").await).await;
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    // An object with another name takes over the path of a third one, some time later.
    view.delete("Deployment", "app").await.unwrap();
    until("it is gone", async || view.is_gone("Deployment", "app").await).await;
    view.deployment("renamed", "db", &view.path("app")).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    until_synced(&view, "Deployment", "renamed", &soft).await;
    assert!(view.holds(&path, "n", "2").await.unwrap());
    // Time has to pass: the content would go after ten seconds.
    sleep(Duration::from_secs(12)).await;
    assert_eq!(reader.stop().await, 0);
    // Without an heir, it goes.
    view.delete("Deployment", "renamed").await.unwrap();
    view.delete("Secret", "db").await.unwrap();
    until("they are gone", async || {
        Ok(view.is_gone("Secret", "db").await? && view.is_gone("Deployment", "renamed").await?)
    })
    .await;
    assert!(view.read(&path).await.unwrap().is_some(), "not yet");
    until("both are cleared", async || Ok(view.read(&path).await?.is_none() && view.read(&soft).await?.is_none()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_another_object_requests_stay_when_their_owner_goes() {
    let (view, _operator) = setting("keys", grace("0s")).await;
    let path = view.path("shared");
    view.secret("one", &[("a", "1"), ("b", "1")], None).await.unwrap();
    view.secret("two", &[("b", "1")], None).await.unwrap();
    view.vault_push("one", "one", &path).await.unwrap();
    until_synced(&view, "VaultPush", "one", &path).await;
    view.vault_push("two", "two", &path).await.unwrap();
    until("it waits", async || Ok(state(&view, "VaultPush", "two").await? == "OwnedByAnother")).await;
    let reader = Reader::start(&view, &[&path]);
    view.delete("VaultPush", "one").await.unwrap();
    until_synced(&view, "VaultPush", "two", &path).await;
    until("only its key is there", async || view.holds(&path, "b", "1").await).await;
    assert_eq!(reader.stop().await, 0);
}

/// Pushes more Secrets than may be deleted without an approval. Returns their names.
async fn seven_pushes(view: &View) -> Vec<String> {
    let names: Vec<_> = (0..7).map(|number| format!("db-{number}")).collect();
    for name in &names {
        view.secret(name, &[("n", "1")], Some(&view.path(name))).await.unwrap();
    }
    for name in &names {
        until_synced(view, "Secret", name, &view.path(name)).await;
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_deletions_wait_for_an_approval() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("many").await.unwrap();
    let view = stage.view(&namespace).await;
    // Its list of orphans has the approval, so it is its own.
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let start = || {
        let (spec, health, metrics) = stage.operator(&kubeconfig, &namespace, stage.server.address());
        let spec = spec.args(["-deletion-grace=3s", "-allow-deletes=false", "-enable-metrics-auth=false"]);
        (Process::start(stage.plane.run_directory(), spec).unwrap(), health, metrics)
    };
    let (mut operator, health, metrics) = start();
    let names = seven_pushes(&view).await;
    // One mistake: a chart without its annotations. Two of the objects are deleted on top of that.
    for name in &names {
        view.annotate("Secret", name, json!({ "vault-sync.io/path": null })).await.unwrap();
    }
    for name in &names[..2] {
        view.delete("Secret", name).await.unwrap();
    }
    for name in &names[2..] {
        until("it is stopped", async || Ok(state(&view, "Secret", name).await? == "DeletionsStopped")).await;
    }
    until("the deleted ones are gone", async || {
        Ok(view.is_gone("Secret", &names[0]).await? && view.is_gone("Secret", &names[1]).await?)
    })
    .await;
    let metrics = http_get(&metrics, "/metrics").await.unwrap().1;
    assert!(metrics.contains("konverge_push_deletions_stopped 7"), "{metrics}");
    let ready = http_get(&health, "/readyz?verbose").await.unwrap().1;
    assert!(ready.contains("7 deletions are requested"), "{ready}");
    let lists = Api::<ConfigMap>::namespaced(view.client.clone(), &home);
    until("the list of orphans says so", async || {
        let list = lists.get_opt("vault-sync-operator-orphans").await?;
        Ok(list.is_some_and(|list| list.annotations().contains_key("vault-sync.io/deletions-stopped")))
    })
    .await;
    for name in &names {
        assert!(view.holds(&view.path(name), "n", "1").await.unwrap(), "{name}");
    }
    until("an event says so", async || {
        let events = Api::<Event>::namespaced(view.client.clone(), &namespace).list(&ListParams::default()).await?;
        Ok(events.items.iter().any(|event| event.reason.as_deref() == Some("DeletionsStopped")))
    })
    .await;
    // A restart forgets none of them, and begins no new budget.
    operator.terminate(Duration::from_secs(20)).await.unwrap();
    let (_operator, health, _) = start();
    until("it is stopped again", async || {
        Ok(http_get(&health, "/readyz?verbose").await.is_ok_and(|(_, ready)| ready.contains("deletions are requested")))
    })
    .await;
    // Time has to pass: what goes wrong goes wrong within moments.
    sleep(Duration::from_secs(3)).await;
    for name in &names {
        assert!(view.holds(&view.path(name), "n", "1").await.unwrap(), "{name} after a restart");
    }
    let ready = http_get(&health, "/readyz?verbose").await.unwrap().1;
    assert!(ready.contains("7 deletions are requested"), "{ready}");
    // One that returns leaves six. That is still too many.
    view.annotate("Secret", &names[6], json!({ "vault-sync.io/path": view.path(&names[6]) })).await.unwrap();
    until_synced(&view, "Secret", &names[6], &view.path(&names[6])).await;
    assert!(view.holds(&view.path(&names[2]), "n", "1").await.unwrap());
    // As `kubectl konverge approve` does.
    let approved = json!({ "metadata": { "annotations": { "vault-sync.io/approve-deletions": "true" } } });
    lists.patch("vault-sync-operator-orphans", &PatchParams::default(), &Patch::Merge(&approved)).await.unwrap();
    until("six are cleared", async || {
        for name in &names[..6] {
            if view.read(&view.path(name)).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await;
    assert!(view.holds(&view.path(&names[6]), "n", "1").await.unwrap());
    until("nothing is stopped any more", async || {
        let list = lists.get("vault-sync-operator-orphans").await?;
        Ok(!list.annotations().keys().any(|key| key.starts_with("vault-sync.io/")))
    })
    .await;
}

/// Without room or permission for the list of orphans, a deleted object has nothing but the guard.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_deleted_objects_leave_their_content_behind_if_they_cannot_be_listed() {
    let stage = Stage::shared().await;
    for is_full in [true, false] {
        let namespace = stage.plane.namespace("unlisted").await.unwrap();
        let view = stage.view(&namespace).await;
        // As with the role of the original.
        let (home, kubeconfig) = stage
            .another(|manifest| {
                if is_full { manifest } else { manifest.replace("resources: [configmaps]", "resources: [nothing]") }
            })
            .await;
        if is_full {
            let full = json!({ "metadata": { "name": "vault-sync-operator-orphans" }, "data": { "full": "x".repeat(1024 * 1024 - 50) } });
            let lists = Api::<ConfigMap>::namespaced(view.client.clone(), &home);
            lists.create(&PostParams::default(), &serde_json::from_value(full).unwrap()).await.unwrap();
        }
        let (spec, ..) = stage.operator(&kubeconfig, &namespace, stage.server.address());
        let spec = spec.args(["-deletion-grace=5m", "-allow-deletes=false"]);
        let spec = spec.args(["-finalizer-deadline=12s", "-terminating-namespace-deadline=3s"]);
        let _operator = Process::start(stage.plane.run_directory(), spec).unwrap();
        let names = seven_pushes(&view).await;
        for name in &names {
            view.delete("Secret", name).await.unwrap();
        }
        for name in &names {
            until("it is let go", async || view.is_gone("Secret", name).await).await;
        }
        let mut left = Vec::new();
        for name in &names {
            if view.holds(&view.path(name), "n", "1").await.unwrap() {
                left.push(name);
            }
        }
        // The operator deleted the first ones before it knew that there are too many.
        assert!(left.len() >= 2, "full: {is_full}, left: {left:?}");
        for name in left {
            until("an event names what is left", async || {
                let events =
                    Api::<Event>::namespaced(view.client.clone(), &namespace).list(&ListParams::default()).await?;
                Ok(events.items.iter().any(|event| {
                    event.reason.as_deref() == Some("ReleasedWithOrphans")
                        && event.regarding.as_ref().and_then(|object| object.name.as_ref()) == Some(name)
                        && event.note.as_ref().is_some_and(|note| note.contains("deletions are requested"))
                }))
            })
            .await;
        }
    }
}

/// Another prefix would make every path obsolete at once.
#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_name_writes_the_new_paths_and_deletes_no_old_one_without_an_approval() {
    let stage = Stage::shared().await;
    for cluster in ["c1", "c2"] {
        stage.server.mount_kv(&format!("clusters/{cluster}/secret"), 2).await.unwrap();
    }
    let namespace = stage.plane.namespace("renamed").await.unwrap();
    let view = stage.view(&namespace).await;
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let start = |cluster: &str| {
        let (spec, ..) = stage.operator(&kubeconfig, &namespace, stage.server.address());
        let spec = spec.args(["-deletion-grace=1s", "-allow-deletes=false", "-cluster-name", cluster]);
        Process::start(stage.plane.run_directory(), spec).unwrap()
    };
    let names: Vec<_> = (0..6).map(|number| format!("db-{number}")).collect();
    let at = |cluster: &str, name: &str| format!("clusters/{cluster}/{}", view.path(name));
    let mut operator = start("c1");
    for name in &names {
        view.secret(name, &[("n", "1")], Some(&view.path(name))).await.unwrap();
    }
    for name in &names {
        until("it is in sync", async || view.is_synced("Secret", name, &[&at("c1", name)]).await).await;
    }
    operator.terminate(Duration::from_secs(20)).await.unwrap();

    let _operator = start("c2");
    let lists = Api::<ConfigMap>::namespaced(view.client.clone(), &home);
    until("the list of orphans says that deletions are stopped", async || {
        let list = lists.get_opt("vault-sync-operator-orphans").await?;
        let why = list.and_then(|list| list.annotations().get("vault-sync.io/deletions-stopped").cloned());
        Ok(why.is_some_and(|why| why.starts_with("6 deletions are requested")))
    })
    .await;
    until("an event about the list says so", async || {
        let events = Api::<Event>::namespaced(view.client.clone(), &home).list(&ListParams::default()).await?;
        Ok(events.items.iter().any(|event| {
            let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            event.reason.as_deref() == Some("DeletionsStopped") && regarding == Some("vault-sync-operator-orphans")
        }))
    })
    .await;
    for name in &names {
        until("the new path is written", async || view.holds(&at("c2", name), "n", "1").await).await;
        assert!(view.holds(&at("c1", name), "n", "1").await.unwrap(), "{name}");
    }
    let approved = json!({ "metadata": { "annotations": { "vault-sync.io/approve-deletions": "true" } } });
    lists.patch("vault-sync-operator-orphans", &PatchParams::default(), &Patch::Merge(&approved)).await.unwrap();
    for name in &names {
        until("the old path is cleared", async || Ok(view.read(&at("c1", name)).await?.is_none())).await;
        assert!(view.holds(&at("c2", name), "n", "1").await.unwrap(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_vault_deletes_by_itself_is_written_again() {
    let (view, _operator) = setting("expiring", grace("5m")).await;
    let path = view.path("db");
    let metadata = path.replace("/data/", "/metadata/");
    let server = &Stage::shared().await.server;
    server.request("POST", &metadata, &json!({ "delete_version_after": "6s" })).await.unwrap();
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until_synced(&view, "Secret", "db", &path).await;
    for version in 2..4 {
        until("it is deleted", async || Ok(view.read(&path).await?.is_none())).await;
        until("it is written again", async || view.holds(&path, "n", "1").await).await;
        assert_eq!(view.versions(&path).await.unwrap().0, version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_push_names_its_secret_as_it_likes() {
    let (view, _operator) = setting("routes", grace("0s")).await;
    let engine = view.namespace.clone();
    Stage::shared().await.server.mount_kv(&engine, 2).await.unwrap();
    view.secret("db", &[("n", "1")], None).await.unwrap();
    let routes = ["metadata", "delete", "undelete", "destroy", "subkeys", "config", "detailed-metadata", "data"];
    for route in routes {
        let spec = json!({ "secrets": { "names": ["db"] }, "mount": engine, "path": format!("{route}/db") });
        let metadata = json!({ "name": route });
        let object =
            json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": metadata, "spec": spec });
        let parameters = PatchParams::apply("user").force();
        view.api("VaultPush").patch(route, &parameters, &Patch::Apply(&object)).await.unwrap();
    }
    for route in routes {
        let path = format!("{engine}/data/{route}/db");
        until_synced(&view, "VaultPush", route, &path).await;
        assert!(view.holds(&path, "n", "1").await.unwrap(), "{path}");
        view.delete("VaultPush", route).await.unwrap();
        until("it is cleared", async || Ok(view.read(&path).await?.is_none())).await;
    }
}
