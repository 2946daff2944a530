//! Probes, and TLS.

use std::{path::Path, pin::pin};

use konverge_zopp_proto::{self as proto, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::serve::{Options, Server, TlsFiles};
use konverge_zopp_testing::{Authority, Issued};
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
async fn readiness_goes_with_the_database_and_comes_back_with_it() {
    let world = World::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = world.probe(path).await;
        assert!(answer.starts_with("200") && answer.ends_with("ok"), "{path}: {answer}");
    }
    let saboteur = world.saboteur().await;
    sqlx::query("ALTER TABLE users RENAME TO elsewhere").execute(&saboteur).await.unwrap();
    let answer = world.probe("/readyz").await;
    assert!(answer.starts_with("503") && answer.ends_with("the database does not answer"), "{answer}");
    assert!(world.probe("/healthz").await.starts_with("200"), "a restart would not help");
    sqlx::query("ALTER TABLE elsewhere RENAME TO users").execute(&saboteur).await.unwrap();
    assert!(world.probe("/readyz").await.starts_with("200"));
}

#[tokio::test]
async fn a_server_that_stops_is_not_ready_and_finishes_what_is_under_way() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut reader = world.service(&mut owner).await;
    owner.grant(&reader.principal_id, proto::Role::Read).await.unwrap();
    let saboteur = world.saboteur().await;
    let lock = saboteur.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let mut change = pin!(owner.set("A"));
    assert!(futures::poll!(&mut change).is_pending());
    // On the same connection: what was sent before this is answered has been received.
    reader.list().await.unwrap();
    world.stop.cancel();
    let answer = world.probe("/readyz").await;
    assert!(answer.starts_with("503") && answer.ends_with("stopping"), "{answer}");
    lock.rollback().await.unwrap();
    change.await.unwrap();
    world.end().await;
}

fn write(directory: &Path, name: &str, content: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[tokio::test]
async fn with_a_client_authority_only_its_clients_are_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new().unwrap();
    let Issued { certificate, key } = authority.issue("localhost").unwrap();
    let tls = TlsFiles {
        certificate: Some(write(directory.path(), "cert.pem", &certificate)),
        key: Some(write(directory.path(), "key.pem", &key)),
        client_authority: Some(write(directory.path(), "ca.pem", &authority.pem())),
    };
    let server = Server::bind(Options { tls, ..Options::local(location(&directory)) }).await.unwrap();
    let (url, stop) = (format!("https://localhost:{}", server.address().port()), CancellationToken::new());
    let running = tokio::spawn(server.run(stop.clone()));

    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
    let Issued { certificate, key } = authority.issue("localhost").unwrap();
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
