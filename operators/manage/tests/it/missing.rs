//! A cluster that lacks definitions: those of v1alpha1, as an older installation.

use konverge_manage::{
    api::{
        v1::{OZGroup, OZGroupSpec},
        v1alpha1::{Group, GroupSpec},
    },
    config::Config,
};
use konverge_testkit::eventually;

use crate::stage::{LIMIT, Stage, generated};

/// The definitions of v1alpha1, and all else of the manifest.
fn split(manifest: &str) -> (String, String) {
    let is_newer =
        |document: &&str| document.contains("kind: CustomResourceDefinition") && document.contains("name: v1alpha1");
    let (newer, rest): (Vec<_>, Vec<_>) = manifest.split("---\n").partition(is_newer);
    (newer.join("---\n"), rest.join("---\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_other_kinds_are_served_while_definitions_are_missing() {
    let newer = split(&generated("any")).0;
    let stage = Stage::with(|home| split(&generated(home)).1).await;
    let (_operator, checks) = stage.begin(&[]).await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &OZGroup::new("devs", OZGroupSpec { name: "Developers".to_owned() })).await;
    stage.says(&groups, "devs", "Ready", "Reconciled").await;
    let report = checks.ready();
    assert!(!report.passed && report.text.contains("networkrouters"), "{}", report.text);

    // Once they come, their objects are served, too.
    stage.apply(&newer).await;
    let ready = eventually(LIMIT, || std::future::ready(checks.ready().passed.then_some(())));
    assert!(ready.await.is_ok(), "{}", checks.ready().text);
    stage.create(&stage.api::<Group>(), &Group::new("ops", GroupSpec { name: "Operations".to_owned() })).await;
    stage.says(&stage.api::<Group>(), "ops", "Ready", "Reconciled").await;
}

#[test]
fn no_missing_definition_ends_the_program() {
    let config = <Config as clap::Parser>::parse_from(["openzro-operator"]);
    assert_eq!(config.options().cache_sync_timeout, 0);
}
