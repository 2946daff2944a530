//! Manage against what its promises allow, and against a loop of the same calls: on the verified double, and on the real server where there is one.
//!
//! Between the operator and the server stands a proxy of the bench's own process, which counts calls and notes when each was answered. The loops go
//! through the same proxy. Each figure has a control plane and an account of its own, but for creation, edits and drift, which are about the same
//! groups.

mod creation;
mod drift;
mod edits;
mod field;
mod memory;
mod refused;
mod rest;

use anyhow::Result;
use clap::Args;
use konverge_e2e::OpenZroAccount;

use crate::report::{Report, Row};
use field::{Field, Target};

/// How much manage's figures are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManageScale {
    /// Objects of openZro at rest, and with a wrong token
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(10..))]
    managed: u16,
    /// Groups that are created; a hundredth of them drifts
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(10..))]
    managed_groups: u16,
    /// Seconds of an interval of manage
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..))]
    managed_interval: u16,
    /// Intervals of manage at rest
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    managed_intervals: u16,
    /// Foreign groups of the account, and two and a half times as many peers
    #[arg(long, default_value_t = 2_000)]
    foreign_groups: usize,
}

pub(crate) async fn measure(scale: &ManageScale, changes: usize, report: &mut Report) -> Result<()> {
    of(&Target { name: "double", account: OpenZroAccount::on_double().await? }, scale, changes, report).await?;
    let Some(account) = OpenZroAccount::on_server().await? else {
        eprintln!("manage: this machine has no openZro server, so its figures are those of the verified double");
        return Ok(());
    };
    of(&Target { name: "server", account }, scale, changes, report).await
}

async fn of(target: &Target, scale: &ManageScale, changes: usize, report: &mut Report) -> Result<()> {
    // Measurements of time come first.
    let mut field = Field::set(target, scale.managed_interval).await?;
    creation::measure(&mut field, scale.managed_groups, report).await?;
    edits::measure(&field, scale.managed_groups, changes, report).await?;
    drift::measure(&field, scale.managed_groups, report).await?;
    drop(field);
    eprintln!("manage: from here on no time is measured");
    let mut field = Field::set(target, scale.managed_interval).await?;
    rest::measure(&mut field, scale.managed, scale.managed_intervals, report).await?;
    drop(field);
    let mut field = Field::set(target, scale.managed_interval).await?;
    refused::measure(&mut field, scale.managed, report).await?;
    drop(field);
    let mut field = Field::set(target, memory::INTERVAL).await?;
    memory::measure(&mut field, scale.foreign_groups, report).await
}

/// A row whose subject names the target.
fn row(target: &Target, subject: &str, figure: String, against: String, ratio: f64, bound: Option<f64>) -> Row {
    Row { subject: format!("manage: {subject}, {}", target.name).leak(), figure, against, ratio, bound }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}
