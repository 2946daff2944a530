//! The network to the API server and to Vault fails, at times and for a time (F03, F12).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use konverge_testkit::{
    Process,
    fault_proxy::{FaultProxy, Plan, UNSTEADY},
    http_get,
};

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Running, SOON, Stage, View, until},
};

const OBJECTS: usize = 5;

/// Each object is changed so often while the ways are bad.
const ROUNDS: usize = 3;

/// An operator whose ways lead through proxies.
pub(crate) async fn start(stage: &Stage, namespace: &str, proxy: &FaultProxy, vault: &str) -> Running {
    let (spec, health, metrics) = stage.operator(proxy.kubeconfig(), namespace, vault);
    let spec = spec.arg("-enable-metrics-auth=false");
    let mut process = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", SOON, is_ready).await.unwrap();
    Running { process, health, metrics }
}

async fn rotate(view: &View, round: usize) {
    for number in 0..OBJECTS {
        let name = format!("db-{number}");
        view.secret(&name, &[("n", &round.to_string())], Some(&view.path(&name))).await.unwrap();
        if round == 1 {
            view.deployment(&format!("app-{number}"), &name, &view.path(&format!("app-{number}"))).await.unwrap();
        }
    }
}

/// All hold this round.
async fn in_sync(view: &View, round: usize) {
    for number in 0..OBJECTS {
        let (name, app) = (format!("db-{number}"), format!("app-{number}"));
        for (kind, object, path) in
            [("Secret", &name, view.path(&name)), ("Deployment", &app, view.path(&format!("{app}/{name}")))]
        {
            until(&format!("{kind} {object} is in sync with round {round}"), async || {
                let holds = view.holds(&path, "n", &round.to_string()).await?;
                Ok(holds && view.is_synced(kind, object, &[&path]).await?)
            })
            .await;
        }
    }
}

/// Each path has a version for each round, and no more.
async fn have_versions(view: &View, rounds: usize) {
    for number in 0..OBJECTS {
        let (name, app) = (format!("db-{number}"), format!("app-{number}"));
        for path in [view.path(&name), view.path(&format!("{app}/{name}"))] {
            assert_eq!(view.versions(&path).await.unwrap(), (rounds as u64, true), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f12_on_unsteady_ways_each_change_is_one_version() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("unsteady").await.unwrap();
    let view = stage.view(&namespace).await;
    let (asked, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&failed);
    // To Vault: a fifth of all requests about secrets fails, in turn before, instead of, and after its effect.
    let decide = move |request: FrontRequest| {
        let number = if request.is_about_a_secret() { asked.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let action = match number % 15 {
            5 => FrontAction::Vanishes,
            10 => FrontAction::Answered(500, ""),
            14 => FrontAction::AnswerVanishes(Box::new(|| ())),
            _ => FrontAction::Passes,
        };
        counted.fetch_add(usize::from(!matches!(action, FrontAction::Passes)), Ordering::Relaxed);
        std::future::ready(action).boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let mut operator = start(stage, &namespace, &proxy, &vault).await;
    proxy.set(Plan::parse(UNSTEADY).unwrap()).unwrap();
    for round in 1..=ROUNDS {
        rotate(&view, round).await;
        in_sync(&view, round).await;
    }
    let fired = proxy.fired();
    assert!(fired.iter().sum::<u64>() >= 10 && failed.load(Ordering::Relaxed) >= 10, "{fired:?} {failed:?}");
    proxy.clear();
    have_versions(&view, ROUNDS).await;
    assert_eq!(operator.process.status(), None, "it has not ended");
    for number in 0..OBJECTS {
        view.delete("Deployment", &format!("app-{number}")).await.unwrap();
        view.delete("Secret", &format!("db-{number}")).await.unwrap();
    }
    for number in 0..OBJECTS {
        let (name, app) = (format!("db-{number}"), format!("app-{number}"));
        until("the objects are gone", async || {
            Ok(view.is_gone("Secret", &name).await? && view.is_gone("Deployment", &app).await?)
        })
        .await;
        for path in [view.path(&name), view.path(&format!("{app}/{name}"))] {
            assert_eq!(view.read(&path).await.unwrap(), None, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f03_what_changes_while_the_api_server_is_out_of_reach_comes_after() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("apart").await.unwrap();
    let view = stage.view(&namespace).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let mut operator = start(stage, &namespace, &proxy, stage.server.address()).await;
    rotate(&view, 1).await;
    in_sync(&view, 1).await;
    proxy.down_until_cleared();
    rotate(&view, 2).await;
    operator.settled().await;
    have_versions(&view, 1).await;
    assert_eq!(http_get(&operator.health, "/healthz").await.unwrap().0, 200);
    proxy.clear();
    in_sync(&view, 2).await;
    have_versions(&view, 2).await;
    assert_eq!(operator.process.status(), None, "it has not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn f03_an_operator_that_starts_before_the_api_server_can_be_reached_knows_its_own() {
    knows_its_own("early", FaultProxy::down_until_cleared).await;
}

/// An API server that has just started allows nothing before it has read the roles.
#[tokio::test(flavor = "multi_thread")]
async fn f03_an_operator_that_starts_before_the_api_server_knows_it_knows_its_own() {
    let forbidden = "rules:\n- then: { status: { code: 403 } }\n";
    let forbid = |proxy: &FaultProxy| proxy.set(Plan::parse(forbidden).unwrap()).unwrap();
    knows_its_own("unknown", forbid).await;
}

/// An operator that starts in such trouble takes for its own what it wrote in its life before.
async fn knows_its_own(name: &str, trouble: impl FnOnce(&FaultProxy)) {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace(name).await.unwrap();
    let view = stage.view(&namespace).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let mut before = start(stage, &namespace, &proxy, stage.server.address()).await;
    rotate(&view, 1).await;
    in_sync(&view, 1).await;
    before.process.terminate(Duration::from_secs(20)).await.unwrap();
    trouble(&proxy);
    let (spec, health, _) = stage.operator(proxy.kubeconfig(), &namespace, stage.server.address());
    let mut operator = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_alive = || async { http_get(&health, "/healthz").await.is_ok_and(|(code, _)| code == 200) };
    operator.ready("be alive", SOON, is_alive).await.unwrap();
    assert_eq!(http_get(&health, "/readyz/cluster-identity").await.unwrap().0, 503);
    rotate(&view, 2).await;
    proxy.clear();
    in_sync(&view, 2).await;
    have_versions(&view, 2).await;
    let said = operator.logged();
    // Operators of other tests write to the same log.
    let refused = said.lines().find(|line| line.contains(&namespace) && line.contains("OwnedByAnother"));
    assert_eq!(refused, None);
    for number in 0..OBJECTS {
        let (name, path) = (format!("db-{number}"), view.path(&format!("db-{number}")));
        view.delete("Secret", &name).await.unwrap();
        until(&format!("{name} is gone"), async || view.is_gone("Secret", &name).await).await;
        assert_eq!(view.read(&path).await.unwrap(), None, "{path}");
    }
}
