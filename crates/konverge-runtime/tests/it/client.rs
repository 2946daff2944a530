//! The client: what it trusts, where that changes (F35), and connections that hang.

use std::{path::Path, sync::Arc, time::Duration};

use konverge_runtime::{
    Metrics,
    client::{self, ClientOptions},
};
use konverge_testkit::{eventually, fault_proxy::FaultProxy};
use kube::{Client, config::Kubeconfig};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// The client reads the file once in a minute.
const SOON: Duration = Duration::from_secs(120);

/// A server's certificate, which is its own authority, and its key.
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        Self { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()).into()
    }
}

/// Answers one request of each connection as an API server tells its version, with the certificate of the moment. Its port.
async fn serve(acceptor: watch::Receiver<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind(("localhost", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.borrow().clone();
            // A client that does not trust the certificate sends an alert and closes.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let body = r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all((head + body).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

fn kubeconfig(folder: &Path, port: u16) -> std::path::PathBuf {
    let path = folder.join("config");
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"it","contexts":[{{"name":"it","context":{{"cluster":"there"}}}}],
            "clusters":[{{"name":"other","cluster":{{"server":"https://elsewhere"}}}},
                {{"name":"there","cluster":{{"server":"https://localhost:{port}","certificate-authority":"ca.crt"}}}}]}}"#
    );
    std::fs::write(&path, text).unwrap();
    path
}

async fn is_trusted(client: &Client) -> bool {
    client.apiserver_version().await.is_ok()
}

#[tokio::test]
async fn f35_another_authority_of_the_api_server_is_trusted_when_the_file_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.crt");
    let (first, second) = (Pair::new(), Pair::new());
    let (rotate, current) = watch::channel(first.acceptor());
    let port = serve(current).await;
    std::fs::write(&authority, &first.certificate).unwrap();
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(kubeconfig(folder.path(), port)));
    let client = client::build(&options, Metrics::new("test", "0").client()).await.unwrap();
    assert!(is_trusted(&client).await);

    rotate.send(second.acceptor()).unwrap();
    assert!(!is_trusted(&client).await, "nobody has said yet that this one is to be trusted");
    std::fs::write(&authority, &second.certificate).unwrap();
    eventually(SOON, async || is_trusted(&client).await.then_some(())).await.unwrap();
    rotate.send(first.acceptor()).unwrap();
    assert!(!is_trusted(&client).await, "the one from before is no longer trusted");
}

/// How many connections to a port of this machine are established, as the kernel tells it.
#[cfg(target_os = "linux")]
fn established_to(port: u16) -> usize {
    let (peer, established) = (format!("0100007F:{port:04X}"), "01");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let of = |line: &str| line.split_whitespace().skip(2).take(2).collect::<Vec<_>>() == [peer.as_str(), established];
    table.lines().filter(|line| of(line)).count()
}

/// kube's pool keeps an idle connection for 90 seconds, so each of those that hang cost a call its whole deadline.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_that_hang_have_left_the_pool_within_thirty_seconds() {
    let plane = super::control_plane().await;
    let proxy = FaultProxy::start(plane.run_directory(), plane.kubeconfig()).await.unwrap();
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(proxy.kubeconfig().to_owned()));
    let client = client::build(&options, Metrics::new("test", "0").client()).await.unwrap();
    let port = Kubeconfig::read_from(proxy.kubeconfig()).unwrap().clusters[0].cluster.as_ref().unwrap().server.clone();
    let port = port.unwrap().rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap();
    let calls = futures::future::join_all((0..4).map(|_| client.apiserver_version())).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!(established_to(port), 4, "all wait in the pool");

    proxy.freeze_connections();
    let left = eventually(Duration::from_secs(30), async || (established_to(port) == 0).then_some(())).await;
    assert!(left.is_ok(), "{} still wait in the pool", established_to(port));
    // A new connection.
    let answer = tokio::time::timeout(Duration::from_secs(10), client.apiserver_version()).await;
    assert!(answer.is_ok_and(|answer| answer.is_ok()));
}
