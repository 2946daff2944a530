//! `zopp workspace`.

use clap::Subcommand;
use konverge_zopp_client::{Client, Fingerprint, workspace_key::WorkspaceKey};
use konverge_zopp_crypto::{Kek, X25519Public};
use konverge_zopp_proto::{
    CreateWorkspaceRequest, Empty, GetPrincipalRequest, GrantPrincipalWorkspaceAccessRequest, Principal, Workspace,
    identity::{
        DeleteWorkspaceRequest, DeleteWorkspaceResponse, RemoveMemberRequest, RemoveMemberResponse,
        TransferOwnershipRequest,
    },
};
use serde::Serialize;
use tonic::Code;

pub(super) mod rotate;

use self::rotate::{Leaving, RekeyArguments, Rekeying, Replaced, RotateArguments, text_after_removal};
use super::wrapped::{WrappedFields, wrap};
use crate::{
    confirm,
    context::{Context, report_replaced},
    escape::visible,
    failure::{Failure, failed},
    output::{Outcome, listing, plain},
    scope::{Place, WorkspaceArguments},
};

const FINGERPRINT_EXAMPLES: &str = "\
Examples:
  zopp workspace fingerprint -w acme
  zopp workspace fingerprint -w acme --pin 1c0f-…-77ab

This device pins the key when it creates or joins the workspace, else at first use. A server
that gives another key, to read what you write or to make values up, is refused.";

const REMOVE_EXAMPLES: &str = "\
Example:
  zopp workspace remove-member bob@example.com -w acme

The workspace and its environments get new keys: see zopp workspace rotate-key --help. Nothing can
take back what the user read: change the values that matter. Your own address makes you leave, and
the keys stay. For a user who is gone already (zopp user remove, zopp-server user remove), the
command replaces the keys, and this device gives none to the devices of that user any more.";

const REPLACE_ANYWAY: &str =
    "If the user was removed already, replace the keys, and look at the recipients: zopp workspace rotate-key.";

const GRANT_EXAMPLES: &str = "\
Example:
  zopp workspace grant-principal-access -w acme --principal 0190…57 --fingerprint 1c0f-…-77ab

The server tells the principal's public key. A lying server can tell one of its own, and read
the workspace. So the command asks about a principal that this device does not know, and without a
terminal it needs --fingerprint. Ask for it: zopp principal fingerprint, on the other device.";

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
    /// Show the fingerprint of the workspace's key, by which members compare it
    #[command(after_help = FINGERPRINT_EXAMPLES)]
    Fingerprint {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// Accept this key, and no other, from now on; take the fingerprint from another member, not from an error text
        #[arg(long, value_name = "FINGERPRINT")]
        pin: Option<Fingerprint>,
    },
    /// Hand the workspace's key to another principal
    #[command(after_help = GRANT_EXAMPLES)]
    GrantPrincipalAccess {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The principal's ID
        #[arg(short, long, value_name = "UUID")]
        principal: String,
        /// Require this fingerprint of the principal's keys; its user sees it with zopp principal fingerprint
        #[arg(long, value_name = "FINGERPRINT")]
        fingerprint: Option<Fingerprint>,
    },
    /// Replace the workspace's key and the keys of its environments
    #[command(after_help = rotate::EXAMPLES)]
    RotateKey(RotateArguments),
    /// Take a user out of the workspace: all devices, roles, groups, and the invites that the user made or used. Then replace the keys
    #[command(after_help = REMOVE_EXAMPLES)]
    RemoveMember {
        /// The user's e-mail address
        email: String,
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The keys afterwards
        #[command(flatten)]
        keys: RekeyArguments,
    },
    /// Delete a workspace that you own, with its projects, groups, roles, invites and services
    #[command(
        after_help = "Example:\n  zopp workspace delete acme\n\nThe audit log of the workspace stays with the server's operator."
    )]
    Delete {
        /// Its name
        name: String,
        /// Also if it has environments; their secrets are lost for good
        #[arg(long)]
        even_if_not_empty: bool,
    },
    /// Make another member the owner; you stay a member with the admin role
    #[command(after_help = "Example:\n  zopp workspace transfer bob@example.com -w acme")]
    Transfer {
        /// The member's e-mail address
        email: String,
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
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
    fingerprint: String,
}

/// `workspace fingerprint`
#[derive(Serialize)]
struct WorkspaceFingerprint {
    workspace: String,
    fingerprint: String,
}

/// `workspace remove-member`
#[derive(Serialize)]
struct RemovedMember {
    workspace: String,
    email: String,
    keys_removed: u32,
    invites_revoked: u32,
    /// Missing: the keys stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_keys: Option<Replaced>,
}

/// `workspace delete`
#[derive(Serialize)]
struct DeletedWorkspace {
    name: String,
    environments_deleted: u32,
    services_removed: u32,
    invites_revoked: u32,
}

/// `workspace transfer`
#[derive(Serialize)]
struct Transferred {
    workspace: String,
    owner: String,
}

pub(super) async fn execute(context: &Context, command: WorkspaceCommand) -> Outcome {
    let client = context.client()?;
    match command {
        WorkspaceCommand::List => list(&client).await,
        WorkspaceCommand::Create { name } => create(context, &client, name).await,
        WorkspaceCommand::Fingerprint { workspace, pin: None } => fingerprint(&client, workspace.resolve()?).await,
        WorkspaceCommand::Fingerprint { workspace, pin: Some(pin) } => pin_key(context, workspace.resolve()?, pin),
        WorkspaceCommand::GrantPrincipalAccess { workspace, principal, fingerprint } => {
            grant(context, &client, workspace.resolve()?, principal, fingerprint).await
        }
        WorkspaceCommand::RotateKey(arguments) => rotate::execute(context, &client, arguments).await,
        WorkspaceCommand::RemoveMember { email, workspace, keys } => {
            remove_member(context, &client, workspace.resolve()?, email, keys).await
        }
        WorkspaceCommand::Delete { name, even_if_not_empty } => delete(&client, name, even_if_not_empty).await,
        WorkspaceCommand::Transfer { email, workspace } => transfer(&client, workspace.resolve()?, email).await,
    }
}

async fn list(client: &Client) -> Outcome {
    let answer = client.list_workspaces(Empty {}).await.map_err(failed("cannot list workspaces", None))?;
    let workspaces: Vec<_> = answer.workspaces.into_iter().map(WorkspaceObject::from).collect();
    let lines = workspaces.iter().map(|workspace| format!("  {}", workspace.name));
    let text = listing("Workspaces:", "No workspaces found", lines);
    Ok(plain(Workspaces { workspaces }, text))
}

async fn create(context: &Context, client: &Client, name: String) -> Outcome {
    let what = format!("cannot create workspace '{name}'");
    let id = uuid::Uuid::now_v7().to_string();
    let kek = Kek::generate().map_err(|source| Failure::new(what.clone()).because(source))?;
    let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } = wrap(&kek, &own_public(client)?, &id)?;
    let key = WorkspaceKey { id: id.clone(), kek, generation: None };
    let request = CreateWorkspaceRequest { id, name: name.clone(), ephemeral_pub, kek_wrapped, kek_nonce };
    let workspace = client.create_workspace(request).await.map_err(failed(what, None))?;
    let before = context.trust()?.pin_workspace(&name, key.fingerprint());
    report_replaced(&format!("workspace '{name}'"), before);
    let text = format!("Workspace created\nName: {}\nID:   {}", workspace.name, workspace.id);
    Ok(plain(WorkspaceObject::from(workspace), text))
}

async fn fingerprint(client: &Client, workspace: String) -> Outcome {
    let what = format!("cannot show the fingerprint of workspace '{workspace}'");
    let key = client.workspace_key(&workspace).await.map_err(failed(what, None))?;
    let fingerprint = key.fingerprint().to_string();
    Ok(plain(WorkspaceFingerprint { workspace, fingerprint: fingerprint.clone() }, fingerprint))
}

fn pin_key(context: &Context, workspace: String, pin: Fingerprint) -> Outcome {
    let before = context.trust()?.pin_workspace(&workspace, pin);
    report_replaced(&format!("workspace '{workspace}'"), before);
    let text = format!("Pinned. Workspace '{workspace}' is used with this key only:\n  {pin}");
    Ok(plain(WorkspaceFingerprint { workspace, fingerprint: pin.to_string() }, text))
}

async fn grant(
    context: &Context,
    client: &Client,
    workspace: String,
    principal_id: String,
    required: Option<Fingerprint>,
) -> Outcome {
    let what = format!("cannot give principal {principal_id} access to workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let mut principal = client
        .get_principal(GetPrincipalRequest { principal_id: principal_id.clone() })
        .await
        .map_err(failed(what.clone(), need.clone()))?;
    // The requested ID, not the one in the server's response.
    principal.id.clone_from(&principal_id);
    let recipient = X25519Public::from_slice(&principal.x25519_public_key)
        .and_then(|key| key.check_strength().map(|()| key))
        .map_err(|source| Failure::new(what.clone()).because(format!("its X25519 public key is {source}")))?;
    let fingerprint = Fingerprint::of_principal(&principal.public_key, &principal.x25519_public_key);
    eprintln!("The keys of principal '{}' have the fingerprint\n  {fingerprint}", visible(&principal.name));
    vouch(context, &workspace, &what, &principal, fingerprint, required)?;
    grant_access(client, &workspace, &principal_id, &recipient).await?;
    context.trust()?.readmit(&principal_id, Some(&workspace));
    let text = format!("Granted principal '{}' access to workspace '{workspace}'", principal.name);
    let fingerprint = fingerprint.to_string();
    Ok(plain(Granted { workspace, principal_id, principal: principal.name, fingerprint }, text))
}

/// Compares the keys that the server gives for a principal with the required fingerprint, else with the pinned one. Asks about a principal
/// that this device does not know, or that it disabled or removed.
fn vouch(
    context: &Context,
    workspace: &str,
    what: &str,
    principal: &Principal,
    offered: Fingerprint,
    required: Option<Fingerprint>,
) -> Result<(), Failure> {
    let Principal { id, name, public_key, x25519_public_key } = principal;
    let trust = context.trust()?;
    if let Some(required) = required {
        if required != offered {
            return Err(Failure::new(what)
                .because(format!("the server gives the keys {offered}, but you require {required}"))
                .next("Nothing was sent. The server may lie, or the fingerprint is that of another principal."));
        }
        report_replaced(&format!("principal {id}"), trust.pin_principal(id, offered));
        return Ok(());
    }
    let is_revoked = trust.is_revoked(workspace, id, &[public_key, x25519_public_key]);
    if trust.principal(id).is_some() {
        trust.check_principal(id, offered).map_err(failed(what, None))?;
        if !is_revoked {
            return Ok(());
        }
    }
    let doubt =
        if is_revoked { "disabled or removed this principal, or one with its key" } else { "does not know these keys" };
    if !confirm::is_possible() {
        return Err(Failure::new(what).because(format!("this device {doubt}: {offered}")).next(
            "Nothing was sent. The server may lie. Compare the fingerprint with the one on the other device (zopp principal fingerprint) and \
             add --fingerprint.",
        ));
    }
    eprintln!("Compare it with the one on the other device: zopp principal fingerprint");
    if !confirm::ask(&format!("This device {doubt}. Give principal '{name}' the key of workspace '{workspace}'?"))? {
        return Err(Failure::new(what).because("you refused").next("Nothing was sent."));
    }
    trust.pin_principal(id, offered);
    Ok(())
}

async fn remove_member(
    context: &Context,
    client: &Client,
    workspace: String,
    email: String,
    keys: RekeyArguments,
) -> Outcome {
    let what = format!("cannot remove {email} from workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let is_own = client.identity().email().is_some_and(|own| own.eq_ignore_ascii_case(&email));
    let rekeying = if is_own {
        None
    } else {
        let leaving = Leaving::Member(email.clone());
        Some(Rekeying::check(context, client, &workspace, keys.after_removal(), leaving).await?)
    };
    let request = RemoveMemberRequest { workspace_name: workspace.clone(), user_email: email.clone() };
    let excludes_known = rekeying.as_ref().is_some_and(Rekeying::excludes_known_principals);
    let (answer, mut text, done) = match client.remove_member(request).await {
        // The user left, or the server's operator removed the user. This device learns of it here only.
        Err(error) if error.code() == Code::NotFound && excludes_known => {
            let text = format!("User {email} is no member of workspace '{workspace}' any more");
            (RemoveMemberResponse::default(), text, "is no member any more")
        }
        answer => {
            let answer = answer.map_err(|error| {
                let is_unknown = error.code() == Code::NotFound;
                let failure = failed(what, need)(error);
                if is_unknown { failure.next(REPLACE_ANYWAY) } else { failure }
            })?;
            let RemoveMemberResponse { keys_removed, invites_revoked } = &answer;
            let text = format!(
                "User {email} removed from workspace '{workspace}'\nKeys removed:    {keys_removed}\nInvites revoked: \
                 {invites_revoked}\nServices that the user made still have access: look at zopp principal service-list -w {workspace}"
            );
            (answer, text, "was removed")
        }
    };
    let mut new_keys = None;
    if let Some(rekeying) = rekeying {
        new_keys = rekeying.replace().await.map_err(|failure| failure.after(&format!("{email} {done}, but ")))?;
        text = format!("{text}\n{}", text_after_removal(new_keys.as_ref(), &workspace));
    }
    let RemoveMemberResponse { keys_removed, invites_revoked } = answer;
    Ok(plain(RemovedMember { workspace, email, keys_removed, invites_revoked, new_keys }, text))
}

async fn delete(client: &Client, name: String, even_if_not_empty: bool) -> Outcome {
    let what = format!("cannot delete workspace '{name}'");
    let request = DeleteWorkspaceRequest { workspace_name: name.clone(), even_if_not_empty };
    let answer = client.delete_workspace(request).await.map_err(|error| {
        let holds_environments = error.code() == Code::FailedPrecondition;
        let failure = failed(what, None)(error);
        if holds_environments { failure.next("To lose their secrets: --even-if-not-empty.") } else { failure }
    })?;
    let DeleteWorkspaceResponse { environments_deleted, services_removed, invites_revoked } = answer;
    let text = format!(
        "Workspace '{name}' deleted\nEnvironments deleted: {environments_deleted}\nServices removed:     {services_removed}\nInvites \
         revoked:      {invites_revoked}"
    );
    Ok(plain(DeletedWorkspace { name, environments_deleted, services_removed, invites_revoked }, text))
}

async fn transfer(client: &Client, workspace: String, email: String) -> Outcome {
    let what = format!("cannot make {email} the owner of workspace '{workspace}'");
    let request = TransferOwnershipRequest { workspace_name: workspace.clone(), user_email: email.clone() };
    client.transfer_ownership(request).await.map_err(failed(what, None))?;
    let text = format!("Workspace '{workspace}' now belongs to {email}; you stay a member with the admin role");
    Ok(plain(Transferred { workspace, owner: email }, text))
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
    client.grant_principal_workspace_access(request, &key, recipient).await.map_err(failed(what, need))?;
    Ok(())
}

fn own_public(client: &Client) -> Result<X25519Public, Failure> {
    let identity = client.identity();
    identity.exchange_key().map(konverge_zopp_crypto::X25519Private::public).ok_or_else(|| {
        Failure::new(format!("principal '{}' has no X25519 key to keep a workspace key with", identity.name()))
            .next("Use another principal: zopp principal use <name>")
    })
}
