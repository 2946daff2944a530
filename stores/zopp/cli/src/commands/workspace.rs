//! `zopp workspace`.

use clap::Subcommand;
use konverge_zopp_client::Client;
use konverge_zopp_crypto::{Kek, X25519Public};
use konverge_zopp_proto::{
    CreateWorkspaceRequest, Empty, GetPrincipalRequest, GrantPrincipalWorkspaceAccessRequest, Workspace,
};
use serde::Serialize;

use super::{Outcome, join::WrappedFields};
use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{listing, plain},
    scope::{Place, WorkspaceArguments},
};

/// `zopp workspace`
#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// List the workspaces you are a member of
    List,
    /// Create a workspace; you become its owner
    #[command(after_help = "Example:\n  zopp workspace create acme")]
    Create {
        /// Name, unique on the server
        name: String,
    },
    /// Hand the workspace's key to another principal
    #[command(after_help = "Example:\n  zopp workspace grant-principal-access -w acme --principal 0190…57")]
    GrantPrincipalAccess {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The principal's ID
        #[arg(short, long, value_name = "UUID")]
        principal: String,
    },
}

/// A workspace.
#[derive(Debug, Serialize)]
pub(super) struct WorkspaceObject {
    pub(super) id: String,
    pub(super) name: String,
}

impl From<Workspace> for WorkspaceObject {
    fn from(workspace: Workspace) -> Self {
        Self { id: workspace.id, name: workspace.name }
    }
}

/// `workspace list`
#[derive(Serialize)]
struct Workspaces {
    workspaces: Vec<WorkspaceObject>,
}

/// `workspace grant-principal-access`
#[derive(Serialize)]
struct Granted {
    workspace: String,
    principal_id: String,
    principal: String,
}

pub(super) async fn execute(context: &Context, command: WorkspaceCommand) -> Outcome {
    let client = context.client()?;
    match command {
        WorkspaceCommand::List => list(&client).await,
        WorkspaceCommand::Create { name } => create(&client, name).await,
        WorkspaceCommand::GrantPrincipalAccess { workspace, principal } => {
            grant(&client, workspace.resolve()?, principal).await
        }
    }
}

async fn list(client: &Client) -> Outcome {
    let answer = client.list_workspaces(Empty {}).await.map_err(failed("cannot list workspaces", None))?;
    let workspaces: Vec<_> = answer.workspaces.into_iter().map(WorkspaceObject::from).collect();
    let lines = workspaces.iter().map(|workspace| format!("  {}", workspace.name));
    let text = listing("Workspaces:", "No workspaces found", lines);
    Ok(plain(Workspaces { workspaces }, text))
}

async fn create(client: &Client, name: String) -> Outcome {
    let what = format!("cannot create workspace '{name}'");
    let id = uuid::Uuid::now_v7().to_string();
    let kek = Kek::generate().map_err(|source| Failure::new(what.clone()).because(source))?;
    let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } = wrap(&kek, &own_public(client)?, &id)?;
    let request = CreateWorkspaceRequest { id, name, ephemeral_pub, kek_wrapped, kek_nonce };
    let workspace = client.create_workspace(request).await.map_err(failed(what, None))?;
    let text = format!("Workspace created\nName: {}\nID:   {}", workspace.name, workspace.id);
    Ok(plain(WorkspaceObject::from(workspace), text))
}

async fn grant(client: &Client, workspace: String, principal_id: String) -> Outcome {
    let what = format!("cannot give principal {principal_id} access to workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let principal = client
        .get_principal(GetPrincipalRequest { principal_id: principal_id.clone() })
        .await
        .map_err(failed(what.clone(), need.clone()))?;
    let recipient = X25519Public::from_slice(&principal.x25519_public_key)
        .map_err(|source| Failure::new(what.clone()).because(format!("its X25519 public key is {source}")))?;
    grant_access(client, &workspace, &principal_id, &recipient).await?;
    let text = format!("Granted principal '{}' access to workspace '{workspace}'", principal.name);
    Ok(plain(Granted { workspace, principal_id, principal: principal.name }, text))
}

/// Wraps the workspace's key for `recipient` and stores it for the principal.
pub(super) async fn grant_access(
    client: &Client,
    workspace: &str,
    principal_id: &str,
    recipient: &X25519Public,
) -> Result<(), Failure> {
    let what = format!("cannot give principal {principal_id} access to workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.to_owned() }.need("admin", client);
    let key = client.workspace_key(workspace).await.map_err(failed(what.clone(), need.clone()))?;
    let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } = wrap(&key.kek, recipient, &key.id)?;
    let request = GrantPrincipalWorkspaceAccessRequest {
        workspace_name: workspace.to_owned(),
        principal_id: principal_id.to_owned(),
        ephemeral_pub,
        kek_wrapped,
        kek_nonce,
    };
    client.grant_principal_workspace_access(request).await.map_err(failed(what, need))?;
    Ok(())
}

/// Wraps a workspace's key, for a request.
pub(super) fn wrap(kek: &Kek, recipient: &X25519Public, workspace_id: &str) -> Result<WrappedFields, Failure> {
    kek.wrap_for(recipient, workspace_id)
        .map(WrappedFields::from)
        .map_err(|source| Failure::new("the workspace key cannot be wrapped").because(source))
}

fn own_public(client: &Client) -> Result<X25519Public, Failure> {
    let identity = client.identity();
    identity.exchange_key().map(konverge_zopp_crypto::X25519Private::public).ok_or_else(|| {
        Failure::new(format!("principal '{}' has no X25519 key to keep a workspace key with", identity.name()))
            .next("Use another principal: zopp principal use <name>")
    })
}
