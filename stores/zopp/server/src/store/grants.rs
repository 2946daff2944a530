//! The grants that decide, read in one query: all levels, all three kinds of holder, ownership.

use sqlx::{Row, SqliteConnection};

use super::{Scope, Store, StoreError};
use crate::rbac::{Grants, Level, Role};

const GRANTS: &str = "\
    SELECT 'owner', 0, 'admin' FROM workspaces WHERE id = ?1 AND owner_user_id = ?5 \
    UNION ALL SELECT 'principal', 0, role FROM workspace_permissions WHERE workspace_id = ?1 AND principal_id = ?4 \
    UNION ALL SELECT 'principal', 1, role FROM project_permissions WHERE project_id = ?2 AND principal_id = ?4 \
    UNION ALL SELECT 'principal', 2, role FROM environment_permissions WHERE environment_id = ?3 AND principal_id = ?4 \
    UNION ALL SELECT 'user', 0, role FROM user_workspace_permissions WHERE workspace_id = ?1 AND user_id = ?5 \
    UNION ALL SELECT 'user', 1, role FROM user_project_permissions WHERE project_id = ?2 AND user_id = ?5 \
    UNION ALL SELECT 'user', 2, role FROM user_environment_permissions WHERE environment_id = ?3 AND user_id = ?5 \
    UNION ALL SELECT 'group', 0, p.role FROM group_workspace_permissions p JOIN group_members m USING (group_id) \
        WHERE p.workspace_id = ?1 AND m.user_id = ?5 \
    UNION ALL SELECT 'group', 1, p.role FROM group_project_permissions p JOIN group_members m USING (group_id) \
        WHERE p.project_id = ?2 AND m.user_id = ?5 \
    UNION ALL SELECT 'group', 2, p.role FROM group_environment_permissions p JOIN group_members m USING (group_id) \
        WHERE p.environment_id = ?3 AND m.user_id = ?5";

impl Store {
    /// The grants that apply to a principal (of a user, or a service's) at a place. An error is an error, never "no grants".
    pub async fn grants(&self, principal_id: &str, user_id: Option<&str>, scope: &Scope) -> Result<Grants, StoreError> {
        let mut connection = self.readers.acquire().await?;
        load(&mut connection, principal_id, user_id, scope).await
    }
}

pub(super) async fn load(
    connection: &mut SqliteConnection,
    principal_id: &str,
    user_id: Option<&str>,
    scope: &Scope,
) -> Result<Grants, StoreError> {
    let rows = sqlx::query(GRANTS)
        .bind(&scope.workspace_id)
        .bind(&scope.project_id)
        .bind(&scope.environment_id)
        .bind(principal_id)
        .bind(user_id)
        .fetch_all(connection)
        .await?;
    let mut grants = Grants { human: user_id.is_some(), ..Grants::default() };
    for row in rows {
        let role = Some(role_from_text(row.try_get(2)?)?);
        match row.try_get::<&str, _>(0)? {
            "owner" => grants.owner = true,
            "principal" => grants = grants.with_own(level_from_number(row.try_get(1)?)?, role),
            "user" => grants.user = grants.user.max(role),
            _ => grants.group = grants.group.max(role),
        }
    }
    Ok(grants)
}

fn level_from_number(number: i64) -> Result<Level, StoreError> {
    match number {
        0 => Ok(Level::Workspace),
        1 => Ok(Level::Project),
        2 => Ok(Level::Environment),
        _ => Err(StoreError::Corrupt("level")),
    }
}

pub(super) fn role_from_text(text: &str) -> Result<Role, StoreError> {
    match text {
        "admin" => Ok(Role::Admin),
        "write" => Ok(Role::Write),
        "read" => Ok(Role::Read),
        _ => Err(StoreError::Corrupt("role")),
    }
}

pub(super) const fn role_text(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Write => "write",
        Role::Read => "read",
    }
}
