//! A leader is killed in the middle of its work: two replicas of the example configmapsync, many objects, and SIGKILL when half of them
//! are done.
//!
//! Takeover is from the kill to the first write of the other replica, by the API server's audit log. An effect that happened twice is
//! a child or a status that was written more than once, by whomever.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use konverge_testkit::{AuditEntry, eventually};
use kube::Api;

use super::{field::Field, operator::Operator, syncs::Syncs};
use crate::report::{Report, Row};

const OBJECTS: usize = 2000;

/// The default of every Kubernetes component; the standby waits so long.
const LEASE_SECONDS: f64 = 15.0;
/// A standby must not begin before the lease has run out. It looks every two seconds, so that much later it has begun.
const MORE: f64 = 2.0;

const SETTLE: Duration = Duration::from_secs(5);

pub(crate) async fn measure(field: &Field, report: &mut Report) -> Result<()> {
    let objects = OBJECTS.min(field.objects);
    let namespace = field.plane.namespace("failover").await?;
    Operator::install(field, &namespace).await?;
    let lease_duration = format!("{LEASE_SECONDS}");
    let arguments = [
        "--leader-election",
        "--lease-duration",
        &lease_duration,
        "--lease-namespace",
        &namespace,
        "--namespace",
        &namespace,
    ];
    let (leader_user, leader_kubeconfig) = field.account(&namespace, "leader").await?;
    let (standby_user, standby_kubeconfig) = field.account(&namespace, "standby").await?;
    let log = field.plane.audit_log()?.from_now()?;
    let mut leader = Operator::start(field, &leader_kubeconfig, &arguments).await?;
    wait_for_leader(field, &namespace).await?;
    let _standby = Operator::start(field, &standby_kubeconfig, &arguments).await?;

    let syncs = Syncs::new(&field.client, &namespace);
    eprintln!("failover: {objects} objects");
    let (created, killed) = tokio::join!(syncs.create(objects), async {
        syncs.copies(objects / 2).await?;
        leader.process.kill();
        anyhow::Ok(jiff::Timestamp::now())
    });
    created?;
    let killed = killed?;
    syncs.copies(objects).await?;
    syncs.ready(objects).await?;
    tokio::time::sleep(SETTLE).await;

    let mut effects = log.entries_of(&leader_user)?;
    let of_standby = log.entries_of(&standby_user)?;
    let first = of_standby.iter().find(|entry| is_effect(entry)).context("the standby wrote nothing")?;
    let takeover = (first.stage_timestamp - killed).total(jiff::Unit::Second)?;
    let done_before = effects.iter().filter(|entry| is_effect(entry)).count();
    effects.extend(of_standby);
    let twice = twice(&effects);
    let answers = effects.iter().filter(|entry| entry.is_mutating()).fold(BTreeMap::new(), |mut answers, entry| {
        *answers.entry(entry.response_status.code).or_insert(0_u32) += 1;
        answers
    });
    eprintln!("failover: writes by their answers: {answers:?}");
    eprintln!(
        "failover: {done_before} writes before the kill, {} in all",
        effects.iter().filter(|entry| is_effect(entry)).count()
    );
    report.add(Row {
        subject: "failover: takeover",
        figure: format!("{takeover:.1} s, {objects} objects"),
        against: format!("a lease of {LEASE_SECONDS} s and {MORE} s"),
        ratio: takeover / (LEASE_SECONDS + MORE),
        bound: Some(1.0),
    });
    report.add(Row {
        subject: "failover: effects that happened twice",
        figure: twice.to_string(),
        against: "0".to_owned(),
        ratio: f64::from(twice),
        bound: Some(0.0),
    });
    Ok(())
}

/// Waits until somebody leads.
async fn wait_for_leader(field: &Field, namespace: &str) -> Result<()> {
    let leases = Api::<Lease>::namespaced(field.client.clone(), namespace);
    let held = || async {
        let lease = leases.get_opt("configmapsync-operator-leader").await.ok().flatten()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    };
    eventually(Duration::from_mins(1), held).await?;
    Ok(())
}

/// A write of a child or of a status that succeeded. The API server answers 504 for a request whose client was killed, whether it was
/// committed or not. That answer does not count: if the write was not committed, the standby has to repeat it. A standby that repeats
/// committed writes shows in the thousand that succeeded before the kill. Finalizer and label are two different patches of one object,
/// and are not told apart.
fn is_effect(entry: &AuditEntry) -> bool {
    let of = &entry.object_ref;
    entry.is_mutating()
        && (200..300).contains(&entry.response_status.code)
        && (of.resource == "configmaps" || (of.resource == "configmapsyncs" && of.subresource == "status"))
}

/// How many writes there were beyond the first of each object.
fn twice(entries: &[AuditEntry]) -> u32 {
    let mut written = HashMap::<_, u32>::new();
    for entry in entries.iter().filter(|entry| is_effect(entry)) {
        *written.entry((&entry.object_ref.resource, &entry.object_ref.name)).or_default() += 1;
    }
    written.values().map(|writes| writes - 1).sum()
}
