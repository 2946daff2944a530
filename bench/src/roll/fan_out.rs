//! One Secret that all workloads use: the time from the API server's answer to its change until an outside watcher has seen the last
//! template. The limit is a loop of bare patches of the same Deployments, as many at a time.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use super::field::{AT_ONCE, CONCURRENCY, Field, LIMIT, name};
use crate::report::{Report, Row};

const BOUND: f64 = 1.25;

pub(crate) async fn measure(field: &mut Field, report: &mut Report) -> Result<()> {
    let all = usize::from(field.workloads);
    let began = Instant::now();
    let patches = stream::iter(0..field.workloads).map(async |number| field.patch_bare(&name(number), "value").await);
    patches.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let limit = field.outside.all_changed(all, LIMIT).await?.duration_since(began).as_secs_f64();

    field.start(&AT_ONCE).await?;
    field.are_noted().await?;
    field.put(0, "changed").await?;
    let answered = Instant::now();
    let ours = field.outside.all_changed(2 * all, LIMIT).await?.duration_since(answered).as_secs_f64();
    report.add(Row {
        subject: "roll: one Secret of all, until the last template",
        figure: format!("{ours:.2} s"),
        against: format!("{limit:.2} s of the loop, {all} workloads"),
        ratio: ours / limit,
        bound: Some(BOUND),
    });
    Ok(())
}
