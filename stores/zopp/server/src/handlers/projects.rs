//! Projects.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Access, Call},
    events::Event,
    rbac::Role,
    status::{from_store, or_exists, or_missing},
    store::ProjectRow,
    validate,
};

/// Makes a project.
pub(crate) async fn create(call: &mut Call, message: proto::CreateProjectRequest) -> Result<proto::Project, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    let name = validate::name("project name", &message.name)?;
    let audit = call.audit(name);
    let project =
        call.state.store.create_project(&place.workspace.id, name, &audit).await.map_err(or_exists("project", name))?;
    Ok(answer(project))
}

/// The projects of a workspace.
pub(crate) async fn list(call: &mut Call, message: proto::ListProjectsRequest) -> Result<proto::ProjectList, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Read).await?;
    let rows = call.state.store.projects(&place.workspace.id).await.map_err(from_store)?;
    Ok(proto::ProjectList { projects: rows.into_iter().map(answer).collect() })
}

/// One project.
pub(crate) async fn get(call: &mut Call, message: proto::GetProjectRequest) -> Result<proto::Project, Status> {
    call.caller.user_id()?;
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let project = call.project(&mut place, &message.project_name).await?;
    call.require(&place, Role::Read).await?;
    Ok(answer(project))
}

/// Deletes a project with all in it.
pub(crate) async fn delete(call: &mut Call, message: proto::DeleteProjectRequest) -> Result<proto::Empty, Status> {
    call.caller.user_id()?;
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let project = call.project(&mut place, &message.project_name).await?;
    // Deleting takes what creating takes: admin of the workspace.
    let mut workspace = place.clone();
    workspace.scope.project_id = None;
    call.require(&workspace, Role::Admin).await?;
    let audit = call.audit(&project.id);
    let state = &call.state;
    let environments =
        state.store.delete_project(&project.id, &audit).await.map_err(or_missing("project", &project.name))?;
    for environment in environments {
        state.events.publish(&environment, Event::EnvironmentDeleted);
    }
    Ok(proto::Empty {})
}

fn answer(row: ProjectRow) -> proto::Project {
    proto::Project {
        id: row.id,
        workspace_id: row.workspace_id,
        name: row.name,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}
