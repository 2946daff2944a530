//! `zopp principal create`: another device of the same person, or a service.

use std::path::{Path, PathBuf};

use clap::Args;
use konverge_zopp_client::{Client, ConfigFile, config_file};
use konverge_zopp_crypto::{SigningSeed, X25519Private, X25519Public};
use konverge_zopp_proto::{Empty, RegisterRequest};
use serde::Serialize;

use super::new_principal;
use crate::{
    commands::{
        Outcome,
        join::{WrappedFields, generate_keys, refuse_duplicate},
        workspace::{grant_access, wrap},
    },
    context::Context,
    failure::{Failure, failed},
    output::plain,
    scope::{Place, WorkspaceArguments},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp principal create tablet                  another device of yours, with your workspaces' keys
  zopp principal create ci --service -w acme    a service; give it a role with zopp permission set
  zopp principal create operator --service -w acme --credentials-file operator.json

The credentials file holds that one principal with its private keys, in the form of
~/.zopp/config.json and readable by you only: what the operator takes as --credentials.";

/// `zopp principal create`
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Name, unique on this device
    name: String,
    /// A service instead of a device of yours
    #[arg(long)]
    service: bool,
    /// Workspace of the service [env: `ZOPP_WORKSPACE`]
    #[arg(short, long, help = "Workspace of the service [env: ZOPP_WORKSPACE]", requires = "service")]
    workspace: Option<String>,
    /// Also write the service's keys to a file of their own
    #[arg(long, value_name = "PATH", requires = "service")]
    credentials_file: Option<PathBuf>,
}

/// `principal create`
#[derive(Serialize)]
struct Created {
    id: String,
    name: String,
    service: bool,
    /// Workspaces whose keys it was given.
    workspaces: Vec<String>,
    /// Workspaces whose keys it could not be given, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<FailedGrant>,
    credentials_file: Option<String>,
}

#[derive(Serialize)]
struct FailedGrant {
    workspace: String,
    reason: String,
}

/// A new principal's local half.
struct New {
    name: String,
    seed: SigningSeed,
    exchange: X25519Private,
}

pub(super) async fn execute(context: &Context, arguments: CreateArguments) -> Outcome {
    let CreateArguments { name, service, workspace, credentials_file } = arguments;
    let config = Context::config()?;
    refuse_duplicate(&config, &name)?;
    if let Some(file) = &credentials_file {
        refuse_existing(file)?;
    }
    let client = context.client()?;
    let (seed, exchange) = generate_keys()?;
    let new = New { name, seed, exchange };
    if service {
        let workspace = WorkspaceArguments { workspace }.resolve()?;
        create_service(&client, config, new, workspace, credentials_file).await
    } else {
        create_device(&client, config, new).await
    }
}

async fn create_service(
    client: &Client,
    mut config: ConfigFile,
    new: New,
    workspace: String,
    credentials_file: Option<PathBuf>,
) -> Outcome {
    let what = format!("cannot create service principal '{}'", new.name);
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let key = client.workspace_key(&workspace).await.map_err(failed(what.clone(), need.clone()))?;
    let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } = wrap(&key.kek, &new.exchange.public(), &key.id)?;
    let request = RegisterRequest {
        workspace_name: Some(workspace.clone()),
        is_service: true,
        ephemeral_pub: Some(ephemeral_pub),
        kek_wrapped: Some(kek_wrapped),
        kek_nonce: Some(kek_nonce),
        ..registration(&new, String::new())
    };
    let id = client.register(request).await.map_err(failed(what, need))?.principal_id;

    let principal = || new_principal(id.clone(), new.name.clone(), &new.seed, &new.exchange);
    config.principals.push(principal());
    Context::save(&config)?;
    if let Some(file) = &credentials_file {
        let only = ConfigFile {
            principals: vec![principal()],
            current_principal: Some(new.name.clone()),
            ..ConfigFile::default()
        };
        config_file::save(file, &only)?;
    }

    let New { name, .. } = new;
    let mut text = format!(
        "Service principal '{name}' created (ID: {id})\nWorkspace: {workspace}\nIt has no role yet: zopp permission set \
         -w {workspace} --principal {id} --role read"
    );
    if let Some(file) = &credentials_file {
        text.push_str("\nCredentials saved to ");
        text.push_str(&file.display().to_string());
    }
    let credentials_file = credentials_file.map(|file| file.display().to_string());
    let workspaces = vec![workspace];
    Ok(plain(Created { id, name, service: true, workspaces, failed: Vec::new(), credentials_file }, text))
}

async fn create_device(client: &Client, mut config: ConfigFile, new: New) -> Outcome {
    let (Some(user_id), Some(email)) = (client.identity().user_id(), client.identity().email()) else {
        return Err(Failure::new(format!(
            "the current principal '{}' is a service and has no user to whom a device could belong",
            client.identity().name()
        ))
        .next("Switch to a principal of yours (zopp principal use <name>), or add --service for another service."));
    };
    let what = format!("cannot create principal '{}'", new.name);
    let request = registration(&new, email.to_owned());
    let id = client.register(request).await.map_err(failed(what, None))?.principal_id;
    let mut principal = new_principal(id.clone(), new.name.clone(), &new.seed, &new.exchange);
    principal.user_id = Some(user_id.to_owned());
    principal.email = Some(email.to_owned());
    config.principals.push(principal);
    // Before the grants: should one of them fail, the keys are not lost.
    Context::save(&config)?;

    let (workspaces, failed) = grant_all(client, &id, &new.exchange.public()).await?;
    let mut lines = vec![format!("Principal '{}' created (ID: {id})", new.name)];
    lines.extend(workspaces.iter().map(|workspace| format!("  Granted access to workspace {workspace}")));
    lines.extend(failed.iter().map(|FailedGrant { workspace, reason }| {
        format!("  No access to workspace {workspace}: {}", reason.lines().next().unwrap_or_default())
    }));
    let created = Created { id, name: new.name, service: false, workspaces, failed, credentials_file: None };
    Ok(plain(created, lines.join("\n")))
}

/// Gives the device the key of each workspace its user is in.
async fn grant_all(
    client: &Client,
    principal_id: &str,
    recipient: &X25519Public,
) -> Result<(Vec<String>, Vec<FailedGrant>), Failure> {
    let list = client.list_workspaces(Empty {}).await.map_err(failed("cannot list workspaces", None))?;
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for workspace in list.workspaces {
        match grant_access(client, &workspace.name, principal_id, recipient).await {
            Ok(()) => granted.push(workspace.name),
            Err(failure) => refused.push(FailedGrant { workspace: workspace.name, reason: failure.text() }),
        }
    }
    Ok((granted, refused))
}

fn registration(new: &New, email: String) -> RegisterRequest {
    RegisterRequest {
        email,
        principal_name: new.name.clone(),
        public_key: new.seed.public().to_bytes().to_vec(),
        x25519_public_key: new.exchange.public().to_bytes().to_vec(),
        is_service: false,
        workspace_name: None,
        ephemeral_pub: None,
        kek_wrapped: None,
        kek_nonce: None,
    }
}

/// Checked before the server is asked, so that no principal is made whose keys cannot be kept.
fn refuse_existing(file: &Path) -> Result<(), Failure> {
    if file.exists() {
        return Err(Failure::new(format!("credentials file {} exists already", file.display()))
            .next("Name another one, or remove it first."));
    }
    Ok(())
}
