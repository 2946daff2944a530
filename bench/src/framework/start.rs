//! How soon a program is at work when there are many objects, and whether a user waits for the others meanwhile.
//!
//! Ready is when the first run begins, since that waits for the complete cache; it is held against a plain client that lists the same
//! objects into the same types. That one requests pages of 500, as `kube_runtime` does. Ours requests pages of its own default of 100, so
//! it sends five times the requests. Both count from the start of the process, and the median of the rounds counts.
//!
//! Then a run takes 5 ms, so that the initial sync takes a while, and a user changes objects fifty times a second: from the answer
//! to the change until the run that sees it begins.

use std::time::Duration;

use anyhow::Result;
use konverge_bench_protocol::Work;
use tokio::time::interval;

use super::{
    changes::{Changes, PACE},
    field::{Field, Framework},
    peer::milliseconds_between,
    turns::Turns,
};
use crate::{
    report::{Report, Row},
    samples::{median, percentile},
};

/// Nobody can start without the list; half as much again is for what a program does besides: smaller pages, a cache, its workers.
const OF_A_LIST: f64 = 1.5;
/// In milliseconds: what a person takes for at once.
const USER_WAITS: f64 = 100.0;

const RUN_TAKES: Duration = Duration::from_millis(5);

const ROUNDS: usize = 5;

pub(crate) async fn measure(field: &Field, namespace: &str, report: &mut Report) -> Result<()> {
    ready(field, namespace, report).await?;
    user(field, namespace, report).await
}

async fn ready(field: &Field, namespace: &str, report: &mut Report) -> Result<()> {
    let (mut list, mut started) = (Vec::new(), Turns::default());
    for round in 0..ROUNDS {
        eprintln!("start: round {} of {ROUNDS}", round + 1);
        let mut plain = field.peer(Framework::KubeRuntime, Work::List, namespace, Duration::ZERO, field.objects)?;
        let (_, at) = plain.all().await?;
        list.push(milliseconds_between(plain.started, at));
        drop(plain);
        for framework in Framework::ALL {
            let mut peer = field.peer(framework, Work::Runs, namespace, Duration::ZERO, field.objects)?;
            let first = peer.until("its first run", |peer| peer.runs.first().map(|run| run.at)).await?;
            started.of(framework).push(milliseconds_between(peer.started, first));
        }
    }
    let list = median(&list);
    let [ours, kube_runtime, koprs] = Framework::ALL.map(|framework| median(started.of(framework)));
    report.add(Row {
        subject: "start: ready",
        figure: format!("{ours:.0} ms"),
        against: format!("{list:.0} ms a bare list; kube_runtime {kube_runtime:.0}, koprs {koprs:.0}"),
        ratio: ours / list,
        bound: Some(OF_A_LIST),
    });
    Ok(())
}

async fn user(field: &Field, namespace: &str, report: &mut Report) -> Result<()> {
    let mut waited = Turns::default();
    for framework in Framework::ALL {
        let mut peer = field.peer(framework, Work::Runs, namespace, RUN_TAKES, field.objects)?;
        peer.until("its first run", |peer| (!peer.runs.is_empty()).then_some(())).await?;
        let mut changes = Changes::new(&field.client, namespace);
        let mut ticks = interval(PACE);
        while peer.objects_seen() < field.objects {
            ticks.tick().await;
            changes.change(field.objects).await?;
            peer.look()?;
        }
        let latencies = changes.latencies(0, &mut peer).await?;
        eprintln!("start: {} changes during the initial sync of {framework:?}", latencies.len());
        waited.of(framework).extend(latencies.into_iter().map(|(_, answer)| answer));
    }
    let [ours, kube_runtime, koprs] = Framework::ALL.map(|framework| percentile(waited.of(framework), 99));
    report.add(Row {
        subject: "start: a user's change p99",
        figure: format!("{ours:.1} ms"),
        against: format!("{USER_WAITS} ms; kube_runtime {kube_runtime:.0}, koprs {koprs:.0}"),
        ratio: ours / USER_WAITS,
        bound: Some(1.0),
    });
    Ok(())
}
