//! The policy that is shipped: enough for all that an operator asks, and nothing spare.

use konverge_testkit_stores::VaultServer;
use konverge_vault::{Deletion, Expected, Found, Login, Owner, Standing, Vault, VaultError};
use serde_json::json;

use crate::support::{config, content, credential, live, locate, server};

const POLICY: &str = include_str!("../../../../deploy/vault-policy.hcl");

/// A client whose token has these rules and nothing else, not even what every token usually has.
async fn client(server: &VaultServer, rules: &str) -> Vault {
    server.policy("push", rules).await.unwrap();
    let options = json!({ "ttl": "1h", "no_default_policy": true });
    let token = server.token(&["push"], options).await.unwrap();
    Vault::new(&config(server, Login::Token(credential(&token))))
}

/// All that an operator does with paths beneath a folder.
async fn work(vault: &Vault, folder: &str) -> Result<(), VaultError> {
    let owner = Owner {
        prefix: "vault-sync.io".to_owned(),
        name: "team-a/Secret/db".to_owned(),
        uid: "1".to_owned(),
        instance: "one".to_owned(),
    };
    for deletion in [Deletion::Soft, Deletion::Destroy, Deletion::Metadata] {
        let location = locate(vault, &format!("secret/data/{folder}/{deletion:?}")).await;
        assert!(matches!(vault.read(&location).await?, Found::Absent));
        vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await?;
        vault.annotate(&location, &owner.mark().unwrap()).await?;
        let version = live(vault, &location).await.version.unwrap();
        assert_eq!(owner.standing(&version.custom_metadata), Standing::Ours);
        vault.write(&location, &content(&[("a", "2")]), Expected::Version(version.number)).await?;
        vault.delete(&location, Expected::Any, deletion).await?;
        assert!(!matches!(vault.read(&location).await?, Found::Live(_)), "{deletion:?}");
        if deletion != Deletion::Metadata {
            vault.annotate(&location, &owner.unmark()).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_shipped_policy_is_enough_and_each_route_of_it_is_needed() {
    let server = server().await;
    server.mount_kv("secret", 2).await.unwrap();
    let vault = client(&server, POLICY).await;
    work(&vault, "whole").await.unwrap();
    vault.close().await;
    for route in ["data", "metadata", "destroy"] {
        let stanza = format!("path \"secret/{route}/*\"");
        assert!(POLICY.contains(&stanza), "{stanza}");
        let elsewhere = POLICY.replace(&stanza, &format!("path \"elsewhere/{route}/*\""));
        let vault = client(&server, &elsewhere).await;
        let error = work(&vault, route).await.err();
        assert!(matches!(error, Some(VaultError::Denied { .. })), "without {route}: {error:?}");
    }
}
