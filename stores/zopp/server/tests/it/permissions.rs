//! Grants over the wire; what they mean is tested with the decisions themselves.

use konverge_zopp_proto::{self as proto, Role};
use tonic::Code;

use crate::harness::{World, code};

#[tokio::test]
async fn grants_hold_on_their_level_and_below() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    let id = service.principal_id.clone();
    let set = proto::SetProjectPermissionRequest {
        workspace_name: "acme".into(),
        project_name: "backend".into(),
        principal_id: id.clone(),
        role: Role::Read.into(),
    };
    owner.client.set_project_permission(owner.sign("SetProjectPermission", set)).await.unwrap();
    service.list().await.unwrap();

    let set = proto::SetEnvironmentPermissionRequest {
        workspace_name: "acme".into(),
        project_name: "backend".into(),
        environment_name: "production".into(),
        principal_id: id.clone(),
        role: Role::Write.into(),
    };
    owner.client.set_environment_permission(owner.sign("SetEnvironmentPermission", set)).await.unwrap();
    service.set("A").await.unwrap();

    let list = proto::ListEnvironmentPermissionsRequest {
        workspace_name: "acme".into(),
        project_name: "backend".into(),
        environment_name: "production".into(),
    };
    let listed = owner.client.list_environment_permissions(owner.sign("ListEnvironmentPermissions", list)).await;
    let listed = listed.unwrap().into_inner().permissions;
    assert_eq!((listed[0].principal_name.as_str(), listed[0].role()), ("operator", Role::Write));

    let services = proto::ListWorkspaceServicePrincipalsRequest { workspace_name: "acme".into() };
    let services = owner.sign("ListWorkspaceServicePrincipals", services);
    let services = owner.client.list_workspace_service_principals(services).await.unwrap().into_inner();
    let scopes: Vec<_> =
        services.service_principals[0].permissions.iter().map(|permission| permission.scope.as_str()).collect();
    assert_eq!(scopes, ["project:backend", "environment:backend/production"]);

    let revoke = proto::RevokeAllPrincipalPermissionsRequest { workspace_name: "acme".into(), principal_id: id };
    let revoked = owner.client.revoke_all_principal_permissions(owner.sign("RevokeAllPrincipalPermissions", revoke));
    assert_eq!(revoked.await.unwrap().into_inner().permissions_revoked, 2);
    assert_eq!(code(service.list().await), Code::PermissionDenied);
}

#[tokio::test]
async fn one_gives_and_takes_what_one_has() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut writer = world.service(&mut owner).await;
    let target = world.service(&mut owner).await.principal_id;
    owner.grant(&writer.principal_id, Role::Write).await.unwrap();
    let set = |role: Role| {
        let request = proto::SetProjectPermissionRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            principal_id: target.clone(),
            role: role.into(),
        };
        let request = writer.sign("SetProjectPermission", request);
        let mut client = writer.client.clone();
        async move { client.set_project_permission(request).await }
    };
    set(Role::Write).await.unwrap();
    set(Role::Read).await.unwrap();
    assert_eq!(code(set(Role::Admin).await), Code::PermissionDenied);
    assert_eq!(code(set(Role::Unspecified).await), Code::InvalidArgument);

    // A workspace's grants are for users.
    assert_eq!(code(writer.grant(&target, Role::Read).await), Code::Unauthenticated);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let outsider = world.join("outsider@example.com").await;
    assert_eq!(code(owner.revoke(&outsider.principal_id).await), Code::NotFound, "no grant");
    let stranger = uuid::Uuid::now_v7().to_string();
    assert_eq!(code(owner.grant(&stranger, Role::Read).await), Code::NotFound, "no principal");
    assert_eq!(code(owner.grant("nonsense", Role::Read).await), Code::InvalidArgument);
    let get = proto::GetWorkspacePermissionRequest {
        workspace_name: "acme".into(),
        principal_id: outsider.principal_id.clone(),
    };
    let none = world.client().get_workspace_permission(owner.sign("GetWorkspacePermission", get.clone())).await;
    assert_eq!(code(none), Code::NotFound);
    let hidden = world.client().get_workspace_permission(outsider.sign("GetWorkspacePermission", get)).await;
    let hidden = hidden.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound);
    assert!(hidden.message().contains("not found or access denied"), "{hidden}");
}

/// A database that cannot say who has which right gives nobody any, whichever of the answers it is that fails.
#[tokio::test]
async fn a_failure_to_find_out_is_not_a_permission() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let saboteur = world.saboteur().await;
    let rename = async |from: &str, to: &str| saboteur.run(&format!("ALTER TABLE {from} RENAME TO {to}")).await;
    for holder in ["", "group_", "user_"] {
        for level in ["workspace", "project", "environment"] {
            let table = format!("{holder}{level}_permissions");
            rename(&table, "elsewhere").await;
            let refused = owner.list().await.unwrap_err();
            assert_eq!(refused.code(), Code::Internal, "{table}");
            assert!(!refused.message().contains(&table), "{refused}");
            rename("elsewhere", &table).await;
        }
    }
    owner.list().await.unwrap();
}
