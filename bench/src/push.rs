//! Push against its limit: a loop of the same requests to the same Vault, with the same number of them at a time, in the same run.
//!
//! Each figure has a Vault and an operator of its own, so that none is about what another left; the last first sync and rest
//! share theirs.

mod field;
mod first_sync;
mod latency;
mod logins;
mod memory;
mod rest;

use anyhow::Result;
use clap::Args;
use konverge_testkit::{ControlPlane, Options};

use crate::report::Report;
use field::Field;

/// So many first syncs, each with a Vault and an operator of its own. An odd number has a middle.
const TURNS: usize = 5;

/// How much push's figures are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct PushScale {
    /// Annotated Secrets of push's figures; half as many for its latency, a tenth for its memory and logins
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(10..))]
    bindings: u16,
    /// Intervals of push at rest, of 30 s each, which is the shortest that there is
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    intervals: u16,
    /// Foreign Secrets beside push's
    #[arg(long, default_value_t = crate::memory::FOREIGN_TO_MANY)]
    foreign: usize,
}

pub(crate) async fn measure(scale: &PushScale, changes: usize, report: &mut Report) -> Result<()> {
    let control_plane = ControlPlane::start(Options::ours()).await?;
    // Measurements of time come first. The rest are counts and bytes, which do not depend on other work of the machine.
    let mut field = Field::set(&control_plane, scale.bindings / 2).await?;
    latency::measure(&mut field, changes, report).await?;
    drop(field);
    let mut turns = Vec::new();
    for _ in 1..TURNS {
        turns.push(first_sync::turn(&mut Field::set(&control_plane, scale.bindings).await?).await?);
    }
    let mut field = Field::set(&control_plane, scale.bindings).await?;
    turns.push(first_sync::turn(&mut field).await?);
    first_sync::report(turns, report)?;
    eprintln!("push: from here on no time is measured");
    rest::measure(&mut field, &control_plane, scale.intervals, report).await?;
    drop(field);
    let mut field = Field::set(&control_plane, scale.bindings / 10).await?;
    logins::measure(&mut field, report).await?;
    drop(field);
    // Last, because it fills the cluster.
    let mut field = Field::set(&control_plane, scale.bindings / 10).await?;
    memory::measure(&mut field, scale.foreign, report).await
}
