//! A new process over all workloads: how soon it is ready, that it rolls nothing, and that it rolls what changed while there was none.

use anyhow::Result;
use konverge_testkit::ControlPlane;
use tokio::time::{Instant, sleep};

use super::field::{AT_ONCE, Field, LIMIT, SETTLE, account};
use crate::{
    memory::mebibytes,
    report::{Report, Row},
};

/// Seconds until it is ready.
const READY: f64 = 5.0;

/// Objects in a page of a list: the framework's own.
const PAGE: u16 = 100;

/// Kinds that are listed at a start; of each there is at least one page.
const KINDS: u16 = 10;

/// Its resident set when it knows all of them.
const MEMORY: f64 = 30.0 * 1024.0 * 1024.0;

/// Returns the number of pages of lists that show these workloads, each with a Secret of its own.
pub(crate) fn pages(workloads: u16) -> f64 {
    f64::from(2 * workloads.div_ceil(PAGE) + KINDS)
}

pub(crate) async fn measure(
    field: &mut Field,
    control_plane: &ControlPlane,
    missed: u16,
    report: &mut Report,
) -> Result<()> {
    field.start(&AT_ONCE).await?;
    field.are_noted().await?;
    field.kill();
    let log = control_plane.audit_log()?;
    log.catch_up(&field.client).await?;
    let log = log.from_now()?;
    let began = Instant::now();
    field.start(&[]).await?;
    let ready = began.elapsed().as_secs_f64();
    field.has_looked().await?;
    let memory = field.process().resident()?;
    let rollouts = field.outside.all_changes();
    log.catch_up(&field.client).await?;
    let asked = log.entries_of(&account())?;
    let lists = asked.iter().filter(|entry| entry.verb == "list").count();
    let writes = asked.iter().filter(|entry| entry.is_mutating()).count();

    field.kill();
    for number in 0..missed {
        field.put(number, "missed").await?;
    }
    field.start(&[]).await?;
    field.outside.all_changed(rollouts + usize::from(missed), LIMIT).await?;
    sleep(SETTLE).await;
    let caught_up = field.outside.all_changes() - rollouts;

    let workloads = field.workloads;
    let against = || format!("{workloads} workloads");
    let pages = pages(workloads);
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let [rolled, written, caught, lists] = [rollouts, writes, caught_up, lists].map(|count| count as f64);
    for (subject, figure, against, ratio, bound) in [
        ("roll: restart, until it is ready", format!("{ready:.2} s"), against(), ready / READY, Some(1.0)),
        ("roll: restart, rollouts", rolled.to_string(), against(), rolled, Some(0.0)),
        ("roll: restart, writes", written.to_string(), against(), written, Some(0.0)),
        (
            "roll: restart, pages of lists",
            lists.to_string(),
            format!("{pages} for what there is"),
            lists / pages,
            Some(1.0),
        ),
        (
            "roll: rollouts for what changed while it was down",
            caught.to_string(),
            format!("{missed} changes"),
            caught / f64::from(missed.max(1)),
            Some(1.0),
        ),
        ("roll: memory with all workloads", mebibytes(memory), "30 MiB".to_owned(), memory / MEMORY, Some(1.0)),
    ] {
        report.add(Row { subject, figure, against, ratio, bound });
    }
    Ok(())
}
