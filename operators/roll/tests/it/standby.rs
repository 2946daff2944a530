//! A replica that does not lead.

use konverge_workload::WorkloadKind::Deployment;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{ALL, QUIET, World, until};

#[tokio::test]
async fn the_queues_of_a_standby_forget_objects_that_are_gone() {
    let world = World::new().await;
    let make = async |name: &str| {
        world.secret(name, "one").await;
        world.workload(Deployment, name, &[name], json!({ ALL: "true" })).await;
        world.noted(Deployment, name).await;
    };
    let leader = world.operator(&["--leader-elect", "--min-interval", "0s"]).await;
    make("first").await;
    let standby = world.operator(&["--leader-elect", "--min-interval", "0s"]).await;
    for number in 0..10 {
        let name = format!("passing-{number}");
        make(&name).await;
        world.api(Deployment).delete(&name, &DeleteParams::default()).await.unwrap();
        world.delete_secret(&name).await;
    }
    make("last").await;
    // Its watch shows the last one after all others.
    let is_short = async || {
        let depth = async |queue: &str| standby.metric("workqueue_depth", &format!("name=\"{queue}\"")).await;
        let depths = [depth("roll").await, depth("roll-sources").await];
        if depths.iter().all(|depth| (depth - 2.0).abs() < 0.5) { Ok(()) } else { Err(format!("{depths:?}")) }
    };
    until("the standby has the keys of the first and the last", is_short).await;
    // A standby works on no key, so its queues are never empty and it never settles. Only time shows that no late event adds a key.
    sleep(QUIET).await;
    is_short().await.unwrap();
    // It is ready to take over.
    leader.stop().await;
    world.ready("last").await;
    world.secret("last", "two").await;
    world.rolled("last", 1).await;
}
