//! The operator's requests to the API server while nothing happens, counted in the API server's audit log.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::{
    report::{Report, Row},
    scene::Scene,
};

/// Longer than any write or event of the changes before can take.
const SETTLE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(scene: &Scene, seconds: u64, report: &mut Report) -> Result<()> {
    sleep(SETTLE).await;
    let rest = scene.stage.control_plane.audit_log()?.from_now()?;
    let polls = scene.operator.metric("konverge_pull_polls_total", "").await?;
    eprintln!("rest: listening for {seconds} s");
    sleep(Duration::from_secs(seconds)).await;
    let polls = scene.operator.metric("konverge_pull_polls_total", "").await? - polls;
    let asked = rest.entries_of(scene.stage.operator_user())?;
    let against = format!("{seconds} s, {polls} polls of the server");
    let writes = asked.iter().filter(|entry| entry.is_mutating()).count();
    let lists = asked.iter().filter(|entry| entry.verb == "list").count();
    for (subject, count) in [("writes at rest", writes), ("lists at rest", lists)] {
        #[expect(clippy::cast_precision_loss, reason = "a count of requests is far below 2^52")]
        let ratio = count as f64;
        report.add(Row { subject, figure: count.to_string(), against: against.clone(), ratio, bound: Some(0.0) });
    }
    Ok(())
}
