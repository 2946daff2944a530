//! Certificates from files: what is new is served, what is broken is not.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_admission::{Certificates, Limits, Review, Verdict, Webhook, Webhooks, handler};
use konverge_testkit::eventually;

use crate::{
    FilePair, Running, SOON,
    http_client::{Version, tls},
};

fn webhooks() -> Webhooks {
    let allow = handler::validator(|_: &Review<ConfigMap>| Verdict::allow());
    Webhooks::new().validate(Webhook::of::<ConfigMap>("maps.test.example.com"), allow)
}

#[tokio::test]
async fn a_new_pair_is_served_and_a_broken_one_is_not() {
    let mut pair = FilePair::new();
    let certificates = pair.certificates();
    let in_order = certificates.in_order();
    let running = Running::start(webhooks(), certificates, Limits::default()).await;
    let first = pair.certificate.clone();
    tls(running.address, &first, Version::Two).await.unwrap();
    assert_eq!(in_order(), Ok(()));

    pair.renew();
    let second = pair.certificate.clone();
    eventually(SOON, async || tls(running.address, &second, Version::Two).await.ok()).await.unwrap();
    tls(running.address, &first, Version::Two).await.unwrap_err();

    let key = pair.folder.path().join("tls.key");
    std::fs::write(&key, "half a key").unwrap();
    let why = eventually(SOON, async || in_order().err()).await.unwrap();
    assert!(why.contains("tls.key") && !why.contains("half a key"), "{why}");
    tls(running.address, &second, Version::Two).await.expect("the old pair is still served");
    assert_eq!((running.ready)(), Ok(()), "it still works");
    assert!(!running.metrics().contains("certwatcher_read_certificate_errors_total 0"));
    assert!(!running.metrics().contains("certificate_expiry_timestamp_seconds 0"));

    std::fs::remove_file(&key).unwrap();
    eventually(SOON, async || in_order().err().filter(|why| why.contains("cannot read"))).await.unwrap();
    pair.renew();
    eventually(SOON, async || in_order().ok()).await.unwrap();
    eventually(SOON, async || tls(running.address, &pair.certificate, Version::Two).await.ok()).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn files_that_are_no_pair_are_refused_at_once() {
    let (one, other) = (FilePair::new(), FilePair::new());
    let file = |pair: &FilePair, name: &str| pair.folder.path().join(name);
    let error = Certificates::from_files(file(&one, "tls.crt"), file(&other, "tls.key")).unwrap_err();
    assert!(error.to_string().contains("cannot serve with"), "{error}");
    let error = Certificates::from_files(file(&one, "none.crt"), file(&one, "tls.key")).unwrap_err();
    assert!(error.to_string().contains("none.crt"), "{error}");
}
