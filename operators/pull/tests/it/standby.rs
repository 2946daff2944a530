//! A replica that does not lead.

use konverge_testkit::settles_at;

use crate::world::{QUIET, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_standby_forgets_secrets_that_are_gone() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    let leader = world.operator(&["--leader-election"]).await;
    world.bind("first", &scene).await;
    world.holds("first", &[("A", "1")]).await;
    let standby = world.operator(&["--leader-election"]).await;
    // Secrets come and go, as those of preview environments do.
    for number in 0..10 {
        let name = format!("passing-{number}");
        world.bind(&name, &scene).await;
        world.holds(&name, &[("A", "1")]).await;
        world.delete(&name).await;
    }
    world.bind("last", &scene).await;
    world.holds("last", &[("A", "1")]).await;
    // Its watch shows the last one after all others.
    let depth = async || standby.sum("workqueue_depth", "name=\"pull\"");
    settles_at("the standby has the keys of the first and the last", 2.0, QUIET, depth).await;
    // It is ready to take over.
    leader.stop().await;
    scene.set("A", "2");
    world.holds("last", &[("A", "2")]).await;
    world.holds("first", &[("A", "2")]).await;
    standby.stop().await;
}
