//! The authorities that the client trusts.

use std::{path::PathBuf, time::Duration};

use konverge_core::error::Classify;
use konverge_zopp_client::{
    Client, ClientCertificate, ClientConfig, Connection, EnvironmentReader, FetchError, ServerRecord,
    Trust as ServerTrust,
};
use konverge_zopp_testing::Authority;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::server::{Server, name};

async fn server(authority: &Authority) -> Server {
    let issued = authority.issue("localhost").unwrap();
    let identity = Identity::from_pem(issued.certificate, issued.key);
    Server::start_with(Some(ServerTlsConfig::new().identity(identity))).await
}

struct Trust {
    _directory: tempfile::TempDir,
    file: PathBuf,
}

fn trust(authority: &Authority) -> Trust {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    Trust { _directory: directory, file }
}

async fn fetch(server: &Server, host: &str, ca_certificate: Option<PathBuf>) -> Result<i64, FetchError> {
    let config = ClientConfig { ca_certificate, ..ClientConfig::new(format!("https://{host}:{}", server.port())) };
    let client = Client::new(Connection::new(&config).unwrap(), server.identity());
    EnvironmentReader::new(client, name()).fetch().await.map(|snapshot| snapshot.version)
}

/// A server that lets nobody in but clients of the authority.
async fn private_server(authority: &Authority) -> Server {
    let issued = authority.issue("localhost").unwrap();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(issued.certificate, issued.key));
    Server::start_with(Some(tls.client_ca_root(Certificate::from_pem(authority.pem())))).await
}

/// Files of a certificate in a folder of their own.
struct Shown {
    directory: tempfile::TempDir,
    certificate: ClientCertificate,
}

impl Shown {
    fn new(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let shown =
            Self { certificate: ClientCertificate { certificate: file("c.pem"), key: file("k.pem") }, directory };
        shown.replace(authority);
        shown
    }

    fn replace(&self, authority: &Authority) {
        let issued = authority.issue("client").unwrap();
        std::fs::write(&self.certificate.certificate, issued.certificate).unwrap();
        std::fs::write(&self.certificate.key, issued.key).unwrap();
    }
}

fn config(server: &Server, trust: &Trust) -> ClientConfig {
    ClientConfig {
        ca_certificate: Some(trust.file.clone()),
        ..ClientConfig::new(format!("https://localhost:{}", server.port()))
    }
}

async fn version(client: Client) -> Result<i64, FetchError> {
    EnvironmentReader::new(client, name()).fetch().await.map(|snapshot| snapshot.version)
}

#[tokio::test]
async fn a_server_that_requires_a_certificate_lets_in_who_shows_one() {
    let authority = Authority::new().unwrap();
    let (server, trust) = (private_server(&authority).await, trust(&authority));
    let (ours, foreign) = (Shown::new(&authority), Shown::new(&Authority::new().unwrap()));
    let with =
        |shown: &Shown| ClientConfig { client_certificate: Some(shown.certificate.clone()), ..config(&server, &trust) };
    assert_eq!(version(server.client_with(&with(&ours))).await.unwrap(), 0);
    let mut record = ServerRecord::default();
    record.client_certificate = Some(ours.certificate.clone());
    let remembered = ClientConfig { trust: ServerTrust::new(record), ..config(&server, &trust) };
    assert_eq!(version(server.client_with(&remembered)).await.unwrap(), 0);
    assert!(version(server.client_with(&config(&server, &trust))).await.is_err(), "none is shown");
    assert!(version(server.client_with(&with(&foreign))).await.is_err(), "of another authority");
}

#[tokio::test]
async fn a_rotated_client_certificate_is_shown_without_a_restart() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let (server, trust) = (private_server(&new).await, trust(&new));
    let shown = Shown::new(&old);
    let config = ClientConfig { client_certificate: Some(shown.certificate.clone()), ..config(&server, &trust) };
    let client = server.client_with(&config);
    assert!(version(client.clone()).await.is_err());
    std::fs::write(&shown.certificate.key, "half a rotation").unwrap();
    pass_the_period().await;
    assert!(version(client.clone()).await.is_err());
    shown.replace(&new);
    pass_the_period().await;
    assert_eq!(version(client).await.unwrap(), 0);
    drop(shown.directory);
}

/// After which the files are looked at again.
async fn pass_the_period() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let shown = Shown::new(&Authority::new().unwrap());
    let check = |server: &str, client_certificate: ClientCertificate, expected: &[&str]| {
        let config = ClientConfig { client_certificate: Some(client_certificate), ..ClientConfig::new(server) };
        let text = Connection::new(&config).unwrap_err().to_string();
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("PRIVATE KEY-----M"), "{text}");
    };
    let good = shown.certificate.clone();
    check("http://localhost:1", good.clone(), &["client certificate", "c.pem", "does not use TLS"]);
    let swapped = ClientCertificate { certificate: good.key.clone(), key: good.certificate.clone() };
    check("https://localhost:1", swapped, &["client certificate", "k.pem", "holds no PEM certificate"]);
    let no_key = ClientCertificate { key: good.certificate.clone(), ..good.clone() };
    check("https://localhost:1", no_key, &["c.pem", "holds no PEM private key"]);
    let missing = ClientCertificate { key: "gone.pem".into(), ..good };
    check("https://localhost:1", missing, &["key of the client certificate", "gone.pem", "cannot be read"]);
}

#[tokio::test]
async fn the_authority_of_the_file_is_trusted() {
    let authority = Authority::new().unwrap();
    let server = server(&authority).await;
    let trust = trust(&authority);
    assert_eq!(fetch(&server, "localhost", Some(trust.file)).await.unwrap(), 0);
}

#[tokio::test]
async fn nobody_else_is() {
    let (right, wrong) = (Authority::new().unwrap(), Authority::new().unwrap());
    let server = server(&right).await;
    let (right, wrong) = (trust(&right), trust(&wrong));
    for (host, file) in
        [("localhost", Some(wrong.file.clone())), ("127.0.0.1", Some(right.file.clone())), ("localhost", None)]
    {
        let error = fetch(&server, host, file).await.unwrap_err();
        assert_eq!(error.reason(), "ServerUnreachable");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_with_it() {
    let server = Server::start().await;
    let trust = trust(&Authority::new().unwrap());
    let error = fetch(&server, "localhost", Some(trust.file)).await.unwrap_err();
    assert_eq!(error.reason(), "ServerUnreachable");
}
