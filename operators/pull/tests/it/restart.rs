//! An operator remembers the accepted state of zopp across restarts, so a server cannot go back to an older one.

use std::sync::Arc;

use konverge_kubectl::{Cluster, Examined, Finding, Verdict};
use konverge_pull::{annotations::RECORD, plugin::Pull, zopp::record::read_unverified};
use konverge_zopp_client::{Fingerprint, Trust};
use konverge_zopp_crypto::SigningSeed;
use serde_json::json;

use crate::{
    scripted::Scene,
    world::{Operator, World, control_plane},
};

/// A protected environment with `A=2` after `A=1`, and a Secret in sync with it.
async fn protected() -> (World, Arc<Scene>, Operator) {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.protect();
    scene.set("A", "1");
    scene.set("A", "2");
    world.bind("backend", &scene).await;
    let operator = world.restarted(&[]).await;
    world.holds("backend", &[("A", "2")]).await;
    (world, scene, operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_refuses_an_older_state_until_a_person_accepts_it_once() {
    let (world, scene, operator) = protected().await;
    operator.stop().await;
    scene.set_silently("A", "revoked");
    scene.state_version(1);
    let operator = world.restarted(&[]).await;
    world.told_of("backend", "SourceNotCurrent", "--accept-older 'acme/backend/production=WORD'").await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "2")]).await;
    operator.stop().await;

    let accept = ["--accept-older", "acme/backend/production=monday"];
    let operator = world.restarted(&accept).await;
    world.holds("backend", &[("A", "revoked")]).await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
    operator.stop().await;
    // The flag is still there, and its word is used up.
    scene.set_silently("A", "revoked");
    scene.state_version(1);
    let operator = world.restarted(&accept).await;
    operator.counts(r#"konverge_pull_bindings{reason="SourceNotCurrent"} 1"#).await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "3")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_refuses_an_older_version_of_an_environment_without_a_manifest() {
    let (world, scene, operator) = World::in_sync().await;
    scene.set("A", "2");
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
    operator.stop().await;
    scene.set_silently("A", "old");
    scene.state_version(2);
    let operator = world.restarted(&[]).await;
    world.told_of("backend", "SourceWentBack", "--accept-older").await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "3")]).await;
    operator.stop().await;
    let _operator = world.restarted(&["--accept-older", "acme/backend/production=monday"]).await;
    world.holds("backend", &[("A", "old")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_refuses_a_replaced_environment() {
    let (world, scene, operator) = World::in_sync().await;
    operator.stop().await;
    let former = scene.recreate();
    scene.set("A", "anew");
    let operator = world.restarted(&[]).await;
    world.told_of("backend", "EnvironmentReplaced", "--accept-older 'acme/backend/production=WORD'").await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
    operator.stop().await;

    let accept = ["--accept-older", "acme/backend/production=monday"];
    let operator = world.restarted(&accept).await;
    world.holds("backend", &[("A", "anew")]).await;
    operator.stop().await;
    // A backup from before. The flag is still there, and its word is used up.
    scene.bring_back(former);
    let operator = world.restarted(&accept).await;
    operator.counts(r#"konverge_pull_bindings{reason="EnvironmentReplaced"} 1"#).await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "anew")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_misses_the_manifest_that_another_secret_has_seen() {
    let (world, scene, operator) = protected().await;
    operator.stop().await;
    scene.unprotect();
    scene.remove_silently("A");
    scene.set_silently("B", "1");
    // A new binding of an environment that is known from another Secret. It comes first in the list.
    world.bind("a-new-one", &scene).await;
    let operator = world.restarted(&[]).await;
    for name in ["a-new-one", "backend"] {
        world.told_of(name, "SourceNotCurrent", "no manifest of an environment that had one").await;
    }
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "2")]).await;
    world.holds("a-new-one", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_refuses_another_workspace_key() {
    let (world, scene, operator) = World::in_sync().await;
    operator.stop().await;
    world.server.forge_key();
    scene.recreate();
    scene.set("A", "forged");
    world.bind("a-new-one", &scene).await;
    let operator = world.restarted(&[]).await;
    for name in ["a-new-one", "backend"] {
        world.told(name, "WorkspaceKeyChanged").await;
    }
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
    world.holds("a-new-one", &[]).await;
}

/// The file names the administrators of the first key for ever, because an operator does not write it.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_follows_new_keys_of_administrators_and_no_others() {
    let world = World::new().await;
    let scene = world.server.create("production");
    let [alice, bob] = [(); 2].map(|()| SigningSeed::generate().unwrap());
    let file = world.server.file(&[&alice]);
    let start = async || {
        let zopp = world.server.client_with(|config| config.trust = Trust::new(file.clone()));
        world.operator_of(zopp, control_plane().await.kubeconfig(), &[]).await
    };
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let mut operator = start().await;
    world.holds("backend", &[("A", "1")]).await;
    for (value, maker, administrators) in
        [("2", &alice, &[&alice, &bob][..]), ("3", &bob, &[&alice, &bob]), ("4", &alice, &[&alice])]
    {
        operator.stop().await;
        world.server.rotate_key(maker, administrators);
        scene.set("A", value);
        operator = start().await;
        world.holds("backend", &[("A", value)]).await;
    }
    operator.stop().await;
    // The last key was made to leave Bob out.
    world.server.rotate_key(&bob, &[&bob]);
    scene.set("A", "5");
    let operator = start().await;
    world.told_of("backend", "WorkspaceKeyChanged", "not among the administrators").await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "4")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_operator_refuses_the_key_that_a_rotation_replaced() {
    let (world, scene, operator) = protected().await;
    world.bind("a-first", &scene).await;
    world.holds("a-first", &[("A", "2")]).await;
    let former = world.record("a-first").await.unwrap();
    let former_key = read_unverified(&former).unwrap().key;

    let administrator = SigningSeed::generate().unwrap();
    world.server.rotate_key(&administrator, &[&administrator]);
    scene.set("A", "3");
    for name in ["a-first", "backend"] {
        world.holds(name, &[("A", "3")]).await;
        let key = read_unverified(&world.record(name).await.unwrap()).unwrap().key;
        assert_ne!(key.fingerprint, former_key.fingerprint);
        assert_eq!((former_key.generation, key.generation), (1, 2));
        assert_eq!((key.root, former_key.root), (former_key.fingerprint, former_key.fingerprint));
    }
    operator.stop().await;

    // The record that is read first is a genuine one of the former key, which an editor of the Secret can put back.
    world.merge("a-first", "editor", json!({ "metadata": { "annotations": { RECORD: former } } })).await;
    world.server.bring_back_former_key();
    scene.set("A", "by a removed member");
    let operator = world.restarted(&[]).await;
    for name in ["a-first", "backend"] {
        world.told(name, "WorkspaceKeyChanged").await;
    }
    world.stays("backend", &[&operator]).await;
    for name in ["a-first", "backend"] {
        world.holds(name, &[("A", "3")]).await;
    }
}

/// The backup is from before the key was replaced. The file pins the key with which the replacements began, or nothing does.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_the_former_key_is_accepted_once_by_a_person() {
    for is_pinned in [true, false] {
        let world = World::new().await;
        let [scene, other] = ["production", "staging"].map(|name| world.server.create(name));
        for scene in [&scene, &other] {
            scene.protect();
            scene.set("A", "backed up");
        }
        let administrator = SigningSeed::generate().unwrap();
        let file = world.server.file(&[&administrator]);
        let start = async |arguments: &[&str]| {
            let trust = if is_pinned { Trust::new(file.clone()) } else { Trust::default() };
            let zopp = world.server.client_with(|config| config.trust = trust);
            world.operator_of(zopp, control_plane().await.kubeconfig(), arguments).await
        };
        world.bind("backend", &scene).await;
        world.bind("other", &other).await;
        let operator = start(&[]).await;
        for name in ["backend", "other"] {
            world.holds(name, &[("A", "backed up")]).await;
        }
        world.server.rotate_key(&administrator, &[&administrator]);
        for (name, scene) in [("backend", &scene), ("other", &other)] {
            scene.set("A", "lost");
            world.holds(name, &[("A", "lost")]).await;
        }
        operator.stop().await;

        world.server.bring_back_former_key();
        scene.set_silently("A", "backed up");
        scene.state_version(1);
        let operator = start(&[]).await;
        world.told_of("backend", "WorkspaceKeyChanged", "--accept-older 'acme/backend/production=WORD'").await;
        operator.stop().await;

        let accept = ["--accept-older", "acme/backend/production=monday"];
        let operator = start(&accept).await;
        world.holds("backend", &[("A", "backed up")]).await;
        world.holds("other", &[("A", "lost")]).await;
        operator.stop().await;
        // The word is used up: a key that follows is remembered.
        let operator = start(&accept).await;
        scene.set("A", "1");
        world.holds("backend", &[("A", "1")]).await;
        world.server.rotate_key(&administrator, &[&administrator]);
        scene.set("A", "2");
        world.holds("backend", &[("A", "2")]).await;
        operator.stop().await;
        world.server.bring_back_former_key();
        scene.set("A", "by a removed member");
        let operator = start(&accept).await;
        world.told("backend", "WorkspaceKeyChanged").await;
        world.stays("backend", &[&operator]).await;
        world.holds("backend", &[("A", "2")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_written_again_when_it_was_removed_or_altered_and_at_rest_nothing_is() {
    let (world, scene, operator) = protected().await;
    let record = world.record("backend").await.unwrap();
    for value in [json!(null), json!("anything")] {
        world
            .merge(
                "backend",
                "somebody",
                json!({ "metadata": { "annotations": { "konverge.dev/zopp-record": value } } }),
            )
            .await;
        crate::world::until("the record is back", async || {
            let found = world.record("backend").await;
            if found.as_ref() == Some(&record) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
    world.stays("backend", &[&operator]).await;
    operator.stop().await;
    let operator = world.restarted(&[]).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    world.stays("backend", &[&operator]).await;
    // A Secret that is created again gets the record with the first write.
    world.delete("backend").await;
    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "2")]).await;
    assert_eq!(world.record("backend").await, Some(record));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_another_principal_tells_nothing() {
    let (world, scene, operator) = protected().await;
    operator.stop().await;
    let record = world.record("backend").await;
    let kubeconfig = control_plane().await.kubeconfig();
    let operator = world.operator_of(world.server.client_of_another_principal(), kubeconfig, &[]).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    crate::world::until("the record is of the new principal", async || {
        let found = world.record("backend").await;
        if found != record && found.is_some() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_without_a_manifest_is_refused_where_one_is_required() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let kubeconfig = control_plane().await.kubeconfig();
    let zopp = world.server.client_with(|config| config.require_manifest = true);
    let operator = world.operator_of(zopp, kubeconfig, &[]).await;
    world.told_of("backend", "SourceNotCurrent", "--require-manifest").await;
    world.stays("backend", &[&operator]).await;
    let protected = world.server.create("staging");
    protected.protect();
    protected.set("B", "2");
    // The server did not know the call, so the client repeats it only after a while, or in another process.
    operator.stop().await;
    world.bind("backend", &protected).await;
    let zopp = world.server.client_with(|config| config.require_manifest = true);
    let _operator = world.operator_of(zopp, kubeconfig, &[]).await;
    world.holds("backend", &[("B", "2")]).await;
}

/// Returns the findings of the plugin's `doctor` about keys of workspaces.
async fn doctor(world: &World) -> Vec<Finding> {
    let cluster = Cluster { client: world.kubernetes.clone(), namespace: world.namespace.clone() };
    let findings = Pull.doctor(&cluster, Some(&world.namespace)).await;
    findings.into_iter().filter(|finding| finding.about == "workspace key").collect()
}

/// Returns the fingerprint in a text with the flag that pins it.
fn pinned_in(text: &str) -> Fingerprint {
    let line = text.split("--workspace-fingerprint 'acme=").nth(1).expect("a line that pins the key");
    line.split('\'').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_nothing_pins_is_refused_until_a_person_pins_it() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let kubeconfig = control_plane().await.kubeconfig();
    let unpinned = || world.server.client_with(|config| config.trust_first_key = false);
    let operator = world.operator_of(unpinned(), kubeconfig, &[]).await;
    let text = world.told("backend", "WorkspaceKeyUnknown").await;
    let parts =
        ["acme/backend/production", "nothing pins the key of workspace 'acme'", "zopp workspace fingerprint -w acme"];
    assert!(parts.iter().all(|part| text.contains(part)) && text.contains("--trust-first-key"), "{text}");
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[]).await;
    let found = doctor(&world).await;
    assert_eq!(found.iter().map(|finding| finding.verdict).collect::<Vec<_>>(), [Verdict::Wrong], "{found:?}");
    let fingerprint = pinned_in(&found[0].text);
    operator.stop().await;

    let zopp = unpinned();
    zopp.connection().trust().pin_workspace("acme", fingerprint);
    let operator = world.operator_of(zopp, kubeconfig, &[]).await;
    world.holds("backend", &[("A", "1")]).await;
    operator.counts("konverge_pull_unpinned_workspaces 0").await;
    assert_eq!(doctor(&world).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_key_is_believed_once_and_loudly_where_that_is_allowed() {
    let (world, scene, operator) = World::in_sync().await;
    let kubeconfig = control_plane().await.kubeconfig();
    let is_loud = async |operator: &Operator| {
        operator.counts("konverge_pull_unpinned_workspaces 1").await;
        let ready = operator.ready();
        assert!(ready.contains("workspace-keys") && ready.contains("--workspace-fingerprint 'acme="), "{ready}");
        let found = doctor(&world).await;
        assert_eq!(found.iter().map(|finding| finding.verdict).collect::<Vec<_>>(), [Verdict::Note], "{found:?}");
        pinned_in(&found[0].text)
    };
    let fingerprint = is_loud(&operator).await;
    operator.stop().await;

    // The record in the cluster pins the key at every start, but no person has confirmed it yet.
    let unpinned = || world.server.client_with(|config| config.trust_first_key = false);
    for zopp in [world.server.client(), unpinned()] {
        let operator = world.operator_of(zopp, kubeconfig, &[]).await;
        scene.set("A", "2");
        world.holds("backend", &[("A", "2")]).await;
        assert_eq!(is_loud(&operator).await, fingerprint);
        operator.stop().await;
        scene.set("A", "1");
    }
    let zopp = unpinned();
    zopp.connection().trust().pin_workspace("acme", fingerprint);
    let operator = world.operator_of(zopp, kubeconfig, &[]).await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
    operator.counts("konverge_pull_unpinned_workspaces 0").await;
    assert!(!operator.ready().contains("--workspace-fingerprint"), "{}", operator.ready());
    assert_eq!(doctor(&world).await, []);
    operator.stop().await;

    world.server.forge_key();
    scene.recreate();
    scene.set("A", "forged");
    let operator = world.restarted(&[]).await;
    world.told("backend", "WorkspaceKeyChanged").await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "3")]).await;
}
