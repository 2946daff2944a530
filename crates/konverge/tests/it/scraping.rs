//! Metrics on an address of their own, for those who may read them, by the flags of a program and under its role.

use konverge::{Operator, prelude::*};
use konverge_testkit::{RoleUse, free_port};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::stage::{Place, Prober, control_plane, run_as};

const PROGRAM: &str = "konverge-scraping";

fn program() -> Operator {
    Operator::new(PROGRAM, "0").may_authenticate(true).controller(Controller::new(Prober::default()))
}

/// Returns the response for a client with this token.
async fn read(address: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that speaks TLS may hang up in the middle.
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8_lossy(&answer).into_owned()
}

fn asks_who(operator: &Operator) -> bool {
    let rules = operator.grant("home").rules();
    rules.into_iter().any(|rule| rule.resources.unwrap_or_default().contains(&"tokenreviews".to_owned()))
}

#[test]
fn asking_who_reads_is_granted_only_to_those_who_ask() {
    assert!(asks_who(&program()));
    assert!(!asks_who(&program().may_authenticate(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_who_may_read_them() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let mut files = konverge::generate::Files::default();
    files.objects("role.yaml", &program().grant(&place.namespace).objects().unwrap()).unwrap();
    let account = cluster.install(PROGRAM, &place.namespace, &files.manifest()).await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(account.kubeconfig()).unwrap();
    let token = serde_json::to_value(kubeconfig).unwrap()["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments = ["--namespace", &place.namespace, "--metrics-address", &address, "--metrics-authentication"];
    let running = run_as(account.kubeconfig(), program(), &arguments).await;
    assert!(read(&address, "nobody").await.starts_with("HTTP/1.1 401 "));
    assert!(read(&address, &token).await.starts_with("HTTP/1.1 403 "), "the program itself may not");
    let rule = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {PROGRAM}-reader}}\n\
         rules: [{{nonResourceURLs: [/metrics], verbs: [get]}}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {PROGRAM}-reader}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {PROGRAM}-reader}}\n\
         subjects: [{{kind: ServiceAccount, name: {PROGRAM}, namespace: {}}}]\n",
        place.namespace
    );
    cluster.apply(&rule).await.unwrap();
    // The refusal is remembered for some seconds.
    let read_at_last = konverge_testkit::eventually(crate::stage::LIMIT, || async {
        let answer = read(&address, &token).await;
        (answer.starts_with("HTTP/1.1 200 ") && answer.contains("konverge_build_info")).then_some(())
    });
    read_at_last.await.unwrap();
    assert_eq!(running.get("/metrics").await.0, 404, "they are elsewhere");
    running.end().await.unwrap();
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let used = RoleUse::of(&account.requests(&log).unwrap(), &program().grant(&place.namespace).rules());
    assert!(used.refused.is_empty() && !used.unused.iter().any(|unused| unused.contains("reviews")), "{used:?}");

    let arguments = ["--namespace", &place.namespace, "--metrics-address", &address, "--metrics-tls"];
    let running = run_as(account.kubeconfig(), program(), &arguments).await;
    assert!(!read(&address, &token).await.starts_with("HTTP/1.1 "), "nobody reads in the clear");
    running.end().await.unwrap();
}
