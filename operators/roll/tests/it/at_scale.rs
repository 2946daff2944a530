//! A thousand objects: how often Vault is asked for them, and how soon a change that concerns all of them is done. These are the longest tests of
//! the program, and the name of the file lets the test runner begin with them.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use konverge_testkit::eventually;
use konverge_workload::WorkloadKind::Deployment;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    vault_sync_status::world::{VaultWorld, new_vault},
    world::{Operator, until},
};

const OBJECTS: usize = 1000;

/// For the write of each status, on a machine that does other things, too. The API server merges each with the fields of all managers, so a thousand are seconds of
/// its work, and not of the operator's.
const WRITTEN: Duration = Duration::from_mins(5);

/// How often Vault is asked for each path.
const INTERVAL: &str = "--vault-interval=5s";

/// Between two looks at all of them, which is some work for the API server.
const PAUSE: Duration = Duration::from_millis(500);

/// A Vault with a log of what it answers, `paths` secrets, and as many Deployments as objects are spread over.
async fn crowd(paths: usize, deployments: usize) -> (VaultWorld, PathBuf) {
    let world = VaultWorld::with(Arc::new(new_vault().await)).await;
    let log = world.vault.run_directory().path().join("audit.log");
    let device = json!({ "type": "file", "options": { "file_path": log } });
    world.vault.request("PUT", "sys/audit/file", &device).await.unwrap();
    for path in 0..paths {
        world.write(&format!("{path}/app"), "1").await;
    }
    for number in 0..deployments {
        world.world.workload(Deployment, &format!("web{number}"), &[], json!({})).await;
    }
    let make = (0..OBJECTS).map(|number| {
        let mut spec = world.sample();
        spec["secretPath"] = world.path(&format!("{}/app", number % paths)).into();
        spec["deployName"] = format!("web{}", number % deployments).into();
        let (world, name) = (&world, format!("vss{number}"));
        async move { world.vss(&name, &spec).await }
    });
    stream::iter(make).for_each_concurrent(16, |made| made).await;
    (world, log)
}

/// Waits until all objects say that their pods run with what is in Vault. A list of all is some work for the API server, so the operator's own count of its writes
/// says from when on a list is worth it.
async fn all_in_sync(world: &VaultWorld, operator: &Operator) {
    let expected = f64::from(u32::try_from(OBJECTS).unwrap());
    let is_written = async || {
        let written = operator.metric("rest_client_requests_total", "method=\"PATCH\"").await;
        (written >= expected).then_some(())
    };
    eventually(WRITTEN, is_written).await.expect("each status is written");
    until("all are in sync", async || {
        let objects = world.api().list(&ListParams::default()).await.unwrap().items;
        let is_in_sync = |status: &Value| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["reason"] == "InSync")
        };
        let in_sync = objects.iter().filter(|object| is_in_sync(&object.data["status"])).count();
        if in_sync == OBJECTS {
            return Ok(());
        }
        sleep(PAUSE).await;
        Err(format!("{in_sync} of {OBJECTS}"))
    })
    .await;
}

/// How often Vault was asked for metadata, by its own log.
fn reads(log: &PathBuf) -> usize {
    let text = std::fs::read_to_string(log).unwrap();
    let answers = text.lines().filter(|line| line.contains("\"type\":\"response\""));
    answers.filter(|line| line.contains("\"path\":\"secret/metadata/")).count()
}

/// Waits until some intervals are over, and looks whether each path was asked for once in each at the most.
async fn asks_once_an_interval(log: &PathBuf, paths: usize, begun: Instant) {
    until("three intervals are over", async || match reads(log) {
        enough if enough >= 3 * paths => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    // An interval is never shorter than nine tenths of itself; a machine that is slow asks less often.
    let intervals = usize::try_from(begun.elapsed().as_millis() / 4_500).unwrap() + 1;
    let reads = reads(log);
    assert!(reads <= paths * intervals, "{reads} reads in {intervals} intervals");
}

#[tokio::test]
async fn a8_r10_a_thousand_objects_over_ten_paths_cost_ten_reads_an_interval() {
    let (world, log) = crowd(10, 10).await;
    let begun = Instant::now();
    let operator = world.operator(&[INTERVAL]).await;
    all_in_sync(&world, &operator).await;
    asks_once_an_interval(&log, 10, begun).await;
}

#[tokio::test]
async fn a8_r13_a_thousand_objects_on_one_path_cost_one_read_and_are_rolled_at_the_rate() {
    const DEPLOYMENTS: usize = 10;
    const PER_MINUTE: usize = 4;
    let (world, log) = crowd(1, DEPLOYMENTS).await;
    let begun = Instant::now();
    let rate = format!("--max-rollouts-per-minute={PER_MINUTE}");
    let operator = world.operator(&[INTERVAL, &rate]).await;
    all_in_sync(&world, &operator).await;
    asks_once_an_interval(&log, 1, begun).await;

    world.write("0/app", "2").await;
    let times = async || {
        let mut times = Vec::new();
        for number in 0..DEPLOYMENTS {
            let record = world.world.record(Deployment, &format!("web{number}")).await.unwrap();
            times.extend(record["rolled"].as_str().map(|time| time.parse::<Timestamp>().unwrap()));
        }
        times.sort();
        times
    };
    let so_many = async |expected: usize| {
        until(&format!("{expected} are rolled"), async || {
            let times = times().await;
            if times.len() >= expected {
                return Ok(());
            }
            sleep(PAUSE).await;
            Err(format!("{times:?}"))
        })
        .await;
    };
    so_many(PER_MINUTE).await;
    // Workloads that wait say so. One list for all of them: the API server looks through the events of all objects for each.
    let events: Api<Event> = Api::namespaced(world.world.client.clone(), &world.world.namespace);
    let waiting = ListParams::default().fields("reason=WaitingForRate");
    until("the others wait", async || {
        let found = events.list(&waiting).await.unwrap().items;
        let names: BTreeSet<_> = found.into_iter().filter_map(|event| event.involved_object.name).collect();
        if names.len() == DEPLOYMENTS - PER_MINUTE {
            return Ok(());
        }
        sleep(PAUSE).await;
        Err(format!("{names:?}"))
    })
    .await;
    so_many(PER_MINUTE + 1).await;
    let times = times().await;
    for (first, next) in times.iter().zip(times.iter().skip(PER_MINUTE)) {
        assert!(next.duration_since(*first) >= SignedDuration::from_mins(1), "{times:?}");
    }
    let mut templates = 0;
    for number in 0..DEPLOYMENTS {
        templates += world.world.templates(&format!("web{number}")).await;
    }
    assert!(templates <= DEPLOYMENTS + 2 * PER_MINUTE, "{templates} templates of {DEPLOYMENTS} Deployments");
}
