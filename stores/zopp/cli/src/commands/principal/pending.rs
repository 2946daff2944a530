//! A service that is made first and joins a workspace later, by an invite, as the documentation of the original's operator has it:
//!
//! ```text
//! zopp principal create k8s-operator --service
//! zopp invite create --workspace acme --plain > invite.txt
//! zopp join $(cat invite.txt) k8s-operator@acme.com --principal k8s-operator
//! zopp principal use k8s-operator
//! ```
//!
//! Until it joins, its keys are in this device's file only. The principal that is in use registers it, so that principal must be an admin.

use konverge_zopp_client::{
    Client, ConfigFile, Fingerprint, Identity,
    config_file::{Lock, Principal},
};
use konverge_zopp_crypto::{
    InviteSecret, SigningSeed, X25519Private,
    invite::{CODE_PREFIX, NameInCode},
};
use konverge_zopp_proto::{Empty, GetInviteRequest, Role, SetWorkspacePermissionRequest};
use serde::Serialize;

use super::register;
use crate::{
    commands::device::{generate_keys, new_principal},
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, plain},
    scope::Place,
};

/// Marks a principal that no server knows yet.
const MARK: &str = "pending_service";
/// Its ID until then. Programs that read the file expect a UUID.
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

/// `principal create --service` without a workspace
#[derive(Serialize)]
struct Pending {
    name: String,
    service: bool,
    registered: bool,
}

/// `join` of a service
#[derive(Serialize)]
struct JoinedService {
    principal_id: String,
    principal: String,
    workspace: String,
    role: &'static str,
}

/// Whether no server knows the principal yet.
pub(super) fn is_pending(principal: &Principal) -> bool {
    principal.other.contains_key(MARK)
}

/// Returns the service of this name that waits for its workspace.
pub(in crate::commands) fn position(config: &ConfigFile, name: &str) -> Option<usize> {
    config.principals.iter().position(|principal| principal.name == name && is_pending(principal))
}

/// Makes the keys of a service and keeps them on this device.
pub(super) fn prepare(lock: Lock, mut config: ConfigFile, name: String) -> Outcome {
    let (seed, exchange) = generate_keys()?;
    let mut principal = new_principal(NO_ID.to_owned(), name.clone(), &seed, &exchange);
    principal.other.insert(MARK.to_owned(), true.into());
    // Without a name there, the first principal is in use.
    if config.current_principal.is_none() {
        config.current_principal = config.principals.first().map(|first| first.name.clone());
    }
    config.principals.push(principal);
    Context::save(&config)?;
    drop(lock);
    let text = format!(
        "Keys of service principal '{name}' created on this device (ID: none yet)\nIt joins a workspace by an invite: zopp invite create \
         -w <workspace> --plain, then zopp join <invite> {name}@localhost --principal {name}"
    );
    Ok(plain(Pending { name, service: true, registered: false }, text))
}

/// Registers a service that was made before in the workspace of an invite, and gives it the read role.
pub(in crate::commands) async fn join(
    context: &Context,
    lock: Lock,
    mut config: ConfigFile,
    position: usize,
    code: &str,
) -> Outcome {
    let name = config.principals[position].name.clone();
    if !code.starts_with(CODE_PREFIX) {
        return Err(Failure::usage(format!("'{name}' is a service, which joins by an invite to a workspace (inv_…)"))
            .next("An admin makes one: zopp invite create -w <workspace>"));
    }
    if config.current().is_some_and(is_pending) {
        return Err(Failure::new(format!("no principal is in use that could register service principal '{name}'"))
            .next("Switch to a principal of yours: zopp principal use <name>"));
    }
    Context::open_keys(&mut config)?;
    let client = context.client()?;
    let workspace = workspace_of(&client, context, code).await?;
    let service = Identity::from_config(&config, &Context::config_path()?, Some(&name))?;
    let (seed, exchange) = keys(&service)?;
    let (id, _) = register::service(context, &client, &name, (seed, exchange), &workspace).await?;
    let fingerprint = Fingerprint::of_principal(&seed.public().to_bytes(), &exchange.public().to_bytes());
    context.trust()?.pin_principal(&id, fingerprint);

    let principal = &mut config.principals[position];
    principal.id.clone_from(&id);
    principal.other.remove(MARK);
    // Before the role: should that fail, the keys are not lost.
    Context::save(&config)?;
    drop(lock);
    let request = SetWorkspacePermissionRequest {
        workspace_name: workspace.clone(),
        principal_id: id.clone(),
        role: Role::Read.into(),
    };
    let what = format!("service principal '{name}' joined workspace '{workspace}' (ID: {id}), but has no role");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", &client);
    client.set_workspace_permission(request).await.map_err(failed(what, need))?;

    let text = format!(
        "Joined.\n\nPrincipal ID: {id}\nPrincipal:    {name} (service)\nWorkspace:    {workspace}\nRole:         read\n\nA service has no e-mail \
         address, so the given one is not used. Nobody has joined by the invite: zopp invite list"
    );
    Ok(plain(JoinedService { principal_id: id, principal: name, workspace, role: "read" }, text))
}

/// The name of the workspace that an invite is for. The principal in use must be a member.
async fn workspace_of(client: &Client, context: &Context, code: &str) -> Result<String, Failure> {
    let secret = InviteSecret::from_code(code).map_err(|error| Failure::usage(error.to_string()))?;
    let invite = context
        .connection()?
        .get_invite(GetInviteRequest { token: secret.token() })
        .await
        .map_err(failed("cannot look the invite up", None))?;
    let list = client.list_workspaces(Empty {}).await.map_err(failed("cannot list workspaces", None))?;
    let found = list.workspaces.into_iter().find(|workspace| invite.workspace_ids.first() == Some(&workspace.id));
    if let Some(workspace) = &found
        && secret.name_in_code(&workspace.id, &workspace.name) == NameInCode::Other
    {
        return Err(Failure::new(format!(
            "the server calls the workspace '{}', but the invite has another name",
            workspace.name
        ))
        .next("The server may lie. Ask the person who created the invite which workspace and server it is for."));
    }
    found.map(|workspace| workspace.name).ok_or_else(|| {
        Failure::new(format!("principal '{}' is no member of the invite's workspace", client.identity().name()))
            .next("Switch to a principal of an admin of it: zopp principal use <name>")
    })
}

fn keys(service: &Identity) -> Result<(&SigningSeed, &X25519Private), Failure> {
    let exchange = service.exchange_key().ok_or_else(|| {
        Failure::new(format!("service principal '{}' has no X25519 key", service.name()))
            .next("Delete it (zopp principal delete) and make it again")
    })?;
    Ok((service.signing_seed(), exchange))
}
