//! Objects that the API server deletes although they have the finalizer, because it came while the deletion was under way.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_push::{object::Kind, orphans::CONFIG_MAP};
use konverge_testkit::{CapturedLog, HeldDeletion, HeldDeletions, fault_proxy::Plan};
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use kube::Api;
use serde_json::{Value, json};

use crate::world::{World, until};

const FINALIZER: &str = "vault-sync.io/finalizer";

/// Has the API server begin to delete the object, which requests nothing yet. Then the object requests a path, gets the finalizer, and is in sync.
async fn escape(world: &World, deletions: &HeldDeletions, (kind, name): (Kind, &str), request: Value) -> HeldDeletion {
    let deletion = deletions.delete(name).await.unwrap();
    world.merge(kind, name, request).await;
    world.says(kind, name, "Synced").await;
    let metadata = world.api(kind).get_metadata(name).await.unwrap().metadata;
    assert_eq!(metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    assert_eq!(metadata.deletion_timestamp, None);
    deletion
}

/// Lets the API server finish the deletion, which does not look for finalizers again.
async fn vanish(world: &World, deletion: HeldDeletion, (kind, name): (Kind, &str)) {
    deletion.finish().await.unwrap();
    let left = world.api(kind).get_metadata_opt(name).await.unwrap();
    assert!(left.is_none(), "the API server looks for finalizers again: drop this test");
}

fn path_is(path: &str) -> Value {
    json!({ "metadata": { "annotations": { "vault-sync.io/path": path } } })
}

#[tokio::test]
async fn paths_of_an_object_that_the_api_server_deletes_despite_its_finalizer_are_cleared() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let mut deletions = Vec::new();
    for kind in [Kind::Secret, Kind::Deployment, Kind::VaultPush] {
        deletions.push((kind, HeldDeletions::begin(&world.client, &world.namespace, &kind.resource()).await.unwrap()));
    }
    world.secret("source", &[("k", "v")], json!({})).await;
    // Without versions there are no marks, and only the record tells which content is ours.
    let unmarked = format!("old/{}/secret", world.namespace);
    for (kind, path, held) in [
        (Kind::Secret, world.path("secret"), world.path("secret")),
        (Kind::Secret, unmarked.clone(), unmarked),
        (Kind::Deployment, world.path("deployment"), world.path("deployment/source")),
        (Kind::VaultPush, world.path("push"), world.path("push")),
    ] {
        let (_, deletions) = deletions.iter().find(|(of, _)| *of == kind).unwrap();
        let object = (kind, "app");
        let request = match kind {
            Kind::Secret => {
                world.secret("app", &[("k", "v")], json!({})).await;
                path_is(&path)
            }
            Kind::VaultPush => {
                let spec = json!({ "secrets": { "names": ["source"] }, "path": path, "suspend": true });
                world.vault_push("app", spec).await;
                json!({ "spec": { "suspend": false } })
            }
            _ => {
                world.workload(kind, "app", &["source"], json!({})).await;
                path_is(&path)
            }
        };
        let deletion = escape(&world, deletions, object, request).await;
        world.holds(&held, &[("k", "v")]).await;
        vanish(&world, deletion, object).await;
        world.is_deleted(&held).await;
        until(&format!("{path} has no mark"), async || {
            let marks = if held.starts_with("old/") { [].into() } else { world.marks(&held).await };
            if marks.is_empty() { Ok(()) } else { Err(format!("{marks:?}")) }
        })
        .await;
    }
    operator.settled().await;
    let bound = operator.metric("konverge_push_bindings", "");
    assert!(bound < 0.5, "nothing is kept of objects that are gone: {bound}");
}

#[tokio::test]
async fn the_policy_of_the_object_counts_as_on_any_other_deletion() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let deletions = HeldDeletions::begin(&world.client, &world.namespace, &Kind::Secret.resource()).await.unwrap();
    for (policy, is_readable, versions) in
        [("soft", false, 1), ("destroy", false, 1), ("metadata", false, 0), ("keep", true, 1)]
    {
        let (path, object) = (world.path(policy), (Kind::Secret, policy));
        world.secret(policy, &[("k", "v")], json!({ "vault-sync.io/deletion-policy": policy })).await;
        let deletion = escape(&world, &deletions, object, path_is(&path)).await;
        vanish(&world, deletion, object).await;
        // The mark goes last, whatever becomes of the content.
        until(&format!("{path} is cleared"), async || {
            let marks = world.marks(&path).await;
            if marks.is_empty() { Ok(()) } else { Err(format!("{marks:?}")) }
        })
        .await;
        assert_eq!(world.read(&path).await.is_some(), is_readable, "{policy}");
        assert_eq!(world.versions(&path).await, versions, "{policy}");
        let metadata = world.vault.metadata(&world.locate(&path).await).await.unwrap();
        let is_destroyed = metadata.is_some_and(|metadata| metadata.versions.values().all(|version| version.destroyed));
        assert_eq!(is_destroyed, policy == "destroy", "{policy}");
    }
}

#[tokio::test]
async fn while_vault_is_sealed_it_is_remembered_and_another_object_of_the_name_keeps_what_it_writes() {
    let options = VaultOptions { storage: VaultStorage::File, ..VaultOptions::default() };
    let server = VaultServer::start(options).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    let world = World::with(&server).await;
    let operator = world.operator(&[]).await;
    let deletions = HeldDeletions::begin(&world.client, &world.namespace, &Kind::Secret.resource()).await.unwrap();
    // One comes again with another path, and one with the same.
    let (before, after, same) = (world.path("before"), world.path("after"), world.path("same"));
    let objects = [("moved", &before, &after), ("same", &same, &same)];
    let mut held = Vec::new();
    for (name, path, _) in objects {
        world.secret(name, &[("k", "former")], json!({})).await;
        held.push(escape(&world, &deletions, (Kind::Secret, name), path_is(path)).await);
    }
    server.seal().await.unwrap();
    for ((name, ..), deletion) in objects.into_iter().zip(held) {
        vanish(&world, deletion, (Kind::Secret, name)).await;
    }
    for (name, _, path) in objects {
        world.secret(name, &[("k", "next")], json!({ "vault-sync.io/path": path })).await;
    }
    // The names are free as soon as another process could clear the paths, too.
    let lists = Api::<ConfigMap>::namespaced(world.client.clone(), &world.home);
    let lists_orphans = async |number: usize| {
        until(&format!("the list of orphans has {number} objects"), async || {
            let list = lists.get_opt(CONFIG_MAP).await.unwrap().ok_or("no list")?.data.unwrap_or_default();
            if list.len() == number { Ok(()) } else { Err(format!("{list:?}")) }
        })
        .await;
    };
    lists_orphans(2).await;
    operator.stop().await;
    server.unseal().await.unwrap();
    let _operator = world.operator(&[]).await;
    world.holds(&after, &[("k", "next")]).await;
    world.holds(&same, &[("k", "next")]).await;
    world.is_deleted(&before).await;
    for (name, _, path) in objects {
        world.says(Kind::Secret, name, "Synced").await;
        let uid = world.api(Kind::Secret).get_metadata(name).await.unwrap().metadata.uid.unwrap();
        assert!(world.marks(path).await.values().any(|value| *value == uid), "{path} is marked for the next one");
    }
    lists_orphans(0).await;
    for path in [&after, &same] {
        let held = world.read(path).await;
        assert!(held.is_some_and(|held| held["k"] == "next"), "{path} is not the former's any more");
    }
}

/// A list does not show why an object is missing, so its mark in Vault and the operator's grace period decide, which is zero here.
#[tokio::test]
async fn content_of_an_object_that_only_a_list_lacks_is_found_and_cleared() {
    let log = CapturedLog::start();
    let world = World::new().await;
    let proxy = world.proxy().await;
    let _operator = world.operator_by(proxy.kubeconfig(), &[]).await;
    let deletions = HeldDeletions::begin(&world.client, &world.namespace, &Kind::Secret.resource()).await.unwrap();
    let (path, object) = (world.path("db"), (Kind::Secret, "db"));
    world.secret("db", &[("k", "v")], json!({})).await;
    let deletion = escape(&world, &deletions, object, path_is(&path)).await;
    // From now on, each watch ends before its first event, and a list follows.
    let rule = "{ when: { verbs: [watch], resources: [secrets] }, then: { error_event: 410 } }";
    proxy.set(Plan::parse(&format!("rules: [{rule}]")).unwrap()).unwrap();
    proxy.end_connections();
    let fires = async |times: u64| {
        until(&format!("{times} watches have failed"), async || {
            let fired = proxy.fired()[0];
            if fired >= times { Ok(()) } else { Err(fired) }
        })
        .await;
    };
    fires(1).await;
    vanish(&world, deletion, object).await;
    // Between two failures there is a list.
    fires(proxy.fired()[0] + 2).await;
    proxy.clear();
    world.is_deleted(&path).await;
    let text = log.text();
    let told = text.lines().find(|line| line.contains("did not see its deletion"));
    assert!(told.is_some(), "{text}");
    let found = text.lines().find(|line| line.contains("found in Vault"));
    assert!(found.is_some_and(|line| line.contains(&path)), "{text}");
}
