//! A relist of all objects of which one page stalls: the API server sends the head of the page and nothing of its body. The page has a
//! deadline and is read again, so the relist takes as long as one without a fault and the deadline together.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_runtime::{
    Metrics,
    client::{self, ClientOptions},
    watch::{self, Event, InitialList, WatchOptions},
};
use konverge_testkit::fault_proxy::{FaultProxy, Plan};

use super::field::Field;
use crate::report::{Report, Row};

/// So many pages the list has, and one in their middle stalls.
const PAGES: usize = 20;
/// A tenth is for the pause after the failed page.
const BOUND: f64 = 1.1;
/// Far beyond the bound; a relist that takes longer is stuck.
const STUCK: Duration = Duration::from_mins(5);

/// The next watch is told that its version is too old, so the list begins again.
const EXPIRED: &str = "{ when: { verbs: [watch], times: 1 }, then: { error_event: 410 } }";

const STALLED: &str = "{ when: { phase: body, verbs: [list], query: { continue: '*' }, nth: 10 }, then: freeze }";

pub(crate) async fn measure(field: &Field, namespace: &str, report: &mut Report) -> Result<()> {
    let proxy = FaultProxy::start(field.plane.run_directory(), field.plane.kubeconfig()).await?;
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(proxy.kubeconfig().to_owned()));
    let client = client::build(&options, Metrics::new("bench", "0").client()).await?;
    let page = u32::try_from(field.objects.div_ceil(PAGES))?;
    let options = WatchOptions::default().with(|options| {
        options.namespace = Some(namespace.to_owned());
        options.initial_list = InitialList::Pages(page);
    });
    let (events, _) = watch::events::<ConfigMap>(client, &(), &options);
    let mut events = Box::pin(events);
    list(&mut events, field.objects).await.context("the first list")?;
    // The first one fills the caches of the API server, too.
    proxy.set(Plan::parse(&format!("rules: [{EXPIRED}]"))?)?;
    proxy.end_connections();
    let clean = list(&mut events, field.objects).await.context("the relist without a fault")?;
    proxy.set(Plan::parse(&format!("rules: [{EXPIRED}, {STALLED}]"))?)?;
    proxy.end_connections();
    let stalled = list(&mut events, field.objects).await.context("the relist with a stalled page")?;
    ensure!(proxy.fired() == [1, 1], "the page did not stall: {:?}", proxy.fired());

    let limit = options.list_timeout + clean;
    report.add(Row {
        subject: "relist with one stalled page",
        figure: format!("{:.1} s for {} objects", stalled.as_secs_f64(), field.objects),
        against: format!("{:.1} s, with the deadline of a page", limit.as_secs_f64()),
        ratio: stalled.as_secs_f64() / limit.as_secs_f64(),
        bound: Some(BOUND),
    });
    Ok(())
}

/// Waits for the next list, and returns how long it took from its beginning to its end.
async fn list(events: &mut (impl Stream<Item = Event<ConfigMap>> + Unpin), expected: usize) -> Result<Duration> {
    let (mut begun, mut found) = (Instant::now(), 0);
    let listed = async {
        while let Some(event) = events.next().await {
            match event {
                Event::Init => (begun, found) = (Instant::now(), 0),
                Event::InitApply(_) => found += 1,
                Event::InitDone => break,
                Event::Apply(_) | Event::Delete(_) => {}
            }
        }
    };
    tokio::time::timeout(STUCK, listed).await?;
    ensure!(found == expected, "{found} of {expected} objects were listed");
    Ok(begun.elapsed())
}
