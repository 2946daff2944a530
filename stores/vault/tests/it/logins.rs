//! Every way to log in, and what becomes of tokens.

use std::time::Duration;

use konverge_testkit::{ControlPlane, Options, eventually};
use konverge_testkit_stores::{HttpFront, VaultOptions, VaultServer};
use konverge_vault::{Credential, Login, TlsSettings, Vault, VaultConfig, VaultError};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{SOON, administrator, config, credential, live, locate, server};

/// A secret at `kv/a` and a policy that lets it be read.
async fn prepare(server: &VaultServer) {
    server.mount_kv("kv", 2).await.unwrap();
    server.request("PUT", "kv/data/a", &json!({ "data": { "b": "c" } })).await.unwrap();
    server.policy("reader", r#"path "kv/*" { capabilities = ["read"] }"#).await.unwrap();
}

async fn reads(vault: &Vault) {
    let location = locate(vault, "kv/data/a").await;
    assert_eq!(live(vault, &location).await.content.len(), 1);
}

/// A role whose tokens live as given.
async fn app_role(server: &VaultServer, ttl: &str, max: &str) -> Login {
    prepare(server).await;
    server.request("POST", "sys/auth/approle", &json!({ "type": "approle" })).await.unwrap();
    make_role(server, ttl, max).await;
    let (role_id, secret_id) = (credential("web-id"), Some(credential("web-secret")));
    Login::AppRole { mount: "approle".to_owned(), role_id, secret_id }
}

async fn make_role(server: &VaultServer, ttl: &str, max: &str) {
    let role = json!({ "token_policies": ["reader"], "token_ttl": ttl, "token_max_ttl": max });
    for (path, body) in [
        ("", role),
        ("/role-id", json!({ "role_id": "web-id" })),
        ("/custom-secret-id", json!({ "secret_id": "web-secret" })),
    ] {
        server.request("POST", &format!("auth/approle/role/web{path}"), &body).await.unwrap();
    }
}

/// The tokens that the server knows, by their accessors.
async fn accessors(server: &VaultServer) -> Vec<String> {
    let answer = server.request("GET", "auth/token/accessors/?list=true", &Value::Null).await.unwrap();
    serde_json::from_value(answer["data"]["keys"].clone()).unwrap()
}

/// Revokes all tokens but the administrator's.
async fn revoke_all(server: &VaultServer) {
    for accessor in accessors(server).await {
        let body = json!({ "accessor": accessor });
        let token = server.request("POST", "auth/token/lookup-accessor", &body).await.unwrap();
        if token["data"]["display_name"] != "root" {
            server.request("POST", "auth/token/revoke-accessor", &body).await.unwrap();
        }
    }
}

#[tokio::test]
async fn app_role_and_the_token_is_given_back() {
    let server = server().await;
    let login = app_role(&server, "1h", "2h").await;
    let vault = Vault::new(&config(&server, login));
    assert_eq!(vault.login_counts().succeeded, 0, "nothing is asked before it is needed");
    reads(&vault).await;
    assert_eq!(accessors(&server).await.len(), 2);
    vault.close().await;
    assert_eq!(accessors(&server).await.len(), 1);
    reads(&vault).await;
    assert_eq!(vault.login_counts().succeeded, 2);
}

#[tokio::test]
async fn kubernetes_service_accounts_and_jwts_of_their_issuer() {
    let server = server().await;
    prepare(&server).await;
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("vault").await.unwrap();
    let read = |path: &std::path::Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let token = |kubeconfig: &Value| kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let reviewer = read(&control_plane.service_account_kubeconfig(&namespace, "reviewer").await.unwrap());
    let app = read(&control_plane.service_account_kubeconfig(&namespace, "app").await.unwrap());
    let other = read(&control_plane.service_account_kubeconfig(&namespace, "other").await.unwrap());
    let binding = serde_json::from_value(json!({
        "metadata": { "name": "vault-reviewer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reviewer", "namespace": namespace }],
    }));
    Api::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>::all(control_plane.admin_client().await.unwrap())
        .create(&PostParams::default(), &binding.unwrap())
        .await
        .unwrap();
    let authority = std::fs::read_to_string(control_plane.run_directory().path().join("ca.crt")).unwrap();
    server.request("POST", "sys/auth/clusters/one", &json!({ "type": "kubernetes" })).await.unwrap();
    let settings = json!({
        "kubernetes_host": app["clusters"][0]["cluster"]["server"],
        "kubernetes_ca_cert": authority,
        "token_reviewer_jwt": token(&reviewer),
    });
    server.request("POST", "auth/clusters/one/config", &settings).await.unwrap();
    let role = json!({
        "bound_service_account_names": ["app"],
        "bound_service_account_namespaces": [namespace],
        "token_policies": ["reader"],
    });
    server.request("POST", "auth/clusters/one/role/web", &role).await.unwrap();

    // The kubelet writes the token into a file and replaces it.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), token(&other)).unwrap();
    let mount = "clusters/one".to_owned();
    let login = Login::Kubernetes { mount, role: "web".to_owned(), token: Credential::file(file.path()) };
    let vault = Vault::new(&config(&server, login));
    let error = vault.log_in().await.err().unwrap().to_string();
    assert!(error.contains("auth/clusters/one as role web") && !error.contains(&token(&other)), "{error}");
    std::fs::write(file.path(), token(&app)).unwrap();
    eventually(SOON, || async { vault.log_in().await.ok() }).await.unwrap();
    reads(&vault).await;

    let key = std::fs::read_to_string(control_plane.run_directory().path().join("service-accounts.pub")).unwrap();
    server.request("POST", "sys/auth/jwt", &json!({ "type": "jwt" })).await.unwrap();
    server.request("POST", "auth/jwt/config", &json!({ "jwt_validation_pubkeys": [key] })).await.unwrap();
    let claims: Value = claims(&token(&app));
    let role = json!({
        "role_type": "jwt",
        "user_claim": "sub",
        "bound_audiences": claims["aud"],
        "bound_subject": format!("system:serviceaccount:{namespace}:app"),
        "token_policies": ["reader"],
    });
    server.request("POST", "auth/jwt/role/web", &role).await.unwrap();
    let jwt =
        |token: &str| Login::Jwt { mount: "jwt".to_owned(), role: Some("web".to_owned()), token: credential(token) };
    reads(&Vault::new(&config(&server, jwt(&token(&app))))).await;
    let refused = Vault::new(&config(&server, jwt(&token(&other)))).log_in().await;
    assert!(matches!(refused, Err(VaultError::Login { .. })));
}

fn claims(jwt: &str) -> Value {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_certificate() {
    let server = VaultServer::start(VaultOptions { tls: true, ..VaultOptions::default() }).await.unwrap();
    prepare(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = server.client_certificate("web").unwrap();
    std::fs::write(path("ca.crt"), server.authority().unwrap()).unwrap();
    std::fs::write(path("tls.crt"), certificate).unwrap();
    std::fs::write(path("tls.key"), key).unwrap();
    server.request("POST", "sys/auth/cert", &json!({ "type": "cert" })).await.unwrap();
    let role = json!({
        "certificate": server.authority(),
        "allowed_common_names": ["web"],
        "token_policies": ["reader"],
    });
    server.request("POST", "auth/cert/certs/web", &role).await.unwrap();
    let login = Login::Certificate { mount: "cert".to_owned(), role: Some("web".to_owned()) };
    let config = VaultConfig::new(server.address(), login).unwrap();
    let authorities = Some(path("ca.crt"));
    let without =
        Vault::new(&config.clone().tls(TlsSettings::default().with(|tls| tls.authorities.clone_from(&authorities))));
    assert!(matches!(without.log_in().await, Err(VaultError::Login { .. })));
    let client = Some((path("tls.crt"), path("tls.key")));
    reads(&Vault::new(&config.tls(TlsSettings::default().with(|tls| {
        tls.authorities = authorities;
        tls.client = client;
    }))))
    .await;
}

#[tokio::test]
async fn a_token_file_is_read_again_when_its_token_is_refused() {
    let server = server().await;
    prepare(&server).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), server.token(&["reader", "default"], json!({ "ttl": "1h" })).await.unwrap()).unwrap();
    let vault = Vault::new(&config(&server, Login::Token(Credential::file(file.path()))));
    reads(&vault).await;
    std::fs::write(file.path(), server.token(&["reader", "default"], json!({ "ttl": "1h" })).await.unwrap()).unwrap();
    let first = accessors(&server).await.len();
    reads(&vault).await;
    revoke_others_than(&server, &std::fs::read_to_string(file.path()).unwrap()).await;
    assert_eq!(accessors(&server).await.len(), first - 1);
    reads(&vault).await;
    vault.close().await;
    let token = json!({ "token": std::fs::read_to_string(file.path()).unwrap() });
    let known = server.request("POST", "auth/token/lookup", &token).await;
    known.expect("a token that was not ours to begin with is not revoked");
}

async fn revoke_others_than(server: &VaultServer, kept: &str) {
    let kept = server.request("POST", "auth/token/lookup", &json!({ "token": kept })).await.unwrap();
    for accessor in accessors(server).await {
        let body = json!({ "accessor": accessor });
        let token = server.request("POST", "auth/token/lookup-accessor", &body).await.unwrap();
        if token["data"]["display_name"] != "root" && token["data"]["accessor"] != kept["data"]["accessor"] {
            server.request("POST", "auth/token/revoke-accessor", &body).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_token_is_renewed_and_after_its_longest_life_replaced() {
    let server = server().await;
    let login = app_role(&server, "3s", "8s").await;
    let vault = Vault::new(&config(&server, login));
    let location = locate(&vault, "kv/data/a").await;
    // Every read succeeds, through renewals and the end of the first token's life.
    eventually(SOON, || async {
        live(&vault, &location).await;
        let counts = vault.login_counts();
        assert_eq!(counts.failed, 0);
        (counts.renewed >= 2 && counts.succeeded >= 2).then_some(())
    })
    .await
    .unwrap();
}

/// Every kind of token that a role can give.
#[tokio::test]
async fn tokens_of_every_kind_serve_as_long_as_they_live() {
    let server = server().await;
    prepare(&server).await;
    server.request("POST", "sys/auth/approle", &json!({ "type": "approle" })).await.unwrap();
    let kinds = [
        ("batch", json!({ "token_type": "batch", "token_ttl": "2s" })),
        ("one-use", json!({ "token_num_uses": 1, "token_ttl": "1h" })),
        ("two-uses", json!({ "token_num_uses": 2, "token_ttl": "2s" })),
        ("ten-uses", json!({ "token_num_uses": 10, "token_period": "2s" })),
        ("periodic", json!({ "token_period": "2s" })),
        ("short", json!({ "token_ttl": "2s", "token_max_ttl": "2s" })),
        ("bare", json!({ "token_ttl": "2s", "token_no_default_policy": true })),
        ("bare-uses", json!({ "token_num_uses": 3, "token_no_default_policy": true })),
        ("bare-batch", json!({ "token_type": "batch", "token_ttl": "2s", "token_no_default_policy": true })),
    ];
    futures::future::join_all(kinds.into_iter().map(|(name, role)| serves(&server, name, role))).await;
}

/// Reads for longer than two tokens of the role live, with readers that come together.
async fn serves(server: &VaultServer, name: &str, mut role: Value) {
    role["token_policies"] = json!(["reader"]);
    let path = format!("auth/approle/role/{name}");
    server.request("POST", &path, &role).await.unwrap();
    server.request("POST", &format!("{path}/role-id"), &json!({ "role_id": name })).await.unwrap();
    let body = json!({ "secret_id": format!("{name}-secret") });
    server.request("POST", &format!("{path}/custom-secret-id"), &body).await.unwrap();
    let (role_id, secret_id) = (credential(name), Some(credential(&format!("{name}-secret"))));
    let front = HttpFront::start(server.address()).await.unwrap();
    let login = Login::AppRole { mount: "approle".to_owned(), role_id, secret_id };
    let vault = Vault::new(&VaultConfig::new(&front.url(), login).unwrap());
    vault.log_in().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4500) {
        let reading = (0..3).map(|_| async {
            let found = vault.read(&locate_known()).await;
            found.map_or_else(|error| panic!("{name}: {error}"), drop);
        });
        futures::future::join_all(reading).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(vault.login_counts().failed, 0, "{name}");
    // Without the default policy a token may not renew itself, which the client notices.
    let expected = |path: &str| name == "bare" && path.ends_with("renew-self");
    let refused = front.since(0).into_iter().filter(|request| request.status == Some(403) && !expected(&request.path));
    assert_eq!(refused.collect::<Vec<_>>(), [], "{name}");
}

#[tokio::test]
async fn a_token_that_may_not_look_itself_up_is_used_all_the_same() {
    let server = server().await;
    prepare(&server).await;
    let bare = async || {
        let body = json!({ "policies": ["reader"], "no_default_policy": true, "ttl": "1h", "type": "batch" });
        let token = server.request("POST", "auth/token/create", &body).await.unwrap();
        token["auth"]["client_token"].as_str().unwrap().to_owned()
    };
    let vault = Vault::new(&config(&server, Login::Token(credential(&bare().await))));
    reads(&vault).await;
    assert_eq!(vault.login_counts().failed, 0);
}

#[tokio::test]
async fn a_token_revoked_before_its_time_costs_one_login_and_no_refusal() {
    let server = server().await;
    let login = app_role(&server, "1h", "2h").await;
    let body = json!({ "token_num_uses": 1000 });
    server.request("POST", "auth/approle/role/web", &body).await.unwrap();
    let vault = Vault::new(&config(&server, login));
    reads(&vault).await;
    revoke_all(&server).await;
    reads(&vault).await;
    assert_eq!(vault.login_counts().succeeded, 2);
}

#[tokio::test]
async fn thirty_callers_one_login_also_after_a_revocation() {
    let server = server().await;
    let login = app_role(&server, "1h", "2h").await;
    let vault = Vault::new(&config(&server, login));
    let all = async || {
        let readers = (0..30).map(|_| reads(&vault));
        futures::future::join_all(readers).await;
    };
    all().await;
    assert_eq!(vault.login_counts().succeeded, 1);
    for expected in [2, 3] {
        revoke_all(&server).await;
        all().await;
        assert_eq!(vault.login_counts().succeeded, expected);
    }
}

#[tokio::test]
async fn policies_bound_to_the_role_later_cost_no_login_for_each_refusal() {
    let server = server().await;
    let login = app_role(&server, "1h", "2h").await;
    let vault = Vault::new(&config(&server, login));
    let location = locate(&vault, "kv/data/a").await;
    for _ in 0..30 {
        let refused = vault.delete(&location, konverge_vault::Expected::Any, konverge_vault::Deletion::Soft).await;
        assert!(matches!(refused, Err(VaultError::Denied { .. })));
    }
    let counts = vault.login_counts();
    assert_eq!((counts.succeeded, counts.failed), (1, 0));
}

#[tokio::test]
async fn a_role_that_is_made_again_is_logged_in_to_without_being_asked() {
    let server = server().await;
    let login = app_role(&server, "1h", "2h").await;
    let vault = Vault::new(&config(&server, login));
    reads(&vault).await;
    server.request("DELETE", "auth/approle/role/web", &Value::Null).await.unwrap();
    revoke_all(&server).await;
    let error = vault.read(&locate_known()).await.err().unwrap();
    assert!(matches!(error, VaultError::Login { .. }) && error.to_string().contains("role"), "{error}");
    assert!(vault.login_failure().is_some());
    let failed = vault.login_counts().failed;
    for _ in 0..100 {
        assert!(vault.log_in().await.is_err());
    }
    assert!(vault.login_counts().failed <= failed + 1, "asking does not hurry it");
    make_role(&server, "1h", "2h").await;
    let mended = eventually(SOON, || std::future::ready(vault.login_failure().is_none().then_some(())));
    mended.await.unwrap();
    reads(&vault).await;
    assert_eq!(vault.login_counts().succeeded, 2);
}

fn locate_known() -> konverge_vault::Location {
    let mount = konverge_vault::Mount::new("kv", konverge_vault::KvVersion::Two);
    mount.location(&konverge_vault::SecretPath::parse("kv/data/a").unwrap()).unwrap()
}

#[tokio::test]
async fn nothing_secret_is_in_an_error() {
    let server = server().await;
    prepare(&server).await;
    let vault = Vault::new(&config(&server, Login::Token(credential("hvs.hunter2hunter2"))));
    let location = locate(&administrator(&server), "kv/data/a").await;
    let error =
        vault.write(&location, &crate::support::content(&[("a", "canary-value")]), konverge_vault::Expected::Any).await;
    let error = format!("{error:?} {}", error.as_ref().err().unwrap());
    assert!(
        !error.contains("hunter2") && !error.contains("canary-value") && error.contains("permission denied"),
        "{error}"
    );
}
