//! `zopp permission`: roles of principals in a workspace, project or environment.

use clap::{Args, Subcommand, ValueEnum};
use konverge_zopp_client::{CallError, Client};
use konverge_zopp_proto as proto;
use serde::Serialize;

use super::Outcome;
use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{listing, plain},
    scope::{EnvironmentArguments, Place, ProjectArguments, WorkspaceArguments},
};

mod calls;

const EXAMPLES: &str = "\
Examples:
  zopp permission set -w acme --principal 0190…57 --role read
  zopp permission env-set -w acme -p backend -e production --principal 0190…57 --role write
  zopp permission list -w acme --output json

A role counts in its place and in all below it: admin can all that write can, write all that read
can. For a service principal it is what it may do; for a principal of a person it is a ceiling on
what the person may do.";

/// `zopp permission`
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum PermissionCommand {
    /// Give a principal a role in a workspace
    Set(Grant<WorkspaceArguments>),
    /// Show a principal's role in a workspace
    Get(Target<WorkspaceArguments>),
    /// List the roles in a workspace
    List(WorkspaceArguments),
    /// Take a principal's role in a workspace away
    Remove(Target<WorkspaceArguments>),
    /// Give a principal a role in a project
    ProjectSet(Grant<ProjectArguments>),
    /// Show a principal's role in a project
    ProjectGet(Target<ProjectArguments>),
    /// List the roles in a project
    ProjectList(ProjectArguments),
    /// Take a principal's role in a project away
    ProjectRemove(Target<ProjectArguments>),
    /// Give a principal a role in an environment
    EnvSet(Grant<EnvironmentArguments>),
    /// Show a principal's role in an environment
    EnvGet(Target<EnvironmentArguments>),
    /// List the roles in an environment
    EnvList(EnvironmentArguments),
    /// Take a principal's role in an environment away
    EnvRemove(Target<EnvironmentArguments>),
}

/// A place and a principal.
#[derive(Debug, Args)]
pub struct Target<P: Args> {
    #[command(flatten)]
    place: P,
    /// The principal's ID
    #[arg(long, value_name = "UUID")]
    principal: String,
}

/// A place, a principal and a role.
#[derive(Debug, Args)]
pub struct Grant<P: Args> {
    #[command(flatten)]
    target: Target<P>,
    /// The role
    #[arg(long, ignore_case = true)]
    role: RoleName,
}

/// A role, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// Everything, roles included
    Admin,
    /// Read and change secrets
    Write,
    /// Read secrets
    Read,
    /// A role of a later server.
    #[value(skip)]
    Unknown,
}

impl From<proto::Role> for RoleName {
    fn from(role: proto::Role) -> Self {
        match role {
            proto::Role::Admin => Self::Admin,
            proto::Role::Write => Self::Write,
            proto::Role::Read => Self::Read,
            proto::Role::Unspecified => Self::Unknown,
        }
    }
}

impl From<RoleName> for proto::Role {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Admin => Self::Admin,
            RoleName::Write => Self::Write,
            RoleName::Read => Self::Read,
            RoleName::Unknown => Self::Unspecified,
        }
    }
}

impl std::fmt::Display for RoleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin",
            Self::Write => "write",
            Self::Read => "read",
            Self::Unknown => "unknown",
        })
    }
}

/// `permission set`, `get` and `remove`
#[derive(Serialize)]
struct PermissionObject {
    #[serde(flatten)]
    place: PlaceObject,
    principal_id: String,
    /// `null` after a removal.
    role: Option<RoleName>,
}

/// `permission list`
#[derive(Serialize)]
struct Permissions {
    #[serde(flatten)]
    place: PlaceObject,
    permissions: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    principal_id: String,
    principal_name: String,
    role: RoleName,
}

#[derive(Serialize)]
struct PlaceObject {
    workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<String>,
}

impl From<Place> for PlaceObject {
    fn from(place: Place) -> Self {
        match place {
            Place::Workspace { workspace } => Self { workspace, project: None, environment: None },
            Place::Project { workspace, project } => Self { workspace, project: Some(project), environment: None },
            Place::Environment(name) => {
                Self { workspace: name.workspace, project: Some(name.project), environment: Some(name.environment) }
            }
        }
    }
}

/// Arguments that name a place.
trait Locate: Args {
    fn locate(self) -> Result<Place, Failure>;
}

impl Locate for WorkspaceArguments {
    fn locate(self) -> Result<Place, Failure> {
        Ok(Place::Workspace { workspace: self.resolve()? })
    }
}

impl Locate for ProjectArguments {
    fn locate(self) -> Result<Place, Failure> {
        let (workspace, project) = self.resolve()?;
        Ok(Place::Project { workspace, project })
    }
}

impl Locate for EnvironmentArguments {
    fn locate(self) -> Result<Place, Failure> {
        Ok(Place::Environment(self.resolve()?))
    }
}

pub(super) async fn execute(context: &Context, command: PermissionCommand) -> Outcome {
    let client = context.client()?;
    match command {
        PermissionCommand::Set(grant) => set(&client, grant).await,
        PermissionCommand::ProjectSet(grant) => set(&client, grant).await,
        PermissionCommand::EnvSet(grant) => set(&client, grant).await,
        PermissionCommand::Get(target) => get(&client, target).await,
        PermissionCommand::ProjectGet(target) => get(&client, target).await,
        PermissionCommand::EnvGet(target) => get(&client, target).await,
        PermissionCommand::List(place) => list(&client, place.locate()?).await,
        PermissionCommand::ProjectList(place) => list(&client, place.locate()?).await,
        PermissionCommand::EnvList(place) => list(&client, place.locate()?).await,
        PermissionCommand::Remove(target) => remove(&client, target).await,
        PermissionCommand::ProjectRemove(target) => remove(&client, target).await,
        PermissionCommand::EnvRemove(target) => remove(&client, target).await,
    }
}

async fn set(client: &Client, grant: Grant<impl Locate>) -> Outcome {
    let Grant { target: Target { place, principal }, role } = grant;
    let place = place.locate()?;
    let what = format!("cannot give principal {principal} the {role} role on {place}");
    calls::set(client, &place, &principal, role.into()).await.map_err(refused(what, &place, role, client))?;
    let text = format!("Principal {principal} now has {role} permission on {place}");
    Ok(plain(PermissionObject { place: place.into(), principal_id: principal, role: Some(role) }, text))
}

async fn get(client: &Client, target: Target<impl Locate>) -> Outcome {
    let Target { place, principal } = target;
    let place = place.locate()?;
    let what = format!("cannot show the role of principal {principal} on {place}");
    let role = calls::get(client, &place, &principal).await.map_err(failed(what, None))?;
    let role = RoleName::from(role);
    let text = format!("Principal {principal} has {role} permission on {place}");
    Ok(plain(PermissionObject { place: place.into(), principal_id: principal, role: Some(role) }, text))
}

async fn list(client: &Client, place: Place) -> Outcome {
    let what = format!("cannot list the roles on {place}");
    let permissions = calls::list(client, &place).await.map_err(failed(what, None))?;
    let permissions: Vec<_> = permissions
        .into_iter()
        .map(|permission| Entry {
            role: RoleName::from(permission.role()),
            principal_id: permission.principal_id,
            principal_name: permission.principal_name,
        })
        .collect();
    let lines = permissions.iter().map(|entry| format!("  {} - {}", entry.principal_id, entry.role));
    let text = listing(&format!("Permissions on {place}:"), &format!("No permissions found on {place}"), lines);
    Ok(plain(Permissions { place: place.into(), permissions }, text))
}

async fn remove(client: &Client, target: Target<impl Locate>) -> Outcome {
    let Target { place, principal } = target;
    let place = place.locate()?;
    let what = format!("cannot take the role of principal {principal} on {place} away");
    calls::remove(client, &place, &principal).await.map_err(refused(what, &place, RoleName::Admin, client))?;
    let text = format!("Principal {principal} no longer has a permission on {place}");
    Ok(plain(PermissionObject { place: place.into(), principal_id: principal, role: None }, text))
}

/// Who hands a role out must have it.
fn refused(what: String, place: &Place, role: RoleName, client: &Client) -> impl FnOnce(CallError) -> Failure {
    let role = match role {
        RoleName::Read => "read",
        RoleName::Write => "write",
        RoleName::Admin | RoleName::Unknown => "admin",
    };
    failed(what, place.need(role, client))
}
