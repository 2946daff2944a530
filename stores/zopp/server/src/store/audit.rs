//! The audit log: actions, attempts and refusals, with actor and address.

use super::{
    Authority, Store, StoreError, new_id,
    signatures::use_up,
    sql::{self, Connection, Query, Transaction},
};
use crate::clock;

macro_rules! actions {
    ($($name:ident = $text:literal,)*) => {
        /// The action.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is described by its text in `Action::as_str`")]
        pub enum Action {
            $($name,)*
        }

        impl Action {
            /// The text that is stored and shown, `<noun>.<verb>`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The action of a text.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

actions! {
    UserJoin = "user.join",
    UserRegister = "user.register",
    UserLogin = "user.login",
    UserRemove = "user.remove",
    PrincipalCreate = "principal.create",
    PrincipalRename = "principal.rename",
    PrincipalDisable = "principal.disable",
    PrincipalEnable = "principal.enable",
    PrincipalRevokeAllPermissions = "principal.revoke_all_permissions",
    WorkspaceCreate = "workspace.create",
    WorkspaceGrantAccess = "workspace.grant_access",
    WorkspaceRevokeAccess = "workspace.revoke_access",
    WorkspaceRemoveMember = "workspace.remove_member",
    WorkspaceTransfer = "workspace.transfer_ownership",
    WorkspaceDelete = "workspace.delete",
    WorkspaceRotateKey = "workspace.rotate_key",
    ProjectCreate = "project.create",
    ProjectDelete = "project.delete",
    EnvironmentCreate = "environment.create",
    EnvironmentDelete = "environment.delete",
    EnvironmentRotateKey = "environment.rotate_key",
    EnvironmentManifest = "environment.write_manifest",
    SecretCreate = "secret.create",
    SecretUpdate = "secret.update",
    SecretRead = "secret.read",
    SecretDelete = "secret.delete",
    SecretList = "secret.list",
    SecretWatch = "secret.watch",
    SecretHistory = "secret.history",
    SecretForget = "secret.forget",
    InviteCreate = "invite.create",
    InviteRevoke = "invite.revoke",
    PermissionSetWorkspace = "permission.set_workspace",
    PermissionRemoveWorkspace = "permission.remove_workspace",
    PermissionSetProject = "permission.set_project",
    PermissionRemoveProject = "permission.remove_project",
    PermissionSetEnvironment = "permission.set_environment",
    PermissionRemoveEnvironment = "permission.remove_environment",
    PrincipalRead = "principal.read",
    PrincipalList = "principal.list",
    PrincipalExportCreate = "principal_export.create",
    PrincipalExportRead = "principal_export.read",
    PrincipalExportConsume = "principal_export.consume",
    WorkspaceList = "workspace.list",
    WorkspaceReadKey = "workspace.read_key",
    ProjectRead = "project.read",
    ProjectList = "project.list",
    EnvironmentRead = "environment.read",
    EnvironmentList = "environment.list",
    InviteRead = "invite.read",
    InviteList = "invite.list",
    PermissionRead = "permission.read",
    PermissionList = "permission.list",
    GroupRead = "group.read",
    GroupList = "group.list",
    GroupCreate = "group.create",
    GroupUpdate = "group.update",
    GroupDelete = "group.delete",
    GroupMemberAdd = "group.member_add",
    GroupMemberRemove = "group.member_remove",
    AuditRead = "audit.read",
    AuditList = "audit.list",
    UserPermissionSetWorkspace = "user_permission.set_workspace",
    UserPermissionRemoveWorkspace = "user_permission.remove_workspace",
    UserPermissionSetProject = "user_permission.set_project",
    UserPermissionRemoveProject = "user_permission.remove_project",
    UserPermissionSetEnvironment = "user_permission.set_environment",
    UserPermissionRemoveEnvironment = "user_permission.remove_environment",
    GroupPermissionSetWorkspace = "group_permission.set_workspace",
    GroupPermissionRemoveWorkspace = "group_permission.remove_workspace",
    GroupPermissionSetProject = "group_permission.set_project",
    GroupPermissionRemoveProject = "group_permission.remove_project",
    GroupPermissionSetEnvironment = "group_permission.set_environment",
    GroupPermissionRemoveEnvironment = "group_permission.remove_environment",
    DatabaseRestore = "database.restore",
    DatabaseImport = "database.import",
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was done.
    Success,
    /// The caller may not.
    PermissionDenied,
    /// The object of the action does not exist, or not for this client.
    NotFound,
    /// The request made no sense.
    InvalidRequest,
    /// Anything else, ours or theirs.
    Error,
}

impl Outcome {
    /// The outcome of a text.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Success, Self::PermissionDenied, Self::NotFound, Self::InvalidRequest, Self::Error]
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }

    /// The text that is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::InvalidRequest => "invalid_request",
            Self::Error => "error",
        }
    }
}

/// One line of the record. Holds names and ids, never a value or a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// The actor.
    pub principal_id: String,
    /// The user it belongs to, unless it is a service.
    pub user_id: Option<String>,
    /// The action.
    pub action: Action,
    /// The kind of thing it was done to.
    pub resource_type: &'static str,
    /// Its id, or its name where it has no id (yet).
    pub resource_id: String,
    /// In which workspace.
    pub workspace_id: Option<String>,
    /// In which project.
    pub project_id: Option<String>,
    /// In which environment.
    pub environment_id: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The status message of a refusal.
    pub reason: Option<String>,
    /// More, as JSON.
    pub details: Option<String>,
    /// From where.
    pub client_ip: Option<String>,
    /// Digest of the signature that was used for it and is not to be used again.
    pub signature: Option<[u8; 32]>,
    /// The rights by which a change is made, checked when it is written. Not kept.
    pub authority: Authority,
}

/// Something to be written that belongs to no change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditWrite {
    /// A row.
    Row {
        /// Its id.
        id: String,
        /// Unix milliseconds.
        at: i64,
        /// The rest.
        row: Box<AuditRow>,
    },
    /// A row written before stands for more than itself.
    Count {
        /// Its id.
        id: String,
        /// How often the same happened again.
        repeated: u64,
        /// When it happened last, in Unix milliseconds.
        last: i64,
    },
}

/// The statement that inserts a row, with what stands for its action. Where that needs more values, they come behind those of the row.
macro_rules! insertion {
    ($action:literal) => {
        concat!(
            "INSERT INTO audit_logs (id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, \
             project_id, environment_id, result, reason, details, client_ip) VALUES (?1, ?2, ?3, ?4, ",
            $action,
            ", ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        )
    };
}

/// The statement that writes a row of now.
pub(super) fn insertion(row: &AuditRow) -> Query<'_> {
    insertion_of(new_id(), clock::now_milliseconds(), row)
}

/// The statement that writes a row before a change sets a key. The action is that of a new key if the environment has no key of that name.
pub(super) fn insertion_of_set<'q>(row: &'q AuditRow, environment_id: &'q str, key: &'q str) -> Query<'q> {
    let insertion = insertion!(
        "CASE WHEN EXISTS (SELECT 1 FROM secrets WHERE env_id = ?15 AND key_name = ?16) THEN ?5 ELSE ?17 END"
    );
    with_values(insertion, (new_id(), clock::now_milliseconds()), Action::SecretUpdate, row)
        .bind(environment_id)
        .bind(key)
        .bind(Action::SecretCreate.as_str())
}

fn insertion_of(id: String, at: i64, row: &AuditRow) -> Query<'_> {
    with_values(insertion!("?5"), (id, at), row.action, row)
}

fn with_values<'q>(insertion: &'static str, (id, at): (String, i64), action: Action, row: &'q AuditRow) -> Query<'q> {
    sql::query(insertion)
        .bind(id)
        .bind(at)
        .bind(&row.principal_id)
        .bind(&row.user_id)
        .bind(action.as_str())
        .bind(row.resource_type)
        // A caller can name what no name can be; PostgreSQL takes no text with this character.
        .bind(row.resource_id.replace('\0', "\u{fffd}"))
        .bind(&row.workspace_id)
        .bind(&row.project_id)
        .bind(&row.environment_id)
        .bind(row.outcome.as_str())
        .bind(&row.reason)
        .bind(&row.details)
        .bind(&row.client_ip)
}

/// Batch sizes of an insertion, largest first. There are few, because each is a statement that the database prepares.
const AT_ONCE: [usize; 4] = [64, 16, 4, 1];

impl Store {
    /// Writes rows that belong to no change: reads and refusals, and how often they were repeated.
    pub async fn record(&self, writes: &[AuditWrite]) -> Result<(), StoreError> {
        let mut transaction = self.begin_apart().await?;
        let rows: Vec<(&String, i64, &AuditRow)> = writes
            .iter()
            .filter_map(|write| match write {
                AuditWrite::Row { id, at, row } => Some((id, *at, &**row)),
                AuditWrite::Count { .. } => None,
            })
            .collect();
        let mut rest = rows.as_slice();
        for length in AT_ONCE {
            let chunks = rest.chunks_exact(length);
            rest = chunks.remainder();
            for chunk in chunks {
                let insertions = chunk.iter().map(|&(id, at, row)| insertion_of(id.clone(), at, row)).collect();
                Query::inserted_together(insertions).execute(&mut *transaction).await?;
            }
        }
        for (_, _, row) in rows {
            use_up(&mut transaction, row).await?;
        }
        for write in writes {
            if let AuditWrite::Count { id, repeated, last } = write {
                count(&mut transaction, id, *repeated, *last).await?;
            }
        }
        Ok(transaction.commit().await?)
    }
}

/// Adds to the details of a row how often the same was `repeated`, and when for the last time (Unix milliseconds).
async fn count(connection: &mut Connection, id: &str, repeated: u64, last: i64) -> Result<(), StoreError> {
    let row: Option<(Option<String>,)> =
        sql::query_as("SELECT details FROM audit_logs WHERE id = ?").bind(id).fetch_optional(&mut *connection).await?;
    // Deleted for its age.
    let Some((details,)) = row else { return Ok(()) };
    let details = serde_json::from_str(details.as_deref().unwrap_or("{}"));
    let mut details: serde_json::Map<_, _> = details.map_err(|_| StoreError::Corrupt("audit entry"))?;
    let last = jiff::Timestamp::from_millisecond(last).map(|time| format!("{time:.3}")).unwrap_or_default();
    details.insert("repeated".into(), repeated.into());
    details.insert("last".into(), last.into());
    sql::query("UPDATE audit_logs SET details = ? WHERE id = ?")
        .bind(serde_json::Value::Object(details).to_string())
        .bind(id)
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes the row with the change it tells of and commits both.
pub(super) async fn commit_with(mut transaction: Transaction, row: &AuditRow) -> Result<(), StoreError> {
    insert(&mut transaction, row).await?;
    Ok(transaction.commit().await?)
}

pub(super) async fn insert(connection: &mut Connection, row: &AuditRow) -> Result<(), StoreError> {
    insertion(row).execute(connection).await?;
    Ok(())
}
