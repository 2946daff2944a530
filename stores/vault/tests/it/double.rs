//! A server that answers as it is told, for what a real Vault shows only on bad days.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use konverge_core::error::{Classify, ErrorClass};
use konverge_vault::{
    Deletion, Expected, Found, KvVersion, Limits, Location, Login, Mount, SecretPath, Vault, VaultConfig, VaultError,
};

use crate::support::{content, credential};

/// Status, headers and body of one answer.
type Answer = (u16, Vec<(&'static str, String)>, &'static str);

#[derive(Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// Answers to calls with the token itself, by route.
    of_tokens: Arc<Mutex<BTreeMap<&'static str, Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// Answers to come, in order; looks at the token are answered by themselves. After the last one it is the last for ever.
    pub(crate) fn then(&self, status: u16, headers: &[(&'static str, &str)], body: &'static str) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.answers.lock().unwrap().push_back((status, headers, body));
    }

    /// Answers everything with this from now on, but for the routes of the token itself.
    pub(crate) fn answers_all(&self, body: &'static str) {
        *self.answers.lock().unwrap() = [(200, Vec::new(), body)].into();
    }

    /// The answer from now on to a route of the token itself, such as `auth/token/lookup-self`.
    pub(crate) fn of_token(&self, route: &'static str, status: u16, body: &'static str) {
        self.of_tokens.lock().unwrap().insert(route, (status, Vec::new(), body));
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn next(&self) -> Answer {
        let mut answers = self.answers.lock().unwrap();
        if answers.len() > 1 { answers.pop_front().unwrap() } else { answers.front().unwrap().clone() }
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let route = request.uri().path().trim_start_matches("/v1/").to_owned();
    let scripted = script.of_tokens.lock().unwrap().get(&*route).cloned();
    if scripted.is_none() && route == "auth/token/lookup-self" {
        return r#"{"data":{"ttl":0,"expire_time":null,"renewable":false}}"#.into_response();
    }
    let namespace = request.headers().get("x-vault-namespace").map(|name| format!(" in {}", name.to_str().unwrap()));
    let asked = format!("{} {}{}", request.method(), request.uri(), namespace.unwrap_or_default());
    script.requests.lock().unwrap().push(asked);
    let (status, headers, body) = scripted.unwrap_or_else(|| script.next());
    let headers: HeaderMap = headers
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap()))
        .collect();
    (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
}

/// Serves the script, and a client of it whose calls have five seconds.
pub(crate) async fn serve(script: &Script) -> (String, Vault) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(script.clone());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(5));
    let config = VaultConfig::new(&address, Login::Token(credential("token"))).unwrap().limits(limits);
    (address, Vault::new(&config))
}

pub(crate) fn location() -> Location {
    Mount::new("kv", KvVersion::Two).location(&SecretPath::parse("kv/data/a").unwrap()).unwrap()
}

pub(crate) const LIVE: &str = r#"{"data":{"data":{"a":"1"},"metadata":{"version":1,"created_time":"x"}}}"#;

#[tokio::test]
async fn a_server_that_has_not_caught_up_is_asked_again() {
    let script = Script::default();
    script.then(412, &[], r#"{"errors":["required index state not present"]}"#);
    script.then(412, &[], "");
    script.then(200, &[], LIVE);
    let (_, vault) = serve(&script).await;
    assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))));
    assert_eq!(script.requests().len(), 3);
    script.answers.lock().unwrap().clear();
    script.then(412, &[], "");
    let error = vault.read(&location()).await.err().unwrap();
    assert!(error.to_string().contains("caught up") && error.class() == ErrorClass::Transient, "{error}");
}

#[tokio::test]
async fn standbys_and_errors_are_outages_and_pause_after_some() {
    for status in [472, 473, 500, 502, 504] {
        let script = Script::default();
        script.then(status, &[], "<html>");
        let (_, vault) = serve(&script).await;
        for _ in 0..5 {
            let error = vault.read(&location()).await.err().unwrap();
            assert!(matches!(error, VaultError::Unavailable { .. }), "{status}: {error}");
        }
        assert!(matches!(vault.read(&location()).await, Err(VaultError::Paused { .. })), "{status}");
        assert_eq!(script.requests().len(), 5);
    }
}

#[tokio::test]
async fn retry_after_is_kept_to() {
    for status in [429, 503] {
        let script = Script::default();
        script.then(status, &[("retry-after", "7")], r#"{"errors":["busy"]}"#);
        let (_, vault) = serve(&script).await;
        let error = vault.read(&location()).await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::After(Duration::from_secs(7)), "{status}: {error}");
        let error = vault.read(&location()).await.err().unwrap();
        assert!(
            matches!(error.class(), ErrorClass::After(pause) if pause > Duration::from_secs(6)),
            "{status}: {error}"
        );
        assert_eq!(script.requests().len(), 1);
    }
}

#[tokio::test]
async fn what_is_not_vaults_answer_is_never_taken_for_nothing() {
    for (status, body) in [
        (404, "<html>not found</html>"),
        (404, ""),
        (404, r#"{"errors":["no handler for route"]}"#),
        (200, "<html>"),
        (200, ""),
        (200, r#"{"data":{"data":{"a":"#),
        (200, r#"{"data":null}"#),
        (200, r#"{"errors":["hunter2"]}"#),
        (204, ""),
        (403, r#"{"errors":["permission denied"]}"#),
    ] {
        let script = Script::default();
        script.then(status, &[], body);
        let (_, vault) = serve(&script).await;
        let found = vault.read(&location()).await;
        let error = found.err().unwrap_or_else(|| panic!("{status} {body} was taken for an answer")).to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// Every login that asks for a token.
fn logins() -> [Login; 4] {
    [
        Login::Certificate { mount: "cert".to_owned(), role: None },
        Login::AppRole { mount: "approle".to_owned(), role_id: credential("id"), secret_id: None },
        Login::Jwt { mount: "jwt".to_owned(), role: None, token: credential("jwt") },
        Login::Kubernetes { mount: "kubernetes".to_owned(), role: "role".to_owned(), token: credential("jwt") },
    ]
}

/// Answers of gateways, login pages and other programs in Vault's place.
pub(crate) const FOREIGN: [(u16, &str); 16] = [
    (404, "<html>not found</html>"),
    (404, ""),
    (404, r#"{"errors":["not found"]}"#),
    (404, r#"{"message":"no Route matched with those values"}"#),
    (404, r#"{"data":null}"#),
    (403, "<html>forbidden</html>"),
    (403, ""),
    (401, r#"{"message":"Unauthorized"}"#),
    (400, "Bad Request"),
    (405, ""),
    (301, ""),
    (302, "<a href=login>"),
    (200, "<html>log in</html>"),
    (200, ""),
    (200, r#"{"status":"ok"}"#),
    (200, "[]"),
];

fn old_location() -> Location {
    Mount::new("old", KvVersion::One).location(&SecretPath::parse("old/a").unwrap()).unwrap()
}

#[tokio::test]
async fn whatever_is_not_vaults_own_answer_is_an_outage_for_every_call() {
    for (status, body) in FOREIGN {
        let script = Script::default();
        script.then(status, &[], body);
        let (address, vault) = serve(&script).await;
        let is_outage = |what: &str, error: Option<VaultError>| {
            let error = error.unwrap_or_else(|| panic!("{what}: {status} {body} was taken for Vault's answer"));
            assert!(error.is_outage() && error.class() != ErrorClass::Permanent, "{what} {status} {body}: {error}");
        };
        let annotations = [("a".to_owned(), None)].into();
        is_outage("read", vault.read(&location()).await.err());
        is_outage("metadata", vault.metadata(&location()).await.err());
        is_outage("locate", vault.locate(&SecretPath::parse("old/a").unwrap()).await.err());
        is_outage("write", vault.write(&location(), &content(&[("a", "1")]), Expected::Any).await.err());
        // The sixth in a row would not be sent.
        let (_, vault) = serve(&script).await;
        is_outage(
            "write to version 1",
            vault.write(&old_location(), &content(&[("a", "1")]), Expected::Any).await.err(),
        );
        is_outage("delete", vault.delete(&location(), Expected::Any, Deletion::Soft).await.err());
        is_outage("annotate", vault.annotate(&location(), &annotations).await.err());
        is_outage("destroy", vault.destroy(&location(), &[1]).await.err());
        for login in logins() {
            let error = Vault::new(&VaultConfig::new(&address, login).unwrap()).log_in().await.err();
            is_outage("log in", error);
        }
    }
}

/// Vault answers a change that has no result with 204, or with its envelope if there are warnings.
#[tokio::test]
async fn a_success_that_is_not_vaults_confirms_no_change() {
    let warned =
        r#"{"request_id":"x","lease_id":"","renewable":false,"lease_duration":0,"data":null,"warnings":["w"]}"#;
    for (status, body, is_done) in [
        (204, "", true),
        (200, warned, true),
        (200, r#"{"data":{}}"#, false),
        (200, r#"{"data":{"version":1,"created_time":"x"}}"#, false),
        (200, r#"{"auth":null,"data":null}"#, false),
        (201, r#"{"request_id":"x","data":{}}"#, false),
    ] {
        let script = Script::default();
        script.then(status, &[], body);
        let (_, vault) = serve(&script).await;
        for (what, done) in [
            (
                "write to version 1",
                vault.write(&old_location(), &content(&[("a", "1")]), Expected::Any).await.map(drop),
            ),
            ("delete from version 1", vault.delete(&old_location(), Expected::Any, Deletion::Soft).await),
            ("delete", vault.delete(&location(), Expected::Any, Deletion::Metadata).await),
            ("annotate", vault.annotate(&location(), &[("a".to_owned(), None)].into()).await),
            ("destroy", vault.destroy(&location(), &[1]).await),
        ] {
            let refused = done.as_ref().is_err_and(VaultError::is_outage);
            assert!(done.is_ok() == is_done && refused != is_done, "{what}: {status} {body}: {done:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_is_followed_only_if_that_is_set() {
    let (front, back) = (Script::default(), Script::default());
    back.then(200, &[], LIVE);
    let (leader, _) = serve(&back).await;
    front.then(307, &[("location", &format!("{leader}/v1/kv/data/a"))], "");
    let (address, vault) = serve(&front).await;
    for call in ["read", "write"] {
        let error = match call {
            "read" => vault.read(&location()).await.err().unwrap(),
            _ => vault.write(&location(), &content(&[("a", "1")]), Expected::Any).await.err().unwrap(),
        };
        let text = error.to_string();
        assert!(error.is_outage() && text.contains(&leader) && text.contains("--vault-follow-redirects"), "{text}");
    }
    assert_eq!(back.requests(), [""; 0], "neither the token nor the body went there");
    let config = VaultConfig::new(&address, Login::Token(credential("token"))).unwrap().follow_redirects(true);
    let vault = Vault::new(&config);
    vault.write(&location(), &content(&[("a", "1")]), Expected::Any).await.err().unwrap();
    assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))));
    assert_eq!(back.requests(), ["POST /v1/kv/data/a", "GET /v1/kv/data/a"]);
}

#[tokio::test]
async fn a_redirect_to_the_same_origin_is_followed_and_one_in_a_circle_ends() {
    let script = Script::default();
    script.then(307, &[("location", "/v1/kv/data/b")], "");
    script.then(200, &[], LIVE);
    let (_, vault) = serve(&script).await;
    assert!(matches!(vault.read(&location()).await, Ok(Found::Live(_))));
    assert_eq!(script.requests(), ["GET /v1/kv/data/a", "GET /v1/kv/data/b"]);
    script.answers.lock().unwrap().clear();
    script.then(307, &[("location", "/v1/kv/data/a")], "");
    assert!(matches!(vault.read(&location()).await, Err(VaultError::Garbage { .. })));
}

#[tokio::test]
async fn words_that_repeat_a_value_are_withheld() {
    let script = Script::default();
    script.then(400, &[], r#"{"errors":["cannot store canary-value"]}"#);
    let (_, vault) = serve(&script).await;
    let error = vault.write(&location(), &content(&[("a", "canary-value")]), Expected::Any).await.err().unwrap();
    assert!(!format!("{error:?}").contains("canary-value") && error.to_string().contains("withheld"), "{error}");
}

#[tokio::test]
async fn namespaces_are_sent_along() {
    let script = Script::default();
    script.then(200, &[], LIVE);
    let (_, vault) = serve(&script).await;
    vault.in_namespace("team/a/").unwrap().read(&location()).await.unwrap();
    vault.read(&location()).await.unwrap();
    assert_eq!(script.requests(), ["GET /v1/kv/data/a in team/a", "GET /v1/kv/data/a"]);
    assert!(vault.in_namespace("../root").is_err());
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let script = Script::default();
    let huge: &'static str = Box::leak("x".repeat(9 * 1024 * 1024).into_boxed_str());
    script.then(200, &[], huge);
    let (_, vault) = serve(&script).await;
    let error = vault.read(&location()).await.err().unwrap();
    assert!(matches!(error, VaultError::Garbage { .. }) && error.to_string().contains("larger"), "{error}");
}

/// Accepts and never answers; counts the connections.
async fn silent() -> (String, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            open.push(connection);
        }
    });
    (address, count)
}

#[tokio::test]
async fn a_server_that_hangs_ends_every_call_at_its_deadline() {
    let (address, _) = silent().await;
    let deadline = Duration::from_millis(300);
    let limits = Limits::default().with(|limits| limits.deadline = deadline);
    let vault = Vault::new(&VaultConfig::new(&address, Login::Token(credential("token"))).unwrap().limits(limits));
    let began = std::time::Instant::now();
    let calls = (0..20).map(|_| async { vault.read(&location()).await.err().unwrap() });
    for error in futures::future::join_all(calls).await {
        assert!(error.is_outage(), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "all at once, not one after the other");
    assert!(vault.health().await.err().unwrap().to_string().contains("0.3 s"));
}

#[tokio::test]
async fn a_client_of_a_server_that_hangs_is_closed_soon() {
    let (address, _) = silent().await;
    let vault = Vault::new(&VaultConfig::new(&address, Login::Token(credential("token"))).unwrap());
    let asking = tokio::spawn({
        let vault = vault.clone();
        async move { vault.read(&location()).await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = std::time::Instant::now();
    vault.close().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    asking.abort();
}

#[tokio::test]
async fn no_more_are_under_way_than_allowed() {
    let (address, count) = silent().await;
    let limits = Limits::default().with(|limits| limits.concurrency = std::num::NonZeroUsize::new(3).unwrap());
    let front = Script::default();
    front.then(307, &[("location", &format!("{address}/v1/x"))], "");
    let (address, _) = serve(&front).await;
    let config = VaultConfig::new(&address, Login::Token(credential("token"))).unwrap().follow_redirects(true);
    let vault = Vault::new(&config.limits(limits));
    vault.log_in().await.unwrap();
    let reached = |expected| {
        let count = Arc::clone(&count);
        konverge_testkit::eventually(crate::support::SOON, move || {
            let now = count.load(std::sync::atomic::Ordering::Relaxed);
            std::future::ready((now >= expected).then_some(now))
        })
    };
    let calls = futures::future::join_all((0..20).map(|_| async { vault.read(&location()).await.map(drop) }));
    // The health check waits for no limit, so it shows that no other request came through meanwhile.
    let probe = async {
        assert_eq!(reached(3).await.unwrap(), 3);
        tokio::select! {
            _ = vault.health() => panic!("nothing answers"),
            count = reached(4) => assert_eq!(count.unwrap(), 4),
        }
    };
    tokio::select! {
        _ = calls => panic!("nothing answers"),
        () = probe => {}
    }
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_whole_address() {
    let script = Script::default();
    script.then(200, &[], r#"{"initialized":true,"sealed":false}"#);
    let (proxy, _) = serve(&script).await;
    let config = VaultConfig::new("http://vault.invalid:8200", Login::Token(credential("token"))).unwrap();
    Vault::new(&config.proxy(&proxy).unwrap()).health().await.unwrap();
    let asked = script.requests();
    assert!(asked[0].starts_with("GET http://vault.invalid:8200/v1/sys/health"), "{asked:?}");
}
