//! SIGTERM while a server that a program needs accepts every connection and never responds.

use std::{path::Path, time::Duration};

use futures::future::join_all;
use konverge_e2e::{Stage, binary};
use konverge_testkit::{Process, ProcessSpec};
use serde_json::Value;
use tokio::{net::TcpListener, time::sleep};

/// A pod has 40 seconds. A program ends waiting runs 24 seconds after the signal, and gives its tasks the rest of 30.
const GRACE: Duration = Duration::from_secs(36);

/// The times of the signal after the start: before the program has its signal handlers, while it starts, and while it runs.
const MOMENTS: [Duration; 3] = [Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(6)];

const DEFINITIONS: [&str; 2] =
    [include_str!("../../deploy/openzro/crds.yaml"), include_str!("../../deploy/crds/vaultpushes.yaml")];

/// Accepts connections, as its kernel does, and never responds.
async fn silence() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// The flags of each program with the API server of this kubeconfig and stores at one address.
fn programs(stage: &Stage, kubeconfig: &Path, store: &str) -> Vec<(&'static str, Vec<String>)> {
    let token = stage.control_plane.run_directory().path().join("hanging-token");
    std::fs::write(&token, "s.token").unwrap();
    let token = token.to_str().unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let pull = format!("{kubeconfig} --server=http://{store} --credentials={}", stage.credentials().display());
    let vault = format!("--vault-addr=http://{store} --vault-auth-method=token --vault-token-file={token}");
    let push = format!("{kubeconfig} {vault}");
    let manage = format!(
        "{kubeconfig} --openzro-management-url=http://{store} --openzro-api-key-file={token} --enable-webhooks=false \
         --runtime-namespace=default --health-probe-bind-address=0 --metrics-bind-address=0"
    );
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let nowhere = "--health-probe-bind-address=0";
    let mut all = vec!["run".to_owned(), "--bind-address=0".to_owned()];
    for job in [format!("pull {pull}"), format!("push {push}"), format!("roll {push}")] {
        all.extend(["--job".to_owned(), job]);
    }
    vec![
        ("zopp-operator", words(&format!("{pull} --health-addr=127.0.0.1:0"))),
        ("vault-sync-operator", words(&format!("{push} {nowhere} --metrics-bind-address=0"))),
        ("vault-rollout-operator", words(&format!("{push} {nowhere}"))),
        ("openzro-operator", words(&manage)),
        ("konverge", all),
    ]
}

/// Starts all programs at each moment, and expects each to end in time.
async fn all_end(stage: &Stage, programs: &[(&'static str, Vec<String>)]) {
    for moment in MOMENTS {
        let ends = programs.iter().map(async |(name, arguments)| {
            let spec = ProcessSpec::new(*name, binary(name).unwrap()).args(arguments);
            let mut process = Process::start(stage.control_plane.run_directory(), spec).unwrap();
            sleep(moment).await;
            let is_running = process.status().is_none();
            let ended = process.terminate(GRACE).await.map_err(|error| error.to_string());
            assert!(is_running, "{name} ended by itself within {moment:?}: {}", process.logged());
            assert!(ended.is_ok(), "{name}, {moment:?} after its start: {ended:?}");
        });
        join_all(ends).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_store_that_hangs_keeps_a_program_at_any_moment() {
    let stage = Stage::set_on_ours().await.unwrap();
    let plane = &stage.control_plane;
    plane.apply(&DEFINITIONS.join("\n---\n")).await.unwrap();
    // Each job has work that needs its store.
    let environment = stage.environment("hanging").await.unwrap();
    stage.bind("default", "pulled", &environment).await.unwrap();
    let pushed = "apiVersion: v1\nkind: Secret\nmetadata: { name: pushed, annotations: { vault-sync.io/path: secret/data/default/a } }";
    let group = "apiVersion: openzro.io/v1\nkind: OZGroup\nmetadata: { name: devs, namespace: default }\nspec: { name: default/devs }";
    plane
        .apply(&[&pushed.replace("name: pushed,", "name: pushed, namespace: default,"), group].join("\n---\n"))
        .await
        .unwrap();
    let (_listener, silent) = silence().await;
    let mut programs = programs(&stage, plane.kubeconfig(), &silent);
    let database = format!("--database-url=postgres://zopp:zopp@{silent}/zopp");
    let server = [&*database, "serve", "--addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"].map(str::to_owned);
    programs.push(("zopp-server", server.into()));
    all_end(&stage, &programs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_api_server_that_hangs_keeps_a_program_at_any_moment() {
    let stage = Stage::set_on_ours().await.unwrap();
    let (_listener, silent) = silence().await;
    let mut config: Value = serde_json::from_slice(&std::fs::read(stage.control_plane.kubeconfig()).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = format!("https://{silent}").into();
    let kubeconfig = stage.control_plane.run_directory().path().join("silent.json");
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    all_end(&stage, &programs(&stage, &kubeconfig, &silent)).await;
}
