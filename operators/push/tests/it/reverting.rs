//! Somebody takes away what is recorded on an object, each time that it is written.

use std::time::Duration;

use konverge_push::object::Kind;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use crate::world::World;

/// How long it goes on, and how many writes that may cost: three answers at once and two after pauses, each of two writes at most. Without
/// pauses there are more than ten in a second.
const FOR: Duration = Duration::from_secs(6);
const AT_MOST: usize = 12;

/// Takes the record away as often as it is there.
async fn take(world: &World, kind: Kind, name: &str) {
    loop {
        if world.record(kind, name).await.is_some() {
            if kind == Kind::VaultPush {
                let nothing = Patch::Merge(json!({ "status": null }));
                world.api(kind).patch_status(name, &PatchParams::default(), &nothing).await.unwrap();
            } else {
                world.annotate(kind, name, json!({ "vault-sync.io/status": null })).await;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn who_takes_the_record_again_and_again_is_told_once_and_answered_less_and_less() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    world.secret("source", &[("k", "1")], json!({})).await;
    for kind in [Kind::Secret, Kind::VaultPush] {
        let name = kind.plural();
        let path = world.path(name);
        if kind == Kind::VaultPush {
            world.vault_push(name, json!({ "secrets": { "names": ["source"] }, "path": path })).await;
        } else {
            world.secret(name, &[("k", "1")], json!({ "vault-sync.io/path": path })).await;
        }
        world.holds(&path, &[("k", "1")]).await;
        world.says(kind, name, "Synced").await;
        let written = world.writes_during(async {
            let told = async {
                let told = world.event(name, "RecordTakenAway").await;
                let what = if kind == Kind::VaultPush { "the status" } else { "vault-sync.io/status" };
                assert!(told.contains(what), "{told}");
                sleep(FOR).await;
            };
            tokio::select! {
                () = take(&world, kind, name) => {}
                () = told => {}
            }
        });
        let written = written.await;
        let about = written.iter().filter(|entry| entry.object_ref.name == name).count();
        assert!((4..=AT_MOST).contains(&about), "{about} writes on {name}: {written:#?}");

        // A change reaches Vault all the same, while nobody waits for the record.
        let source = if kind == Kind::VaultPush { "source" } else { name };
        tokio::select! {
            () = take(&world, kind, name) => {}
            () = async {
                world.rotate(source, &[("k", "2")]).await;
                world.holds(&path, &[("k", "2")]).await;
            } => {}
        }
        let notes = world.notes(name).await;
        assert_eq!(notes.iter().filter(|note| note.contains("keeps removing")).count(), 1, "{notes:?}");
        // It is let be.
        world.says(kind, name, "Synced").await;
        assert_eq!(world.versions(&path).await, 2, "{name}");
    }
}
