//! Starts without a rule: the one that the original could make is open and says so, and each other one confines the namespaces.

use konverge_testkit::{Process, ProcessSpec};

use crate::stage::{Stage, until};

/// The text that the log has if every namespace may write everywhere.
const OPEN: &str = "no --allow-path rule";

fn without_rules(spec: ProcessSpec) -> ProcessSpec {
    // An empty variable sets nothing.
    spec.env("VAULT_SYNC_ALLOW_PATH", "")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_a_token_and_without_rules_confines_each_namespace() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("confined").await.unwrap();
    let view = stage.view(&namespace).await;
    let (own, foreign) = (view.path("db"), "secret/data/of-another-team/db");
    view.write(foreign, "n", "theirs").await.unwrap();
    let _operator = stage.start(&namespace, without_rules).await;
    view.secret("own", &[("n", "1")], Some(&own)).await.unwrap();
    view.secret("foreign", &[("n", "evil")], Some(foreign)).await.unwrap();
    until("its own path is in sync", async || view.is_synced("Secret", "own", &[&own]).await).await;
    until("the path of another namespace is refused by name of the flag", async || {
        let record = view.record("Secret", "foreign").await?.unwrap_or_default();
        let message = record["message"].as_str().unwrap_or_default();
        Ok(record["state"] == "PathNotAllowed" && message.contains("--allow-path"))
    })
    .await;
    assert!(view.holds(foreign, "n", "theirs").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_the_original_could_make_is_open_and_says_so() {
    let stage = Stage::shared().await;
    let (spec, ..) = stage.operator(stage.kubeconfig(), "default", stage.server.address());
    let spec = without_rules(spec).args(["-vault-auth-method=kubernetes", "-vault-jwt-file=/dev/null"]);
    let operator = Process::start(stage.plane.run_directory(), spec).unwrap();
    until("it says so", async || Ok(operator.logged().contains(OPEN))).await;
}
