//! Environments.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Access, Call},
    events::Event,
    rbac::Role,
    status::{from_store, or_exists, or_missing},
    store::{EnvironmentRow, NewEnvironment},
    validate,
};

/// Makes an environment.
pub(crate) async fn create(
    call: &mut Call,
    message: proto::CreateEnvironmentRequest,
) -> Result<proto::Environment, Status> {
    call.caller.user_id()?;
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let project = call.project(&mut place, &message.project_name).await?;
    call.require(&place, Role::Admin).await?;
    let name = validate::name("environment name", &message.name)?;
    validate::wrapped_key("dek_wrapped", &message.dek_wrapped)?;
    validate::nonce("dek_nonce", &message.dek_nonce)?;
    let new = NewEnvironment {
        workspace_id: &place.workspace.id,
        project_id: &project.id,
        name,
        dek_wrapped: &message.dek_wrapped,
        dek_nonce: &message.dek_nonce,
    };
    let audit = call.audit(name);
    let made = call.state.store.create_environment(&new, &audit).await.map_err(or_exists("environment", name))?;
    Ok(answer(made))
}

/// The environments of a project.
pub(crate) async fn list(
    call: &mut Call,
    message: proto::ListEnvironmentsRequest,
) -> Result<proto::EnvironmentList, Status> {
    call.caller.user_id()?;
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let project = call.project(&mut place, &message.project_name).await?;
    call.require(&place, Role::Read).await?;
    let rows = call.state.store.environments(&project.id).await.map_err(from_store)?;
    Ok(proto::EnvironmentList { environments: rows.into_iter().map(answer).collect() })
}

/// One environment, with its wrapped key.
pub(crate) async fn get(call: &mut Call, message: proto::GetEnvironmentRequest) -> Result<proto::Environment, Status> {
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let environment = call.environment(&mut place, &message.project_name, &message.environment_name).await?;
    call.require(&place, Role::Read).await?;
    Ok(answer(environment))
}

/// Deletes an environment with its secrets, and ends the streams on it.
pub(crate) async fn delete(call: &mut Call, message: proto::DeleteEnvironmentRequest) -> Result<proto::Empty, Status> {
    call.caller.user_id()?;
    let mut place = call.workspace(&message.workspace_name, Access::Member).await?;
    let environment = call.environment(&mut place, &message.project_name, &message.environment_name).await?;
    // Deleting takes what creating takes: admin of the project.
    let mut project = place.clone();
    project.scope.environment_id = None;
    call.require(&project, Role::Admin).await?;
    let audit = call.audit(&environment.id);
    let state = &call.state;
    state
        .store
        .delete_environment(&environment.id, &audit)
        .await
        .map_err(or_missing("environment", &environment.name))?;
    state.events.publish(&environment.id, Event::EnvironmentDeleted);
    Ok(proto::Empty {})
}

fn answer(row: EnvironmentRow) -> proto::Environment {
    proto::Environment {
        id: row.id,
        project_id: row.project_id,
        name: row.name,
        dek_wrapped: row.dek_wrapped,
        dek_nonce: row.dek_nonce,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}
