//! The published operator (zopp 0.1.1) on our server, and ours on the published server, where this machine has the programs.
//!
//! `cargo xtask zopp --record` builds the programs, runs these tests and writes the record. Elsewhere the record must be of these tests as they are.

use std::{path::Path, time::Duration};

use konverge_e2e::{Operator, Server, Stage, User, bind};
use konverge_testkit::{Process, ProcessSpec, free_port, http_get};
use konverge_testkit_stores::{PublishedSuite, PublishedZopp};

const SOON: Duration = Duration::from_mins(1);
const ENVIRONMENT: &str = "acme/backend/production";

const CASES: [&str; 2] = [
    "our_operator_follows_an_environment_of_the_published_server",
    "the_published_operator_follows_an_environment_of_our_server",
];

#[tokio::test]
async fn either_operator_follows_an_environment_of_the_other_server() {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("published/record.json");
    let suite = PublishedSuite { source: include_str!("published_zopp.rs"), cases: &CASES, record: &record };
    let Some(published) = suite.programs().unwrap() else { return };
    let stage = Stage::set().await.unwrap();
    our_operator_follows_an_environment_of_the_published_server(&published, &stage).await;
    the_published_operator_follows_an_environment_of_our_server(&published, &stage).await;
    suite.passed(&published).unwrap();
}

async fn our_operator_follows_an_environment_of_the_published_server(published: &PublishedZopp, stage: &Stage) {
    let namespace = stage.control_plane.namespace("published").await.unwrap();
    let run = stage.control_plane.run_directory();
    let server = published.start_server().await.unwrap();
    // It lets services do next to nothing, so the operator is the user.
    let user = User::new(run.path().join("published-home"), server.url()).unwrap();
    let invite = server.invite().unwrap();
    user.zopp(["--generation", "v1", "join", &invite, "alice@example.com"]).await.unwrap();
    set_up(&user).await;
    let credentials = user.home().join(".zopp/config.json");
    let arguments = ["--namespace", namespace.as_str(), "--generation", "v1"];
    let kubeconfig = stage.operator_kubeconfig();
    let mut operator =
        Operator::start(run, "zopp-operator", kubeconfig, &server.url(), &credentials, &arguments).unwrap();
    operator.ready().await.unwrap();

    let watcher = stage.watcher(&namespace);
    bind(stage.client(), &namespace, "backend", ENVIRONMENT).await.unwrap();
    watcher.holds("backend", SOON, &[("A", "1")]).await.unwrap();
    user.set(ENVIRONMENT, "B", b"2").await.unwrap();
    watcher.holds("backend", SOON, &[("A", "1"), ("B", "2")]).await.unwrap();
    user.delete(ENVIRONMENT, "A").await.unwrap();
    watcher.holds("backend", SOON, &[("B", "2")]).await.unwrap();
}

/// The operator is the service that the setup of its documentation makes, which may read and nothing more.
async fn the_published_operator_follows_an_environment_of_our_server(published: &PublishedZopp, stage: &Stage) {
    let namespace = stage.control_plane.namespace("original").await.unwrap();
    let run = stage.control_plane.run_directory();
    let database = format!("sqlite://{}?mode=rwc", run.path().join("first-generation.db").display());
    let mut server = Server::start_on(run, database, &["--allow-v1"]).await.unwrap();
    let user = User::new(run.path().join("first-generation-home"), server.url()).unwrap();
    user.zopp(["join", &server.invite().await.unwrap(), "alice@example.com"]).await.unwrap();
    set_up(&user).await;
    user.zopp(["principal", "create", "k8s-operator", "--service"]).await.unwrap();
    let invite = user.zopp(["invite", "create", "--workspace", "acme", "--plain"]).await.unwrap();
    let join = ["join", invite.trim(), "k8s-operator@acme.com", "--principal", "k8s-operator"];
    user.zopp(join).await.unwrap();
    // As the documentation has it, the operator gets the file in which the service is the principal in use.
    user.zopp(["principal", "use", "k8s-operator"]).await.unwrap();
    let credentials = run.path().join("original-credentials.json");
    std::fs::copy(user.home().join(".zopp/config.json"), &credentials).unwrap();
    user.set(ENVIRONMENT, "REFUSED", b"1").await.unwrap_err();
    let person = user.zopp(["principal", "list", "--output", "json"]).await.unwrap();
    let person: serde_json::Value = serde_json::from_str(&person).unwrap();
    let person = person["principals"][0]["name"].as_str().unwrap();
    user.zopp(["principal", "use", person]).await.unwrap();

    let health = format!("127.0.0.1:{}", free_port().unwrap());
    let spec = ProcessSpec::new("published-zopp-operator", published.operator())
        .env("KUBECONFIG", stage.operator_kubeconfig())
        .env("HOME", run.path())
        .env("RUST_LOG", "info")
        .args(["--server", &server.url(), "--namespace", &namespace, "--health-addr", &health])
        .arg("--credentials")
        .arg(&credentials);
    let mut operator = Process::start(run, spec).unwrap();
    let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    operator.ready("get ready", SOON, is_ready).await.unwrap();

    let watcher = stage.watcher(&namespace);
    bind(stage.client(), &namespace, "backend", ENVIRONMENT).await.unwrap();
    watcher.holds("backend", SOON, &[("A", "1")]).await.unwrap();
    user.set(ENVIRONMENT, "B", b"2").await.unwrap();
    watcher.holds("backend", SOON, &[("A", "1"), ("B", "2")]).await.unwrap();
    user.delete(ENVIRONMENT, "A").await.unwrap();
    watcher.holds("backend", SOON, &[("B", "2")]).await.unwrap();
    // A change while the operator cannot hear it: `since_version` brings it once the server is back.
    server.kill();
    server.start_again().await.unwrap();
    user.set(ENVIRONMENT, "B", b"3").await.unwrap();
    watcher.holds("backend", SOON, &[("B", "3")]).await.unwrap();
}

async fn set_up(user: &User) {
    user.zopp(["workspace", "create", "acme"]).await.unwrap();
    user.zopp(["project", "create", "backend", "-w", "acme"]).await.unwrap();
    user.create_environment(ENVIRONMENT).await.unwrap();
    user.set(ENVIRONMENT, "A", b"1").await.unwrap();
}
