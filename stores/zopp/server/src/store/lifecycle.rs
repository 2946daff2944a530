//! Losing an identity: principals disabled, members and users removed, workspaces handed on and deleted.

use super::{
    AuditRow, PrincipalRow, Scope, Store, StoreError,
    audit::commit_with,
    delegation::Holder,
    exists::exists,
    principals::find_principal,
    sql::{self, Connection},
    workspaces::insert_member,
};
use crate::{clock, events::Event, rbac::Role};

/// Why an identity, a membership or an ownership stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// There is no such principal, or no member of that address.
    Unknown,
    /// The caller has no say in it.
    NotYours,
    /// The caller's device has a ceiling or is barred somewhere: it decides about no other device.
    Ceiling,
    /// The user owns these workspaces.
    Owner(Vec<String>),
    /// Nobody else could hand on the keys of these workspaces.
    LastKey(Vec<String>),
    /// The member has no device that holds the workspace's key.
    NoKey,
    /// The workspace has so many environments.
    NotEmpty(usize),
}

/// A change, or why there is none.
pub type Decision<T> = Result<T, Kept>;

/// The objects that were removed with a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// All principals of the user.
    pub principal_ids: Vec<String>,
    /// How many of them held a key.
    pub keys: u64,
    /// Invites that the user made or used.
    pub invites: u64,
}

/// The objects that were deleted with a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedWorkspace {
    /// All its environments.
    pub environment_ids: Vec<String>,
    /// Its services that were in no other workspace.
    pub service_ids: Vec<String>,
    /// Open invites to it.
    pub invites: u64,
}

/// Takes a workspace's key (`?1`) from the devices of a user (`?2`).
const HELD_KEYS: &str = "DELETE FROM workspace_principals WHERE workspace_id = ?1 AND principal_id IN (SELECT id FROM principals WHERE user_id = ?2)";

/// Takes all else from them that they have in the workspace, and at last the membership.
const HELD: [&str; 9] = [
    "DELETE FROM workspace_bars WHERE workspace_id = ?1 AND principal_id IN (SELECT id FROM principals WHERE user_id = ?2)",
    "DELETE FROM workspace_permissions WHERE workspace_id = ?1 AND principal_id IN (SELECT id FROM principals WHERE user_id = ?2)",
    "DELETE FROM project_permissions WHERE project_id IN (SELECT id FROM projects WHERE workspace_id = ?1) \
     AND principal_id IN (SELECT id FROM principals WHERE user_id = ?2)",
    "DELETE FROM environment_permissions WHERE environment_id IN (SELECT id FROM environments WHERE workspace_id = ?1) \
     AND principal_id IN (SELECT id FROM principals WHERE user_id = ?2)",
    "DELETE FROM user_workspace_permissions WHERE workspace_id = ?1 AND user_id = ?2",
    "DELETE FROM user_project_permissions WHERE project_id IN (SELECT id FROM projects WHERE workspace_id = ?1) AND user_id = ?2",
    "DELETE FROM user_environment_permissions WHERE environment_id IN (SELECT id FROM environments WHERE workspace_id = ?1) \
     AND user_id = ?2",
    "DELETE FROM group_members WHERE group_id IN (SELECT id FROM groups WHERE workspace_id = ?1) AND user_id = ?2",
    "DELETE FROM workspace_members WHERE workspace_id = ?1 AND user_id = ?2",
];

impl Store {
    /// Disables a principal, or enables it again. With no caller it is the server's operator. Returns its name.
    pub async fn set_principal_disabled(
        &self,
        caller: Option<&PrincipalRow>,
        id: &str,
        disabled: bool,
        even_if_last_key: bool,
        audit: &AuditRow,
    ) -> Result<Decision<String>, StoreError> {
        let mut transaction = self.write(audit).await?;
        let Some(target) = find_principal(&mut transaction, id).await? else { return Ok(Err(Kept::Unknown)) };
        if let Some(caller) = caller
            && let Err(kept) = may_disable(&mut transaction, caller, &target).await?
        {
            return Ok(Err(kept));
        }
        if disabled && !even_if_last_key {
            let removed = RemovedHolder::Principal(id);
            let last = last_copies(&mut transaction, removed, None, target.user_id.is_none()).await?;
            if !last.is_empty() {
                return Ok(Err(Kept::LastKey(last)));
            }
        }
        sql::query("UPDATE principals SET disabled_at = ?, updated_at = ? WHERE id = ?")
            .bind(disabled.then(clock::now))
            .bind(clock::now())
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        commit_with(transaction, audit).await?;
        Ok(Ok(target.name))
    }

    /// Takes a user out of a workspace, with all that the user has there.
    pub async fn remove_member(
        &self,
        workspace_id: &str,
        user_id: &str,
        audit: &AuditRow,
    ) -> Result<Decision<Removed>, StoreError> {
        let mut transaction = self.write(audit).await?;
        if owner_of(&mut transaction, workspace_id).await? == user_id {
            return Ok(Err(Kept::Owner(Vec::new())));
        }
        let last = last_copies(&mut transaction, RemovedHolder::User(user_id), Some(workspace_id), false).await?;
        if !last.is_empty() {
            return Ok(Err(Kept::LastKey(last)));
        }
        let principal_ids = principal_ids(&mut transaction, user_id).await?;
        let invites = revoke_invites(&mut transaction, user_id, Some(workspace_id)).await?;
        let keys = sql::query(HELD_KEYS).bind(workspace_id).bind(user_id).execute(&mut *transaction).await?;
        for statement in HELD {
            sql::query(statement).bind(workspace_id).bind(user_id).execute(&mut *transaction).await?;
        }
        let keys = keys.rows_affected();
        commit_with(transaction, audit).await?;
        Ok(Ok(Removed { principal_ids, keys, invites }))
    }

    /// Makes a member the owner of a workspace. The former owner stays a member with the admin role.
    pub async fn transfer_ownership(
        &self,
        caller: &PrincipalRow,
        workspace_id: &str,
        user_id: &str,
        audit: &AuditRow,
    ) -> Result<Decision<()>, StoreError> {
        let mut transaction = self.write(audit).await?;
        let owner = owner_of(&mut transaction, workspace_id).await?;
        if caller.user_id.as_ref() != Some(&owner) {
            return Ok(Err(Kept::NotYours));
        }
        if is_restricted(&mut transaction, &caller.id).await? {
            return Ok(Err(Kept::Ceiling));
        }
        let has_key = "SELECT 1 FROM workspace_principals k JOIN principals p ON p.id = k.principal_id \
                       WHERE k.workspace_id = ? AND p.user_id = ? AND p.disabled_at IS NULL";
        if !exists(&mut transaction, has_key, &[workspace_id, user_id]).await? {
            return Ok(Err(Kept::NoKey));
        }
        let now = clock::now();
        sql::query("UPDATE workspaces SET owner_user_id = ?, updated_at = ? WHERE id = ?")
            .bind(user_id)
            .bind(now)
            .bind(workspace_id)
            .execute(&mut *transaction)
            .await?;
        insert_member(&mut transaction, workspace_id, &owner).await?;
        sql::query(
            "INSERT INTO user_workspace_permissions (workspace_id, user_id, role, created_at, updated_at) \
             VALUES (?1, ?2, 'admin', ?3, ?3) ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = 'admin', updated_at = ?3",
        )
        .bind(workspace_id)
        .bind(&owner)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        commit_with(transaction, audit).await?;
        Ok(Ok(()))
    }

    /// Deletes a workspace with everything in it, and what is of no use without it: its services that are in no other workspace, and its
    /// invites. For the owner.
    pub async fn delete_workspace(
        &self,
        caller: &PrincipalRow,
        workspace_id: &str,
        even_if_not_empty: bool,
        audit: &AuditRow,
    ) -> Result<Decision<DeletedWorkspace>, StoreError> {
        let mut transaction = self.write(audit).await?;
        if caller.user_id.as_ref() != Some(&owner_of(&mut transaction, workspace_id).await?) {
            return Ok(Err(Kept::NotYours));
        }
        if is_restricted(&mut transaction, &caller.id).await? {
            return Ok(Err(Kept::Ceiling));
        }
        let environments: Vec<(String,)> = sql::query_as("SELECT id FROM environments WHERE workspace_id = ?")
            .bind(workspace_id)
            .fetch_all(&mut *transaction)
            .await?;
        if !(environments.is_empty() || even_if_not_empty) {
            return Ok(Err(Kept::NotEmpty(environments.len())));
        }
        // An invite to no workspace is one to the server, and lets anybody in.
        let invites = sql::query(
            "UPDATE invites SET revoked = 1 WHERE revoked = 0 \
             AND id IN (SELECT invite_id FROM invite_workspaces WHERE workspace_id = ?)",
        );
        let invites = invites.bind(workspace_id).execute(&mut *transaction).await?.rows_affected();
        let services: Vec<(String,)> = sql::query_as(
            "DELETE FROM principals WHERE user_id IS NULL \
             AND id IN (SELECT principal_id FROM workspace_principals WHERE workspace_id = ?1) \
             AND id NOT IN (SELECT principal_id FROM workspace_principals WHERE workspace_id <> ?1) RETURNING id",
        )
        .bind(workspace_id)
        .fetch_all(&mut *transaction)
        .await?;
        sql::query("DELETE FROM workspaces WHERE id = ?").bind(workspace_id).execute(&mut *transaction).await?;
        for (environment_id,) in &environments {
            self.announce(&mut transaction, environment_id, &Event::EnvironmentDeleted).await?;
        }
        commit_with(transaction, audit).await?;
        let ids = |rows: Vec<(String,)>| rows.into_iter().map(|(id,)| id).collect();
        Ok(Ok(DeletedWorkspace { environment_ids: ids(environments), service_ids: ids(services), invites }))
    }

    /// Removes a user with all principals. With no caller it is the server's operator.
    pub async fn remove_user(
        &self,
        caller: Option<&PrincipalRow>,
        user_id: &str,
        audit: &AuditRow,
    ) -> Result<Decision<Removed>, StoreError> {
        let mut transaction = self.write(audit).await?;
        if let Some(caller) = caller
            && is_restricted(&mut transaction, &caller.id).await?
        {
            return Ok(Err(Kept::Ceiling));
        }
        let owned: Vec<(String,)> = sql::query_as("SELECT name FROM workspaces WHERE owner_user_id = ? ORDER BY name")
            .bind(user_id)
            .fetch_all(&mut *transaction)
            .await?;
        if !owned.is_empty() {
            return Ok(Err(Kept::Owner(owned.into_iter().map(|(name,)| name).collect())));
        }
        let last = last_copies(&mut transaction, RemovedHolder::User(user_id), None, false).await?;
        if !last.is_empty() {
            return Ok(Err(Kept::LastKey(last)));
        }
        let principal_ids = principal_ids(&mut transaction, user_id).await?;
        let invites = revoke_invites(&mut transaction, user_id, None).await?;
        sql::query("DELETE FROM users WHERE id = ?").bind(user_id).execute(&mut *transaction).await?;
        commit_with(transaction, audit).await?;
        Ok(Ok(Removed { principal_ids, keys: 0, invites }))
    }

    /// The id of the user with this e-mail.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<String>, StoreError> {
        let row: Option<(String,)> =
            sql::query_as("SELECT id FROM users WHERE email = ?").bind(email).fetch_optional(&self.readers).await?;
        Ok(row.map(|(id,)| id))
    }
}

/// One's own devices are one's own to disable, but not with one that may itself less than others. A service is for those to
/// disable who are admin wherever it has a key or a role.
async fn may_disable(
    connection: &mut Connection,
    caller: &PrincipalRow,
    target: &PrincipalRow,
) -> Result<Decision<()>, StoreError> {
    if caller.id == target.id {
        return Ok(Ok(()));
    }
    if target.user_id.is_some() {
        if target.user_id != caller.user_id {
            return Ok(Err(Kept::NotYours));
        }
        return Ok(if is_restricted(connection, &caller.id).await? { Err(Kept::Ceiling) } else { Ok(()) });
    }
    let workspaces: Vec<(String,)> = sql::query_as(
        "SELECT workspace_id FROM workspace_principals WHERE principal_id = ?1 \
         UNION SELECT workspace_id FROM workspace_permissions WHERE principal_id = ?1 \
         UNION SELECT p.workspace_id FROM project_permissions g JOIN projects p ON p.id = g.project_id \
               WHERE g.principal_id = ?1 \
         UNION SELECT e.workspace_id FROM environment_permissions g JOIN environments e ON e.id = g.environment_id \
               WHERE g.principal_id = ?1",
    )
    .bind(&target.id)
    .fetch_all(&mut *connection)
    .await?;
    let mut allowed = caller.user_id.is_some() && !workspaces.is_empty();
    for (workspace_id,) in workspaces {
        let scope = Scope { workspace_id, project_id: None, environment_id: None };
        allowed &= Holder::from(caller).grants(connection, &scope).await?.allow(Role::Admin);
    }
    Ok(if allowed { Ok(()) } else { Err(Kept::NotYours) })
}

/// Does the principal have a ceiling, or is it barred, anywhere?
async fn is_restricted(connection: &mut Connection, principal_id: &str) -> Result<bool, StoreError> {
    let query = "SELECT 1 WHERE EXISTS (SELECT 1 FROM workspace_permissions WHERE principal_id = ?1) \
                 OR EXISTS (SELECT 1 FROM project_permissions WHERE principal_id = ?1) \
                 OR EXISTS (SELECT 1 FROM environment_permissions WHERE principal_id = ?1) \
                 OR EXISTS (SELECT 1 FROM workspace_bars WHERE principal_id = ?1)";
    exists(connection, query, &[principal_id]).await
}

/// Those whose copies of keys are about to be of no use.
#[derive(Debug, Clone, Copy)]
pub(super) enum RemovedHolder<'a> {
    Principal(&'a str),
    User(&'a str),
}

/// The names of the workspaces (or of the one given) whose key nobody could hand on without those who leave. A service can
/// hand on no key; its copy counts only against another service's (`among_services`).
pub(super) async fn last_copies(
    connection: &mut Connection,
    removed: RemovedHolder<'_>,
    workspace_id: Option<&str>,
    among_services: bool,
) -> Result<Vec<String>, StoreError> {
    let (principal_id, user_id) = match removed {
        RemovedHolder::Principal(id) => (Some(id), None),
        RemovedHolder::User(id) => (None, Some(id)),
    };
    let names: Vec<(String,)> = sql::query_as(
        "SELECT DISTINCT w.name FROM workspace_principals k JOIN workspaces w ON w.id = k.workspace_id \
         JOIN principals h ON h.id = k.principal_id \
         WHERE (h.id = ?1 OR h.user_id = ?2) AND (?3 IS NULL OR w.id = ?3) AND NOT EXISTS ( \
             SELECT 1 FROM workspace_principals o JOIN principals p ON p.id = o.principal_id \
             WHERE o.workspace_id = w.id AND p.disabled_at IS NULL AND (p.user_id IS NOT NULL OR ?4) \
             AND p.id IS DISTINCT FROM ?1 AND (?2 IS NULL OR p.user_id IS DISTINCT FROM ?2)) \
         ORDER BY w.name",
    )
    .bind(principal_id)
    .bind(user_id)
    .bind(workspace_id)
    .bind(among_services)
    .fetch_all(connection)
    .await?;
    Ok(names.into_iter().map(|(name,)| name).collect())
}

pub(super) async fn owner_of(connection: &mut Connection, workspace_id: &str) -> Result<String, StoreError> {
    let row: Option<(String,)> = sql::query_as("SELECT owner_user_id FROM workspaces WHERE id = ?")
        .bind(workspace_id)
        .fetch_optional(connection)
        .await?;
    row.map(|(id,)| id).ok_or(StoreError::Missing)
}

async fn principal_ids(connection: &mut Connection, user_id: &str) -> Result<Vec<String>, StoreError> {
    let rows: Vec<(String,)> =
        sql::query_as("SELECT id FROM principals WHERE user_id = ?").bind(user_id).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Revokes the invites to a workspace (to any without one) that a user made or used: the user may still have their codes.
async fn revoke_invites(
    connection: &mut Connection,
    user_id: &str,
    workspace_id: Option<&str>,
) -> Result<u64, StoreError> {
    let done = sql::query(
        "UPDATE invites SET revoked = 1, updated_at = ?3 WHERE revoked = 0 \
         AND (created_by_user_id = ?1 OR id IN (SELECT invite_id FROM invite_uses WHERE user_id = ?1)) \
         AND id IN (SELECT invite_id FROM invite_workspaces WHERE ?2 IS NULL OR workspace_id = ?2)",
    )
    .bind(user_id)
    .bind(workspace_id)
    .bind(clock::now())
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
