//! `zopp project`.

use clap::Subcommand;
use konverge_zopp_client::Client;
use konverge_zopp_proto::{
    CreateProjectRequest, DeleteProjectRequest, GetProjectRequest, ListProjectsRequest, Project,
};
use serde::Serialize;

use crate::{
    context::Context,
    failure::failed,
    output::{Outcome, listing, plain, time},
    scope::{Place, WorkspaceArguments},
};

/// `zopp project`
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// List the projects of a workspace
    List(WorkspaceArguments),
    /// Create a project
    #[command(after_help = "Example:\n  zopp project create backend -w acme")]
    Create(Named),
    /// Show a project
    Get(Named),
    /// Delete a project with its environments and secrets
    Delete(Named),
}

/// A project by name.
#[derive(Debug, clap::Args)]
pub struct Named {
    /// Name of the project
    name: String,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// A project.
#[derive(Serialize)]
struct ProjectObject {
    id: String,
    workspace_id: String,
    name: String,
    created_at: String,
    updated_at: String,
}

impl From<Project> for ProjectObject {
    fn from(project: Project) -> Self {
        Self {
            id: project.id,
            workspace_id: project.workspace_id,
            name: project.name,
            created_at: time(project.created_at),
            updated_at: time(project.updated_at),
        }
    }
}

/// `project list`
#[derive(Serialize)]
struct Projects {
    projects: Vec<ProjectObject>,
}

/// `project delete`
#[derive(Serialize)]
struct Deleted {
    workspace: String,
    name: String,
}

pub(super) async fn execute(context: &Context, command: ProjectCommand) -> Outcome {
    let client = context.client()?;
    match command {
        ProjectCommand::List(workspace) => list(&client, workspace.resolve()?).await,
        ProjectCommand::Create(Named { name, workspace }) => create(&client, workspace.resolve()?, name).await,
        ProjectCommand::Get(Named { name, workspace }) => get(&client, workspace.resolve()?, name).await,
        ProjectCommand::Delete(Named { name, workspace }) => delete(&client, workspace.resolve()?, name).await,
    }
}

async fn list(client: &Client, workspace: String) -> Outcome {
    let what = format!("cannot list the projects of workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("read", client);
    let answer =
        client.list_projects(ListProjectsRequest { workspace_name: workspace }).await.map_err(failed(what, need))?;
    let projects: Vec<_> = answer.projects.into_iter().map(ProjectObject::from).collect();
    let lines = projects.iter().map(|project| format!("  {}", project.name));
    let text = listing("Projects:", "No projects found", lines);
    Ok(plain(Projects { projects }, text))
}

async fn create(client: &Client, workspace: String, name: String) -> Outcome {
    let what = format!("cannot create project '{workspace}/{name}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let request = CreateProjectRequest { workspace_name: workspace, name };
    let project = client.create_project(request).await.map_err(failed(what, need))?;
    let text = format!("Project '{}' created (ID: {})", project.name, project.id);
    Ok(plain(ProjectObject::from(project), text))
}

async fn get(client: &Client, workspace: String, name: String) -> Outcome {
    let what = format!("cannot show project '{workspace}/{name}'");
    let need = Place::Project { workspace: workspace.clone(), project: name.clone() }.need("read", client);
    let request = GetProjectRequest { workspace_name: workspace, project_name: name };
    let project = ProjectObject::from(client.get_project(request).await.map_err(failed(what, need))?);
    let ProjectObject { id, workspace_id, name, created_at, updated_at } = &project;
    let text = format!(
        "Name:         {name}\nID:           {id}\nWorkspace ID: {workspace_id}\nCreated:      {created_at}\nUpdated:      \
         {updated_at}"
    );
    Ok(plain(project, text))
}

async fn delete(client: &Client, workspace: String, name: String) -> Outcome {
    let what = format!("cannot delete project '{workspace}/{name}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let request = DeleteProjectRequest { workspace_name: workspace.clone(), project_name: name.clone() };
    client.delete_project(request).await.map_err(failed(what, need))?;
    let text = format!("Project '{name}' deleted");
    Ok(plain(Deleted { workspace, name }, text))
}
