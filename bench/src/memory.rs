//! What Secrets that are none of ours cost: the operator's resident set with and without them.

use anyhow::Result;
use konverge_testkit::{FOREIGN_SECRET_SIZE, create_foreign_secrets};
use kube::Client;

use crate::{
    report::{Report, Row},
    scene::{SECRETS, Scene},
};

pub(crate) const FOREIGN: usize = 5000;

/// Foreign Secrets are not kept, so there should be no difference; a fifth is for what an allocator keeps of the pages that they came in.
pub(crate) const BOUND: f64 = 1.2;

pub(crate) async fn measure(scene: &mut Scene, report: &mut Report) -> Result<()> {
    let without = resident_after_start(scene).await?;
    create_foreign(scene.stage.client(), &scene.namespace, FOREIGN).await?;
    let lived_through = scene.operator.process().resident()?;
    let with = resident_after_start(scene).await?;
    let without = Without { resident: without, shown: format!("{} without", mebibytes(without)), bound: BOUND };
    without.compare(report, [("memory, foreign there at start", with), ("memory, foreign came later", lived_through)]);
    Ok(())
}

/// What an operator takes without foreign Secrets, against which it is held what it takes with them.
pub(crate) struct Without {
    /// Its resident set in bytes.
    pub(crate) resident: f64,
    /// The same for people.
    pub(crate) shown: String,
    /// The largest ratio that is still good.
    pub(crate) bound: f64,
}

impl Without {
    /// Reports each of these resident sets.
    pub(crate) fn compare(self, report: &mut Report, with: [(&'static str, f64); 2]) {
        for (subject, now) in with {
            report.add(Row {
                subject,
                figure: mebibytes(now),
                against: self.shown.clone(),
                ratio: now / self.resident,
                bound: Some(self.bound),
            });
        }
    }
}

/// Starts the operator anew and waits until it has looked at every Secret that is bound.
async fn resident_after_start(scene: &mut Scene) -> Result<f64> {
    scene.operator.process().kill();
    scene.operator.process().start_again()?;
    scene.operator.ready().await?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let all = SECRETS as f64;
    scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", |count| count >= all).await?;
    Ok(scene.operator.process().resident()?)
}

/// Makes Secrets that are none of ours, one after the other.
pub(crate) async fn create_foreign(client: &Client, namespace: &str, count: usize) -> Result<()> {
    eprintln!("memory: creating {count} foreign Secrets of {FOREIGN_SECRET_SIZE} bytes");
    Ok(create_foreign_secrets(client, namespace, count, 1).await?)
}

pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}
