//! What was done, attempted and refused, by whom and from where.

use sqlx::{Sqlite, SqliteConnection, Transaction};

use super::{Store, StoreError, new_id};
use crate::clock;

/// What was done or attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is described by its text in `Action::as_str`")]
pub enum Action {
    UserJoin,
    UserRegister,
    UserLogin,
    PrincipalCreate,
    PrincipalRename,
    PrincipalRevokeAllPermissions,
    WorkspaceCreate,
    WorkspaceGrantAccess,
    WorkspaceRevokeAccess,
    ProjectCreate,
    ProjectDelete,
    EnvironmentCreate,
    EnvironmentDelete,
    SecretCreate,
    SecretUpdate,
    SecretRead,
    SecretDelete,
    SecretList,
    SecretWatch,
    InviteCreate,
    InviteRevoke,
    PermissionSetWorkspace,
    PermissionRemoveWorkspace,
    PermissionSetProject,
    PermissionRemoveProject,
    PermissionSetEnvironment,
    PermissionRemoveEnvironment,
}

impl Action {
    /// The text that is stored and shown, `<noun>.<verb>`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserJoin => "user.join",
            Self::UserRegister => "user.register",
            Self::UserLogin => "user.login",
            Self::PrincipalCreate => "principal.create",
            Self::PrincipalRename => "principal.rename",
            Self::PrincipalRevokeAllPermissions => "principal.revoke_all_permissions",
            Self::WorkspaceCreate => "workspace.create",
            Self::WorkspaceGrantAccess => "workspace.grant_access",
            Self::WorkspaceRevokeAccess => "workspace.revoke_access",
            Self::ProjectCreate => "project.create",
            Self::ProjectDelete => "project.delete",
            Self::EnvironmentCreate => "environment.create",
            Self::EnvironmentDelete => "environment.delete",
            Self::SecretCreate => "secret.create",
            Self::SecretUpdate => "secret.update",
            Self::SecretRead => "secret.read",
            Self::SecretDelete => "secret.delete",
            Self::SecretList => "secret.list",
            Self::SecretWatch => "secret.watch",
            Self::InviteCreate => "invite.create",
            Self::InviteRevoke => "invite.revoke",
            Self::PermissionSetWorkspace => "permission.set_workspace",
            Self::PermissionRemoveWorkspace => "permission.remove_workspace",
            Self::PermissionSetProject => "permission.set_project",
            Self::PermissionRemoveProject => "permission.remove_project",
            Self::PermissionSetEnvironment => "permission.set_environment",
            Self::PermissionRemoveEnvironment => "permission.remove_environment",
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was done.
    Success,
    /// The caller may not.
    PermissionDenied,
    /// What it was to be done to is not there, or not for this caller.
    NotFound,
    /// The request made no sense.
    InvalidRequest,
    /// Anything else, ours or theirs.
    Error,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
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
    /// Who.
    pub principal_id: String,
    /// The user it belongs to, unless it is a service.
    pub user_id: Option<String>,
    /// What.
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
    /// What the caller was told when it was refused.
    pub reason: Option<String>,
    /// More, as JSON.
    pub details: Option<String>,
    /// From where.
    pub client_ip: Option<String>,
    /// Digest of the signature that was used for it and is not to be used again.
    pub signature: Option<[u8; 32]>,
}

impl Store {
    /// Writes rows that belong to no change: reads and refusals.
    pub async fn record(&self, rows: &[AuditRow]) -> Result<(), StoreError> {
        let mut transaction = self.write().await?;
        for row in rows {
            insert(&mut transaction, row).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The digests of the signatures that were used in the last `seconds`, each with the Unix second of its use, oldest first.
    pub async fn used_signatures(&self, seconds: i64) -> Result<Vec<([u8; 32], i64)>, StoreError> {
        let rows: Vec<(Vec<u8>, i64)> = sqlx::query_as(
            "SELECT signature_digest, timestamp / 1000 FROM audit_logs \
             WHERE timestamp >= ? AND signature_digest IS NOT NULL ORDER BY timestamp",
        )
        .bind(clock::now_milliseconds().saturating_sub(seconds.saturating_mul(1000)))
        .fetch_all(&self.readers)
        .await?;
        let used = rows.into_iter().map(|(digest, at)| {
            let digest = digest.try_into().map_err(|_| StoreError::Corrupt("signature digest"))?;
            Ok((digest, at))
        });
        used.collect()
    }
}

/// Writes the row with the change it tells of and commits both.
pub(super) async fn commit_with(
    mut transaction: Transaction<'static, Sqlite>,
    row: &AuditRow,
) -> Result<(), StoreError> {
    insert(&mut transaction, row).await?;
    Ok(transaction.commit().await?)
}

pub(super) async fn insert(connection: &mut SqliteConnection, row: &AuditRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO audit_logs (id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, \
         project_id, environment_id, result, reason, details, client_ip, signature_digest) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(new_id())
    .bind(clock::now_milliseconds())
    .bind(&row.principal_id)
    .bind(&row.user_id)
    .bind(row.action.as_str())
    .bind(row.resource_type)
    .bind(&row.resource_id)
    .bind(&row.workspace_id)
    .bind(&row.project_id)
    .bind(&row.environment_id)
    .bind(row.outcome.as_str())
    .bind(&row.reason)
    .bind(&row.details)
    .bind(&row.client_ip)
    .bind(row.signature.as_ref().map(<[u8; 32]>::as_slice))
    .execute(connection)
    .await?;
    Ok(())
}
