//! `zopp group`: groups of users, their members and their roles.

use clap::{Args, Subcommand};
use konverge_zopp_client::Client;
use konverge_zopp_proto as proto;
use serde::Serialize;

use super::permission::{self, Holder, Kind, RoleName};
use crate::{
    context::Context,
    failure::failed,
    output::{Outcome, listing, plain},
    scope::{EnvironmentArguments, Place, ProjectArguments, WorkspaceArguments},
};

const EXAMPLES: &str = "\
Examples:
  zopp group create ops -w acme -d \"on call\"
  zopp group add-member bob@example.com -w acme -g ops
  zopp group set-project-permission -w acme -p backend -g ops --role write
  zopp group list-members -w acme -g ops --output json

A role of a group is a role of each of its members.";

/// `zopp group`
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum GroupCommand {
    /// Create a group
    Create {
        /// Its name, unique in the workspace
        name: String,
        /// The workspace.
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The purpose of the group
        #[arg(short, long, default_value = "")]
        description: String,
    },
    /// List the groups of a workspace
    List(WorkspaceArguments),
    /// Rename a group, or describe it anew
    Update {
        /// Its name
        name: String,
        /// The workspace.
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The new values.
        #[command(flatten)]
        update: UpdateArguments,
    },
    /// Delete a group with its roles
    Delete {
        /// Its name
        name: String,
        /// The workspace.
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Add a user to a group
    AddMember {
        /// The user and the group.
        #[command(flatten)]
        member: Member,
        /// Also if the user is not a member of the workspace
        #[arg(long)]
        allow_non_member: bool,
    },
    /// Remove a user from a group
    RemoveMember(Member),
    /// List the members of a group
    ListMembers(InGroup<WorkspaceArguments>),
    /// Give a group a role in a workspace
    SetPermission(GroupGrant<WorkspaceArguments>),
    /// Show a group's role in a workspace
    GetPermission(InGroup<WorkspaceArguments>),
    /// Take a group's role in a workspace away
    RemovePermission(InGroup<WorkspaceArguments>),
    /// List the roles of groups in a workspace
    ListPermissions(WorkspaceArguments),
    /// Give a group a role in a project
    SetProjectPermission(GroupGrant<ProjectArguments>),
    /// Show a group's role in a project
    GetProjectPermission(InGroup<ProjectArguments>),
    /// Take a group's role in a project away
    RemoveProjectPermission(InGroup<ProjectArguments>),
    /// List the roles of groups in a project
    ListProjectPermissions(ProjectArguments),
    /// Give a group a role in an environment
    SetEnvPermission(GroupGrant<EnvironmentArguments>),
    /// Show a group's role in an environment
    GetEnvPermission(InGroup<EnvironmentArguments>),
    /// Take a group's role in an environment away
    RemoveEnvPermission(InGroup<EnvironmentArguments>),
    /// List the roles of groups in an environment
    ListEnvPermissions(EnvironmentArguments),
}

/// The new values of a group.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct UpdateArguments {
    /// The new name
    #[arg(long)]
    new_name: Option<String>,
    /// The new description; empty for none
    #[arg(short, long)]
    description: Option<String>,
}

/// A place and a group.
#[derive(Debug, Args)]
pub struct InGroup<P: Args> {
    #[command(flatten)]
    place: P,
    /// The group's name
    #[arg(short, long, value_name = "NAME")]
    group: String,
}

/// A place, a group and a role.
#[derive(Debug, Args)]
pub struct GroupGrant<P: Args> {
    #[command(flatten)]
    target: InGroup<P>,
    /// The role
    #[arg(long, ignore_case = true)]
    role: RoleName,
}

/// A user and a group.
#[derive(Debug, Args)]
pub struct Member {
    /// The user's e-mail address
    email: String,
    #[command(flatten)]
    group: InGroup<WorkspaceArguments>,
}

impl<P: Args> InGroup<P> {
    fn parts(self) -> (P, Holder) {
        (self.place, Holder::Group { group: self.group })
    }
}

/// `group create`, `group update`, and an entry of `group list`
#[derive(Serialize)]
struct GroupObject {
    id: String,
    name: String,
    description: String,
    created_at: String,
    updated_at: String,
}

/// `group list`
#[derive(Serialize)]
struct Groups {
    groups: Vec<GroupObject>,
}

/// `group delete`
#[derive(Serialize)]
struct Deleted {
    workspace: String,
    group: String,
}

/// `group add-member`, `group remove-member`
#[derive(Serialize)]
struct Membership {
    workspace: String,
    group: String,
    user_email: String,
}

/// `group list-members`
#[derive(Serialize)]
struct Roster {
    workspace: String,
    group: String,
    members: Vec<MemberObject>,
}

#[derive(Serialize)]
struct MemberObject {
    user_id: String,
    user_email: String,
    created_at: String,
}

pub(super) async fn execute(context: &Context, command: GroupCommand) -> Outcome {
    use GroupCommand as Command;
    use permission::{get, list, remove, set};

    let client = &context.client()?;
    match command {
        Command::Create { name, workspace, description } => {
            create(client, workspace.resolve()?, name, description).await
        }
        Command::List(workspace) => list_groups(client, workspace.resolve()?).await,
        Command::Update { name, workspace, update: arguments } => {
            update(client, workspace.resolve()?, name, arguments).await
        }
        Command::Delete { name, workspace } => delete(client, workspace.resolve()?, name).await,
        Command::AddMember { member, allow_non_member } => add_member(client, member, allow_non_member).await,
        Command::RemoveMember(member) => remove_member(client, member).await,
        Command::ListMembers(group) => list_members(client, group).await,
        Command::SetPermission(GroupGrant { target, role }) => set(client, target.parts(), role).await,
        Command::SetProjectPermission(GroupGrant { target, role }) => set(client, target.parts(), role).await,
        Command::SetEnvPermission(GroupGrant { target, role }) => set(client, target.parts(), role).await,
        Command::GetPermission(target) => get(client, target.parts()).await,
        Command::GetProjectPermission(target) => get(client, target.parts()).await,
        Command::GetEnvPermission(target) => get(client, target.parts()).await,
        Command::RemovePermission(target) => remove(client, target.parts()).await,
        Command::RemoveProjectPermission(target) => remove(client, target.parts()).await,
        Command::RemoveEnvPermission(target) => remove(client, target.parts()).await,
        Command::ListPermissions(place) => list(client, place, Kind::Group).await,
        Command::ListProjectPermissions(place) => list(client, place, Kind::Group).await,
        Command::ListEnvPermissions(place) => list(client, place, Kind::Group).await,
    }
}

async fn create(client: &Client, workspace: String, name: String, description: String) -> Outcome {
    let what = format!("cannot create group '{name}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let request = proto::CreateGroupRequest { workspace_name: workspace, name, description };
    let group = object(client.create_group(request).await.map_err(failed(what, need))?);
    let text = format!("Group '{}' created (ID: {}){}", group.name, group.id, description_line(&group.description));
    Ok(plain(group, text))
}

async fn list_groups(client: &Client, workspace: String) -> Outcome {
    let what = format!("cannot list the groups of workspace '{workspace}'");
    let request = proto::ListGroupsRequest { workspace_name: workspace };
    let groups = client.list_groups(request).await.map_err(failed(what, None))?.groups;
    let groups: Vec<_> = groups.into_iter().map(object).collect();
    let lines = groups.iter().map(|group| match group.description.as_str() {
        "" => format!("  {}", group.name),
        description => format!("  {} - {description}", group.name),
    });
    let text = listing("Groups:", "No groups found", lines);
    Ok(plain(Groups { groups }, text))
}

async fn update(client: &Client, workspace: String, name: String, arguments: UpdateArguments) -> Outcome {
    let UpdateArguments { new_name, description } = arguments;
    let what = format!("cannot update group '{name}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    // The call replaces the description in any case; one that is not given is to stay.
    let description = if let Some(description) = description {
        description
    } else {
        let request = proto::GetGroupRequest { workspace_name: workspace.clone(), group_name: name.clone() };
        client.get_group(request).await.map_err(failed(what.clone(), None))?.description
    };
    let request = proto::UpdateGroupRequest {
        workspace_name: workspace,
        group_name: name,
        new_name: new_name.unwrap_or_default(),
        new_description: description,
    };
    let group = object(client.update_group(request).await.map_err(failed(what, need))?);
    let text = format!("Group '{}' updated (ID: {}){}", group.name, group.id, description_line(&group.description));
    Ok(plain(group, text))
}

async fn delete(client: &Client, workspace: String, name: String) -> Outcome {
    let what = format!("cannot delete group '{name}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let request = proto::DeleteGroupRequest { workspace_name: workspace.clone(), group_name: name.clone() };
    client.delete_group(request).await.map_err(failed(what, need))?;
    let text = format!("Group '{name}' deleted");
    Ok(plain(Deleted { workspace, group: name }, text))
}

async fn add_member(client: &Client, member: Member, allow_non_member: bool) -> Outcome {
    let (membership, place) = member.resolve()?;
    let Membership { workspace, group, user_email } = &membership;
    let what = format!("cannot add {user_email} to group '{group}'");
    let request = proto::AddGroupMemberRequest {
        workspace_name: workspace.clone(),
        group_name: group.clone(),
        user_email: user_email.clone(),
        allow_non_member,
    };
    client.add_group_member(request).await.map_err(failed(what, place.need("admin", client)))?;
    let text = format!("Added {user_email} to group '{group}'");
    Ok(plain(membership, text))
}

async fn remove_member(client: &Client, member: Member) -> Outcome {
    let (membership, place) = member.resolve()?;
    let Membership { workspace, group, user_email } = &membership;
    let what = format!("cannot remove {user_email} from group '{group}'");
    let request = proto::RemoveGroupMemberRequest {
        workspace_name: workspace.clone(),
        group_name: group.clone(),
        user_email: user_email.clone(),
    };
    client.remove_group_member(request).await.map_err(failed(what, place.need("admin", client)))?;
    let text = format!("Removed {user_email} from group '{group}'");
    Ok(plain(membership, text))
}

async fn list_members(client: &Client, InGroup { place, group }: InGroup<WorkspaceArguments>) -> Outcome {
    let workspace = place.resolve()?;
    let what = format!("cannot list the members of group '{group}'");
    let request = proto::ListGroupMembersRequest { workspace_name: workspace.clone(), group_name: group.clone() };
    let members = client.list_group_members(request).await.map_err(failed(what, None))?.members;
    let lines = members.iter().map(|member| format!("  {}", member.user_email));
    let text = listing(&format!("Members of group '{group}':"), &format!("Group '{group}' has no members"), lines);
    let members = members.into_iter().map(|member| MemberObject {
        user_id: member.user_id,
        user_email: member.user_email,
        created_at: member.created_at,
    });
    Ok(plain(Roster { members: members.collect(), workspace, group }, text))
}

impl Member {
    fn resolve(self) -> Result<(Membership, Place), crate::failure::Failure> {
        let InGroup { place, group } = self.group;
        let workspace = place.resolve()?;
        let place = Place::Workspace { workspace: workspace.clone() };
        Ok((Membership { workspace, group, user_email: self.email }, place))
    }
}

fn description_line(description: &str) -> String {
    if description.is_empty() { String::new() } else { format!("\nDescription: {description}") }
}

fn object(group: proto::Group) -> GroupObject {
    GroupObject {
        id: group.id,
        name: group.name,
        description: group.description,
        created_at: group.created_at,
        updated_at: group.updated_at,
    }
}
