//! Clients of the first generation, which sign nothing but the time and know no roles.

use konverge_zopp_crypto::{Profile, SigningSeed, signature};
use konverge_zopp_proto::{self as proto, identity, watch_secrets_response::Response};
use konverge_zopp_server::{
    policy::{FirstGeneration, MemberRole, Policy},
    rbac::Role,
    serve::Options,
};
use prost::Message;
use tonic::{Code, Request};

use crate::{
    database::options,
    harness::{Person, World, attach, code, list_request, names, now, register_request, upsert},
};

/// Signed as zopp 0.1.1 signs.
fn signed<M: Message>(person: &Person, message: M, timestamp: i64) -> Request<M> {
    let signed = signature::sign(Profile::V1, &person.seed, "", &[], timestamp);
    let mut request = Request::new(message);
    attach(request.metadata_mut(), &person.principal_id, &signed);
    assert!(!request.metadata().contains_key(signature::REQUEST_HASH_KEY));
    request
}

async fn world(member_role: MemberRole) -> World {
    let first_generation = Some(FirstGeneration { member_role: Some(member_role) });
    World::start_with(Policy { first_generation, ..Policy::default() }).await
}

#[tokio::test]
async fn its_members_have_the_role_that_the_operator_chose() {
    for role in [MemberRole::None, MemberRole::Read, MemberRole::Write, MemberRole::Admin] {
        let world = world(role).await;
        let role = role.role();
        let owner = world.owner().await;
        let member = world.member(&owner, "member@example.com", None).await;
        let client = || world.client();
        let allowed = |result: Result<_, tonic::Status>| match result {
            Ok(()) => true,
            Err(status) => {
                assert_eq!(status.code(), Code::PermissionDenied, "{role:?}: {status}");
                false
            }
        };
        let list = client().list_secrets(signed(&member, list_request(), now())).await.map(drop);
        assert_eq!(allowed(list), role.is_some(), "{role:?}");
        let set = client().upsert_secret(signed(&member, upsert("A"), now())).await.map(drop);
        assert_eq!(allowed(set), role >= Some(Role::Write), "{role:?}");
        let project = proto::CreateProjectRequest { workspace_name: "acme".into(), name: "other".into() };
        let made = client().create_project(signed(&member, project, now())).await.map(drop);
        assert_eq!(allowed(made), role == Some(Role::Admin), "{role:?}");

        // Somebody who is no member has no role.
        let stranger = world.join("stranger@example.com").await;
        let list = client().list_secrets(signed(&stranger, list_request(), now())).await;
        assert_eq!(code(list), Code::NotFound);
    }
}

#[tokio::test]
async fn a_grant_and_a_ceiling_count_beside_the_role_of_members() {
    let world = world(MemberRole::Read).await;
    let mut owner = world.owner().await;
    let member = world.member(&owner, "member@example.com", Some("write")).await;
    world.client().upsert_secret(signed(&member, upsert("A"), now())).await.unwrap();
    owner.grant(&member.principal_id, proto::Role::Read).await.unwrap();
    let set = world.client().upsert_secret(signed(&member, upsert("B"), now())).await;
    assert_eq!(code(set), Code::PermissionDenied);
}

#[tokio::test]
async fn its_role_ends_with_the_flag() {
    let world = world(MemberRole::Admin).await;
    let owner = world.owner().await;
    let mut member = world.member(&owner, "member@example.com", None).await;
    member.list().await.unwrap();
    let directory = world.end().await;
    let options = options(&directory).await;
    let world = World::start_as(directory, options).await;
    member.client = world.client();
    assert_eq!(code(member.list().await), Code::PermissionDenied);
    let refused = world.client().list_secrets(signed(&owner, list_request(), now())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("first-generation"), "{refused}");
}

/// Another start on the database of a server, with or without the first generation.
async fn start_again(world: World, first_generation: Option<FirstGeneration>) -> World {
    let directory = world.end().await;
    let options = options(&directory).await;
    let policy = Policy { first_generation, ..options.policy };
    World::start_as(directory, Options { policy, ..options }).await
}

#[tokio::test]
async fn its_role_is_kept_in_the_database_until_another_one_is_chosen() {
    let unchosen = Some(FirstGeneration { member_role: None });
    let world = world(MemberRole::Read).await;
    let owner = world.owner().await;
    let mut member = world.member(&owner, "member@example.com", None).await;
    // A replica that starts without the choice takes nothing away from the others.
    let world = start_again(world, unchosen).await;
    member.client = world.client();
    member.list().await.unwrap();
    assert_eq!(code(member.set("A").await), Code::PermissionDenied, "the default would be to write");
    let world = start_again(world, None).await;
    member.client = world.client();
    assert_eq!(code(member.list().await), Code::PermissionDenied);
    let world = start_again(world, unchosen).await;
    member.client = world.client();
    member.list().await.unwrap();
    let world = start_again(world, Some(FirstGeneration { member_role: Some(MemberRole::None) })).await;
    member.client = world.client();
    assert_eq!(code(member.list().await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_signature_of_the_time_is_for_its_calls_only_and_not_for_long() {
    let world = world(MemberRole::Admin).await;
    let owner = world.owner().await;
    // Of the second generation, and of our own.
    let request = proto::SetWorkspacePermissionRequest {
        workspace_name: "acme".into(),
        principal_id: owner.principal_id.clone(),
        role: proto::Role::Read.into(),
    };
    let refused = world.client().set_workspace_permission(signed(&owner, request, now())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("do not have this call"), "{refused}");
    let request = identity::RemoveUserRequest { user_email: "owner@example.com".into() };
    assert_eq!(code(world.identity().remove_user(signed(&owner, request, now())).await), Code::Unauthenticated);
    for timestamp in [now() - 120, now() + 120] {
        let old = world.client().list_secrets(signed(&owner, list_request(), timestamp)).await;
        assert_eq!(code(old), Code::Unauthenticated);
    }
    // A signature of another key, in the owner's name.
    let thief =
        Person::new(String::new(), owner.principal_id.clone(), SigningSeed::generate().unwrap(), world.client());
    let forged = world.client().list_secrets(signed(&thief, list_request(), now())).await;
    assert_eq!(code(forged), Code::Unauthenticated);
}

#[tokio::test]
async fn requests_of_one_second_share_a_signature_and_none_counts_twice() {
    let world = world(MemberRole::Write).await;
    let mut owner = world.owner().await;
    let second = now();
    for key in ["A", "B"] {
        world.client().upsert_secret(signed(&owner, upsert(key), second)).await.unwrap();
    }
    let replay = world.client().upsert_secret(signed(&owner, upsert("A"), second)).await.unwrap_err();
    assert!(replay.message().contains("received before"), "{replay}");
    assert_eq!(owner.list().await.unwrap().version, 2);
}

#[tokio::test]
async fn its_watches_begin_where_the_client_was_and_its_devices_are_registered() {
    let world = world(MemberRole::Write).await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    let [workspace_name, project_name, environment_name] = names();
    let watch = proto::WatchSecretsRequest { workspace_name, project_name, environment_name, since_version: Some(0) };
    let mut stream = world.client().watch_secrets(signed(&owner, watch, now())).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.response, Some(Response::Resync(proto::ResyncRequired { current_version: 1 })));
    let seed = SigningSeed::generate().unwrap();
    let phone = register_request("owner@example.com", "phone", &seed);
    let answer = world.client().register(signed(&owner, phone, now())).await.unwrap().into_inner();
    assert_eq!(answer.user_id, owner.user_id);
}
