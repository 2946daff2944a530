//! Certificates from files: what is new is served, what is broken is not.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_admission::{Certificates, Limits, Review, Verdict, Webhook, Webhooks, handler};
use konverge_testkit::eventually;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    FilePair, Running, SOON,
    http_client::{Version, tls, tls_as},
};

fn webhooks() -> Webhooks {
    let allow = handler::validator(|_: &Review<ConfigMap>| Verdict::allow());
    Webhooks::new().validate(Webhook::of::<ConfigMap>(), allow)
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

#[tokio::test]
async fn only_callers_of_the_authority_are_answered() {
    let pair = FilePair::new();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let caller = |issuer: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (parameters.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
    };
    let certificates = pair.certificates().only_for(authority.pem().as_bytes()).unwrap();
    assert!(pair.certificates().only_for(b"").is_err(), "nobody would be answered");
    let running = Running::start(webhooks(), certificates, Limits::default()).await;

    let answers = async |caller: Option<(&str, &str)>| {
        // A refusal comes after the client's part of the handshake, with the first read.
        let mut stream = tls_as(running.address, &pair.certificate, Version::One, caller).await?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        stream.read_u8().await
    };
    let (certificate, key) = caller(&authority);
    assert_eq!(answers(Some((&certificate, &key))).await.unwrap(), b'H');
    answers(None).await.unwrap_err();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let other = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let (certificate, key) = caller(&other);
    answers(Some((&certificate, &key))).await.unwrap_err();
    running.stop().await;
}
