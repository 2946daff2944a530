use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use konverge_external::{
    Change, Options,
    http::{HttpSource, LongPoll},
    watch,
};

use crate::{
    failing, next, quiet_until,
    server::{ReceivedRequest, Server, answer},
};

/// Long polls must not wait for it.
const LONG: Duration = Duration::from_secs(600);

/// A body that comes after a while.
fn later(wait: Duration, body: &'static str) -> Body {
    let body = stream::once(async move {
        tokio::time::sleep(wait).await;
        Ok::<_, std::convert::Infallible>(Bytes::from_static(body.as_bytes()))
    });
    Body::from_stream(body.boxed())
}

/// Answers at once to who is behind, and after a while with the same to who is not.
fn indexed(index: &'static str, body: &'static str) -> impl Fn(&ReceivedRequest) -> axum::response::Response {
    move |request| {
        let known = request.query.split('&').any(|part| part == format!("index={index}"));
        let wait = if known { Duration::from_millis(50) } else { Duration::ZERO };
        answer(200, &[("x-index", index)], later(wait, body))
    }
}

#[tokio::test]
async fn the_server_sets_the_pace_and_gets_its_cursor_back() {
    let server = Server::start(indexed("1", "one")).await;
    let long_poll = LongPoll::new(Duration::from_millis(50))
        .parameter("wait", "50ms")
        .cursor(::http::HeaderName::from_static("x-index"), "index");
    let source = HttpSource::new("document", server.endpoint()).long_poll(long_poll);
    let (mut changes, health) = watch(source, Options::every(LONG).longest_pause(Duration::from_millis(50)));
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    assert_eq!(server.requests()[0].query, "wait=50ms");
    quiet_until(&mut changes, server.times(3)).await;
    assert_eq!(server.last().query, "wait=50ms&index=1");
    server.answers(indexed("2", "two"));
    assert!(matches!(next(&mut changes).await, Change::Modified(_)));
    quiet_until(&mut changes, server.times(2)).await;
    assert_eq!(server.last().query, "wait=50ms&index=2");

    // A cursor that is no longer known is not a document that is gone.
    server.answers(
        |request| {
            if request.query.contains("index") { answer(410, &[], "expired") } else { answer(500, &[], "") }
        },
    );
    assert!(failing(&mut changes, &health).await.contains("410"));
    server.answers(indexed("1", "three"));
    assert!(matches!(next(&mut changes).await, Change::Modified(_)));
}

#[tokio::test]
async fn a_server_that_does_not_wait_is_not_asked_all_the_time() {
    let server = Server::start(|_| answer(200, &[], "one")).await;
    let source = HttpSource::new("document", server.endpoint()).long_poll(LongPoll::new(Duration::from_secs(30)));
    let (mut changes, _) = watch(source, Options::every(Duration::from_millis(200)));
    next(&mut changes).await;
    let began = Instant::now();
    // The first one after a change comes at once.
    quiet_until(&mut changes, server.times(4)).await;
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}
