//! From a figure to the run behind it: the trace of a run is in the scrape.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, routing::post};
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::{Action, Controller, Manager, Metrics, Priority, Queue, Reconciler, Request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::begin;

const SOON: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl Classify for Never {
    fn class(&self) -> ErrorClass {
        ErrorClass::Permanent
    }

    fn reason(&self) -> &'static str {
        "Never"
    }
}

struct Nothing;

impl Reconciler for Nothing {
    type Key = &'static str;
    type Error = Never;

    async fn reconcile(&self, _: Request<&'static str>) -> Result<Action, Never> {
        Ok(Action::Done)
    }
}

async fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The buckets of the time that runs took, in a scrape of a program with one run behind it.
async fn buckets() -> Vec<String> {
    let mut manager = Manager::bind(([127, 0, 0, 1], 0).into(), Metrics::new("test", "1")).await.unwrap();
    let queue = Queue::new("test", manager.metrics().queues());
    queue.add("one", Priority::Normal, "test");
    manager.controller("test", Controller::new(Arc::new(Nothing), queue, manager.metrics().controllers()));
    let (address, shutdown) = (manager.address(), manager.shutdown());
    let running = tokio::spawn(manager.run());
    let begun = Instant::now();
    let text = loop {
        let text = scrape(address).await;
        if text.contains(r#"controller_runtime_reconcile_time_seconds_count{controller="test"} 1"#) {
            break text;
        }
        assert!(begun.elapsed() < SOON, "no run is counted in {text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    shutdown.cancel();
    running.await.unwrap().unwrap();
    let buckets = text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_time_seconds_bucket{"));
    buckets.map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn the_trace_of_a_run_reaches_a_scrape_and_is_the_one_that_was_sent() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::clone(&sent);
    let take = async move |body: Bytes| taken.lock().unwrap().extend_from_slice(&body);
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await.unwrap() });

    let (traces, _log, guard) = begin(&endpoint);
    let exemplars: Vec<_> =
        buckets().await.iter().filter_map(|line| Some(line.split_once(" # ")?.1.to_owned())).collect();
    traces.finish(SOON).await;
    drop(guard);
    // One run is in one bucket: its trace, how long it took, and when it was.
    let [exemplar] = &exemplars[..] else { panic!("{exemplars:?}") };
    let (trace, figures) = exemplar.strip_prefix(r#"{trace_id=""#).unwrap().split_once(r#""}"#).unwrap();
    assert_eq!((trace.len(), figures.split_whitespace().count()), (32, 2), "{exemplar}");
    let trace: Vec<u8> = (0..16).map(|byte| u8::from_str_radix(&trace[2 * byte..2 * byte + 2], 16).unwrap()).collect();
    assert!(sent.lock().unwrap().windows(16).any(|bytes| bytes == trace), "the collector never heard of {exemplar}");

    let without = buckets().await;
    assert!(!without.is_empty() && !without.iter().any(|line| line.contains(" # ")), "{without:#?}");
}
