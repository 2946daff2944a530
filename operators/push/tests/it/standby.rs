//! A replica that does not lead.

use konverge_push::object::Kind;
use serde_json::json;

use crate::world::{QUIET, World, until};

#[tokio::test]
async fn the_queue_of_a_standby_forgets_objects_that_are_gone() {
    let world = World::new().await;
    let push = |name: &str| json!({ "vault-sync.io/path": world.path(name) });
    let leader = world.operator(&["-leader-elect"]).await;
    world.secret("first", &[("n", "1")], push("first")).await;
    world.says(Kind::Secret, "first", "Synced").await;
    let standby = world.operator(&["-leader-elect"]).await;
    // Objects come and go, as jobs do.
    for number in 0..10 {
        let name = format!("passing-{number}");
        world.secret(&name, &[("n", "1")], push(&name)).await;
        world.says(Kind::Secret, &name, "Synced").await;
        world.delete(Kind::Secret, &name).await;
        world.gone(Kind::Secret, &name).await;
    }
    world.secret("last", &[("n", "1")], push("last")).await;
    world.says(Kind::Secret, "last", "Synced").await;
    // Its watch shows the last one after all others.
    let is_short = async || match standby.metric("workqueue_depth", "name=\"push\"") {
        depth if (depth - 2.0).abs() < 0.5 => Ok(()),
        depth => Err(depth.to_string()),
    };
    until("the standby has the keys of the first and the last", is_short).await;
    tokio::time::sleep(QUIET).await;
    is_short().await.unwrap();
    // It is ready to take over.
    leader.stop().await;
    world.rotate("last", &[("n", "2")]).await;
    world.holds(&world.path("last"), &[("n", "2")]).await;
}
