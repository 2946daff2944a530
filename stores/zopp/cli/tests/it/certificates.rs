//! A server that lets nobody in without a certificate of its authority.

use konverge_zopp_testing::Authority;

use crate::{home::Home, server::Server};

/// The authority's certificate, and a certificate with its key, as files in the home.
fn write_files(home: &Home, authority: &Authority) {
    let issued = authority.issue("laptop").unwrap();
    home.write("ca.pem", authority.pem());
    home.write("client.pem", issued.certificate);
    home.write("client-key.pem", issued.key);
}

#[test]
fn s21_a_client_certificate_comes_from_flags_variables_or_what_join_remembers() {
    let authority = Authority::new().unwrap();
    let server = Server::start_private(&authority);
    let mut alice = server.home();
    write_files(&alice, &authority);
    alice.set("ZOPP_TLS_CA_CERT", "ca.pem");
    let join = format!("join {} alice@example.com --principal laptop", server.invite());
    let stderr = alice.fails(&join, 1);
    assert!(stderr.contains("--tls-client-cert"), "{stderr}");

    alice.ok(&format!("{join} --tls-client-cert client.pem --tls-client-key client-key.pem"));
    alice.ok("workspace create acme");
    let file = std::fs::read_to_string(alice.config_file()).unwrap();
    let folder = std::fs::canonicalize(alice.path("client.pem")).unwrap();
    assert!(file.contains(folder.to_str().unwrap()), "the path counts in every directory: {file}");

    let edited = file.replace("\"client_certificate\"", "\"not_a_certificate\"");
    alice.write(".zopp/config.json", edited);
    alice.fails("workspace list", 1);
    alice.set("ZOPP_TLS_CLIENT_CERT", "client.pem");
    alice.set("ZOPP_TLS_CLIENT_KEY", "client-key.pem");
    assert_eq!(alice.ok("workspace list"), "Workspaces:\n  acme\n");
}

#[test]
fn half_a_certificate_is_a_usage_error() {
    let server = Server::start_private(&Authority::new().unwrap());
    let home = server.home();
    home.write(".zopp/config.json", r#"{"principals":[]}"#);
    assert_eq!(
        home.fails("join token a@b.c --tls-client-cert x.pem", 2),
        "Error: --tls-client-cert is given without --tls-client-key\n  Use --tls-client-key, or set ZOPP_TLS_CLIENT_KEY.\n"
    );
    assert_eq!(
        home.fails("join token a@b.c --tls-client-key x.pem", 2),
        "Error: --tls-client-key is given without --tls-client-cert\n  Use --tls-client-cert, or set ZOPP_TLS_CLIENT_CERT.\n"
    );
}
