//! The audit log of a workspace, for its admins.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Access, Call},
    place::Place,
    rbac::Role,
    status::from_store,
    store::{Action, AuditEntry, AuditFilter, Outcome},
    validate,
};

/// Entries per page at most, and unless fewer are wanted.
const PAGE: u32 = 1000;

/// A page of entries, newest first, and how many there are in all.
pub(crate) async fn list(call: &mut Call, message: proto::ListAuditLogsRequest) -> Result<proto::AuditLogList, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let (limit, offset) = (message.limit.unwrap_or(PAGE).min(PAGE), message.offset.unwrap_or(0));
    let filter = filter(call, place, count_request(message)).await?;
    let (entries, total_count) = call.state.store.audit_entries(&filter, limit, offset).await.map_err(from_store)?;
    Ok(proto::AuditLogList { entries: entries.into_iter().map(answer).collect(), total_count })
}

/// One entry.
pub(crate) async fn get(call: &mut Call, message: proto::GetAuditLogRequest) -> Result<proto::AuditLogEntry, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let id = validate::id("audit_log_id", &message.audit_log_id)?;
    call.about(&id, None);
    let entry = call.state.store.audit_entry(&place.workspace.id, &id).await.map_err(from_store)?;
    entry.map(answer).ok_or_else(|| Status::not_found(format!("audit entry {id:?} not found")))
}

/// How many entries there are.
pub(crate) async fn count(
    call: &mut Call,
    message: proto::CountAuditLogsRequest,
) -> Result<proto::CountAuditLogsResponse, Status> {
    let place = workspace(call, &message.workspace_name).await?;
    let filter = filter(call, place, message).await?;
    let count = call.state.store.audit_count(&filter).await.map_err(from_store)?;
    Ok(proto::CountAuditLogsResponse { count })
}

/// The workspace, if the caller is an admin of it.
async fn workspace(call: &mut Call, name: &str) -> Result<Place, Status> {
    let place = call.workspace(name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    Ok(place)
}

/// The filters of a list are those of a count.
fn count_request(message: proto::ListAuditLogsRequest) -> proto::CountAuditLogsRequest {
    proto::CountAuditLogsRequest {
        workspace_name: message.workspace_name,
        principal_id: message.principal_id,
        user_id: message.user_id,
        project_name: message.project_name,
        environment_name: message.environment_name,
        action: message.action,
        result: message.result,
        from_timestamp: message.from_timestamp,
        to_timestamp: message.to_timestamp,
    }
}

async fn filter(call: &mut Call, place: Place, message: proto::CountAuditLogsRequest) -> Result<AuditFilter, Status> {
    let workspace_id = place.workspace.id;
    let store = &call.state.store;
    // A deleted object has no name any more, but its id is still in the log.
    let id = |text: &str| validate::id("", text).ok();
    let project_id = match message.project_name.as_deref() {
        None => None,
        Some(name) => match store.project(&workspace_id, name).await.map_err(from_store)? {
            Some(project) => Some(project.id),
            None => Some(id(name).ok_or_else(|| Status::not_found(format!("project {name:?} not found")))?),
        },
    };
    let environment_ids = match message.environment_name.as_deref() {
        None => None,
        Some(name) => {
            let project_id = project_id.as_deref();
            let mut ids = store.environment_ids(&workspace_id, project_id, name).await.map_err(from_store)?;
            ids.extend(id(name));
            if ids.is_empty() {
                return Err(Status::not_found(format!("environment {name:?} not found")));
            }
            Some(ids)
        }
    };
    Ok(AuditFilter {
        workspace_id,
        principal_id: message.principal_id.map(|id| validate::id("principal_id", &id)).transpose()?,
        user_id: message.user_id.map(|id| validate::id("user_id", &id)).transpose()?,
        project_id,
        environment_ids,
        action: message.action.map(action).transpose()?,
        outcome: message.result.map(|text| outcome(&text)).transpose()?,
        from: message.from_timestamp.map(|text| instant("from_timestamp", &text)).transpose()?,
        to: message.to_timestamp.map(|text| instant("to_timestamp", &text)).transpose()?,
    })
}

/// Actions that the original defines and that are recorded under another name here: nothing has them, as in the original.
const NEVER_RECORDED: [&str; 2] = ["principal.remove", "invite.consume"];

fn action(text: String) -> Result<String, Status> {
    if Action::parse(&text).is_some() || NEVER_RECORDED.contains(&text.as_str()) {
        Ok(text)
    } else {
        Err(Status::invalid_argument("action must be one such as secret.read"))
    }
}

fn outcome(text: &str) -> Result<Outcome, Status> {
    Outcome::parse(text).ok_or_else(|| {
        Status::invalid_argument("result must be success, permission_denied, not_found, invalid_request or error")
    })
}

/// Unix milliseconds of RFC 3339 text.
fn instant(what: &str, text: &str) -> Result<i64, Status> {
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        Status::invalid_argument(format!("{what} must be an RFC 3339 time such as 2026-01-31T12:00:00Z"))
    })?;
    Ok(time.as_millisecond())
}

fn answer(entry: AuditEntry) -> proto::AuditLogEntry {
    // Always with three digits, so that texts order as their times do.
    let timestamp = jiff::Timestamp::from_millisecond(entry.timestamp).map(|time| format!("{time:.3}"));
    let timestamp = timestamp.unwrap_or_default();
    proto::AuditLogEntry {
        id: entry.id,
        timestamp,
        principal_id: entry.principal_id,
        user_id: entry.user_id,
        action: entry.action,
        resource_type: entry.resource_type,
        resource_id: entry.resource_id,
        workspace_id: entry.workspace_id,
        project_id: entry.project_id,
        environment_id: entry.environment_id,
        result: entry.result,
        reason: entry.reason,
        details: entry.details,
        client_ip: entry.client_ip,
    }
}
