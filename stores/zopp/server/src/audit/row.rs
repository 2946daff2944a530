//! The rows of the audit log, from the calls that they are about.

use tonic::{Code, Request, Status};

use crate::{
    address::client_address,
    store::{Action, AuditRow, Authority, Outcome},
};

/// The actor in the audit log for a request without proof.
pub(crate) const NOBODY: &str = "anonymous";

/// Returns the address that a request came from.
pub(crate) fn client_ip<M>(request: &Request<M>) -> Option<String> {
    client_address(request).map(|address| address.to_string())
}

/// Returns a row with nothing but its action and the type of its resource.
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
        authority: Authority::default(),
    }
}

/// Returns the row of a call that ended in `status`.
pub(crate) fn refusal(row: AuditRow, status: &Status) -> AuditRow {
    let outcome = match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => Outcome::PermissionDenied,
        Code::NotFound => Outcome::NotFound,
        Code::InvalidArgument => Outcome::InvalidRequest,
        _ => Outcome::Error,
    };
    AuditRow { outcome, reason: Some(status.message().to_owned()), authority: Authority::default(), ..row }
}
