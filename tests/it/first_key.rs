//! Credentials in variables pin no key of a workspace.

use std::time::Duration;

use konverge_e2e::{Operator, Stage, binary, bind};
use konverge_testkit::{Process, ProcessSpec, events_about, eventually};

const SOON: Duration = Duration::from_mins(1);

/// Returns the credentials as variables.
fn variables(stage: &Stage) -> Vec<(&'static str, String)> {
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(stage.credentials()).unwrap()).unwrap();
    let fields = [
        ("ZOPP_PRINCIPAL_ID", "id"),
        ("ZOPP_PRINCIPAL_NAME", "name"),
        ("ZOPP_PRIVATE_KEY", "private_key"),
        ("ZOPP_PUBLIC_KEY", "public_key"),
        ("ZOPP_X25519_PRIVATE_KEY", "x25519_private_key"),
        ("ZOPP_X25519_PUBLIC_KEY", "x25519_public_key"),
    ];
    fields.map(|(variable, field)| (variable, file["principals"][0][field].as_str().unwrap().to_owned())).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_of_the_original_believes_a_first_key_loudly_and_konverge_run_refuses_it() {
    let stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("first-key").await.unwrap();
    let environment = stage.environment("first-key").await.unwrap();
    stage.user.set(&environment, "A", b"1").await.unwrap();
    bind(stage.client(), &namespace, "backend", &environment).await.unwrap();
    let (run, variables) = (stage.control_plane.run_directory(), variables(&stage));
    let native = || {
        let kubeconfig = stage.operator_kubeconfig().display();
        let job = format!("pull --kubeconfig '{kubeconfig}' --namespace {namespace} --server {}", stage.server.url());
        let spec = ProcessSpec::new("konverge", binary("konverge").unwrap());
        let spec = spec.args(["run", "--bind-address=127.0.0.1:0", "--job", &job]);
        let spec = variables.iter().fold(spec, |spec, (name, value)| spec.env(*name, value));
        Process::start(run, spec).unwrap()
    };
    let watcher = stage.watcher(&namespace);

    let mut refusing = native();
    let told = eventually(SOON, || async {
        let events = events_about(stage.client(), &namespace, "backend").await.ok()?;
        events.into_iter().find(|event| event.reason.as_deref() == Some("WorkspaceKeyUnknown"))?.note
    });
    let told = told.await.expect("an event");
    assert!(told.contains("nothing pins the key of workspace 'acme'"), "{told}");
    assert!(told.contains("--workspace-fingerprint 'acme="), "{told}");
    watcher.holds("backend", SOON, &[]).await.unwrap();
    refusing.kill();

    let given: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (name, arguments) = ("zopp-operator", ["--namespace", &namespace]);
    let (kubeconfig, server) = (stage.operator_kubeconfig(), stage.server.url());
    let mut operator =
        Operator::start_in(&given, run, name, kubeconfig, &server, stage.credentials(), &arguments).unwrap();
    operator.ready().await.unwrap();
    watcher.holds("backend", SOON, &[("A", "1")]).await.unwrap();
    operator.metric_becomes("konverge_pull_unpinned_workspaces", "", |value| value > 0.5).await.unwrap();
    let (code, ready) = operator.get("/readyz?verbose").await.unwrap();
    let logged = operator.process().logged();
    for text in [&ready, &logged] {
        assert!(text.contains("is trusted because it is, or follows from, the first"), "{text}");
        assert!(text.contains("--workspace-fingerprint 'acme="), "{text}");
    }
    assert_eq!(code, 200, "{ready}");
    operator.kill();

    // The Secret has a record of the key, so the native start accepts it.
    let mut following = native();
    stage.user.set(&environment, "A", b"2").await.unwrap();
    watcher.holds("backend", SOON, &[("A", "2")]).await.unwrap();
    following.kill();
}
