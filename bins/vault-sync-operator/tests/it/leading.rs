//! Several at the same time: the effect is that of one (F13, F16; I12).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::stage::{Result, Stage, until};

/// What is at rest for so long does not oscillate.
const QUIET: Duration = Duration::from_secs(3);

/// So many of each kind of object.
const OBJECTS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn two_that_both_think_they_lead_write_what_one_would() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("two").await.unwrap();
    let view = stage.view(&namespace).await;
    let _operators = [stage.start(&namespace, |spec| spec).await, stage.start(&namespace, |spec| spec).await];
    let in_step = async |round: &str| -> Result<bool> {
        for number in 0..OBJECTS {
            let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
            let whole = view.path(&secret);
            let used = view.path(&format!("{app}/{secret}"));
            let is_so = view.is_synced("Secret", &secret, &[&whole]).await?
                && view.is_synced("Deployment", &app, &[&used]).await?
                && view.holds(&whole, "n", round).await?
                && view.holds(&used, "n", round).await?;
            if !is_so {
                return Ok(false);
            }
        }
        Ok(true)
    };
    for round in ["1", "2", "3"] {
        for number in 0..OBJECTS {
            let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
            view.secret(&secret, &[("n", round)], Some(&view.path(&secret))).await.unwrap();
            if round == "1" {
                view.deployment(&app, &secret, &view.path(&app)).await.unwrap();
            }
        }
        until(&format!("all hold {round}"), async || in_step(round).await).await;
    }
    let log = stage.plane.audit_log().unwrap();
    log.catch_up(&view.client).await.unwrap();
    let log = log.from_now().unwrap();
    tokio::time::sleep(QUIET).await;
    log.catch_up(&view.client).await.unwrap();
    let written: Vec<_> = log
        .entries_of(&stage.account())
        .unwrap()
        .into_iter()
        .filter(|entry| entry.is_mutating() && entry.object_ref.namespace == namespace)
        .filter(|entry| entry.object_ref.resource != "events")
        .collect();
    assert!(written.is_empty(), "they do not answer each other: {written:?}");
    for number in 0..OBJECTS {
        let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
        for path in [view.path(&secret), view.path(&format!("{app}/{secret}"))] {
            assert_eq!(view.versions(&path).await.unwrap(), (3, true), "{path}");
        }
        view.delete("Deployment", &app).await.unwrap();
        view.delete("Secret", &secret).await.unwrap();
    }
    for number in 0..OBJECTS {
        let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
        until("the objects are gone", async || {
            Ok(view.is_gone("Secret", &secret).await? && view.is_gone("Deployment", &app).await?)
        })
        .await;
        for path in [view.path(&secret), view.path(&format!("{app}/{secret}"))] {
            assert_eq!(view.read(&path).await.unwrap(), None);
            assert_eq!(view.versions(&path).await.unwrap(), (3, false), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_works_and_the_other_takes_over_when_it_is_killed() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("failover").await.unwrap();
    let view = stage.view(&namespace).await;
    let path = view.path("db");
    let leases = Api::<Lease>::namespaced(view.client.clone(), &stage.home);
    let holder = async || {
        let lease = leases.get_opt("vault-sync-operator.io").await.unwrap();
        lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty())
    };
    let mut first = stage.start(&namespace, |spec| spec.arg("-leader-elect")).await;
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until("the first works", async || view.is_synced("Secret", "db", &[&path]).await).await;
    let leader = holder().await.unwrap();
    let _second = stage.start(&namespace, |spec| spec.arg("--leader-elect=true")).await;
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    until("it is rotated", async || view.holds(&path, "n", "2").await).await;
    assert_eq!(holder().await.unwrap(), leader, "the second stands by");
    first.process.kill();
    view.secret("db", &[("n", "3")], Some(&path)).await.unwrap();
    until("the second has taken over", async || view.holds(&path, "n", "3").await).await;
    assert_ne!(holder().await.unwrap(), leader);
    assert_eq!(view.versions(&path).await.unwrap(), (3, true));
}
