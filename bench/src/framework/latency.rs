//! How soon a reconcile begins after a change: an outside client changes an annotation of one object after the other, fifty times a
//! second, with all objects in the cache.
//!
//! The clock starts when the patch is sent, not when it is answered: the event often reaches the reconciler before the answer reaches
//! the client, and a ratio of times around zero says nothing. The API server's part of the time is the same for all. The time from the
//! answer is printed to standard error, and may be negative.

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
    samples::{median, percentile},
};

/// On par, and a tenth for what a machine does besides.
const ON_PAR: f64 = 1.1;
const AHEAD: f64 = 1.0;

/// So many turns, each of a new process, in which each framework gets its part of the changes, and each comes first in its turn. The
/// result is the median of the turns: of all samples together, the largest hundredth shows only when the API server was slow.
const TURNS: usize = 7;

pub(crate) async fn measure(field: &Field, namespace: &str, changes: usize, report: &mut Report) -> Result<()> {
    let percents = [50, 99];
    let (mut from_request, mut from_answer) =
        ([Turns::default(), Turns::default()], [Turns::default(), Turns::default()]);
    let mut made = Changes::new(&field.client, namespace);
    for turn in 0..TURNS {
        eprintln!("latency: turn {} of {TURNS}", turn + 1);
        let order = Framework::ALL.into_iter().cycle().skip(turn % Framework::ALL.len()).take(Framework::ALL.len());
        for framework in order {
            let mut peer = field.peer(framework, Work::Runs, namespace, Duration::ZERO, field.objects)?;
            peer.all().await?;
            let mut ticks = tokio::time::interval(PACE);
            let sent = made.sent.len();
            for _ in 0..changes.div_ceil(TURNS) {
                ticks.tick().await;
                made.change(field.objects).await?;
            }
            let (request, answer): (Vec<f64>, Vec<f64>) = made.latencies(sent, &mut peer).await?.into_iter().unzip();
            for (index, percent) in percents.into_iter().enumerate() {
                from_request[index].of(framework).push(percentile(&request, percent));
                from_answer[index].of(framework).push(percentile(&answer, percent));
            }
        }
    }
    for framework in Framework::ALL {
        let [half, most] = from_answer.each_mut().map(|turns| median(turns.of(framework)));
        eprintln!("latency from the answer, {framework:?}: p50 {half:.2} ms, p99 {most:.2} ms");
    }
    for (subject, index, peer, bound) in [
        ("event to reconcile p50, kube_runtime", 0, Framework::KubeRuntime, ON_PAR),
        ("event to reconcile p50, koprs", 0, Framework::Koprs, AHEAD),
        ("event to reconcile p99, kube_runtime", 1, Framework::KubeRuntime, ON_PAR),
        ("event to reconcile p99, koprs", 1, Framework::Koprs, AHEAD),
    ] {
        let ours = median(from_request[index].of(Framework::Konverge));
        let theirs = median(from_request[index].of(peer));
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
