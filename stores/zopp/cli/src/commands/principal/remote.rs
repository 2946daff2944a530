//! The verbs that change or read principals on the server.

use konverge_zopp_proto::{
    ListWorkspaceServicePrincipalsRequest, RemovePrincipalFromWorkspaceRequest, RenamePrincipalRequest,
    RevokeAllPrincipalPermissionsRequest, Role, ServicePrincipal,
};
use serde::Serialize;

use super::local::find;
use crate::{
    commands::{
        device::refuse_duplicate,
        permission::RoleName,
        workspace::rotate::{Leaving, RekeyArguments, Rekeying, Replaced, text_after_removal},
    },
    context::Context,
    failure::failed,
    output::{Outcome, listing, plain},
    scope::Place,
};

/// `principal rename`
#[derive(Serialize)]
struct Renamed {
    id: String,
    old_name: String,
    name: String,
}

/// `principal service-list`
#[derive(Serialize)]
struct ServicePrincipals {
    service_principals: Vec<ServicePrincipalObject>,
}

#[derive(Serialize)]
struct ServicePrincipalObject {
    id: String,
    name: String,
    created_at: String,
    permissions: Vec<GrantObject>,
}

#[derive(Serialize)]
struct GrantObject {
    /// `project:<project>` or `environment:<project>/<environment>`.
    scope: String,
    role: RoleName,
}

/// `principal workspace-remove`, `principal revoke-all`
#[derive(Serialize)]
struct Removed {
    workspace: String,
    principal_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions_revoked: Option<i32>,
    /// The highest role that the principal has anywhere in the workspace afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    role_afterwards: Option<RoleName>,
    /// Missing: the keys stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_keys: Option<Replaced>,
}

/// Signs with the key of the principal that is renamed, which need not be the current one.
pub(super) async fn rename(context: &Context, name: &str, new_name: String) -> Outcome {
    let _lock = Context::lock()?;
    let mut config = Context::config()?;
    let index = find(&config, name)?;
    refuse_duplicate(&config, &new_name)?;
    let client = context.client_as(Some(name))?;
    let id = client.identity().principal_id().to_owned();
    let request = RenamePrincipalRequest { principal_id: id.clone(), new_name: new_name.clone() };
    client.rename_principal(request).await.map_err(failed(format!("cannot rename principal '{name}'"), None))?;
    if config.current_principal.as_deref() == Some(name) {
        config.current_principal = Some(new_name.clone());
    }
    config.principals[index].name.clone_from(&new_name);
    Context::save(&config)?;
    let text = format!("Principal '{name}' renamed to '{new_name}'");
    Ok(plain(Renamed { id, old_name: name.to_owned(), name: new_name }, text))
}

pub(super) async fn service_list(context: &Context, workspace: String) -> Outcome {
    let client = context.client()?;
    let what = format!("cannot list the service principals of workspace '{workspace}'");
    let request = ListWorkspaceServicePrincipalsRequest { workspace_name: workspace.clone() };
    let answer = client.list_workspace_service_principals(request).await.map_err(failed(what, None))?;
    let service_principals: Vec<_> = answer.service_principals.into_iter().map(object).collect();
    let text = if service_principals.is_empty() {
        format!("No service principals found in workspace {workspace}")
    } else {
        format!("Service principals in workspace {workspace}:\n\n{}", blocks(&service_principals))
    };
    Ok(plain(ServicePrincipals { service_principals }, text))
}

fn object(principal: ServicePrincipal) -> ServicePrincipalObject {
    let permissions = principal
        .permissions
        .into_iter()
        .map(|permission| GrantObject { role: RoleName::from(permission.role()), scope: permission.scope })
        .collect();
    ServicePrincipalObject { id: principal.id, name: principal.name, created_at: principal.created_at, permissions }
}

fn blocks(principals: &[ServicePrincipalObject]) -> String {
    let block = |principal: &ServicePrincipalObject| {
        let ServicePrincipalObject { id, name, created_at, permissions } = principal;
        let grants = permissions.iter().map(|grant| format!("      {} -> {}", grant.scope, grant.role));
        let permissions = listing("    Permissions:", "    Permissions: none", grants);
        format!("  {name} (ID: {id})\n    Created: {created_at}\n{permissions}")
    };
    principals.iter().map(block).collect::<Vec<_>>().join("\n\n")
}

pub(super) async fn workspace_remove(
    context: &Context,
    workspace: String,
    principal_id: String,
    keys: RekeyArguments,
) -> Outcome {
    let client = context.client()?;
    let leaving = Leaving::Principal(principal_id.clone());
    let rekeying = Rekeying::check(context, &client, &workspace, keys.after_removal(), leaving).await?;
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", &client);
    let what = format!("cannot remove principal {principal_id} from workspace '{workspace}'");
    let request =
        RemovePrincipalFromWorkspaceRequest { workspace_name: workspace.clone(), principal_id: principal_id.clone() };
    client.remove_principal_from_workspace(request).await.map_err(failed(what, need))?;
    let new_keys = rekeying.replace().await;
    let new_keys = new_keys.map_err(|failure| failure.after(&format!("principal {principal_id} was removed, but ")))?;
    // Standard output has the one line of the original's command.
    eprintln!("{}", text_after_removal(new_keys.as_ref(), &workspace));
    let text = format!("Principal {principal_id} removed from workspace {workspace}");
    Ok(plain(Removed { workspace, principal_id, permissions_revoked: None, role_afterwards: None, new_keys }, text))
}

pub(super) async fn revoke_all(context: &Context, workspace: String, principal_id: String) -> Outcome {
    let client = context.client()?;
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", &client);
    let what = format!("cannot revoke the permissions of principal {principal_id} in workspace '{workspace}'");
    let request =
        RevokeAllPrincipalPermissionsRequest { workspace_name: workspace.clone(), principal_id: principal_id.clone() };
    let answer = client.revoke_all_principal_permissions(request).await.map_err(failed(what, need))?;
    let count = answer.permissions_revoked;
    let mut text = format!("Revoked {count} permissions of principal {principal_id} in workspace {workspace}");
    let role_afterwards = answer.role_afterwards.and_then(|role| Role::try_from(role).ok()).map(RoleName::from);
    if let Some(role) = role_afterwards {
        text = format!(
            "{text}\nIt is a person's device, and without a ceiling it has its user's role there: {role}\nTo cut it off: zopp principal \
             disable (one's own), zopp principal workspace-remove (any)"
        );
    }
    Ok(plain(
        Removed { workspace, principal_id, permissions_revoked: Some(count), role_afterwards, new_keys: None },
        text,
    ))
}
