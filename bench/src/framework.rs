//! The framework against its peers: a plain `kube_runtime` controller, and koprs. Each figure is a file; all are taken on one control plane
//! in one run, with processes of their own that do the same work and tell what happens on their standard output.

mod changes;
mod failover;
mod field;
mod latency;
mod lease_check;
mod lines;
mod object_memory;
mod one_change;
mod operator;
mod peer;
mod relist;
mod standby;
mod start;
mod syncs;
mod throughput;
mod turns;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::report::Report;
use field::Field;

/// How much the framework's figures are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scale {
    /// Objects that the framework's figures are about; fewer are sooner, and say less
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    objects: u32,
    /// Only this of the framework's figures; may be repeated [default: all]
    #[arg(long, value_enum)]
    figure: Vec<Figure>,
    /// Build the peer with koprs again; it is built anyway when it is missing
    #[arg(long)]
    build_koprs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// No-op reconciles over all objects
    Throughput,
    /// From a change to its reconcile
    Latency,
    /// Ready after a start, and a user's change meanwhile
    Start,
    /// Requests of one change with one child
    OneChange,
    /// A leader that is killed
    Failover,
    /// Cost of reading the lease's clock before a write
    LeaseCheck,
    /// Memory that a standby keeps after objects were created and deleted
    Standby,
    /// Duration of a relist of all objects of which one page stalls
    Relist,
    /// Memory for each watched object
    ObjectMemory,
    /// Length of the examples
    Lines,
}

pub(crate) async fn measure(scale: &Scale, changes: usize, report: &mut Report) -> Result<()> {
    let wanted = |figure| scale.figure.is_empty() || scale.figure.contains(&figure);
    if wanted(Figure::Lines) {
        lines::measure(report)?;
    }
    if scale.figure == [Figure::Lines] {
        return Ok(());
    }
    let field = Field::set(usize::try_from(scale.objects)?, scale.build_koprs).await?;
    if wanted(Figure::OneChange) {
        one_change::measure(&field, report).await?;
    }
    if wanted(Figure::Failover) {
        failover::measure(&field, report).await?;
    }
    if wanted(Figure::LeaseCheck) {
        lease_check::measure(&field, report).await?;
    }
    if wanted(Figure::Standby) {
        standby::measure(&field, report).await?;
    }
    let full = [Figure::Throughput, Figure::Latency, Figure::Start, Figure::Relist, Figure::ObjectMemory];
    if !full.into_iter().any(wanted) {
        return Ok(());
    }
    let namespace = field.config_maps("full", field.objects, object_memory::SMALL).await?;
    if wanted(Figure::ObjectMemory) {
        object_memory::measure(&field, &namespace, report).await?;
    }
    if wanted(Figure::Relist) {
        relist::measure(&field, &namespace, report).await?;
    }
    if wanted(Figure::Throughput) {
        throughput::measure(&field, &namespace, report).await?;
    }
    if wanted(Figure::Start) {
        start::measure(&field, &namespace, report).await?;
    }
    if wanted(Figure::Latency) {
        latency::measure(&field, &namespace, changes, report).await?;
    }
    Ok(())
}
