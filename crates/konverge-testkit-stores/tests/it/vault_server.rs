//! A real Vault: what it holds survives a restart if that was asked for, and it serves nobody while it is sealed.

use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use serde_json::{Value, json};

#[tokio::test]
async fn it_keeps_what_it_holds_through_seals_and_restarts() {
    let mut vault = VaultServer::start(VaultOptions { storage: VaultStorage::File, tls: true }).await.unwrap();
    assert!(vault.address().starts_with("https://localhost:") && vault.authority().is_some());
    vault.mount_kv("kv", 2).await.unwrap();
    vault.request("PUT", "kv/data/a", &json!({ "data": { "b": "c" } })).await.unwrap();

    vault.seal().await.unwrap();
    assert!(vault.request("GET", "kv/data/a", &Value::Null).await.unwrap_err().to_string().contains("503"));
    vault.unseal().await.unwrap();
    vault.kill();
    vault.start_again().await.unwrap();
    vault.unseal().await.unwrap();
    let answer = vault.request("GET", "kv/data/a", &Value::Null).await.unwrap();
    assert_eq!(answer["data"]["data"]["b"], "c");
}

#[tokio::test]
async fn it_has_what_stores_log_in_with() {
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    for kind in ["approle", "cert", "jwt", "kubernetes"] {
        vault.request("POST", &format!("sys/auth/{kind}"), &json!({ "type": kind })).await.unwrap();
    }
    assert!(vault.authority().is_none() && vault.client_certificate("me").is_err());
    let token = vault.token(&["default"], json!({ "ttl": "1m" })).await.unwrap();
    let answer = vault.request_as(&token, "GET", "auth/token/lookup-self", &Value::Null).await.unwrap();
    assert_eq!(answer["data"]["policies"], json!(["default"]));
}
