//! From a change in the server to the Secret that is seen to hold it, beside a bare server-side apply that is seen.
//!
//! Both are made at the same pace in turn, so that whatever else the machine does falls on both, and both end when the same
//! outside watcher sees the value. Ours begins when the server has answered the change. A change concerns five Secrets at once,
//! and each of them is a sample; the bare loop applies its five one after the other, and each is timed by itself.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use konverge_e2e::annotated_secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    report::{Report, Row},
    samples::percentile,
    scene::{ENVIRONMENTS, KEY, LIMIT, SECRETS, Scene, secrets_of},
};

/// Ten changes a second.
const PACE: Duration = Duration::from_millis(100);

/// So many changes of the one kind, then of the other.
const TURN: usize = 40;

/// Besides the apply itself, a change has to be told and the environment to be read: each may take as long as an apply does.
const BOUND: f64 = 3.0;

pub(crate) async fn measure(scene: &Scene, changes: usize, report: &mut Report) -> Result<()> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..changes.div_ceil(TURN) {
        eprintln!("propagation: turn {} of {}", turn + 1, changes.div_ceil(TURN));
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0..TURN {
            ticks.tick().await;
            change(scene, number % ENVIRONMENTS, &format!("value {turn} {number}"), &mut ours).await?;
        }
        for number in 0..TURN {
            ticks.tick().await;
            for bare_secret in 0..SECRETS / ENVIRONMENTS {
                let name = format!("bare-{}", number % ENVIRONMENTS + bare_secret * ENVIRONMENTS);
                apply(scene, &name, &format!("value {turn} {number}"), &mut bare).await?;
            }
        }
    }
    for percent in [50, 99] {
        let (ours, limit) = (percentile(&ours, percent), percentile(&bare, percent));
        report.add(Row {
            subject: if percent == 50 { "propagation p50" } else { "propagation p99" },
            figure: format!("{ours:.1} ms"),
            against: format!("{limit:.1} ms bare apply"),
            ratio: ours / limit,
            bound: Some(BOUND),
        });
    }
    eprintln!("propagation: {} samples of ours, {} of the bare apply", ours.len(), bare.len());
    Ok(())
}

/// Changes an environment and waits until the Secrets that are bound to it are seen to hold the value.
async fn change(scene: &Scene, environment: usize, value: &str, samples: &mut Vec<f64>) -> Result<()> {
    scene.change(environment, value).await?;
    let committed = Instant::now();
    for name in secrets_of(environment) {
        let seen = scene.watcher.holds(&name, LIMIT, &[(KEY, value)]).await?;
        samples.push(milliseconds(seen.at.saturating_duration_since(committed)));
    }
    Ok(())
}

/// Applies a Secret of the same form, without an operator in between, and waits until it is seen.
async fn apply(scene: &Scene, name: &str, value: &str, samples: &mut Vec<f64>) -> Result<()> {
    let api = Api::<Secret>::namespaced(scene.stage.client().clone(), &scene.namespace);
    let manifest = manifest(name, value);
    let began = Instant::now();
    api.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&manifest)).await?;
    let seen = scene.watcher.holds(name, LIMIT, &[(KEY, value)]).await?;
    samples.push(milliseconds(seen.at.saturating_duration_since(began)));
    Ok(())
}

fn manifest(name: &str, value: &str) -> Value {
    let mut manifest = annotated_secret(name, "acme/backend/none");
    manifest["metadata"]["annotations"]["zopp.dev/sync"] = json!("false");
    manifest["stringData"] = json!({ KEY: value });
    manifest
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
