//! Vault answers and does not serve for a while (X4, F19), and says itself when to come back.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::FutureExt;
use konverge_testkit::http_get;

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Result, Running, Stage, View, until},
};

const OBJECTS: usize = 10;

/// The response to all requests, and the reason that we report then. Behind a standby's 473 there is a leader; 412 is a standby that has not caught
/// up; 429 to all is a node that is a standby, or a quota; 503 is sealed, or a balancer without a node.
const WEATHERS: [(u16, &str, &str); 5] = [
    (473, "", "473"),
    (412, "", "412"),
    (503, "", "sealed"),
    (429, "", "rate limit"),
    (503, "retry-after: 1\r\n", "503"),
];

#[derive(Default)]
struct Sky {
    /// The response in place of Vault's, and the maximum number of requests that get it.
    weather: Option<(u16, &'static str, usize)>,
    /// When requests about secrets came in.
    asked: Vec<Instant>,
}

async fn stands_before(stage: &Stage, health_too: bool) -> (String, Arc<Mutex<Sky>>) {
    let sky = Arc::new(Mutex::new(Sky::default()));
    let seen = Arc::clone(&sky);
    let decide = move |asked: FrontRequest| {
        let mut sky = seen.lock().unwrap();
        if asked.is_about_a_secret() {
            sky.asked.push(Instant::now());
        }
        let action = match &mut sky.weather {
            Some((status, headers, times)) if *times > 0 && (health_too || asked.is_about_a_secret()) => {
                *times -= 1;
                FrontAction::Answered(*status, headers)
            }
            _ => FrontAction::Passes,
        };
        std::future::ready(action).boxed()
    };
    (front::serve(&stage.server, Box::new(decide)).await.unwrap(), sky)
}

fn names() -> impl Iterator<Item = String> {
    (0..OBJECTS).map(|number| format!("db-{number}"))
}

async fn rotate(view: &View, round: usize) {
    for name in names() {
        view.secret(&name, &[("n", &round.to_string())], Some(&view.path(&name))).await.unwrap();
    }
}

/// All hold this round, which each was told of with one version.
async fn in_sync(view: &View, round: usize) {
    for name in names() {
        let path = view.path(&name);
        until(&format!("{name} is in sync with round {round}"), async || {
            Ok(view.holds(&path, "n", &round.to_string()).await? && view.is_synced("Secret", &name, &[&path]).await?)
        })
        .await;
        assert_eq!(view.versions(&path).await.unwrap(), (round as u64, true), "{name}");
    }
}

async fn readiness(operator: &Running) -> Result<(u16, String)> {
    Ok(http_get(&operator.health, "/readyz").await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_whatever_vault_answers_for_a_while_nothing_is_lost_and_readiness_says_why() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("weather").await.unwrap();
    let view = stage.view(&namespace).await;
    let (vault, sky) = stands_before(stage, true).await;
    let operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    rotate(&view, 1).await;
    in_sync(&view, 1).await;
    let pid = operator.process.pid();
    for (round, (status, headers, told)) in (2..).zip(WEATHERS) {
        sky.lock().unwrap().weather = Some((status, headers, usize::MAX));
        rotate(&view, round).await;
        until(&format!("readiness tells of {status}"), async || {
            let (code, text) = readiness(&operator).await?;
            Ok(code != 200 && text.contains("[-]vault failed") && text.contains(told))
        })
        .await;
        let (code, _) = http_get(&operator.health, "/healthz").await.unwrap();
        assert_eq!(code, 200, "a restart would not help");
        until(&format!("an object tells of {status}"), async || {
            let record = view.record("Secret", "db-0").await?.unwrap_or_default();
            Ok(record["state"] != "Synced" && record["message"].as_str().unwrap_or_default().contains(told))
        })
        .await;
        sky.lock().unwrap().weather = None;
        in_sync(&view, round).await;
        until("it is ready", async || Ok(readiness(&operator).await?.0 == 200)).await;
    }
    assert_eq!(operator.process.pid(), pid);
}

/// How long Vault wants to be left alone.
const PAUSE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn x4_who_is_told_to_come_back_later_does_so_with_everything() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("later").await.unwrap();
    let view = stage.view(&namespace).await;
    // Health is not under quotas.
    let (vault, sky) = stands_before(stage, false).await;
    let operator = stage.start_at(&namespace, &vault, |spec| spec.args(["-zap-log-level", "debug"])).await;
    rotate(&view, 1).await;
    in_sync(&view, 1).await;
    {
        let mut sky = sky.lock().unwrap();
        sky.asked.clear();
        sky.weather = Some((429, "retry-after: 4\r\n", 1));
    }
    view.secret("db-0", &[("n", "2")], Some(&view.path("db-0"))).await.unwrap();
    until("it is told", async || {
        let is_it = |line: &str| line.contains(&format!("{namespace}/db-0")) && line.contains("rate limit");
        Ok(operator.process.logged().lines().any(is_it))
    })
    .await;
    // All others want something now, and none of them asks.
    rotate(&view, 2).await;
    in_sync(&view, 2).await;
    let asked = sky.lock().unwrap().asked.clone();
    let early: Vec<_> = asked[1..].iter().map(|at| *at - asked[0]).filter(|after| *after < PAUSE).collect();
    assert!(early.is_empty() && asked.len() > OBJECTS, "asked again after {early:?}");
}
