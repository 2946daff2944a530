//! `zopp permission`: roles of principals and users in a workspace, project or environment. Those of groups are in
//! [`super::group`], with the same calls and answers.

use clap::{Args, Subcommand, ValueEnum};
use konverge_zopp_client::{CallError, Client};
use konverge_zopp_proto::{self as proto, EffectivePermissionsResponse, GetEffectivePermissionsRequest};
use serde::Serialize;

use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, listing, plain},
    scope::{EnvironmentArguments, Place, ProjectArguments, WorkspaceArguments},
};

mod calls;

pub(super) use calls::Kind;

const EXAMPLES: &str = "\
Examples:
  zopp permission set -w acme --principal 0190…57 --role read
  zopp permission env-set -w acme -p backend -e production --principal 0190…57 --role write
  zopp permission list -w acme --output json
  zopp permission set -w acme --principal bob@example.com --role write
  zopp permission user-set -w acme --email bob@example.com --role write
  zopp permission effective -w acme --principal 0190…57

A role counts in its place and in all below it: admin can all that write can, write all that read
can. For a service principal it is what it may do; for a principal of a person it is a ceiling on
what the person may do. A person has the roles given to the user and to the user's groups.";

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
    /// Give a user a role in a workspace
    UserSet(UserGrant<WorkspaceArguments>),
    /// Show a user's role in a workspace
    UserGet(UserTarget<WorkspaceArguments>),
    /// List the roles of users in a workspace
    UserList(WorkspaceArguments),
    /// Take a user's role in a workspace away
    UserRemove(UserTarget<WorkspaceArguments>),
    /// Give a user a role in a project
    UserProjectSet(UserGrant<ProjectArguments>),
    /// Show a user's role in a project
    UserProjectGet(UserTarget<ProjectArguments>),
    /// List the roles of users in a project
    UserProjectList(ProjectArguments),
    /// Take a user's role in a project away
    UserProjectRemove(UserTarget<ProjectArguments>),
    /// Give a user a role in an environment
    UserEnvSet(UserGrant<EnvironmentArguments>),
    /// Show a user's role in an environment
    UserEnvGet(UserTarget<EnvironmentArguments>),
    /// List the roles of users in an environment
    UserEnvList(EnvironmentArguments),
    /// Take a user's role in an environment away
    UserEnvRemove(UserTarget<EnvironmentArguments>),
    /// Show which role a principal has in the end, place by place
    Effective(Target<WorkspaceArguments>),
}

/// A place and a principal.
#[derive(Debug, Args)]
pub struct Target<P: Args> {
    #[command(flatten)]
    place: P,
    /// The principal's ID, or the e-mail address of a user
    #[arg(long, value_name = "UUID|ADDRESS")]
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

/// A place and a user.
#[derive(Debug, Args)]
pub struct UserTarget<P: Args> {
    #[command(flatten)]
    place: P,
    /// The user's e-mail address
    #[arg(long, value_name = "ADDRESS")]
    email: String,
}

/// A place, a user and a role.
#[derive(Debug, Args)]
pub struct UserGrant<P: Args> {
    #[command(flatten)]
    target: UserTarget<P>,
    /// The role
    #[arg(long, ignore_case = true)]
    role: RoleName,
    /// Also if the user is not a member of the workspace; takes the admin role
    #[arg(long)]
    allow_non_member: bool,
}

impl<P: Args> Target<P> {
    fn parts(self) -> (P, Holder) {
        // No ID holds the sign, and each address does.
        let holder = match self.principal {
            address if address.contains('@') => Holder::User { user_email: address, allow_non_member: false },
            principal_id => Holder::Principal { principal_id },
        };
        (self.place, holder)
    }
}

impl<P: Args> UserTarget<P> {
    fn parts(self) -> (P, Holder) {
        (self.place, Holder::User { user_email: self.email, allow_non_member: false })
    }
}

impl<P: Args> UserGrant<P> {
    fn parts(self) -> (P, Holder, RoleName) {
        let Self { target: UserTarget { place, email }, role, allow_non_member } = self;
        (place, Holder::User { user_email: email, allow_non_member }, role)
    }
}

/// The holder of a role.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Holder {
    /// A principal, by id.
    Principal {
        /// UUID.
        principal_id: String,
    },
    /// A user, by e-mail address.
    User {
        /// The address.
        user_email: String,
        /// Whether a role may be given to a user who is not a member.
        #[serde(skip)]
        allow_non_member: bool,
    },
    /// A group, by name.
    Group {
        /// Unique in the workspace.
        group: String,
    },
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Principal { principal_id } => write!(f, "principal {principal_id}"),
            Self::User { user_email, .. } => write!(f, "user {user_email}"),
            Self::Group { group } => write!(f, "group {group}"),
        }
    }
}

impl Holder {
    /// For the beginning of a sentence.
    fn title(&self) -> String {
        let text = self.to_string();
        let (first, rest) = text.split_at(1);
        first.to_uppercase() + rest
    }
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
    /// `principal_id`, `user_email` or `group`.
    #[serde(flatten)]
    holder: Holder,
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

/// One entry: the id of the holder, and its name or e-mail address.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Principal { principal_id: String, principal_name: String, role: RoleName },
    User { user_id: String, user_email: String, role: RoleName },
    Group { group_id: String, group: String, role: RoleName },
}

/// `permission effective`
#[derive(Serialize)]
struct Effective {
    workspace: String,
    principal_id: String,
    principal_name: String,
    service: bool,
    /// `null` without a role in the workspace as a whole.
    role: Option<RoleName>,
    projects: Vec<EffectiveProject>,
}

#[derive(Serialize)]
struct EffectiveProject {
    project: String,
    /// `null` without a role in the project as a whole.
    role: Option<RoleName>,
    environments: Vec<EffectiveEnvironment>,
}

#[derive(Serialize)]
struct EffectiveEnvironment {
    environment: String,
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
pub(super) trait Locate: Args {
    /// The place.
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
    use PermissionCommand as Command;

    let client = context.client()?;
    match command {
        Command::Set(Grant { target, role }) => set(&client, target.parts(), role).await,
        Command::ProjectSet(Grant { target, role }) => set(&client, target.parts(), role).await,
        Command::EnvSet(Grant { target, role }) => set(&client, target.parts(), role).await,
        Command::Get(target) => get(&client, target.parts()).await,
        Command::ProjectGet(target) => get(&client, target.parts()).await,
        Command::EnvGet(target) => get(&client, target.parts()).await,
        Command::List(place) => list(&client, place, Kind::Principal).await,
        Command::ProjectList(place) => list(&client, place, Kind::Principal).await,
        Command::EnvList(place) => list(&client, place, Kind::Principal).await,
        Command::Remove(target) => remove(&client, target.parts()).await,
        Command::ProjectRemove(target) => remove(&client, target.parts()).await,
        Command::EnvRemove(target) => remove(&client, target.parts()).await,
        Command::UserSet(grant) => set_user(&client, grant).await,
        Command::UserProjectSet(grant) => set_user(&client, grant).await,
        Command::UserEnvSet(grant) => set_user(&client, grant).await,
        Command::UserGet(target) => get(&client, target.parts()).await,
        Command::UserProjectGet(target) => get(&client, target.parts()).await,
        Command::UserEnvGet(target) => get(&client, target.parts()).await,
        Command::UserList(place) => list(&client, place, Kind::User).await,
        Command::UserProjectList(place) => list(&client, place, Kind::User).await,
        Command::UserEnvList(place) => list(&client, place, Kind::User).await,
        Command::UserRemove(target) => remove(&client, target.parts()).await,
        Command::UserProjectRemove(target) => remove(&client, target.parts()).await,
        Command::UserEnvRemove(target) => remove(&client, target.parts()).await,
        Command::Effective(Target { place, principal }) => effective(&client, place.resolve()?, principal).await,
    }
}

async fn set_user(client: &Client, grant: UserGrant<impl Locate>) -> Outcome {
    let (place, holder, role) = grant.parts();
    set(client, (place, holder), role).await
}

/// Gives a holder a role.
pub(super) async fn set(client: &Client, (place, holder): (impl Locate, Holder), role: RoleName) -> Outcome {
    let place = place.locate()?;
    let what = format!("cannot give {holder} the {role} role on {place}");
    calls::set(client, &place, &holder, role.into()).await.map_err(refused(what, &place, role, client))?;
    let text = format!("{} now has {role} permission on {place}", holder.title());
    Ok(plain(PermissionObject { place: place.into(), holder, role: Some(role) }, text))
}

/// Shows the role of a holder.
pub(super) async fn get(client: &Client, (place, holder): (impl Locate, Holder)) -> Outcome {
    let place = place.locate()?;
    let what = format!("cannot show the role of {holder} on {place}");
    let role = calls::get(client, &place, &holder).await.map_err(failed(what, None))?;
    let role = RoleName::from(role);
    let text = format!("{} has {role} permission on {place}", holder.title());
    Ok(plain(PermissionObject { place: place.into(), holder, role: Some(role) }, text))
}

/// Lists the roles of all holders of one kind.
pub(super) async fn list(client: &Client, place: impl Locate, kind: Kind) -> Outcome {
    let place = place.locate()?;
    let what = format!("cannot list the roles on {place}");
    let listed = calls::list(client, &place, kind).await.map_err(failed(what, None))?;
    let lines = listed.iter().map(|grant| format!("  {} - {}", grant.holder, RoleName::from(grant.role)));
    let of = match kind {
        Kind::Principal => "Permissions",
        Kind::User => "User permissions",
        Kind::Group => "Group permissions",
    };
    let none = format!("No {} found on {place}", of.to_lowercase());
    let text = listing(&format!("{of} on {place}:"), &none, lines);
    let permissions = listed.into_iter().map(|calls::Listed { id, name, role, .. }| {
        let role = RoleName::from(role);
        match kind {
            Kind::Principal => Entry::Principal { principal_id: id, principal_name: name, role },
            Kind::User => Entry::User { user_id: id, user_email: name, role },
            Kind::Group => Entry::Group { group_id: id, group: name, role },
        }
    });
    Ok(plain(Permissions { permissions: permissions.collect(), place: place.into() }, text))
}

/// Takes the role of a holder away.
pub(super) async fn remove(client: &Client, (place, holder): (impl Locate, Holder)) -> Outcome {
    let place = place.locate()?;
    let what = format!("cannot take the role of {holder} on {place} away");
    calls::remove(client, &place, &holder).await.map_err(refused(what, &place, RoleName::Admin, client))?;
    let text = format!("{} no longer has a permission on {place}", holder.title());
    Ok(plain(PermissionObject { place: place.into(), holder, role: None }, text))
}

async fn effective(client: &Client, workspace: String, principal_id: String) -> Outcome {
    let what = format!("cannot show the roles of principal {principal_id} in workspace {workspace}");
    let request = GetEffectivePermissionsRequest { workspace_name: workspace.clone(), principal_id };
    let answer = client.get_effective_permissions(request).await.map_err(failed(what, None))?;
    let kind = if answer.is_service_principal { "service principal" } else { "user principal" };
    let mut lines =
        vec![format!("Effective permissions of {kind} {} (ID: {}):", answer.principal_name, answer.principal_id)];
    let object = effective_object(workspace, answer);
    lines.push(format!("  Workspace: {}", object.role.map_or_else(|| "none".to_owned(), |role| role.to_string())));
    for EffectiveProject { project, role, environments } in &object.projects {
        let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
        lines.push(format!("  Project '{project}': {role}"));
        let inner =
            |inner: &EffectiveEnvironment| format!("    Environment '{project}/{}': {}", inner.environment, inner.role);
        lines.extend(environments.iter().map(inner));
    }
    Ok(plain(object, lines.join("\n")))
}

fn effective_object(workspace: String, answer: EffectivePermissionsResponse) -> Effective {
    let some = |role: Option<i32>| role.and_then(|role| proto::Role::try_from(role).ok()).map(RoleName::from);
    let environment = |inner: proto::EffectiveEnvironmentPermission| EffectiveEnvironment {
        role: RoleName::from(inner.effective_role()),
        environment: inner.environment_name,
    };
    let project = |project: proto::EffectiveProjectPermission| EffectiveProject {
        role: some(project.effective_role),
        project: project.project_name,
        environments: project.environments.into_iter().map(environment).collect(),
    };
    Effective {
        workspace,
        role: some(answer.workspace_role),
        principal_id: answer.principal_id,
        principal_name: answer.principal_name,
        service: answer.is_service_principal,
        projects: answer.projects.into_iter().map(project).collect(),
    }
}

/// The role that a caller needs to hand a role out is at least this one.
fn refused(what: String, place: &Place, role: RoleName, client: &Client) -> impl FnOnce(CallError) -> Failure {
    let role = match role {
        RoleName::Read => "read",
        RoleName::Write => "write",
        RoleName::Admin | RoleName::Unknown => "admin",
    };
    failed(what, place.need(role, client))
}
