//! Invites: kept as hashes, good for a time, made by those who may.

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto as proto;
use konverge_zopp_server::store::NewInvite;
use tonic::Code;

use crate::{
    database::{Saboteur, file, is_postgres},
    harness::{World, code, join_request, now},
};

fn invite(workspace_id: &str, token: &str) -> proto::CreateInviteRequest {
    proto::CreateInviteRequest {
        workspace_ids: vec![workspace_id.into()],
        expires_at: now() + 3600,
        token: token.into(),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
    }
}

fn get(token: &str) -> proto::GetInviteRequest {
    proto::GetInviteRequest { token: token.into() }
}

#[tokio::test]
async fn a_workspace_invite_brings_membership_and_key_and_no_role() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let workspaces = owner.sign("ListWorkspaces", proto::Empty {});
    let id = world.client().list_workspaces(workspaces).await.unwrap().into_inner().workspaces[0].id.clone();
    let token = "ab".repeat(32);
    owner.client.create_invite(owner.sign("CreateInvite", invite(&id, &token))).await.unwrap();
    assert_eq!(world.client().get_invite(get(&token)).await.unwrap().into_inner().kek_encrypted, vec![1; 48]);

    let seed = SigningSeed::generate().unwrap();
    let mut request = join_request(&token, "member@example.com", &seed);
    assert_eq!(code(world.client().join(request.clone()).await), Code::InvalidArgument, "the key must be wrapped");
    request.ephemeral_pub = vec![1; 32];
    request.kek_wrapped = vec![2; 48];
    request.kek_nonce = vec![3; 24];
    let answer = world.client().join(request).await.unwrap().into_inner();
    assert_eq!(answer.workspaces[0].name, "acme");
    let mut member = crate::harness::Person::new(answer.user_id, answer.principal_id, seed, world.client());
    assert_eq!(code(member.list().await), Code::PermissionDenied);
    let refused = member.client.create_invite(member.sign("CreateInvite", invite(&id, "other"))).await;
    assert_eq!(code(refused), Code::PermissionDenied);

    // Listed by hash, revoked as listed.
    let listed = world.client().list_invites(owner.sign("ListInvites", proto::Empty {})).await.unwrap();
    let name = listed.into_inner().invites[0].token.clone();
    assert_ne!(name, token);
    let refused = proto::RevokeInviteRequest { token: token.clone() };
    let refused = world.client().revoke_invite(member.sign("RevokeInvite", refused)).await;
    assert_eq!(code(refused), Code::PermissionDenied);
    let revoke = proto::RevokeInviteRequest { token: name };
    world.client().revoke_invite(owner.sign("RevokeInvite", revoke)).await.unwrap();
    assert_eq!(code(world.client().get_invite(get(&token)).await), Code::NotFound);
}

#[tokio::test]
async fn only_the_operator_of_the_server_invites_to_the_server() {
    let world = World::start().await;
    let owner = world.owner().await;
    let request = proto::CreateInviteRequest { workspace_ids: Vec::new(), ..invite("", "x") };
    assert_eq!(code(world.client().create_invite(owner.sign("CreateInvite", request)).await), Code::PermissionDenied);
}

#[tokio::test]
async fn an_expired_invite_is_neither_shown_nor_taken() {
    let world = World::start().await;
    let expired = NewInvite {
        token: "old",
        workspace_ids: &[],
        expires_at: now(),
        kek_encrypted: None,
        kek_nonce: None,
        max_uses: None,
    };
    world.store.create_invite(&expired, None).await.unwrap();
    assert_eq!(code(world.client().get_invite(get("old")).await), Code::NotFound);
    let request = join_request("old", "a@example.com", &SigningSeed::generate().unwrap());
    assert_eq!(code(world.client().join(request).await), Code::PermissionDenied);
    let request = join_request("never made", "a@example.com", &SigningSeed::generate().unwrap());
    assert_eq!(code(world.client().join(request).await), Code::NotFound);
}

#[tokio::test]
async fn the_database_lets_nobody_in() {
    let world = World::start().await;
    let token = world.invite().await;
    let directory = world.end().await;
    let kept = if is_postgres() {
        let rows: Vec<(String,)> =
            Saboteur::of(&directory).await.rows("SELECT CAST(invites AS TEXT) FROM invites").await;
        rows.into_iter().flat_map(|(row,)| row.into_bytes()).collect()
    } else {
        std::fs::read(file(&directory)).unwrap()
    };
    assert!(!kept.is_empty() && !kept.windows(token.len()).any(|window| window == token.as_bytes()));
}
