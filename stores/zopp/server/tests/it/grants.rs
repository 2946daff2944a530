//! Roles of users and groups, over the wire: every call at every level, and callers who may not make it.

use konverge_zopp_proto::{self as proto, Role};
use tonic::Code;

use crate::{
    harness::{World, code, names},
    team::call,
};

/// A test of the four calls of one kind of holder at one level. An admin sets, gets, lists and removes. A member without a role may
/// look but not touch; a service and a stranger may do neither.
macro_rules! four_calls {
    (
        $test:ident, $holder:ident = $value:literal,
        $set:ident: $set_name:literal $set_request:ident { $($extra:ident)* },
        $get:ident: $get_name:literal $get_request:ident,
        $list:ident: $list_name:literal $list_request:ident -> $shown:ident,
        $remove:ident: $remove_name:literal $remove_request:ident,
        [$($place:ident),*]
    ) => {
        #[tokio::test]
        async fn $test() {
            let world = World::start().await;
            let mut owner = world.owner().await;
            let member = world.member(&owner, "member@example.com", None).await;
            let service = world.service(&mut owner).await;
            let stranger = world.join("stranger@example.com").await;
            owner.create_group("readers").await.unwrap();
            let [workspace_name, project_name, environment_name] = names();
            let places = proto::ListUserEnvironmentPermissionsRequest { workspace_name, project_name, environment_name };
            let set = |role: Role| proto::$set_request {
                $($place: places.$place.clone(),)*
                $holder: $value.into(),
                role: role.into(),
                $($extra: false,)*
            };
            let get = || proto::$get_request { $($place: places.$place.clone(),)* $holder: $value.into() };
            let list = || proto::$list_request { $($place: places.$place.clone(),)* };
            let remove = || proto::$remove_request { $($place: places.$place.clone(),)* $holder: $value.into() };

            assert_eq!(code(call!(owner, $get: $get_name, get())), Code::NotFound, "there is no grant yet");
            assert_eq!(code(call!(owner, $remove: $remove_name, remove())), Code::NotFound, "nor one to remove");
            assert_eq!(code(call!(owner, $set: $set_name, set(Role::Unspecified))), Code::InvalidArgument);
            call!(owner, $set: $set_name, set(Role::Write)).unwrap();
            call!(owner, $set: $set_name, set(Role::Read)).unwrap();
            assert_eq!(call!(owner, $get: $get_name, get()).unwrap().role(), Role::Read);
            let listed = call!(owner, $list: $list_name, list()).unwrap().permissions;
            let shown: Vec<_> = listed.iter().map(|grant| (grant.$shown.to_lowercase(), grant.role())).collect();
            assert_eq!(shown, [($value.trim().to_lowercase(), Role::Read)]);

            // A member without a role. (With a grant to the member itself: taken away again by nobody but an admin.)
            let other = proto::$set_request { $holder: if $value.contains('@') { "owner@example.com" } else { $value }.into(), ..set(Role::Write) };
            assert_eq!(code(call!(member, $set: $set_name, other)), Code::PermissionDenied, "beyond the caller's own role");
            call!(member, $list: $list_name, list()).unwrap();
            // A service and a stranger.
            assert_eq!(code(call!(service, $set: $set_name, set(Role::Read))), Code::Unauthenticated);
            assert_eq!(code(call!(service, $get: $get_name, get())), Code::Unauthenticated);
            assert_eq!(code(call!(service, $list: $list_name, list())), Code::Unauthenticated);
            assert_eq!(code(call!(service, $remove: $remove_name, remove())), Code::Unauthenticated);
            assert_eq!(code(call!(stranger, $set: $set_name, set(Role::Read))), Code::NotFound);
            assert_eq!(code(call!(stranger, $get: $get_name, get())), Code::NotFound);
            assert_eq!(code(call!(stranger, $list: $list_name, list())), Code::NotFound);
            assert_eq!(code(call!(stranger, $remove: $remove_name, remove())), Code::NotFound);

            call!(owner, $remove: $remove_name, remove()).unwrap();
            assert_eq!(code(call!(owner, $get: $get_name, get())), Code::NotFound);
            assert!(call!(owner, $list: $list_name, list()).unwrap().permissions.is_empty());
            assert_eq!(code(call!(member, $remove: $remove_name, remove())), Code::PermissionDenied, "a member without a role");
        }
    };
}

four_calls!(
    user_grants_on_a_workspace, user_email = "Member@Example.com",
    set_user_workspace_permission: "SetUserWorkspacePermission" SetUserWorkspacePermissionRequest { allow_non_member },
    get_user_workspace_permission: "GetUserWorkspacePermission" GetUserWorkspacePermissionRequest,
    list_user_workspace_permissions: "ListUserWorkspacePermissions" ListUserWorkspacePermissionsRequest -> user_email,
    remove_user_workspace_permission: "RemoveUserWorkspacePermission" RemoveUserWorkspacePermissionRequest,
    [workspace_name]
);
four_calls!(
    user_grants_on_a_project, user_email = "MEMBER@example.com ",
    set_user_project_permission: "SetUserProjectPermission" SetUserProjectPermissionRequest { allow_non_member },
    get_user_project_permission: "GetUserProjectPermission" GetUserProjectPermissionRequest,
    list_user_project_permissions: "ListUserProjectPermissions" ListUserProjectPermissionsRequest -> user_email,
    remove_user_project_permission: "RemoveUserProjectPermission" RemoveUserProjectPermissionRequest,
    [workspace_name, project_name]
);
four_calls!(
    user_grants_on_an_environment, user_email = "member@example.COM",
    set_user_environment_permission: "SetUserEnvironmentPermission" SetUserEnvironmentPermissionRequest { allow_non_member },
    get_user_environment_permission: "GetUserEnvironmentPermission" GetUserEnvironmentPermissionRequest,
    list_user_environment_permissions: "ListUserEnvironmentPermissions" ListUserEnvironmentPermissionsRequest -> user_email,
    remove_user_environment_permission: "RemoveUserEnvironmentPermission" RemoveUserEnvironmentPermissionRequest,
    [workspace_name, project_name, environment_name]
);
four_calls!(
    group_grants_on_a_workspace, group_name = "readers",
    set_group_workspace_permission: "SetGroupWorkspacePermission" SetGroupWorkspacePermissionRequest {},
    get_group_workspace_permission: "GetGroupWorkspacePermission" GetGroupWorkspacePermissionRequest,
    list_group_workspace_permissions: "ListGroupWorkspacePermissions" ListGroupWorkspacePermissionsRequest -> group_name,
    remove_group_workspace_permission: "RemoveGroupWorkspacePermission" RemoveGroupWorkspacePermissionRequest,
    [workspace_name]
);
four_calls!(
    group_grants_on_a_project, group_name = "readers",
    set_group_project_permission: "SetGroupProjectPermission" SetGroupProjectPermissionRequest {},
    get_group_project_permission: "GetGroupProjectPermission" GetGroupProjectPermissionRequest,
    list_group_project_permissions: "ListGroupProjectPermissions" ListGroupProjectPermissionsRequest -> group_name,
    remove_group_project_permission: "RemoveGroupProjectPermission" RemoveGroupProjectPermissionRequest,
    [workspace_name, project_name]
);
four_calls!(
    group_grants_on_an_environment, group_name = "readers",
    set_group_environment_permission: "SetGroupEnvironmentPermission" SetGroupEnvironmentPermissionRequest {},
    get_group_environment_permission: "GetGroupEnvironmentPermission" GetGroupEnvironmentPermissionRequest,
    list_group_environment_permissions: "ListGroupEnvironmentPermissions" ListGroupEnvironmentPermissionsRequest -> group_name,
    remove_group_environment_permission: "RemoveGroupEnvironmentPermission" RemoveGroupEnvironmentPermissionRequest,
    [workspace_name, project_name, environment_name]
);

/// A user who joined by an invite gets a role and works with it.
#[tokio::test]
async fn a_grant_to_a_user_lets_the_users_devices_work() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut member = world.member(&owner, "member@example.com", None).await;
    assert_eq!(code(member.list().await), Code::PermissionDenied);
    owner.grant_user("member@example.com", Role::Write).await.unwrap();
    member.set("A").await.unwrap();
    owner.limit(&member.principal_id, Role::Read).await.unwrap();
    assert_eq!(code(member.set("A").await), Code::PermissionDenied, "a ceiling on the device");
    member.list().await.unwrap();
    owner.revoke_user("member@example.com").await.unwrap();
    assert_eq!(code(member.list().await), Code::PermissionDenied);
}

/// S8: nobody lowers, raises or removes more than its own role.
#[tokio::test]
async fn nobody_gives_or_takes_more_than_its_own_role() {
    let world = World::start().await;
    let owner = world.owner().await;
    let reader = world.member(&owner, "reader@example.com", None).await;
    world.member(&owner, "admin@example.com", None).await;
    let newcomer = world.member(&owner, "newcomer@example.com", None).await;
    owner.grant_user("reader@example.com", Role::Read).await.unwrap();
    owner.grant_user("admin@example.com", Role::Admin).await.unwrap();
    assert_eq!(code(reader.grant_user("admin@example.com", Role::Read).await), Code::PermissionDenied, "demoting");
    assert_eq!(code(reader.revoke_user("admin@example.com").await), Code::PermissionDenied, "removing");
    assert_eq!(code(reader.grant_user("reader@example.com", Role::Write).await), Code::PermissionDenied, "itself");
    assert_eq!(code(reader.grant_user("newcomer@example.com", Role::Write).await), Code::PermissionDenied);
    reader.grant_user("newcomer@example.com", Role::Read).await.unwrap();
    reader.revoke_user("newcomer@example.com").await.unwrap();
    assert_eq!(code(newcomer.grant_user("newcomer@example.com", Role::Read).await), Code::PermissionDenied);

    // A writer is no admin of the project, which is what grants of users below the workspace take.
    owner.grant_user("reader@example.com", Role::Write).await.unwrap();
    let request = proto::SetUserProjectPermissionRequest {
        workspace_name: "acme".into(),
        project_name: "backend".into(),
        user_email: "newcomer@example.com".into(),
        role: Role::Read.into(),
        allow_non_member: false,
    };
    let refused = call!(reader, set_user_project_permission: "SetUserProjectPermission", request);
    assert_eq!(code(refused), Code::PermissionDenied);
}

/// An admin's device under a ceiling in one environment gives nobody more there than it has itself.
#[tokio::test]
async fn a_ceiling_below_bounds_what_a_device_gives_above() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut limited = world.member(&owner, "limited@example.com", None).await;
    let mut accomplice = world.member(&owner, "accomplice@example.com", None).await;
    owner.grant_user("limited@example.com", Role::Admin).await.unwrap();
    owner.limit(&limited.principal_id, Role::Read).await.unwrap();
    assert_eq!(code(limited.set("A").await), Code::PermissionDenied);
    for role in [Role::Write, Role::Admin] {
        assert_eq!(code(limited.grant_user("accomplice@example.com", role).await), Code::PermissionDenied, "{role:?}");
    }
    assert_eq!(code(limited.grant(&limited.principal_id.clone(), Role::Admin).await), Code::PermissionDenied, "S8");
    limited.create_group("friends").await.unwrap();
    limited.add_to_group("friends", "accomplice@example.com").await.unwrap();
    assert_eq!(code(limited.grant_group("friends", Role::Write).await), Code::PermissionDenied);
    owner.grant_group("friends", Role::Write).await.unwrap();
    assert_eq!(code(limited.add_to_group("friends", "owner@example.com").await), Code::PermissionDenied);
    accomplice.set("A").await.unwrap();
    limited.grant_user("accomplice@example.com", Role::Read).await.unwrap();
}

#[tokio::test]
async fn the_target_of_a_grant_is_a_member_unless_an_admin_says_otherwise() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut stranger = world.join("stranger@example.com").await;
    let mut messages = Vec::new();
    for email in ["stranger@example.com", "nobody@example.com"] {
        let refused = owner.grant_user(email, Role::Read).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{email}");
        messages.push(refused.message().replace(email, "x"));
    }
    assert_eq!(messages[0], messages[1], "who is on the server is not told");
    let request = |email: &str| proto::SetUserWorkspacePermissionRequest {
        workspace_name: "acme".into(),
        user_email: email.into(),
        role: Role::Read.into(),
        allow_non_member: true,
    };
    call!(owner, set_user_workspace_permission: "SetUserWorkspacePermission", request("stranger@example.com")).unwrap();
    assert_eq!(code(stranger.list().await), Code::NotFound, "a role without membership opens nothing yet");
    let unknown =
        call!(owner, set_user_workspace_permission: "SetUserWorkspacePermission", request("nobody@example.com"));
    assert_eq!(code(unknown), Code::NotFound);
    owner.revoke_user("stranger@example.com").await.unwrap();

    // A reader may hand out READ, but not ask who is on the server.
    let reader = world.member(&owner, "reader@example.com", None).await;
    owner.grant_user("reader@example.com", Role::Read).await.unwrap();
    let refused =
        call!(reader, set_user_workspace_permission: "SetUserWorkspacePermission", request("stranger@example.com"));
    assert_eq!(code(refused), Code::PermissionDenied);
    assert_eq!(code(reader.grant_user("not an address", Role::Read).await), Code::InvalidArgument);
}

#[tokio::test]
async fn effective_roles_are_told_place_by_place() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let service = world.service(&mut owner).await;
    let member = world.member(&owner, "member@example.com", None).await;
    let of_owner = owner.effective(&owner.principal_id).await.unwrap();
    assert_eq!((of_owner.workspace_role(), of_owner.is_service_principal), (Role::Admin, false));
    assert_eq!(of_owner.projects[0].environments[0].effective_role(), Role::Admin);

    let nothing = owner.effective(&service.principal_id).await.unwrap();
    assert_eq!((nothing.workspace_role, nothing.projects.len(), nothing.is_service_principal), (None, 0, true));
    owner.limit(&service.principal_id, Role::Read).await.unwrap();
    let told = member.effective(&service.principal_id).await.unwrap();
    assert_eq!((told.principal_name.as_str(), told.workspace_role), ("operator", None));
    assert_eq!((told.projects[0].project_name.as_str(), told.projects[0].effective_role), ("backend", None));
    let environment = &told.projects[0].environments[0];
    assert_eq!((environment.environment_name.as_str(), environment.effective_role()), ("production", Role::Read));

    // Group, user and ceiling together.
    owner.create_group("writers").await.unwrap();
    owner.add_to_group("writers", "member@example.com").await.unwrap();
    owner.grant_group("writers", Role::Write).await.unwrap();
    owner.grant_user("member@example.com", Role::Read).await.unwrap();
    owner.limit(&member.principal_id, Role::Read).await.unwrap();
    let told = owner.effective(&member.principal_id).await.unwrap();
    assert_eq!(told.workspace_role(), Role::Read);
    assert_eq!(told.projects[0].effective_role(), Role::Write);
    assert_eq!(told.projects[0].environments[0].effective_role(), Role::Read);

    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(code(owner.effective(&unknown).await), Code::NotFound);
    assert_eq!(code(owner.effective("x").await), Code::InvalidArgument);
    assert_eq!(code(service.effective(&service.principal_id).await), Code::Unauthenticated);
    let stranger = world.join("stranger@example.com").await;
    assert_eq!(code(stranger.effective(&service.principal_id).await), Code::NotFound);
}
