//! The requests to Vault and the API server while nothing changes and each path is compared at the shortest interval.

use std::time::Duration;

use anyhow::Result;
use konverge_testkit::ControlPlane;
use tokio::time::sleep;

use super::field::Field;
use crate::report::{Report, Row};

/// The shortest interval, which the Secrets ask for.
const INTERVAL: Duration = Duration::from_secs(30);

/// Longer than any write or event of before can take.
const SETTLE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(
    field: &mut Field,
    control_plane: &ControlPlane,
    intervals: u16,
    report: &mut Report,
) -> Result<()> {
    sleep(SETTLE).await;
    let log = control_plane.audit_log()?;
    log.catch_up(&field.client).await?;
    let log = log.from_now()?;
    let reads = field.metric("konverge_push_vault_reads_total").await?;
    let writes = field.metric("konverge_push_vault_writes_total").await?;
    let rest = INTERVAL * u32::from(intervals);
    eprintln!("push: listening for {} s", rest.as_secs());
    sleep(rest).await;
    let reads = field.metric("konverge_push_vault_reads_total").await? - reads;
    let writes = field.metric("konverge_push_vault_writes_total").await? - writes;
    log.catch_up(&field.client).await?;
    let noted = log.entries_of(field.stage.operator_user())?.iter().filter(|entry| entry.is_mutating()).count();
    let versions: u64 = field.versions().await?.iter().map(|version| version.number).sum();

    let paths = f64::from(field.bindings);
    let against = format!("{} s, {paths} paths", rest.as_secs());
    #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
    let (noted, versions) = (noted as f64, versions as f64);
    for (subject, figure, ratio, bound) in [
        ("push: KV versions after rest", versions, versions / paths, 1.0),
        ("push: writes to Vault at rest", writes, writes, 0.0),
        ("push: writes to Kubernetes at rest", noted, noted, 0.0),
        ("push: reads at rest, a path and interval", reads, reads / paths / f64::from(intervals), 1.0),
    ] {
        report.add(Row { subject, figure: figure.to_string(), against: against.clone(), ratio, bound: Some(bound) });
    }
    Ok(())
}
