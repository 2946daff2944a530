//! The memory for Secrets that no workload follows: the operator's resident set with and without them.

use anyhow::Result;
use kube::Client;

use super::field::{AT_ONCE, Field};
use crate::{
    memory::{Comparison, Subject, mebibytes},
    report::{Report, Row},
};

/// Not even their names are kept; a tenth is for what an allocator keeps of the pages that they came in.
const BOUND: f64 = 1.1;

/// Its resident set with all workloads, their Secrets and the foreign ones.
const MEMORY: f64 = 30.0 * 1024.0 * 1024.0;

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    field.start(&AT_ONCE).await?;
    field.are_noted().await?;
    let subjects = ["roll: memory, foreign there at start", "roll: memory, foreign came later"];
    let most = Comparison { subjects, foreign, bound: BOUND }.of(field, report).await?;
    report.add(Row {
        subject: "roll: memory, the larger of both",
        figure: mebibytes(most),
        against: format!("30 MiB, {} workloads, {foreign} foreign", field.workloads),
        ratio: most / MEMORY,
        bound: Some(1.0),
    });
    Ok(())
}

impl Subject for Field {
    fn place(&self) -> (&Client, &str) {
        (&self.client, &self.namespace)
    }

    fn resident(&mut self) -> Result<f64> {
        Ok(self.process().resident()?)
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.kill();
        self.start(&[]).await?;
        self.has_looked().await
    }
}
