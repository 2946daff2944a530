//! What Secrets that nobody is rolled for cost: the operator's resident set with and without them.

use anyhow::Result;

use super::field::{AT_ONCE, Field};
use crate::{
    memory::{Without, create_foreign, mebibytes},
    report::{Report, Row},
};

/// Not even their names are kept; a tenth is for what an allocator keeps of the pages that they came in.
const BOUND: f64 = 1.1;

/// Its resident set with all workloads, their Secrets and the foreign ones.
const MEMORY: f64 = 30.0 * 1024.0 * 1024.0;

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    field.start(&AT_ONCE).await?;
    field.are_noted().await?;
    let without = resident_after_start(field).await?;
    create_foreign(&field.client, &field.namespace, foreign).await?;
    let lived_through = field.process().resident()?;
    let with = resident_after_start(field).await?;
    let shown = format!("{} without {foreign}", mebibytes(without));
    let without = Without { resident: without, shown, bound: BOUND };
    let with = [("roll: memory, foreign there at start", with), ("roll: memory, foreign came later", lived_through)];
    without.compare(report, with);
    let most = with.into_iter().map(|(_, bytes)| bytes).fold(0.0, f64::max);
    report.add(Row {
        subject: "roll: memory, the larger of both",
        figure: mebibytes(most),
        against: format!("30 MiB, {} workloads, {foreign} foreign", field.workloads),
        ratio: most / MEMORY,
        bound: Some(1.0),
    });
    Ok(())
}

/// Starts the operator anew and waits until it has looked at all.
async fn resident_after_start(field: &mut Field) -> Result<f64> {
    field.kill();
    field.start(&[]).await?;
    field.has_looked().await?;
    Ok(field.process().resident()?)
}
