//! Places in the tree of workspaces, projects and environments, and how a caller gets to them.

use tonic::Status;

use crate::{
    rbac::Role,
    status::{denied, from_store},
    store::{EnvironmentRow, Located, PrincipalRow, Scope, Store, WorkspaceRow},
};

/// A place in the tree, resolved for a caller.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The workspace.
    pub workspace: WorkspaceRow,
    /// Ids down to the place.
    pub scope: Scope,
}

/// Looks up an environment by the names of its workspace, its project and its own.
pub(crate) async fn locate(
    store: &Store,
    principal: &PrincipalRow,
    names: [&str; 3],
) -> Result<Option<Located>, Status> {
    store.locate(names, &principal.id, principal.user_id.as_deref()).await.map_err(from_store)
}

/// Returns the environment that a look-up found, if the role there is enough. A missing place is told before a missing role.
pub(crate) fn admitted(
    located: Option<Located>,
    [workspace, project, environment]: [&str; 3],
    role: Role,
) -> Result<(Place, EnvironmentRow), Status> {
    let located = located.ok_or_else(|| no_workspace(workspace))?;
    let project_id = located.project_id.ok_or_else(|| no_project(project))?;
    let environment = located.environment.ok_or_else(|| no_environment(environment))?;
    if !located.grants.allow(role) {
        return Err(denied(role));
    }
    let scope = Scope {
        workspace_id: located.workspace.id.clone(),
        project_id: Some(project_id),
        environment_id: Some(environment.id.clone()),
    };
    Ok((Place { workspace: located.workspace, scope }, environment))
}

/// The refusal of a workspace that the caller does not see.
pub(crate) fn no_workspace(name: &str) -> Status {
    Status::not_found(format!("workspace {name:?} not found or access denied"))
}

/// The refusal of a project that is not there.
pub(crate) fn no_project(name: &str) -> Status {
    Status::not_found(format!("project {name:?} not found"))
}

/// The refusal of an environment that is not there.
pub(crate) fn no_environment(name: &str) -> Status {
    Status::not_found(format!("environment {name:?} not found"))
}
