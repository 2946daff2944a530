//! Whom the client trusts.

use std::path::PathBuf;

use konverge_core::error::Classify;
use konverge_zopp_client::{Client, ClientConfig, Connection, EnvironmentReader, FetchError};
use konverge_zopp_testing::Authority;
use tonic::transport::{Identity, ServerTlsConfig};

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
