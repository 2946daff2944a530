//! Metrics on an address of their own: secured, and for those with a right to them.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use konverge_runtime::{
    Manager, Metrics,
    client::{self, ClientOptions},
    http_server::{Authentication, Listen, MetricsServer},
    manager::RunError,
    tls::Certificate,
};
use konverge_testkit::{CapturedLog, eventually};
use kube::{Client, config::Kubeconfig};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, rustls};
use tokio_util::sync::CancellationToken;

use super::{control_plane, http};

const SOON: Duration = Duration::from_secs(60);
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A program that runs, with metrics on an address of their own.
struct Running {
    health: SocketAddr,
    metrics: SocketAddr,
    series: Metrics,
    shutdown: CancellationToken,
    run: JoinHandle<Result<(), RunError>>,
}

impl Running {
    async fn start(series: Metrics, server: MetricsServer) -> Self {
        let mut manager = Manager::bind(ANY, series.clone()).await.unwrap();
        let metrics = manager.metrics_server(server).await.unwrap().unwrap();
        let (health, shutdown) = (manager.address(), manager.shutdown());
        Self { health, metrics, series, shutdown, run: tokio::spawn(manager.run()) }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(SOON, self.run).await.unwrap().unwrap().unwrap();
        assert!(TcpStream::connect(self.metrics).await.is_err(), "the server is gone");
    }
}

/// Status, head and body of an answer to a caller who may have a token.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    token: Option<&str>,
) -> io::Result<(u16, String, String)> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other(answer.clone()))?;
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned()))
}

async fn read(address: SocketAddr, token: Option<&str>) -> (u16, String, String) {
    ask(TcpStream::connect(address).await.unwrap(), token).await.unwrap()
}

/// A service account with what `rules` of a cluster role allow: its kubeconfig.
async fn account(namespace: &str, name: &str, rules: &str) -> std::path::PathBuf {
    let role = format!("{namespace}-{name}");
    let manifest = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {role}}}\nrules: {rules}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {role}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n\
         subjects: [{{kind: ServiceAccount, name: {name}, namespace: {namespace}}}]\n"
    );
    control_plane().await.apply(&manifest).await.unwrap();
    control_plane().await.service_account_kubeconfig(namespace, name).await.unwrap()
}

fn token(kubeconfig: &Path) -> String {
    let kubeconfig = serde_json::to_value(Kubeconfig::read_from(kubeconfig).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

async fn client(kubeconfig: &Path, metrics: &Metrics) -> Client {
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(kubeconfig.to_owned()));
    client::build(&options, metrics.client()).await.unwrap()
}

/// How often the API server was asked something.
fn questions(metrics: &Metrics) -> usize {
    let text = metrics.encode().unwrap();
    let posts = text.lines().filter(|line| {
        line.starts_with("rest_client_requests_total{")
            && line.contains("code=\"201\"")
            && line.contains("method=\"POST\"")
    });
    posts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

#[tokio::test]
async fn beside_health_readers_of_metrics_are_authenticated_and_probes_are_not() {
    let namespace = control_plane().await.namespace("beside").await.unwrap();
    let asks = r#"[{apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"]},
        {apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"]}]"#;
    let operator = account(&namespace, "operator", asks).await;
    let may = token(&account(&namespace, "reader", r#"[{nonResourceURLs: ["/metrics"], verbs: ["get"]}]"#).await);
    let series = Metrics::new("test", "1.2.3");
    let authentication = Authentication::new(client(&operator, &series).await);
    let mut manager = Manager::bind(ANY, series).await.unwrap();
    manager.metrics_authentication(authentication);
    let (address, shutdown) = (manager.address(), manager.shutdown());
    let running = tokio::spawn(manager.run());
    for (who, expected) in [(None, 401), (Some("nobody"), 401), (Some(&*may), 200)] {
        let (status, _, body) = read(address, who).await;
        assert_eq!(status, expected, "{body}");
        assert_eq!(body.contains("konverge_build_info"), expected == 200, "{body}");
    }
    assert_eq!(http::get(address, "/healthz").await, (200, "ok".to_owned()));
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_may_not_read_metrics_is_refused_and_the_api_server_is_asked_once() {
    let namespace = control_plane().await.namespace("metrics").await.unwrap();
    let asks = r#"[{apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"]},
        {apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"]}]"#;
    let operator = account(&namespace, "operator", asks).await;
    let may = token(&account(&namespace, "reader", r#"[{nonResourceURLs: ["/metrics"], verbs: ["get"]}]"#).await);
    let other = token(&account(&namespace, "other", r#"[{nonResourceURLs: ["/other"], verbs: ["get"]}]"#).await);
    let log = CapturedLog::start();
    let series = Metrics::new("test", "1.2.3");
    let authentication = Authentication::new(client(&operator, &series).await);
    let server = MetricsServer::from(ANY).with(|server| server.authentication = Some(authentication));
    let running = Running::start(series, server).await;

    let (status, head, _) = read(running.metrics, None).await;
    assert_eq!((status, head.contains("www-authenticate: bearer")), (401, true), "{head}");
    assert_eq!(questions(&running.series), 0, "nothing to ask about");
    for (who, expected, asked) in [("nobody", 401, 1), (&other, 403, 3), (&may, 200, 5)] {
        for _ in 0..3 {
            let (status, head, body) = read(running.metrics, Some(who)).await;
            assert_eq!(status, expected, "{body}");
            assert_eq!(head.contains("www-authenticate"), expected == 401, "{head}");
            assert_eq!(body.contains("konverge_build_info"), expected == 200, "{body}");
        }
        assert_eq!(questions(&running.series), asked, "{expected}");
    }
    assert_eq!(http::get(running.health, "/metrics").await.0, 404, "they are elsewhere");
    assert_eq!(http::get(running.health, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(http::get(running.metrics, "/healthz").await.0, 404, "it is for metrics only");
    running.stop().await;
    let text = log.text();
    assert_eq!(text.matches("METRICS ASK FOR BEARER TOKENS OVER PLAIN HTTP").count(), 1);
    assert!(text.contains("TRACE"), "it is listened to");
    for token in [&may, &other] {
        assert!(!text.contains(token.as_str()), "a token is in the log");
    }
}

#[tokio::test]
async fn nobody_reads_while_nobody_can_say_who_may() {
    let reader = control_plane().await.service_account_kubeconfig("default", "reader").await.unwrap();
    let token = token(&reader);
    // A program that may not ask, and one whose API server is away.
    let mut away = Kubeconfig::read_from(&reader).unwrap();
    let nowhere = tokio::net::TcpListener::bind(ANY).await.unwrap().local_addr().unwrap();
    away.clusters[0].cluster.as_mut().unwrap().server = Some(format!("https://{nowhere}"));
    let away = kube::Config::from_custom_kubeconfig(away, &kube::config::KubeConfigOptions::default()).await.unwrap();
    let series = Metrics::new("test", "0");
    for client in [client(&reader, &series).await, Client::try_from(away).unwrap()] {
        let server = MetricsServer::from(ANY).with(|server| server.authentication = Some(Authentication::new(client)));
        let running = Running::start(series.clone(), server).await;
        let (status, _, body) = read(running.metrics, Some(&token)).await;
        assert_eq!((status, body.contains("konverge_build_info")), (503, false), "{body}");
        running.stop().await;
    }
}

#[tokio::test]
async fn there_may_be_no_server_at_all() {
    let mut manager = Manager::listen("0".parse().unwrap(), Metrics::new("test", "0")).await.unwrap();
    assert_eq!(manager.address().port(), 0);
    let shutdown = manager.shutdown();
    let nowhere = MetricsServer::from(Listen::Nowhere);
    assert_eq!(manager.metrics_server(nowhere).await.unwrap(), None);
    let run = tokio::spawn(manager.run());
    shutdown.cancel();
    tokio::time::timeout(SOON, run).await.unwrap().unwrap().unwrap();

    let mut manager = Manager::bind(ANY, Metrics::new("test", "0")).await.unwrap();
    let (address, shutdown) = (manager.address(), manager.shutdown());
    let nowhere = MetricsServer::from(Listen::Nowhere);
    manager.metrics_server(nowhere).await.unwrap();
    let run = tokio::spawn(manager.run());
    assert_eq!(http::get(address, "/healthz").await.0, 200);
    assert_eq!(http::get(address, "/metrics").await.0, 404);
    shutdown.cancel();
    tokio::time::timeout(SOON, run).await.unwrap().unwrap().unwrap();
}

/// Takes any certificate, so that tests see which one is served.
#[derive(Debug)]
struct Anyone;

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate that is served, and the answer.
async fn read_securely(address: SocketAddr) -> io::Result<(CertificateDer<'static>, (u16, String, String))> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let peer = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    Ok((peer, ask(stream, None).await?))
}

/// Writes a new pair into the folder.
fn renew(folder: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()
}

#[tokio::test]
async fn a_certificate_from_files_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let first = renew(folder.path());
    let certificate = Certificate::from_files(folder.path().join("tls.crt"), folder.path().join("tls.key")).unwrap();
    let certificate = certificate.look_every(Duration::from_millis(50));
    let server = MetricsServer::from(ANY).with(|server| server.tls = Some(certificate));
    let running = Running::start(Metrics::new("test", "0"), server).await;
    let (peer, (status, _, body)) = read_securely(running.metrics).await.unwrap();
    assert_eq!((peer, status, body.contains("konverge_build_info")), (first, 200, true), "{body}");
    let plain = ask(TcpStream::connect(running.metrics).await.unwrap(), None).await;
    assert!(!matches!(plain, Ok((200, ..))), "plain HTTP is no way round");

    let second = renew(folder.path());
    let shows = async |wanted: &CertificateDer<'static>| {
        let peer = read_securely(running.metrics).await.unwrap().0;
        (peer == *wanted).then_some(())
    };
    eventually(SOON, async || shows(&second).await).await.unwrap();
    std::fs::write(folder.path().join("tls.key"), "half a key").unwrap();
    let warned = async || {
        Some(http::get(running.health, "/readyz/metrics-certificate").await).filter(|(status, _)| *status == 503)
    };
    let (_, why) = eventually(SOON, warned).await.unwrap();
    assert!(why.contains("tls.key") && !why.contains("half a key"), "{why}");
    assert_eq!(http::get(running.health, "/readyz").await.0, 200, "a warning only");
    shows(&second).await.expect("the old pair is still served");
    renew(folder.path());
    eventually(SOON, async || {
        Some(http::get(running.health, "/readyz/metrics-certificate").await.0).filter(|status| *status == 200)
    })
    .await
    .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_certificate_of_its_own_needs_no_file_and_is_new_in_each_process() {
    let mut peers = Vec::new();
    for _ in 0..2 {
        let certificate = Certificate::self_signed(["localhost"]).unwrap();
        let server = MetricsServer::from(ANY).with(|server| server.tls = Some(certificate));
        let running = Running::start(Metrics::new("test", "0"), server).await;
        let (certificate, (status, _, body)) = read_securely(running.metrics).await.unwrap();
        assert_eq!((status, body.contains("konverge_build_info")), (200, true), "{body}");
        peers.push(certificate);
        running.stop().await;
    }
    assert_ne!(peers[0], peers[1]);
}
