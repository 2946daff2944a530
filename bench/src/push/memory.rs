//! What Secrets that are none of push's cost: the operator's resident set with and without them.

use anyhow::Result;

use super::field::Field;
use crate::{
    memory::{BOUND, Without, create_foreign, mebibytes},
    report::Report,
};

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    let without = resident_after_start(field).await?;
    create_foreign(&field.client, &field.namespace, foreign).await?;
    let lived_through = field.stage.operator().process().resident()?;
    let with = resident_after_start(field).await?;
    let shown = format!("{} without {foreign}", mebibytes(without));
    let without = Without { resident: without, shown, bound: BOUND };
    let with = [("push: memory, foreign there at start", with), ("push: memory, foreign came later", lived_through)];
    without.compare(report, with);
    Ok(())
}

/// Starts the operator anew and waits until it has looked at every Secret that is bound.
async fn resident_after_start(field: &mut Field) -> Result<f64> {
    field.stage.operator().process().kill();
    field.start()?.ready().await?;
    field.in_step().await?;
    Ok(field.stage.operator().process().resident()?)
}
