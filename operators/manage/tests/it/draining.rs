//! `drain` beside an operator that still runs (W19).

use std::pin::pin;

use konverge_manage::api::v1::{OZGroup, OZGroupSpec};
use konverge_openzro::Collection;

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn w19_a_drain_waits_until_the_operator_has_stopped_and_its_objects_stay_released() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--leader-elect"]).await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &OZGroup::new("devs", OZGroupSpec { name: "Developers".to_owned() })).await;
    stage.says(&groups, "devs", "Ready", "Reconciled").await;
    let log = stage.audit_log();
    let mut drain = pin!(stage.drain());
    // The leader only writes the lease. The drain reads it once to find the holder, and again as a candidate.
    let waits = async {
        stage.until("the drain is a candidate for the lease", async || stage.lease_reads(&log).await > 1).await;
        stage.settled(&operator).await;
    };
    tokio::select! {
        drained = &mut drain => panic!("it does not wait for the operator: {drained:?}"),
        () = waits => {}
    }
    assert_eq!(stage.finalizers(&groups, "devs").await, ["openzro.io/group-cleanup"]);
    operator.stop().await;
    drain.await.unwrap();
    assert!(stage.finalizers(&groups, "devs").await.is_empty());
    assert!(stage.on_server(&Collection::Groups).await.contains_key("Developers"));
    stage.delete(&groups, "devs").await;
    stage.gone(&groups, "devs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w19_a_drain_names_what_an_operator_without_a_lease_has_taken_up_again() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &OZGroup::new("devs", OZGroupSpec { name: "Developers".to_owned() })).await;
    stage.says(&groups, "devs", "Ready", "Reconciled").await;
    let said = stage.drain().await.unwrap_err().to_string();
    let named = format!("OZGroup {}/devs was released, and the operator has taken it up again", stage.namespace);
    assert!(said.contains(&named) && said.contains("stop it"), "{said}");
    operator.stop().await;
    stage.drain().await.unwrap();
    assert!(stage.finalizers(&groups, "devs").await.is_empty());
}
