use konverge_core::SecretValue;
use konverge_external::{
    Change,
    http::{Endpoint, HttpSource, Token},
    watch,
};

use crate::{
    failing, failing_with, next, options,
    server::{Server, answer},
};

fn with_secrets(endpoint: Endpoint) -> Endpoint {
    endpoint
        .token(Token::value(SecretValue::from("secret".to_owned())))
        .header(::http::HeaderName::from_static("x-api-key"), ::http::HeaderValue::from_static("secret"))
}

#[tokio::test]
async fn within_the_origin_secrets_follow_a_redirect() {
    let server = Server::start(|request| match request.path.as_str() {
        "/document" => answer(307, &[("location", "/other")], ""),
        _ => answer(200, &[], "one"),
    })
    .await;
    let (mut changes, _) = watch(HttpSource::new("document", with_secrets(server.endpoint())), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    assert_eq!(server.last().path, "/other");
    assert_eq!(server.last().header("authorization"), Some("Bearer secret"));
    assert_eq!(server.last().header("x-api-key"), Some("secret"));
}

#[tokio::test]
async fn to_another_origin_they_do_not() {
    let other = Server::start(|_| answer(200, &[], "one")).await;
    let location = format!("{}/there", other.address);
    let server = Server::start(move |_| answer(302, &[("location", location.as_str())], "")).await;
    let (mut changes, _) = watch(HttpSource::new("document", with_secrets(server.endpoint())), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    assert_eq!(server.last().header("x-api-key"), Some("secret"));
    assert_eq!((other.last().header("authorization"), other.last().header("x-api-key")), (None, None));
}

#[tokio::test]
async fn a_loop_ends_and_a_missing_page_elsewhere_removes_nothing() {
    let server = Server::start(|_| answer(200, &[], "one")).await;
    let (mut changes, health) = watch(HttpSource::new("document", server.endpoint().redirects(3)), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));

    server.answers(|_| answer(301, &[("location", "/document?secret=1")], ""));
    let before = server.requests().len();
    let error = failing(&mut changes, &health).await;
    assert!(error.contains("too many") && !error.contains("secret"), "{error}");
    assert!(server.requests().len() >= before + 4);

    server.answers(|request| match request.path.as_str() {
        "/document" => answer(302, &[("location", "/login")], ""),
        _ => answer(404, &[], "no such page"),
    });
    failing_with(&mut changes, &health, "404").await;
}
