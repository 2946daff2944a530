//! How fast reconciles that do nothing follow each other: the time from the first to the last first run of all objects, which begins
//! when the cache is complete. Each framework has its turn in each round, eight workers, and the median of its rounds.

use std::time::Duration;

use anyhow::Result;
use konverge_bench_protocol::Work;

use super::{
    field::{Field, Framework},
    peer::milliseconds_between,
    turns::Turns,
};
use crate::{
    report::{Report, Row},
    samples::median,
};

/// On par, and a tenth for what a machine does besides.
const ON_PAR: f64 = 1.1;
const AHEAD: f64 = 1.0;

const ROUNDS: usize = 3;

pub(crate) async fn measure(field: &Field, namespace: &str, report: &mut Report) -> Result<()> {
    let mut times = Turns::default();
    for round in 0..ROUNDS {
        eprintln!("throughput: round {} of {ROUNDS}", round + 1);
        for framework in Framework::ALL {
            let mut peer = field.peer(framework, Work::Runs, namespace, Duration::ZERO, field.objects)?;
            peer.all().await?;
            let (first, last) = (peer.runs.first().map_or(0, |run| run.at), peer.runs.last().map_or(0, |run| run.at));
            times.of(framework).push(milliseconds_between(first, last));
        }
    }
    let ours = median(times.of(Framework::Konverge));
    for (subject, peer, bound) in [
        ("no-op reconciles, kube_runtime", Framework::KubeRuntime, ON_PAR),
        ("no-op reconciles, koprs", Framework::Koprs, AHEAD),
    ] {
        let theirs = median(times.of(peer));
        report.add(Row {
            subject,
            figure: format!("{} runs in {ours:.1} ms", field.objects),
            against: format!("{theirs:.1} ms"),
            ratio: ours / theirs,
            bound: Some(bound),
        });
    }
    Ok(())
}
