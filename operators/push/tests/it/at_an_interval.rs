//! Looks at Vault at an interval. This takes more than a minute, and the tests of a program begin in the order of their names. So this file comes
//! before most others: at the end, the run would wait for this test alone.

use std::time::Duration;

use konverge_push::object::Kind::VaultPush;
use serde_json::json;
use tokio::time::Instant;

use crate::{vault_push::merging::merging, world::World};

/// The shortest that is taken.
const INTERVAL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn one_read_in_an_interval_serves_all_who_keep_keys_at_a_path() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.secret("db", &[("value", "1")], json!({})).await;
    let pushes = ["a", "b", "c", "d", "e", "f"];
    for name in pushes {
        let mut spec = merging(&path, name);
        spec["interval"] = json!("30s");
        world.vault_push(name, spec).await;
    }
    for name in pushes {
        world.says(VaultPush, name, "Synced").await;
    }
    let reads = || operator.metric("konverge_push_vault_reads_total", "");
    let versions = world.versions(&path).await;
    let (before, begun) = (reads(), Instant::now());
    // Real time, because the test counts reads per interval. Each object is due twice.
    tokio::time::sleep(2 * INTERVAL + INTERVAL / 2).await;
    let (read, at_most) = (reads() - before, begun.elapsed().as_secs_f64() / INTERVAL.as_secs_f64() + 1.0);
    assert!((2.0..=at_most).contains(&read), "{read} reads of one path that {} share", pushes.len());
    let oldest = operator.metric("konverge_push_oldest_look_seconds", "");
    assert!(oldest < (2 * INTERVAL).as_secs_f64(), "one was not looked at for {oldest} s");
    assert_eq!(world.versions(&path).await, versions);

    // The reads of the others hide nothing from an object whose key has changed.
    let content: Vec<(&str, &str)> =
        pushes.iter().map(|name| (*name, if *name == "c" { "edited" } else { "1" })).collect();
    world.write(&path, &content).await;
    let right: Vec<(&str, &str)> = pushes.iter().map(|name| (*name, "1")).collect();
    world.holds(&path, &right).await;
    world.event("c", "DriftCorrected").await;
}
