//! Exports of principals: opened by who knows the words, for a time, once.

use konverge_zopp_proto as proto;
use tonic::Code;

use crate::{
    harness::{Person, World, code, now},
    team::call,
};

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn request() -> proto::CreatePrincipalExportRequest {
    proto::CreatePrincipalExportRequest {
        token_hash: hash('a'),
        verification_salt: vec![1; 16],
        encrypted_data: vec![2; 200],
        salt: vec![3; 16],
        nonce: vec![4; 24],
        expires_at: now() + 3600,
    }
}

async fn export(person: &Person) -> String {
    call!(person, create_principal_export: "CreatePrincipalExport", request()).unwrap().export_code
}

fn get(code: &str, token_hash: &str) -> proto::GetPrincipalExportRequest {
    proto::GetPrincipalExportRequest { export_code: code.into(), token_hash: token_hash.into() }
}

fn consume(code: &str, token_hash: &str) -> proto::ConsumePrincipalExportRequest {
    proto::ConsumePrincipalExportRequest { export_code: code.into(), token_hash: token_hash.into() }
}

#[tokio::test]
async fn an_export_is_opened_in_two_steps_and_is_gone_once_consumed() {
    let world = World::start().await;
    let owner = world.owner().await;
    let named = export(&owner).await;
    let rest = named.strip_prefix("exp_").unwrap();
    assert!(rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{named}");

    let first = world.client().get_principal_export(get(&named, "")).await.unwrap().into_inner();
    assert_eq!((first.export_id.as_str(), first.encrypted_data.len(), first.salt.len()), ("", 0, 0));
    assert_eq!(first.verification_salt, vec![1; 16]);
    assert!(first.expires_at > now());
    let second = world.client().get_principal_export(get(&named, &hash('a'))).await.unwrap().into_inner();
    assert_eq!((second.encrypted_data, second.salt, second.nonce), (vec![2; 200], vec![3; 16], vec![4; 24]));
    assert!(!second.export_id.is_empty());

    world.client().consume_principal_export(consume(&named, &hash('a'))).await.unwrap();
    assert_eq!(code(world.client().consume_principal_export(consume(&named, &hash('a'))).await), Code::NotFound);
    assert_eq!(code(world.client().get_principal_export(get(&named, "")).await), Code::NotFound);
    // Another one with the same words is another one.
    assert_ne!(export(&owner).await, named);
}

/// Wrong hashes are counted in the database, over both calls and over a restart.
#[tokio::test]
async fn the_third_wrong_passphrase_deletes_the_export() {
    let world = World::start().await;
    let owner = world.owner().await;
    let named = export(&owner).await;
    let wrong = world.client().get_principal_export(get(&named, &hash('b'))).await.unwrap_err();
    assert_eq!(wrong.code(), Code::PermissionDenied);
    assert!(wrong.message().contains("2 attempts are left"), "{wrong}");
    let world = world.restart().await;
    let wrong = world.client().consume_principal_export(consume(&named, &hash('b'))).await.unwrap_err();
    assert!(wrong.message().contains("1 attempt is left"), "{wrong}");
    world.client().get_principal_export(get(&named, &hash('a'))).await.unwrap();
    let wrong = world.client().get_principal_export(get(&named, "")).await.unwrap();
    assert!(!wrong.into_inner().verification_salt.is_empty(), "asking for the salt is no attempt");
    let wrong = world.client().get_principal_export(get(&named, &hash('B'))).await.unwrap_err();
    assert_eq!(wrong.code(), Code::PermissionDenied);
    assert!(wrong.message().contains("deleted"), "{wrong}");
    assert_eq!(code(world.client().get_principal_export(get(&named, &hash('a'))).await), Code::NotFound);
}

/// S10: to the second, and not until the end of the day.
#[tokio::test]
async fn an_export_ends_at_its_instant() {
    let world = World::start().await;
    let owner = world.owner().await;
    let named = export(&owner).await;
    let saboteur = world.saboteur().await;
    let expire = async |at: i64| {
        saboteur.run(&format!("UPDATE principal_exports SET expires_at = {at}")).await;
    };
    expire(now() + 30).await;
    world.client().get_principal_export(get(&named, "")).await.unwrap();
    expire(now()).await;
    assert_eq!(code(world.client().get_principal_export(get(&named, "")).await), Code::NotFound);
    assert_eq!(code(world.client().get_principal_export(get(&named, &hash('a'))).await), Code::NotFound);
    assert_eq!(code(world.client().consume_principal_export(consume(&named, &hash('a'))).await), Code::NotFound);
    // The next one takes the ended ones out of the file.
    call!(owner, create_principal_export: "CreatePrincipalExport", request()).unwrap();
    let kept: Vec<(i64,)> = saboteur.rows("SELECT count(*) FROM principal_exports").await;
    assert_eq!(kept, [(1,)]);
}

#[tokio::test]
async fn an_export_of_the_wrong_form_is_refused() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let good = request;
    for (what, bad) in [
        ("verification_salt", proto::CreatePrincipalExportRequest { verification_salt: vec![1; 15], ..good() }),
        ("salt", proto::CreatePrincipalExportRequest { salt: vec![1; 17], ..good() }),
        ("nonce", proto::CreatePrincipalExportRequest { nonce: vec![], ..good() }),
        ("expires_at", proto::CreatePrincipalExportRequest { expires_at: now(), ..good() }),
        ("token_hash", proto::CreatePrincipalExportRequest { token_hash: "x".repeat(64), ..good() }),
        ("encrypted_data", proto::CreatePrincipalExportRequest { encrypted_data: vec![0; 20_000], ..good() }),
    ] {
        let refused = call!(owner, create_principal_export: "CreatePrincipalExport", bad).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{what}");
        assert!(refused.message().starts_with(what), "{refused}");
    }
    let service = world.service(&mut owner).await;
    let refused = call!(service, create_principal_export: "CreatePrincipalExport", good());
    assert_eq!(code(refused), Code::PermissionDenied);
    let unsigned = world.client().create_principal_export(good()).await;
    assert_eq!(code(unsigned), Code::Unauthenticated);
}

/// S11: codes are short, so few of them can be tried from one address.
#[tokio::test]
async fn codes_are_not_for_guessing() {
    let world = World::start().await;
    let owner = world.owner().await;
    let named = export(&owner).await;
    // The call by which clients determine the generation of a server, without a limit.
    for _ in 0..50 {
        let probe = get(&format!("exp_{}", uuid::Uuid::new_v4().simple()), "");
        assert_eq!(code(world.client().get_principal_export(probe).await), Code::NotFound);
    }
    let mut answers = Vec::new();
    for number in 0..12 {
        let guess = get(&format!("exp_guess{number:03}"), "");
        answers.push(code(world.client().get_principal_export(guess).await));
    }
    assert_eq!(answers[..10], [Code::NotFound; 10]);
    assert_eq!(answers[10..], [Code::ResourceExhausted; 2]);
    let refused = world.client().get_principal_export(get(&named, "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "nor is a right one confirmed then");
    assert!(refused.message().contains("try again in"), "{refused}");
    let refused = world.client().consume_principal_export(consume(&named, &hash('a'))).await;
    assert_eq!(code(refused), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_database_opens_no_export() {
    let world = World::start().await;
    let owner = world.owner().await;
    export(&owner).await;
    let saboteur = world.saboteur().await;
    let kept: Vec<(String,)> = saboteur.rows("SELECT token_hash FROM principal_exports").await;
    assert_eq!(kept.len(), 1);
    assert_ne!(kept[0].0, hash('a'));
}
