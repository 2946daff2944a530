//! Grants to principals, on the three levels.

use sqlx::SqliteConnection;

use super::{
    AuditRow, PrincipalRow, Store, StoreError,
    audit::commit_with,
    grants::{load, role_from_text, role_text},
};
use crate::{
    clock,
    rbac::{Grants, Level, Role},
};

/// A workspace, a project in it, or an environment in that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Always.
    pub workspace_id: String,
    /// For a project or an environment.
    pub project_id: Option<String>,
    /// For an environment.
    pub environment_id: Option<String>,
}

impl Scope {
    /// How deep it is.
    pub fn level(&self) -> Level {
        match (&self.project_id, &self.environment_id) {
            (_, Some(_)) => Level::Environment,
            (Some(_), None) => Level::Project,
            (None, None) => Level::Workspace,
        }
    }

    /// The id of the innermost one.
    pub fn id(&self) -> &str {
        self.environment_id.as_ref().or(self.project_id.as_ref()).unwrap_or(&self.workspace_id)
    }
}

/// One grant, for listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub principal_id: String,
    /// Its name.
    pub principal_name: String,
    /// What.
    pub role: Role,
}

/// What became of a change to a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is as asked.
    Done,
    /// The decision was no.
    Refused,
    /// There is no such grant to remove.
    NothingToRemove,
}

/// The statements of one level.
struct Statements {
    get: &'static str,
    list: &'static str,
    set: &'static str,
    remove: &'static str,
}

macro_rules! statements {
    ($table:literal, $scope:literal) => {
        Statements {
            get: concat!("SELECT role FROM ", $table, " WHERE ", $scope, " = ? AND principal_id = ?"),
            list: concat!(
                "SELECT g.principal_id, p.name, g.role FROM ",
                $table,
                " g JOIN principals p ON p.id = g.principal_id WHERE g.",
                $scope,
                " = ? ORDER BY p.name, p.id"
            ),
            set: concat!(
                "INSERT INTO ",
                $table,
                " (",
                $scope,
                ", principal_id, role, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4) \
                 ON CONFLICT DO UPDATE SET role = excluded.role, updated_at = excluded.updated_at"
            ),
            remove: concat!("DELETE FROM ", $table, " WHERE ", $scope, " = ? AND principal_id = ?"),
        }
    };
}

const WORKSPACE: Statements = statements!("workspace_permissions", "workspace_id");
const PROJECT: Statements = statements!("project_permissions", "project_id");
const ENVIRONMENT: Statements = statements!("environment_permissions", "environment_id");

const fn statements(level: Level) -> &'static Statements {
    match level {
        Level::Workspace => &WORKSPACE,
        Level::Project => &PROJECT,
        Level::Environment => &ENVIRONMENT,
    }
}

impl Store {
    /// The grant made to a principal exactly here, if any.
    pub async fn permission(&self, scope: &Scope, principal_id: &str) -> Result<Option<Role>, StoreError> {
        let role: Option<(String,)> = sqlx::query_as(statements(scope.level()).get)
            .bind(scope.id())
            .bind(principal_id)
            .fetch_optional(&self.readers)
            .await?;
        role.map(|(text,)| role_from_text(&text)).transpose()
    }

    /// The grants made exactly here, by name of principal.
    pub async fn permissions(&self, scope: &Scope) -> Result<Vec<Grant>, StoreError> {
        let rows: Vec<(String, String, String)> =
            sqlx::query_as(statements(scope.level()).list).bind(scope.id()).fetch_all(&self.readers).await?;
        rows.into_iter()
            .map(|(principal_id, principal_name, role)| {
                Ok(Grant { principal_id, principal_name, role: role_from_text(&role)? })
            })
            .collect()
    }

    /// Sets (or with `None` removes) the grant of `target` at `scope` if `decide`, given the grants of caller and target at that
    /// moment, says so. Nothing can change between decision and deed.
    pub async fn change_permission(
        &self,
        scope: &Scope,
        caller: (&str, Option<&str>),
        target: &PrincipalRow,
        role: Option<Role>,
        audit: &AuditRow,
        decide: impl FnOnce(&Grants, &Grants) -> bool + Send,
    ) -> Result<Changed, StoreError> {
        let mut transaction = self.write().await?;
        let caller_grants = load(&mut transaction, caller.0, caller.1, scope).await?;
        let target_grants = load(&mut transaction, &target.id, target.user_id.as_deref(), scope).await?;
        if !decide(&caller_grants, &target_grants) {
            return Ok(Changed::Refused);
        }
        let statements = statements(scope.level());
        if let Some(role) = role {
            sqlx::query(statements.set)
                .bind(scope.id())
                .bind(&target.id)
                .bind(role_text(role))
                .bind(clock::now())
                .execute(&mut *transaction)
                .await?;
        } else {
            let removed =
                sqlx::query(statements.remove).bind(scope.id()).bind(&target.id).execute(&mut *transaction).await?;
            if removed.rows_affected() == 0 {
                return Ok(Changed::NothingToRemove);
            }
        }
        commit_with(transaction, audit).await?;
        Ok(Changed::Done)
    }

    /// Removes every grant made to a principal anywhere in a workspace; how many those were.
    pub async fn revoke_all_permissions(
        &self,
        workspace_id: &str,
        principal_id: &str,
        audit: &AuditRow,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.write().await?;
        let removed = remove_all(&mut transaction, workspace_id, principal_id).await?;
        commit_with(transaction, audit).await?;
        Ok(removed)
    }

    /// Takes the workspace key and every grant in the workspace from a principal. Nothing to take is fine.
    pub async fn remove_principal_from_workspace(
        &self,
        workspace_id: &str,
        principal_id: &str,
        audit: &AuditRow,
    ) -> Result<(), StoreError> {
        let mut transaction = self.write().await?;
        remove_all(&mut transaction, workspace_id, principal_id).await?;
        sqlx::query("DELETE FROM workspace_principals WHERE workspace_id = ? AND principal_id = ?")
            .bind(workspace_id)
            .bind(principal_id)
            .execute(&mut *transaction)
            .await?;
        commit_with(transaction, audit).await
    }
}

async fn remove_all(
    connection: &mut SqliteConnection,
    workspace_id: &str,
    principal_id: &str,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    for statement in [
        "DELETE FROM workspace_permissions WHERE workspace_id = ?1 AND principal_id = ?2",
        "DELETE FROM project_permissions WHERE principal_id = ?2 \
         AND project_id IN (SELECT id FROM projects WHERE workspace_id = ?1)",
        "DELETE FROM environment_permissions WHERE principal_id = ?2 \
         AND environment_id IN (SELECT id FROM environments WHERE workspace_id = ?1)",
    ] {
        let done = sqlx::query(statement).bind(workspace_id).bind(principal_id).execute(&mut *connection).await?;
        removed += done.rows_affected();
    }
    Ok(removed)
}
