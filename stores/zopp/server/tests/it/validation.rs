//! Invalid writes, and the messages about them.

use konverge_zopp_proto as proto;
use tonic::Code;

use crate::harness::{World, code, now, upsert, workspace_request};

#[tokio::test]
async fn lengths_of_a_secret_are_checked() {
    let world = World::start().await;
    let owner = world.owner().await;
    let bad = [
        proto::UpsertSecretRequest { nonce: vec![0; 1], ..upsert("A") },
        proto::UpsertSecretRequest { nonce: vec![0; 25], ..upsert("A") },
        proto::UpsertSecretRequest { ciphertext: vec![0; 15], ..upsert("A") },
        upsert(""),
        upsert("A:B"),
        upsert(":"),
        upsert(&"A".repeat(1025)),
    ];
    for request in bad {
        let refused = world.client().upsert_secret(owner.sign("UpsertSecret", request.clone())).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{request:?}");
    }
    let smallest = proto::UpsertSecretRequest { ciphertext: vec![0; 16], ..upsert("A") };
    world.client().upsert_secret(owner.sign("UpsertSecret", smallest)).await.unwrap();
}

#[tokio::test]
async fn lengths_of_keys_are_checked() {
    let world = World::start().await;
    let owner = world.owner().await;
    let good = || workspace_request("other");
    let bad = [
        proto::CreateWorkspaceRequest { ephemeral_pub: vec![0; 31], ..good() },
        proto::CreateWorkspaceRequest { kek_wrapped: vec![0; 47], ..good() },
        proto::CreateWorkspaceRequest { kek_wrapped: Vec::new(), ..good() },
        proto::CreateWorkspaceRequest { kek_nonce: Vec::new(), ..good() },
        proto::CreateWorkspaceRequest { id: "not a uuid".into(), ..good() },
        workspace_request("a:b"),
        workspace_request(""),
    ];
    for request in bad {
        let refused = world.client().create_workspace(owner.sign("CreateWorkspace", request.clone())).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{request:?}");
    }
    let environment = proto::CreateEnvironmentRequest {
        workspace_name: "acme".into(),
        project_name: "backend".into(),
        name: "staging".into(),
        dek_wrapped: vec![0; 32],
        dek_nonce: vec![0; 24],
    };
    let refused = world.client().create_environment(owner.sign("CreateEnvironment", environment)).await;
    assert_eq!(code(refused), Code::InvalidArgument);
}

#[tokio::test]
async fn what_exists_is_not_made_twice() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let other = world.join("other@example.com").await;
    let twice = world.client().create_workspace(other.sign("CreateWorkspace", workspace_request("acme"))).await;
    let twice = twice.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    for internal in ["UNIQUE", "constraint", "workspaces.", "sqlite"] {
        assert!(!twice.message().contains(internal), "{twice}");
    }
    assert_eq!(code(owner.create_environment("production").await), Code::AlreadyExists);
    let project = proto::CreateProjectRequest { workspace_name: "acme".into(), name: "backend".into() };
    let twice = world.client().create_project(owner.sign("CreateProject", project)).await;
    assert_eq!(code(twice), Code::AlreadyExists);
}

#[tokio::test]
async fn a_change_that_fails_in_the_database_is_no_change() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let listed = world.client().list_workspaces(owner.sign("ListWorkspaces", proto::Empty {})).await.unwrap();
    let workspace_ids = vec![listed.into_inner().workspaces[0].id.clone()];
    let token = "ab".repeat(32);
    let invite = proto::CreateInviteRequest {
        workspace_ids,
        expires_at: now() + 3600,
        token: token.clone(),
        ..Default::default()
    };
    owner.client.create_invite(owner.sign("CreateInvite", invite)).await.unwrap();

    // The record of a change is written after the change.
    let saboteur = world.saboteur().await;
    saboteur.run("ALTER TABLE audit_logs RENAME TO elsewhere").await;
    let request = workspace_request("other");
    let failed = world.client().create_workspace(owner.sign("CreateWorkspace", request.clone())).await;
    assert_eq!(code(failed), Code::Internal);
    let revoke = proto::RevokeInviteRequest { token: token.clone() };
    let failed = owner.client.revoke_invite(owner.sign("RevokeInvite", revoke.clone())).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal, "the invite is there: {failed}");
    assert!(!failed.message().contains("audit_logs"), "{failed}");
    world.client().get_invite(proto::GetInviteRequest { token }).await.unwrap();

    saboteur.run("ALTER TABLE elsewhere RENAME TO audit_logs").await;
    world.client().create_workspace(owner.sign("CreateWorkspace", request)).await.unwrap();
    owner.client.revoke_invite(owner.sign("RevokeInvite", revoke)).await.unwrap();
}
