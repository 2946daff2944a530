//! All Secrets for the first time, from the start of the operator's process until Vault has written the last of them, beside the loop over
//! as many paths of their own just before.
//!
//! The loop reads, writes and marks, with the operator's rights, because what Vault has most work with is whose request it is. Beside it
//! stands a loop that knows that nothing is there and does not read. The operator
//! starts, lists, reads each Secret, notes in its journal what it is about to write, writes and marks; and then notes on each Secret what
//! it did there. All but the last is counted. The API server and etcd share the processors.
//!
//! Both take some seconds, in which a machine that others share changes more than the bound allows for. So there are several turns, and the
//! one in the middle counts.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use konverge_vault::Expected;
use tokio::time::Instant;

use super::field::{CONCURRENCY, Field, written};
use crate::report::{Report, Row};

const BOUND: f64 = 1.25;

/// The result of one measurement.
pub(crate) struct Turn {
    paths: f64,
    /// Seconds of the loop.
    limit: f64,
    /// Seconds of the loop that does not read.
    blind: f64,
    /// Seconds until the last version was in Vault.
    last: f64,
    /// Seconds until all was noted on the Secrets.
    noted: f64,
    /// Requests to Vault.
    reads: f64,
    writes: f64,
}

impl Turn {
    fn ratio(&self) -> f64 {
        self.last / self.limit
    }
}

/// One turn, with an operator that has never run.
pub(crate) async fn turn(field: &mut Field) -> Result<Turn> {
    let limit = looped(field, async |name: &str| field.read_write_and_mark(name, "initial").await).await?;
    let blind = looped(field, async |name: &str| {
        let name = format!("blind-{name}");
        field.write_and_mark(&name, "initial", Expected::Absent).await
    })
    .await?;

    let (began, at) = (Instant::now(), Timestamp::now());
    field.start()?.ready().await?;
    let until_ready = began.elapsed().as_secs_f64();
    field.in_sync().await?;
    let noted = began.elapsed().as_secs_f64();
    let times: Vec<Timestamp> = field.versions().await?.iter().map(written).collect::<Result<_>>()?;
    let (first, last) = times.iter().min().zip(times.iter().max()).context("there is nothing to push")?;
    let seconds = |time: &Timestamp| time.duration_since(at).as_secs_f64();
    let (first, last) = (seconds(first), seconds(last));
    eprintln!(
        "push: ready after {until_ready:.2} s, first version after {first:.2} s, last after {last:.2} s; the loops took {limit:.2} and {blind:.2} s"
    );
    let (reads, writes) = (
        field.metric("konverge_push_vault_reads_total").await?,
        field.metric("konverge_push_vault_writes_total").await?,
    );
    Ok(Turn { paths: f64::from(field.bindings), limit, blind, last, noted, reads, writes })
}

/// How many seconds it takes to do something for as many paths as there are Secrets.
async fn looped(field: &Field, one: impl AsyncFn(&str) -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    let all = stream::iter(0..field.bindings).map(async |number| one(&format!("bare/{number}")).await);
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    Ok(began.elapsed().as_secs_f64())
}

/// The turn in the middle.
pub(crate) fn report(mut turns: Vec<Turn>, report: &mut Report) -> Result<()> {
    turns.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let turn = turns.get(turns.len() / 2).context("there was no turn")?;
    let Turn { paths, limit, blind, last, noted, reads, writes } = turn;
    let turns = turns.len();
    for (subject, figure, limit, bound) in [
        ("push: first sync, until the last version is in Vault", last, limit, Some(BOUND)),
        ("push: first sync, beside a loop that does not read", last, blind, None),
        ("push: first sync, until all is noted on the Secrets", noted, limit, None),
    ] {
        report.add(Row {
            subject,
            figure: format!("{figure:.2} s"),
            against: format!("{limit:.2} s of the loop, {paths} paths, median of {turns}"),
            ratio: figure / limit,
            bound,
        });
    }
    for (subject, count) in [("push: reads of a first sync", reads), ("push: writes of a first sync", writes)] {
        let against = format!("{paths} paths");
        report.add(Row { subject, figure: count.to_string(), against, ratio: count / paths, bound: Some(1.0) });
    }
    Ok(())
}
