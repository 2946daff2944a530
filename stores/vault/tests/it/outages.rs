//! Sealed, gone, and back.

use konverge_core::error::{Classify, ErrorClass};
use konverge_testkit::eventually;
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use konverge_vault::{Expected, VaultError};

use crate::support::{SOON, administrator, content, live, locate, text};

#[tokio::test]
async fn sealed_then_unsealed_without_a_login() {
    let server = crate::support::server().await;
    server.mount_kv("kv", 2).await.unwrap();
    let vault = administrator(&server);
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    server.seal().await.unwrap();
    let error = vault.read(&location).await.err().unwrap();
    assert!(matches!(error, VaultError::Sealed { .. }) && error.to_string().contains("unseal"), "{error}");
    // From now on the breaker is open, and each caller gets the reason and the remaining pause.
    let error = vault.read(&location).await.err().unwrap();
    assert!(matches!(error, VaultError::Paused { .. }) && error.to_string().contains("sealed"), "{error}");
    assert!(matches!(error.class(), ErrorClass::After(_)) && error.is_outage());
    let health = vault.health().await.unwrap();
    assert!(health.sealed && health.initialized && !health.version.is_empty());
    server.unseal().await.unwrap();
    eventually(SOON, || async { vault.read(&location).await.ok().map(drop) }).await.unwrap();
    assert_eq!(vault.login_counts().succeeded, 1);
    assert!(!vault.health().await.unwrap().sealed);
}

#[tokio::test]
async fn a_restart_is_survived_and_what_was_written_is_there() {
    let options = VaultOptions { storage: VaultStorage::File, ..VaultOptions::default() };
    let mut server = VaultServer::start(options).await.unwrap();
    server.mount_kv("kv", 2).await.unwrap();
    let vault = administrator(&server);
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    server.kill();
    let error = vault.read(&location).await.err().unwrap();
    assert!(matches!(error, VaultError::Unreachable { .. }) && error.is_ambiguous(), "{error}");
    assert!(error.to_string().contains(server.address()), "{error}");
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    eventually(SOON, || async { vault.read(&location).await.ok().map(drop) }).await.unwrap();
    let read = live(&vault, &location).await;
    assert_eq!((text(&read.content, "a").as_str(), read.version.unwrap().number), ("1", 1));
    vault.write(&location, &content(&[("a", "2")]), Expected::Version(1)).await.unwrap();
}
