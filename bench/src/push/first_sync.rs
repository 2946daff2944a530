//! All Secrets for the first time, from the start of the operator's process until Vault has written the last of them, beside the loop over
//! as many paths of their own.
//!
//! The loop reads, writes and marks, with the operator's rights, because what Vault has most work with is whose request it is. The operator
//! starts, lists, reads each Secret, notes in its journal what it is about to write, writes and marks; and then notes on each Secret what
//! it did there. All but the last is counted. The API server and etcd share the processors.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use tokio::time::Instant;

use super::field::{CONCURRENCY, Field, written};
use crate::report::{Report, Row};

const BOUND: f64 = 1.25;

pub(crate) async fn measure(field: &mut Field, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    let all = stream::iter(0..field.bindings)
        .map(async |number| field.write_bare(&format!("bare/{number}"), "initial", true).await.map(drop));
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let limit = began.elapsed().as_secs_f64();

    let (began, at) = (Instant::now(), Timestamp::now());
    field.start()?.ready().await?;
    let ready = began.elapsed().as_secs_f64();
    field.in_step().await?;
    let noted = began.elapsed().as_secs_f64();
    let times: Vec<Timestamp> = field.versions().await?.iter().map(written).collect::<Result<_>>()?;
    let (first, last) = times.iter().min().zip(times.iter().max()).context("there is nothing to push")?;
    let seconds = |time: &Timestamp| time.duration_since(at).as_secs_f64();
    eprintln!(
        "push: ready after {ready:.2} s, first version after {:.2} s, last after {:.2} s; the loop took {limit:.2} s",
        seconds(first),
        seconds(last)
    );
    for (subject, figure, bound) in [
        ("push: first sync, until the last version is in Vault", seconds(last), Some(BOUND)),
        ("push: first sync, until all is noted on the Secrets", noted, None),
    ] {
        report.add(Row {
            subject,
            figure: format!("{figure:.2} s"),
            against: format!("{limit:.2} s of the loop, {} paths", field.bindings),
            ratio: figure / limit,
            bound,
        });
    }
    let paths = f64::from(field.bindings);
    for (subject, name) in [
        ("push: reads of a first sync", "konverge_push_vault_reads_total"),
        ("push: writes of a first sync", "konverge_push_vault_writes_total"),
    ] {
        let count = field.metric(name).await?;
        let against = format!("{paths} paths");
        report.add(Row { subject, figure: count.to_string(), against, ratio: count / paths, bound: Some(1.0) });
    }
    Ok(())
}
