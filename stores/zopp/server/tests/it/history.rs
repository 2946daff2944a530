//! Earlier values over the wire: who may see, restore and erase them, and what is on record.

use konverge_zopp_proto::{
    Role,
    secrets::{
        ChangeSecretsRequest, EncryptedSecret, ForgetSecretHistoryRequest, ReadSecretHistoryRequest,
        ReadSecretHistoryResponse, WrappedDek,
    },
};
use konverge_zopp_server::limits::Limits;
use tonic::{Code, Status};

use crate::harness::{Person, World, code, names};

fn request(key: &str) -> ReadSecretHistoryRequest {
    let [workspace_name, project_name, environment_name] = names();
    ReadSecretHistoryRequest { workspace_name, project_name, environment_name, key: key.into(), ..Default::default() }
}

async fn history(
    world: &World,
    person: &Person,
    request: ReadSecretHistoryRequest,
) -> Result<ReadSecretHistoryResponse, Status> {
    Ok(world.secrets().read_secret_history(person.sign_secrets("ReadSecretHistory", request)).await?.into_inner())
}

async fn forget(world: &World, person: &Person, key: &str) -> Result<u32, Status> {
    let [workspace_name, project_name, environment_name] = names();
    let request = ForgetSecretHistoryRequest { workspace_name, project_name, environment_name, key: key.into() };
    let answer = world.secrets().forget_secret_history(person.sign_secrets("ForgetSecretHistory", request)).await?;
    Ok(answer.into_inner().erased)
}

async fn change(world: &World, person: &Person, change: ChangeSecretsRequest) -> Result<(), Status> {
    let [workspace_name, project_name, environment_name] = names();
    let request = ChangeSecretsRequest { workspace_name, project_name, environment_name, ..change };
    world.secrets().change_secrets(person.sign_secrets("ChangeSecrets", request)).await.map(drop)
}

fn secret(key: &str, byte: u8) -> EncryptedSecret {
    EncryptedSecret { key: key.into(), nonce: vec![byte; 24], ciphertext: vec![byte; 20] }
}

fn setting(key: &str, byte: u8) -> ChangeSecretsRequest {
    ChangeSecretsRequest { set: vec![secret(key, byte)], ..Default::default() }
}

#[tokio::test]
async fn each_value_is_told_with_its_author_also_after_a_deletion() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let member = world.member(&owner, "member@example.com", Some("write")).await;
    // By the contract's calls and by our own.
    owner.set("A").await.unwrap();
    change(&world, &member, setting("A", 2)).await.unwrap();
    owner.unset("A").await.unwrap();

    let all = ReadSecretHistoryRequest { with_ciphertexts: true, ..request("A") };
    let answer = history(&world, &owner, all).await.unwrap();
    let shown: Vec<_> = answer
        .versions
        .iter()
        .map(|version| {
            let end = version.end.as_ref().unwrap();
            let [by, ended_by] = [&version.set_by, &end.by].map(|actor| actor.as_ref().unwrap().principal_id.as_str());
            (version.version, by, end.version, ended_by, end.deleted, version.ciphertext.is_empty())
        })
        .collect();
    let (laptop, other) = (owner.principal_id.as_str(), member.principal_id.as_str());
    assert_eq!(shown, [(2, other, 3, laptop, true, false), (1, laptop, 2, other, false, false)]);
    assert_eq!((answer.dek_wrapped.len(), answer.dek_nonce.len()), (48, 24));
    assert!(answer.versions.iter().all(|version| version.set_by.as_ref().unwrap().name == "laptop"));

    owner.set("A").await.unwrap();
    let numbers = history(&world, &owner, request("A")).await.unwrap().versions;
    let current: Vec<_> = numbers.iter().map(|version| (version.version, version.end.is_none())).collect();
    assert_eq!(current, [(4, true), (2, false), (1, false)]);
    assert!(numbers.iter().all(|version| version.ciphertext.is_empty()));
    assert!(history(&world, &owner, request("B")).await.unwrap().versions.is_empty());
}

#[tokio::test]
async fn readers_see_when_and_writers_what() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let writer = world.member(&owner, "writer@example.com", Some("write")).await;
    let reader = world.member(&owner, "reader@example.com", Some("read")).await;
    let nobody = world.member(&owner, "nobody@example.com", None).await;
    let service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    let stranger = world.join("eve@example.com").await;
    owner.set("A").await.unwrap();
    owner.set("A").await.unwrap();

    let values = [
        ReadSecretHistoryRequest { with_ciphertexts: true, ..request("A") },
        ReadSecretHistoryRequest { version: Some(1), ..request("A") },
    ];
    for (caller, when, what) in [
        (&writer, None, None),
        (&reader, None, Some(Code::PermissionDenied)),
        (&service, None, Some(Code::PermissionDenied)),
        (&nobody, Some(Code::PermissionDenied), Some(Code::PermissionDenied)),
        (&stranger, Some(Code::NotFound), Some(Code::NotFound)),
    ] {
        assert_eq!(history(&world, caller, request("A")).await.err().map(|status| status.code()), when);
        for values in values.clone() {
            assert_eq!(history(&world, caller, values).await.err().map(|status| status.code()), what);
        }
        let erased = forget(&world, caller, "B").await.err().map(|status| status.code());
        assert_eq!(erased, what, "erasing takes the role of a writer too");
    }
    let one = history(&world, &writer, values[1].clone()).await.unwrap().versions;
    assert_eq!((one.len(), one[0].version, one[0].ciphertext.is_empty()), (1, 1, false));
    let none = ReadSecretHistoryRequest { version: Some(7), ..request("A") };
    assert!(history(&world, &writer, none).await.unwrap().versions.is_empty());
}

#[tokio::test]
async fn a_forgotten_value_and_one_under_a_former_key_are_gone() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for key in ["A", "B"] {
        for _ in 0..3 {
            owner.set(key).await.unwrap();
        }
    }
    assert_eq!(forget(&world, &owner, "A").await.unwrap(), 2);
    assert_eq!(forget(&world, &owner, "A").await.unwrap(), 0);
    assert_eq!(history(&world, &owner, request("A")).await.unwrap().versions.len(), 1, "the current value stays");
    assert_eq!(history(&world, &owner, request("B")).await.unwrap().versions.len(), 3);
    assert!(owner.get("A").await.is_ok());

    let read = konverge_zopp_proto::secrets::ReadEnvironmentRequest {
        workspace_name: names()[0].clone(),
        project_name: names()[1].clone(),
        environment_name: names()[2].clone(),
        ..Default::default()
    };
    let state = world.secrets().read_environment(owner.sign_secrets("ReadEnvironment", read)).await.unwrap();
    let rotation = ChangeSecretsRequest {
        expected_tag: Some(state.into_inner().tag),
        set: vec![secret("A", 5), secret("B", 5)],
        new_dek: Some(WrappedDek { dek_wrapped: vec![9; 48], dek_nonce: vec![9; 24] }),
        ..Default::default()
    };
    change(&world, &owner, rotation).await.unwrap();
    let all = ReadSecretHistoryRequest { with_ciphertexts: true, ..request("B") };
    let answer = history(&world, &owner, all).await.unwrap();
    assert_eq!(
        (answer.versions.len(), answer.dek_wrapped),
        (1, vec![9; 48]),
        "nothing is left that the former key opens"
    );
}

#[tokio::test]
async fn a_rollback_is_a_change_like_any_other_and_on_record() {
    let world = World::start().await;
    let owner = world.owner().await;
    change(&world, &owner, setting("A", 1)).await.unwrap();
    change(&world, &owner, setting("A", 2)).await.unwrap();
    change(&world, &owner, ChangeSecretsRequest { rollback_to: Some(1), ..setting("A", 3) }).await.unwrap();
    for of_several in [
        ChangeSecretsRequest { rollback_to: Some(1), set: vec![secret("A", 3), secret("B", 3)], ..Default::default() },
        ChangeSecretsRequest { rollback_to: Some(1), delete: vec!["A".into()], ..Default::default() },
    ] {
        assert_eq!(code(change(&world, &owner, of_several).await), Code::InvalidArgument);
    }
    let values = ReadSecretHistoryRequest { version: Some(1), ..request("A") };
    assert_eq!(history(&world, &owner, values).await.unwrap().versions[0].ciphertext, [1; 20], "it is still there");
    history(&world, &owner, request("A")).await.unwrap();
    forget(&world, &owner, "A").await.unwrap();

    let saboteur = world.saboteur().await;
    let _directory = world.end().await;
    let entries: Vec<(String, String, Option<String>)> = saboteur
        .rows("SELECT action, resource_id, details FROM audit_logs WHERE resource_id = 'A' AND result = 'success' ORDER BY timestamp, id")
        .await;
    let entries: Vec<_> =
        entries.iter().map(|(action, key, details)| (action.as_str(), key.as_str(), details.as_deref())).collect();
    assert_eq!(
        entries,
        [
            ("secret.create", "A", None),
            ("secret.update", "A", None),
            ("secret.update", "A", Some(r#"{"rollback_to":1}"#)),
            ("secret.history", "A", Some(r#"{"version":1}"#)),
            ("secret.history", "A", None),
            ("secret.forget", "A", Some(r#"{"count":2}"#)),
        ]
    );
}

#[tokio::test]
async fn a_writer_fills_the_history_up_to_the_limits_and_no_further() {
    let world = World::start_limited(Limits { history_versions: 3, history_bytes: 10_000, ..Limits::default() }).await;
    let owner = world.owner().await;
    for byte in 1..=8 {
        change(&world, &owner, setting("A", byte)).await.unwrap();
    }
    let all = ReadSecretHistoryRequest { with_ciphertexts: true, ..request("A") };
    let answer = history(&world, &owner, all).await.unwrap();
    let kept: Vec<_> = answer.versions.iter().map(|version| (version.version, version.ciphertext[0])).collect();
    assert_eq!(kept, [(8, 8), (7, 7), (6, 6), (5, 5)]);
    // Large values are no way to fill the disk, and the change itself is not refused.
    let large = |byte| EncryptedSecret { ciphertext: vec![byte; 6000], ..secret("L", byte) };
    for byte in 1..=4 {
        change(&world, &owner, ChangeSecretsRequest { set: vec![large(byte)], ..Default::default() }).await.unwrap();
    }
    let kept: Vec<(i64,)> =
        world.saboteur().await.rows("SELECT history_bytes FROM environments WHERE history_bytes <= 10000").await;
    assert_eq!(kept, [(6000 + 256,)], "the newest of all");
}

#[tokio::test]
async fn a_server_that_is_to_keep_less_erases_the_rest_when_it_starts() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for _ in 0..4 {
        owner.set("A").await.unwrap();
    }
    let directory = world.end().await;
    let limits = Limits { history_versions: 0, ..Limits::default() };
    let options = konverge_zopp_server::serve::Options { limits, ..crate::database::options(&directory).await };
    let world = World::start_as(directory, options).await;
    let saboteur = world.saboteur().await;
    let deadline = tokio::time::Instant::now() + crate::harness::DEADLINE;
    loop {
        let kept: Vec<(i64,)> = saboteur.rows("SELECT count(*) FROM secret_versions").await;
        if kept == [(0,)] {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{kept:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
