//! Groups: made and managed by admins, seen by members.

use konverge_zopp_proto::{self as proto, Role};
use tonic::Code;

use crate::{
    harness::{Person, World, code},
    team::call,
};

fn named(group: &str) -> proto::GetGroupRequest {
    proto::GetGroupRequest { workspace_name: "acme".into(), group_name: group.into() }
}

fn update(group: &str, new_name: &str, new_description: &str) -> proto::UpdateGroupRequest {
    proto::UpdateGroupRequest {
        workspace_name: "acme".into(),
        group_name: group.into(),
        new_name: new_name.into(),
        new_description: new_description.into(),
    }
}

fn delete(group: &str) -> proto::DeleteGroupRequest {
    proto::DeleteGroupRequest { workspace_name: "acme".into(), group_name: group.into() }
}

fn remove(group: &str, email: &str) -> proto::RemoveGroupMemberRequest {
    proto::RemoveGroupMemberRequest {
        workspace_name: "acme".into(),
        group_name: group.into(),
        user_email: email.into(),
    }
}

async fn members(person: &Person, group: &str) -> Vec<String> {
    let request = proto::ListGroupMembersRequest { workspace_name: "acme".into(), group_name: group.into() };
    let listed = call!(person, list_group_members: "ListGroupMembers", request).unwrap().members;
    listed.into_iter().map(|member| member.user_email).collect()
}

#[tokio::test]
async fn the_life_of_a_group() {
    let world = World::start().await;
    let owner = world.owner().await;
    world.member(&owner, "ann@example.com", None).await;
    let made = owner.create_group("ops").await.unwrap();
    assert_eq!((made.name.as_str(), made.description.as_str()), ("ops", "the ops"));
    made.created_at.parse::<jiff::Timestamp>().unwrap();
    assert_eq!(code(owner.create_group("ops").await), Code::AlreadyExists);
    assert_eq!(code(owner.create_group("a:b").await), Code::InvalidArgument);
    owner.create_group("dev").await.unwrap();
    let list = proto::ListGroupsRequest { workspace_name: "acme".into() };
    let listed = call!(owner, list_groups: "ListGroups", list).unwrap().groups;
    assert_eq!(listed.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["dev", "ops"]);

    assert_eq!(code(call!(owner, update_group: "UpdateGroup", update("ops", "dev", ""))), Code::AlreadyExists);
    let updated = call!(owner, update_group: "UpdateGroup", update("ops", "", "on call")).unwrap();
    assert_eq!((updated.name.as_str(), updated.description.as_str()), ("ops", "on call"));
    let updated = call!(owner, update_group: "UpdateGroup", update("ops", "sre", "")).unwrap();
    assert_eq!((updated.id, updated.name.as_str(), updated.description.as_str()), (made.id.clone(), "sre", ""));
    assert_eq!(call!(owner, get_group: "GetGroup", named("sre")).unwrap().id, made.id);
    assert_eq!(code(call!(owner, get_group: "GetGroup", named("ops"))), Code::NotFound);

    owner.add_to_group("sre", "Ann@Example.com").await.unwrap();
    assert_eq!(code(owner.add_to_group("sre", "ann@example.com").await), Code::AlreadyExists);
    owner.add_to_group("sre", "owner@example.com").await.unwrap();
    assert_eq!(members(&owner, "sre").await, ["ann@example.com", "owner@example.com"]);
    let of_user = proto::ListUserGroupsRequest { workspace_name: "acme".into(), user_email: "ANN@example.com".into() };
    let groups = call!(owner, list_user_groups: "ListUserGroups", of_user.clone()).unwrap().groups;
    assert_eq!(groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["sre"]);
    call!(owner, remove_group_member: "RemoveGroupMember", remove("sre", "ANN@example.com")).unwrap();
    let again = call!(owner, remove_group_member: "RemoveGroupMember", remove("sre", "ann@example.com"));
    assert_eq!(code(again), Code::NotFound);
    assert!(call!(owner, list_user_groups: "ListUserGroups", of_user).unwrap().groups.is_empty());

    call!(owner, delete_group: "DeleteGroup", delete("sre")).unwrap();
    assert_eq!(code(call!(owner, delete_group: "DeleteGroup", delete("sre"))), Code::NotFound);
}

#[tokio::test]
async fn a_group_gives_its_members_its_roles_for_as_long_as_both_last() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut ann = world.member(&owner, "ann@example.com", None).await;
    owner.create_group("ops").await.unwrap();
    owner.grant_group("ops", Role::Write).await.unwrap();
    assert_eq!(code(ann.set("A").await), Code::PermissionDenied);
    owner.add_to_group("ops", "ann@example.com").await.unwrap();
    ann.set("A").await.unwrap();
    call!(owner, remove_group_member: "RemoveGroupMember", remove("ops", "ann@example.com")).unwrap();
    assert_eq!(code(ann.set("A").await), Code::PermissionDenied);
    owner.add_to_group("ops", "ann@example.com").await.unwrap();
    ann.set("A").await.unwrap();
    call!(owner, delete_group: "DeleteGroup", delete("ops")).unwrap();
    assert_eq!(code(ann.set("A").await), Code::PermissionDenied);
}

/// A writer, which is the highest role that is not enough.
#[tokio::test]
async fn only_an_admin_manages_groups() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let writer = world.member(&owner, "writer@example.com", None).await;
    owner.grant_user("writer@example.com", Role::Write).await.unwrap();
    owner.create_group("ops").await.unwrap();
    assert_eq!(code(writer.create_group("mine").await), Code::PermissionDenied);
    assert_eq!(code(writer.add_to_group("ops", "writer@example.com").await), Code::PermissionDenied);
    let email = "owner@example.com";
    let removed = call!(writer, remove_group_member: "RemoveGroupMember", remove("ops", email));
    assert_eq!(code(removed), Code::PermissionDenied);
    assert_eq!(code(call!(writer, update_group: "UpdateGroup", update("ops", "x", ""))), Code::PermissionDenied);
    assert_eq!(code(call!(writer, delete_group: "DeleteGroup", delete("ops"))), Code::PermissionDenied);
    // But sees them.
    call!(writer, get_group: "GetGroup", named("ops")).unwrap();
    assert!(members(&writer, "ops").await.is_empty());

    let service = world.service(&mut owner).await;
    let stranger = world.join("stranger@example.com").await;
    let list = || proto::ListGroupsRequest { workspace_name: "acme".into() };
    let of_user = || proto::ListUserGroupsRequest { workspace_name: "acme".into(), user_email: email.into() };
    let in_group = || proto::ListGroupMembersRequest { workspace_name: "acme".into(), group_name: "ops".into() };
    for (person, expected) in [(&service, Code::Unauthenticated), (&stranger, Code::NotFound)] {
        assert_eq!(code(person.create_group("mine").await), expected);
        assert_eq!(code(call!(person, get_group: "GetGroup", named("ops"))), expected);
        assert_eq!(code(call!(person, list_groups: "ListGroups", list())), expected);
        assert_eq!(code(call!(person, update_group: "UpdateGroup", update("ops", "x", ""))), expected);
        assert_eq!(code(call!(person, delete_group: "DeleteGroup", delete("ops"))), expected);
        assert_eq!(code(person.add_to_group("ops", email).await), expected);
        assert_eq!(code(call!(person, remove_group_member: "RemoveGroupMember", remove("ops", email))), expected);
        assert_eq!(code(call!(person, list_group_members: "ListGroupMembers", in_group())), expected);
        assert_eq!(code(call!(person, list_user_groups: "ListUserGroups", of_user())), expected);
    }
}

#[tokio::test]
async fn users_outside_the_workspace_are_added_only_on_demand() {
    let world = World::start().await;
    let owner = world.owner().await;
    world.join("stranger@example.com").await;
    owner.create_group("ops").await.unwrap();
    let mut messages = Vec::new();
    for email in ["stranger@example.com", "nobody@example.com"] {
        let refused = owner.add_to_group("ops", email).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        messages.push(refused.message().replace(email, "x"));
    }
    assert_eq!(messages[0], messages[1], "who is on the server is not told");
    let of_user =
        proto::ListUserGroupsRequest { workspace_name: "acme".into(), user_email: "stranger@example.com".into() };
    assert_eq!(code(call!(owner, list_user_groups: "ListUserGroups", of_user.clone())), Code::NotFound);
    let request = proto::AddGroupMemberRequest {
        workspace_name: "acme".into(),
        group_name: "ops".into(),
        user_email: "stranger@example.com".into(),
        allow_non_member: true,
    };
    call!(owner, add_group_member: "AddGroupMember", request).unwrap();
    assert_eq!(call!(owner, list_user_groups: "ListUserGroups", of_user).unwrap().groups.len(), 1);
}
