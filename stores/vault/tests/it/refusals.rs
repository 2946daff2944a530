//! Permissions that are missing, and quotas.

use konverge_core::error::{Classify, ErrorClass};
use konverge_vault::{Expected, KvVersion, Login, Mount, SecretPath, Vault, VaultError};
use serde_json::json;

use crate::support::{administrator, config, content, credential, locate, server};

#[tokio::test]
async fn a_path_that_is_denied_leaves_the_others_and_the_token_alone() {
    let server = server().await;
    server.mount_kv("kv", 2).await.unwrap();
    let rules = r#"path "kv/data/mine" { capabilities = ["create", "update", "read"] }"#;
    server.policy("mine", rules).await.unwrap();
    let token = server.token(&["mine", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let vault = Vault::new(&config(&server, Login::Token(credential(&token))));
    let mine = locate(&vault, "kv/data/mine").await;
    vault.write(&mine, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    let mount = Mount::new("kv", KvVersion::Two);
    for number in 0..20 {
        let theirs = mount.location(&SecretPath::parse(&format!("kv/data/theirs-{number}")).unwrap()).unwrap();
        let error = vault.write(&theirs, &content(&[("a", "canary")]), Expected::Absent).await.err().unwrap();
        let text = error.to_string();
        assert!(
            matches!(error, VaultError::Denied { .. }) && text.contains("theirs") && text.contains("create"),
            "{text}"
        );
        assert!(matches!(error.class(), ErrorClass::After(_)) && !error.is_outage());
        assert!(!text.contains("canary"));
        vault.read(&mine).await.unwrap();
    }
    assert_eq!(vault.login_counts().succeeded, 1);
    let allowed = vault.capabilities(&["kv/data/mine", "kv/data/theirs-0"]).await.unwrap();
    assert_eq!(allowed["kv/data/mine"], ["create", "read", "update"]);
    assert_eq!(allowed["kv/data/theirs-0"], ["deny"]);

    // A change of a policy takes effect at once.
    server.policy("mine", r#"path "kv/data/*" { capabilities = ["create", "update", "read"] }"#).await.unwrap();
    let theirs = locate(&vault, "kv/data/theirs-0").await;
    vault.write(&theirs, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
}

#[tokio::test]
async fn a_quota_is_kept_to_and_what_comes_too_soon_is_not_sent() {
    let server = server().await;
    server.mount_kv("kv", 2).await.unwrap();
    let vault = administrator(&server);
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    server.request("POST", "sys/quotas/config", &json!({ "enable_rate_limit_response_headers": true })).await.unwrap();
    let quota = json!({ "rate": 1, "interval": "2s", "path": "kv/" });
    server.request("POST", "sys/quotas/rate-limit/kv", &quota).await.unwrap();
    let limited = konverge_testkit::eventually(crate::support::SOON, || async { vault.read(&location).await.err() });
    let limited = limited.await.unwrap();
    assert!(matches!(limited, VaultError::Limited { retry_after: Some(_), .. }), "{limited}");
    assert!(matches!(limited.class(), ErrorClass::After(_)));
    let paused = vault.read(&location).await.err().unwrap();
    assert!(matches!(paused, VaultError::Paused { .. }) && paused.to_string().contains("rate limit"), "{paused}");
    konverge_testkit::eventually(crate::support::SOON, || async { vault.read(&location).await.ok().map(drop) })
        .await
        .unwrap();
}
