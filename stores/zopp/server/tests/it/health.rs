//! Probes, and TLS.

use std::path::Path;

use konverge_zopp_proto::{self as proto, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::serve::{Options, Server, TlsFiles};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{World, code, location};

#[tokio::test]
async fn grpc_health_answers_for_the_server_and_the_service() {
    let world = World::start().await;
    let mut health = HealthClient::new(world.channel.clone());
    for service in ["", "zopp.ZoppService"] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service:?}");
    }
}

#[tokio::test]
async fn probes_are_answered_over_plain_http() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::bind(Options::local(location(&directory))).await.unwrap();
    let (address, stop) = (server.health_address(), CancellationToken::new());
    let running = tokio::spawn(server.run(stop.clone()));
    for path in ["/healthz", "/readyz"] {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{path}: {answer}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

fn issue(authority: &CertifiedIssuer<'_, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (parameters.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

fn write(directory: &Path, name: &str, content: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[tokio::test]
async fn with_a_client_authority_only_its_clients_are_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    let (certificate, key) = issue(&authority);
    let tls = TlsFiles {
        certificate: Some(write(directory.path(), "cert.pem", &certificate)),
        key: Some(write(directory.path(), "key.pem", &key)),
        client_authority: Some(write(directory.path(), "ca.pem", &authority.pem())),
    };
    let server = Server::bind(Options { tls, ..Options::local(location(&directory)) }).await.unwrap();
    let (url, stop) = (format!("https://localhost:{}", server.address().port()), CancellationToken::new());
    let running = tokio::spawn(server.run(stop.clone()));

    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
    let (certificate, key) = issue(&authority);
    let known = trusting.clone().identity(Identity::from_pem(certificate, key));
    let call = |tls: ClientTlsConfig| {
        let channel = Channel::from_shared(url.clone()).unwrap().tls_config(tls).unwrap().connect_lazy();
        async move { ZoppServiceClient::new(channel).get_invite(proto::GetInviteRequest { token: "x".into() }).await }
    };
    assert_eq!(code(call(known).await), Code::NotFound, "let in, and answered");
    // Depending on who notices first, it is a failed connection or a broken one; never an answer.
    let refused = code(call(trusting).await);
    assert!(matches!(refused, Code::Unavailable | Code::Unknown), "{refused:?}");
    stop.cancel();
    running.await.unwrap().unwrap();
}
