//! The calls and writes for objects of most kinds while nothing changes, and those of a new process over the same objects.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use konverge_openzro::{Collection, Fields};
use konverge_testkit::eventually;
use konverge_testkit_stores::Seen;
use serde_json::json;
use tokio::time::sleep;

use super::{
    field::{Field, LIMIT, groups, is_ready, kind, says},
    float, row,
};
use crate::report::Report;

/// The collections of an account.
const COLLECTIONS: usize = 8;

pub(crate) async fn measure(field: &mut Field, objects: u16, intervals: u16, report: &mut Report) -> Result<()> {
    create(field, objects).await?;
    field.listed().await?;
    let (log, from) = (field.log().await?, field.front.count());
    let rest = field.interval * u32::from(intervals);
    eprintln!("manage: listening for {} s", rest.as_secs());
    sleep(rest).await;
    let calls = field.front.since(from);
    let noted = field.writes(&log).await?;
    let against = format!("{intervals} intervals of {} s, {objects} objects", field.interval.as_secs());
    let lists = calls.iter().filter(|seen| seen.method == "GET").count();
    let ratio = most(&calls) / f64::from(intervals);
    let target = field.target.clone();
    report.add(row(
        &target,
        "GETs at rest, a collection and interval",
        lists.to_string(),
        against.clone(),
        ratio,
        Some(1.0),
    ));
    add_writes(field, "at rest", &calls, noted, &against, report);

    field.stage.operator().kill();
    field.quiet().await;
    let (log, from) = (field.log().await?, field.front.count());
    field.start().await?;
    let operator = field.stage.operator();
    let all_ran = async || {
        let runs = operator.metric("controller_runtime_reconcile_total", "").await.ok()?;
        (runs >= f64::from(objects)).then_some(())
    };
    eventually(LIMIT, all_ran).await.context("the new process does not look at all objects")?;
    field.quiet().await;
    let calls = field.front.since(from);
    let noted = field.writes(&log).await?;
    let against = format!("{COLLECTIONS} collections, {objects} objects");
    let lists = calls.iter().filter(|seen| seen.method == "GET").count();
    report.add(row(
        &target,
        "GETs of a restart, a collection",
        lists.to_string(),
        against.clone(),
        most(&calls),
        Some(1.0),
    ));
    let ratio = float(lists) / float(COLLECTIONS);
    report.add(row(&target, "GETs of a restart, in all", lists.to_string(), against.clone(), ratio, Some(1.0)));
    add_writes(field, "of a restart", &calls, noted, &against, report);
    Ok(())
}

fn add_writes(field: &Field, when: &str, calls: &[Seen], noted: usize, against: &str, report: &mut Report) {
    let writes = calls.iter().filter(|seen| seen.method != "GET").count();
    for (whose, count) in [("openZro", writes), ("Kubernetes", noted)] {
        let subject = format!("writes to {whose} {when}");
        report.add(row(&field.target, &subject, count.to_string(), against.to_owned(), float(count), Some(0.0)));
    }
}

/// How often the path that was asked for most was asked for.
fn most(calls: &[Seen]) -> f64 {
    let mut counts = BTreeMap::<&str, usize>::new();
    for seen in calls {
        *counts.entry(&seen.path).or_default() += 1;
    }
    float(counts.into_values().max().unwrap_or_default())
}

/// Creates objects of most kinds, and waits until all of them are in sync.
async fn create(field: &mut Field, objects: u16) -> Result<()> {
    let (policies, resources) = (objects / 10, objects / 10);
    let of_groups = objects - policies - resources - 2;
    let network: Fields = [("name".to_owned(), "by hand".into())].into_iter().collect();
    let network = field.dashboard.create(&Collection::Networks, &network).await?.object.id().to_owned();
    field.create_groups(of_groups).await?;
    let (policy, resource) = (kind("v1", "OZPolicy"), kind("v1", "OZResource"));
    let (key, peer) = (kind("v1alpha1", "SetupKey"), kind("v1", "OZRoutingPeer"));
    for number in 0..policies {
        let name = format!("policy-{number}");
        let spec = json!({ "name": name, "sourceGroups": ["All"], "destinationGroups": ["All"], "protocols": ["tcp"],
            "ports": [443] });
        field.create(&policy, &name, spec).await?;
    }
    for number in 0..resources {
        let name = format!("resource-{number}");
        let spec =
            json!({ "name": name, "networkID": network, "address": format!("10.0.{number}.1"), "groups": ["All"] });
        field.create(&resource, &name, spec).await?;
    }
    field.create(&key, "key", json!({ "name": "key", "ephemeral": true })).await?;
    field.create(&peer, "router", json!({ "replicas": 1 })).await?;
    field.start().await?;
    field.many(&groups(), of_groups, is_ready).await?;
    field.many(&policy, policies, is_ready).await?;
    field.many(&resource, resources, is_ready).await?;
    field.many(&key, 1, is_ready).await?;
    // No pod runs here.
    field.many(&peer, 1, |peer| says(peer, "Reconciling", "True")).await
}
