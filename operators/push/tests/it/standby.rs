//! A replica that does not lead.

use konverge_push::object::Kind;
use konverge_testkit::settles_at;
use serde_json::json;

use crate::world::{QUIET, World};

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
    let depth = async || standby.metric("workqueue_depth", "name=\"push\"");
    settles_at("the standby has the keys of the first and the last", 2.0, QUIET, depth).await;
    // It is ready to take over.
    leader.stop().await;
    world.rotate("last", &[("n", "2")]).await;
    world.holds(&world.path("last"), &[("n", "2")]).await;
}
