use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures::StreamExt;
use konverge_external::{
    Change, ChangeKind, Metrics, Options,
    memory::InProcess,
    sse::{Event, EventStream},
    watch,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    failing, failing_with, next, quiet_until,
    server::{Server, answer},
};

/// The sender of the current connection; dropping it ends the stream.
type Wire = Arc<Mutex<Option<UnboundedSender<&'static str>>>>;

fn open(wire: &Wire) -> Response {
    let (sender, receiver) = unbounded_channel();
    *wire.lock().unwrap() = Some(sender);
    let bytes = UnboundedReceiverStream::new(receiver);
    let bytes = bytes.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from_static(text.as_bytes())));
    answer(200, &[("content-type", "text/event-stream; charset=utf-8")], Body::from_stream(bytes))
}

async fn events() -> (Server, Wire) {
    let wire = Wire::default();
    let opens = Arc::clone(&wire);
    (Server::start(move |_| open(&opens)).await, wire)
}

fn send(wire: &Wire, text: &'static str) {
    wire.lock().unwrap().as_ref().expect("a connection").send(text).unwrap();
}

fn event(id: &str, event: &str, data: &str) -> Event {
    Event { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
}

/// Events must not wait for it, and reconnections after a failure do for a part of it.
fn options() -> Options {
    Options::every(Duration::from_millis(200)).longest_pause(Duration::from_millis(200))
}

#[tokio::test]
async fn events_come_as_they_are_sent_and_resume_after_an_end() {
    let (server, wire) = events().await;
    let source = EventStream::new("events", server.endpoint()).kind(|event| match event.event.as_str() {
        "removed" => ChangeKind::Removed,
        _ => ChangeKind::Added,
    });
    let (mut changes, health) = watch(source, options());
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    assert_eq!(server.last().header("accept"), Some("text/event-stream"));
    assert_eq!(server.last().header("last-event-id"), None);
    send(&wire, ": hello\n\nid: 1\nda");
    send(&wire, "ta: a\n\nid: 2\nevent: removed\ndata: b\n\n");
    assert_eq!(next(&mut changes).await, Change::Added(event("1", "message", "a")));
    assert_eq!(next(&mut changes).await, Change::Removed(event("2", "removed", "b")));

    *wire.lock().unwrap() = None;
    let again = server.times(1);
    assert!(failing(&mut changes, &health).await.contains("ended: the server closed it"));
    quiet_until(&mut changes, again).await;
    quiet_until(&mut changes, || health.failures() == 0).await;
    assert_eq!(server.last().header("last-event-id"), Some("2"));
    send(&wire, "data: c\n\n");
    assert_eq!(next(&mut changes).await, Change::Added(event("2", "message", "c")));
}

#[tokio::test]
async fn after_a_restart_it_resumes_where_the_consumer_was() {
    let (server, wire) = events().await;
    let memory = InProcess::default();
    let start = || watch(EventStream::new("events", server.endpoint()), options().memory(memory.clone()));
    let (mut changes, health) = start();
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    send(&wire, "id: 7\ndata: a\n\n");
    next(&mut changes).await;
    send(&wire, ": the consumer asks for more\n\nid: 8\ndata: b\n\n");
    next(&mut changes).await;
    // Event 8 was handed out, but the consumer went before it asked for the next.
    drop(changes);
    let (mut changes, health) = start();
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    assert_eq!(server.last().header("last-event-id"), Some("7"));
}

#[tokio::test]
async fn silence_is_noticed_and_the_servers_pause_is_kept() {
    let (server, wire) = events().await;
    let source = EventStream::new("events", server.endpoint()).idle_timeout(Duration::from_secs(1));
    let (mut changes, health) = watch(source, options());
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    send(&wire, "retry: 2000\n");
    let began = std::time::Instant::now();
    let again = server.times(1);
    assert!(failing(&mut changes, &health).await.contains("silent for 1 s"));
    quiet_until(&mut changes, again).await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_no_event_stream_is_refused() {
    let (server, wire) = events().await;
    let (mut changes, health) = watch(EventStream::new("events", server.endpoint()).event_limit(100), options());
    for (status, content_type, body, expected) in [
        (200, "text/html", "<html>", "text/html"),
        (204, "text/event-stream", "", "204"),
        (404, "text/event-stream", "data: a\n\n", "404"),
        (503, "text/event-stream", "data: a\n\n", "503"),
    ] {
        server.answers(move |_| answer(status, &[("content-type", content_type)], body));
        *wire.lock().unwrap() = None;
        quiet_until(&mut changes, server.times(3)).await;
        let error = health.last_error().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    let opens = Arc::clone(&wire);
    server.answers(move |_| open(&opens));
    quiet_until(&mut changes, || health.failures() == 0).await;
    send(&wire, "data: ");
    for _ in 0..10 {
        send(&wire, "0123456789");
    }
    failing_with(&mut changes, &health, "larger than the 100 bytes").await;
}

#[tokio::test]
async fn an_event_over_the_limit_is_skipped_and_reported_and_later_ones_come() {
    let (server, wire) = events().await;
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let source = EventStream::new("events", server.endpoint()).event_limit(20);
    let (mut changes, health) = watch(source, options().metrics(&metrics));
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    send(&wire, "id: 1\ndata: a\n\n");
    assert_eq!(next(&mut changes).await, Change::Added(event("1", "message", "a")));

    // On the same connection, the next event follows.
    let requests = server.requests().len();
    send(&wire, "id: 2\ndata: 0123456789");
    send(&wire, "0123456789");
    failing_with(&mut changes, &health, "is larger than the 20 bytes that are allowed and is skipped").await;
    send(&wire, "0123456789\n\nid: 3\ndata: b\n\n");
    assert_eq!(next(&mut changes).await, Change::Added(event("3", "message", "b")));
    assert_eq!((server.requests().len(), health.failures()), (requests, 0));
    let mut encoded = String::new();
    prometheus_client::encoding::text::encode(&mut encoded, &registry).unwrap();
    let line = r#"konverge_external_errors_total{source="events",reason="EventTooLarge"} 1"#;
    assert!(encoded.contains(line), "{encoded}");

    // A connection that breaks within such an event resumes after it, not into it.
    send(&wire, "id: 4\ndata: 0123456789012345678901234567890");
    failing_with(&mut changes, &health, "larger than the 20 bytes").await;
    *wire.lock().unwrap() = None;
    let again = server.times(1);
    quiet_until(&mut changes, again).await;
    quiet_until(&mut changes, || health.failures() == 0).await;
    assert_eq!(server.last().header("last-event-id"), Some("4"));
    send(&wire, "id: 5\ndata: c\n\n");
    assert_eq!(next(&mut changes).await, Change::Added(event("5", "message", "c")));
}
