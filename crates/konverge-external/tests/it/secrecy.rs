//! Nothing that is secret is printed, whatever the log level.

use konverge_core::SecretValue;
use konverge_external::{
    http::{Endpoint, HttpSource, Token},
    objects::ObjectSource,
    watch,
};
use konverge_testkit::CapturedLog;

use crate::{
    failing_with, next, options,
    server::{Server, answer},
};

/// Part of everything secret below.
const SECRET: &str = "hunter2";

#[tokio::test]
async fn no_secret_is_in_logs_errors_or_health() {
    let log = CapturedLog::start();

    let server = Server::start(|_| answer(200, &[], "one")).await;
    let address = server.address.replace("http://", "http://me:hunter2@");
    let endpoint = Endpoint::new(&format!("{address}/document?key=hunter2")).unwrap();
    let endpoint = endpoint
        .token(Token::value(SecretValue::from("hunter2-token".to_owned())))
        .header(::http::HeaderName::from_static("x-key"), ::http::HeaderValue::from_static("hunter2-header"));
    let (mut changes, health) = watch(HttpSource::new("document", endpoint), options());
    let document = next(&mut changes).await.into_item();
    assert!(server.last().query.contains(SECRET), "it is sent");
    assert!(!format!("{document:?}").contains(SECRET));
    server.answers(|_| answer(500, &[], "hunter2 is in my answer"));
    failing_with(&mut changes, &health, "500").await;
    assert!(!health.last_error().unwrap().contains(SECRET));
    drop(server);
    failing_with(&mut changes, &health, "cannot get").await;
    assert!(!health.last_error().unwrap().contains(SECRET));

    let free = konverge_testkit::free_port().unwrap();
    let endpoint = format!("http://127.0.0.1:{free}");
    let settings = [
        ("endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("access_key_id", "id"),
        ("secret_access_key", "hunter2-key"),
        ("token", "hunter2-session"),
    ];
    let source = ObjectSource::open("store", "s3://bucket", settings).unwrap();
    let (mut changes, health) = watch(source, options());
    failing_with(&mut changes, &health, "cannot list").await;
    assert!(!health.last_error().unwrap().contains(SECRET));

    let log = log.text();
    assert!(log.contains("poll failed") && log.contains("hyper_util"), "everything is logged:\n{log}");
    let line = log.lines().find(|line| line.contains(SECRET));
    assert_eq!(line, None);
}
