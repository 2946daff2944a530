//! Objects that are large on purpose: they take no memory that others need, and their status says why they are not written.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use konverge_push::content::LARGEST;
use konverge_testkit::{
    Process,
    fault_proxy::{FaultProxy, Plan},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    front::{self, FrontAction, FrontRequest},
    network_faults,
    stage::{SOON, Stage, View, until},
};

/// Nearly what a Secret holds at most.
const LARGE: usize = 900 << 10;

/// The memory that the operator may take in the end beyond that of the beginning: far more than it needs for one path, and far less
/// than that of all.
const ROOM: f64 = 96.0 * 1024.0 * 1024.0;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_multiplied_in_templates_and_lists_is_not_made_and_a_neighbour_notices_nothing() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("large").await.unwrap();
    let view = stage.view(&namespace).await;
    let neighbour = view.path("neighbour");
    view.secret("neighbour", &[("n", "0")], Some(&neighbour)).await.unwrap();
    let operator = stage.start(&namespace, |spec| spec).await;
    until("the neighbour is in sync", async || view.is_synced("Secret", "neighbour", &[&neighbour]).await).await;
    let before = operator.process.resident().unwrap();

    view.secret("small", &[("k", "v")], None).await.unwrap();
    view.secret("big", &[("k", &"x".repeat(LARGE))], None).await.unwrap();
    // These would take 90 to 270 MB each.
    let texts = json!({ "t": "${k}".repeat(300) });
    let one = json!({ "secrets": { "names": ["big"] }, "mount": "secret", "path": view.path_in_engine("one"), "templates": texts });
    push(&view, "one", one).await;
    let keys: Vec<Value> = (0..100).map(|number| json!({ "from": "k", "to": format!("k-{number}") })).collect();
    push(&view, "keys", json!({ "secrets": { "names": ["big"] }, "mount": "secret", "path": view.path_in_engine("keys"), "keys": keys })).await;
    let apart = json!({ "secrets": { "names": ["big", "small"] }, "mount": "secret", "path": view.path_in_engine("apart/{secret}"), "templates": texts });
    push(&view, "apart", apart).await;
    let entries: Vec<Value> =
        (0..300).map(|number| json!({ "name": "big", "keys": ["k"], "prefix": number.to_string() })).collect();
    view.secret("list", &[("k", "v")], Some(&view.path("list"))).await.unwrap();
    let list = json!({ "vault-sync.io/secrets": Value::from(entries).to_string() });
    view.annotate("Secret", "list", list).await.unwrap();

    for (step, (kind, name)) in
        [("VaultPush", "one"), ("VaultPush", "keys"), ("VaultPush", "apart"), ("Secret", "list")]
            .into_iter()
            .enumerate()
    {
        until(name, async || {
            let record = view.record(kind, name).await?.unwrap_or_default();
            let why = record["message"].as_str().unwrap_or_default();
            Ok(record["state"] == "ContentTooLarge" && why.contains(&LARGEST.to_string()))
        })
        .await;
        let value = (step + 1).to_string();
        view.secret("neighbour", &[("n", &value)], Some(&neighbour)).await.unwrap();
        until("the neighbour follows", async || view.holds(&neighbour, "n", &value).await).await;
    }
    assert_eq!(view.read(&view.path("apart/small")).await.unwrap().unwrap()["t"], "v".repeat(300), "its other path");
    for path in ["one", "keys", "apart/big"] {
        assert_eq!(view.read(&view.path(path)).await.unwrap(), None, "{path}");
    }
    let more = operator.process.resident().unwrap() - before;
    assert!(more < ROOM, "{more} bytes more than {before}");
}

/// Secrets that are too much to be read at once.
const SECRETS: usize = 12;

/// The number of objects that are surely made at once.
const PORTION: usize = 4;

/// The names of large Secrets, which are made.
async fn large_secrets(view: &View) -> Vec<String> {
    let names: Vec<String> = (0..SECRETS).map(|number| format!("s-{number:02}")).collect();
    for name in &names {
        view.secret(name, &[("k", &"x".repeat(LARGE)), ("n", name)], None).await.unwrap();
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn large_secrets_with_paths_of_their_own_are_written_one_after_another() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("large").await.unwrap();
    let view = stage.view(&namespace).await;
    let names = large_secrets(&view).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let operator = network_faults::start(stage, &namespace, &proxy, stage.server.address()).await;
    // A Secret that cannot be read yet does not delay others.
    let last = &names[SECRETS - 1];
    let refused = format!("rules: [{{ when: {{ verbs: [get], name: {last} }}, then: {{ status: {{ code: 403 }} }} }}]");
    proxy.set(Plan::parse(&refused).unwrap()).unwrap();
    let before = operator.process.resident().unwrap();
    push(
        &view,
        "all",
        json!({ "secrets": { "names": names }, "mount": "secret", "path": view.path_in_engine("all/{secret}") }),
    )
    .await;
    push(
        &view,
        "shared",
        json!({ "secrets": { "names": names }, "mount": "secret", "path": view.path_in_engine("shared"), "keys": [{ "secret": names[0], "from": "n" }] }),
    )
    .await;
    let paths: Vec<String> = names.iter().map(|name| view.path(&format!("all/{name}"))).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    until("the first ones are written", async || {
        for path in &paths[..PORTION] {
            if view.read(path).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await;
    until("the last one is refused", async || Ok(proxy.fired()[0] > 0)).await;
    proxy.clear();
    until("all are in sync", async || view.is_synced("VaultPush", "all", &paths).await).await;
    for (name, path) in names.iter().zip(&paths) {
        assert_eq!(view.read(path).await.unwrap().unwrap()["n"], *name);
        assert_eq!(view.versions(path).await.unwrap().0, 1, "{path}");
    }
    until("what is made of all of them is not", async || {
        Ok(view.record("VaultPush", "shared").await?.unwrap_or_default()["state"] == "ContentTooLarge")
    })
    .await;
    view.secret(&names[SECRETS - 1], &[("n", "later")], None).await.unwrap();
    until("the last one follows", async || {
        Ok(view.read(paths[SECRETS - 1]).await?.is_some_and(|held| held["n"] == "later"))
    })
    .await;
    let more = operator.process.resident().unwrap() - before;
    assert!(more < ROOM, "{more} bytes more than {before}");
}

/// The number of objects with large sources that may be worked on at the same time.
const FEW: usize = 2;

/// A write that is counted until it is dropped, also if the operator gives it up.
struct OnItsWay(Arc<AtomicUsize>);

impl OnItsWay {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_large_objects_few_are_worked_on_at_once_and_small_ones_wait_for_none() {
    const OBJECTS: usize = 6;
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("few").await.unwrap();
    let view = stage.view(&namespace).await;
    // How many writes of large ones are on their way, and how many were at most. They wait until a small one has passed.
    let (now, most, passed) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = [Arc::clone(&now), Arc::clone(&most), Arc::clone(&passed)];
    let decide = move |asked: FrontRequest| {
        let [now, most, passed] = counts.clone();
        async move {
            let is_data = asked.is_write() && asked.path.contains("/data/");
            if is_data && asked.path.contains("/big-") {
                let on_its_way = OnItsWay::new(now);
                most.fetch_max(on_its_way.count(), Ordering::SeqCst);
                while passed.load(Ordering::SeqCst) == 0 {
                    sleep(Duration::from_millis(20)).await;
                }
                // Others that may be written come meanwhile.
                sleep(Duration::from_millis(300)).await;
                drop(on_its_way);
            } else if is_data {
                passed.fetch_add(1, Ordering::SeqCst);
            }
            FrontAction::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let _operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("big-{number}")).collect();
    for name in &names {
        view.secret(name, &[("k", &"x".repeat(LARGE))], Some(&view.path(name))).await.unwrap();
    }
    until("as many are on their way as may be", async || Ok(now.load(Ordering::SeqCst) == FEW)).await;
    view.secret("small", &[("k", "v")], Some(&view.path("small"))).await.unwrap();
    for name in names.iter().map(String::as_str).chain(["small"]) {
        let path = view.path(name);
        until(&format!("{name} is in sync"), async || view.is_synced("Secret", name, &[&path]).await).await;
        assert_eq!(view.versions(&path).await.unwrap(), (1, true), "{path}");
    }
    assert_eq!(most.load(Ordering::SeqCst), FEW);
}

/// Version 1 of the engine tells nothing of who has written a path and when, so what was begun there is known by its content alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_of_a_large_object_is_cleared_with_it_also_if_that_was_one_of_its_last_paths() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("begun").await.unwrap();
    let view = stage.view(&namespace).await;
    let names = large_secrets(&view).await;
    let paths: Vec<String> = names.iter().map(|name| format!("old/{namespace}/{name}")).collect();
    // Killed when the last but one is written, and before it knows.
    let last = paths[SECRETS - 2].clone();
    let (befallen, mut told) = mpsc::unbounded_channel();
    let process = Arc::new(Mutex::new(None::<Process>));
    let killed = Arc::clone(&process);
    let decide = move |asked: FrontRequest| {
        let (killed, befallen) = (Arc::clone(&killed), befallen.clone());
        let kill = move || {
            killed.lock().unwrap().as_mut().unwrap().kill();
            befallen.send(()).unwrap();
        };
        let is_it = asked.is_write() && asked.method != "DELETE" && asked.path == last;
        let action = if is_it { FrontAction::AnswerVanishes(Box::new(kill)) } else { FrontAction::Passes };
        std::future::ready(action).boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let (spec, ..) = stage.operator(stage.kubeconfig(), &namespace, &vault);
    *process.lock().unwrap() = Some(Process::start(stage.plane.run_directory(), spec).unwrap());
    let spec = json!({ "secrets": { "names": names }, "mount": "old", "path": format!("{namespace}/{{secret}}") });
    push(&view, "all", spec).await;
    tokio::time::timeout(SOON, told.recv()).await.unwrap().unwrap();
    assert!(view.read(&paths[SECRETS - 2]).await.unwrap().is_some(), "it is written");
    view.delete("VaultPush", "all").await.unwrap();
    process.lock().unwrap().as_mut().unwrap().start_again().unwrap();
    until("it is gone", async || view.is_gone("VaultPush", "all").await).await;
    drop(process.lock().unwrap().take());
    for path in &paths {
        assert_eq!(view.read(path).await.unwrap(), None, "{path}");
    }
}

async fn push(view: &View, name: &str, spec: Value) {
    let object = json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": name }, "spec": spec });
    view.api("VaultPush").patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
}
