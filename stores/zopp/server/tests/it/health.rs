//! Probes, and TLS.

use std::{path::Path, pin::pin, time::Duration};

use konverge_zopp_proto::{self as proto, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::serve::{Options, Server, TlsFiles};
use konverge_zopp_testing::{Authority, Issued};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    database::options,
    harness::{DEADLINE, World, code, probe},
};

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
    saboteur.run("ALTER TABLE users RENAME TO elsewhere").await;
    let answer = world.probe("/readyz").await;
    assert!(
        answer.starts_with("503") && answer.contains("[-]database failed: the database does not answer\n"),
        "{answer}"
    );
    assert!(world.probe("/healthz").await.starts_with("200"), "a restart would not help");
    saboteur.run("ALTER TABLE elsewhere RENAME TO users").await;
    assert!(world.probe("/readyz").await.starts_with("200"));
}

#[tokio::test]
async fn a_server_that_cannot_write_is_not_ready() {
    let world = World::start().await;
    let saboteur = world.saboteur().await;
    // As a full disk, or a file system that became read-only: reads still work.
    saboteur.run("ALTER TABLE readiness RENAME TO elsewhere").await;
    let answer = world.probe("/readyz").await;
    assert!(answer.starts_with("503"), "{answer}");
    assert!(answer.contains("[-]database failed: the database cannot be written\n"), "{answer}");
    saboteur.run("ALTER TABLE elsewhere RENAME TO readiness").await;
    assert!(world.probe("/readyz").await.starts_with("200"));
}

#[tokio::test]
async fn a_server_that_stops_is_not_ready_and_finishes_what_is_under_way() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut reader = world.service(&mut owner).await;
    owner.grant(&reader.principal_id, proto::Role::Read).await.unwrap();
    let saboteur = world.saboteur().await;
    let lock = saboteur.lock().await;
    let mut change = pin!(owner.set("A"));
    assert!(futures::poll!(&mut change).is_pending());
    // On the same connection: what was sent before this is answered has been received.
    reader.list().await.unwrap();
    world.stop.cancel();
    let answer = world.probe("/readyz").await;
    assert!(answer.starts_with("503") && answer.contains("[-]shutdown failed: stopping\n"), "{answer}");
    lock.release().await;
    change.await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn probes_list_their_checks_on_request() {
    let world = World::start().await;
    let answer = world.probe("/readyz?verbose").await;
    assert!(answer.starts_with("200"), "{answer}");
    assert!(answer.ends_with("[+]database ok\n[+]shutdown ok\nreadyz check passed\n"), "{answer}");
    let answer = world.probe("/healthz?verbose=1").await;
    assert!(answer.starts_with("200") && answer.ends_with("[+]ping ok\nhealthz check passed\n"), "{answer}");
}

#[tokio::test]
async fn calls_and_connections_are_counted_by_method_and_code() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    let unknown =
        owner.client.get_project(owner.sign(
            "GetProject",
            proto::GetProjectRequest { workspace_name: "acme".into(), project_name: "gone".into() },
        ));
    assert_eq!(code(unknown.await), Code::NotFound);
    let text = world.probe("/metrics").await;
    for line in [
        "zopp_server_requests_total{method=\"zopp.ZoppService/UpsertSecret\",code=\"Ok\"} 1\n",
        "zopp_server_requests_total{method=\"zopp.ZoppService/GetProject\",code=\"NotFound\"} 1\n",
        "zopp_server_request_seconds_count{method=\"zopp.ZoppService/UpsertSecret\"} 1\n",
        "zopp_server_connections 1\n",
        "# EOF\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    for name in ["acme", "backend", "owner@example.com", &owner.principal_id] {
        assert!(!text.contains(name), "{name} is in no metric: {text}");
    }
}

/// Whether the server says of itself, or of a service, that it serves, for as long as it stops.
#[tokio::test]
async fn s6_at_shutdown_the_health_of_the_server_changes_with_that_of_its_services() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let saboteur = world.saboteur().await;
    let mut health = HealthClient::new(world.channel.clone());
    let mut watches = Vec::new();
    for service in ["", "zopp.ZoppService", "konverge.zopp.v1.Identity"] {
        let request = HealthCheckRequest { service: service.into() };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        let first = watch.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving, "{service:?}");
        watches.push((service, watch));
    }
    // A call under way keeps the server from ending at once.
    let lock = saboteur.lock().await;
    let mut change = pin!(owner.set("A"));
    assert!(futures::poll!(&mut change).is_pending());
    world.stop.cancel();
    for (service, mut watch) in watches {
        let next = timeout(DEADLINE, watch.message()).await.expect("a change is told").unwrap().unwrap();
        assert_eq!(next.status(), ServingStatus::NotServing, "{service:?}");
    }
    lock.release().await;
    let _ = change.await;
    world.end().await;
}

/// A server with TLS whose files are in a folder.
struct Secured {
    directory: tempfile::TempDir,
    url: String,
    probes: String,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Secured {
    /// With a certificate of one authority, for clients of another.
    async fn start(authority: &Authority, of_clients: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| Some(directory.path().join(name));
        let tls = TlsFiles { certificate: file("cert.pem"), key: file("key.pem"), client_authority: file("ca.pem") };
        replace(directory.path(), authority, of_clients);
        let server = Server::bind(Options { tls, ..options(&directory).await }).await.unwrap();
        let (url, stop) = (format!("https://localhost:{}", server.address().port()), CancellationToken::new());
        let (token, probes) = (stop.clone(), server.health_address().to_string());
        let running = tokio::spawn(async move { server.run(token).await.unwrap() });
        Self { directory, url, probes, stop, running }
    }

    /// The response to a new connection that trusts one authority and presents a certificate of another.
    async fn answers(&self, trusted: &Authority, own: Option<&Authority>) -> bool {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted.pem()));
        if let Some(own) = own {
            let Issued { certificate, key } = own.issue("client").unwrap();
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let channel = Channel::from_shared(self.url.clone()).unwrap().tls_config(tls).unwrap().connect_lazy();
        let request = proto::GetInviteRequest { token: "x".into() };
        match code(ZoppServiceClient::new(channel).get_invite(request).await) {
            Code::NotFound => true,
            // Depending on who notices first, it is a failed connection or a broken one; never an answer.
            Code::Unavailable | Code::Unknown => false,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the server has seen files that it cannot use.
    async fn refuses_files(&self) {
        let refused = async {
            while !probe(&self.probes, "/metrics").await.contains(r#"certificate_reloads_total{result="error"} 1"#) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(DEADLINE, refused).await.expect("the files are read");
    }

    async fn comes_to_answer(&self, trusted: &Authority, own: &Authority) {
        let answered = async {
            while !self.answers(trusted, Some(own)).await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(DEADLINE, answered).await.expect("the new files are used");
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn replace(directory: &Path, authority: &Authority, of_clients: &Authority) {
    let Issued { certificate, key } = authority.issue("localhost").unwrap();
    std::fs::write(directory.join("cert.pem"), certificate).unwrap();
    std::fs::write(directory.join("key.pem"), key).unwrap();
    std::fs::write(directory.join("ca.pem"), of_clients.pem()).unwrap();
}

#[tokio::test]
async fn s21_with_a_client_authority_only_its_clients_are_let_in() {
    let authority = Authority::new().unwrap();
    let server = Secured::start(&authority, &authority).await;
    assert!(server.answers(&authority, Some(&authority)).await);
    assert!(!server.answers(&authority, None).await, "no certificate");
    assert!(!server.answers(&authority, Some(&Authority::new().unwrap())).await, "one of another authority");
    server.end().await;
}

#[tokio::test]
async fn rotated_certificates_and_client_authorities_need_no_restart() {
    let [old, new] = [(); 2].map(|()| Authority::new().unwrap());
    let server = Secured::start(&old, &old).await;
    assert!(server.answers(&old, Some(&old)).await);

    // Half a rotation, as a reader can find it.
    std::fs::write(server.directory.path().join("key.pem"), "half").unwrap();
    server.refuses_files().await;
    assert!(server.answers(&old, Some(&old)).await, "the files from before are used");

    replace(server.directory.path(), &new, &new);
    server.comes_to_answer(&new, &new).await;
    assert!(!server.answers(&new, Some(&old)).await, "clients of the withdrawn authority are shut out");
    server.end().await;
}
