//! Many at once (W18, I16), and killed in the midst of it as by a limit of memory (X1).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, StreamExt, stream};
use konverge_testkit::eventually;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Result, SOON, Stage, View, until},
};

/// Fewer than there may be requests to Vault at the same time, so that it is what counts.
const WORKERS: usize = 8;

/// The number of objects that wait for a worker.
const OBJECTS: usize = 40;

/// Requests that are held, and the most that ever were under way at once.
#[derive(Default)]
struct Crowd {
    waiting: BTreeSet<String>,
    most: usize,
}

/// The requests that pass.
#[derive(Debug, Clone, PartialEq)]
enum Gate {
    Closed,
    /// All but this path.
    OpenBut(String),
    Open,
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_as_many_are_worked_on_as_there_are_workers_and_a_slow_path_delays_no_other() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("crowd").await.unwrap();
    let view = stage.view(&namespace).await;
    let crowd = Arc::new(Mutex::new(Crowd::default()));
    let (gate, opened) = watch::channel(Gate::Closed);
    let seen = Arc::clone(&crowd);
    let decide = move |asked: FrontRequest| {
        let (seen, mut opened) = (Arc::clone(&seen), opened.clone());
        async move {
            if !asked.is_about_a_secret() {
                return FrontAction::Passes;
            }
            {
                let mut crowd = seen.lock().unwrap();
                crowd.waiting.insert(asked.path.clone());
                crowd.most = crowd.most.max(crowd.waiting.len());
            }
            let may_pass = |gate: &Gate| match gate {
                Gate::Closed => false,
                Gate::OpenBut(slow) => *slow != asked.path,
                Gate::Open => true,
            };
            opened.wait_for(may_pass).await.unwrap();
            seen.lock().unwrap().waiting.remove(&asked.path);
            FrontAction::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let workers = WORKERS.to_string();
    let _operator = stage.start_at(&namespace, &vault, |spec| spec.args(["-workers", &workers])).await;
    made(&view, OBJECTS).await;
    let full = || async {
        let crowd = crowd.lock().unwrap();
        (crowd.waiting.len() == WORKERS).then(|| crowd.waiting.first().cloned().unwrap())
    };
    let slow = eventually(SOON, full).await.expect("all workers wait for Vault at the same time");
    gate.send(Gate::OpenBut(slow.clone())).unwrap();
    let name = slow.rsplit('/').next().unwrap().to_owned();
    until("all others are in sync", async || {
        for other in names(OBJECTS).filter(|other| *other != name) {
            if !view.is_synced("Secret", &other, &[&view.path(&other)]).await? {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await;
    assert_eq!(crowd.lock().unwrap().waiting, [slow].into(), "this one alone waits still");
    assert_eq!(view.read(&view.path(&name)).await.unwrap(), None);
    gate.send(Gate::Open).unwrap();
    until("the slow one is in sync, too", async || view.is_synced("Secret", &name, &[&view.path(&name)]).await).await;
    assert_eq!(crowd.lock().unwrap().most, WORKERS, "no more than there are workers");
}

/// Secrets of a first sync.
const FIRST: usize = 300;

/// It is killed when so many of them are in Vault.
const KILLS: [usize; 3] = [20, 100, 200];

/// Requests in a second: slow enough that it is in the midst of it whenever it is killed, also when this test is slow.
const RATE: &str = "150";

#[tokio::test(flavor = "multi_thread")]
async fn x1_killed_in_the_midst_of_a_first_sync_it_writes_each_path_once() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("killed").await.unwrap();
    let view = stage.view(&namespace).await;
    made(&view, FIRST).await;
    let there = async || {
        let folder = format!("secret/metadata/{namespace}");
        let listed = stage.server.request("LIST", &folder, &Value::Null).await;
        // There is no folder before the first one.
        listed.map_or(0, |listed| listed["data"]["keys"].as_array().map_or(0, Vec::len))
    };
    let start = async || stage.start(&namespace, |spec| spec.args(["-vault-rate", RATE])).await;
    let (mut running, mut before) = (start().await, 0);
    for limit in KILLS {
        eventually(SOON, || async { (there().await >= limit).then_some(()) }).await.unwrap();
        running.process.kill();
        let now = there().await;
        assert!(before <= now && now < FIRST, "killed with {now} in Vault");
        before = now;
        running = start().await;
    }
    let states: Vec<Result<bool>> = stream::iter(names(FIRST))
        .map(|name| {
            let view = &view;
            async move {
                let path = view.path(&name);
                until(&format!("{name} is in sync"), async || view.is_synced("Secret", &name, &[&path]).await).await;
                Ok(view.versions(&path).await? == (1, true) && view.holds(&path, "n", &name).await?)
            }
        })
        .buffered(8)
        .collect()
        .await;
    for (name, state) in names(FIRST).zip(states) {
        assert!(state.unwrap(), "{name} was written more than once, or is not marked, or holds something else");
    }
    assert_eq!(there().await, FIRST);
}

/// The names of so many Secrets.
pub(crate) fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("db-{number}"))
}

/// Makes so many Secrets, each with a path of its own.
pub(crate) async fn made(view: &View, count: usize) {
    let made = stream::iter(names(count)).map(async |name| {
        let path = view.path(&name);
        view.secret(&name, &[("n", &name)], Some(&path)).await.unwrap();
    });
    made.buffer_unordered(8).for_each(async |()| ()).await;
}
