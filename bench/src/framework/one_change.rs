//! The requests to the API server for one change of an object with one child, by its audit log: the example configmapsync, beside the same
//! flow out of koprs's helpers. Events are counted apart, as they are no part of the work.
//!
//! The object has been there for a while; then what it is to copy changes, ten times, each after the dust of the last has settled.

use std::time::Duration;

use anyhow::{Context, Result};
use konverge_bench_protocol::Work;
use konverge_testkit::{AuditEntry, AuditLog};

use super::{
    field::{Field, Framework},
    operator::Operator,
    syncs::Syncs,
};
use crate::report::{Report, Row};

const CHANGES: u32 = 10;

/// Longer than what a change leads to can take: a status, an event, an echo, and another run because of it.
const SETTLE: Duration = Duration::from_secs(2);

/// Requests of all changes, by what they were for.
#[derive(Debug, Default)]
struct RequestCounts {
    child_writes: u32,
    status_writes: u32,
    other_writes: u32,
    events: u32,
    reads: u32,
    /// Runs of the reconciler.
    runs: f64,
}

pub(crate) async fn measure(field: &Field, report: &mut Report) -> Result<()> {
    let (ours, theirs) = (ours(field).await?, koprs(field).await?);
    let each = |count: u32| f64::from(count) / f64::from(CHANGES);
    for (subject, count, of_koprs, bound) in [
        ("one change: writes of the child", each(ours.child_writes), each(theirs.child_writes), 1.0),
        ("one change: writes of the status", each(ours.status_writes), each(theirs.status_writes), 1.0),
        ("one change: other writes", each(ours.other_writes), each(theirs.other_writes), 0.0),
        ("one change: gets and lists", each(ours.reads), each(theirs.reads), 0.0),
        ("one change: runs", ours.runs / f64::from(CHANGES), theirs.runs / f64::from(CHANGES), 1.0),
    ] {
        let against = format!("{of_koprs:.1} koprs");
        report.add(Row { subject, figure: format!("{count:.1}"), against, ratio: count, bound: Some(bound) });
    }
    eprintln!("one change: events: {:.1} of ours, {:.1} of koprs", each(ours.events), each(theirs.events));
    Ok(())
}

async fn ours(field: &Field) -> Result<RequestCounts> {
    let namespace = field.plane.namespace("one-change").await?;
    Operator::install(field, &namespace).await?;
    let (user, kubeconfig) = field.account(&namespace, "konverge").await?;
    let operator = Operator::start(field, &kubeconfig, &["--namespace", &namespace]).await?;
    let syncs = begin(field, &namespace).await?;
    let (log, before) = (field.plane.audit_log()?.from_now()?, operator.runs().await?);
    change(&syncs).await?;
    Ok(RequestCounts { runs: operator.runs().await? - before, ..count(&log, &user)? })
}

async fn koprs(field: &Field) -> Result<RequestCounts> {
    let namespace = field.plane.namespace("one-change-koprs").await?;
    let (user, kubeconfig) = field.account(&namespace, "koprs").await?;
    let mut peer = field.peer_as(&kubeconfig, Framework::Koprs, Work::Sync, &namespace, Duration::ZERO, usize::MAX)?;
    let syncs = begin(field, &namespace).await?;
    peer.look()?;
    let (log, before) = (field.plane.audit_log()?.from_now()?, peer.runs.len());
    change(&syncs).await?;
    peer.look()?;
    let runs = u32::try_from(peer.runs.len() - before).context("some runs")?;
    Ok(RequestCounts { runs: f64::from(runs), ..count(&log, &user)? })
}

/// One object, in sync.
async fn begin(field: &Field, namespace: &str) -> Result<Syncs> {
    let syncs = Syncs::new(&field.client, namespace);
    syncs.create(1).await?;
    syncs.copied(0, "initial").await?;
    tokio::time::sleep(SETTLE).await;
    Ok(syncs)
}

async fn change(syncs: &Syncs) -> Result<()> {
    for number in 0..CHANGES {
        syncs.change(0, &format!("value {number}")).await?;
        tokio::time::sleep(SETTLE).await;
    }
    Ok(())
}

fn count(log: &AuditLog, user: &str) -> Result<RequestCounts> {
    let mut counts = RequestCounts::default();
    // A watch is no request for a change; it comes and goes by the clock.
    for entry in log.entries_of(user)?.iter().filter(|entry| entry.verb != "watch") {
        *counter(&mut counts, entry) += 1;
    }
    Ok(counts)
}

fn counter<'a>(counts: &'a mut RequestCounts, entry: &AuditEntry) -> &'a mut u32 {
    match (entry.is_mutating(), entry.object_ref.resource.as_str(), entry.object_ref.subresource.as_str()) {
        (false, ..) => &mut counts.reads,
        (true, "events", _) => &mut counts.events,
        (true, _, "status") => &mut counts.status_writes,
        (true, "configmaps", _) => &mut counts.child_writes,
        (true, ..) => &mut counts.other_writes,
    }
}
