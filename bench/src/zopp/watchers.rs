//! A thousand watchers on fifty environments, and twenty changes a second: from the server's answer to a change until each of its watchers was told.
//!
//! On PostgreSQL the watchers are at one replica and the changes at another. An event that does not come is an error, not a figure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{Stream, StreamExt};
use konverge_zopp_client::{EnvironmentName, EnvironmentReader, FetchError, WatchEvent};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    ZoppScale,
    site::{Database, Site, key, value},
};
use crate::{
    report::{Report, Row},
    samples::percentile,
};

const WATCHERS_OF_AN_ENVIRONMENT: usize = 20;
const WATCHERS_OF_A_CONNECTION: usize = 20;
const CHANGES_A_SECOND: u32 = 20;
/// From commit to delivery.
const LIMIT_MILLISECONDS: f64 = 20.0;
const LIMIT_BYTES: f64 = 30.0 * 1024.0;
/// Far beyond what a delivery takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// When the server answered a change: by the number of the environment, and by its version.
type Answered = HashMap<(usize, i64), Instant>;

/// An event: the number of the environment, its version, and when it came.
type Delivery = (usize, i64, Instant);

pub(crate) async fn measure(scale: &ZoppScale, database: Database, report: &mut Report) -> Result<()> {
    let writer = Site::ours(database).await?;
    let replica = match database {
        Database::Sqlite => None,
        Database::Postgres => Some(writer.replica().await?),
    };
    let at = replica.as_ref().unwrap_or(&writer);
    let count = scale.watchers.div_ceil(WATCHERS_OF_AN_ENVIRONMENT).max(1);
    let mut environments = Vec::new();
    for number in 0..count {
        environments.push(writer.environment(&format!("watched-{number}"), 0).await?);
    }
    let changes = scale.watched_seconds * CHANGES_A_SECOND as usize;
    eprintln!("zopp: {} watchers on {count} environments, {changes} changes, {database}", scale.watchers);
    let before = at.resident()?;
    let mut watchers = JoinSet::new();
    let mut clients = Vec::new();
    for number in 0..scale.watchers {
        if number % WATCHERS_OF_A_CONNECTION == 0 {
            clients.push(at.client()?);
        }
        let environment = number % count;
        let client = clients.last().context("there is a client")?.clone();
        let stream = EnvironmentReader::new(client, environments[environment].clone()).watch(None).await?;
        // Changes go round, so each environment has as many, or one more.
        let expected = changes / count + usize::from(environment < changes % count);
        watchers.spawn(watch(Box::pin(stream), environment, expected));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 watchers")]
    let resident = (at.resident()? - before) / scale.watchers as f64;
    let answered = change(&writer, &environments, changes).await?;

    let mut latencies = Vec::new();
    while let Some(watched) = watchers.join_next().await {
        for (environment, version, told) in watched?? {
            let answered = answered.get(&(environment, version)).context("an event of a change that was never made")?;
            latencies.push(told.saturating_duration_since(*answered).as_secs_f64() * 1000.0);
        }
    }
    let slowest = percentile(&latencies, 99);
    let way = if replica.is_some() { "through another replica" } else { "in one process" };
    report.add(Row {
        subject: format!("zopp: change to {} watchers p99, {database}, {way}", scale.watchers).leak(),
        figure: format!("{slowest:.1} ms"),
        against: format!("{LIMIT_MILLISECONDS} ms, {} events, none lost", latencies.len()),
        ratio: slowest / LIMIT_MILLISECONDS,
        bound: Some(1.0),
    });
    report.add(Row {
        subject: format!("zopp: resident set for each of {} watchers, {database}", scale.watchers).leak(),
        figure: format!("{:.1} KiB", resident / 1024.0),
        against: format!("{:.0} KiB", LIMIT_BYTES / 1024.0),
        ratio: resident / LIMIT_BYTES,
        bound: Some(1.0),
    });
    Ok(())
}

/// Takes `expected` events, each of which must be of the next version.
async fn watch(
    mut stream: impl Stream<Item = Result<WatchEvent, FetchError>> + Unpin,
    environment: usize,
    expected: usize,
) -> Result<Vec<Delivery>> {
    let mut told = Vec::with_capacity(expected);
    for next in (1..).take(expected) {
        let event = timeout(PATIENCE, stream.next()).await.context("an event did not come")?;
        match event.context("a watch ended")?? {
            WatchEvent::Changed { version, .. } => {
                ensure!(version == next, "version {version} came after {}", next - 1);
                told.push((environment, version, Instant::now()));
            }
            WatchEvent::Resync { version } => bail!("a watcher was sent to list again, at version {version}"),
        }
    }
    Ok(told)
}

/// Makes the changes at their pace, in one environment after the other.
async fn change(writer: &Site, environments: &[EnvironmentName], changes: usize) -> Result<Answered> {
    let client = writer.client()?;
    let mut answered = Answered::new();
    let mut versions = vec![0; environments.len()];
    let mut ticks = interval(Duration::from_secs(1) / CHANGES_A_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0..changes {
        ticks.tick().await;
        let environment = number % environments.len();
        client.upsert_secret(value(&environments[environment], &key(0))).await.context("cannot set")?;
        versions[environment] += 1;
        answered.insert((environment, versions[environment]), Instant::now());
    }
    Ok(answered)
}
