//! Bad input: each object gets a clear answer, nothing in Vault is lost, and no other object waits (F31, I16).

use std::collections::BTreeMap;

use konverge_push::object::Kind;
use konverge_testkit::eventually;
use serde_json::{Value, json};

use crate::world::{Operator, SOON, World, until};

/// Something well that is watched while something else is not.
struct Neighbour {
    path: String,
    round: u32,
}

impl Neighbour {
    async fn new(world: &World) -> Self {
        let path = world.path("neighbour");
        world.secret("neighbour", &[("n", "0")], json!({ "vault-sync.io/path": path })).await;
        world.holds(&path, &[("n", "0")]).await;
        Self { path, round: 0 }
    }

    /// It still follows.
    async fn is_well(&mut self, world: &World) {
        self.round += 1;
        let now = self.round.to_string();
        world.rotate("neighbour", &[("n", &now)]).await;
        world.holds(&self.path, &[("n", &now)]).await;
    }
}

/// A Secret in sync at a path of its own, and its neighbour.
async fn in_sync(world: &World) -> (Operator, Neighbour, String) {
    let operator = world.operator(&[]).await;
    let path = world.path("db");
    world.secret("db", &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let neighbour = Neighbour::new(world).await;
    (operator, neighbour, path)
}

#[tokio::test]
async fn w25_annotations_that_cannot_be_followed_say_so_and_leave_vault_as_it_is() {
    let world = World::new().await;
    let (_operator, mut neighbour, path) = in_sync(&world).await;
    let long = format!("[{{\"name\":\"db\",\"keys\":[\"{}\"]}}", "x".repeat(200 * 1024));
    let deep = "[".repeat(100_000);
    let beneath = |rest: &str| format!("{path}{rest}");
    for (annotation, value, state, told) in [
        ("secrets", "[{\"name\":", "InvalidSecretsAnnotation", "EOF"),
        ("secrets", "{}", "InvalidSecretsAnnotation", "list such as"),
        ("secrets", &long, "InvalidSecretsAnnotation", "EOF"),
        ("secrets", &deep, "InvalidSecretsAnnotation", "vault-sync.io/secrets"),
        ("deletion-policy", "shred", "InvalidAnnotation", "soft, destroy, metadata, keep"),
        ("existing", "overwrite", "InvalidAnnotation", "adopt, refuse"),
        ("binary", "hex", "InvalidAnnotation", "base64, refuse"),
        ("kv", "../../sys:2", "InvalidAnnotation", "secret:2"),
        ("path", &beneath("/../other"), "InvalidPath", "Vault stays as it is"),
        ("path", &beneath("/a\nb"), "InvalidPath", "Vault stays as it is"),
        ("path", &beneath("/a\u{0}b"), "InvalidPath", "Vault stays as it is"),
        ("path", &beneath("/a\u{7f}b"), "InvalidPath", "Vault stays as it is"),
        ("path", "/", "InvalidPath", "Vault stays as it is"),
        ("path", "secret", "InvalidPath", "Vault stays as it is"),
    ] {
        let annotation = format!("vault-sync.io/{annotation}");
        world.annotate(Kind::Secret, "db", json!({ &annotation: value })).await;
        let message = world.says(Kind::Secret, "db", state).await;
        assert!(message.contains(told) && message.len() < 2048, "{annotation} {value:.80?}: {message}");
        assert!(!message.contains(char::is_control), "{message:?}");
        let event = world.event("db", state).await;
        assert!(event.len() <= 1024, "{event}");
        world.holds(&path, &[("k", "v")]).await;
        let right = if annotation.ends_with("/path") { json!(path) } else { Value::Null };
        world.annotate(Kind::Secret, "db", json!({ &annotation: right })).await;
        world.says(Kind::Secret, "db", "Synced").await;
    }
    neighbour.is_well(&world).await;
    assert_eq!(world.versions(&path).await, 1, "nothing of it was written");
}

#[tokio::test]
async fn what_is_only_odd_is_put_right_and_told() {
    let world = World::new().await;
    let (operator, mut neighbour, path) = in_sync(&world).await;
    for (annotation, value, told) in [
        ("reconcile", "5", "counts as off"),
        ("reconcile", "1d", "counts as off"),
        ("reconcile", "-1s", "counts as 30s"),
        ("reconcile", "9999999999999h", "counts as off"),
        ("rotation-check", "sometimes", "has no effect"),
        ("preserve-on-delete", "yes", "preserves nothing"),
        ("pause", "yes", "has no effect"),
        ("secrets", "[]", "names no Secret"),
        ("secrets", r#"[{"name":"db","keys":["k"],"wildcard":true},{"name":"db","keys":["k"]}]"#, ""),
        ("unheard-of", "yes", ""),
    ] {
        let annotation = format!("vault-sync.io/{annotation}");
        world.annotate(Kind::Secret, "db", json!({ &annotation: value })).await;
        if told.is_empty() {
            operator.settled().await;
        } else {
            until(&format!("an event tells {told:?} of {annotation}: {value}"), async || {
                let notes = world.notes("db").await;
                if notes.iter().any(|note| note.contains(told) && note.contains(&annotation)) {
                    Ok(())
                } else {
                    Err(format!("{notes:?}"))
                }
            })
            .await;
        }
        world.holds(&path, &[("k", "v")]).await;
        world.annotate(Kind::Secret, "db", json!({ &annotation: null })).await;
    }
    operator.settled().await;
    world.says(Kind::Secret, "db", "Synced").await;
    neighbour.is_well(&world).await;
    assert_eq!(world.versions(&path).await, 1);
}

#[tokio::test]
async fn a_path_that_is_a_folder_of_another_is_a_path_of_its_own() {
    let world = World::new().await;
    let (_operator, mut neighbour, path) = in_sync(&world).await;
    let beneath = format!("{path}/beneath");
    world.secret("beneath", &[("b", "1")], json!({ "vault-sync.io/path": beneath })).await;
    world.holds(&beneath, &[("b", "1")]).await;
    for policy in ["soft", "metadata"] {
        world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/deletion-policy": policy })).await;
        world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/path": world.path(policy) })).await;
        world.holds(&world.path(policy), &[("k", "v")]).await;
        world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/path": path })).await;
        world.holds(&path, &[("k", "v")]).await;
    }
    world.says(Kind::Secret, "db", "Synced").await;
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    assert_eq!(world.read(&path).await, None);
    world.holds(&beneath, &[("b", "1")]).await;
    neighbour.is_well(&world).await;
}

#[tokio::test]
async fn large_secrets_many_keys_and_what_is_no_text_come_whole_or_say_why_not() {
    let world = World::new().await;
    let (operator, mut neighbour, _) = in_sync(&world).await;
    let large = "x".repeat(1000 * 1024);
    // A value that is no text grows by a third, to more than the test's Vault takes.
    let no_text = |length: usize| serde_json::to_value(k8s_openapi::ByteString(vec![0xff; length])).unwrap();
    let keys: BTreeMap<String, String> = (0..10_000).map(|key| (format!("key-{key}"), "v".to_owned())).collect();
    for (name, mut object, state) in [
        ("large", json!({ "stringData": { "k": large } }), "Synced"),
        ("no-text", json!({ "data": { "k": no_text(700 * 1024) } }), "Synced"),
        ("many", json!({ "stringData": keys }), "Synced"),
        ("too-large", json!({ "data": { "k": no_text(1000 * 1024) } }), "TooLargeForVault"),
    ] {
        object["metadata"] = json!({ "name": name, "annotations": { "vault-sync.io/path": world.path(name) } });
        // The managed fields of 10,000 keys would be a burden of their own, so this is no server-side apply.
        let object = serde_json::from_value(object).unwrap();
        world.api(Kind::Secret).create(&kube::api::PostParams::default(), &object).await.unwrap();
        world.says(Kind::Secret, name, state).await;
        neighbour.is_well(&world).await;
    }
    assert_eq!(world.read(&world.path("large")).await.unwrap()["k"], large);
    assert_eq!(world.read(&world.path("no-text")).await.unwrap()["k"].len(), (700 * 1024_usize).div_ceil(3) * 4);
    assert_eq!(world.read(&world.path("many")).await.unwrap().len(), 10_000);
    assert!(world.event("no-text", "ValuesEncoded").await.contains("base64"));
    assert!(world.event("too-large", "TooLargeForVault").await.contains("make it smaller"));
    assert_eq!(operator.get("/readyz").await.0, 200, "Vault serves");
}

/// The API server takes 256 KiB of annotations of one object.
#[tokio::test]
async fn annotations_that_leave_no_room_for_the_record_are_named() {
    let world = World::new().await;
    let (_operator, mut neighbour, _) = in_sync(&world).await;
    let path = world.path("full");
    let annotations = json!({ "vault-sync.io/path": path, "example.com/notes": "x".repeat(262_000) });
    world.secret("full", &[("k", "v")], annotations).await;
    let told = world.event("full", "ObjectNotWritable").await;
    assert!(told.contains("example.com/notes with 262017 bytes") && told.contains("vault-sync.io/status"), "{told}");
    assert_eq!(world.versions(&path).await, 0, "nothing is written without a record");
    neighbour.is_well(&world).await;
    world.annotate(Kind::Secret, "full", json!({ "example.com/notes": null })).await;
    world.holds(&path, &[("k", "v")]).await;
}

#[tokio::test]
async fn a_secret_without_data_is_not_written_and_an_immutable_one_is() {
    let world = World::new().await;
    let (_operator, mut neighbour, path) = in_sync(&world).await;
    world.merge(Kind::Secret, "db", json!({ "data": null })).await;
    let told = world.says(Kind::Secret, "db", "SourceEmpty").await;
    assert!(told.contains("no value to write"), "{told}");
    world.holds(&path, &[("k", "v")]).await;
    let fixed = world.path("fixed");
    let object = json!({
        "metadata": { "annotations": { "vault-sync.io/path": fixed } }, "immutable": true, "stringData": { "k": "v" },
    });
    world.apply(Kind::Secret, "fixed", object).await;
    world.holds(&fixed, &[("k", "v")]).await;
    world.says(Kind::Secret, "fixed", "Synced").await;
    world.delete(Kind::Secret, "fixed").await;
    world.gone(Kind::Secret, "fixed").await;
    assert_eq!(world.read(&fixed).await, None);
    neighbour.is_well(&world).await;
}

#[tokio::test]
async fn a_record_that_somebody_spoiled_or_took_away_is_written_again() {
    let world = World::new().await;
    let (_operator, mut neighbour, path) = in_sync(&world).await;
    let right = world.record(Kind::Secret, "db").await.unwrap();
    let mut without_paths = right.clone();
    without_paths["paths"] = json!({});
    for spoiled in [json!("garbage"), json!(null), json!("{}"), json!("\u{0}"), without_paths.to_string().into()] {
        world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/status": spoiled })).await;
        let again = eventually(SOON, || async {
            let record = world.record(Kind::Secret, "db").await?;
            (record["paths"] == right["paths"] && record["state"] == "Synced").then_some(())
        });
        assert!(again.await.is_ok(), "{spoiled}: {:?}", world.record(Kind::Secret, "db").await);
    }
    assert_eq!(world.versions(&path).await, 1);
    neighbour.is_well(&world).await;
    // A path that was taken out of the record and moved at once is cleared all the same.
    let moved = world.path("moved");
    let annotations = json!({ "vault-sync.io/status": without_paths.to_string(), "vault-sync.io/path": moved });
    world.annotate(Kind::Secret, "db", annotations).await;
    world.holds(&moved, &[("k", "v")]).await;
    world.is_deleted(&path).await;
}

#[tokio::test]
async fn a_record_that_somebody_wrote_reaches_no_path_that_the_object_may_not_write() {
    let world = World::new().await;
    let _operator = world.operator(&["--allow-path", &format!("*=secret/data/{}/*", world.namespace)]).await;
    let name = &world.namespace;
    let foreign = [(format!("secret/data/team-{name}/db"), "secret", 2), (format!("old/team-{name}/db"), "old", 1)];
    for (path, ..) in &foreign {
        world.write(path, &[("by", "hand")]).await;
    }
    let own = world.path("db");
    world.secret("db", &[("k", "v")], json!({ "vault-sync.io/path": own })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let mut forged = world.record(Kind::Secret, "db").await.unwrap();
    for (path, mount, kv) in &foreign {
        forged["paths"][path] = json!({ "mount": mount, "kv": kv, "written": true, "version": 1 });
    }
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/status": forged.to_string() })).await;
    // Paths that are not asked for are cleared where they are ours.
    until("the record is as it should be", async || {
        let record = world.record(Kind::Secret, "db").await.ok_or("none")?;
        let paths = record["paths"].as_object().ok_or("no paths")?;
        if paths.keys().eq([&own]) { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    for (path, ..) in &foreign {
        world.holds(path, &[("by", "hand")]).await;
    }
    // The same when the object goes, and with it the record is all there is.
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/pause": "true" })).await;
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/status": forged.to_string() })).await;
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    assert_eq!(world.read(&own).await, None);
    for (path, ..) in &foreign {
        world.holds(path, &[("by", "hand")]).await;
    }
}

/// A user who may annotate an object may also name the engine, on the object and in its record.
#[tokio::test]
async fn what_is_said_of_an_engine_counts_for_less_than_what_vault_says() {
    let (theirs, ours) = (World::new().await, World::new().await);
    let _operators = (theirs.operator(&[]).await, ours.operator(&[]).await);
    let foreign = theirs.path("db");
    theirs.secret("db", &[("from", "them")], json!({ "vault-sync.io/path": foreign })).await;
    theirs.says(Kind::Secret, "db", "Synced").await;
    theirs.rotate("db", &[("from", "them again")]).await;
    theirs.holds(&foreign, &[("from", "them again")]).await;
    let (name, marks) = (&theirs.namespace, theirs.marks(&foreign).await);
    let are_theirs = async || {
        theirs.holds(&foreign, &[("from", "them again")]).await;
        assert_eq!(theirs.versions(&foreign).await, 2);
        assert_eq!(theirs.marks(&foreign).await, marks);
    };
    let own = ours.path("own");
    ours.secret("own", &[("k", "v")], json!({ "vault-sync.io/path": own })).await;
    ours.says(Kind::Secret, "own", "Synced").await;
    let mut forged = ours.record(Kind::Secret, "own").await.unwrap();
    for route in ["data", "metadata", "destroy", "delete", "undelete", "subkeys"] {
        let path = format!("secret/{route}/{name}/db");
        forged["paths"][path] = json!({ "mount": "secret", "kv": 1, "written": true });
    }
    ours.annotate(Kind::Secret, "own", json!({ "vault-sync.io/status": forged.to_string() })).await;
    until("the record is as it should be", async || {
        let record = ours.record(Kind::Secret, "own").await.ok_or("none")?;
        let paths = record["paths"].as_object().ok_or("no paths")?;
        if paths.keys().eq([&own]) { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    are_theirs().await;
    // The same when the object goes, and with it the record is all there is.
    ours.annotate(Kind::Secret, "own", json!({ "vault-sync.io/pause": "true" })).await;
    ours.annotate(Kind::Secret, "own", json!({ "vault-sync.io/status": forged.to_string() })).await;
    ours.delete(Kind::Secret, "own").await;
    ours.gone(Kind::Secret, "own").await;
    assert_eq!(ours.read(&own).await, None);
    are_theirs().await;
    // And by the annotation, whatever policy is asked for.
    for (kv, path, state) in [
        ("secret:1", foreign.clone(), "OwnedByAnother"),
        ("secret/data:1", foreign.clone(), "OwnedByAnother"),
        ("secret:1", format!("secret/metadata/{name}/db"), "InvalidPath"),
        ("secret/metadata:1", format!("secret/metadata/{name}/db"), "InvalidPath"),
        ("secret:1", format!("secret/destroy/{name}/db"), "InvalidPath"),
    ] {
        let annotations = json!({
            "vault-sync.io/path": path, "vault-sync.io/kv": kv, "vault-sync.io/deletion-policy": "metadata",
        });
        ours.secret("liar", &[("max_versions", "1")], annotations).await;
        ours.says(Kind::Secret, "liar", state).await;
        are_theirs().await;
        ours.delete(Kind::Secret, "liar").await;
        ours.gone(Kind::Secret, "liar").await;
        are_theirs().await;
    }
}

#[tokio::test]
async fn a_record_that_somebody_wrote_takes_no_path_from_another_object_where_there_are_no_marks() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let shared = format!("old/{}/db", world.namespace);
    world.secret("db", &[("k", "v")], json!({ "vault-sync.io/path": shared })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let own = world.path("own");
    world.secret("own", &[("k", "v")], json!({ "vault-sync.io/path": own })).await;
    world.says(Kind::Secret, "own", "Synced").await;
    let mut forged = world.record(Kind::Secret, "own").await.unwrap();
    forged["paths"][&shared] = json!({ "mount": "old", "kv": 1, "written": true });
    world.annotate(Kind::Secret, "own", json!({ "vault-sync.io/status": forged.to_string() })).await;
    until("the record is as it should be", async || {
        let record = world.record(Kind::Secret, "own").await.ok_or("none")?;
        let paths = record["paths"].as_object().ok_or("no paths")?;
        if paths.keys().eq([&own]) { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    world.holds(&shared, &[("k", "v")]).await;
    world.annotate(Kind::Secret, "own", json!({ "vault-sync.io/pause": "true" })).await;
    world.annotate(Kind::Secret, "own", json!({ "vault-sync.io/status": forged.to_string() })).await;
    world.delete(Kind::Secret, "own").await;
    world.gone(Kind::Secret, "own").await;
    world.holds(&shared, &[("k", "v")]).await;
    // The other owner still has it.
    world.rotate("db", &[("k", "w")]).await;
    world.holds(&shared, &[("k", "w")]).await;
}

#[tokio::test]
async fn w23_a_copy_with_the_record_of_another_object_owns_nothing_of_it() {
    let world = World::new().await;
    let (_operator, mut neighbour, path) = in_sync(&world).await;
    let record = world.record(Kind::Secret, "db").await.unwrap().to_string();
    let copied = json!({ "vault-sync.io/path": path, "vault-sync.io/status": record });
    world.secret("copy", &[("k", "copied")], copied).await;
    let told = world.says(Kind::Secret, "copy", "OwnedByAnother").await;
    assert!(told.contains("/db"), "{told}");
    world.delete(Kind::Secret, "copy").await;
    world.gone(Kind::Secret, "copy").await;
    world.holds(&path, &[("k", "v")]).await;
    assert_eq!(world.versions(&path).await, 1);
    neighbour.is_well(&world).await;
}

#[tokio::test]
async fn what_is_kept_is_left_to_its_owner_by_who_never_had_it() {
    let (theirs, ours) = (World::new().await, World::new().await);
    let path = theirs.path("shared");
    let _operators = (theirs.operator(&[]).await, ours.operator(&[]).await);
    theirs.secret("db", &[("from", "them")], json!({ "vault-sync.io/path": path })).await;
    theirs.says(Kind::Secret, "db", "Synced").await;
    let marks = theirs.marks(&path).await;
    let annotations = json!({ "vault-sync.io/path": path, "vault-sync.io/preserve-on-delete": "true" });
    ours.secret("db", &[("from", "us")], annotations).await;
    ours.says(Kind::Secret, "db", "OwnedByAnother").await;
    ours.delete(Kind::Secret, "db").await;
    ours.gone(Kind::Secret, "db").await;
    assert_eq!(theirs.marks(&path).await, marks);
    theirs.holds(&path, &[("from", "them")]).await;
}
