//! The memory for Secrets that push does not copy: the operator's resident set with and without them.

use anyhow::Result;
use kube::Client;

use super::field::Field;
use crate::{
    memory::{BOUND, Comparison, Subject},
    report::Report,
};

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    let subjects = ["push: memory, foreign there at start", "push: memory, foreign came later"];
    Comparison { subjects, foreign, bound: BOUND }.of(field, report).await.map(drop)
}

impl Subject for Field {
    fn place(&self) -> (&Client, &str) {
        (&self.client, &self.namespace)
    }

    fn resident(&mut self) -> Result<f64> {
        Ok(self.stage.operator().process().resident()?)
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.stage.operator().process().kill();
        self.start()?.ready().await?;
        self.in_sync().await
    }
}
