use std::{convert::Infallible, time::Duration};

use axum::body::{Body, Bytes};
use futures::stream;
use konverge_core::SecretValue;
use konverge_external::{
    Change,
    http::{HttpSource, Token},
    watch,
};

use crate::{
    failing, failing_with, next, options, quiet_until,
    server::{Server, answer},
};

#[tokio::test]
async fn a_document_with_an_etag_through_its_life() {
    let document = |etag: &'static str, body: &'static str| {
        move |request: &crate::server::ReceivedRequest| {
            if request.header("if-none-match") == Some(etag) {
                answer(304, &[], "")
            } else {
                let headers = [("etag", etag), ("content-type", "text/plain"), ("last-modified", "yesterday")];
                answer(200, &headers, body)
            }
        }
    };
    let server = Server::start(|_| answer(404, &[], "")).await;
    let (mut changes, health) = watch(HttpSource::new("document", server.endpoint()), options());
    quiet_until(&mut changes, server.times(3)).await;
    health.ready().unwrap();

    server.answers(document("\"1\"", "one"));
    let Change::Added(item) = next(&mut changes).await else { panic!("it is added") };
    assert_eq!(item.body, "one");
    assert_eq!(item.url, format!("{}/document", server.address));
    assert_eq!((item.status.as_u16(), item.etag.as_deref()), (200, Some("\"1\"")));
    assert_eq!((item.content_type.as_deref(), item.last_modified.as_deref()), (Some("text/plain"), Some("yesterday")));
    quiet_until(&mut changes, server.times(3)).await;
    assert_eq!(server.last().header("if-none-match"), Some("\"1\""));

    server.answers(document("\"2\"", "two"));
    let Change::Modified(item) = next(&mut changes).await else { panic!("it is modified") };
    assert_eq!(item.body, "two");

    // Another tag on the same content is no change.
    server.answers(document("\"3\"", "two"));
    quiet_until(&mut changes, server.times(3)).await;
    assert_eq!(server.last().header("if-none-match"), Some("\"3\""));

    server.answers(|_| answer(404, &[], "nothing here"));
    let Change::Removed(item) = next(&mut changes).await else { panic!("it is removed") };
    assert_eq!((item.status.as_u16(), item.body.len(), item.etag), (404, 0, None));
    quiet_until(&mut changes, server.times(3)).await;
    assert_eq!(server.last().header("if-none-match"), None);

    server.answers(document("\"3\"", "two"));
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
}

#[tokio::test]
async fn row_23_without_validators_the_content_decides() {
    let server = Server::start(|_| answer(200, &[], "one")).await;
    let (mut changes, _) = watch(HttpSource::new("document", server.endpoint()), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    quiet_until(&mut changes, server.times(3)).await;
    assert_eq!((server.last().header("if-none-match"), server.last().header("if-modified-since")), (None, None));
    server.answers(|_| answer(200, &[], "two"));
    assert!(matches!(next(&mut changes).await, Change::Modified(_)));
    server.answers(|_| answer(410, &[], ""));
    assert!(matches!(next(&mut changes).await, Change::Removed(_)));
}

/// No destruction from ignorance: each of these is an error, and the document is still there after it.
#[tokio::test]
async fn faults_are_errors_and_never_changes() {
    let server = Server::start(|_| answer(200, &[("content-type", "application/json")], "{}")).await;
    let (mut changes, health) = watch(HttpSource::new("document", server.endpoint()).body_limit(1000), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    for (status, content_type, body, expected) in [
        (200, "application/json", String::new(), "empty document"),
        (204, "application/json", String::new(), "empty document"),
        (200, "text/html", "<html>please log in</html>".to_owned(), "text/html"),
        (200, "application/json", "x".repeat(1001), "larger than the 1000 bytes"),
        (206, "application/json", "{".to_owned(), "206"),
        (401, "application/json", "{}".to_owned(), "401"),
        (403, "text/html", "no".to_owned(), "403"),
        (412, "text/html", "no".to_owned(), "412"),
        (500, "text/html", "<html>".to_owned(), "500"),
        (503, "application/json", String::new(), "503"),
    ] {
        server.answers(move |_| answer(status, &[("content-type", content_type)], body.clone()));
        let error = failing(&mut changes, &health).await;
        assert!(error.contains(expected) && error.contains("/document"), "{status}: {error}");
        server.answers(|_| answer(200, &[("content-type", "application/json")], "{}"));
        quiet_until(&mut changes, || health.failures() == 0).await;
    }
}

#[tokio::test]
async fn row_23_a_body_beyond_the_limit_ends_early_though_it_does_not_tell_its_length() {
    let endless = || Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096]))));
    let server = Server::start(move |_| answer(200, &[], endless())).await;
    let (mut changes, health) = watch(HttpSource::new("document", server.endpoint()), options());
    assert!(failing(&mut changes, &health).await.contains("larger than the 8388608 bytes"));
}

#[tokio::test]
async fn row_23_a_slow_answer_and_a_cut_one_and_none_are_errors() {
    let slow = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let server = Server::start(move |_| answer(200, &[], slow())).await;
    let endpoint = server.endpoint().timeout(Duration::from_millis(100));
    let (mut changes, health) = watch(HttpSource::new("document", endpoint), options());
    assert!(failing(&mut changes, &health).await.contains("no complete answer within 0.1 s"));

    server.answers(|_| {
        answer(200, &[("content-length", "100")], Body::from_stream(stream::iter([Ok::<_, Infallible>("abc")])))
    });
    failing_with(&mut changes, &health, "cannot get").await;

    let free = konverge_testkit::free_port().unwrap();
    let endpoint = konverge_external::http::Endpoint::new(&format!("http://u:secret@127.0.0.1:{free}/a?token=secret"));
    let (mut changes, health) = watch(HttpSource::new("document", endpoint.unwrap()), options());
    let error = failing(&mut changes, &health).await;
    assert!(error.contains(&format!("cannot get http://127.0.0.1:{free}/a: ")) && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn row_23_retry_after_is_waited_for() {
    let server = Server::start(|_| answer(429, &[("retry-after", "1")], "")).await;
    let (mut changes, health) = watch(HttpSource::new("document", server.endpoint()), options());
    let began = std::time::Instant::now();
    failing(&mut changes, &health).await;
    server.answers(|_| answer(200, &[], "one"));
    next(&mut changes).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 2);

    let in_two_seconds = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(2));
    server.answers(move |_| answer(503, &[("retry-after", in_two_seconds.as_str())], ""));
    failing(&mut changes, &health).await;
    server.answers(|_| answer(200, &[], "two"));
    let before = server.requests().len();
    next(&mut changes).await;
    assert_eq!(server.requests().len(), before + 1);
}

#[tokio::test]
async fn row_23_a_token_is_sent_and_read_anew_and_headers_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let server = Server::start(|_| answer(200, &[], "one")).await;
    let endpoint = server
        .endpoint()
        .token(Token::file(&path))
        .header(::http::HeaderName::from_static("x-own"), ::http::HeaderValue::from_static("mine"));
    let (mut changes, health) = watch(HttpSource::new("document", endpoint), options());
    next(&mut changes).await;
    assert_eq!(server.last().header("authorization"), Some("Bearer first"));
    assert_eq!(server.last().header("x-own"), Some("mine"));
    std::fs::write(&path, "second").unwrap();
    quiet_until(&mut changes, server.times(2)).await;
    assert_eq!(server.last().header("authorization"), Some("Bearer second"));
    std::fs::remove_file(&path).unwrap();
    assert!(failing(&mut changes, &health).await.contains("cannot read the token file"));

    let endpoint = server.endpoint().token(Token::value(SecretValue::from("fixed".to_owned())));
    let (mut changes, _) = watch(HttpSource::new("document", endpoint), options());
    next(&mut changes).await;
    assert_eq!(server.last().header("authorization"), Some("Bearer fixed"));
}
