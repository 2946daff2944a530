//! Roll against its limit: the same patches of pod templates by a loop, in the same run.
//!
//! There is no controller of Deployments, so only the patching processes use the machine, and the operator waits for no rollout to end. An
//! outside watcher counts the changes of pod templates. Each figure has a namespace and an operator of its own.

mod failover;
mod fan_out;
mod field;
mod latency;
mod memory;
mod outside;
mod restart;
mod runaway;
mod vault;

use anyhow::Result;
use clap::Args;
use konverge_testkit::{ControlPlane, Options};

use crate::report::Report;
use field::Field;

/// How much roll's figures are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct RollScale {
    /// Deployments of roll's restart and memory; half as many for the Secret that all use, a quarter for its latency
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(40..))]
    workloads: u16,
    /// Secrets that are changed while roll is down; at most as many as there are Deployments
    #[arg(long, default_value_t = 100)]
    missed: u16,
    /// Seconds for which a source of roll changes five times a second
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(3..))]
    runaway_seconds: u64,
    /// Foreign Secrets beside roll's
    #[arg(long, default_value_t = crate::memory::FOREIGN_TO_MANY)]
    foreign_to_roll: usize,
}

pub(crate) async fn measure(scale: &RollScale, changes: usize, report: &mut Report) -> Result<()> {
    let control_plane = ControlPlane::start(Options::ours()).await?;
    let kubeconfig = field::install(&control_plane).await?;
    let set = async |workloads, secrets| Field::set(&control_plane, &kubeconfig, workloads, secrets).await;
    // Measurements of time come first.
    latency::measure(&mut set(scale.workloads / 4, scale.workloads / 4).await?, &control_plane, changes, report)
        .await?;
    fan_out::measure(&mut set(scale.workloads / 2, 1).await?, report).await?;
    let missed = scale.missed.min(scale.workloads);
    let mut all = set(scale.workloads, scale.workloads).await?;
    restart::measure(&mut all, &control_plane, missed, report).await?;
    failover::measure(&mut all, &control_plane, &kubeconfig, report).await?;
    drop(all);
    eprintln!("roll: from here on no time is measured");
    runaway::measure(&mut set(1, 1).await?, scale.runaway_seconds, report).await?;
    vault::measure(&mut set(vault::PATHS, vault::PATHS).await?, &control_plane, report).await?;
    // Last, because it fills the cluster.
    memory::measure(&mut set(scale.workloads, scale.workloads).await?, scale.foreign_to_roll, report).await
}
