//! One call on its way through: who makes it, what it is for, and what is put on record about it.

use std::sync::Arc;

use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::{
    auth::{self, Caller, Repeat},
    rbac::Role,
    state::State,
    status::from_store,
    store::{Action, AuditRow, EnvironmentRow, Outcome, ProjectRow, Scope, WorkspaceRow},
};

/// What is recorded about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing: it shows nothing secret and changes nothing.
    Nothing,
    /// That it was made: it shows a secret.
    Read(Action, &'static str),
    /// That it was refused; when it succeeds, the change records itself.
    Change(Action, &'static str),
}

/// A call by a verified principal.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// What all calls share.
    pub state: Arc<State>,
    /// Who.
    pub caller: Caller,
    record: Record,
    row: AuditRow,
}

/// How a workspace is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Users by ownership or membership, services by holding the key.
    Member,
    /// Everybody by holding the key.
    KeyHolder,
}

/// A place in the tree, resolved for a caller.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The workspace.
    pub workspace: WorkspaceRow,
    /// Ids down to the place.
    pub scope: Scope,
}

impl Call {
    /// Verifies the caller.
    pub(crate) async fn open<M: Message>(
        state: &Arc<State>,
        request: &Request<M>,
        name: &str,
        record: Record,
    ) -> Result<Self, Status> {
        let repeat = if matches!(record, Record::Change(..)) { Repeat::Refused } else { Repeat::Allowed };
        let caller = auth::authenticate(&state.store, &state.replays, name, request, repeat).await?;
        let (action, resource_type) = match record {
            // Never written; an action must be named all the same.
            Record::Nothing => (Action::SecretRead, ""),
            Record::Read(action, resource_type) | Record::Change(action, resource_type) => (action, resource_type),
        };
        let row = AuditRow {
            principal_id: caller.principal.id.clone(),
            user_id: caller.principal.user_id.clone(),
            client_ip: client_ip(request),
            signature: caller.used,
            ..blank_row(action, resource_type)
        };
        Ok(Self { state: Arc::clone(state), caller, record, row })
    }

    /// The row for a change to the thing of that id (or name).
    pub(crate) fn audit(&mut self, resource_id: &str) -> AuditRow {
        resource_id.clone_into(&mut self.row.resource_id);
        self.row.clone()
    }

    /// Names the thing the call is about, for the record, and adds details (JSON).
    pub(crate) fn about(&mut self, resource_id: &str, details: Option<String>) {
        resource_id.clone_into(&mut self.row.resource_id);
        self.row.details = details;
    }

    /// Ends the call: records what must be recorded and turns the result into an answer.
    pub(crate) async fn close<T>(self, result: Result<T, Status>) -> Result<Response<T>, Status> {
        let recorded = match (&result, self.record) {
            (_, Record::Nothing) | (Ok(_), Record::Change(..)) => None,
            (Ok(_), Record::Read(..)) => Some(self.row),
            (Err(status), _) => Some(refusal(self.row, status)),
        };
        if let Some(row) = recorded {
            self.state.audit.record(row).await;
        }
        result.map(Response::new)
    }

    /// The workspace of that name, if it is there for the caller.
    pub(crate) async fn workspace(&mut self, name: &str, access: Access) -> Result<Place, Status> {
        let store = &self.state.store;
        let principal = &self.caller.principal;
        let workspace = match (&principal.user_id, access) {
            (Some(user_id), Access::Member) => store.workspace_of_user(name, user_id).await,
            _ => store.workspace_of_key_holder(name, &principal.id).await,
        };
        let workspace = workspace
            .map_err(from_store)?
            .ok_or_else(|| Status::not_found(format!("workspace {name:?} not found or access denied")))?;
        self.row.workspace_id = Some(workspace.id.clone());
        let scope = Scope { workspace_id: workspace.id.clone(), project_id: None, environment_id: None };
        Ok(Place { workspace, scope })
    }

    /// The project of that name in a workspace.
    pub(crate) async fn project(&mut self, place: &mut Place, name: &str) -> Result<ProjectRow, Status> {
        let project = self
            .state
            .store
            .project(&place.workspace.id, name)
            .await
            .map_err(from_store)?
            .ok_or_else(|| Status::not_found(format!("project {name:?} not found")))?;
        self.row.project_id = Some(project.id.clone());
        place.scope.project_id = Some(project.id.clone());
        Ok(project)
    }

    /// The environment of that name in a project of a workspace.
    pub(crate) async fn environment(
        &mut self,
        place: &mut Place,
        project: &str,
        name: &str,
    ) -> Result<EnvironmentRow, Status> {
        let project = self.project(place, project).await?;
        let environment = self
            .state
            .store
            .environment(&project.id, name)
            .await
            .map_err(from_store)?
            .ok_or_else(|| Status::not_found(format!("environment {name:?} not found")))?;
        self.row.environment_id = Some(environment.id.clone());
        place.scope.environment_id = Some(environment.id.clone());
        Ok(environment)
    }

    /// Refuses a caller whose role at the place is too low. A failure to find out is a failure, not a permission.
    pub(crate) async fn require(&self, place: &Place, role: Role) -> Result<(), Status> {
        let principal = &self.caller.principal;
        let grants = self
            .state
            .store
            .grants(&principal.id, principal.user_id.as_deref(), &place.scope)
            .await
            .map_err(from_store)?;
        if grants.allow(role) { Ok(()) } else { Err(denied(role)) }
    }
}

/// What a caller with too low a role is told.
fn denied(role: Role) -> Status {
    let role = match role {
        Role::Admin => "admin",
        Role::Write => "write",
        Role::Read => "read",
    };
    Status::permission_denied(format!("this needs the {role} role here; ask an admin of the workspace to grant it"))
}

/// The address a request came from.
pub(crate) fn client_ip<M>(request: &Request<M>) -> Option<String> {
    request.remote_addr().map(|address| address.ip().to_canonical().to_string())
}

/// A row with nothing in it but what it is about.
pub(crate) fn blank_row(action: Action, resource_type: &'static str) -> AuditRow {
    AuditRow {
        principal_id: String::new(),
        user_id: None,
        action,
        resource_type,
        resource_id: String::new(),
        workspace_id: None,
        project_id: None,
        environment_id: None,
        outcome: Outcome::Success,
        reason: None,
        details: None,
        client_ip: None,
        signature: None,
    }
}

/// The row of a call that ended in `status`.
pub(crate) fn refusal(row: AuditRow, status: &Status) -> AuditRow {
    let outcome = match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => Outcome::PermissionDenied,
        Code::NotFound => Outcome::NotFound,
        Code::InvalidArgument => Outcome::InvalidRequest,
        _ => Outcome::Error,
    };
    AuditRow { outcome, reason: Some(status.message().to_owned()), ..row }
}
