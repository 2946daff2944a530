//! A policy of the API server denies the operator's writes to one Secret.

use std::time::Duration;

use konverge_testkit::{DenyingPolicy, until_true};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::world::World;

/// The pauses end between one and two minutes. Here the policy is there for a shorter time, and so are they.
const SOON: Duration = Duration::from_secs(40);

/// A denied write was tried again after half an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a24_a_secret_whose_writes_were_denied_is_up_to_date_soon_after_the_policy_is_gone() {
    let (world, scene, operator) = World::in_sync().await;
    let other = world.server.create("staging");
    other.set("A", "1");
    world.bind("other", &other).await;
    world.holds("other", &[("A", "1")]).await;
    let policy = DenyingPolicy::create(&world.kubernetes, &world.namespace, &[("secrets", "backend")]).await.unwrap();
    let is_allowed = async || {
        let change = json!({"metadata": {"labels": {"probe": "yes"}}});
        let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
        world.secrets().patch("backend", &parameters, &Patch::Merge(&change)).await.is_ok()
    };
    until_true("the API server heeds the policy", async || Ok(!is_allowed().await)).await;

    scene.set("A", "2");
    other.set("A", "2");
    let text = world.told("backend", "SyncFailed").await;
    assert!(text.contains("not this one"), "{text}");
    world.holds("other", &[("A", "2")]).await;
    // The event stays current for as long as the writes are denied.
    until_true("several attempts are told", async || Ok(world.is_renewed("backend", "SyncFailed").await >= 4)).await;
    world.holds("backend", &[("A", "1")]).await;

    policy.lift().await.unwrap();
    until_true("the API server has forgotten the policy", async || Ok(is_allowed().await)).await;
    let allowed = Instant::now();
    world.holds("backend", &[("A", "2")]).await;
    assert!(allowed.elapsed() < SOON, "{:?}", allowed.elapsed());
    operator.stop().await;
}
