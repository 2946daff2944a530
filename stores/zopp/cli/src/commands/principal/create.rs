//! `zopp principal create`: another device of the same person, or a service.

use std::path::{Path, PathBuf};

use clap::Args;
use konverge_zopp_client::{
    Client, ConfigFile, Fingerprint,
    config_file::{self, Lock, Principal},
};
use konverge_zopp_crypto::{SigningSeed, X25519Private, X25519Public};
use konverge_zopp_proto::Empty;
use serde::Serialize;

use super::{administrators, pending, register};
use crate::{
    commands::{
        device::{generate_keys, new_principal, refuse_duplicate},
        workspace::grant_access,
    },
    context::Context,
    failure::{Failure, failed},
    output::{Answer, Outcome, plain},
    scope::WorkspaceArguments,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp principal create tablet                  another device of yours, with your workspaces' keys
  zopp principal create ci --service -w acme    a service; give it a role with zopp permission set
  zopp principal create k8s --service -w acme --credentials-file k8s.json --credentials-only
  zopp principal create k8s --service           its keys only; it joins a workspace by zopp join

The credentials file holds that one principal with its private keys, in the form of
~/.zopp/config.json and readable by you only: what the operator takes as --credentials.
With --credentials-only the keys are nowhere else. The file names the administrators of the
workspace that this device knows: the service follows a new key only if one of them made it.";

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
    /// Write the service's keys to the credentials file only, and not to this device's own file
    #[arg(long, requires = "credentials_file")]
    credentials_only: bool,
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

/// Where the keys of a service go.
enum Place {
    /// To this device's file.
    Device,
    /// Also to a file of their own.
    DeviceAndFile(PathBuf),
    /// To a file of their own only.
    File(PathBuf),
}

/// A new principal's local half.
struct New {
    name: String,
    seed: SigningSeed,
    exchange: X25519Private,
}

impl New {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_principal(&self.seed.public().to_bytes(), &self.exchange.public().to_bytes())
    }
}

pub(super) async fn execute(context: &Context, arguments: CreateArguments) -> Outcome {
    let CreateArguments { name, service, workspace, credentials_file, credentials_only } = arguments;
    // Until the new keys are saved: no other command changes the file between what is read now and then.
    let lock = Context::lock()?;
    let config = Context::config()?;
    if !credentials_only {
        refuse_duplicate(&config, &name)?;
    }
    if let Some(file) = &credentials_file {
        refuse_existing(file)?;
    }
    let workspace = if service { WorkspaceArguments { workspace }.known()? } else { None };
    if service && workspace.is_none() && credentials_file.is_none() {
        return pending::prepare(lock, config, name);
    }
    let client = context.client()?;
    let (seed, exchange) = generate_keys()?;
    let new = New { name, seed, exchange };
    if service {
        let workspace = WorkspaceArguments { workspace }.resolve()?;
        let place = match (credentials_file, credentials_only) {
            (None, _) => Place::Device,
            (Some(file), false) => Place::DeviceAndFile(file),
            (Some(file), true) => Place::File(file),
        };
        create_service(context, &client, lock, config, new, workspace, place).await
    } else {
        create_device(context, &client, lock, config, new).await
    }
}

async fn create_service(
    context: &Context,
    client: &Client,
    lock: Lock,
    mut config: ConfigFile,
    new: New,
    workspace: String,
    place: Place,
) -> Outcome {
    // Before the service is created, because a server that hides the administrators is refused.
    let administrators = match &place {
        Place::DeviceAndFile(_) | Place::File(_) => administrators::known(client, &workspace).await?,
        Place::Device => None,
    };
    let keys = (&new.seed, &new.exchange);
    let (id, mut known) = register::service(context, client, &new.name, keys, &workspace).await?;
    context.trust()?.pin_principal(&id, new.fingerprint());
    known.administrators.extend(administrators.map(|known| (workspace.clone(), known)));
    let address = context.address()?;

    let principal = || new_principal(id.clone(), new.name.clone(), &new.seed, &new.exchange);
    let write_credentials = |file: &Path| {
        let only = ConfigFile {
            principals: vec![principal()],
            current_principal: Some(new.name.clone()),
            // The service believes the key that it was given here, and those by which administrators replace it.
            servers: [(address.clone(), known.clone())].into(),
            ..ConfigFile::default()
        };
        config_file::save(file, &only)
    };
    let mut keep = |mut principal: Principal| {
        // Names are unique in the file; that of a service for a file of its own was not looked at before.
        if config.principals.iter().any(|other| other.name == principal.name) {
            principal.name = format!("{} {}", principal.name, principal.id);
        }
        config.principals.push(principal);
        Context::save(&config)
    };
    let credentials_file = match place {
        Place::Device => {
            keep(principal())?;
            None
        }
        Place::DeviceAndFile(file) => {
            keep(principal())?;
            write_credentials(&file)?;
            Some(file)
        }
        Place::File(file) => {
            if let Err(error) = write_credentials(&file) {
                // The server knows the principal by now, and its keys must be somewhere.
                keep(principal())?;
                return Err(Failure::from(error).next(format!(
                    "The service principal exists (ID: {id}), and its keys are in {} instead.",
                    Context::config_path()?.display()
                )));
            }
            Some(file)
        }
    };
    drop(lock);
    Ok(service_created(id, new.name, workspace, credentials_file.as_deref()))
}

fn service_created(id: String, name: String, workspace: String, credentials_file: Option<&Path>) -> Box<dyn Answer> {
    let mut text = format!(
        "Service principal '{name}' created (ID: {id})\nWorkspace: {workspace}\nIt has no role yet: zopp permission set \
         -w {workspace} --principal {id} --role read"
    );
    if let Some(file) = credentials_file {
        text.push_str("\nCredentials saved to ");
        text.push_str(&file.display().to_string());
    }
    let credentials_file = credentials_file.map(|file| file.display().to_string());
    let workspaces = vec![workspace];
    plain(Created { id, name, service: true, workspaces, failed: Vec::new(), credentials_file }, text)
}

async fn create_device(context: &Context, client: &Client, lock: Lock, mut config: ConfigFile, new: New) -> Outcome {
    let (Some(user_id), Some(email)) = (client.identity().user_id(), client.identity().email()) else {
        return Err(Failure::new(format!(
            "the current principal '{}' is a service and has no user to whom a device could belong",
            client.identity().name()
        ))
        .next("Switch to a principal of yours (zopp principal use <name>), or add --service for another service."));
    };
    let what = format!("cannot create principal '{}'", new.name);
    let request = register::device(&new.name, (&new.seed, &new.exchange), email.to_owned());
    let id = client.register(request, &new.seed, None).await.map_err(failed(what, None))?.principal_id;
    context.trust()?.pin_principal(&id, new.fingerprint());
    let mut principal = new_principal(id.clone(), new.name.clone(), &new.seed, &new.exchange);
    principal.user_id = Some(user_id.to_owned());
    principal.email = Some(email.to_owned());
    config.principals.push(principal);
    // Before the grants: should one of them fail, the keys are not lost.
    Context::save(&config)?;
    drop(lock);

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

/// Checked before the server is asked, so that no principal is made whose keys cannot be kept.
fn refuse_existing(file: &Path) -> Result<(), Failure> {
    if file.exists() {
        return Err(Failure::new(format!("credentials file {} exists already", file.display()))
            .next("Name another one, or remove it first."));
    }
    Ok(())
}
