//! TLS with an authority of one's own.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    time::Duration,
};

use konverge_external::{
    Change,
    http::{Endpoint, HttpSource, client},
    watch,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, Stream, pki_types::PrivateKeyDer};

use crate::{failing, next, options};

/// Serves one document to everybody who trusts the authority, which is returned in PEM with the address.
fn serve() -> (String, String) {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}/document", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut connection = connection.unwrap();
            let mut stream = Stream::new(&mut session, &mut connection);
            // A client that does not trust the authority ends the handshake.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\none");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (address, authority.pem())
}

#[tokio::test]
async fn an_authority_that_was_given_is_trusted_and_no_other() {
    let (address, authority) = serve();
    let endpoint = || Endpoint::new(&address).unwrap();
    let (mut changes, _) = watch(HttpSource::new("document", endpoint().authorities(authority.clone())), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));

    let own = client(Duration::from_secs(5), authority.as_bytes()).unwrap();
    let (mut changes, _) = watch(HttpSource::new("document", endpoint().client(own)), options());
    assert!(matches!(next(&mut changes).await, Change::Added(_)));

    let (mut changes, health) = watch(HttpSource::new("document", endpoint()), options());
    let error = failing(&mut changes, &health).await;
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn what_is_no_certificate_is_refused() {
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = client(Duration::from_secs(5), broken.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("the certificate authority is not usable"), "{error}");
}
