//! Benchmarks against the limit: each figure is held against what the same machine does in the same run without us.
//!
//! The main job is measured on the stage of the demo, and the [`framework`] beside its peers, on a control plane of its own. The limits
//! of the others are loops without an operator: [`push`] has one of the same requests to the same Vault, [`roll`] one of the same
//! patches, [`manage`] one of the same calls. The server of [`zopp`] is measured beside the published one.

mod framework;
mod manage;
mod memory;
mod propagation;
mod push;
mod report;
mod rest;
mod roll;
mod samples;
mod scene;
mod zopp;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::{
    framework::Scale, manage::ManageScale, push::PushScale, report::Report, roll::RollScale, scene::Scene,
    zopp::ZoppScale,
};

/// Measures, and fails when a figure is above its bound.
#[derive(Parser)]
#[command(name = "cargo xtask bench --", max_term_width = 120)]
struct Cli {
    /// Only this; may be repeated [default: all]
    #[arg(long, value_enum)]
    only: Vec<Subject>,
    /// Changes made for the figures about propagation, about the framework's latency, and about push, roll and manage
    #[arg(long, default_value_t = 400)]
    changes: usize,
    /// Seconds of rest that are listened to
    #[arg(long, default_value_t = 600)]
    rest_seconds: u64,
    #[command(flatten)]
    scale: Scale,
    #[command(flatten)]
    push: PushScale,
    #[command(flatten)]
    roll: RollScale,
    #[command(flatten)]
    manage: ManageScale,
    #[command(flatten)]
    zopp: ZoppScale,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// From a change in the server to the Secret that holds it
    Propagation,
    /// Requests to the API server while nothing happens
    Rest,
    /// Memory for Secrets that have not opted in
    Memory,
    /// The framework beside its peers
    Framework,
    /// Kubernetes Secrets into Vault
    Push,
    /// Rollouts of what uses a changed Secret
    Roll,
    /// openZro as custom resources say
    Manage,
    /// The secrets manager beside the published server
    Zopp,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut report = Report::default();
    let measured = run(&Cli::parse(), &mut report).await;
    // Also after an error: what was measured until then took long enough.
    println!("\n{report}");
    if let Err(error) = &measured {
        eprintln!("\nError: {error:#}");
    }
    if measured.is_ok() && report.within_bounds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(arguments: &Cli, report: &mut Report) -> Result<()> {
    let wanted = |subject| arguments.only.is_empty() || arguments.only.contains(&subject);
    if wanted(Subject::Framework) {
        framework::measure(&arguments.scale, arguments.changes, report).await?;
    }
    if wanted(Subject::Push) {
        push::measure(&arguments.push, arguments.changes, report).await?;
    }
    if wanted(Subject::Roll) {
        roll::measure(&arguments.roll, arguments.changes, report).await?;
    }
    if wanted(Subject::Manage) {
        manage::measure(&arguments.manage, arguments.changes, report).await?;
    }
    if wanted(Subject::Zopp) {
        zopp::measure(&arguments.zopp, report).await?;
    }
    if ![Subject::Propagation, Subject::Rest, Subject::Memory].into_iter().any(wanted) {
        return Ok(());
    }
    eprintln!("setting the stage: {} Secrets on {} environments", scene::SECRETS, scene::ENVIRONMENTS);
    let mut scene = Scene::set().await?;
    if wanted(Subject::Propagation) {
        propagation::measure(&scene, arguments.changes, report).await?;
    }
    if wanted(Subject::Rest) {
        rest::measure(&scene, arguments.rest_seconds, report).await?;
    }
    // Last, because it fills the cluster.
    if wanted(Subject::Memory) {
        memory::measure(&mut scene, report).await?;
    }
    Ok(())
}
