//! `zopp audit`: what was done and attempted in a workspace.

use clap::{Args, Subcommand};
use konverge_zopp_client::Client;
use konverge_zopp_proto::{AuditLogEntry, CountAuditLogsRequest, GetAuditLogRequest, ListAuditLogsRequest};
use serde::Serialize;

use crate::{
    context::Context,
    escape::visible,
    failure::failed,
    output::{Outcome, plain},
    scope::{Place, WorkspaceArguments},
};

mod export;

const EXAMPLES: &str = "\
Examples:
  zopp audit list -w acme --result permission_denied
  zopp audit list -w acme --project backend --from 2026-01-01T00:00:00Z --limit 10
  zopp audit count -w acme --action secret.read
  zopp audit export -w acme --hash-chain -o acme.jsonl
  zopp audit verify acme.jsonl

Reading the log of a workspace takes the admin role there. Equal reads of a service within an hour
share an entry, whose details tell how often it was repeated and when the last time was.";

/// `zopp audit`
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum AuditCommand {
    /// List entries, newest first
    List {
        /// Which entries.
        #[command(flatten)]
        filter: FilterArguments,
        /// How many entries
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// How many newer entries to leave out
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// Show one entry
    Get {
        /// Its ID
        id: String,
        /// The workspace.
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Count entries
    Count(FilterArguments),
    /// Write entries as JSON lines, oldest first
    Export(export::ExportArguments),
    /// Check the hash chain of an export
    Verify {
        /// The file that "zopp audit export --hash-chain" wrote
        file: std::path::PathBuf,
    },
}

/// Which entries.
#[derive(Debug, Args)]
pub struct FilterArguments {
    #[command(flatten)]
    workspace: WorkspaceArguments,
    /// Only this action, such as secret.read
    #[arg(long)]
    action: Option<String>,
    /// Only this result: success, `permission_denied`, `not_found`, `invalid_request` or error
    #[arg(long, help = "Only this result: success, permission_denied, not_found, invalid_request or error")]
    result: Option<String>,
    /// Only by this principal
    #[arg(long, value_name = "UUID")]
    principal: Option<String>,
    /// Only by this user
    #[arg(long, value_name = "UUID")]
    user: Option<String>,
    /// Only in this project (name, or ID if it is deleted)
    #[arg(long)]
    project: Option<String>,
    /// Only in environments of this name (or ID)
    #[arg(long)]
    environment: Option<String>,
    /// Only from this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl FilterArguments {
    /// The request without a page, which filters as a count does.
    fn resolve(self) -> Result<ListAuditLogsRequest, crate::failure::Failure> {
        Ok(ListAuditLogsRequest {
            workspace_name: self.workspace.resolve()?,
            principal_id: self.principal,
            user_id: self.user,
            project_name: self.project,
            environment_name: self.environment,
            action: self.action,
            result: self.result,
            from_timestamp: self.from,
            to_timestamp: self.to,
            limit: None,
            offset: None,
        })
    }
}

fn count_request(request: ListAuditLogsRequest) -> CountAuditLogsRequest {
    CountAuditLogsRequest {
        workspace_name: request.workspace_name,
        principal_id: request.principal_id,
        user_id: request.user_id,
        project_name: request.project_name,
        environment_name: request.environment_name,
        action: request.action,
        result: request.result,
        from_timestamp: request.from_timestamp,
        to_timestamp: request.to_timestamp,
    }
}

/// An entry, in `audit list`, `audit get` and each line of `audit export`.
#[derive(Serialize)]
struct EntryObject {
    id: String,
    timestamp: String,
    principal_id: String,
    user_id: Option<String>,
    action: String,
    resource_type: String,
    resource_id: String,
    workspace_id: Option<String>,
    project_id: Option<String>,
    environment_id: Option<String>,
    result: String,
    reason: Option<String>,
    details: Option<serde_json::Value>,
    client_ip: Option<String>,
}

impl From<AuditLogEntry> for EntryObject {
    fn from(entry: AuditLogEntry) -> Self {
        // Of an object, or the text as it is.
        let details = |text: String| serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
        Self {
            id: entry.id,
            timestamp: entry.timestamp,
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
            details: entry.details.map(details),
            client_ip: entry.client_ip,
        }
    }
}

/// `audit list`
#[derive(Serialize)]
struct Page {
    workspace: String,
    /// How many match in all.
    total: u64,
    entries: Vec<EntryObject>,
}

/// `audit count`
#[derive(Serialize)]
struct Total {
    workspace: String,
    count: u64,
}

pub(super) async fn execute(context: &Context, command: AuditCommand) -> Outcome {
    match command {
        AuditCommand::List { filter, limit, offset } => {
            let request = ListAuditLogsRequest { limit: Some(limit), offset: Some(offset), ..filter.resolve()? };
            list(&context.client()?, request).await
        }
        AuditCommand::Get { id, workspace } => get(&context.client()?, workspace.resolve()?, id).await,
        AuditCommand::Count(filter) => count(&context.client()?, count_request(filter.resolve()?)).await,
        AuditCommand::Export(arguments) => export::execute(&context.client()?, arguments).await,
        AuditCommand::Verify { file } => export::verify(&file),
    }
}

async fn list(client: &Client, request: ListAuditLogsRequest) -> Outcome {
    let workspace = request.workspace_name.clone();
    let (what, need) = refusal("list", &workspace, client);
    let answer = client.list_audit_logs(request).await.map_err(failed(what, need))?;
    let total = answer.total_count;
    let entries: Vec<EntryObject> = answer.entries.into_iter().map(EntryObject::from).collect();
    let text = if entries.is_empty() {
        format!("No audit log entries found in workspace {workspace}")
    } else {
        let blocks: Vec<_> = entries.iter().map(block).collect();
        format!("Audit log of workspace {workspace} ({} of {total} entries):\n\n{}", entries.len(), blocks.join("\n\n"))
    };
    Ok(plain(Page { workspace, total, entries }, text))
}

async fn get(client: &Client, workspace: String, id: String) -> Outcome {
    let (what, need) = refusal("read", &workspace, client);
    let request = GetAuditLogRequest { workspace_name: workspace, audit_log_id: id };
    let entry = EntryObject::from(client.get_audit_log(request).await.map_err(failed(what, need))?);
    let details = entry.details.as_ref().map(ToString::to_string);
    let optional = [
        ("User ID:       ", &entry.user_id),
        ("Workspace ID:  ", &entry.workspace_id),
        ("Project ID:    ", &entry.project_id),
        ("Environment ID:", &entry.environment_id),
        ("Reason:        ", &entry.reason),
        ("Details:       ", &details),
        ("Client IP:     ", &entry.client_ip),
    ];
    let mut lines = vec![
        format!("ID:             {}", entry.id),
        format!("Timestamp:      {}", entry.timestamp),
        format!("Principal ID:   {}", entry.principal_id),
        format!("Action:         {}", entry.action),
        format!("Resource:       {}", visible(&resource(&entry))),
        format!("Result:         {}", entry.result),
    ];
    lines.extend(
        optional.into_iter().filter_map(|(label, value)| Some(format!("{label} {}", visible(value.as_ref()?)))),
    );
    Ok(plain(entry, lines.join("\n")))
}

async fn count(client: &Client, request: CountAuditLogsRequest) -> Outcome {
    let workspace = request.workspace_name.clone();
    let (what, need) = refusal("count", &workspace, client);
    let count = client.count_audit_logs(request).await.map_err(failed(what, need))?.count;
    Ok(plain(Total { workspace, count }, format!("Total audit log entries: {count}")))
}

fn refusal(verb: &str, workspace: &str, client: &Client) -> (String, Option<crate::failure::Need>) {
    let what = format!("cannot {verb} the audit log of workspace '{workspace}'");
    (what, Place::Workspace { workspace: workspace.to_owned() }.need("admin", client))
}

fn block(entry: &EntryObject) -> String {
    let mut lines = vec![
        format!("ID: {}", entry.id),
        format!("Timestamp: {}", entry.timestamp),
        format!("Principal: {}", entry.principal_id),
        format!("Action: {}", entry.action),
        format!("Resource: {}", visible(&resource(entry))),
        format!("Result: {}", entry.result),
    ];
    lines.extend(entry.reason.as_ref().map(|reason| format!("Reason: {}", visible(reason))));
    lines.join("\n")
}

fn resource(entry: &EntryObject) -> String {
    if entry.resource_id.is_empty() {
        entry.resource_type.clone()
    } else {
        format!("{} {}", entry.resource_type, entry.resource_id)
    }
}
