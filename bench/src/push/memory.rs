//! What Secrets that are none of push's cost: the operator's resident set with and without them.

use anyhow::Result;

use super::field::Field;
use crate::{
    memory::{BOUND, create_foreign, mebibytes, resident},
    report::{Report, Row},
};

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    let without = resident_after_start(field).await?;
    create_foreign(&field.client, &field.namespace, foreign).await?;
    let lived_through = resident(field.stage.operator().process())?;
    let with = resident_after_start(field).await?;
    for (subject, now) in
        [("push: memory, foreign there at start", with), ("push: memory, foreign came later", lived_through)]
    {
        report.add(Row {
            subject,
            figure: mebibytes(now),
            against: format!("{} without {foreign}", mebibytes(without)),
            ratio: now / without,
            bound: Some(BOUND),
        });
    }
    Ok(())
}

/// Starts the operator anew and waits until it has looked at every Secret that is bound.
async fn resident_after_start(field: &mut Field) -> Result<f64> {
    field.stage.operator().process().kill();
    field.start()?.ready().await?;
    field.in_step().await?;
    resident(field.stage.operator().process())
}
