//! The memory for Secrets that have not opted in: the operator's resident set with and without them.

use anyhow::Result;
use konverge_testkit::{FOREIGN_SECRET_SIZE, create_foreign_secrets};
use kube::Client;

use crate::{
    report::{Report, Row},
    scene::{SECRETS, Scene},
};

pub(crate) const FOREIGN: usize = 5000;

/// The same beside the operators that watch all Secrets of a cluster.
pub(crate) const FOREIGN_TO_MANY: usize = 10_000;

/// Foreign Secrets are not kept, so there should be no difference; a fifth is for what an allocator keeps of the pages that they came in.
pub(crate) const BOUND: f64 = 1.2;

/// An operator, and a namespace for Secrets that have not opted in.
pub(crate) trait Subject {
    /// Where foreign Secrets are made.
    fn place(&self) -> (&Client, &str);

    /// The operator's resident set in bytes.
    fn resident(&mut self) -> Result<f64>;

    /// Starts the operator anew and waits until it has looked at all that is its.
    async fn start_anew(&mut self) -> Result<()>;
}

/// The memory of an operator without foreign Secrets, with which its memory with them is compared.
pub(crate) struct Comparison {
    /// How the figure is called of an operator that finds them when it starts, and of one before which they are made.
    pub(crate) subjects: [&'static str; 2],
    /// How many are made.
    pub(crate) foreign: usize,
    /// The largest ratio that is still good.
    pub(crate) bound: f64,
}

impl Comparison {
    /// Gives the largest resident set with them, in bytes.
    pub(crate) async fn of(self, subject: &mut impl Subject, report: &mut Report) -> Result<f64> {
        subject.start_anew().await?;
        let without = subject.resident()?;
        let (client, namespace) = subject.place();
        create_foreign(client, namespace, self.foreign).await?;
        let came_later = subject.resident()?;
        subject.start_anew().await?;
        let there_at_start = subject.resident()?;
        for (subject, with) in self.subjects.into_iter().zip([there_at_start, came_later]) {
            report.add(Row {
                subject,
                figure: mebibytes(with),
                against: format!("{} without {}", mebibytes(without), self.foreign),
                ratio: with / without,
                bound: Some(self.bound),
            });
        }
        Ok(came_later.max(there_at_start))
    }
}

pub(crate) async fn measure(scene: &mut Scene, report: &mut Report) -> Result<()> {
    let subjects = ["memory, foreign there at start", "memory, foreign came later"];
    Comparison { subjects, foreign: FOREIGN, bound: BOUND }.of(scene, report).await.map(drop)
}

impl Subject for Scene {
    fn place(&self) -> (&Client, &str) {
        (self.stage.client(), &self.namespace)
    }

    fn resident(&mut self) -> Result<f64> {
        Ok(self.operator.process().resident()?)
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.operator.process().kill();
        self.operator.process().start_again()?;
        self.operator.ready().await?;
        #[expect(clippy::cast_precision_loss, reason = "a hundred")]
        let all = SECRETS as f64;
        self.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", |count| count >= all).await?;
        Ok(())
    }
}

/// Makes Secrets that are none of ours, one after the other.
async fn create_foreign(client: &Client, namespace: &str, count: usize) -> Result<()> {
    eprintln!("memory: creating {count} foreign Secrets of {FOREIGN_SECRET_SIZE} bytes");
    Ok(create_foreign_secrets(client, namespace, count, 1).await?)
}

pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}
