//! What Secrets that are none of ours cost: the operator's resident set with and without them.

use std::fs;

use anyhow::{Context, Result};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_testkit::Process;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    report::{Report, Row},
    scene::{SECRETS, Scene},
};

pub(crate) const FOREIGN: usize = 5000;
const FOREIGN_SIZE: usize = 20 * 1024;

/// Foreign Secrets are not kept, so there should be no difference; a fifth is for what an allocator keeps of the pages that they came in.
pub(crate) const BOUND: f64 = 1.2;

pub(crate) async fn measure(scene: &mut Scene, report: &mut Report) -> Result<()> {
    let without = resident_after_start(scene).await?;
    create_foreign(scene.stage.client(), &scene.namespace, FOREIGN).await?;
    let lived_through = resident(scene.operator.process())?;
    let with = resident_after_start(scene).await?;
    for (subject, now) in [("memory, foreign there at start", with), ("memory, foreign came later", lived_through)] {
        report.add(Row {
            subject,
            figure: mebibytes(now),
            against: format!("{} without", mebibytes(without)),
            ratio: now / without,
            bound: Some(BOUND),
        });
    }
    Ok(())
}

/// Starts the operator anew and waits until it has looked at every Secret that is bound.
async fn resident_after_start(scene: &mut Scene) -> Result<f64> {
    scene.operator.process().kill();
    scene.operator.process().start_again()?;
    scene.operator.ready().await?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let all = SECRETS as f64;
    scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", |count| count >= all).await?;
    resident(scene.operator.process())
}

/// Makes Secrets that are none of ours.
pub(crate) async fn create_foreign(client: &Client, namespace: &str, count: usize) -> Result<()> {
    eprintln!("memory: creating {count} foreign Secrets of {FOREIGN_SIZE} bytes");
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    for number in 0..count {
        let metadata = ObjectMeta { name: Some(format!("foreign-{number}")), ..ObjectMeta::default() };
        let data = Some([("payload".to_owned(), ByteString(vec![b'x'; FOREIGN_SIZE]))].into());
        api.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await?;
    }
    Ok(())
}

/// The resident set of a process in bytes, as the kernel accounts it.
pub(crate) fn resident(process: &Process) -> Result<f64> {
    let pid = process.pid().context("the operator does not run")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the resident set is read from /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0)
}

pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}
