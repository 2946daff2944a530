//! `zopp-server audit export`: the whole record, also what belongs to no workspace, such as requests whose signature is wrong.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;

use super::AdminError;
use crate::{
    args::AuditCommand,
    store::{AuditEntry, Store},
};

/// Entries read at once.
const PAGE: u32 = 1000;

/// An entry as it is printed. The order of the fields is that of the line.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    timestamp: String,
    principal_id: &'a str,
    user_id: Option<&'a str>,
    action: &'a str,
    resource_type: &'a str,
    resource_id: &'a str,
    #[serde(flatten)]
    place: Place<'a>,
    result: &'a str,
    reason: Option<&'a str>,
    details: Option<&'a RawValue>,
    client_ip: Option<&'a str>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names in the line")]
struct Place<'a> {
    workspace_id: Option<&'a str>,
    project_id: Option<&'a str>,
    environment_id: Option<&'a str>,
}

/// Does one command and prints to `out`.
pub async fn audit(store: &Store, command: &AuditCommand, out: &mut impl Write) -> Result<(), AdminError> {
    let AuditCommand::Export { from, to } = command;
    let period = (from.map(jiff::Timestamp::as_millisecond), to.map(jiff::Timestamp::as_millisecond));
    let mut after = None;
    loop {
        let page = store.audit_log(period, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.timestamp, last.id.clone()));
        for entry in &page {
            match writeln!(out, "{}", line(entry)) {
                // The reader has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                result => result.map_err(AdminError::Print)?,
            }
        }
    }
    out.flush().map_err(AdminError::Print)
}

#[expect(clippy::expect_used, reason = "texts and JSON are always JSON")]
fn line(entry: &AuditEntry) -> String {
    // Always with three digits, so that texts order as their times do.
    let timestamp = jiff::Timestamp::from_millisecond(entry.timestamp).map(|time| format!("{time:.3}"));
    let line = Line {
        id: &entry.id,
        timestamp: timestamp.unwrap_or_default(),
        principal_id: &entry.principal_id,
        user_id: entry.user_id.as_deref(),
        action: &entry.action,
        resource_type: &entry.resource_type,
        resource_id: &entry.resource_id,
        place: Place {
            workspace_id: entry.workspace_id.as_deref(),
            project_id: entry.project_id.as_deref(),
            environment_id: entry.environment_id.as_deref(),
        },
        result: &entry.result,
        reason: entry.reason.as_deref(),
        details: entry.details.as_deref().and_then(|details| serde_json::from_str(details).ok()),
        client_ip: entry.client_ip.as_deref(),
    };
    serde_json::to_string(&line).expect("texts and JSON")
}
