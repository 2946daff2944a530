//! How soon a reconcile begins after a change: an outside client changes an annotation of one object after the other, fifty times a
//! second, with all objects in the cache.
//!
//! The clock starts when the patch is sent, not when it is answered: the event often reaches the reconciler before the answer reaches
//! the client, and a ratio of times around zero says nothing. What the API server takes is the same for all. The time from the
//! answer is told on standard error, and may be negative.

use std::time::Duration;

use anyhow::Result;
use konverge_bench_protocol::Work;

use super::{
    changes::{Changes, PACE},
    field::{Field, Framework},
    turns::Turns,
};
use crate::{
    report::{Report, Row},
    samples::percentile,
};

/// On par, and a tenth for what a machine does besides.
const ON_PAR: f64 = 1.1;
const AHEAD: f64 = 1.0;

/// So many turns, each of a new process, in which each framework gets its part of the changes.
const TURNS: usize = 3;

pub(crate) async fn measure(field: &Field, namespace: &str, changes: usize, report: &mut Report) -> Result<()> {
    let (mut from_request, mut from_answer) = (Turns::default(), Turns::default());
    let mut made = Changes::new(&field.client, namespace);
    for turn in 0..TURNS {
        eprintln!("latency: turn {} of {TURNS}", turn + 1);
        for framework in Framework::ALL {
            let mut peer = field.peer(framework, Work::Runs, namespace, Duration::ZERO, field.objects)?;
            peer.all().await?;
            let mut ticks = tokio::time::interval(PACE);
            let sent = made.sent.len();
            for _ in 0..changes.div_ceil(TURNS) {
                ticks.tick().await;
                made.change(field.objects).await?;
            }
            for (request, answer) in made.latencies(sent, &mut peer).await? {
                from_request.of(framework).push(request);
                from_answer.of(framework).push(answer);
            }
        }
    }
    for framework in Framework::ALL {
        let samples = from_answer.of(framework);
        let (half, most) = (percentile(samples, 50), percentile(samples, 99));
        eprintln!("latency from the answer, {framework:?}: p50 {half:.2} ms, p99 {most:.2} ms");
    }
    for (subject, percent, peer, bound) in [
        ("event to reconcile p50, kube_runtime", 50, Framework::KubeRuntime, ON_PAR),
        ("event to reconcile p50, koprs", 50, Framework::Koprs, AHEAD),
        ("event to reconcile p99, kube_runtime", 99, Framework::KubeRuntime, ON_PAR),
        ("event to reconcile p99, koprs", 99, Framework::Koprs, AHEAD),
    ] {
        let ours = percentile(from_request.of(Framework::Konverge), percent);
        let theirs = percentile(from_request.of(peer), percent);
        report.add(Row {
            subject,
            figure: format!("{ours:.2} ms"),
            against: format!("{theirs:.2} ms"),
            ratio: ours / theirs,
            bound: Some(bound),
        });
    }
    Ok(())
}
