//! Connections: how they begin, how many there may be, and how they end.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_admission::{
    Certificates, Limits, RegistrationError, Review, Security, Validator, Verdict, Webhook, WebhookServer, Webhooks,
    handler, server::BindError,
};
use konverge_testkit::eventually;
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    FilePair, Running, SOON, anywhere,
    http_client::{Connection, Version},
};

const PATH: &str = "/validate--v1-configmap";

/// Says when it was called, and waits until it may answer.
#[derive(Default)]
struct Slow {
    called: Notify,
    begun: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    may: Option<Semaphore>,
}

impl Validator<ConfigMap> for Slow {
    type Error = std::convert::Infallible;

    async fn validate(&self, _: &Review<ConfigMap>) -> Result<Verdict, Self::Error> {
        self.called.notify_one();
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        match &self.may {
            Some(may) => _ = may.acquire().await.unwrap(),
            None => pending().await,
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Verdict::allow())
    }
}

fn webhook() -> Webhook {
    Webhook::of::<ConfigMap>()
}

fn allowing() -> Webhooks {
    Webhooks::new().validate(webhook(), handler::validator(|_: &Review<ConfigMap>| Verdict::allow()))
}

fn review() -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "7",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "operation": "CREATE",
        },
    })
    .to_string()
}

#[tokio::test]
async fn a_sidecar_gets_plain_http() {
    let running = Running::start(allowing(), Security::Plain, Limits::default()).await;
    let mut connection = Connection::plain(running.address).await;
    let (status, answer) = connection.post(PATH, review()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    assert_eq!((running.ready)(), Ok(()));
    running.stop().await;
}

#[tokio::test]
async fn a_ready_configuration_or_a_fixed_pair_is_served() {
    let pair = FilePair::new();
    let read = |name| std::fs::read(pair.folder.path().join(name)).unwrap();
    let (certificate, key) = (read("tls.crt"), read("tls.key"));
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(&certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(&key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let fixed = Certificates::from_pem(&certificate, &key).unwrap();
    for security in [Security::Config(Arc::new(config)), Security::Tls(fixed)] {
        let running = Running::start(allowing(), security, Limits::default()).await;
        let mut connection = Connection::open(running.address, &pair.certificate, Version::Two).await.unwrap();
        assert_eq!(connection.post(PATH, review()).await.0, StatusCode::OK);
        assert_eq!((running.ready)(), Ok(()));
        running.stop().await;
    }
    Certificates::from_pem(&certificate, b"no key").unwrap_err();
}

#[tokio::test]
async fn what_cannot_be_served_is_said_before_anything_runs() {
    let taken = tokio::net::TcpListener::bind(anywhere()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = WebhookServer::bind(address, allowing(), Security::Plain).await.err().unwrap();
    assert!(error.to_string().contains(&address.to_string()), "{error}");

    let both = |first: Webhook, second: Webhook| {
        let allow = || handler::validator(|_: &Review<ConfigMap>| Verdict::allow());
        Webhooks::new().validate(first, allow()).and(Webhooks::new().validate(second, allow()))
    };
    let named = |name: &str| Webhook::of::<ConfigMap>().name(name).path(format!("/{name}"));
    let table = [
        (both(webhook(), named("a.b.c").path(PATH)), RegistrationError::PathTaken { path: PATH.to_owned() }),
        (both(named("a.b.c"), named("a.b.c").path("/b")), RegistrationError::NameTaken { name: "a.b.c".to_owned() }),
        (both(named("a.b.c"), named("short.name")), RegistrationError::NameUnusable { name: "short.name".to_owned() }),
        (both(named("a.b.c"), named("A.b.c")), RegistrationError::NameUnusable { name: "A.b.c".to_owned() }),
        (both(named("a.b.c"), named("b.b.c").path("b")), RegistrationError::PathUnusable { path: "b".to_owned() }),
        (
            both(named("a.b.c"), named("b.b.c").path("/healthz")),
            RegistrationError::PathUnusable { path: "/healthz".to_owned() },
        ),
    ];
    for (webhooks, expected) in table {
        match WebhookServer::bind(anywhere(), webhooks, Security::Plain).await.err().unwrap() {
            BindError::Registration(error) => assert_eq!(error, expected),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn calls_under_way_end_when_the_server_stops() {
    for version in [Version::One, Version::Two] {
        let slow = Arc::new(Slow { may: Some(Semaphore::new(0)), ..Slow::default() });
        let pair = FilePair::new();
        let webhooks = Webhooks::new().validate(webhook(), Arc::clone(&slow));
        let running = Running::start(webhooks, pair.certificates(), Limits::default()).await;
        let mut connection = Connection::open(running.address, &pair.certificate, version).await.unwrap();
        let call = tokio::spawn(async move { connection.post(PATH, review()).await });
        slow.called.notified().await;
        running.stop.cancel();
        eventually(SOON, async || (running.ready)().err()).await.unwrap();
        eventually(SOON, async || TcpStream::connect(running.address).await.err()).await.unwrap();
        slow.may.as_ref().unwrap().add_permits(1);
        let (status, answer) = call.await.unwrap();
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
        running.stop().await;
    }
}

#[tokio::test]
async fn more_calls_than_there_may_be_at_once_wait_for_each_other() {
    let slow = Arc::new(Slow { may: Some(Semaphore::new(0)), ..Slow::default() });
    let pair = FilePair::new();
    let limits = Limits::default().with(|limits| limits.calls = 2);
    let webhooks = Webhooks::new().validate(webhook(), Arc::clone(&slow));
    let running = Running::start(webhooks, pair.certificates(), limits).await;
    let mut calls = JoinSet::new();
    for _ in 0..5 {
        let mut connection = Connection::open(running.address, &pair.certificate, Version::Two).await.unwrap();
        calls.spawn(async move { connection.post(PATH, review()).await.0 });
    }
    let line = format!(r#"controller_runtime_webhook_requests_in_flight{{webhook="{PATH}"}} 5"#);
    eventually(SOON, async || running.metrics().contains(&line).then_some(())).await.unwrap();
    eventually(SOON, async || (slow.begun.load(Ordering::SeqCst) == 2).then_some(())).await.unwrap();
    slow.may.as_ref().unwrap().add_permits(1);
    assert!(calls.join_all().await.into_iter().all(|status| status == StatusCode::OK));
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.most.load(Ordering::SeqCst)), (5, 2));
    running.stop().await;
}

#[tokio::test]
async fn connections_without_a_call_do_not_hold_up_the_stop() {
    for version in [Version::One, Version::Two] {
        let pair = FilePair::new();
        let limits = Limits::default().with(|limits| limits.drain = 10 * SOON);
        let running = Running::start(allowing(), pair.certificates(), limits).await;
        let mut connection = Connection::open(running.address, &pair.certificate, version).await.unwrap();
        assert_eq!(connection.post(PATH, review()).await.0, StatusCode::OK);
        tokio::time::timeout(SOON, running.stop()).await.expect("nobody is waited for");
        let request = crate::http_client::request(http::Method::POST, PATH, "application/json", review());
        connection.send(request).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut_off() {
    for version in [Version::One, Version::Two] {
        let slow = Arc::new(Slow::default());
        let pair = FilePair::new();
        let limits = Limits::default().with(|limits| limits.drain = Duration::from_millis(50));
        let webhooks = Webhooks::new().validate(webhook(), Arc::clone(&slow));
        let running = Running::start(webhooks, pair.certificates(), limits).await;
        let mut connection = Connection::open(running.address, &pair.certificate, version).await.unwrap();
        let call = tokio::spawn(async move {
            let request = crate::http_client::request(http::Method::POST, PATH, "application/json", review());
            connection.send(request).await
        });
        slow.called.notified().await;
        running.stop().await;
        call.await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn connections_are_accepted_for_a_while_after_the_server_is_told_to_stop() {
    let pair = FilePair::new();
    let limits = Limits::default().with(|limits| limits.linger = SOON);
    let running = Running::start(allowing(), pair.certificates(), limits).await;
    eventually(SOON, async || (running.ready)().ok()).await.unwrap();
    running.stop.cancel();
    eventually(SOON, async || (running.ready)().err()).await.unwrap();
    let mut connection = Connection::open(running.address, &pair.certificate, Version::Two).await.unwrap();
    assert_eq!(connection.post(PATH, review()).await.0, StatusCode::OK);
    running.task.abort();
}

#[tokio::test]
async fn a_program_that_still_needs_its_webhooks_while_it_ends_has_them() {
    let pair = FilePair::new();
    let server = WebhookServer::bind(anywhere(), allowing(), pair.certificates()).await.unwrap();
    let (address, ready) = (server.address(), server.readiness());
    let (leave, stop) = (CancellationToken::new(), CancellationToken::new());
    let task = tokio::spawn(server.run_until(leave.clone(), stop.clone()));
    eventually(SOON, async || ready().ok()).await.unwrap();
    leave.cancel();
    eventually(SOON, async || ready().err()).await.unwrap();
    // It does not linger by itself; the last runs of the program keep it.
    for _ in 0..20 {
        let mut connection = Connection::open(address, &pair.certificate, Version::Two).await.unwrap();
        assert_eq!(connection.post(PATH, review()).await.0, StatusCode::OK);
    }
    stop.cancel();
    task.await.unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn a_caller_that_says_nothing_is_hung_up_on() {
    let pair = FilePair::new();
    let limits = Limits::default().with(|limits| limits.handshake = Duration::from_millis(50));
    let running = Running::start(allowing(), pair.certificates(), limits).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let read = tokio::time::timeout(SOON, silent.read_u8()).await.expect("it ends");
    assert!(read.is_err());
    let counted = async || running.metrics().contains("konverge_webhook_tls_handshake_errors_total 1").then_some(());
    eventually(SOON, counted).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_caller_that_is_secure_and_says_nothing_is_hung_up_on() {
    let pair = FilePair::new();
    let limits = Limits::default().with(|limits| limits.idle = Duration::from_millis(50));
    let running = Running::start(allowing(), pair.certificates(), limits).await;
    let mut silent = crate::http_client::tls(running.address, &pair.certificate, Version::One).await.unwrap();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(SOON, silent.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "it ends");
    running.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_one_to_end() {
    let pair = FilePair::new();
    let limits = Limits::default().with(|limits| limits.connections = 1);
    let running = Running::start(allowing(), pair.certificates(), limits).await;
    let mut first = Connection::open(running.address, &pair.certificate, Version::One).await.unwrap();
    assert_eq!(first.post(PATH, review()).await.0, StatusCode::OK);
    let (address, certificate) = (running.address, pair.certificate.clone());
    let second = tokio::spawn(async move { Connection::open(address, &certificate, Version::One).await });
    assert_eq!(first.post(PATH, review()).await.0, StatusCode::OK);
    assert!(!second.is_finished(), "there is one connection");
    drop(first);
    assert_eq!(second.await.unwrap().unwrap().post(PATH, review()).await.0, StatusCode::OK);
    running.stop().await;
}
