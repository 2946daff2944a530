//! From an edit of an object until the server has answered the write, beside a plain client that watches objects and writes them.
//!
//! Both are made at the same pace in turn. Both begin with the API server's answer to the edit, and end when the server has answered the PUT, by the
//! proxy's word. The watcher knows the whole body, where the operator reads the group before it writes, so that it keeps what others put into it.
//! Objects of the watcher are paused, so the operator leaves them alone.

use std::{pin::pin, time::Duration};

use anyhow::{Context, Result};
use futures::StreamExt;
use konverge_openzro::{Collection, Fields, Limits, OpenZro};
use konverge_testkit::eventually;
use kube::{
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    field::{Field, LIMIT, group, groups},
    float, row,
};
use crate::{report::Report, samples::percentile};

/// Five edits a second, so that their calls stay within the budget.
const PACE: Duration = Duration::from_millis(200);

/// So many edits of the one kind, then of the other.
const TURN: usize = 20;

const BOUND: f64 = 2.0;

/// The object of the watcher.
const BARE: &str = "bare";

pub(crate) async fn measure(field: &Field, count: u16, changes: usize, report: &mut Report) -> Result<()> {
    let bare = Bare::set(field).await?;
    field.listed().await?;
    let (mut ours, mut limit, mut most) = (Vec::new(), Vec::new(), 0);
    let mut numbers = (0..count).cycle();
    for turn in 0..changes.div_ceil(TURN) {
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (step, number) in numbers.by_ref().take(TURN).enumerate() {
            ticks.tick().await;
            let (took, calls) = edit(field, &group(number), &format!("{} {turn} {step}", group(number))).await?;
            ours.push(took);
            most = most.max(calls);
        }
        for step in 0..TURN {
            ticks.tick().await;
            limit.push(bare.edit(field, &format!("{BARE} {turn} {step}")).await?);
        }
    }
    let target = &field.target;
    for percent in [50, 99] {
        let (ours, limit) = (percentile(&ours, percent), percentile(&limit, percent));
        let (figure, against) = (format!("{ours:.1} ms"), format!("{limit:.1} ms watch and PUT, {count} groups"));
        report.add(row(target, &format!("edit to answer p{percent}"), figure, against, ours / limit, Some(BOUND)));
    }
    let against = format!("{} edits", ours.len());
    report.add(row(target, "calls of an edit, at most", most.to_string(), against, float(most), Some(2.0)));
    Ok(())
}

/// Edits an object. Returns the milliseconds until its PUT was answered, and how many calls were about its group.
async fn edit(field: &Field, object: &str, name: &str) -> Result<(f64, usize)> {
    let from = field.front.count();
    field.rename(object, name).await?;
    let edited = Instant::now();
    let done = async || {
        let calls = field.front.since(from);
        let put = calls.iter().find(|seen| seen.method == "PUT" && seen.answered.is_some())?;
        let about = calls.iter().filter(|seen| seen.path == put.path).count();
        Some((put.answered?, about))
    };
    let (answered, calls) = eventually(LIMIT, done).await.with_context(|| format!("{object} is not renamed"))?;
    Ok((answered.saturating_duration_since(edited).as_secs_f64() * 1000.0, calls))
}

/// A plain client that watches a paused object and writes its group.
struct Bare {
    /// The last name that was seen, and when.
    seen: watch::Receiver<(String, Instant)>,
    task: tokio::task::JoinHandle<()>,
    openzro: OpenZro,
    id: String,
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Bare {
    async fn set(field: &Field) -> Result<Self> {
        let paused = json!({ "apiVersion": "openzro.io/v1alpha1", "kind": "Group",
            "metadata": { "name": BARE, "annotations": { "konverge.dev/paused": "true" } }, "spec": { "name": BARE } });
        let api = field.api(&groups());
        api.patch(BARE, &PatchParams::apply("bench"), &Patch::Apply(paused)).await?;
        let (sender, seen) = watch::channel((String::new(), Instant::now()));
        let task = tokio::spawn(async move {
            let only = watcher::Config::default().fields(&format!("metadata.name={BARE}"));
            let mut objects = pin!(watcher(api, only).default_backoff().touched_objects());
            while let Some(object) = objects.next().await {
                // The next list delivers the changes that an interrupted watch missed.
                let Ok(object) = object else { continue };
                let name = object.data["spec"]["name"].as_str().unwrap_or_default().to_owned();
                sender.send_replace((name, Instant::now()));
            }
        });
        let limits = Limits::default().with(|limits| limits.rate = None);
        let openzro = field.target.account.client_at(&field.front.url(), limits)?;
        let fields: Fields = [("name".to_owned(), Value::from(BARE))].into_iter().collect();
        let id = openzro.create(&Collection::Groups, &fields).await?.object.id().to_owned();
        Ok(Self { seen, task, openzro, id })
    }

    /// Edits the object. Returns the milliseconds until it was seen, and the group written.
    async fn edit(&self, field: &Field, name: &str) -> Result<f64> {
        field.rename(BARE, name).await?;
        let edited = Instant::now();
        let mut seen = self.seen.clone();
        let is_it = |(known, _): &(String, Instant)| known == name;
        let at = tokio::time::timeout(LIMIT, seen.wait_for(is_it)).await.context("the edit is not seen")??.1;
        let began = Instant::now();
        let body: Fields = [("name".to_owned(), Value::from(name))].into_iter().collect();
        self.openzro.replace(&Collection::Groups.place(self.id.clone()), &body).await?;
        let (watched, written) = (at.saturating_duration_since(edited), began.elapsed());
        Ok((watched + written).as_secs_f64() * 1000.0)
    }
}
