//! The end of a leader over all workloads: how soon the next one rolls, and that it rolls nothing else.

use std::path::Path;

use anyhow::Result;
use konverge_testkit::{AuditEntry, ControlPlane};
use tokio::time::{Instant, sleep};

use super::{
    field::{ELECTED, Field, LIMIT, SETTLE, account},
    restart::pages,
};
use crate::report::{Report, Row};

/// Seconds until another one leads: the lease, and two for the next one to notice.
const TAKEN_OVER: f64 = 15.0 + 2.0;

/// Kills the leader and changes one Secret. The next one stood by and knows what there is.
pub(crate) async fn measure(
    field: &mut Field,
    control_plane: &ControlPlane,
    kubeconfig: &Path,
    report: &mut Report,
) -> Result<()> {
    field.kill();
    field.start(&ELECTED).await?;
    field.has_looked().await?;
    let _standby = field.standby(control_plane, kubeconfig).await?;
    sleep(SETTLE).await;
    let before = field.outside.all_changes();
    let log = control_plane.audit_log()?;
    log.catch_up(&field.client).await?;
    let log = log.from_now()?;
    let began = Instant::now();
    field.kill();
    field.put(0, "after the end of the leader").await?;
    field.outside.all_changed(before + 1, LIMIT).await?;
    let taken_over = began.elapsed().as_secs_f64();
    sleep(SETTLE).await;
    log.catch_up(&field.client).await?;
    let asked = log.entries_of(&account())?;
    let lists = asked.iter().filter(|entry| entry.verb == "list").count();
    let counts = |entry: &&AuditEntry| !["leases", "events"].contains(&&*entry.object_ref.resource);
    let writes = asked.iter().filter(|entry| entry.is_mutating()).filter(counts).count();
    let rollouts = field.outside.all_changes() - before;
    let pages = pages(field.workloads);
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let [rolled, written, lists] = [rollouts, writes, lists].map(|count| count as f64);
    for (subject, figure, against, ratio) in [
        (
            "roll: failover, until a change is rolled",
            format!("{taken_over:.1} s"),
            format!("{TAKEN_OVER} s, the lease and two"),
            taken_over / TAKEN_OVER,
        ),
        ("roll: failover, rollouts for one change", rolled.to_string(), "one".to_owned(), rolled),
        ("roll: failover, writes beside the lease and events", written.to_string(), "one".to_owned(), written),
        ("roll: failover, pages of lists", lists.to_string(), format!("{pages} for what there is"), lists / pages),
    ] {
        report.add(Row { subject, figure, against, ratio, bound: Some(1.0) });
    }
    Ok(())
}
