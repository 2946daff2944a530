//! Environments as a whole: read with their manifest, changed at once.

use futures::StreamExt;
use konverge_zopp_proto::{
    secrets::{
        ChangeSecretsRequest, ChangeSecretsResponse, EncryptedSecret, ReadEnvironmentRequest, ReadEnvironmentResponse,
        ReadSecretRequest, SealedManifest,
    },
    watch_secrets_response::Response,
};
use konverge_zopp_server::limits::Limits;
use tonic::{Code, Status};

use crate::harness::{Person, World, code, names, upsert};

fn secret(key: &str) -> EncryptedSecret {
    EncryptedSecret { key: key.into(), nonce: vec![6; 24], ciphertext: vec![7; 20] }
}

fn manifest(content: u8) -> SealedManifest {
    SealedManifest { nonce: vec![8; 24], ciphertext: vec![content; 40] }
}

fn request() -> ChangeSecretsRequest {
    let [workspace_name, project_name, environment_name] = names();
    ChangeSecretsRequest { workspace_name, project_name, environment_name, ..Default::default() }
}

async fn change(world: &World, person: &Person, change: ChangeSecretsRequest) -> Result<ChangeSecretsResponse, Status> {
    Ok(world.secrets().change_secrets(person.sign_secrets("ChangeSecrets", change)).await?.into_inner())
}

async fn set(world: &World, person: &Person, keys: &[&str]) -> Result<ChangeSecretsResponse, Status> {
    change(world, person, ChangeSecretsRequest { set: keys.iter().map(|key| secret(key)).collect(), ..request() }).await
}

async fn read(world: &World, person: &Person, known_tag: Option<&str>) -> Result<ReadEnvironmentResponse, Status> {
    let [workspace_name, project_name, environment_name] = names();
    let known_tag = known_tag.map(str::to_owned);
    let request = ReadEnvironmentRequest {
        workspace_name,
        project_name,
        environment_name,
        known_tag,
        without_ciphertexts: false,
    };
    Ok(world.secrets().read_environment(person.sign_secrets("ReadEnvironment", request)).await?.into_inner())
}

fn keys(answer: &ReadEnvironmentResponse) -> Vec<&str> {
    answer.secrets.iter().map(|secret| secret.key.as_str()).collect()
}

#[tokio::test]
async fn a_key_that_may_hold_a_value_is_refused_and_not_repeated() {
    let world = World::start().await;
    let owner = world.owner().await;
    for bad in ["KEY=hunter2", "hunter2\n", "hunter2\0", "hunter2\u{85}"] {
        let one = world.client().upsert_secret(owner.sign("UpsertSecret", upsert(bad))).await.unwrap_err();
        let many = set(&world, &owner, &["GOOD", bad]).await.unwrap_err();
        for refusal in [one, many] {
            assert_eq!(refusal.code(), Code::InvalidArgument, "{bad:?}: {refusal}");
            assert!(!refusal.message().contains("hunter2"), "{refusal}");
        }
    }
    let now = read(&world, &owner, None).await.unwrap();
    assert_eq!((now.version, keys(&now).len()), (0, 0), "nothing was kept");
}

#[tokio::test]
async fn a_change_of_many_keys_is_one_change_or_none() {
    let world = World::start().await;
    let owner = world.owner().await;
    let made = set(&world, &owner, &["A", "B", "C"]).await.unwrap();
    assert_eq!(made.version, 1);

    let missing = ChangeSecretsRequest { set: vec![secret("D")], delete: vec!["A".into(), "X".into()], ..request() };
    assert_eq!(code(change(&world, &owner, missing).await), Code::NotFound);
    let before = read(&world, &owner, None).await.unwrap();
    assert_eq!((keys(&before), before.version, &before.tag), (vec!["A", "B", "C"], 1, &made.tag));

    let mixed = ChangeSecretsRequest { set: vec![secret("D")], delete: vec!["A".into(), "B".into()], ..request() };
    assert_eq!(change(&world, &owner, mixed).await.unwrap().version, 2);
    assert_eq!(keys(&read(&world, &owner, None).await.unwrap()), ["C", "D"]);
}

#[tokio::test]
async fn watchers_are_told_of_one_key_by_name_and_of_several_to_list_again() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut watch = owner.watch(Some(0)).await.unwrap();
    set(&world, &owner, &["A"]).await.unwrap();
    match watch.next().await.unwrap().unwrap().response {
        Some(Response::Event(event)) => assert_eq!((event.key.as_str(), event.version), ("A", 1)),
        other => panic!("{other:?}"),
    }
    set(&world, &owner, &["B", "C"]).await.unwrap();
    match watch.next().await.unwrap().unwrap().response {
        Some(Response::Resync(resync)) => assert_eq!(resync.current_version, 2),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_change_of_another_state_than_the_expected_one_is_none() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let first = set(&world, &owner, &["A"]).await.unwrap();
    owner.set("B").await.unwrap();
    for outdated in [
        ChangeSecretsRequest { expected_version: Some(1), ..request() },
        ChangeSecretsRequest { expected_version: Some(3), ..request() },
        ChangeSecretsRequest { expected_tag: Some(first.tag.clone()), ..request() },
        ChangeSecretsRequest { expected_tag: Some(String::new()), ..request() },
    ] {
        let outdated = ChangeSecretsRequest { set: vec![secret("C")], ..outdated };
        assert_eq!(code(change(&world, &owner, outdated).await), Code::Aborted);
    }
    let now = read(&world, &owner, None).await.unwrap();
    assert_eq!(now.version, 2);
    let right = ChangeSecretsRequest {
        set: vec![secret("C")],
        expected_version: Some(2),
        expected_tag: Some(now.tag),
        ..request()
    };
    assert_eq!(change(&world, &owner, right).await.unwrap().version, 3);
}

#[tokio::test]
async fn a_reader_that_knows_the_state_gets_nothing_of_it_again() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    set(&world, &owner, &["A"]).await.unwrap();
    let known = read(&world, &owner, None).await.unwrap();
    let again = read(&world, &owner, Some(&known.tag)).await.unwrap();
    assert!(again.unchanged && again.secrets.is_empty() && again.dek_wrapped.is_empty(), "{again:?}");
    assert_eq!((&again.tag, again.version), (&known.tag, 1));

    // By whatever call it changes, and also if the version comes back with other content, as after a restore.
    owner.set("A").await.unwrap();
    let changed = read(&world, &owner, Some(&known.tag)).await.unwrap();
    assert!(!changed.unchanged && changed.tag != known.tag && changed.secrets.len() == 1, "{changed:?}");
    let saboteur = world.saboteur().await;
    saboteur.run("UPDATE environments SET version = 1").await;
    assert!(!read(&world, &owner, Some(&known.tag)).await.unwrap().unchanged);
    // An environment made anew begins with the same version.
    owner.delete_environment().await.unwrap();
    owner.create_environment("production").await.unwrap();
    let first = read(&world, &owner, None).await.unwrap();
    owner.delete_environment().await.unwrap();
    owner.create_environment("production").await.unwrap();
    assert!(!read(&world, &owner, Some(&first.tag)).await.unwrap().unchanged);
}

#[tokio::test]
async fn the_manifest_is_of_the_state_that_its_writer_knew_and_stays_when_others_write() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let state = read(&world, &owner, None).await.unwrap();
    assert_eq!(state.manifest, None);
    let alone =
        ChangeSecretsRequest { expected_tag: Some(state.tag.clone()), manifest: Some(manifest(1)), ..request() };
    let made = change(&world, &owner, alone.clone()).await.unwrap();
    assert_eq!(made.version, 0, "no secret changed");
    assert!(made.tag != state.tag, "but the manifest did");
    assert_eq!(code(change(&world, &owner, alone).await), Code::Aborted, "another writer was faster");

    owner.set("A").await.unwrap();
    let state = read(&world, &owner, None).await.unwrap();
    assert_eq!((state.version, state.manifest), (1, Some(manifest(1))), "a stock client's write leaves it");
    let both = ChangeSecretsRequest {
        expected_tag: Some(state.tag),
        set: vec![secret("B")],
        manifest: Some(manifest(2)),
        ..request()
    };
    change(&world, &owner, both).await.unwrap();
    let state = read(&world, &owner, None).await.unwrap();
    assert_eq!((state.version, state.manifest, state.secrets.len()), (2, Some(manifest(2)), 2));
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let world = World::start().await;
    let owner = world.owner().await;
    let tag = read(&world, &owner, None).await.unwrap().tag;
    for bad in [
        request(),
        ChangeSecretsRequest { set: vec![secret("A"), secret("A")], ..request() },
        ChangeSecretsRequest { set: vec![secret("A")], delete: vec!["A".into()], ..request() },
        ChangeSecretsRequest { set: vec![secret("a:b")], ..request() },
        ChangeSecretsRequest { set: vec![EncryptedSecret { nonce: vec![1], ..secret("A") }], ..request() },
        ChangeSecretsRequest { set: vec![EncryptedSecret { ciphertext: vec![1], ..secret("A") }], ..request() },
        ChangeSecretsRequest { set: vec![secret("A")], manifest: Some(manifest(1)), ..request() },
        ChangeSecretsRequest {
            expected_tag: Some(tag.clone()),
            manifest: Some(SealedManifest { nonce: vec![1], ..manifest(1) }),
            ..request()
        },
    ] {
        assert_eq!(code(change(&world, &owner, bad.clone()).await), Code::InvalidArgument, "{bad:?}");
    }
    assert_eq!(read(&world, &owner, None).await.unwrap().tag, tag);
}

#[tokio::test]
async fn limits_hold_for_the_whole_change() {
    let world = World::start_limited(Limits { environment_keys: 3, value_bytes: 64, ..Limits::default() }).await;
    let owner = world.owner().await;
    assert_eq!(code(set(&world, &owner, &["A", "B", "C", "D"]).await), Code::ResourceExhausted);
    assert_eq!(read(&world, &owner, None).await.unwrap().version, 0);
    set(&world, &owner, &["A", "B", "C"]).await.unwrap();
    // Room that the change itself makes counts.
    let replaced = ChangeSecretsRequest { set: vec![secret("D")], delete: vec!["A".into()], ..request() };
    change(&world, &owner, replaced).await.unwrap();
    let large = EncryptedSecret { ciphertext: vec![0; 200], ..secret("B") };
    let large = ChangeSecretsRequest { set: vec![large], ..request() };
    assert_eq!(code(change(&world, &owner, large).await), Code::ResourceExhausted);
}

#[tokio::test]
async fn reading_and_changing_need_their_roles() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    set(&world, &owner, &["A"]).await.unwrap();
    let reader = world.service(&mut owner).await;
    assert_eq!(code(read(&world, &reader, None).await), Code::PermissionDenied);
    owner.grant(&reader.principal_id, konverge_zopp_proto::Role::Read).await.unwrap();
    assert_eq!(keys(&read(&world, &reader, None).await.unwrap()), ["A"]);
    assert_eq!(code(set(&world, &reader, &["B"]).await), Code::PermissionDenied);
    owner.disable(&world, &reader.principal_id).await.unwrap();
    assert_eq!(code(read(&world, &reader, None).await), Code::Unauthenticated);
    let [workspace_name, project_name, environment_name] = names();
    let one = |key: &str| ReadSecretRequest {
        workspace_name: workspace_name.clone(),
        project_name: project_name.clone(),
        environment_name: environment_name.clone(),
        key: key.into(),
    };
    let stranger = world.member(&owner, "bob@example.com", None).await;
    let refused = world.secrets().read_secret(stranger.sign_secrets("ReadSecret", one("A"))).await;
    assert_eq!(code(refused), Code::PermissionDenied);
    for (key, expected) in [("A", 1), ("X", 0)] {
        let answer = world.secrets().read_secret(owner.sign_secrets("ReadSecret", one(key))).await.unwrap();
        assert_eq!(answer.into_inner().secrets.len(), expected, "{key}");
    }
}

#[tokio::test]
async fn each_key_of_a_change_is_on_record() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    set(&world, &owner, &["A", "B"]).await.unwrap();
    change(&world, &owner, ChangeSecretsRequest { delete: vec!["A".into()], ..request() }).await.unwrap();
    let reader = world.service(&mut owner).await;
    assert_eq!(code(set(&world, &reader, &["C"]).await), Code::PermissionDenied);
    let saboteur = world.saboteur().await;
    let rows: Vec<(String, String, String)> = saboteur
        .rows(
            "SELECT action, resource_id, result FROM audit_logs WHERE resource_type = 'secret' ORDER BY timestamp, id",
        )
        .await;
    let rows: Vec<_> =
        rows.iter().map(|(action, key, result)| (action.as_str(), key.as_str(), result.as_str())).collect();
    assert_eq!(
        rows,
        [
            ("secret.create", "A", "success"),
            ("secret.update", "A", "success"),
            ("secret.create", "B", "success"),
            ("secret.delete", "A", "success"),
        ]
    );
    let trail = world.into_audit_trail().await;
    assert!(trail.iter().any(|(action, result, ..)| action == "secret.update" && result == "permission_denied"));
}

#[tokio::test]
async fn a_captured_change_counts_once() {
    let world = World::start().await;
    let owner = world.owner().await;
    let signed = owner.sign_secrets("ChangeSecrets", ChangeSecretsRequest { set: vec![secret("A")], ..request() });
    let mut again = tonic::Request::new(signed.get_ref().clone());
    *again.metadata_mut() = signed.metadata().clone();
    world.secrets().change_secrets(signed).await.unwrap();
    assert_eq!(code(world.secrets().change_secrets(again).await), Code::Unauthenticated);
}
