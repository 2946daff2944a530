//! Many for the first time: noted together before, each by itself after; killed, bereft and refused in the midst of it.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_push::{
    annotations::{APPROVE_DELETIONS, DELETIONS_STOPPED},
    journal,
    orphans::CONFIG_MAP,
};
use konverge_testkit::{
    Process, ProcessSpec, eventually,
    fault_proxy::{FaultProxy, Plan},
    http_get,
};
use konverge_testkit_stores::VaultServer;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    front::{self, Decide, FrontAction, FrontRequest},
    stage::{Result, SOON, Stage, View, until},
};

/// Enough that the journal is worth while for most of them.
const OBJECTS: usize = 24;

/// Writes and marks of the first ones are among so many requests.
const POINTS: usize = 6;

/// The number of deletions that the guard allows without an approval, of so few paths.
const MAX_UNAPPROVED: usize = 5;

/// The number of runs at the same time, each with an installation of its own.
const AT_ONCE: usize = 3;

/// The fault of a write to Vault. After each the object of that write is deleted before the operator goes on.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillBefore,
    KillAfter,
}

fn names() -> impl Iterator<Item = String> {
    (0..OBJECTS).map(|number| format!("db-{number}"))
}

async fn make(view: &View) -> Result<()> {
    for name in names() {
        view.secret(&name, &[("n", &name)], Some(&view.path(&name))).await?;
    }
    Ok(())
}

/// The names of the objects that the journal speaks of.
async fn noted(view: &View, home: &str) -> Result<BTreeSet<String>> {
    let secrets = Api::<Secret>::namespaced(view.client.clone(), home);
    let mut names = BTreeSet::new();
    for batch in secrets.list(&ListParams::default().labels(journal::LABEL)).await? {
        let data = batch.data.unwrap_or_default();
        let entries: Vec<Value> = serde_json::from_slice(&data["entries"].0)?;
        names.extend(entries.iter().filter_map(|entry| entry["name"].as_str().map(str::to_owned)));
    }
    Ok(names)
}

/// Vault's content in the namespace's folder, with metadata.
async fn folder(server: &VaultServer, view: &View) -> Vec<String> {
    let listed = server.request("LIST", &format!("secret/metadata/{}", view.namespace), &Value::Null).await;
    let keys = listed.ok().and_then(|listed| listed["data"]["keys"].as_array().cloned()).unwrap_or_default();
    keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
}

/// All but `gone` are there, written once and noted; of that nothing is left, and of all nothing in the journal.
async fn is_in_sync(stage: &Stage, view: &View, home: &str, gone: &str) -> Result<bool> {
    for name in names() {
        let path = view.path(&name);
        if name == gone {
            if view.read(&path).await?.is_some() {
                return Ok(false);
            }
        } else if !view.is_synced("Secret", &name, &[&path]).await?
            || view.versions(&path).await? != (1, true)
            || !view.holds(&path, "n", &name).await?
        {
            return Ok(false);
        }
    }
    let left = folder(&stage.server, view).await.len();
    Ok(left >= OBJECTS - 1 && noted(view, home).await?.is_empty())
}

/// The operator that is killed.
type Killed = Arc<Mutex<Option<Process>>>;

/// Returns the decision that kills the operator once, at the first request that `is_it`, and what then tells the path of that request.
fn kill_at(
    process: &Killed,
    fault: Fault,
    is_it: impl Fn(&FrontRequest) -> bool + Send + Sync + 'static,
) -> (Decide, mpsc::UnboundedReceiver<String>) {
    let (befallen, told) = mpsc::unbounded_channel();
    let (process, over) = (Arc::clone(process), AtomicBool::new(false));
    let decide = move |asked: FrontRequest| {
        if !is_it(&asked) || over.swap(true, Ordering::SeqCst) {
            return std::future::ready(FrontAction::Passes).boxed();
        }
        let (process, befallen) = (Arc::clone(&process), befallen.clone());
        let kill = move || {
            // Nothing of it moves any more when the test hears of it.
            process.lock().unwrap().as_mut().unwrap().kill();
            befallen.send(asked.path).unwrap();
        };
        let action = match fault {
            Fault::KillBefore => {
                kill();
                FrontAction::Vanishes
            }
            Fault::KillAfter => FrontAction::AnswerVanishes(Box::new(kill)),
        };
        std::future::ready(action).boxed()
    };
    (Box::new(decide), told)
}

fn is_write_number(nth: usize) -> impl Fn(&FrontRequest) -> bool {
    let writes = AtomicUsize::new(0);
    move |asked| asked.is_write() && writes.fetch_add(1, Ordering::SeqCst) + 1 == nth
}

fn start(stage: &Stage, process: &Killed, spec: ProcessSpec) -> Result<()> {
    *process.lock().unwrap() = Some(Process::start(stage.plane.run_directory(), spec)?);
    Ok(())
}

/// Starts it, has the fault befall the `nth` write, deletes the object of that write, and starts it again.
async fn befall(stage: &'static Stage, fault: Fault, nth: usize) -> Result<()> {
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace("intended").await?;
    let view = stage.view(&namespace).await;
    make(&view).await?;
    let process = Killed::default();
    let (decide, mut told) = kill_at(&process, fault, is_write_number(nth));
    let vault = front::serve(&stage.server, decide).await?;
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, &vault);
    start(stage, &process, spec.args(["-workers", "4"]))?;
    let path = tokio::time::timeout(SOON, told.recv()).await?.ok_or("it was not befallen")?;
    let gone = path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_noted = noted(&view, &home).await?.contains(&gone);
    if !is_noted || view.record("Secret", &gone).await?.is_some() {
        return Err(format!("{gone} is noted in the journal ({is_noted}) and bears no record").into());
    }
    view.delete("Secret", &gone).await?;
    process.lock().unwrap().as_mut().unwrap().start_again()?;
    let in_sync = || async { is_in_sync(stage, &view, &home, &gone).await.unwrap_or(false).then_some(()) };
    let ended = eventually(SOON, in_sync).await;
    drop(process.lock().unwrap().take());
    match ended {
        Ok(()) => Ok(()),
        Err(_) => Err(format!("{gone} was written last: {:?}", state(&view).await).into()),
    }
}

/// The reason of a failure.
async fn state(view: &View) -> Vec<String> {
    let mut state = Vec::new();
    for name in names() {
        let path = view.path(&name);
        let (versions, held) = (view.versions(&path).await, view.read(&path).await.map(|held| held.is_some()));
        state.push(format!(
            "{name}: {versions:?} {held:?} {:?}",
            view.record("Secret", &name).await.map(|it| it.is_some())
        ));
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn f01_killed_in_a_first_sync_nothing_is_left_of_an_object_that_went_meanwhile() {
    let stage = Stage::shared().await;
    let points = (1..=POINTS).flat_map(|nth| [Fault::KillBefore, Fault::KillAfter].map(|fault| (fault, nth)));
    let runs = stream::iter(points).map(async |(fault, nth)| (fault, nth, befall(stage, fault, nth).await));
    let ended: Vec<_> = runs.buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<_> = ended
        .iter()
        .filter_map(|(fault, nth, end)| Some(format!("{fault:?} {nth}: {}", end.as_ref().err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Kills the operator after some first writes, and deletes all objects while it is away.
#[tokio::test(flavor = "multi_thread")]
async fn guard_counts_deletions_of_what_was_begun() {
    let stage = Stage::shared().await;
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace("guarded").await.unwrap();
    let view = stage.view(&namespace).await;
    make(&view).await.unwrap();
    let process = Killed::default();
    let (decide, mut told) = kill_at(&process, Fault::KillAfter, is_write_number(OBJECTS));
    let vault = front::serve(&stage.server, decide).await.unwrap();
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, &vault);
    start(stage, &process, spec.args(["-workers", "4", "-allow-deletes=false"])).unwrap();
    tokio::time::timeout(SOON, told.recv()).await.unwrap().unwrap();
    for name in names() {
        assert_eq!(view.record("Secret", &name).await.unwrap(), None, "{name} is in the journal only");
        view.delete("Secret", &name).await.unwrap();
    }
    let held = async || {
        let mut held = 0;
        for name in names() {
            held += usize::from(view.read(&view.path(&name)).await.unwrap().is_some());
        }
        held
    };
    let before = held().await;
    assert!(before > MAX_UNAPPROVED, "{before}");

    process.lock().unwrap().as_mut().unwrap().start_again().unwrap();
    let lists = Api::<ConfigMap>::namespaced(view.client.clone(), &home);
    until("deletions are stopped", async || {
        let list = lists.get_opt(CONFIG_MAP).await?.unwrap_or_default();
        Ok(list.metadata.annotations.unwrap_or_default().contains_key(DELETIONS_STOPPED))
    })
    .await;
    let after = held().await;
    assert!(after + MAX_UNAPPROVED >= before, "{after} of {before} are left");
    let approval = Patch::Merge(json!({ "metadata": { "annotations": { APPROVE_DELETIONS: "true" } } }));
    lists.patch(CONFIG_MAP, &PatchParams::default(), &approval).await.unwrap();
    until("all is cleared", async || Ok(held().await == 0 && noted(&view, &home).await?.is_empty())).await;
    drop(process.lock().unwrap().take());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_for_an_object_that_went_keeps_nobody_else_from_its_path() {
    let stage = Stage::shared().await;
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace("heir").await.unwrap();
    let view = stage.view(&namespace).await;
    make(&view).await.unwrap();
    let proxy = FaultProxy::start(stage.plane.run_directory(), &kubeconfig).await.unwrap();
    let process = Killed::default();
    // Killed when the first mark is there: what was written is there, and is somebody's.
    let is_mark = |asked: &FrontRequest| asked.is_write() && asked.path.starts_with("secret/metadata/");
    let (decide, mut told) = kill_at(&process, Fault::KillAfter, is_mark);
    let vault = front::serve(&stage.server, decide).await.unwrap();
    let (spec, ..) = stage.operator(proxy.kubeconfig(), &namespace, &vault);
    start(stage, &process, spec.args(["-workers", "4"])).unwrap();
    let path = tokio::time::timeout(SOON, told.recv()).await.unwrap().unwrap();
    let gone = path.rsplit('/').next().unwrap().to_owned();
    let path = view.path(&gone);
    assert!(noted(&view, &home).await.unwrap().contains(&gone), "{gone} is noted in the journal");
    assert_eq!(view.record("Secret", &gone).await.unwrap(), None, "and nowhere else");
    assert_eq!(view.versions(&path).await.unwrap(), (1, true), "and it is marked");
    view.delete("Secret", &gone).await.unwrap();
    view.secret("heir", &[("n", "heir")], Some(&path)).await.unwrap();

    // An interrupted write is examined when another object claims the path and is refused.
    let rule = format!(
        "rules: [{{ when: {{ verbs: [get], resources: [secrets], name: {gone} }}, then: {{ status: {{ code: 500 }} }} }}]"
    );
    proxy.set(Plan::parse(&rule).unwrap()).unwrap();
    process.lock().unwrap().as_mut().unwrap().start_again().unwrap();
    until("the heir is refused", async || {
        Ok(view.record("Secret", "heir").await?.is_some_and(|record| record["state"] == "OwnedByAnother"))
    })
    .await;
    proxy.clear();
    until("the heir has it", async || view.is_synced("Secret", "heir", &[&path]).await).await;
    assert!(view.holds(&path, "n", "heir").await.unwrap());
    until("nothing is noted any more", async || Ok(noted(&view, &home).await?.is_empty())).await;
    drop(process.lock().unwrap().take());
}

/// Runs until all is in sync, with this installation.
async fn in_sync(stage: &Stage, kubeconfig: &Path, view: &View) -> Process {
    let (spec, health, _) = stage.operator(kubeconfig, &view.namespace, stage.server.address());
    let mut process = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", SOON, is_ready).await.unwrap();
    for name in names() {
        let path = view.path(&name);
        until(&format!("{name} is in sync"), async || view.is_synced("Secret", &name, &[&path]).await).await;
    }
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_each_object_is_written_on_first() {
    let stage = Stage::shared().await;
    let rule = "  - apiGroups: [\"\"]\n    resources: [secrets]\n    verbs: [create, delete]\n";
    let (_, kubeconfig) = stage
        .another(|manifest| {
            assert!(manifest.contains(rule), "the rule has another spelling");
            manifest.replace(rule, "")
        })
        .await;
    let namespace = stage.plane.namespace("refused").await.unwrap();
    let view = stage.view(&namespace).await;
    make(&view).await.unwrap();
    let _process = in_sync(stage, &kubeconfig, &view).await;
    for name in names() {
        assert_eq!(view.versions(&view.path(&name)).await.unwrap(), (1, true), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstall_leaves_nothing_in_the_journal() {
    let stage = Stage::shared().await;
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace("drained").await.unwrap();
    let view = stage.view(&namespace).await;
    make(&view).await.unwrap();
    // No answer of Vault to a write comes, so that none of it is noted on its object.
    let decide = |asked: FrontRequest| {
        let action = if asked.is_write() { FrontAction::Vanishes } else { FrontAction::Passes };
        std::future::ready(action).boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, &vault);
    let process = Process::start(stage.plane.run_directory(), spec).unwrap();
    until("something is noted", async || Ok(!noted(&view, &home).await?.is_empty())).await;
    drop(process);
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, stage.server.address());
    let mut drain = Process::start(stage.plane.run_directory(), spec.arg("drain")).unwrap();
    let status = drain.ended(SOON).await.unwrap();
    assert!(status.success(), "{}", drain.logged());
    assert_eq!(noted(&view, &home).await.unwrap(), BTreeSet::new());
}
