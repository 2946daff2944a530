//! Ways to Vault and to our metrics that others can read (W27, W20).

use konverge_testkit::{Process, free_port, http_get};

use crate::stage::{Stage, until};

/// The text of the warning.
const TOLD: &str = "is an address without TLS";

#[tokio::test(flavor = "multi_thread")]
async fn w27_an_address_without_tls_is_told_once_and_shown_with_readiness() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("exposed").await.unwrap();
    let (spec, health, _) = stage.operator(stage.kubeconfig(), &namespace, "http://vault.invalid:8200");
    let spec = spec.args(["-vault-timeout", "2s"]);
    let process = Process::start(stage.plane.run_directory(), spec).unwrap();
    // It was asked by then, and could not be.
    until("readiness tells of both", async || {
        let Ok((_, shown)) = http_get(&health, "/readyz?verbose").await else { return Ok(false) };
        Ok(shown.contains("[!]way-to-vault: --vault-addr is an address without TLS") && shown.contains("vault.invalid"))
    })
    .await;
    let logged = process.logged();
    // The log is shared by all operators of this stage; no other has an address of this kind.
    let told: Vec<_> = logged.lines().filter(|line| line.contains(TOLD)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("WARN") && told[0].contains("write https:// there"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w27_nothing_is_told_of_an_address_on_this_machine() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("at-home").await.unwrap();
    let operator = stage.start(&namespace, |spec| spec).await;
    let (code, shown) = http_get(&operator.health, "/readyz?verbose").await.unwrap();
    assert!(code == 200 && shown.contains("[+]vault ok") && !shown.contains("way-to-vault"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w20_metrics_that_are_read_with_a_token_and_without_tls_are_told_of_in_the_log_alone() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("overheard").await.unwrap();
    let everywhere = format!("0.0.0.0:{}", free_port().unwrap());
    let operator = stage.start(&namespace, |spec| spec.args(["-metrics-bind-address", &everywhere])).await;
    let logged = operator.process.logged();
    assert!(logged.lines().any(|line| line.contains("WARN") && line.contains("BEARER TOKENS")), "{logged}");
    // The chart serves metrics in this way. A standing warning would make the shipped alert of warnings fire in every installation.
    let (code, shown) = http_get(&operator.health, "/readyz?verbose").await.unwrap();
    assert!(code == 200 && !shown.contains("[!]"), "{shown}");
}
