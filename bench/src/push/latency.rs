//! From a change of a Secret to its version in Vault, beside a plain client that watches Secrets and writes them straight to Vault.
//!
//! Both are made at the same pace in turn, so that whatever else the machine does falls on both. Both begin with the API server's answer to
//! the change and end when Vault wrote the version, by its own word; Vault's clock is the machine's. The watcher has the value with the
//! event, where the operator, whose watch shows no values, has to fetch it. Both look what is in Vault before they write; beside it stands what
//! the copy would have taken without a look.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use konverge_e2e::Watcher;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::field::{Field, LIMIT, name, written};
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

pub(crate) async fn measure(field: &mut Field, changes: usize, report: &mut Report) -> Result<()> {
    field.start()?.ready().await?;
    field.in_sync().await?;
    let watcher = Watcher::start(field.client.clone(), &field.namespace);
    let (mut ours, mut bare, mut blind) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbers = (0..field.bindings).cycle();
    for turn in 0..changes.div_ceil(TURN) {
        eprintln!("push: turn {} of {}", turn + 1, changes.div_ceil(TURN));
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (step, number) in numbers.by_ref().take(TURN).enumerate() {
            ticks.tick().await;
            ours.push(change(field, &name(number), &format!("value {turn} {step}")).await?);
        }
        for step in 0..TURN {
            ticks.tick().await;
            let Copy { took, read } =
                copy(field, &watcher, &format!("bare-{step}"), &format!("value {turn} {step}")).await?;
            bare.push(took);
            blind.push(took - read);
        }
    }
    for (subject, percent, limit, what, bound) in [
        ("push: change to version p50", 50, &bare, "watch, read and write", Some(BOUND)),
        ("push: change to version p99", 99, &bare, "watch, read and write", Some(BOUND)),
        ("push: change to version p50, without its look", 50, &blind, "watch and write", None),
        ("push: change to version p99, without its look", 99, &blind, "watch and write", None),
    ] {
        let (ours, limit) = (percentile(&ours, percent), percentile(limit, percent));
        report.add(Row {
            subject,
            figure: format!("{ours:.1} ms"),
            against: format!("{limit:.1} ms {what}, {} bindings", field.bindings),
            ratio: ours / limit,
            bound,
        });
    }
    eprintln!("push: {} samples of ours, {} of the copy", ours.len(), bare.len());
    Ok(())
}

async fn change(field: &Field, name: &str, value: &str) -> Result<f64> {
    field.put(name, value, true).await?;
    let answered = Timestamp::now();
    Ok(milliseconds(answered, field.arrived(name, value).await?))
}

/// The milliseconds of one copy, and how many of them went into reading from Vault.
struct Copy {
    took: f64,
    read: f64,
}

/// Changes a Secret that has not opted in, waits until the watcher has it, and writes it.
async fn copy(field: &Field, watcher: &Watcher, name: &str, value: &str) -> Result<Copy> {
    field.put(name, value, false).await?;
    let answered = Instant::now();
    let seen = watcher.until(name, LIMIT, |seen| seen.data.values().any(|held| held == value.as_bytes())).await?.at;
    let delay = seen.saturating_duration_since(answered).as_secs_f64() * 1000.0;
    let began = Timestamp::now();
    let path = format!("copies/{name}");
    let expected = field.read_bare(&path).await?;
    let read = milliseconds(began, Timestamp::now());
    let version = field.write_bare(&path, value, expected).await?;
    Ok(Copy { took: delay + milliseconds(began, written(&version)?), read })
}

fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}
