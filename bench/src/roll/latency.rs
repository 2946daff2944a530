//! From a change of a Secret to the pod template of its user, beside a bare patch of a pod template.
//!
//! Both are made at the same pace in turn, so that whatever else the machine does falls on both, and both end when the same outside watcher
//! sees the template. The operator's begins with the API server's answer to the change: it hears of it by a watch, reads the Secret, and
//! patches. The bare patch begins with its request.

use std::time::Duration;

use anyhow::Result;
use konverge_testkit::{AuditEntry, ControlPlane};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::field::{AT_ONCE, Field, LIMIT, account, name};
use crate::{
    report::{Report, Row},
    samples::percentile,
};

/// Ten changes a second.
const PACE: Duration = Duration::from_millis(100);

/// So many changes of the one kind, then of the other.
const TURN: usize = 40;

/// Besides what the other does, the Secret is read from the API server.
const BOUND: f64 = 2.0;

/// One read and one patch.
const REQUESTS: f64 = 2.0;

/// Events, and the kinds whose definitions are missing here, for which the operator looks from time to time.
const NOT_COUNTED: [&str; 6] =
    ["events", "rollouts", "secretproviderclasses", "deploymentconfigs", "vaultrollouts", "vaultsyncstatuses"];

pub(crate) async fn measure(
    field: &mut Field,
    control_plane: &ControlPlane,
    changes: usize,
    report: &mut Report,
) -> Result<()> {
    for step in 0..TURN {
        field.deployment(&bare(step), 0, json!({})).await?;
    }
    field.start(&AT_ONCE).await?;
    field.are_noted().await?;
    let log = control_plane.audit_log()?;
    log.catch_up(&field.client).await?;
    let log = log.from_now()?;
    let (mut ours, mut loops) = (Vec::new(), Vec::new());
    let mut numbers = (0..field.workloads).cycle();
    for turn in 0..changes.div_ceil(TURN) {
        eprintln!("roll: turn {} of {}", turn + 1, changes.div_ceil(TURN));
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (step, number) in numbers.by_ref().take(TURN).enumerate() {
            ticks.tick().await;
            let times = field.outside.changes(&name(number)) + 1;
            field.put(number, &format!("value {turn} {step}")).await?;
            ours.push(until_seen(field, &name(number), times, Instant::now()).await?);
        }
        for step in 0..TURN {
            ticks.tick().await;
            let began = Instant::now();
            field.patch_bare(&bare(step), &format!("value {turn}")).await?;
            loops.push(until_seen(field, &bare(step), turn + 1, began).await?);
        }
    }
    for percent in [50, 99] {
        let (ours, limit) = (percentile(&ours, percent), percentile(&loops, percent));
        report.add(Row {
            subject: if percent == 50 { "roll: change to template p50" } else { "roll: change to template p99" },
            figure: format!("{ours:.1} ms"),
            against: format!("{limit:.1} ms of a bare patch, {} workloads", field.workloads),
            ratio: ours / limit,
            bound: Some(BOUND),
        });
    }
    log.catch_up(&field.client).await?;
    let asked = log.entries_of(&account())?;
    // Watches are renewed with time and not with changes.
    let is_about_a_change =
        |entry: &&AuditEntry| entry.verb != "watch" && !NOT_COUNTED.contains(&entry.object_ref.resource.as_str());
    let asked: Vec<_> = asked.iter().filter(is_about_a_change).collect();
    let lists = asked.iter().filter(|entry| entry.verb == "list").count();
    #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
    let (requests, lists, changes) = (asked.len() as f64 / ours.len() as f64, lists as f64, ours.len());
    let against = || format!("{changes} changes");
    for (subject, figure, ratio, bound) in [
        ("roll: requests of a change", format!("{requests:.2}"), requests, REQUESTS),
        ("roll: lists", lists.to_string(), lists, 0.0),
    ] {
        report.add(Row { subject, figure, against: against(), ratio, bound: Some(bound) });
    }
    Ok(())
}

async fn until_seen(field: &Field, name: &str, times: usize, began: Instant) -> Result<f64> {
    let at = field.outside.changed(name, times, LIMIT).await?;
    // The watcher may have been told before the change was answered.
    Ok(at.saturating_duration_since(began).as_secs_f64() * 1000.0)
}

/// The name of a Deployment that the operator is not asked to roll.
fn bare(step: usize) -> String {
    format!("bare-{step}")
}
