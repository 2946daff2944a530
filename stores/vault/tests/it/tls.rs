//! TLS with an authority of one's own, and with another one tomorrow.

use konverge_testkit::eventually;
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use konverge_vault::{Login, TlsSettings, Vault, VaultConfig, VaultError};

use crate::support::{SOON, credential};

#[tokio::test]
async fn an_authority_that_is_rotated_needs_no_restart() {
    let mut server = VaultServer::start(VaultOptions { storage: VaultStorage::File, tls: true }).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), server.authority().unwrap()).unwrap();
    let config = VaultConfig::new(server.address(), Login::Token(credential(server.root_token()))).unwrap();
    let unknown = Vault::new(&config).health().await.err().unwrap();
    assert!(
        matches!(unknown, VaultError::Unreachable { .. }) && unknown.to_string().contains("certificate"),
        "{unknown}"
    );

    let files = TlsSettings::default().with(|tls| tls.authorities = Some(file.path().to_owned()));
    let vault = Vault::new(&config.tls(files));
    vault.log_in().await.unwrap();
    server.kill();
    server.rotate_authority().unwrap();
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    assert!(vault.health().await.is_err(), "the new authority is not trusted before the file says so");
    std::fs::write(file.path(), server.authority().unwrap()).unwrap();
    eventually(SOON, || async { vault.health().await.ok() }).await.unwrap();
}

#[tokio::test]
async fn the_certificate_is_for_the_name_that_is_asked_for() {
    let server = VaultServer::start(VaultOptions { tls: true, ..VaultOptions::default() }).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), server.authority().unwrap()).unwrap();
    let config = VaultConfig::new(server.address(), Login::Token(credential(server.root_token()))).unwrap();
    let trusted = TlsSettings::default().with(|tls| tls.authorities = Some(file.path().to_owned()));
    let named = |name: &str| trusted.clone().with(|tls| tls.server_name = Some(name.to_owned()));
    let anybody = TlsSettings::default().with(|tls| tls.trust_anybody = true);
    let text = TlsSettings::default().with(|tls| tls.authorities_text = server.authority());
    // As a volume looks: a hidden folder with what the names lead to.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("..data")).unwrap();
    std::fs::write(folder.path().join("..data/ca.crt"), server.authority().unwrap()).unwrap();
    std::os::unix::fs::symlink("..data/ca.crt", folder.path().join("ca.crt")).unwrap();
    let folder = TlsSettings::default().with(|tls| tls.authorities = Some(folder.path().to_owned()));
    for (settings, fine) in [
        (trusted.clone(), true),
        (named("127.0.0.1"), true),
        (named("vault.example"), false),
        (named("not a name"), false),
        (TlsSettings::default(), false),
        (anybody, true),
        (text.clone(), true),
        (text.with(|tls| tls.without_system = true), true),
        (folder, true),
        (TlsSettings::default().with(|tls| tls.without_system = true), false),
    ] {
        let outcome = Vault::new(&config.clone().tls(settings.clone())).health().await;
        assert_eq!(outcome.is_ok(), fine, "{settings:?}: {:?}", outcome.err());
    }
}
