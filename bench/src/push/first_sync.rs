//! All Secrets for the first time, from the start of the operator's process until Vault has written the last of them, beside the loop over
//! as many paths of their own just before.
//!
//! The loop reads, writes and marks, with the operator's rights, because what Vault has most work with is whose request it is. The operator
//! starts, lists, reads each Secret, notes in its journal what it is about to write, writes and marks; and then notes on each Secret what
//! it did there. All but the last is counted. The API server and etcd share the processors.
//!
//! Both take some seconds, in which a machine that others share changes more than the bound allows for. So there are several turns, and the
//! one in the middle counts.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use tokio::time::Instant;

use super::field::{CONCURRENCY, Field, written};
use crate::report::{Report, Row};

const BOUND: f64 = 1.25;

/// What was measured once.
pub(crate) struct Turn {
    paths: f64,
    /// Seconds of the loop.
    limit: f64,
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
    let began = Instant::now();
    let all = stream::iter(0..field.bindings)
        .map(async |number| field.write_bare(&format!("bare/{number}"), "initial", true).await.map(drop));
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let limit = began.elapsed().as_secs_f64();

    let (began, at) = (Instant::now(), Timestamp::now());
    field.start()?.ready().await?;
    let until_ready = began.elapsed().as_secs_f64();
    field.in_step().await?;
    let noted = began.elapsed().as_secs_f64();
    let times: Vec<Timestamp> = field.versions().await?.iter().map(written).collect::<Result<_>>()?;
    let (first, last) = times.iter().min().zip(times.iter().max()).context("there is nothing to push")?;
    let seconds = |time: &Timestamp| time.duration_since(at).as_secs_f64();
    let (first, last) = (seconds(first), seconds(last));
    eprintln!(
        "push: ready after {until_ready:.2} s, first version after {first:.2} s, last after {last:.2} s; the loop took {limit:.2} s"
    );
    let (reads, writes) = (
        field.metric("konverge_push_vault_reads_total").await?,
        field.metric("konverge_push_vault_writes_total").await?,
    );
    Ok(Turn { paths: f64::from(field.bindings), limit, last, noted, reads, writes })
}

/// The turn in the middle.
pub(crate) fn report(mut turns: Vec<Turn>, report: &mut Report) -> Result<()> {
    turns.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let Turn { paths, limit, last, noted, reads, writes } = turns.get(turns.len() / 2).context("there was no turn")?;
    let (turns, paths_of_loop) = (turns.len(), format!("{limit:.2} s of the loop, {paths} paths"));
    for (subject, figure, bound) in [
        ("push: first sync, until the last version is in Vault", last, Some(BOUND)),
        ("push: first sync, until all is noted on the Secrets", noted, None),
    ] {
        report.add(Row {
            subject,
            figure: format!("{figure:.2} s"),
            against: format!("{paths_of_loop}, median of {turns}"),
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
