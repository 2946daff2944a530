//! Our operator on the published server (zopp 0.1.1), where this machine has it: `cargo xtask zopp` builds it.

use std::time::Duration;

use konverge_e2e::{Operator, Stage, User, bind};
use konverge_testkit_stores::PublishedZopp;

const SOON: Duration = Duration::from_mins(1);
const ENVIRONMENT: &str = "acme/backend/production";

#[tokio::test]
async fn our_operator_follows_an_environment_of_the_published_server() {
    let Some(published) = PublishedZopp::find().unwrap() else {
        eprintln!("zopp {}: not run, because this machine has no programs of it", PublishedZopp::VERSION);
        return;
    };
    let stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("published").await.unwrap();
    let run = stage.control_plane.run_directory();
    let server = published.start_server().await.unwrap();
    // It lets services do next to nothing, so the operator is the user.
    let user = User::new(run.path().join("published-home"), server.url()).unwrap();
    let invite = server.invite().unwrap();
    user.zopp(["--generation", "v1", "join", &invite, "alice@example.com"]).await.unwrap();
    user.zopp(["workspace", "create", "acme"]).await.unwrap();
    user.zopp(["project", "create", "backend", "-w", "acme"]).await.unwrap();
    user.create_environment(ENVIRONMENT).await.unwrap();
    user.set(ENVIRONMENT, "A", b"1").await.unwrap();
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
