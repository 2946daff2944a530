//! A Secret that changes five times a second, with the settings that an operator has of itself: one rollout a minute, and none of what runs
//! away.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use konverge_testkit::eventually;
use kube::{Api, api::ListParams};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::field::{Field, LIMIT, name};
use crate::report::{Report, Row};

const PACE: Duration = Duration::from_millis(200);

/// The least time between two rollouts of a workload.
const INTERVAL: u64 = 60;

pub(crate) async fn measure(field: &mut Field, seconds: u64, report: &mut Report) -> Result<()> {
    field.start(&[]).await?;
    field.are_noted().await?;
    eprintln!("roll: a source runs away for {seconds} s");
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (began, mut changes) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        ticks.tick().await;
        changes += 1;
        field.put(0, &changes.to_string()).await?;
    }
    let rollouts = field.outside.changes(&name(0));
    let events = Api::<Event>::namespaced(field.client.clone(), &field.namespace);
    let is_said = || async {
        let events = events.list(&ListParams::default()).await.ok()?.items;
        events.iter().any(|event| event.reason.as_deref() == Some("RunawaySource")).then_some(())
    };
    eventually(LIMIT, is_said).await.context("that the source runs away is not said")?;
    let allowed = 1 + seconds / INTERVAL;
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let ratio = rollouts as f64 / allowed as f64;
    report.add(Row {
        subject: "roll: rollouts for a runaway source",
        figure: rollouts.to_string(),
        against: format!("{allowed} in {seconds} s, {changes} changes"),
        ratio,
        bound: Some(1.0),
    });
    Ok(())
}
